"""gRPC: requests/s and CPU per request of the client grpc, beside ghz.

The server (scripts/bench_servers/grpc, in Go) answers at once, with one message or so many, on a
core of its own; the clients take turns on the other core. One run of each to a round; medians over
rounds, ratios are within a round. "ratio a core": of requests per second of CPU of the client; of
ghz the CPU of a run with a request for each connection is taken off. "server": its CPU while the
client ran, % of its core: at 100 % it is the limit, and only the CPU compares the clients.

Needs Go, which builds the server, and ghz where that is not on PATH, from the module proxy.

    scripts/bench grpc [--rounds 5] [--seconds 3] [--connections 1,10,100] [--messages 100]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from scripts.bench_load import CLIENT_CORE, free_port, pin, running
from serve_bench.core.load_spec import Load, Streaming, Timing
from serve_bench.core.plan import bytes_value
from serve_bench.core.request_spec import Request
from serve_bench.load import drive_load

SERVER: Final = Path(__file__).parent / "bench_servers" / "grpc"
GHZ: Final = "github.com/bojand/ghz/cmd/ghz@v0.120.0"
MESSAGE: Final = bytes_value(b"hello")
PROTO: Final = """syntax = "proto3";
package bench;
import "google/protobuf/wrappers.proto";
service Known {
  rpc Call(google.protobuf.BytesValue) returns (google.protobuf.BytesValue);
  rpc Stream(google.protobuf.BytesValue) returns (stream google.protobuf.BytesValue);
}
"""


@dataclass(frozen=True)
class Run:
    """What a client did: requests/s, CPU microseconds per request, CPU of the server (%)."""

    rate: float
    cpu_us: float
    server: float


def built(folder: Path) -> tuple[Path, Path]:
    """The server, and ghz."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("bench: no Go (go) on PATH")
    server = folder / "server"
    subprocess.run([go, "build", "-o", str(server), "."], cwd=SERVER, check=True)
    if (ghz := shutil.which("ghz")) is not None:
        return server, Path(ghz)
    subprocess.run([go, "install", GHZ], env={**os.environ, "GOBIN": str(folder)}, check=True)
    return server, folder / "ghz"


def ours(url: str, method: str, connections: int, seconds: float) -> tuple[float, float]:
    """Our client with everything on: requests/s, CPU microseconds per request."""
    streaming = Streaming() if method == "Stream" else None
    load = Load(
        Request(f"{url}bench.Known/{method}", method="POST", body=MESSAGE),
        client="grpc",
        connections=connections,
        processes=1,
        streaming=streaming,
    )
    result = drive_load(load, Timing(0.3, 0.3, windows=1, window_s=seconds))
    if result.measured.failed:
        raise SystemExit(f"bench: {method}: failures {result.measured.failed}")
    return result.rate, 1e6 * result.cpu_s / max(1, result.completed_in_windows)


def by_ghz(
    program: Path, folder: Path, url: str, method: str, connections: int, seconds: float
) -> tuple[float, float]:
    """The same of ghz; its CPU by the kernel's account of the child."""
    (folder / "known.proto").write_text(PROTO)
    (folder / "message").write_bytes(MESSAGE)
    where = url.removeprefix("http://").rstrip("/")
    command = [str(program), "--insecure", "--proto=known.proto", "--binary-file=message"]
    command += [f"--call=bench.Known.{method}", f"--connections={connections}"]
    command += [f"--concurrency={connections}", "--timeout=60s"]

    def ran(*more: str) -> tuple[str, float]:
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen([*command, *more, where], stdout=out, cwd=folder)
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
            out.seek(0)
            return out.read(), used.ru_utime + used.ru_stime

    _, start_s = ran(f"--total={connections}")
    text, cpu_s = ran(f"--duration={seconds:g}s", "--duration-stop=wait")
    count, rate = re.search(r"Count:\s+(\d+)", text), re.search(r"Requests/sec:\s+([\d.]+)", text)
    answered = re.search(r"\[OK\]\s+(\d+)", text)
    if count is None or rate is None or answered is None or answered[1] != count[1]:
        raise SystemExit(f"bench: ghz: {text[-400:]}")
    return float(rate[1]), 1e6 * max(0.0, cpu_s - start_s) / int(count[1])


def watched(
    server: psutil.Process, client: Callable[[], tuple[float, float]], seconds: float
) -> Run:
    """A run, with the CPU that the server used meanwhile, as if all of it were in the seconds."""
    before = server.cpu_times()
    rate, cpu_us = client()
    after = server.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    return Run(rate, cpu_us, 100 * used_s / seconds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", default="1,10,100")
    parser.add_argument("--messages", type=int, default=100)
    asked = parser.parse_args()
    print(
        "| method | connections | grpc | ghz | ratio | CPU us grpc, ghz | ratio a core "
        "| server grpc, ghz |"
    )
    print("|---|--:|--:|--:|--:|---|--:|---|")
    with tempfile.TemporaryDirectory() as place:
        folder, port = Path(place), free_port()
        program, ghz = built(folder)
        pin(CLIENT_CORE)
        with running([str(program), str(port), str(asked.messages)], port) as url:
            server = next(one for one in psutil.Process().children() if one.name() == program.name)
            for method in ("Call", "Stream"):
                for connections in map(int, asked.connections.split(",")):
                    what = (url, method, connections, asked.seconds)
                    clients = (partial(ours, *what), partial(by_ghz, ghz, folder, *what))
                    rounds = [
                        [watched(server, client, asked.seconds) for client in clients]
                        for _ in range(asked.rounds)
                    ]
                    print(line(method, connections, rounds), flush=True)


def line(method: str, connections: int, rounds: list[list[Run]]) -> str:
    """A row of the table."""

    def both(of: Callable[[Run], float]) -> list[float]:
        return [statistics.median(of(one[at]) for one in rounds) for at in (0, 1)]

    rates, cpus = both(lambda one: one.rate), both(lambda one: one.cpu_us)
    servers = both(lambda one: one.server)
    ratio = statistics.median(a.rate / b.rate for a, b in rounds)
    core = statistics.median(b.cpu_us / a.cpu_us for a, b in rounds)
    return (
        f"| {method} | {connections} | {rates[0]:,.0f}/s | {rates[1]:,.0f}/s | {ratio:.2f} "
        f"| {cpus[0]:.1f}, {cpus[1]:.1f} | {core:.2f} | {servers[0]:.0f}, {servers[1]:.0f} % |"
    )


if __name__ == "__main__":
    main()
