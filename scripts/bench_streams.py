"""Streams: what an event costs the raw client, beside a reader in C, aiohttp and httpx.

The server (scripts/bench_servers/stream.c) writes each event by itself, as fast as it can, on all
connections in turn, on a core of its own; the readers take turns on the other core. "events/s a
core": of the time that the reader used a CPU. Medians over rounds; ratios are within a round.
Events that the server has written before a reader comes back arrive in one read ("merged").

    scripts/bench streams [--rounds 5] [--seconds 2] [--connections 1,10,100] [--events 100]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.bench_load import CLIENT_CORE, free_port, pin, running
from serve_bench.core.load_spec import Load, Streaming, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load import drive_load

HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class Reading:
    """What a reader did: events/s, and CPU microseconds an event; the share merged, if known."""

    rate: float
    cpu_us: float
    merged: float | None = None


def compiled(folder: Path) -> Path:
    """The server and reader in C."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("bench: no C compiler (cc) on PATH")
    program = folder / "stream"
    source = HERE / "bench_servers" / "stream.c"
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program


def ours(url: str, connections: int, seconds: float) -> Reading:
    """The raw client, with every event timed."""
    load = Load(Request(url), connections=connections, processes=1, streaming=Streaming())
    result = drive_load(load, Timing(0.2, 0.2, windows=1, window_s=seconds))
    if result.measured.failed or not result.events:
        raise SystemExit(f"bench: {result.events} events, failures {result.measured.failed}")
    merged = result.merged / result.events
    return Reading(result.events / result.duration_s, 1e6 * result.cpu_s / result.events, merged)


async def _aiohttp(url: str, connections: int, until: float) -> int:
    import aiohttp

    async def read(session: aiohttp.ClientSession) -> int:
        events = 0
        while time.monotonic() < until:
            async with session.get(url) as response:
                async for line in response.content:
                    events += line.startswith(b"data:")
                    if time.monotonic() >= until:
                        return events
        return events

    async with aiohttp.ClientSession() as session:
        return sum(await asyncio.gather(*(read(session) for _ in range(connections))))


async def _httpx(url: str, connections: int, until: float) -> int:
    httpx: Any = importlib.import_module("httpx")  # not of the lock

    async def read(client: Any) -> int:
        events = 0
        while time.monotonic() < until:
            async with client.stream("GET", url) as response:
                async for line in response.aiter_lines():
                    events += bool(line.startswith("data:"))
                    if time.monotonic() >= until:
                        return events
        return events

    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:
        counts: list[int] = await asyncio.gather(*(read(client) for _ in range(connections)))
        return int(sum(counts))


LIBRARIES: Final = {"aiohttp": _aiohttp, "httpx": _httpx}


def library(name: str, url: str, connections: int, seconds: float) -> Reading:
    """A reader of a library, in a process of its own."""
    command = [sys.executable, __file__, "--read", name, url, str(connections), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Reading(*json.loads(done.stdout))


def read_here(name: str, url: str, connections: int, seconds: float) -> None:
    """In that process: prints [events/s, us an event]."""
    begun, used = time.monotonic(), time.process_time()
    events = asyncio.run(LIBRARIES[name](url, connections, begun + seconds))
    lasted, used = time.monotonic() - begun, time.process_time() - used
    print(json.dumps([events / lasted, 1e6 * used / max(1, events)]))


def in_c(program: Path, port: int, connections: int, seconds: float) -> Reading:
    """The reader in C: the floor."""
    command = [str(program), "read", str(port), str(connections), str(seconds)]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return Reading(float(words[0]), float(words[2]))


def available() -> list[str]:
    """The libraries that are installed."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name)]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", default="1,10,100")
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read:
        name, url, connections, seconds = asked.read
        read_here(name, url, int(connections), float(seconds))
        return
    pin(CLIENT_CORE)
    print(
        "| connections | client | events/s | us an event | events/s a core | ratio to C | merged |"
    )
    print("|--:|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as place:
        program, port = compiled(Path(place)), free_port()
        with running([str(program), "serve", str(port), str(asked.events)], port) as url:
            for connections in map(int, asked.connections.split(",")):
                readers: dict[str, Callable[[], Reading]] = {
                    "C": partial(in_c, program, port, connections, asked.seconds),
                    "raw": partial(ours, url, connections, asked.seconds),
                }
                for name in available():
                    readers[name] = partial(library, name, url, connections, asked.seconds)
                rounds = [{k: read() for k, read in readers.items()} for _ in range(asked.rounds)]
                for name in readers:
                    print(line(connections, name, rounds), flush=True)


def line(connections: int, name: str, rounds: list[dict[str, Reading]]) -> str:
    """A row of the table."""

    def median(of: Callable[[dict[str, Reading]], float]) -> float:
        return statistics.median(map(of, rounds))

    rate, cpu = median(lambda one: one[name].rate), median(lambda one: one[name].cpu_us)
    ratio = median(lambda one: one[name].rate / one["C"].rate)
    merged = [one[name].merged for one in rounds]
    share = "-" if None in merged else f"{100 * statistics.median(m or 0 for m in merged):.0f} %"
    return (
        f"| {connections} | {name} | {rate:,.0f} | {cpu:.2f} | {1e6 / cpu:,.0f} | {ratio:.2f} "
        f"| {share} |"
    )


if __name__ == "__main__":
    main()
