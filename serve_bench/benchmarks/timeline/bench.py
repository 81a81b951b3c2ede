"""The bench of a timeline: our own cluster for each cell and launch, or a running Serve.

Rule: the load is an open loop whose clock the faults share. What ends or is replaced while it runs
is what is measured, and no failure of the run. Only processes of the cluster that this run started
are ended or stopped, and what is stopped is resumed before the load is over. A fault that cannot
be done is recorded with the reason.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast
from zlib import crc32

import psutil

from serve_bench.analysis.capacity.launch import gap_limits, slices_of
from serve_bench.analysis.course import (
    NO_END,
    STEP_S,
    changes_of,
    processes_of,
    seconds_of_requests,
)
from serve_bench.analysis.statistics import read_rate
from serve_bench.core.app_spec import AppSpec
from serve_bench.core.facts import CourseFacts
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import Cell, LaunchPlan
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.core.schema import built
from serve_bench.core.slo import Slo, parse_slo
from serve_bench.core.timeline import CONTROLLER, NODE, PROXY, REPLICA, PlannedFault, Timeline
from serve_bench.core.traffic import Row
from serve_bench.core.usage import Track
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadInterrupted
from serve_bench.load.request_log import RequestLog
from serve_bench.observing.inside import Observation
from serve_bench.runner.agenda import PlannedLoad
from serve_bench.runner.measure import Measured
from serve_bench.runner.runner import Journal, Loaded
from serve_bench.runner.served_bench import ServedBench, ServedClusters
from serve_bench.serving.server import LaunchFailed, Process, Serving
from serve_bench.serving.strays import started

WARMUP_S, WARMUP_MAX_S = 1.0, 5.0
"""Warm-up before the first stage, at its rate."""

LOOK_S: Final = 0.25
"""How often new processes are looked for, which bounds the error of a replica's birth."""

CALL_OFF_S: Final = 1.0
"""How long the faults of a load that was interrupted are awaited."""

DEPLOY_PATIENCE_S: Final = 180.0
"""How long a deploy that outlasts the load is awaited."""


def load_of(timeline: Timeline, load: Load, run_id: str, key: str) -> Load:
    """Turn a closed-loop load into the timeline's; each launch of each run draws its arrivals."""
    return replace(
        load,
        stages=timeline.stages,
        ramp=timeline.ramp,
        arrivals=timeline.arrivals,
        connections=timeline.connections,
        max_connections=max(timeline.connections, timeline.most_connections),
        seed=crc32(f"{run_id}/{key}".encode()),
    )


def timing_of(timeline: Timeline) -> Timing:
    """Return a window for each second of the stages."""
    return Timing(WARMUP_S, WARMUP_MAX_S, timeline.seconds, 1.0)


def measured_seconds(timeline: Timeline, duration_s: float) -> int:
    """Return the seconds that were measured: fewer of a load that was interrupted."""
    return min(timeline.seconds, max(1, math.ceil(duration_s - 0.05)))


class TimelineBench(ServedBench):
    """A cluster, its load, and the faults on it; or a service, to which no fault is done."""

    def __init__(
        self, plan: ServedClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        super().__init__(plan, launch, number, journal)
        assert self._suite.timeline is not None, "it has been checked"
        self._timeline = self._suite.timeline
        self._slo = parse_slo(self._timeline.slo)
        self._key = f"{launch.variant.name}/{launch.round}"
        self._faults: FaultClock | None = None
        self._zero_ns = 0
        self._interrupted = False
        self._all_done = False
        self._seconds = 0

    def _load(self, row: Row) -> Load:
        return load_of(self._timeline, super()._load(row), self._plan.run_id, self._key)

    def _timing(self, planned: PlannedTrial) -> Timing:
        return timing_of(self._timeline)

    def _make_log(self, profiled: bool) -> RequestLog | None:
        return RequestLog(gap_limits(self._slo))

    def _drive(self, load: Load, timing: Timing, **options: Any) -> LoadResult:
        """Drive the load with the faults on its clock. However it ends, resume what is stopped."""
        serving = cast(Serving, self._target)  # no fault is planned of a service
        self._faults = FaultClock(self._timeline.faults, serving, self._suite.app, self._cell)
        self._zero_ns, self._interrupted, self._all_done = 0, False, False
        if self.parts:
            serving.begin_course()
        result: LoadResult | None = None
        try:
            result = drive_load(load, timing, on_measure=self._begin, **options)
            self._watch_after()
            self._all_done = self._faults.end(DEPLOY_PATIENCE_S)
        except KeyboardInterrupt as pressed:  # after the load, which is whole, too
            self._interrupted = isinstance(pressed, LoadInterrupted)
            result = pressed.result if isinstance(pressed, LoadInterrupted) else result
            self._all_done = self._faults.end(CALL_OFF_S)
            if result is None:
                raise
            self._seconds = measured_seconds(self._timeline, result.duration_s)
            raise LoadInterrupted(result) from pressed
        finally:  # however it ended, resume what is stopped
            self._faults.end(CALL_OFF_S)
        self._seconds = measured_seconds(self._timeline, result.duration_s)
        return result

    def _watch_after(self) -> None:
        """Wait while replicas are watched after the last stage."""
        whole_s = self._timeline.seconds + self._timeline.after_s
        while (left_s := whole_s - (time.perf_counter_ns() - self._zero_ns) / 1e9) > 0:
            self._journal.say(f"behind the load: {left_s:.0f} s", cell=self._cell)
            time.sleep(min(LOOK_S, left_s))

    def _begin(self, measure_ns: int) -> None:
        self._zero_ns = measure_ns
        assert self._faults is not None, "the load runs"
        self._faults.begin(measure_ns)

    def _add_log(self, trial: Trial, log: RequestLog | None, look: Observation | None) -> Trial:
        """Add the course: the requests of each second, the processes, replicas and faults."""
        assert log is not None and self._faults is not None, "each load has its log"
        readings: Mapping[str, Any] = {}
        try:
            if self._all_done and self.parts:
                readings = self._serving.end_course()
            elif self.parts:
                readings = {"failed": ["a deploy was under way when the load ended"]}
        except LaunchFailed as error:
            readings = {"failed": [str(error)]}
        tracks = {} if look is None or look.sampler is None else look.sampler.tracks
        return with_course(
            trial,
            log,
            self._slo,
            self._zero_ns,
            self._seconds,
            tracks=tuple(tracks.values()),
            readings=readings,
            faults=self._faults.records,
            after_s=self._timeline.after_s,
            interrupted=self._interrupted,
        )

    def _conclude(
        self, row: PlannedLoad, trial: Trial, measured: Measured, log: RequestLog | None
    ) -> Loaded:
        """Return the outcome; what ended or scaled down is part of the course, and no fault.

        A fault that was not done, or a deploy that failed, is a failure of the run.
        """
        self._target.casualties()
        if read_rate(trial).silent_from is not None:
            trial = self._add_waits(trial)
        faults = [self._make_fault(row, lost, "worker") for lost in measured.lost]
        for fault in trial.course.faults:
            if fault.at_s is None or fault.why_not:
                faults.append(self._make_fault(row, f"{fault.text}: not done: {fault.why_not}"))
        if (why := why_failed(trial)) is not None:
            faults.append(self._make_fault(row, why))
        return Loaded((trial,), tuple(faults), None, log)


UPDATED: Final = "ray_actor_options.memory"
"""An option whose change makes Serve start new replicas; a few bytes are no limit to them."""

IN_PLACE: Final = "graceful_shutdown_wait_loop_s"
"""An option that replicas take over while they run."""


@dataclass
class FaultClock:
    """Carries out the faults of a load, each in a separate thread."""

    faults: Sequence[PlannedFault]
    serving: Serving
    app: AppSpec
    cell: Cell
    records: list[dict[str, Any]] = field(default_factory=list)  # in the order of the plan
    _over: threading.Event = field(default_factory=threading.Event)
    _child: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _deploys: int = 0

    def begin(self, zero_ns: int) -> None:
        """Start a thread for each fault. The first stage begins at `zero_ns` (perf_counter_ns)."""
        for fault in self.faults:
            record = {"fault": fault.source, "text": fault.text, "at_s": None}
            self.records.append(record)
            thread = threading.Thread(
                target=self._carry_out, args=(fault, record, zero_ns), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def end(self, patience_s: float) -> bool:
        """Resume what is stopped, wait for deploys, and return whether all threads have ended."""
        self._over.set()
        deadline = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _carry_out(self, fault: PlannedFault, record: dict[str, Any], zero_ns: int) -> None:
        """Wait until a fault is due, do it, and record when, or why it was not done."""
        due_ns = zero_ns + int(fault.at_s * 1e9)
        if self._over.wait(max(0.0, (due_ns - time.perf_counter_ns()) / 1e9)):
            record["why_not"] = "the load was over"
            return

        def now_s() -> float:
            return round((time.perf_counter_ns() - zero_ns) / 1e9, 3)

        try:
            if fault.action == "deploy":
                record["at_s"] = now_s()
                self._deploy(fault)
                record["done_s"] = now_s()
                return
            victim = self._choose_victim(fault)
            if victim is None:
                record["why_not"] = f"there was no {fault.target}"
                return
            record["at_s"], record["pid"] = now_s(), victim.pid
            if fault.action == "kill":
                self._kill(victim)
            else:
                self._stop(victim.pid, fault.for_s or 0.0)
                record["done_s"] = now_s()
        except (LaunchFailed, ProcessLookupError, psutil.NoSuchProcess) as error:
            record["why_not"] = str(error) or "the process had ended"

    def _choose_victim(self, fault: PlannedFault) -> Process | None:
        """Choose the oldest process of the kind; the newest node, since the first is the head."""
        processes = self.serving.processes()
        roles = {REPLICA: ("replica",), CONTROLLER: ("controller",), NODE: ("raylet",)}
        if fault.target == PROXY:  # what serves the port: HAProxy where there is one
            haproxy = [found for found in processes if found.role == "haproxy"]
            chosen = haproxy[-1:] or [found for found in processes if found.role == "proxy"]
        else:
            chosen = [found for found in processes if found.role in roles[fault.target]]
        if fault.deployment is not None:
            chosen = [found for found in chosen if found.title.endswith(f":{fault.deployment}")]
        aged = []
        for found in chosen:
            try:
                aged.append((started(found.pid), found.pid, found))
            except psutil.NoSuchProcess:
                continue
        aged.sort()
        if fault.target == NODE:
            return aged[-1][2] if len(aged) > 1 else None
        return aged[0][2] if aged else None

    def _kill(self, victim: Process) -> None:
        """Kill a process; with a raylet, all processes below it."""
        below = []
        if victim.role == "raylet":
            below = psutil.Process(victim.pid).children(recursive=True)
        for pid in (victim.pid, *(child.pid for child in below)):
            self.serving.forget(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                if pid == victim.pid:
                    raise

    def _stop(self, pid: int, for_s: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            self._over.wait(for_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _deploy(self, fault: PlannedFault) -> None:
        """Deploy with a changed option, which replaces all replicas or is taken over in place."""
        with self._child:
            self._deploys += 1
            assert self.app.own_app is not None, "timelines are of own apps"
            changed: dict[str, float] = {}
            for deployment in self.app.own_app.deployments:
                if fault.target:
                    changed[f"{deployment.name}.{IN_PLACE}"] = 2.0 + self._deploys / 10
                else:
                    memory = deployment.tables.get("ray_actor_options", {}).get("memory") or 0
                    changed[f"{deployment.name}.{UPDATED}"] = int(memory) + self._deploys
            self.serving.deploy(self.app, {**self.cell, **changed})


def with_course(
    trial: Trial,
    log: RequestLog,
    slo: Slo,
    zero_ns: int,
    seconds: int,
    *,
    tracks: Sequence[Track],
    readings: Mapping[str, Any],
    faults: Sequence[Mapping[str, Any]],
    after_s: float,
    interrupted: bool,
) -> Trial:
    """Add to the trial each of its `seconds`.

    `zero_ns`: when the first stage began; `readings`: what Serve reported of its replicas. Of an
    interrupted load requests in flight are left out: nobody waited for their answers.
    """
    rows = list(log.rows())
    judged = [request for request in rows if not (interrupted and request.error in NO_END)]
    watched = seconds + int(after_s)
    course = {
        **seconds_of_requests(rows, seconds, broken_off=interrupted),
        **processes_of(tracks, zero_ns, watched),
        "changes": changes_of(readings.get("changes", ()), zero_ns),
        "faults": faults,
        "after_s": after_s,
    }
    why = readings.get("failed") or ()
    if why:
        lost = readings.get("losses", len(why))
        course["why_not"] = f"{lost} readings of Serve's state failed: {why[0]}"
    slices = slices_of(judged, slo, float(seconds), STEP_S)
    return replace(trial, course=built(CourseFacts, course, "course"), slices=slices)
