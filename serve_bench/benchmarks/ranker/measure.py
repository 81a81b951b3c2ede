"""Measures the rankers alone, without Serve: forward and whole call by batch size, interleaved.

Rule: it measures and makes records; ratios and the floor come from summary.py. Checks come
first: `check` names what cannot be had before anything is built. torch is reached through
apps/dlrm*.py alone, and only once a measurement begins.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from serve_bench.benchmarks.ranker.summary import CALL, FORWARD, KINDS, THROUGHPUT
from serve_bench.core.errors import BadInput
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import Metric, PlannedTrial, Row, Trial, trial_key
from serve_bench.observing.host import free_memory_bytes
from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.store import now_iso

#: A slice of one ranker within a round: so long, or one call. Rounds alternate slices, since the
#: speed of a machine wanders within a second (the ratio is made of neighbours).
SLICE_S: Final = 0.01

#: Inputs are different in each call until they have touched so many bytes of tables: with the same
#: rows again and again, the gather would be served by caches and not by memory.
TOUCH_BYTES: Final = 128 * 1024 * 1024
FEWEST_INPUTS: Final = 4

WARM_UP_CALLS: Final = 5

#: Memory beside tables and batches: torch itself and the copy that measures bandwidth.
OTHER_BYTES: Final = 1024**3
LIST_NUMBER_BYTES: Final = 40  # a number in a Python list: 24 to 32 and the reference

INSTALL: Final = "torch is not installed: pip install torch numpy"


@dataclass(frozen=True)
class RankerPlan:
    """What to measure. `threads` None: as many as torch takes; `rounds` at each batch size."""

    shape: Shape = field(default_factory=Shape)
    rows: tuple[int, ...] = (32, 320, 3200)
    kinds: tuple[str, ...] = KINDS
    device: str = "auto"
    threads: int | None = None
    rounds: int = 41
    seed: int = 1


def check(plan: RankerPlan) -> None:
    """BadInput when torch is missing or the tables do not fit; each with a way out."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput(INSTALL)
    _refuse_beyond(plan, free_memory_bytes(), "memory")


def _refuse_beyond(plan: RankerPlan, free_bytes: int, what: str) -> None:
    # On CUDA the tables are drawn on the host, one ranker after the other, then moved.
    shape = plan.shape
    between = 8 * shape.vectors * (2 * shape.width + shape.vectors)  # two of each at once
    as_lists = FEWEST_INPUTS * shape.columns * LIST_NUMBER_BYTES
    needed = len(plan.kinds) * shape.tables_bytes + max(plan.rows) * (between + as_lists)
    needed += OTHER_BYTES
    if needed <= free_bytes:
        return
    ways = ["--table-rows or --rows with less"]
    if len(plan.kinds) > 1:
        ways.append("--ranker plain and --ranker tuned one after the other")
    raise BadInput(
        f"{what}: the tables take {plan.shape.tables_bytes / 1e9:.2f} GB for each of "
        f"{len(plan.kinds)} rankers, {needed / 1e9:.2f} GB with the rest, and "
        f"{free_bytes / 1e9:.2f} GB is free; try {' or '.join(ways)}"
    )


def resolved(plan: RankerPlan) -> RankerPlan:
    """The plan with the device and the threads that are in force; it imports torch. Raises BadInput
    when the device is not there, or its memory does not hold the tables."""
    try:
        from serve_bench.serving.apps import dlrm
    except ImportError as error:
        raise BadInput(f"torch cannot be used: {error}") from None
    try:
        device = dlrm.resolve_device(plan.device)
    except ValueError as error:
        raise BadInput(f"--device {plan.device}: {error}; it takes auto or cpu here") from None
    if device == "cuda":
        _refuse_beyond(plan, dlrm.free_bytes(device), "GPU memory")
    return replace(plan, device=device, threads=dlrm.threads(plan.threads))


def planned(plan: RankerPlan) -> tuple[PlannedTrial, ...]:
    """The trials of a resolved plan, in the order of the report."""
    row = Row(label="forward", client="torch", connections=1)
    out = []
    for rows, kind in itertools.product(plan.rows, plan.kinds):
        cell = {
            "rows": rows,
            "device": plan.device,
            "threads": plan.threads,
            **further(plan.shape),
        }
        out.append(PlannedTrial(trial_key(kind, 1, cell, row.label), 1, kind, cell, row))
    return tuple(out)


def further(shape: Shape) -> dict[str, Any]:
    """What of a shape is not as published."""
    default = Shape()
    return {
        one.name: _plain(getattr(shape, one.name))
        for one in fields(Shape)
        if getattr(shape, one.name) != getattr(default, one.name)
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class RankerBench:
    """The rankers of a resolved plan, built; `measure` gives the records of a batch size."""

    def __init__(self, plan: RankerPlan, say: Callable[[str], None]) -> None:
        """Builds the rankers and measures what the machine can do."""
        from serve_bench.serving.apps import dlrm

        self.plan, self._clock = plan, dlrm
        self._planned = {(at.cell["rows"], at.variant): at for at in planned(plan)}
        self._rankers: dict[str, Any] = {}
        for kind in plan.kinds:
            say(f"building {kind}: {plan.shape.tables_bytes / 1e6:,.0f} MB of tables")
            self._rankers[kind] = dlrm.build(kind, plan.shape, plan.device, plan.seed)
        place = self._rankers[plan.kinds[0]].device
        say("measuring bandwidth, peak and the smallest operator")
        self.machine = {
            "bytes_per_s": dlrm.bandwidth(place),
            "flops_per_s": dlrm.peak_flops(place),
            "launch_ns": dlrm.launch_ns(place),
        }

    def measure(self, rows: int) -> tuple[Trial, ...]:
        """One batch size, the rankers interleaved in drawn order. One record for each ranker."""
        began, started_at = time.monotonic(), now_iso()
        inputs = _Inputs(self.plan, rows)
        order = random.Random(self.plan.seed * 1_000_003 + rows)
        sides = [_Side(kind, self._rankers[kind], self._clock, inputs) for kind in self.plan.kinds]
        for _ in range(self.plan.rounds):
            for side in order.sample(sides, len(sides)):
                side.round()
        total_s = time.monotonic() - began
        return tuple(self._trial(side, rows, started_at, total_s) for side in sides)

    def _trial(self, side: _Side, rows: int, started_at: str, total_s: float) -> Trial:
        at, shape = self._planned[rows, side.kind], self.plan.shape
        calls = side.calls
        return at.measured(
            "",
            started_at,
            window_s=total_s / self.plan.rounds,
            warmup=Warmup(side.warm_up_s, True, WARM_UP_CALLS),
            metrics={
                FORWARD: Metric("ns", "lower", windows=tuple(side.forward_ns)),
                CALL: Metric("ns", "lower", windows=tuple(side.call_ns)),
                THROUGHPUT: Metric(
                    "rows/s", "higher", windows=tuple(rows * 1e9 / ns for ns in side.call_ns)
                ),
            },
            counts=Counts(sent=calls, completed=calls, failed={}, in_flight=0),
            client={
                "ranker": side.ranker.facts(),
                "shape": {name: _plain(value) for name, value in asdict(shape).items()},
                "work": {
                    "bytes_moved": shape.bytes_moved(rows),
                    "flops": shape.flops(rows),
                    "launches": side.launches(),
                },
                "machine": self.machine,
                "inputs": side.inputs.count,
            },
            seconds={"total": round(total_s, 4), "warmup": round(side.warm_up_s, 4)},
        )


class _Inputs:
    """Requests of different users for each call of a batch size, the same for both rankers."""

    def __init__(self, plan: RankerPlan, rows: int) -> None:
        self.shape, self.seed, self.rows = plan.shape, plan.seed, rows
        touched = rows * plan.shape.sparse_features * plan.shape.width * 4
        self.count = max(FEWEST_INPUTS, -(-TOUCH_BYTES // touched))

    def payloads(self, kind: str) -> Iterator[list[Any]]:
        """Batches of requests in the ranker's own form; the last request may be a part of one."""
        from serve_bench.serving.apps.dlrm_features import FORMS, features

        user = itertools.count()
        for _ in range(self.count):
            batch, left = [], self.rows
            while left:
                dense, ids = features(next(user), self.shape, self.seed)
                taken = min(left, len(dense))
                batch.append(FORMS[kind](dense[:taken], ids[:taken]))
                left -= taken
            yield batch


class _Side:
    """One ranker at one batch size, and what was measured of it so far."""

    def __init__(self, kind: str, ranker: Any, clock: Any, inputs: _Inputs) -> None:
        self.kind, self.ranker, self.inputs = kind, ranker, inputs
        self._clock = clock
        batches = list(inputs.payloads(kind))
        self._calls = itertools.cycle(batches)
        began = time.monotonic()
        for batch in batches[:WARM_UP_CALLS]:
            ranker.score(batch)
        each_s = max(1e-6, (time.monotonic() - began) / min(len(batches), WARM_UP_CALLS))
        self.warm_up_s = time.monotonic() - began
        # A graph has one input of fixed address: what was loaded last is what it computes on.
        fixed = getattr(ranker, "graphs", None) is not None
        loaded = [ranker.load(batch) for batch in (batches[:1] if fixed else batches)]
        self._loaded = itertools.cycle(loaded)
        self._in_a_slice = max(1, round(SLICE_S / each_s))
        self.forward_ns: list[float] = []
        self.call_ns: list[float] = []
        self.calls = 0

    def round(self) -> None:
        """A slice of forwards, then a slice of whole calls: the median time of each is kept."""
        device, count = self.ranker.device, self._in_a_slice
        loaded = list(itertools.islice(self._loaded, count))
        taken = self._clock.time_calls(device, self.ranker.forward, loaded)
        self.forward_ns.append(statistics.median(taken))
        batches = list(itertools.islice(self._calls, count))
        taken = self._clock.time_calls(device, self.ranker.score, batches, host=True)
        self.call_ns.append(statistics.median(taken))
        self.calls += 2 * count

    def launches(self) -> int:
        """Operators of one forward; a graph is launched as one."""
        one = next(self._loaded)
        counted: int = self._clock.operators(lambda: self.ranker.forward(one))
        return max(1, counted)
