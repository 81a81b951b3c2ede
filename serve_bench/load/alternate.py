"""The worker's side of slices: two targets held open at once and loaded in turn.

Rule: only one side is ever loaded. A slice ends with its last response, before the next one begins.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from typing import Any, Protocol

from serve_bench.core.load_result import Slice
from serve_bench.core.load_spec import Slices
from serve_bench.load.tally import LATE_NS, Tally

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
