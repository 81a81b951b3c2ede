"""The composer: launch, prove, deploy, load, append, next. It reads like the README.

Measure, then append, then compute, then draw: here is only the first half. Whoever wants to show
what goes on hands in an Observer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from serve_bench.analysis.verdict import worth_a_look
from serve_bench.core.failed_requests import none_succeeded
from serve_bench.core.load_result import Progress as LoadProgress
from serve_bench.core.own_app import limits_of, slots_of
from serve_bench.core.plan import (
    LAUNCH_S,
    Cell,
    LaunchPlan,
    label_of,
    load_of,
    step_row,
    timing_of,
    trial_of,
)
from serve_bench.core.result import Deploy, Failure, JsonObject, Launch, PlannedTrial, Row, Trial
from serve_bench.load import LoadError, LoadInterrupted
from serve_bench.load.request_log import RequestLog
from serve_bench.observing.inside import Inside, Look
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.extra_loads import Settling
from serve_bench.runner.extra_loads import look as look_at_waits
from serve_bench.runner.load_place import FromNodes, Here
from serve_bench.runner.observer import Observer, Step, record_teardown
from serve_bench.runner.requests_file import RequestsFile
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, Deployed, LaunchFailed, Serving
from serve_bench.serving.strays import marks
from serve_bench.store import RunFolder, now_iso

#: What is done next when a phase of a launch has ended.
_NEXT_PHASE = {
    "import": "launch: starting Ray",
    "ray_init": "launch: starting Serve",
    "serve_start": "launch: Serve is up",
}


@dataclass
class Runner:
    """One sitting of a run: works off the agenda and appends every record to `folder`."""

    agenda: Agenda
    folder: RunFolder
    run_id: str
    observer: Observer
    first_launch: int = 1  # number of the first launch; above 1 when a run is resumed
    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    after_cell: Callable[[Serving, Sequence[Trial]], None] | None = None
    inside: Inside | None = None  # None: nothing is looked at beside the load
    requests: RequestsFile | None = None  # gets every request of every measured row
    place: Here | FromNodes = field(default_factory=Here)  # where the load comes from
    failed: bool = False
    _done: int = 0
    _to_come: int = 0
    _left_s: float = 0.0
    _hurt: bool = False  # a process of the cluster ended during the last load
    _settling: Settling | None = None  # of the cell at hand, where its rows have no warm-up
    _unsettled: bool = False  # what the last row left behind is not worked off
    _without_ray: set[str | None] = field(default_factory=set)  # interpreters that cannot import it
    _slots: Mapping[str, int] = field(default_factory=dict)  # of the cell at hand, of an own app
    _limits: JsonObject = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """How many loads this sitting has to drive; of a growing load as far as is known now."""
        return self._done + self._to_come

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        self._to_come = len(self.agenda.loads())
        for offset, launch in enumerate(self.agenda.launches):
            self._left_s = self.agenda.expected_s(self.agenda.launches[offset:])
            self._launch(launch, self.first_launch + offset)
        return not self.failed

    def _launch(self, launch: LaunchPlan, number: int) -> None:
        if launch.variant.python in self._without_ray:
            self._fail("launch", LaunchFailed(NOT_TRIED), launch, number)
            return
        self._hurt = self._unsettled = False  # whatever ended was of another cluster
        app = self.agenda.suite.app
        most = max(app.replicas(cell) for cell, _ in launch.cells)
        log = f"logs/launch-{number}.log"
        spec = LaunchSpec(
            launch.variant,
            self.run_id,
            str(number),
            self.folder.path / log,
            most_replicas=most,
            host=self.host,
            port=self.port,
            metrics=self.inside is not None and self.inside.metrics,
            folders=app.folders,
            cpus=max(app.cpus(cell) for cell, _ in launch.cells),
        )
        started_at = now_iso()
        serving = Serving(spec)
        try:
            self._say(launch, None, None, "launch: loading Ray")
            serving.start(lambda phase: self._say(launch, None, None, _NEXT_PHASE[phase]))
            self._work_off(launch, number, serving, started_at, log)
        except LaunchFailed as error:
            if not serving.imported:  # nor will it be the next time
                self._without_ray.add(launch.variant.python)
            self._fail("launch", error, launch, number)
        finally:  # Ctrl-C comes this way too
            self._say(launch, None, None, "teardown")
            self.place.close()
            self._teardown(serving, str(number))

    def _teardown(self, serving: Serving, launch: str) -> None:
        record_teardown(self.folder, launch, serving.close(), self._append_failure)

    def _work_off(
        self, launch: LaunchPlan, number: int, serving: Serving, started_at: str, log: str
    ) -> None:
        """Deploys and measures cell after cell. Raises LaunchFailed when the launch is no good."""
        proven = False
        for place, (cell, trials) in enumerate(launch.cells):
            rest = replace(launch, cells=launch.cells[place:])
            later = self.agenda.launches[self.agenda.launches.index(launch) + 1 :]
            self._left_s = self.agenda.expected_s([rest, *later]) - LAUNCH_S
            after = len(self.agenda.loads([replace(rest, cells=rest.cells[1:]), *later]))
            self._say(launch, cell, None, "deploy")
            try:
                deployed = serving.deploy(self.agenda.suite.app, cell)
            except LaunchFailed as error:
                if not proven or not serving.alive():
                    raise
                self._fail("deploy", error, launch, number, cell)
                continue
            if not proven:
                self._prove(launch, number, serving, started_at, log)
                proven = True
            settled: JsonObject = {}
            try:
                settled = self._settle(launch, serving, cell)
            finally:  # after a Ctrl-C too: the deploy is in force
                self.folder.append(_deploy_record(str(number), cell, deployed, settled))
            if self.agenda.suite.app.own is not None:
                self._slots = slots_of(deployed.proof["replicas"])
            self._limits = limits_of(deployed.proof["replicas"])
            if self.inside is not None:
                self.inside.deployed(serving)
            measured = self._cell(launch, number, serving, cell, trials, after)
            if self.after_cell is not None:
                self.after_cell(serving, measured)

    def _cell(
        self,
        launch: LaunchPlan,
        number: int,
        serving: Serving,
        cell: Cell,
        trials: Sequence[PlannedTrial],
        after: int,
    ) -> list[Trial]:
        """The loads of a deployed cell, those that were profiled left out; `after` loads of other
        cells are to come. Raises LaunchFailed when the cluster is done for."""
        measured = []
        work = self.agenda.work(launch, cell, trials)
        others_s = self._left_s - work.left_s()
        while (todo := work.next()) is not None:
            self._to_come, self._left_s = after + len(work.left()), others_s + work.left_s()
            planned, profiled = todo
            trial = self._trial(launch, number, serving, cell, planned, profiled)
            measured += [] if trial is None or profiled else [trial]
            work.add(planned, trial)
            if not serving.alive():
                raise LaunchFailed("the cluster process ended during a trial")
            if (reason := serving.broken()) is not None:
                raise LaunchFailed(f"{reason}: this cluster can do nothing more")
            more = work.next() is not None or cell != launch.cells[-1][0]
            shaken = self._hurt or (trial is not None and trial.flags.get("cut"))
            if self._hurt and more and not self._healed(launch, number, serving, cell):
                break
            if shaken and more and self._settling is not None:
                self._unsettled = not self._settling.recovered()
        self._to_come, self._hurt = after, False
        return measured

    def _settle(self, launch: LaunchPlan, serving: Serving, cell: Cell) -> JsonObject:
        """Where rows are of so many requests, without a warm-up: until one client is served
        steadily. What came of it, for the record of the deploy."""
        self._settling, self._unsettled = None, False
        if self.agenda.suite.requests_per_client is None:
            return {}

        def progress(now: LoadProgress) -> None:
            self._say(launch, cell, None, "until one client is served steadily", now.rate)

        load = load_of(self.agenda.suite, step_row(1), serving.url, cell)
        self._settling = Settling(load, marks(self.run_id), progress)
        return self._settling.first()

    def _healed(self, launch: LaunchPlan, number: int, serving: Serving, cell: Cell) -> bool:
        """Waits until what had ended has been replaced, and the cell is in force again."""
        self._hurt = False
        self._say(launch, cell, None, "wait for what ended to be replaced")
        try:
            deployed = serving.deploy(self.agenda.suite.app, cell)
        except LaunchFailed as error:
            if not serving.alive():
                raise
            self._fail("deploy", error, launch, number, cell)
            return False
        self.folder.append(_deploy_record(str(number), cell, deployed))
        if self.inside is not None:
            self.inside.deployed(serving)
        return True

    def _prove(
        self, launch: LaunchPlan, number: int, serving: Serving, started_at: str, log: str
    ) -> None:
        began = time.monotonic()
        proof = serving.prove()
        seconds = {**serving.seconds, "proof": round(time.monotonic() - began, 4)}
        self.folder.append(
            Launch(
                id=str(number),
                variant=launch.variant,
                round=launch.round,
                started_at=started_at,
                seconds=seconds,
                proof=proof,
                paths={"log": log},
            )
        )

    def _trial(
        self,
        launch: LaunchPlan,
        number: int,
        serving: Serving,
        cell: Cell,
        planned: PlannedTrial,
        profiled: bool = False,
    ) -> Trial | None:
        left_s = self._left_s

        def progress(now: LoadProgress) -> None:
            self._left_s = left_s - now.elapsed_s
            self._say(launch, cell, planned.row, now.phase_text, now.rate)

        about = _about(launch, number, planned)
        what = "trial"
        if profiled:  # no trial of the plan: what fails here leaves the measured one as it is
            what, about["key"] = "profile", None
        self._say(launch, cell, planned.row, "profiled load" if profiled else "connect")
        started_at, began = now_iso(), time.monotonic()
        pressed: LoadInterrupted | None = None
        log = None if self.requests is None or profiled else RequestLog()
        try:
            with self._looking(serving, planned, profiled) as look:
                try:
                    result = self.place.drive(serving)(
                        load_of(self.agenda.suite, planned.row, serving.url, cell),
                        timing_of(self.agenda.suite, planned.row),
                        on_progress=progress,
                        mark=marks(self.run_id),
                        log=log,
                    )
                except LoadInterrupted as early:
                    result, pressed = early.result, early
        except LoadError as error:
            ended = serving.casualties()
            self._hurt = bool(ended)
            message = "; ".join([str(error), *ended])
            self._append_failure(Failure(what, message, now_iso(), **about))
            return None
        finally:
            self._left_s = left_s - self.agenda.expected_load_s(profiled)
            self._done, self._to_come = self._done + 1, self._to_come - 1
        if not serving.alive():
            if pressed is not None:
                raise pressed
            return None  # the caller records why: this was no measure of a living cluster
        trial = trial_of(planned, str(number), started_at, result, time.monotonic() - began)
        trial = replace(trial, slots=self._slots, limits=self._limits)
        if look is not None:
            trial = look.add_to(trial, result)
        if self._unsettled:
            trial = replace(trial, flags={**trial.flags, "unsettled": True})
            self._unsettled = False
        if pressed is not None:
            trial = replace(trial, flags={**trial.flags, "interrupted": True})
        ended = serving.casualties() if pressed is None else []
        stopped: KeyboardInterrupt | None = None
        try:
            if pressed is None and not profiled and not ended:
                trial = self._waits(trial, launch, serving, cell)
        except KeyboardInterrupt as early:  # what was measured is whole, and is kept
            stopped = early
        try:
            self.folder.append(trial)
        finally:  # where it cannot be kept, it is at least seen
            self.observer.trial(trial, self._done, self.planned)
        if self.requests is not None and log is not None:
            self.requests.append(planned.key, log)
        if stopped is not None:
            raise stopped
        if pressed is not None:
            done = f"{len(result.windows)} of {self.agenda.suite.windows} windows"
            if planned.row.requests is not None:
                done = f"{trial.counts.completed:,} of {planned.row.requests:,} requests"
            message = f"interrupted after {done}"
            self._append_failure(Failure(what, message, now_iso(), **about))
            raise pressed
        for one in ended:
            self._hurt = True
            message = f"{one} during the trial: the figures are of a broken cluster"
            self._append_failure(Failure(what, message, now_iso(), **about))
        for lost in result.failures:
            message = f"{lost.who} failed: {lost.reason}"
            self._append_failure(Failure("worker", message, now_iso(), **about))
        if trial.counts.completed == 0:
            self._append_failure(Failure(what, none_succeeded(trial), now_iso(), **about))
        return trial

    def _waits(self, trial: Trial, launch: LaunchPlan, serving: Serving, cell: Cell) -> Trial:
        """The trial with what requests wait in, where nothing full explains it: seen in a further
        load, of which nothing else is kept. Ctrl-C ends it."""
        app = self.agenda.suite.app
        front = app.front if app.own is None else app.own.front
        if self.inside is None or not self.inside.sample or not isinstance(self.place, Here):
            return trial
        if trial.flags.get("cut") or not worth_a_look(trial, front):
            return trial
        self._say(launch, cell, trial.row, "look at what requests wait in")
        load = load_of(self.agenda.suite, trial.row, serving.url, cell)
        seen = look_at_waits(serving, trial, load, self.place.drive(serving), marks(self.run_id))
        self.inside.loaded_between()
        return replace(trial, waits=seen)

    def _looking(
        self, serving: Serving, planned: PlannedTrial, profiled: bool
    ) -> AbstractContextManager[Look | None]:
        if self.inside is None:
            return nullcontext()
        return self.inside.around(serving, planned, profiled=profiled)

    def _fail(
        self,
        what: str,
        error: LaunchFailed,
        launch: LaunchPlan,
        number: int | None = None,
        cell: Cell | None = None,
    ) -> None:
        log = (f"log: {error.log}",) if error.log else ()
        self._append_failure(
            Failure(
                what,
                str(error),
                now_iso(),
                launch=None if number is None else str(number),
                variant=launch.variant.name,
                round=launch.round,
                cell=None if cell is None else label_of(cell),
                detail=(*error.detail, *log),
            )
        )

    def _append_failure(self, failure: Failure) -> None:
        self.failed = True
        self.folder.append(failure)
        self.observer.failure(failure)

    def _say(
        self,
        launch: LaunchPlan,
        cell: Cell | None,
        row: Row | None,
        phase: str,
        rate: float | None = None,
    ) -> None:
        number = min(self._done + 1, self.planned)
        left_s = max(0.0, self._left_s)
        about = self.agenda.suite.ladder is not None
        self.observer.step(
            Step(number, self.planned, launch, cell, row, phase, rate, left_s, about)
        )


def _deploy_record(
    launch: str, cell: Cell, deployed: Deployed, settled: JsonObject | None = None
) -> Deploy:
    seconds = round(deployed.seconds, 4)
    return Deploy(launch, label_of(cell), seconds, deployed.in_place, deployed.proof, settled or {})


def _about(launch: LaunchPlan, number: int, planned: PlannedTrial) -> dict[str, Any]:
    return {
        "key": planned.key,
        "launch": str(number),
        "variant": launch.variant.name,
        "round": launch.round,
        "cell": planned.cell,
        "row": planned.row,
    }
