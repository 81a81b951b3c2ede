"""A load worker: a child process that opens its connections, waits for the common start, and loads.

Run as `python -m serve_bench.load.worker`. One JSON line in (the orders), JSON lines out:
`ready`, then `done`, or `unreachable`. The end of stdin means stop, so that no worker outlives
its parent, however that died. Imports are few: a worker starts in about 0.1 s and stays small.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

from serve_bench.core.load_result import Slice
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.load.connect import Address, allow_descriptors
from serve_bench.load.evidence import Usage, max_rss_mb, shares_between, usage_now
from serve_bench.load.failures import LoadError
from serve_bench.load.pacing import Timer
from serve_bench.load.request_log import Notes
from serve_bench.load.share import Share
from serve_bench.load.shared import ABORT, START, Shared
from serve_bench.load.tally import LATE_NS, Tally

# --------------------------------------------------------------------------------------------------
# The worker's side of slices: two targets held open at once and loaded in turn.
#
# Rule: only one side is ever loaded. A slice ends with its last response, before the next one
# begins.

perf = time.perf_counter_ns


class SliceEngine(Protocol):
    """What a client must be able to do to be loaded in slices."""

    tally: Tally

    def run_slice(self, length_ns: int, drain_ns: int) -> int: ...


class Alternation:
    """Runs the slices of both sides."""

    def __init__(self, engines: list[Any], plan: Slices) -> None:
        self._engines: list[SliceEngine] = engines
        self._plan = plan
        self._draw = random.Random(f"{plan.seed}/slices")
        self._length_ns = int(plan.slice_s * 1e9)
        drain_s = max(one.load.timeout_s for one in engines)
        drain_s = drain_s if plan.drain_s is None else plan.drain_s
        self._drain_ns = int(drain_s * 1e9) + LATE_NS
        self.slices: list[Slice] = []

    def run(self, start: int) -> None:
        """Warm both sides up, then run the measured pairs."""
        warm_until = start + int(self._plan.warmup_s * 1e9)
        while perf() < warm_until:
            for side in self._order():
                self._run_one(side, -1, start)
        begin = perf()
        for engine in self._engines:
            engine.tally.begin_slices(begin)
        for pair in range(self._plan.pairs):
            self.slices += [self._run_one(side, pair, begin) for side in self._order()]
        end = perf()
        for engine in self._engines:
            engine.tally.end_slices(end)

    def _order(self) -> list[int]:
        order = [0, 1]
        self._draw.shuffle(order)
        return order

    def _run_one(self, side: int, pair: int, begin: int) -> Slice:
        engine = self._engines[side]
        tally = engine.tally
        completed, failed = tally.completed, sum(tally.failed.values())
        cpu_ns = time.process_time_ns()
        begun = engine.run_slice(self._length_ns, self._drain_ns)
        return Slice(
            side=side,
            pair=pair,
            begun_s=(begun - begin) / 1e9,
            length_s=max(0, tally.last_ns - begun) / 1e9,
            completed=tally.completed - completed,
            failed=sum(tally.failed.values()) - failed,
            cpu_s=(time.process_time_ns() - cpu_ns) / 1e9,
        )

    def report(self) -> list[dict[str, Any]]:
        """The slices for the parent."""
        return [asdict(one) for one in self.slices]


# --------------------------------------------------------------------------------------------------

GRACE_NS = 300_000
"""Sleep until so long before the start, then spin: sleeping alone is late by up to 0.1 ms."""

STDIN = 0


class Engine(Protocol):
    """What a client must be able to do; see `raw.RawEngine`."""

    load: Load
    tally: Tally
    timer: Timer
    connect_error: str | None
    connecting: tuple[int, int]
    """When `connect` began with the first and was done with the last (perf_counter_ns)."""

    def open_requests(self) -> tuple[list[int], list[int]]: ...
    def watch(self, fd: int, call: Callable[[], None]) -> None: ...
    def connect(self) -> int: ...
    def run(self, start: int, drain_ns: int) -> None: ...
    def run_slice(self, length_ns: int, drain_ns: int) -> int: ...
    def close(self) -> None: ...


def make_engine(load: Load, address: Address, share: Share, notes: Notes | None = None) -> Engine:
    """The client that the load names. `notes` are kept by the raw client alone."""
    if load.client == "aiohttp":
        from serve_bench.load.aiohttp_client import AiohttpEngine

        return AiohttpEngine(load, address, share)
    from serve_bench.load.raw import RawEngine

    return RawEngine(load, address, share, notes)


def stop_if_alone() -> None:
    """Stdin became readable: nothing more is ever sent, so this is its end. Stop at once."""
    if not os.read(STDIN, 4096):
        os._exit(3)


def say(**message: Any) -> None:
    """One JSON line to the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def wait_for_start(shared: Shared) -> int:
    """Sleep until the parent names the start, then until that instant. 0: called off."""
    while not (start := shared.words[START]):
        if shared.words[ABORT]:
            return 0
        if select.select([STDIN], [], [], 0.0005)[0]:
            stop_if_alone()
    while (left := start - time.perf_counter_ns()) > 0:
        if left > GRACE_NS:
            time.sleep((left - GRACE_NS) / 1e9)
    return int(start)


class UsageLog:
    """What the worker had used when measuring began and when it ended."""

    def __init__(self) -> None:
        self.at: dict[str, Usage] = {}

    def note(self, which: str) -> None:
        """The tally calls this at both instants."""
        self.at[which] = usage_now()

    def report(self) -> dict[str, Any]:
        """For the parent: CPU seconds, shares, memory."""
        begin, end = self.at.get("begin"), self.at.get("end")
        if begin is None or end is None:
            return {"cpu_s": 0.0, "non_idle": None, "run_queue_wait": None}
        non_idle, wait = shares_between(begin, end)
        cpu_s = (end.cpu_ns - begin.cpu_ns) / 1e9
        return {"cpu_s": cpu_s, "non_idle": non_idle, "run_queue_wait": wait}


def work(orders: dict[str, Any]) -> None:
    """Carry out the orders: connect, wait, load, report."""
    shared = Shared.attach(orders["fd"], orders["boards"])
    share = Share(**orders["share"])
    timing = Timing(**orders["timing"])
    plan = Slices(**orders["slices"]) if orders["slices"] else None
    short = allow_descriptors(len(orders["sides"]) * share.limit)
    if short is not None:
        raise LoadError("connect", "this machine", 0, short)
    usage = UsageLog()
    notes = Notes() if orders["log_fd"] is not None else None
    engines = [
        prepare(side, share, timing, shared, share.worker + k, notes)
        for k, side in enumerate(orders["sides"])
    ]
    engines[0].tally.on_measure.append(usage.note)
    say(
        event="ready",
        opened=[engine.connect() for engine in engines],
        wanted=share.connections,
        errors=[engine.connect_error for engine in engines],
        connecting=[engines[0].connecting[0], engines[-1].connecting[1]],
    )
    # The clients make no reference cycles, so collection would only cost pauses.
    gc.collect()
    gc.freeze()
    gc.disable()
    start = wait_for_start(shared)
    if start:
        slices = load_all(engines, plan, start, timing)
        say(
            event="done",
            reports=[engine.tally.report() for engine in engines],
            slices=slices,
            logged=notes.write(orders["log_fd"]) if notes is not None else 0,
            max_rss_mb=max_rss_mb(),
            connections=share.connections,
            timer=engines[0].timer.name if engines[0].load.open_loop else "none",
            **usage.report(),
        )
    for engine in engines:
        engine.close()


def prepare(
    side: dict[str, Any],
    share: Share,
    timing: Timing,
    shared: Shared,
    board: int,
    notes: Notes | None,
) -> Engine:
    """The engine for one target, with its account. Raises LoadError."""
    load = Load.from_json(side["load"])
    family, sockaddr = side["address"]
    address = Address(family, sockaddr if isinstance(sockaddr, str) else tuple(sockaddr))
    engine = make_engine(load, address, share, notes)
    engine.watch(STDIN, stop_if_alone)
    window_ns = int(timing.window_s * 1e9)
    engine.tally = Tally(
        shared, board, timing.windows, window_ns, share.count, engine.open_requests
    )
    return engine


def load_all(
    engines: list[Engine], plan: Slices | None, start: int, timing: Timing
) -> list[dict[str, Any]]:
    """Run the load, or the slices of both loads; returns the slices."""
    if plan is None:
        engines[0].run(start, int(timing.drain_at_most_s(engines[0].load) * 1e9) + LATE_NS)
        return []
    alternation = Alternation(engines, plan)
    alternation.run(start)
    return alternation.report()


def main() -> None:
    """Read the orders and carry them out; a target out of reach is said, not raised."""
    # What ends the parent in order is the parent's to handle, also where it meets the whole group:
    # it asks for what was measured, and the end of stdin is the end of this.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders = json.loads(sys.stdin.readline())
    try:
        work(orders)
    except LoadError as error:
        say(
            event="unreachable",
            error_class=error.error_class,
            host=error.host,
            port=error.port,
            reason=error.reason,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
