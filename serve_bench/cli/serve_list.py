"""`serve-bench profile --list`: the Serve processes of this machine, and how to profile each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from serve_bench.processes import ServeProcess


def serve_list() -> int:
    """Prints them by cluster: role, app, deployment, CPU over half a second, memory."""
    import time

    from serve_bench.processes import serve_processes
    from serve_bench.readings import cpu_ns, rss_bytes

    found = serve_processes()
    if not found:
        typer.echo("no Serve process runs on this machine")
        return 0
    before, began = {one.pid: cpu_ns(one.pid) for one in found}, time.perf_counter_ns()
    time.sleep(0.5)
    rows: list[tuple[str, ...]] = [
        ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")
    ]
    cluster = ""
    for one in found:
        then, now, rss = before[one.pid], cpu_ns(one.pid), rss_bytes(one.pid)
        if then is None or now is None or rss is None:
            continue  # ended meanwhile
        share = 100.0 * (now - then) / (time.perf_counter_ns() - began)
        if one.cluster != cluster:
            cluster = one.cluster
            rows.append((f"cluster {cluster}",))
        rows.append(
            (str(one.pid), one.role, one.app or "", one.deployment or "", f"{share:.0f}",
             f"{rss / 1e6:.0f}", _how(one))
        )  # fmt: skip
    _print_columns(rows)
    return 0


def _how(one: ServeProcess) -> str:
    return "--target haproxy (C: perf)" if one.role == "haproxy" else f"--pid {one.pid}"


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[at]) for row in whole) for at in range(len(whole[0]))]
    for row in rows:
        cells = [text.ljust(wide) for text, wide in zip(row, widths, strict=False)]
        typer.echo("  ".join(cells).rstrip() if len(row) > 1 else row[0])
