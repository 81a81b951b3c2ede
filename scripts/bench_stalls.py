"""Stalls of a server, as the load engine tells them and as the server's own log has them.

One server answers at once, or after 10 ms, and stands still for a while: at the start of the
windows, in their middle, across their end, for good. Its log gives the latency of each request
without the client: from when it was due (open loop, the k-th due against the k-th answer), or from
the answer before it on its connection (closed loop; through a handle: from its arrival), to its own
answer. What never came is above every figure. What is printed is the table of docs/load.md, in
Markdown: in each row the client's figures and counts, and those of the log.

    scripts/bench stalls [--only open,closed,handle] [--copen PROGRAM]

`handle` starts a Ray on this host. `--copen`: an open-loop client in C to hold against ours; called
as `PROGRAM PORT RATE CONNECTIONS SECONDS`, it prints `lat[P50 P99 P99.9 ...` in ms.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load import drive_load

WARM_S, MEASURED_S, TIMEOUT_S = 0.5, 4.0, 3.0
RATE, OPEN_CONNECTIONS, CLOSED_CONNECTIONS = 1000, 100, 20
SHARES = (0.5, 0.99, 0.999)

#: Seconds within the windows between which the server stands still.
STALLS: Mapping[str, tuple[float, float]] = {
    "none": (90.0, 90.0),
    "at the start": (0.1, 1.1),
    "in the middle": (1.5, 2.5),
    "across the end": (3.0, 5.0),
    "for good": (3.0, 90.0),
}

SERVER = """
import asyncio, json, signal, socket, sys, time
first_due, begin, end, delay, log = 0.0, *map(float, sys.argv[1:4]), sys.argv[4]
answers, numbers = [], 0
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok"
class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        global numbers
        self.transport, self.number, self.have = transport, numbers, b""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        numbers += 1
    def data_received(self, data):
        global first_due
        self.have += data
        while b"\\r\\n\\r\\n" in self.have:
            _, _, self.have = self.have.partition(b"\\r\\n\\r\\n")
            first_due = first_due or time.time()
            if delay:
                asyncio.get_running_loop().call_later(delay, self.answer)
            else:
                self.answer()
    def answer(self):
        since = time.time() - first_due
        if begin <= since < end:
            time.sleep(end - since)
        if not self.transport.is_closing():
            answers.append((time.time_ns(), self.number))
            self.transport.write(ANSWER)
def finish(*_):
    json.dump({"first_due": first_due, "answers": answers}, open(log, "w"))
    sys.stdout.close()
    import os; os._exit(0)
async def main():
    signal.signal(signal.SIGTERM, finish)
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True)
class Told:
    """One run: what the client told, and the latency of each request of the windows by the server's
    log (ns; inf: never answered)."""

    load: str
    stall: str
    p: Sequence[float | None]
    lower: Sequence[bool]
    due: int
    answered: int
    log: Sequence[float]


@contextmanager
def stalling(begin_s: float, end_s: float, delay_s: float, log: Path) -> Iterator[str]:
    """The server; seconds from its first request. Its log is written when the block ends."""
    command = [sys.executable, "-c", SERVER, str(begin_s), str(end_s), str(delay_s), str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:  # it sleeps for good: the log is what it was before
            process.kill()
            process.wait()


def percentiles(values: Sequence[float]) -> list[float | None]:
    ranked = sorted(values)
    return [ranked[math.ceil(q * len(ranked)) - 1] if ranked else None for q in SHARES]


def open_truth(answers: Sequence[tuple[int, int]], start_ns: int, warm_s: float) -> list[float]:
    """The k-th answer belongs to the k-th request due, the warm-up's included."""
    step = 1e9 / RATE
    warm = [start_ns - 1e9 * warm_s + k * step for k in range(math.ceil(warm_s * RATE - 1e-6))]
    due = [*warm, *(start_ns + k * step for k in range(round(MEASURED_S * RATE)))]
    times = [float(at) for at, _ in sorted(answers)]
    times += [math.inf] * (len(due) - len(times))
    return [at - of for at, of in zip(times, due, strict=False) if of >= start_ns]


def closed_truth(answers: Sequence[tuple[int, int]], start_ns: int, for_good: bool) -> list[float]:
    """A connection sends when it is answered: the time between two answers is a latency. Where the
    server stopped for good the last request of each has none."""
    last: dict[int, int] = {}
    out: list[float] = []
    end_ns = start_ns + MEASURED_S * 1e9
    for at, number in sorted(answers):
        if number in last and start_ns <= last[number] < end_ns:
            out.append(float(at - last[number]))
        last[number] = at
    never = sum(1 for at in last.values() if start_ns <= at) if for_good else 0
    return out + [math.inf] * never


def told_by(result: LoadResult) -> tuple[list[float | None], list[bool]]:
    """Percentiles, and which are lower bounds (an engine that knows none has none)."""
    censored = getattr(result, "censored", None)
    if censored is None:
        return list(result.latency.percentiles(SHARES)), [False] * len(SHARES)
    from serve_bench.core.histogram import bounded

    found = bounded(result.latency, censored, SHARES)
    return [value for value, _ in found], [lower for _, lower in found]


def run(client: Client, loop: str, stall: str) -> Told:
    """One load against the server with that stall."""
    begin_s, end_s = (WARM_S + at for at in STALLS[stall])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        delay_s = 0.0 if loop == "open" else 0.01
        with stalling(begin_s, end_s, delay_s, log) as port:
            load = Load(
                Request(f"http://127.0.0.1:{port}/", expect_body=b"ok"),
                client=client,
                connections=OPEN_CONNECTIONS if loop == "open" else CLOSED_CONNECTIONS,
                processes=1,
                rate=RATE if loop == "open" else None,
                timeout_s=TIMEOUT_S,
            )
            windows = round(MEASURED_S * 2)
            result = drive_load(load, Timing(WARM_S, WARM_S, windows=windows, window_s=0.5))
        told = json.loads(log.read_text())
    answers = [(at, number) for at, number in told["answers"]]
    start_ns, warm_s = result.started_at_ns, result.warmup.seconds
    for_good = begin_s < MEASURED_S and end_s > MEASURED_S + TIMEOUT_S
    real = closed_truth(answers, start_ns, for_good)
    if loop == "open":
        real = open_truth(answers, start_ns, warm_s)
    measured, (p, lower) = result.measured, told_by(result)
    due = measured.sent + measured.unsent
    return Told(f"{loop} loop, {client}", stall, p, lower, due, measured.completed, real)


def copen(program: str, stall: str) -> Told:
    """The C client on the same stall. It has no warm-up, waits 5 s for answers, and does not say
    what it knows of those that never came."""
    with tempfile.TemporaryDirectory() as folder:
        log, (begin_s, end_s) = Path(folder) / "log", STALLS[stall]
        with stalling(begin_s, end_s, 0.0, log) as port:
            asked = [port, str(RATE), str(OPEN_CONNECTIONS), str(MEASURED_S)]
            text = subprocess.run([program, *asked], capture_output=True, text=True).stdout
        told = json.loads(log.read_text())
    figures = re.search(r"lat\[([\d. ]+)", text)
    assert figures is not None, f"{program} told no latency: {text}"
    values = [1e6 * float(one) for one in figures[1].split()]
    got = re.search(r"got ([\d.]+)", text)
    assert got is not None, f"{program} told no count: {text}"
    answered = round(float(got[1]) * MEASURED_S)
    real = open_truth(told["answers"], int(1e9 * told["first_due"]), 0.0)
    due = round(RATE * MEASURED_S)
    return Told("open loop, C", stall, values, [False] * len(SHARES), due, answered, real)


def handle(stall: str) -> Told:
    """Clients that call a handle of a real Serve, as `scale` has them."""
    import ray
    from ray import serve

    import serve_bench

    sys.path.insert(0, str(Path(serve_bench.__file__).parent / "serving" / "cluster"))
    # Found by its path, as in the cluster.
    applications = importlib.import_module("applications")
    begin_s, end_s = STALLS[stall]

    class Stalls:
        def __init__(self) -> None:
            self.first = 0.0
            self.log: list[list[float]] = []  # when each came, and when it was answered

        async def __call__(self, wish: int) -> object:
            import asyncio
            import time

            if wish:
                return self.log
            came = [time.time()]
            self.log.append(came)
            self.first = self.first or came[0]
            await asyncio.sleep(0.01)
            # The warm-up is drained before the windows: they begin a service time later.
            since = time.time() - self.first - WARM_S - 0.01
            if begin_s <= since < end_s:
                await asyncio.sleep(end_s - since)
            came.append(time.time())
            return 0

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    stalls: Any = serve.deployment(Stalls, max_ongoing_requests=1000)
    served = serve.run(stalls.bind(), name="stalls", route_prefix=None)
    windows = round(MEASURED_S * 2)
    spec = {"app": "stalls", "clients": CLOSED_CONNECTIONS, "warmup_s": WARM_S, "window_s": 0.5}
    spec |= {"windows": windows, "expect": "0", "timeout_s": TIMEOUT_S}
    told = applications.Handles().load(spec)
    entries = sorted(served.remote(1).result())
    warm = told["warmup_completed"] + told.get("warmup_failed", 0)  # it came first
    real = [1e9 * (one[1] - one[0]) if len(one) > 1 else math.inf for one in entries[warm:]]
    from serve_bench.core.histogram import Histogram

    latency = Histogram.of(told["latencies_ns"])
    p, lower = list(latency.percentiles(SHARES)), [False] * 3
    if "censored_ns" in told:
        from serve_bench.core.histogram import bounded

        found = bounded(latency, Histogram.of(told["censored_ns"]), SHARES)
        p, lower = [value for value, _ in found], [is_lower for _, is_lower in found]
    due = told["completed"] + sum(told["failed"].values()) + told.get("in_flight", 0)
    serve.delete("stalls")
    return Told("closed loop, handle", stall, p, lower, due, told["completed"], real)


HEAD = """\
| load | stall | p50 | p99 | p99.9 | by the log: p50 | p99 | p99.9 \
| due, answered, unanswered | by the log |
|---|---|---|---|---|---|---|---|---|---|"""


def line(told: Told) -> str:
    """A row of the table; times in ms. What failed is unanswered."""

    def ms(value: float | None, lower: bool = False) -> str:
        text = "-" if value is None else "never" if math.isinf(value) else f"{value / 1e6:,.2f}"
        return f"> {text}" if lower else text

    ours = [ms(value, lower) for value, lower in zip(told.p, told.lower, strict=True)]
    real = [ms(value) for value in percentiles(told.log)]
    answered = sum(map(math.isfinite, told.log))
    counts = (
        f"{due:,}, {came:,}, {due - came:,}"
        for due, came in ((told.due, told.answered), (len(told.log), answered))
    )
    return f"| {' | '.join((told.load, told.stall, *ours, *real, *counts))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="open,closed,handle", help="loops, by comma")
    parser.add_argument("--copen", help="an open-loop client in C")
    options = parser.parse_args()
    chosen = options.only.split(",")
    print(HEAD)
    for loop in ("open", "closed"):
        for stall in STALLS if loop in chosen else ():
            clients: tuple[Client, ...] = ("raw", "aiohttp")
            for client in clients:
                print(line(run(client, loop, stall)), flush=True)
            if loop == "open" and options.copen:
                print(line(copen(options.copen, stall)), flush=True)
    for stall in STALLS if "handle" in chosen else ():
        print(line(handle(stall)), flush=True)


if __name__ == "__main__":
    main()
