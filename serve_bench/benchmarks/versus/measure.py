"""How a row is measured on sides that are up: in turn, never at once. Of `tax` they are layers.

Warm-up, a steady load of each side, then slices in drawn order, with what the processes used beside
them. Rule: what was chosen for a row in its first round holds for all, so that rounds can be
compared; a round whose drains have outgrown it is flagged. Records come back to the runner, which
keeps them; judging them is nobody's affair here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil
from msgspec import structs

from serve_bench.benchmarks.versus.request import Pairing
from serve_bench.benchmarks.versus.slicing import (
    DRAINS,
    DrainSample,
    Slicing,
    choose,
    drain_of,
    in_windows,
    slicing_from,
)
from serve_bench.core.facts import SlicesFacts
from serve_bench.core.load_result import LoadResult, Progress, Slice, SlicedResult
from serve_bench.core.load_spec import HANDLE, Load, Slices, Timing
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import client_of, trial_of
from serve_bench.core.result import JsonObject, Metric, Trial, cell_slug
from serve_bench.load.driver import Drive, drive_load, drive_slices, drive_windows, give_up_without
from serve_bench.load.failures import LoadError
from serve_bench.observing.host import cpu_ns
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Gpus, Sampler, sampler_of
from serve_bench.runner.traced import trace_log, waterfall
from serve_bench.serving.server import Process
from serve_bench.serving.strays import marks
from serve_bench.store import now_iso

REQUEST_WAY: Final = ("haproxy", "proxy", "fallback_proxy", "replica", "uvicorn")
"""Roles whose CPU per request costs."""

WARMING: Final = Timing(warmup_min_s=0.5, warmup_max_s=5.0, windows=1, window_s=0.1)
STEADY_WINDOWS: Final = 4

#: Before each window of a load that is not sliced; its connections are new each time.
WINDOW_WARMUP_S: Final = 0.25

#: The same of a handle, which is new each time: in the first second its router learns of replicas,
#: and calls that come before that wait (measured: a fifth of the rate in one window of four).
HANDLE_WARMUP_S: Final = 1.5

#: Pairs of slices that are looked at to choose their length; fewer where each takes long.
LOOK_PAIRS, FEW_LOOK_PAIRS = 6, 3
SLOW_S: Final = 0.5  # a request
LONG_LOOK_S: Final = 0.2  # a slice

Say = Callable[[Pairing, str, Progress | None], None]


@dataclass(frozen=True)
class Target:
    """A side that is up: the load of the row against it, and what serves it (nothing is known of a
    service that was there already). `launch`: its id in the records; `marks`: of its requests that
    are traced; `drive`: what runs a window of it, where it is loaded in windows; None:
    `drive_load`; `ended`: what of its processes has ended, in words."""

    load: Load
    launch: str = ""
    processes: Callable[[], Sequence[Process]] = tuple
    marks: Callable[[], Sequence[ProcessMarks]] = tuple
    drive: Drive | None = None
    ended: Callable[[], Sequence[str]] = tuple


@dataclass(frozen=True)
class _Steady:
    """A side loaded by itself, and where the time of its traced requests went."""

    result: LoadResult
    waterfall: JsonObject


class Times(Protocol):
    """What of a suite says how its rows are measured: fields of `VersusSuite`."""

    @property
    def side_s(self) -> float: ...
    @property
    def steady_s(self) -> float: ...
    @property
    def slice_s(self) -> float | None: ...
    @property
    def sample(self) -> bool: ...


@dataclass
class PairRows:
    """Measures rows, round after round. `folder`: of the run. `chosen`: how each row is loaded in
    turn, by its place. `trace`: the share of requests that are traced while a side is loaded by
    itself; slices are as without."""

    suite: Times
    folder: Path
    run_id: str
    say: Say = lambda at, phase, load: None
    chosen: dict[str, Slicing] = field(default_factory=dict)
    trace: float | None = None
    _gpus: Gpus | None = None

    def measure(self, at: Pairing, targets: Sequence[Target]) -> tuple[Trial, ...]:
        """A trial of each side. Raises LoadError when a side cannot be loaded, StoreError when
        samples cannot be kept."""
        began, started_at = time.monotonic(), now_iso()
        slicing = self.chosen.get(place_of(at))
        if slicing is None:
            slicing = self.chosen[place_of(at)] = self._choose(at, targets)
        loads = _loads(at, targets, slicing.connections)
        steady = self._steady(at, loads, slicing, targets)
        processes = [list(target.processes()) for target in targets]
        watch = self._sampler(processes) if self.suite.sample else nullcontext()
        with watch as sampler:
            before = [_cpu_of(some) for some in processes]
            result = self._in_turn(at, loads, targets, slicing)
            after = [_cpu_of(some) for some in processes]
            later = [_now(target) for target in targets]
        _check_whole(loads, result.sides)
        total_s = time.monotonic() - began
        short = slicing.short(_drains(len(loads), result.slices, slicing))
        trials = []
        for side, planned in enumerate(at.planned):
            own = result.sides[side]
            trial = trial_of(planned, targets[side].launch, started_at, own, total_s)
            trial = _as_slices(trial, result.slices, side, slicing, at.seed, own.total.completed)
            trial = _with_steady(trial, steady[side].result, STEADY_WINDOWS)
            trial = replace(trial, waterfall=steady[side].waterfall)
            trial = _with_cpu(trial, before[side], after[side], set(_on_way(later[side])))
            if short:
                trial = trial.flagged("short_slices")
            if sampler is not None:
                own_pids = {one.pid for one in (*processes[side], *later[side])}
                others = {one.pid for some in (*processes, *later) for one in some} - own_pids
                trial = self._with_usage(trial, sampler, result, others)
            trials.append(trial)
        return tuple(trials)

    # ------------------------------------------------------------------------ before slices

    def _choose(self, at: Pairing, targets: Sequence[Target]) -> Slicing:
        """Looks at slices until they are long enough. All sides are warmed up first."""
        connections, looks = at.row.connections, list[DrainSample]()
        if at.row.loop == "open":
            return in_windows(connections, 0.0, "an open loop cannot be sliced")
        if at.row.client == HANDLE:
            return in_windows(connections, 0.0, "a process is a driver of one cluster alone")
        loads = _loads(at, targets, connections)
        slow = any([self._warm(at, load, targets) > SLOW_S for load in loads])
        next_ = choose(connections, looks, self.suite.slice_s)
        while not isinstance(next_, Slicing):
            looked = Slicing("slices", next_, connections, connections)
            pairs = FEW_LOOK_PAIRS if slow or next_ > LONG_LOOK_S else LOOK_PAIRS
            seen = self._slices(at, loads, targets, looked, pairs)
            looks.append(DrainSample(next_, max(_drains(len(loads), seen.slices, looked))))
            next_ = choose(connections, looks, self.suite.slice_s)
        return next_

    def _warm(self, at: Pairing, load: Load, targets: Sequence[Target]) -> float:
        """The median latency of a side once it is warm, seconds."""
        progress = self._progress(at, "warm-up", targets)
        result = drive_load(load, WARMING, on_progress=progress, mark=marks(self.run_id))
        return (result.latency.percentile(0.5) or 0) / 1e9

    def _steady(
        self, at: Pairing, loads: tuple[Load, ...], slicing: Slicing, targets: Sequence[Target]
    ) -> dict[int, _Steady]:
        """Each side by itself, warmed up and without slices, in drawn order."""
        whole_s = max(self.suite.steady_s, DRAINS * slicing.drain_s)
        timing = replace(WARMING, windows=STEADY_WINDOWS, window_s=whole_s / STEADY_WINDOWS)
        steady: dict[int, _Steady] = {}
        for side in at.steady_order:
            progress = self._progress(at, f"{at.planned[side].variant} alone", targets)
            traced = self.trace if client_of(at.row) == "raw" else None
            traces = None if traced is None else trace_log(traced, whole_s)
            result = drive_load(
                loads[side], timing, on_progress=progress, mark=marks(self.run_id), traces=traces
            )
            fall = {} if traces is None else waterfall(traces.requests, targets[side].marks)
            steady[side] = _Steady(result, fall)
        _check_whole(loads, [steady[side].result for side in range(len(loads))])
        return steady

    # ------------------------------------------------------------------------------ slices

    def _in_turn(
        self, at: Pairing, loads: tuple[Load, ...], targets: Sequence[Target], slicing: Slicing
    ) -> SlicedResult:
        pairs = slicing.pairs(self.suite.side_s)
        if slicing.method == "slices":
            return self._slices(at, loads, targets, slicing, pairs)
        plan = Slices(pairs, slicing.slice_s, warmup_of(at, slicing), seed=at.seed)
        progress = self._progress(at, "windows in turn", targets)
        drives = [target.drive for target in targets]
        return drive_windows(
            loads, plan, on_progress=progress, mark=marks(self.run_id), drives=drives
        )

    def _slices(
        self,
        at: Pairing,
        loads: tuple[Load, ...],
        targets: Sequence[Target],
        slicing: Slicing,
        pairs: int,
    ) -> SlicedResult:
        # No slices of warm-up: all sides are warm, and CPU is read right before the first one. A
        # drain waits as long as a request may take, or two sides would be loaded at once.
        plan = Slices(pairs, slicing.slice_s, 0.0, loads[0].timeout_s, at.seed)
        progress = self._progress(at, "slices in turn", targets)
        return drive_slices(loads, plan, on_progress=progress, mark=marks(self.run_id))

    def _progress(
        self, at: Pairing, phase: str, targets: Sequence[Target]
    ) -> Callable[[Progress], None]:
        """Reports how a load is, and gives it up when a process of a side has ended."""
        ends = [(target.load, target.ended) for target in targets]
        return give_up_without(ends, partial(self.say, at, phase))

    # ------------------------------------------------------------------------------- usage

    def _sampler(self, processes: Sequence[Sequence[Process]]) -> Sampler:
        self._gpus = self._gpus or Gpus()
        return sampler_of((one for some in processes for one in some), self._gpus)

    def _with_usage(
        self, trial: Trial, sampler: Sampler, result: SlicedResult, others: set[int]
    ) -> Trial:
        """What the processes of this side used, and those that belong to no side, from the first
        slice to the last: the share of a process is of that whole time, in half of which its side
        was not loaded."""
        began_ns = min(side.started_at_ns for side in result.sides)
        span_s = max((one.begun_s + one.length_s for one in result.slices), default=0.0)
        usage = sampler.summary(began_ns, span_s)
        processes = tuple(process for process in usage.processes if process.pid not in others)
        samples = [one for one in sampler.samples(trial.key) if one.get("pid") not in others]
        keep_samples(self.folder, samples)
        return replace(trial, usage=structs.replace(usage, processes=processes))


def place_of(at: Pairing) -> str:
    """A row of a cell, alike in all rounds."""
    return f"{cell_slug(at.planned[0].cell)}/{at.row.label}"


def chosen_of(pairings: Iterable[Pairing], trials: Iterable[Trial]) -> dict[str, Slicing]:
    """What an earlier sitting has chosen, by place: what is measured later must go on with it."""
    records = {trial.key: trial.client.slices for trial in trials}
    chosen: dict[str, Slicing] = {}
    for at in pairings:
        for planned in at.planned:
            if (record := records.get(planned.key)) is not None:
                chosen.setdefault(place_of(at), slicing_from(record))
    return chosen


def warmup_of(at: Pairing, slicing: Slicing) -> float:
    """How long a window is warmed up: until the queue is as it stays."""
    least_s = HANDLE_WARMUP_S if at.row.client == HANDLE else WINDOW_WARMUP_S
    return max(least_s, slicing.drain_s)


def _loads(at: Pairing, targets: Sequence[Target], connections: int) -> tuple[Load, ...]:
    """The loads of the sides: the same requests in the same order, which begins in each round at
    another, since the slower side of a round ends at an earlier one of a long list."""
    return tuple(replace(target.load, connections=connections, seed=at.seed) for target in targets)


def _check_whole(loads: Sequence[Load], results: Sequence[LoadResult]) -> None:
    """LoadError where workers were lost: what they counted is in no figure."""
    for load, own in zip(loads, results, strict=True):
        if own.failures:
            lost = "; ".join(f"{one.who} failed: {one.reason}" for one in own.failures)
            raise LoadError("worker", load.request.host, load.request.port, lost)


def _drains(sides: int, slices: Sequence[Slice], slicing: Slicing) -> tuple[float, ...]:
    return tuple(drain_of(slices, side, slicing.slice_s) for side in range(sides))


def _as_slices(
    trial: Trial, slices: Sequence[Slice], side: int, slicing: Slicing, seed: int, requests: int
) -> Trial:
    """The trial with a rate for each slice, and what a comparison needs of them. `requests`: all
    that were completed while CPU was counted, those of the warm-up of windows too."""
    own = sorted((one for one in slices if one.side == side), key=lambda one: one.pair)
    sliced = slicing.method == "slices"
    record = SlicesFacts(
        method=slicing.method,
        slice_s=slicing.slice_s,
        connections=slicing.connections,
        why=slicing.why,
        chosen_drain_s=slicing.drain_s,
        drain_s=round(drain_of(own, side, slicing.slice_s), 6) if sliced else 0.0,
        seed=seed,
        begun_s=tuple(round(one.begun_s, 6) for one in own),
        length_s=tuple(round(one.length_s, 9) for one in own),
        completed=tuple(one.completed for one in own),
        failed=tuple(one.failed for one in own),
        requests=requests,
    )
    rates = tuple(one.rate for one in own)
    metrics = {**trial.metrics, "throughput": Metric("requests/s", "higher", windows=rates)}
    return replace(trial, metrics=metrics, client=structs.replace(trial.client, slices=record))


def _with_steady(trial: Trial, steady: LoadResult, windows: int) -> Trial:
    """The rate without slices beside, and the warm-up that came before it."""
    rates = steady.rates if steady.windows else (steady.rate,) * windows
    metric = Metric("requests/s", "higher", windows=rates)
    return replace(
        trial, metrics={**trial.metrics, "steady_throughput": metric}, warmup=steady.warmup
    )


def _now(target: Target) -> Sequence[Process]:
    """The processes of a side at the end; none where its launch has ended."""
    try:
        return list(target.processes())
    except psutil.Error:
        return ()


def _cpu_of(processes: Iterable[Process]) -> dict[int, int | None]:
    """CPU time so far (ns) of the processes on a request's way."""
    return {pid: cpu_ns(pid) for pid in _on_way(processes)}


def _on_way(processes: Iterable[Process]) -> list[int]:
    return [one.pid for one in processes if one.role in REQUEST_WAY]


def _with_cpu(
    trial: Trial, before: Mapping[int, int | None], after: Mapping[int, int | None], way: set[int]
) -> Trial:
    """CPU seconds of the request's way; none where a process of it is not known, came or ended.
    `way`: the processes on it when all was measured."""
    if not before and not way:
        return trial
    pairs = [(before[pid], after.get(pid)) for pid in before]
    grown = [late - early for early, late in pairs if early is not None and late is not None]
    if len(grown) < len(pairs) or way != set(before):
        return trial.flagged("way_changed")
    metric = Metric("s", "lower", windows=(sum(grown) / 1e9,))
    return replace(trial, metrics={**trial.metrics, "server_cpu": metric})
