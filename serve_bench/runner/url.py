"""Loads against servers that are already there: drive, and make the record. Starts no server.

Rule: the record is of the same kind as that of a trial on a cluster of ours, so that every report
works on it. What a load is belongs to load/, whole runs to served.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from serve_bench.analysis.climb import Climb, throughput_of
from serve_bench.core.failed_requests import none_succeeded
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.load_result import Progress as LoadProgress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import A_RATE, LaunchPlan, trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Failure, Metric, PlannedTrial, Trial, VariantUsed
from serve_bench.load import LoadError, LoadInterrupted, drive_load
from serve_bench.load.external import ExternalResult, drive_external
from serve_bench.load.request_log import RequestLog
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.profiler import Profilable, Profiling
from serve_bench.observing.sampler import sampler_of
from serve_bench.runner.extra_loads import Settling, is_settled
from serve_bench.runner.load_place import Drive, FromNodes, Here
from serve_bench.runner.observer import Observer, Step
from serve_bench.runner.requests_file import RequestsFile
from serve_bench.serving.strays import marks, run_directory
from serve_bench.store import RunFolder, StoreError, now_iso


@dataclass(frozen=True)
class Driven:
    """A driven load: its trial, the workers that were lost, and what could not be kept of it."""

    trial: Trial
    lost: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Service:
    """A service that is there already: how it is named, and the request that it is asked with."""

    name: str
    request: Request


@dataclass
class UrlLadders:
    """A ladder of closed-loop users against each service, one service after the other.

    Every record goes to `folder`. A step that fails counts as served nothing, and the rest goes on.
    """

    services: tuple[Service, ...]
    ladder: Ladder
    timing: Timing
    folder: RunFolder
    run_id: str
    observer: Observer
    sample: bool = True
    failed: bool = False
    each: int | None = None  # requests of each client, where they end a step
    timeout_s: float = 30.0
    requests: RequestsFile | None = None
    place: Here | FromNodes = field(default_factory=Here)  # where the load comes from
    _done: int = 0

    def run(self) -> bool:
        """Climbs all. True if nothing failed. KeyboardInterrupt ends it."""
        for at, service in enumerate(self.services):
            later = (len(self.services) - at - 1) * self.ladder.expected_steps
            climb = Climb(self.ladder, service.name, 1, {}, self.each)
            flags = {}
            settling = self._settling(service, climb, later)
            if self.each is not None and not is_settled(settling.first()):
                flags["unsettled"] = True
            while (planned := climb.next()) is not None:
                of, left_s = self._done + climb.expected_left + later, self._left_s(climb, later)
                trial = self._step(service, planned, of, left_s, flags)
                climb.add(planned.row, throughput_of(trial))
                cut_off = trial is not None and trial.flags.get("cut")
                waits = cut_off and climb.next() is not None
                flags = {"unsettled": True} if waits and not settling.recovered() else {}
        return not self.failed

    def _settling(self, service: Service, climb: Climb, later: int) -> Settling:
        launch = LaunchPlan(VariantUsed(service.name), 1, ())

        def progress(now: LoadProgress) -> None:
            phase, of = "until one client is served steadily", climb.expected_left + later
            left_s = self._left_s(climb, later)
            step = Step(
                self._done + 1, self._done + of, launch, None, None, phase, now.rate, left_s
            )
            self.observer.step(replace(step, about=True))

        load = Load(service.request, timeout_s=self.timeout_s)
        return Settling(load, marks(self.run_id), progress)

    def _left_s(self, climb: Climb, later: int) -> float:
        """About how long this ladder and `later` steps of others take."""
        a_step_s = self.timing.warmup_min_s + self.timing.measured_s
        if self.each is None:
            return (climb.expected_left + later) * a_step_s
        rate = max((one.throughput for one in climb.steps), default=0.0) or A_RATE
        most_s = self.timing.measured_s
        each = [min(most_s, (row.requests or 0) / rate) for row in climb.rows_left]
        return sum(each) + later * sum(each) / max(1, len(each))

    def _step(
        self,
        service: Service,
        planned: PlannedTrial,
        of: int,
        left_s: float,
        flags: Mapping[str, bool],
    ) -> Trial | None:
        launch = LaunchPlan(VariantUsed(service.name), 1, ())

        def progress(now: LoadProgress) -> None:
            left = max(0.0, left_s - now.elapsed_s)
            step = Step(
                self._done + 1, of, launch, None, planned.row, now.phase_text, now.rate, left
            )
            self.observer.step(replace(step, about=True))

        load = Load(
            service.request,
            connections=planned.row.connections,
            each=self.each,
            timeout_s=self.timeout_s,
        )
        samples = self.folder.path if self.sample else None
        log = None if self.requests is None else RequestLog()
        try:
            driven = drive_url(
                load, self.timing, planned, self.run_id, progress, samples, log, self.place.drive()
            )
        except LoadError as error:
            self._fail("trial", planned, str(error))
            return None
        finally:
            self._done += 1
        driven = replace(driven, trial=replace(driven.trial, flags={**driven.trial.flags, **flags}))
        try:
            self.folder.append(driven.trial)
        finally:  # where it cannot be kept, it is at least seen
            self.observer.trial(driven.trial, self._done, of)
        if self.requests is not None and log is not None:
            self.requests.append(planned.key, log)
        for what, messages in (("worker", driven.lost), ("samples", driven.not_kept)):
            for message in messages:
                self._fail(what, planned, message)
        if driven.trial.flags.get("interrupted"):
            self._fail("trial", planned, "interrupted")
            raise KeyboardInterrupt
        if driven.trial.counts.completed == 0:
            self._fail("trial", planned, none_succeeded(driven.trial))
        return driven.trial

    def _fail(self, what: str, planned: PlannedTrial, message: str) -> None:
        self.failed = True
        failure = Failure(
            what,
            message,
            now_iso(),
            key=planned.key,
            variant=planned.variant,
            round=1,
            cell=planned.cell,
            row=planned.row,
        )
        self.folder.append(failure)
        self.observer.failure(failure)


def drive_url(
    load: Load,
    timing: Timing,
    planned: PlannedTrial,
    run_id: str,
    progress: Callable[[LoadProgress], None],
    samples: Path | None = None,
    log: RequestLog | None = None,
    drive: Drive = drive_load,
    server: Sequence[Profilable] = (),
) -> Driven:
    """A load against a server that is already there. Raises LoadError or ExternalError.

    Ctrl-C while it measures ends it early: the trial holds what was measured, flag `interrupted`.
    `samples`: where CPU and memory of the load and of the host are written; None: not sampled.
    `log` gets every request. `drive`: where our own clients load from. `server`: processes that
    answer, sampled too.
    """
    started_at, began, began_ns = now_iso(), time.monotonic(), time.time_ns()
    interrupted = False
    lost: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    with nullcontext() if samples is None else sampler_of(server) as sampler:
        if load.client in ("wrk", "ab"):
            mark, place = marks(run_id), run_directory(run_id)
            told = drive_external(load, timing, mark=mark, place=place)
            trial, measured_s = _external_trial(planned, started_at, told), told.seconds
        else:
            try:
                result = drive(load, timing, on_progress=progress, mark=marks(run_id), log=log)
            except LoadInterrupted as early:
                result, interrupted = early.result, True
            trial = trial_of(planned, "", started_at, result, time.monotonic() - began)
            began_ns, measured_s = result.started_at_ns, result.duration_s
            lost = tuple(f"{one.who} failed: {one.reason}" for one in result.failures)
    if sampler is not None and samples is not None:
        trial = replace(trial, usage=sampler.summary(began_ns, measured_s))
        try:
            keep_samples(samples, sampler.samples(planned.key))
        except StoreError as error:  # the figures are worth more than the samples beside them
            not_kept = (str(error),)
    asked = load.to_json()
    one = load.request
    asked["request"] = {
        "url": one.url,
        "method": one.method,
        "paths": len(one.paths),
        "header_sets": len(one.header_sets),
    }
    client = {**trial.client, "asked": asked}
    trial = replace(trial, client=client, flags={**trial.flags, "interrupted": interrupted})
    return Driven(trial, lost, not_kept)


def _external_trial(planned: PlannedTrial, started_at: str, told: ExternalResult) -> Trial:
    """What another program told, as a record: it has no windows and no histogram of its own."""
    metrics = {"throughput": Metric("requests/s", "higher", windows=(told.rate,))}
    for share, value_ns in told.percentiles_ns.items():
        metrics[f"latency_p{100 * share:g}"] = Metric("ns", "lower", windows=(value_ns,))
    failed = {name: n for name, n in (*told.errors.items(), ("status", told.non_2xx)) if n}
    good = told.completed - told.non_2xx
    return Trial(
        key=planned.key,
        launch="",
        round=planned.round,
        variant=planned.variant,
        cell=planned.cell,
        row=planned.row,
        started_at=started_at,
        window_s=told.seconds,
        warmup=Warmup(0.0, False, 0),
        metrics=metrics,
        counts=Counts(good + sum(failed.values()), good, failed, 0),
        client={"external": told.to_json(), "bytes_received": told.bytes_received},
        seconds={"total": told.seconds, "measured": told.seconds},
    )


def drive_profiled(
    load: Load,
    timing: Timing,
    planned: PlannedTrial,
    run_id: str,
    progress: Callable[[LoadProgress], None],
    profiling: Profiling,
    processes: Sequence[Profilable],
) -> Driven:
    """The same load with py-spy beside it: a trial marked `profiled`, which enters no figure.

    Raises as `drive_url` does, and BadInput when the stacks cannot be written.
    """
    with profiling.around(processes):
        driven = drive_url(load, timing, planned, run_id, progress)
    flags = {**driven.trial.flags, "profiled": True}
    trial = replace(driven.trial, flags=flags, profiles=tuple(profiling.outcomes))
    return replace(driven, trial=trial)
