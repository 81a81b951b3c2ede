"""Bodies of 0, 1 and 10 MB: MB/s of the raw client and of wrk, on nginx and on Serve's no-op.

nginx and the clients have a core each; Serve has all cores with the client. One run of each client
to a round; medians over rounds, the ratio is within a round. CPU: microseconds a MB of the client.

    scripts/bench payload [--rounds 5] [--seconds 2] [--connections 10] [--variant optimized]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.bench_load import CLIENT_CORE, nginx, pin
from serve_bench.cli.sitting import run_mark
from serve_bench.core.app_spec import app_named
from serve_bench.core.axes import cell_defaults
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import drive_load
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import Serving

SIZES: Final = (0, 1_000_000, 10_000_000)


@dataclass(frozen=True)
class Moved:
    """What a client moved: requests/s, and CPU seconds a request."""

    rate: float
    cpu_s: float


def raw(url: str, connections: int, seconds: float) -> Moved:
    """The raw client."""
    load = Load(Request(url), connections=connections, processes=1)
    result = drive_load(load, Timing(0.3, 0.3, windows=1, window_s=seconds))
    if result.measured.failed:
        raise SystemExit(f"bench: {url}: failures {result.measured.failed}")
    return Moved(result.rate, result.cpu_s / max(1, result.completed_in_windows))


def wrk(url: str, connections: int, seconds: float) -> Moved:
    """wrk; its CPU by the kernel's account of the child."""
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{max(1, round(seconds))}s", url]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        out.seek(0)
        text = out.read()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    count = re.search(r"(\d+) requests in", text)
    if rate is None or count is None:
        raise SystemExit(f"bench: wrk printed no rate: {text[-200:]}")
    return Moved(float(rate[1]), (used.ru_utime + used.ru_stime) / max(1, int(count[1])))


@contextmanager
def serve(variant: str) -> Iterator[str]:
    """The no-op app with one replica."""
    with tempfile.TemporaryDirectory() as place, run_mark() as run_id:
        spec = LaunchSpec(BUILT_IN_VARIANTS[variant], run_id, "1", Path(place) / "ray.log")
        with Serving(spec) as serving:
            serving.start()
            serving.deploy(app_named("noop", "app"), cell_defaults())
            yield f"{serving.url}/noop?bytes="


def table(name: str, base: str, asked: argparse.Namespace) -> None:
    """The rows of a server."""
    for size in SIZES:
        url = f"{base}{size}"
        rounds = [
            (raw(url, asked.connections, asked.seconds), wrk(url, asked.connections, asked.seconds))
            for _ in range(asked.rounds)
        ]
        first, second = ([one[at] for one in rounds] for at in (0, 1))
        ratio = statistics.median(a.rate / b.rate for a, b in rounds)
        cells = []
        for own in (first, second):
            rate = statistics.median(one.rate for one in own)
            cpu = statistics.median(one.cpu_s for one in own)
            moved = f"{rate * size / 1e6:,.0f} MB/s" if size else f"{rate:,.0f} requests/s"
            each = f"{1e6 * cpu / (size / 1e6):,.0f} us a MB" if size else f"{1e6 * cpu:.1f} us"
            cells += [moved, each]
        print(
            f"| {name} | {size // 1_000_000} MB | {' | '.join(cells)} | {ratio:.2f} |", flush=True
        )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--variant", default="optimized", choices=list(BUILT_IN_VARIANTS))
    asked = parser.parse_args()
    print("| server | body | raw | raw, CPU | wrk | wrk, CPU | ratio |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with serve(asked.variant) as base:
        table(f"Serve, {asked.variant}", base, asked)
    pin(CLIENT_CORE)
    with tempfile.TemporaryDirectory() as place, nginx(Path(place), SIZES) as base:
        table("nginx", base, asked)


if __name__ == "__main__":
    main()
