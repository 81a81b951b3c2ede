"""Loads of running servers: drives the load and makes the record. Starts no server.

Rule: the record is of the same kind as that of a trial on a cluster of ours, so that every report
can read it. load/ runs the load; clusters of ours are in served_bench.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import (
    Cell,
    LaunchPlan,
    load_with,
    rows_of,
    step_row,
    timing_of,
    trial_of,
)
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
from serve_bench.runner.agenda import PlannedLoad
from serve_bench.runner.extra_loads import Settling, is_settled
from serve_bench.runner.load_source import LoadDriver
from serve_bench.runner.runner import Bench, Fault, Journal, Loaded
from serve_bench.runner.traced import waterfall
from serve_bench.serving.strays import marks
from serve_bench.store import StoreError, now_iso

if TYPE_CHECKING:
    from serve_bench.runner.served_bench import ServedClusters


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


class ServiceBench(Bench[Cell, PlannedLoad]):
    """A service that is up already. Nothing is started, and nothing ended."""

    def __init__(
        self, plan: ServedClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        self._run_id, self._journal, self._place = plan.run_id, journal, plan.place
        self._suite = plan.agenda.suite
        self._request = self._suite.services[launch.variant.name]
        sampled = plan.inside is not None and plan.inside.sample
        self._samples = plan.folder if sampled else None

    def _load(self, row: Row) -> Load:
        return load_with(self._request, self._suite, row)

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

    def _settling(self) -> Settling:
        """What waits until one client is served steadily."""
        progress = self._progress(None, "until one client is served steadily")
        load = self._load(step_row(1, traffic=rows_of(self._suite)[0].traffic))
        return Settling(load, marks(self._run_id), progress)

    def _progress(self, row: Row | None, phase: str | None = None) -> Callable[[Progress], None]:
        return lambda now: self._journal.say(phase or now.phase_text, row=row, load=now)


class UrlBench(ServiceBench):
    """A service that is loaded row by row."""

    def __init__(
        self, plan: ServedClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        super().__init__(plan, launch, number, journal)
        self._flags: dict[str, bool] = {}  # of the next trial
        self._cut = False  # the last row left requests behind
        self._settles = self._settling()

    def put(self, cell: Cell) -> None:
        """Before rows without a warm-up: waits until one client is served steadily."""
        if self._suite.requests_per_client is not None and not is_settled(self._settles.first()):
            self._flags = {"unsettled": True}

    def load(self, row: PlannedLoad) -> Loaded:
        """A row of the suite."""
        planned = row[0]
        if self._cut and not self._settles.recovered():
            self._flags = {"unsettled": True}
        flags, self._flags = self._flags, {}
        log = None if self._journal.requests is None else RequestLog()
        loaded = self._drive(
            planned,
            self._load(planned.row),
            timing_of(self._suite, planned.row),
            lambda driven: driven.trial.flagged(*flags),
            log,
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
