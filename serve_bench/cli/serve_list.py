"""`serve-bench profile --list`: the Serve processes of this machine, and how to profile each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from serve_bench.observing.processes import InUse, ServeProcess

HEAD = ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")


def serve_list() -> int:
    """Prints them by cluster: role, app, deployment, CPU over half a second, memory."""
    from serve_bench.observing.processes import in_use, serve_processes

    found = serve_processes()
    if not found:
        typer.echo("no Serve process runs on this machine")
        return 0
    rows: list[tuple[str, ...]] = [HEAD]
    cluster = ""
    for one in in_use(found):
        if one.process.cluster != cluster:
            cluster = one.process.cluster
            rows.append((f"cluster {cluster}",))
        rows.append(row_of(one, _how(one.process)))
    print_columns(rows)
    return 0


def row_of(one: InUse, how: str) -> tuple[str, ...]:
    """A process as a row below HEAD."""
    process = one.process
    named = (str(process.pid), process.role, process.app or "", process.deployment or "")
    return (*named, f"{one.cpu:.0f}", f"{one.rss_bytes / 1e6:.0f}", how)


def _how(one: ServeProcess) -> str:
    return "--target haproxy (C: perf)" if one.role == "haproxy" else f"--pid {one.pid}"


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Rows in columns, the names first; one of a single text stands by itself, and sets no width.

    Where there is no room memory goes and names are folded; the last column is there to be copied.
    """
    from serve_bench.cli.say import width_here
    from serve_bench.core.errors import visible
    from serve_bench.report.columns import fitted

    # Titles are what processes of any user call themselves.
    names, *others = (tuple(visible(cell) for cell in row) for row in rows)
    last = len(names) - 1
    width = width_here()
    table = fitted(names, others, range(last + 1), width, spare=("MB",), fold=(2, 3))
    for line in (*table.lines, *table.said(width or 0)):
        typer.echo(line)
