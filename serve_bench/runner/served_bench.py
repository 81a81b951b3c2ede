"""The bench of rows: on our own clusters, one launch at a time, or on a service that is up already.

Beside the load of a row it has the observation (observing/inside.py), a profiled repetition, and
the look at what requests wait in. Rule: if a process of the cluster ends, the row is a failure, and
the process is replaced before the next row. A warm-up continues while Serve starts replicas by
itself; what ran within the windows is in the record, and analysis/verdict judges it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

from msgspec import structs

from serve_bench.analysis.verdict import worth_a_look
from serve_bench.core.app_spec import APPS_PACKAGE, AppSpec
from serve_bench.core.facts import DeploymentLimits, SettledFacts
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.figures import counted
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.own_app import limits_of
from serve_bench.core.plan import (
    LAUNCH_S,
    Cell,
    LaunchPlan,
    client_of,
    label_of,
    rows_of,
    step_row,
    timing_of,
)
from serve_bench.core.result import Deploy, PlannedTrial, Trial
from serve_bench.core.traffic import Row
from serve_bench.load.driver import give_up_without
from serve_bench.load.failures import LoadError
from serve_bench.load.request_log import RequestLog
from serve_bench.load.traces import TraceLog
from serve_bench.observing.inside import Inside, LoadTarget, Observation
from serve_bench.runner.agenda import Agenda, PlannedLoad
from serve_bench.runner.extra_loads import Settling
from serve_bench.runner.extra_loads import look as look_at_waits
from serve_bench.runner.load_source import LocalLoads, NodeLoads
from serve_bench.runner.measure import Measured, measure_load
from serve_bench.runner.runner import (
    Bench,
    CellOver,
    Fault,
    Journal,
    Loaded,
    Part,
    Plan,
    PlannedLaunch,
    Work,
    next_phase,
)
from serve_bench.runner.service import Service
from serve_bench.runner.traced import trace_log
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, Deployed, LaunchFailed, Serving
from serve_bench.serving.strays import Reaped, marks

#: Adds the service of the no-op app to Serve's gRPC proxy.
NOOP_SERVICER: Final = f"{APPS_PACKAGE}.noop_grpc.add_noop"


def launch_spec(
    part: Part, run_id: str, folder: Path, app: AppSpec, cells: Sequence[Cell], rows: Sequence[Row]
) -> LaunchSpec:
    """Return what to launch for an app that is deployed with these cells and loaded by these rows.

    `folder`: of the run.
    """
    grpc: tuple[str, ...] = ()
    if any(row.traffic.client == "grpc" for row in rows):
        grpc = (NOOP_SERVICER,)
    if app.own_app is not None and app.own_app.grpc is not None:
        grpc = app.own_app.grpc.servicers
    return LaunchSpec(
        part.variant,
        run_id,
        part.number,
        folder / part.log,
        most_replicas=max(map(app.replicas, cells)),
        folders=app.folders,
        cpus=max(map(app.cpus, cells)),
        sources={} if app.own_app is None else app.own_app.modules,
        grpc=grpc,
    )


class ServedBench(Bench[Cell, PlannedLoad]):
    """One cluster of one variant, or a service, of which nothing is started, put or ended."""

    def __init__(
        self, plan: ServedClusters, launch: LaunchPlan, number: int, journal: Journal
    ) -> None:
        self._plan, self._launch, self._journal = plan, launch, journal
        self._suite, self._inside = plan.agenda.suite, plan.inside
        self._part = Part(str(number), launch.variant, launch.round)
        self._target: LoadTarget
        request = self._suite.services.get(launch.variant.name)
        if request is None:
            self.parts = (self._part,)
            self._target = Serving(self._spec())
        else:  # no launch, in records
            self._part = replace(self._part, number="")
            nodes = self._suite.load_on is not None
            self._target = Service(launch.variant.name, request, from_nodes=nodes)
        self._cell: Cell = {}
        self._proven = False
        self._hurt = False  # a process of the cluster ended during the last load
        self._shaken = False  # the last load may have left requests behind
        self._unsettled = False  # requests of the last row may still be served
        self._settling: Settling | None = None  # of the cell, where its rows have no warm-up
        self._slots: Mapping[str, int] = {}  # of the cell, of an own app
        self._limits: Mapping[str, DeploymentLimits] = {}
        self._watch: ReplicaWatch | None = None  # of the newest load, where Serve scales the app
        self._measured: list[Trial] = []

    @property
    def _serving(self) -> Serving:
        assert isinstance(self._target, Serving), "nothing is done to what is up already"
        return self._target

    def _spec(self) -> LaunchSpec:
        plan, suite = self._plan, self._suite
        cells = [cell for cell, _ in self._launch.cells]
        spec = launch_spec(self._part, plan.run_id, plan.folder, suite.app, cells, rows_of(suite))
        return replace(
            spec,
            host=plan.host,
            port=plan.port,
            metrics=self._inside is not None and self._inside.metrics,
            raylets=plan.raylets,
            traced=plan.trace is not None,
        )

    def start(self) -> None:
        """Start Ray and Serve. An interpreter without a Ray that can be imported is tried once."""
        if not self.parts:
            return
        if self._launch.variant.python in self._plan.without_ray:
            raise LaunchFailed(NOT_TRIED)
        self.begun = True
        self._journal.say("launch: loading Ray")
        try:
            self._serving.start(lambda phase: self._journal.say(next_phase(phase)))
        except LaunchFailed:
            if not self._serving.imported:  # the next launch would fail alike
                self._plan.without_ray.add(self._launch.variant.python)
            raise

    def put(self, cell: Cell) -> None:
        """Deploy a cell; before rows without a warm-up, wait for a steadily served client."""
        self._cell, self._measured = cell, []
        if not self.parts:
            settled, counted = self._settle(), self._suite.requests_per_client is not None
            self._unsettled = counted and not settled.settled
            return
        self._journal.say("deploy", cell=cell)
        if self._proven:
            deployed = self._deploy()
        else:
            deployed = self._serving.deploy(self._suite.app, cell, self._say_deploy)
            seconds = self._serving.seconds
            self._journal.append(self._part.prove(seconds, self._serving.prove))
        self._proven = True
        settled = SettledFacts()
        try:
            settled = self._settle()
        finally:  # after Ctrl-C too: the cell is deployed
            self._record_deploy(deployed, settled)
        self._limits = limits_of(deployed.proof["replicas"])
        if self._suite.app.own_app is not None:
            limits = self._limits.items()
            self._slots = {name: limit.replicas * limit.each for name, limit in limits}
        if self._inside is not None:
            self._inside.deployed(self._serving)

    def load(self, row: PlannedLoad) -> Loaded:
        """Measure a row or its profiled repetition, once the cluster has recovered."""
        planned, profiled = row
        self._recover()
        phase = "profiled load" if profiled else "connect"
        self._journal.say(phase, cell=self._cell, row=planned.row)
        log, load, timing = self._make_log(profiled), self._load(planned.row), self._timing(planned)
        progress = give_up_without([(load, self._is_lost)], self._follow(planned.row))
        mark = marks(self._plan.run_id)
        try:
            measured = measure_load(
                self._target,
                planned,
                load,
                timing,
                partial(self._drive, on_progress=progress, mark=mark, log=log),
                launch=self._part.number,
                inside=self._inside,
                profiled=profiled,
                traces=self._trace(planned, timing, profiled),
            )
        except LoadError as error:
            ended = self._target.casualties()
            self._hurt = self._shaken = bool(ended)
            return Loaded(faults=(self._make_fault(row, "; ".join([str(error), *ended])),))
        interrupted, result = measured.interrupted, measured.result
        if not self._target.alive():  # `check` reports it
            return Loaded(ended=interrupted)
        trial = replace(measured.trial, slots=self._slots, limits=self._limits)
        if self._watch is not None:
            trial = self._watch.add_to(trial, result)
        if self._unsettled:
            trial = trial.flagged("unsettled")
            self._unsettled = False
        trial = self._add_log(trial, log, measured.look)
        if interrupted is not None:
            done = self._describe_done(trial, result)
            fault = self._make_fault(row, f"interrupted after {done}")
            loaded = Loaded((trial,), (fault,), interrupted, log)
        else:
            loaded = self._conclude(row, trial, measured, log)
        faults = (self._make_fault(row, why, "samples") for why in measured.not_kept)
        not_kept = (replace(fault, keyed=False) for fault in faults)  # its figures are whole
        return replace(loaded, faults=(*loaded.faults, *not_kept))

    def _conclude(
        self, row: PlannedLoad, trial: Trial, measured: Measured, log: RequestLog | None
    ) -> Loaded:
        """Return the outcome of a whole load, with waits and the faults of all processes."""
        interrupted: KeyboardInterrupt | None = None
        ended = self._target.casualties()
        self._hurt, self._shaken = bool(ended), bool(ended or trial.flags.cut)
        if not trial.flags.profiled and not ended:
            try:
                trial = self._add_waits(trial)
            except KeyboardInterrupt as early:  # the trial itself is complete
                interrupted = early
        broken = "during the trial: the figures are of a broken cluster"
        faults = [self._make_fault(row, f"{process} {broken}") for process in ended]
        faults += [self._make_fault(row, lost, "worker") for lost in measured.lost]
        if (why := why_failed(trial)) is not None:
            faults.append(self._make_fault(row, why))
        self._measured += [] if trial.flags.profiled else [trial]
        return Loaded((trial,), tuple(faults), interrupted, log)

    def _make_fault(self, row: PlannedLoad, message: str, kind: str | None = None) -> Fault:
        """Return a fault of a row; by default of its trial, or of its profile."""
        planned, profiled = row
        kind = kind or ("profile" if profiled else "trial")
        part = self._part if self.parts else None
        return Fault(kind, message, part, planned, keyed=not profiled)

    def _is_lost(self) -> bool:
        """Return whether the cluster can do nothing more: the rest of a load would wait for it."""
        return not self._target.alive() or self._target.broken() is not None

    def check(self) -> None:
        """Raise LaunchFailed if the cluster, or a process that it does not replace, has ended."""
        if not self._target.alive():
            raise LaunchFailed("the cluster process ended during a trial")
        if (reason := self._target.broken()) is not None:
            raise LaunchFailed(f"{reason}: this cluster can do nothing more")

    def leave(self, cell: Cell, whole: bool) -> Fault | None:
        """Wait until the cluster has recovered, and call `after_cell`."""
        if whole:
            try:
                if cell != self._launch.cells[-1][0]:
                    self._recover()
            except CellOver:
                pass  # the next cell is deployed nevertheless
            if self._plan.after_cell is not None:
                self._plan.after_cell(self._serving, self._measured)
        return None

    def close(self, part: Part) -> Reaped:
        """End the load actors and the cluster."""
        self._plan.place.close()
        return self._serving.close()

    # ------------------------------------------------------------------- parts of a load

    def _load(self, row: Row) -> Load:
        return self._target.load_of(self._suite, row, self._cell)

    def _timing(self, planned: PlannedTrial) -> Timing:
        return timing_of(self._suite, planned.row)

    def _make_log(self, profiled: bool) -> RequestLog | None:
        """Return a log for each request of the next load; None if nobody asks for it."""
        return None if self._journal.requests is None or profiled else RequestLog()

    def _trace(self, planned: PlannedTrial, timing: Timing, profiled: bool) -> TraceLog | None:
        """Choose the requests of the next load to trace; None: trace none."""
        if self._plan.trace is None or profiled or client_of(planned.row) != "raw":
            return None
        return trace_log(self._plan.trace, timing.measured_s)

    def _drive(self, load: Load, timing: Timing, **options: Any) -> LoadResult:
        """Run a load; its warm-up waits for the replicas that come. Raises as `drive_load` does."""
        cluster = self._serving if self.parts else None
        app, drive = self._suite.app.own_app, self._plan.place.drive(cluster)
        self._watch = None
        if app is None or all(limit.most is None for limit in self._limits.values()):
            return drive(load, timing, **options)
        with ReplicaWatch(self._serving, app.name) as self._watch:
            if timing.warmup_max_s > 0 and isinstance(self._plan.place, LocalLoads):
                options["may_measure"] = self._watch.settled
            return drive(load, timing, **options)

    def _add_log(self, trial: Trial, log: RequestLog | None, look: Observation | None) -> Trial:
        """Return the trial with what its requests and the observation add to its figures."""
        return trial

    def _follow(self, row: Row | None, phase: str | None = None) -> Callable[[Progress], None]:
        def progress(now: Progress) -> None:
            self._journal.say(phase or now.phase_text, cell=self._cell, row=row, load=now)

        return progress

    def _describe_done(self, trial: Trial, result: LoadResult) -> str:
        requests = trial.row.requests or self._suite.requests
        if requests is not None:
            return f"{trial.counts.completed:,} of {requests:,} requests"
        return f"{counted(len(result.windows), 'window')} of {result.window_s:g} s"

    def _deploy(self) -> Deployed:
        """Deploy the cell on a proven cluster. Raises CellOver if that fails."""
        try:
            return self._serving.deploy(self._suite.app, self._cell, self._say_deploy)
        except LaunchFailed as error:
            if not self._serving.alive():
                raise
            self._journal.fail(Fault("deploy", error, self._part, label_of(self._cell)))
            raise CellOver(str(error)) from None

    def _say_deploy(self, words: str) -> None:
        self._journal.say(f"deploy: {words}", cell=self._cell)

    def _record_deploy(self, deployed: Deployed, settled: SettledFacts) -> None:
        about = label_of(self._cell), round(deployed.seconds, 4), deployed.in_place
        self._journal.append(Deploy(self._part.number, *about, deployed.proof, settled))

    def _settle(self) -> SettledFacts:
        """Wait until a client is served steadily, before rows without a warm-up and probes.

        Returns the state for the record of the deploy.
        """
        self._settling, self._unsettled = None, False
        if self._suite.requests_per_client is None and self._suite.capacity is None:
            return SettledFacts()
        progress = self._follow(None, "until one client is served steadily")
        load = self._load(step_row(1, traffic=rows_of(self._suite)[0].traffic))
        self._settling = Settling(load, marks(self._plan.run_id), progress)
        return self._settling.first()

    def _recover(self) -> None:
        """Wait until what the last row hurt is replaced, and the cell is in force again.

        Then it waits until one client is as fast as at first. Raises CellOver.
        """
        hurt, shaken = self._hurt, self._shaken
        self._hurt = self._shaken = False
        if hurt:
            self._journal.say("wait for what ended to be replaced", cell=self._cell)
            deployed = self._deploy()
            self._record_deploy(deployed, SettledFacts())
            if self._inside is not None:
                self._inside.deployed(self._serving)
        if shaken and self._settling is not None:
            self._unsettled = not self._settling.recovered()

    def _add_waits(self, trial: Trial) -> Trial:
        """Add what requests wait in, if no full CPU or queue explains the figures of the trial.

        This takes a further load, which enters no figure. Ctrl-C ends it.
        """
        app, inside, place = self._suite.app, self._inside, self._plan.place
        front = app.front if app.own_app is None else app.own_app.front
        if inside is None or not inside.sample or not isinstance(place, LocalLoads):
            return trial
        if not self.parts:
            return trial
        if trial.flags.cut or not worth_a_look(trial, front):
            return trial
        self._journal.say("look at what requests wait in", cell=self._cell, row=trial.row)
        how = place.drive(self._serving), marks(self._plan.run_id), self._suite.quick
        seen = look_at_waits(self._serving, trial, self._load(trial.row), *how)
        inside.loaded_between()
        return replace(trial, waits=seen)


@dataclass
class ServedClusters:
    """Measures an agenda on our own clusters, or on services that are up already.

    `after_cell` is called with the cluster and the trials of each measured cell.
    """

    agenda: Agenda
    run_id: str
    folder: Path  # of the run
    _: KW_ONLY
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    after_cell: Callable[[Serving, Sequence[Trial]], None] | None = None
    inside: Inside | None = None  # None: nothing is observed during the load
    place: LocalLoads | NodeLoads = field(default_factory=LocalLoads)  # where the load comes from
    trace: float | None = None  # share of the requests that are traced
    raylets: int = 1  # nodes of each cluster, all on this host
    bench: Callable[..., ServedBench] = ServedBench  # measures a launch
    beside_s: float = 0.0  # seconds of a launch beyond its rows
    without_ray: set[str | None] = field(default_factory=set)  # interpreters that cannot import it

    def plan(self) -> Plan[Cell, PlannedLoad]:
        """Plan the launches of the agenda. With a ladder, counts and times are estimates."""
        return Plan(
            [self._launch(launch) for launch in self.agenda.launches],
            self._expected_s,
            estimated=self.agenda.suite.ladder is not None,  # its steps depend on its results
        )

    def _launch(self, launch: LaunchPlan) -> PlannedLaunch[Cell, PlannedLoad]:
        works = [(cell, partial(self._work, launch, cell, rows)) for cell, rows in launch.cells]
        bench = partial(self.bench, self, launch)
        return PlannedLaunch(launch.variant.name, launch.round, works, bench)

    def _work(
        self, launch: LaunchPlan, cell: Cell, rows: tuple[PlannedTrial, ...]
    ) -> Work[PlannedLoad]:
        return self.agenda.work(launch, cell, rows)

    def _expected_s(self, place: int, cell: int | None) -> float:
        launch, *later = self.agenda.launches[place:]
        beside_s = (1 + len(later)) * self.beside_s
        if cell is None:
            return self.agenda.expected_s([launch, *later]) + beside_s
        rest = replace(launch, cells=launch.cells[cell:])
        up_s = 0.0 if self.agenda.suite.services else LAUNCH_S
        return self.agenda.expected_s([rest, *later]) + beside_s - up_s


READ_S: Final = 0.5
"""Seconds between two readings: with them the controller uses 2 to 3 % of a core."""

PATIENCE_S: Final = 15.0
"""A warm-up waits no longer for replicas of which none comes: there may be no room."""

MOST_S: Final = 60.0
"""A warm-up waits no longer for replicas that come and go."""


@dataclass
class ReplicaWatch:
    """Watches the replicas of an app during a load, as a context manager (cluster/course.py)."""

    serving: Serving
    app: str
    clock: Callable[[], float] = time.monotonic
    changes: list[Mapping[str, Any]] = field(default_factory=list)  # complete at the end
    _running: list[int] = field(default_factory=list)
    _changed_s: float = 0.0
    _began_s: float = math.inf

    def __enter__(self) -> Self:
        self.serving.begin_course(READ_S)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.changes = self.serving.end_course()["changes"]
        except LaunchFailed:
            return  # the cluster is gone: the runner notices that itself

    def settled(self) -> bool:
        """Return whether the measurement may begin: no replica is missing, or none comes."""
        now_s = self.clock()
        self._began_s = min(self._began_s, now_s)
        try:
            states = self.serving.replica_states().values()
        except LaunchFailed:
            return True
        running = [int(state["running"]) for state in states]
        if running != self._running:
            self._running, self._changed_s = running, now_s
        latest_s = min(self._changed_s + PATIENCE_S, self._began_s + MOST_S)
        return now_s > latest_s or all(state["running"] >= state["wanted"] for state in states)

    def add_to(self, trial: Trial, result: LoadResult) -> Trial:
        """Add to the limits of what Serve scales (core/own_app.py) what ran within the windows.

        That is: the numbers of replicas in turn, and how many Serve wanted at the end.
        """
        begin_ns = result.started_at_ns - time.time_ns() + time.perf_counter_ns()
        limits, end_ns = dict(trial.limits), begin_ns + result.duration_s * 1e9
        past = [change for change in self.changes if change["at_ns"] <= end_ns]
        for name in [name for name, limit in limits.items() if limit.most is not None]:
            seen = [change for change in past if change["deployment"] == f"{self.app}:{name}"]
            before = sum(change["at_ns"] <= begin_ns for change in seen)
            counts = [int(change["running"]) for change in seen[max(0, before - 1) :]]
            if counts:
                ran = tuple(count for count, _ in groupby(counts))
                wanted = int(seen[-1]["wanted"])
                limits[name] = structs.replace(limits[name], ran=ran, wanted=wanted)
        return replace(trial, limits=limits)
