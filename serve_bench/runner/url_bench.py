"""Loads of running servers: drives the load and makes the record. Starts no server.

Rule: the record is of the same kind as that of a trial on a cluster of ours, so that every report
can read it. load/ runs the load; clusters of ours are in served_bench.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from serve_bench.analysis.climb import Climb
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Row, Trial
from serve_bench.core.schema import plain
from serve_bench.core.usage import Track
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.load.request_log import RequestLog
from serve_bench.load.traces import TraceLog
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.processes import is_here
from serve_bench.observing.profiler import Profilable, Profiling
from serve_bench.observing.sampler import sampler_of
from serve_bench.runner.agenda import Climbing, PlannedLoad
from serve_bench.runner.extra_loads import Settling, is_settled
from serve_bench.runner.load_source import LoadDriver, LocalLoads, NodeLoads
from serve_bench.runner.runner import Bench, Fault, Journal, Loaded, Plan, PlannedLaunch
from serve_bench.runner.traced import waterfall
from serve_bench.serving.strays import marks
from serve_bench.store import StoreError, now_iso

C = TypeVar("C")  # a cell of a launch
R = TypeVar("R")  # a row of a cell


@dataclass(frozen=True)
class Driven:
    """A finished load: its trial, the lost workers, the samples that could not be written, and what
    was read of each process."""

    trial: Trial
    lost: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    tracks: Sequence[Track] = ()


@dataclass(frozen=True)
class Service:
    """A running service: its name, and the request to send."""

    name: str
    request: Request


class Tracing(NamedTuple):
    """The requests of a load to trace, and the marks that the server has made so far."""

    log: TraceLog
    marks: Callable[[], Sequence[ProcessMarks]]


@dataclass
class UrlLadders:
    """A ladder of closed-loop clients against each service, one service after the other.

    `each`: requests of each client if they end a step; `timeout_s`: of a request. `folder`: of the
    run; `place`: where the load comes from. A failed step counts as throughput 0, and the ladder
    goes on.
    """

    services: tuple[Service, ...]
    ladder: Ladder
    timing: Timing
    folder: Path
    run_id: str
    sample: bool = True
    each: int | None = None
    timeout_s: float = 30.0
    place: LocalLoads | NodeLoads = field(default_factory=LocalLoads)

    def plan(self) -> Plan[Service, PlannedLoad]:
        """A launch for each service, which starts nothing."""
        launches = [
            PlannedLaunch(
                one.name, 1, [(one, partial(self._work, one))], partial(UrlBench, self, one)
            )
            for one in self.services
        ]
        return Plan(launches, self._expected_s)

    def _work(self, service: Service) -> Climbing:
        timing = self.timing

        def cost(row: Row | None, rate: float) -> float:
            if row is None:
                return timing.warmup_min_s + timing.measured_s
            return min(timing.measured_s, (row.requests or 0) / rate)

        return Climbing(Climb(self.ladder, service.name, 1, {}, self.each), cost)

    def _expected_s(self, place: int, at: int | None) -> float:
        return sum(self._work(one).left_s() for one in self.services[place:])


class ServiceBench(Bench[C, R]):
    """A running service. Nothing is started, and nothing ended. `samples`: the folder for CPU and
    memory beside the loads; None: no sampling."""

    def __init__(
        self, run_id: str, journal: Journal, place: LocalLoads | NodeLoads, samples: Path | None
    ) -> None:
        self._run_id, self._journal, self._place, self._samples = run_id, journal, place, samples

    def _drive(
        self,
        planned: PlannedTrial,
        load: Load,
        timing: Timing,
        finish: Callable[[Driven], Trial],
        log: RequestLog | None = None,
        *,
        drive: LoadDriver | None = None,
        server: Sequence[Profilable] = (),
        children_every_s: float = 1.0,
        may_fail: bool = False,
    ) -> Loaded:
        """Drives the load of a row. `finish`: makes its record of that of the load; `drive`,
        `server` ... as in `drive_url`; `may_fail`: a load without a success is an answer, too."""
        try:
            driven = drive_url(
                load,
                timing,
                planned,
                self._run_id,
                self._progress(planned.row),
                self._samples,
                log,
                drive or self._place.drive(),
                server,
                children_every_s=children_every_s,
            )
        except LoadError as error:
            return Loaded(faults=(Fault("trial", str(error), at=planned),))
        trial = finish(driven)
        problems = [("worker", one) for one in driven.lost]
        problems += [("samples", one) for one in driven.not_kept]
        interrupted = KeyboardInterrupt() if trial.flags.get("interrupted") else None
        if interrupted is not None:
            problems.append(("trial", "interrupted"))
        elif not may_fail and (why := why_failed(trial)) is not None:
            problems.append(("trial", why))
        faults = tuple(Fault(what, message, at=planned) for what, message in problems)
        return Loaded((trial,), faults, interrupted, log)

    def _settling(self, load: Load) -> Settling:
        """What waits until one client is served steadily."""
        progress = self._progress(None, "until one client is served steadily")
        return Settling(load, marks(self._run_id), progress)

    def _progress(self, row: Row | None, phase: str | None = None) -> Callable[[Progress], None]:
        return lambda now: self._journal.say(phase or now.phase_text, row=row, load=now)


class UrlBench(ServiceBench[Service, PlannedLoad]):
    """A service that is climbed step by step."""

    def __init__(self, plan: UrlLadders, service: Service, number: int, journal: Journal) -> None:
        super().__init__(plan.run_id, journal, plan.place, plan.folder if plan.sample else None)
        self._plan, self._service = plan, service
        self._flags: dict[str, bool] = {}  # of the next trial
        self._cut = False  # the last row left requests behind
        self._settles = self._settling(Load(service.request, timeout_s=plan.timeout_s))

    def put(self, cell: Service) -> None:
        """Before rows without a warm-up: waits until one client is served steadily."""
        if self._plan.each is not None and not is_settled(self._settles.first()):
            self._flags = {"unsettled": True}

    def load(self, row: PlannedLoad) -> Loaded:
        """A step of the ladder."""
        plan, planned = self._plan, row[0]
        if self._cut and not self._settles.recovered():
            self._flags = {"unsettled": True}
        flags, self._flags = self._flags, {}
        load = Load(
            self._service.request,
            connections=planned.row.connections,
            each=plan.each,
            timeout_s=plan.timeout_s,
        )
        log = None if self._journal.requests is None else RequestLog()
        loaded = self._drive(
            planned, load, plan.timing, lambda driven: driven.trial.flagged(*flags), log
        )
        self._cut = any(trial.flags.get("cut") for trial in loaded.trials)
        return loaded


def drive_url(
    load: Load,
    timing: Timing,
    planned: PlannedTrial,
    run_id: str,
    progress: Callable[[Progress], None],
    samples: Path | None = None,
    log: RequestLog | None = None,
    drive: LoadDriver = drive_load,
    server: Sequence[Profilable] = (),
    tracing: Tracing | None = None,
    children_every_s: float = 1.0,
) -> Driven:
    """Loads a running server. Raises LoadError.

    Ctrl-C while it measures ends it early: the trial has what was measured, and the flag
    `interrupted`. `samples`: the folder for CPU and memory of the load and the host; None: no
    sampling. `log` gets every request. `drive`: what drives the load. `server`: processes
    of the server, to sample too, with those that come later. `tracing`: None: no request is traced.
    """
    started_at, began = now_iso(), time.monotonic()
    interrupted = False
    not_kept: tuple[str, ...] = ()
    # A server here that is no Serve cannot be told from other programs.
    apart = bool(server) or not is_here(urlsplit(load.request.url).hostname or "")
    sampling = partial(sampler_of, server, children_every_s=children_every_s, apart=apart)
    with nullcontext() if samples is None else sampling() as sampler:
        try:
            result = drive(
                load,
                timing,
                on_progress=progress,
                mark=marks(run_id),
                log=log,
                traces=None if tracing is None else tracing.log,
            )
        except LoadInterrupted as early:
            result, interrupted = early.result, True
        trial = trial_of(planned, "", started_at, result, time.monotonic() - began)
        lost = tuple(f"{one.who} failed: {one.reason}" for one in result.failures)
        if tracing is not None:
            try:
                fall = waterfall(tracing.log.requests, tracing.marks)
                trial = replace(trial, waterfall=fall)
            except KeyboardInterrupt:  # the load itself is measured
                interrupted = True
    if sampler is not None and samples is not None:
        trial = replace(trial, usage=sampler.summary(result.started_at_ns, result.duration_s))
        try:
            keep_samples(samples, sampler.samples(planned.key))
        except StoreError as error:  # the figures are worth more than the samples beside them
            not_kept = (str(error),)
    request, described = load.request, plain(load)
    del described["environment"]  # which loads of launched clusters alone have
    described["request"] = {
        "url": request.url,
        "method": request.method,
        "paths": len(request.paths),
        "header_sets": len(request.header_sets),
    }
    client = {**trial.client, "asked": described}
    trial = replace(trial, client=client, flags={**trial.flags, "interrupted": interrupted})
    return Driven(trial, lost, not_kept, () if sampler is None else sampler.tracks)


def drive_profiled(
    load: Load,
    timing: Timing,
    planned: PlannedTrial,
    run_id: str,
    progress: Callable[[Progress], None],
    profiling: Profiling,
    processes: Sequence[Profilable],
) -> Driven:
    """The same load with py-spy beside it: a trial with the flag `profiled`, which is in no figure.

    Raises as `drive_url` does, and BadInput if the stacks cannot be written.
    """
    with profiling.around(processes):
        driven = drive_url(load, timing, planned, run_id, progress)
    trial = replace(driven.trial.flagged("profiled"), profiles=tuple(profiling.outcomes))
    return replace(driven, trial=trial)
