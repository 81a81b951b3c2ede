"""Measures a row on sides that are up: in turn, never at once. The sides of `tax` are layers.

Warm-up, a steady load of each side, then slices in drawn order, with what the processes used
meanwhile. Rule: what was chosen for a row in its first round holds for all, so that rounds can be
compared; a round whose drains have outgrown it is flagged. The runner keeps the records; nothing
here judges them.

CPU that is metered is that of a side's own requests. In slices its processes also run while others
are loaded: what they use unloaded is read before, for a second, and taken off for that time. In
windows clocks are read around each window, since layers may share a cluster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any, Final

import psutil
from msgspec import structs

from serve_bench.core.facts import SlicesFacts, WaterfallFacts
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import HANDLE, Load, Slices, Timing
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import client_of, trial_of
from serve_bench.core.result import Metric, Trial, cell_slug
from serve_bench.load.driver import Drive, drive_load, drive_slices, drive_windows, give_up_without
from serve_bench.load.failures import LoadError
from serve_bench.observing.host import cpu_ns
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Gpus, Sampler
from serve_bench.runner.runner import Part
from serve_bench.runner.traced import trace_log, waterfall
from serve_bench.serving.server import Process
from serve_bench.serving.strays import marks
from serve_bench.spec.sides import QUIET_S, Pairing, SidesSpec
from serve_bench.spec.slicing import DRAINS, DrainSample, Slicing, choose, in_windows, slicing_from
from serve_bench.store import now_iso

REQUEST_WAY: Final = ("haproxy", "proxy", "fallback_proxy", "replica", "uvicorn")
"""Roles whose CPU per request costs."""

WARMING: Final = Timing(warmup_min_s=0.5, warmup_max_s=5.0, windows=1, window_s=0.1)
STEADY_WINDOWS: Final = 4

#: Warm-up of each window of a load that is not sliced; its connections are new each time.
WINDOW_WARMUP_S: Final = 0.25

#: The same for a handle, which is new each time: in the first second its router learns of replicas,
#: and calls that come before that wait (measured: a fifth of the rate in one window of four).
HANDLE_WARMUP_S: Final = 1.5

#: Pairs of slices that are tried to choose their length; fewer where each takes long.
LOOK_PAIRS, FEW_LOOK_PAIRS = 6, 3
SLOW_S: Final = 0.5  # a request
LONG_LOOK_S: Final = 0.2  # a slice

Say = Callable[[Pairing, str, Progress | None], None]


@dataclass(frozen=True)
class Target:
    """A side that is up, and what serves it (unknown of a service that was up already)."""

    load: Load  # of the row against it
    part: Part | None = None  # its launch
    processes: Callable[[], Sequence[Process]] = tuple
    marks: Callable[[], Sequence[ProcessMarks]] = tuple  # of its traced requests
    drive: Drive | None = None  # runs a window of the side; None: `drive_load`
    missing: Callable[[], Sequence[str]] = tuple  # processes that have ended, in words
    casualties: Callable[[], Sequence[str]] = tuple  # the same, each once
    alive: Callable[[], bool] = lambda: True  # whether its own program runs


@dataclass
class SideRows:
    """Measures rows, round after round."""

    spec: SidesSpec
    folder: Path  # of the run
    run_id: str
    chosen: dict[str, Slicing] = field(default_factory=dict)  # by place of the row
    trace: float | None = None  # share of requests traced while a side is alone; none in slices
    say: Say = lambda pairing, phase, load: None
    _gpus: Gpus | None = None

    def measure(self, pairing: Pairing, targets: Sequence[Target]) -> tuple[Trial, ...]:
        """Measure a trial of each side.

        Raises LoadError when a side cannot be loaded, StoreError when samples cannot be kept.
        """
        began, started_at = time.monotonic(), now_iso()
        slicing = self.chosen.get(place_of(pairing))
        if slicing is None:
            slicing = self.chosen[place_of(pairing)] = self._choose(pairing, targets)
        loads = _make_loads(pairing, targets, slicing.connections)
        steady, waterfalls = self._load_alone(pairing, loads, slicing, targets)
        cpus = [SideCpu([*target.processes()], self.spec.metered) for target in targets]
        processes = [cpu.processes for cpu in cpus]
        watch = self._sampler(processes) if self.spec.sample else nullcontext()
        with watch as sampler:
            results = self._load_metered(pairing, loads, targets, slicing, cpus)
            later = [_list_processes(target) for target in targets]
        _check_whole(loads, results)
        total_s = time.monotonic() - began
        short, trials = slicing.short(_get_slices(result).drain_s for result in results), []
        for side, planned in enumerate(pairing.planned):
            chosen = {"chosen_drain_s": slicing.drain_s, "why": slicing.why} | cpus[side].facts
            facts = structs.replace(_get_slices(results[side]), **chosen)
            result = structs.replace(results[side], slices=facts)
            alone, part = steady[side], targets[side].part
            launch = part.number if part else ""
            trial = trial_of(planned, launch, started_at, result, total_s)
            rates = alone.rates if alone.windows else (alone.rate,) * STEADY_WINDOWS
            rate = {"steady_throughput": Metric("requests/s", "higher", windows=rates)}
            trial = replace(
                trial,
                metrics={**trial.metrics, **rate},
                warmup=alone.warmup,
                waterfall=waterfalls.get(side, WaterfallFacts()),
            )
            trial = cpus[side].added_to(trial)
            if short:
                trial = trial.flagged("short_slices")
            if sampler is not None:
                side_pids = {process.pid for process in (*processes[side], *later[side])}
                listings = (*processes, *later)
                others = {process.pid for listing in listings for process in listing} - side_pids
                trial = self._add_usage(trial, sampler, results, others)
            trials.append(trial)
        return tuple(trials)

    # ------------------------------------------------------------------------ before slices

    def _choose(self, pairing: Pairing, targets: Sequence[Target]) -> Slicing:
        """Choose how a row is loaded: warm all sides up, lengthen slices until they suffice."""
        connections, samples = pairing.row.connections, list[DrainSample]()
        if pairing.row.loop == "open":
            return in_windows(connections, 0.0, "an open loop cannot be sliced")
        if pairing.row.client == HANDLE:
            return in_windows(connections, 0.0, "a process is a driver of one cluster alone")
        loads = _make_loads(pairing, targets, connections)
        slow = any([self._warm(pairing, load, targets) > SLOW_S for load in loads])
        next_ = choose(connections, samples, self.spec.slice_s)
        while not isinstance(next_, Slicing):
            tried = Slicing("slices", next_, connections, connections)
            pairs = FEW_LOOK_PAIRS if slow or next_ > LONG_LOOK_S else LOOK_PAIRS
            seen = self._load_slices(pairing, loads, targets, tried, pairs)
            samples.append(DrainSample(next_, max(_get_slices(side).drain_s for side in seen)))
            next_ = choose(connections, samples, self.spec.slice_s)
        return next_

    def _warm(self, pairing: Pairing, load: Load, targets: Sequence[Target]) -> float:
        """Warm a side up, and return its median latency then, seconds."""
        progress = self._follow(pairing, "warm-up", targets)
        result = drive_load(load, WARMING, on_progress=progress, mark=marks(self.run_id))
        return (result.latency.percentile(0.5) or 0) / 1e9

    def _load_alone(
        self, pairing: Pairing, loads: tuple[Load, ...], slicing: Slicing, targets: Sequence[Target]
    ) -> tuple[dict[int, LoadResult], dict[int, WaterfallFacts]]:
        """Load each side alone, without slices, in drawn order; trace where its time goes."""
        whole_s = max(self.spec.steady_s, DRAINS * slicing.drain_s)
        timing = replace(WARMING, windows=STEADY_WINDOWS, window_s=whole_s / STEADY_WINDOWS)
        results, waterfalls = dict[int, LoadResult](), dict[int, WaterfallFacts]()
        for side in pairing.steady_order:
            progress = self._follow(pairing, f"{pairing.planned[side].variant} alone", targets)
            traced = self.trace if client_of(pairing.row) == "raw" else None
            traces = None if traced is None else trace_log(traced, whole_s)
            results[side] = drive_load(
                loads[side], timing, on_progress=progress, mark=marks(self.run_id), traces=traces
            )
            if traces is not None:
                waterfalls[side] = waterfall(traces.requests, targets[side].marks)
        _check_whole(loads, [results[side] for side in range(len(loads))])
        return results, waterfalls

    # ------------------------------------------------------------------------------ slices

    def _load_metered(
        self,
        pairing: Pairing,
        loads: tuple[Load, ...],
        targets: Sequence[Target],
        slicing: Slicing,
        cpus: Sequence[SideCpu],
    ) -> tuple[LoadResult, ...]:
        """Load the sides in turn, and add to `cpus` what their processes use for it."""
        if self.spec.metered and slicing.method == "windows":
            pairs = zip(targets, cpus, strict=True)
            counted = [replace(side, drive=partial(_meter, side, cpu)) for side, cpu in pairs]
            return self._load_in_turn(pairing, loads, counted, slicing)
        if self.spec.metered:
            self.say(pairing, "nothing is loaded: idle CPU", None)
            quiet, began = [_read_cpu(cpu.processes, None) for cpu in cpus], time.monotonic()
            time.sleep(QUIET_S)
            for cpu, early in zip(cpus, quiet, strict=True):
                used = _subtract(early, _read_cpu(cpu.processes, None))
                cpu.note_idle(used, time.monotonic() - began)
        before, began = [_read_cpu(cpu.processes) for cpu in cpus], time.monotonic()
        results = self._load_in_turn(pairing, loads, targets, slicing)
        span_s = time.monotonic() - began
        for side, (cpu, target) in enumerate(zip(cpus, targets, strict=True)):
            cpu.add(before[side], _read_cpu(_list_processes(target)))
            loaded_s = sum(_get_slices(results[side]).length_s)
            cpu.without_idle(max(0.0, span_s - loaded_s))
        return results

    def _load_in_turn(
        self, pairing: Pairing, loads: tuple[Load, ...], targets: Sequence[Target], slicing: Slicing
    ) -> tuple[LoadResult, ...]:
        pairs = slicing.pairs(self.spec.side_s)
        if slicing.method == "slices":
            return self._load_slices(pairing, loads, targets, slicing, pairs)
        plan = Slices(pairs, slicing.slice_s, choose_warmup(pairing, slicing), seed=pairing.seed)
        progress = self._follow(pairing, "windows in turn", targets)
        drives, mark = [target.drive for target in targets], marks(self.run_id)
        return drive_windows(loads, plan, on_progress=progress, mark=mark, drives=drives)

    def _load_slices(
        self,
        pairing: Pairing,
        loads: tuple[Load, ...],
        targets: Sequence[Target],
        slicing: Slicing,
        pairs: int,
    ) -> tuple[LoadResult, ...]:
        # No slices of warm-up: all sides are warm, and CPU is read right before the first one. A
        # drain waits as long as a request may take, or two sides would be loaded at once.
        plan = Slices(pairs, slicing.slice_s, 0.0, loads[0].timeout_s, pairing.seed)
        progress = self._follow(pairing, "slices in turn", targets)
        return drive_slices(loads, plan, on_progress=progress, mark=marks(self.run_id))

    def _follow(
        self, pairing: Pairing, phase: str, targets: Sequence[Target]
    ) -> Callable[[Progress], None]:
        """Return what reports a load, and gives it up when a process of a side has ended."""
        ends = [(target.load, target.missing) for target in targets]
        return give_up_without(ends, partial(self.say, pairing, phase))

    # ------------------------------------------------------------------------------- usage

    def _sampler(self, processes: Sequence[Sequence[Process]]) -> Sampler:
        self._gpus = self._gpus or Gpus()
        return Sampler((process for listed in processes for process in listed), self._gpus)

    def _add_usage(
        self, trial: Trial, sampler: Sampler, results: Sequence[LoadResult], others: set[int]
    ) -> Trial:
        """Add what the processes of this side used, and those of no side, and keep their samples.

        The time is from the first slice to the last: in half of it the side was not loaded.
        """
        began_ns = min(result.started_at_ns for result in results)
        parts = [_get_slices(result) for result in results]
        ends = (map(add, side.begun_s, side.length_s) for side in parts)
        span_s = max(chain.from_iterable(ends), default=0.0)
        usage = sampler.summary(began_ns, span_s)
        processes = tuple(process for process in usage.processes if process.pid not in others)
        samples = [read for read in sampler.samples(trial.key) if read.get("pid") not in others]
        keep_samples(self.folder, samples)
        return replace(trial, usage=structs.replace(usage, processes=processes))


def place_of(pairing: Pairing) -> str:
    """Return the cell and row of a pairing as text, alike in all rounds."""
    return f"{cell_slug(pairing.planned[0].cell)}/{pairing.row.label}"


def chosen_of(pairings: Iterable[Pairing], trials: Iterable[Trial]) -> dict[str, Slicing]:
    """Return what an earlier sitting has chosen, by place: later rounds must use the same."""
    records = {trial.key: trial.client.slices for trial in trials}
    chosen: dict[str, Slicing] = {}
    for pairing in pairings:
        for planned in pairing.planned:
            if (record := records.get(planned.key)) is not None:
                chosen.setdefault(place_of(pairing), slicing_from(record))
    return chosen


def choose_warmup(pairing: Pairing, slicing: Slicing) -> float:
    """Return how long a window is warmed up, seconds: until the queue is as it stays."""
    least_s = HANDLE_WARMUP_S if pairing.row.client == HANDLE else WINDOW_WARMUP_S
    return max(least_s, slicing.drain_s)


def _make_loads(pairing: Pairing, targets: Sequence[Target], connections: int) -> tuple[Load, ...]:
    """Return the loads of the sides: the same requests in the same order.

    Each round begins at another request, since the slower side does not reach the end of a long
    list.
    """
    loads = (target.load for target in targets)
    return tuple(replace(load, connections=connections, seed=pairing.seed) for load in loads)


def _check_whole(loads: Sequence[Load], results: Sequence[LoadResult]) -> None:
    """Raise LoadError where workers were lost: what they counted is in no figure."""
    for load, result in zip(loads, results, strict=True):
        if result.failures:
            why = "; ".join(f"{lost.who} failed: {lost.reason}" for lost in result.failures)
            raise LoadError("worker", load.request.host, load.request.port, why)


def _get_slices(result: LoadResult) -> SlicesFacts:
    assert result.slices is not None, "it was loaded in turn"
    return result.slices


def _list_processes(target: Target) -> Sequence[Process]:
    """Return the processes of a side at the end; none where its launch has ended."""
    try:
        return list(target.processes())
    except psutil.Error:
        return ()


def _meter(target: Target, cpu: SideCpu, load: Load, timing: Timing, **rest: Any) -> LoadResult:
    """Drive a window of a side, and add the CPU that it takes."""
    before = _read_cpu(target.processes())
    result = drive_load(load, timing, **rest)
    cpu.add(before, _read_cpu(target.processes()))
    return result


Clocks = Mapping[int, tuple[str, int | None]]
"""CPU so far by pid, with the role of the process."""


@dataclass
class SideCpu:
    """CPU of a side, `metered` for its own requests."""

    processes: Sequence[Process] = ()
    metered: bool = True
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by role
    idle: dict[str, float] = field(default_factory=dict)  # without any load, cores by role
    idle_all: float | None = None  # with controller, raylet, agents
    whole: bool = True  # none came or ended meanwhile, and all clocks are known

    def add(self, before: Clocks, after: Clocks) -> None:
        """Add what was used between two readings."""
        known = all(clock is not None for _, clock in (*before.values(), *after.values()))
        self.whole = self.whole and before.keys() == after.keys() and known
        for role, seconds in _subtract(before, after).items():
            self.seconds[role] += seconds

    def note_idle(self, grown: Mapping[str, float], span_s: float) -> None:
        """Note what was used, seconds by role, in a time without any load."""
        cores = {role: seconds / span_s for role, seconds in grown.items()}
        self.idle = {role: used for role, used in cores.items() if role in REQUEST_WAY}
        self.idle_all = sum(cores.values())

    def without_idle(self, span_s: float) -> None:
        """Subtract what is used idle, for a time without requests."""
        for role, cores in self.idle.items():
            self.seconds[role] = max(0.0, self.seconds[role] - cores * span_s)

    @property
    def facts(self) -> dict[str, Any]:
        """The CPU for the slices of a side; nothing of one that is not metered."""
        idle_all = None if self.idle_all is None else round(self.idle_all, 6)
        used = {"cpu_s": _rounded(self.seconds), "idle_cores": _rounded(self.idle)}
        return {**used, "idle_all_cores": idle_all} if self.metered else {}

    def added_to(self, trial: Trial) -> Trial:
        """Add the CPU to the trial; none where a process on the way is unknown, came or ended."""
        if not self.whole:
            return trial.flagged("way_changed")
        if not self.seconds:
            return trial
        metric = Metric("s", "lower", windows=(sum(self.seconds.values()),))
        return replace(trial, metrics={**trial.metrics, "server_cpu": metric})


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def _read_cpu(processes: Iterable[Process], roles: Container[str] | None = REQUEST_WAY) -> Clocks:
    counted = (process for process in processes if roles is None or process.role in roles)
    return {process.pid: (process.role, cpu_ns(process.pid)) for process in counted}


def _subtract(before: Clocks, after: Clocks) -> dict[str, float]:
    """Return the CPU between two readings, seconds by role."""
    grown: dict[str, float] = defaultdict(float)
    for pid, (role, early) in before.items():
        late = after.get(pid, (role, None))[1]
        if early is not None and late is not None:
            grown[role] += (late - early) / 1e9
    return grown
