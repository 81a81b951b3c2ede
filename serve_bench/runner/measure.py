"""A load of a target, and the record of what was measured.

Rule: the record of a service that was up already is of the same kind as that of our own
cluster, so that every report can read it. load/ runs the load, observing/ observes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import trial_of
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.load.failures import LoadInterrupted
from serve_bench.load.traces import TraceLog
from serve_bench.observing.inside import Inside, LoadTarget, Observation
from serve_bench.runner.service import Service, add_request
from serve_bench.runner.traced import waterfall
from serve_bench.store import StoreError, now_iso


@dataclass(frozen=True)
class Measured:
    """A finished load."""

    trial: Trial
    result: LoadResult
    interrupted: KeyboardInterrupt | None = None  # what ended it early
    look: Observation | None = None  # what was observed during it
    not_kept: tuple[str, ...] = ()  # why samples could not be written

    @property
    def lost(self) -> list[str]:
        """The lost workers, in words."""
        return [f"{lost.who} failed: {lost.reason}" for lost in self.result.failures]


def measure_load(
    target: LoadTarget,
    planned: PlannedTrial,
    load: Load,
    timing: Timing,
    drive: Callable[..., LoadResult],
    *,
    launch: str = "",
    inside: Inside | None = None,
    profiled: bool = False,
    traces: TraceLog | None = None,
) -> Measured:
    """Drive a load as `drive_load` does, and make its trial. Raises LoadError.

    Ctrl-C while it measures ends it early: the trial has what was measured, and the flag
    `interrupted`. `inside` None: nothing is observed. `profiled`: with py-spy on the
    processes that `inside` names; the trial is in no figure. `traces` None: no request is traced.
    """
    started_at, began = now_iso(), time.monotonic()
    interrupted: KeyboardInterrupt | None = None
    result: LoadResult | None = None
    observed = inside and inside.around(target, planned, profiled=profiled)
    try:
        with observed or nullcontext() as look:
            try:
                result = drive(load, timing, traces=traces)
            except LoadInterrupted as early:
                result, interrupted = early.result, early
    except KeyboardInterrupt as early:
        if result is None:
            raise
        interrupted = early  # the load was over: only what was observed may lack its end
    trial = trial_of(planned, launch, started_at, result, time.monotonic() - began)
    if not target.alive():
        return Measured(trial, result, interrupted)
    not_kept: tuple[str, ...] = ()
    if look is not None:
        trial = look.add_to(trial, result)
        try:
            look.keep_samples()
        except StoreError as error:  # the figures are worth more than the samples
            not_kept = (str(error),)
    if traces is not None:
        try:
            trial = replace(trial, waterfall=waterfall(traces.requests, target.marks))
        except KeyboardInterrupt as early:  # the load itself is measured
            interrupted = early
    if isinstance(target, Service):
        trial = add_request(trial, load)
    if interrupted is not None:
        trial = trial.flagged("interrupted")
    return Measured(trial, result, interrupted, look, not_kept)
