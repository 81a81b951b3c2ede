"""A load worker: a child process that opens its connections, waits for the common start, and loads.

Run as `python -m serve_bench.load.worker`. A JSON line in (`Orders`), JSON lines out (`Messages`);
then the orders of the next load. The end of stdin means stop, so that no worker outlives its
parent. Imports are few: it starts in 0.1 s and stays small.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serve_bench.core.load_result import Slice, WorkerReport
from serve_bench.core.load_spec import Slices
from serve_bench.core.schema import built
from serve_bench.load.connection import allow_descriptors
from serve_bench.load.failures import BrokenAccount, LoadError
from serve_bench.load.merge import close_account
from serve_bench.load.messages import Done, Messages, Orders, Ready, line_of
from serve_bench.load.pacing import Assignment, Engine
from serve_bench.load.request_log import Notes
from serve_bench.load.tally import ABORT, LATE_NS, START, Shared, Tally
from serve_bench.load.traces import Traces

GRACE_NS = 300_000
"""Sleep until this long before the start, then spin: sleeping alone is late by up to 0.1 ms."""

STDIN = 0

perf = time.perf_counter_ns


ENGINES: Final = {
    "raw": "raw.RawEngine",
    "aiohttp": "aiohttp_client.AiohttpEngine",
    "grpc": "grpc_client.GrpcEngine",
    "handle": "handle_client.HandleEngine",
}
"""The engine of each client, whose libraries alone are imported."""


def make_engine(work: Assignment) -> Engine:
    """Make the client of the load."""
    module, _, name = ENGINES[work.load.client].partition(".")
    engine: Engine = getattr(importlib.import_module(f"serve_bench.load.{module}"), name)(work)
    return engine


# Slices: targets held open at once and loaded in turn.
#
# Rule: only one side is loaded at a time. A slice ends with its last response, before the next.


def run_slices(engines: Sequence[Engine], plan: Slices, start: int) -> list[Slice]:
    """Warm the sides up from `start` on, then run the measured turns; returns the slices."""
    draw = random.Random(f"{plan.seed}/slices")
    drain_s = (
        max(engine.load.timeout_s for engine in engines) if plan.drain_s is None else plan.drain_s
    )
    length_ns, drain_ns = int(plan.slice_s * 1e9), int(drain_s * 1e9) + LATE_NS

    def pair_of_slices(begin: int) -> list[Slice]:
        order = [*range(len(engines))]
        draw.shuffle(order)
        return [run_slice(engines[k], k, begin, length_ns, drain_ns) for k in order]

    warm_until = start + int(plan.warmup_s * 1e9)
    while perf() < warm_until:
        pair_of_slices(start)
    begin = perf()
    for engine in engines:
        engine.tally.begin_slices(begin)
    slices = [piece for _ in range(plan.pairs) for piece in pair_of_slices(begin)]
    end = perf()
    for engine in engines:
        engine.tally.end_slices(end)
    return slices


def run_slice(engine: Engine, side: int, begin: int, length_ns: int, drain_ns: int) -> Slice:
    """Load one side for a slice of time. `begin`: of the first measured slice."""
    tally = engine.tally
    completed, failed = tally.completed, sum(tally.failed.values())
    begun = engine.run_slice(length_ns, drain_ns)
    return Slice(
        side=side,
        begun_s=(begun - begin) / 1e9,
        length_s=max(0, tally.last_ns - begun) / 1e9,
        completed=tally.completed - completed,
        failed=sum(tally.failed.values()) - failed,
    )


# What a worker costs the machine.

SCHEDSTAT = "/proc/thread-self/schedstat"


@dataclass(frozen=True)
class Usage:
    """Clocks of the calling thread and process at an instant (ns)."""

    wall_ns: int
    cpu_ns: int
    ran: tuple[int, int] | None  # running, waiting for a CPU; None without schedstat

    @classmethod
    def now(cls) -> Usage:
        """Read the clocks."""
        ran = None
        if os.path.exists(SCHEDSTAT):
            run_ns, wait_ns = Path(SCHEDSTAT).read_text(encoding="ascii").split()[:2]
            ran = int(run_ns), int(wait_ns)
        return cls(perf(), time.process_time_ns(), ran)


def read_max_rss_mb() -> float:
    """Return the highest resident memory of this process so far, in MB (10^6 bytes).

    Not ru_maxrss if /proc has it: that is at least the parent's, whose memory the child has before
    exec.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def used_between(
    begin: Usage | None, end: Usage | None, has_threads: bool = False
) -> dict[str, Any]:
    """Return CPU seconds between two readings, and the shares not idle and waiting for a CPU.

    `has_threads`: as of `Engine`: the process is then as busy as its CPU says, where that is more.
    """
    if begin is None or end is None:
        return {"cpu_s": 0.0, "non_idle": None, "run_queue_wait": None}
    non_idle = wait = None
    wall = end.wall_ns - begin.wall_ns
    if wall > 0 and begin.ran is not None and end.ran is not None:
        wait = (end.ran[1] - begin.ran[1]) / wall
        non_idle = (sum(end.ran) - sum(begin.ran)) / wall
    cpu_s = (end.cpu_ns - begin.cpu_ns) / 1e9
    if has_threads and wall > 0:
        non_idle = max(non_idle or 0.0, min(1.0, 1e9 * cpu_s / wall))
    return {"cpu_s": cpu_s, "non_idle": non_idle, "run_queue_wait": wait}


def stop_if_alone() -> None:
    """Stop at once if stdin has ended: the parent is gone. Called when stdin is readable."""
    if not os.read(STDIN, 4096):
        os._exit(3)


def wait_for_start(shared: Shared) -> int:
    """Sleep until the start that the parent sets, and return it; 0: the load is cancelled."""
    while not (start := shared.words[START]):
        if shared.words[ABORT]:
            return 0
        if select.select([STDIN], [], [], 0.0005)[0]:
            stop_if_alone()
    while (left := start - perf()) > 0:
        if left > GRACE_NS:
            time.sleep((left - GRACE_NS) / 1e9)
    return int(start)


def work(orders: Orders, send: Callable[[Messages], object]) -> None:
    """Carry out the orders: connect, wait, load, report."""
    file, share, plan = orders.file, orders.share, orders.slices
    shared = Shared(os.open(file, os.O_RDWR) if isinstance(file, str) else file)
    allow_descriptors(len(orders.sides) * share.limit)
    log = orders.log
    notes = None if log is None else Notes(log.limits_ns)
    engines = [make_engine(Assignment(*side, share, notes)) for side in orders.sides]
    for board, engine in enumerate(engines, share.worker):
        engine.watch(STDIN, stop_if_alone)
        engine.tally = Tally(
            shared,
            board,
            orders.timing.windows,
            int(orders.timing.window_s * 1e9),
            share.count,
            engine.open_requests,
            engine.open_streams,
        )
    first = engines[0]
    if orders.traces is not None:
        first.traces = Traces(orders.traces, share.worker)
    usage: dict[str, Usage] = {}
    first.tally.on_measure.append(lambda which: usage.update({which: Usage.now()}))
    opened = tuple(engine.connect() for engine in engines)
    errors = tuple(engine.connect_error for engine in engines)
    connecting = first.connecting[0], engines[-1].connecting[1]
    send(Messages(ready=Ready(opened, share.connections, errors, connecting)))
    gc.collect()
    gc.freeze()
    if not first.makes_cycles:  # then collection would only cost pauses
        gc.disable()
    start = wait_for_start(shared)
    if start:
        slices = run_slices(engines, plan, start) if plan is not None else []
        if plan is None:
            first.run(start, int(orders.timing.drain_at_most_s(first.load) * 1e9) + LATE_NS)
        worker = WorkerReport(
            pid=os.getpid(),
            connections=first.opened,
            max_rss_mb=read_max_rss_mb(),
            timer=first.timer.name if first.load.open_loop else "none",
            **used_between(usage.get("begin"), usage.get("end"), first.has_threads),
        )
        window_s = orders.timing.window_s if plan is None else plan.slice_s
        results = (
            close_account(engine.load, engine.tally, window_s, worker)
            for engine in engines
            if "end" in engine.tally.snapshots  # else it was called off before
        )
        done = Done(
            results=tuple(results),
            slices=tuple(slices),
            logged=notes.write(log.fd) if log is not None and notes is not None else 0,
            traced=first.traces.write() if first.traces is not None else 0,
        )
        send(Messages(done=done))
    for engine in engines:
        engine.close()
    shared.close()


def may_work_again() -> bool:
    """Forget the last load's garbage and highest memory; return whether another may follow."""
    gc.unfreeze()
    gc.enable()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return os.access(f"/proc/{os.getppid()}/fd", os.R_OK | os.X_OK)  # to the next memory
    except OSError:  # some sandboxes allow neither
        return False


def main() -> None:
    """Read orders and carry them out; a target out of reach is reported, not raised."""
    # The parent handles these signals, also when the whole group gets them: it requests the report,
    # and the end of stdin ends the worker.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A handle may import the module of an app, and what that prints must not pass for a reply.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(message: Messages) -> None:
        replies.write(line_of(message))
        replies.flush()

    try:
        for line in sys.stdin:
            work(built(Orders, json.loads(line), "orders"), send)
            send(Messages(kept=may_work_again()))
    except LoadError as error:
        reason = (error.error_class, error.host, error.port, error.reason)
        send(Messages(unreachable=reason))
        sys.exit(1)
    except BrokenAccount as error:
        send(Messages(broken=str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
