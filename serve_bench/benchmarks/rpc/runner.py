"""The composer of `serve-bench rpc`: start a backend, make a world, run its episodes, append, next.

Rule: measure, then append; nothing is computed beyond the record. The episodes of a world are in
rpc_episodes.py, what runs in the processes in apps/rpc.
"""

from __future__ import annotations

from dataclasses import dataclass

from serve_bench.benchmarks.rpc.backend import People, RpcBackend, RpcFailed
from serve_bench.benchmarks.rpc.episodes import Measuring
from serve_bench.benchmarks.rpc.request import RpcLaunch, RpcSuite, World, expected_s, x_of
from serve_bench.core.result import Deploy, Failure, Launch, PlannedTrial, VariantUsed
from serve_bench.core.scenario import LaunchPlan
from serve_bench.runner.observer import Observer, Step
from serve_bench.runner.teardown import record_teardown
from serve_bench.store import RunFolder
from serve_bench.store.clock import now_iso


@dataclass
class RpcRunner:
    """One sitting: works off `launches` and appends every record to `folder`."""

    suite: RpcSuite
    launches: tuple[RpcLaunch, ...]
    folder: RunFolder
    run_id: str
    observer: Observer
    first_launch: int = 1
    failed: bool = False
    _done: int = 0
    _began_s: float = 0.0

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        for offset, launch in enumerate(self.launches):
            self._launch(launch, self.first_launch + offset)
        return not self.failed

    @property
    def _planned(self) -> int:
        return sum(len(launch.worlds) for launch in self.launches)

    def _launch(self, launch: RpcLaunch, number: int) -> None:
        log = f"logs/launch-{number}.log"
        backend = RpcBackend(
            launch.backend, self.suite, self.run_id, str(number), self.folder.path / log
        )
        started_at, done = now_iso(), self._done
        try:
            self._say(launch, None, f"starting {launch.backend}")
            backend.start()
            self._record_launch(backend, launch, number, started_at, log)
            for world, planned in launch.worlds:
                if backend.alive():
                    self._world(backend, launch, number, world, planned)
                self._done += 1
            if not backend.alive():
                raise RpcFailed("the rpc program ended", (), backend.log)
        except RpcFailed as error:
            self._fail("launch", error, launch, number)
        finally:  # Ctrl-C comes this way too
            self._done = done + len(launch.worlds)
            self._teardown(backend, number)

    def _record_launch(
        self, backend: RpcBackend, launch: RpcLaunch, number: int, started_at: str, log: str
    ) -> None:
        proof = {"versions": backend.versions, "master_port": backend.port}
        record = Launch(
            id=str(number),
            variant=VariantUsed(launch.backend),
            round=launch.round,
            started_at=started_at,
            seconds={"start": backend.start_s},
            proof=proof,
            paths={"log": log},
        )
        self.folder.append(record)

    def _teardown(self, backend: RpcBackend, number: int) -> None:
        record_teardown(self.folder, str(number), backend.close(), self._append_failure)

    def _world(
        self,
        backend: RpcBackend,
        launch: RpcLaunch,
        number: int,
        world: World,
        planned: PlannedTrial,
    ) -> None:
        """One world: up, warm, measured, recorded, ended. What breaks it is recorded."""
        self._say(launch, planned, f"starting {world.world_size} processes")
        try:
            people = backend.world(world)
        except RpcFailed as error:
            self._fail("deploy", error, launch, number, planned)
            return
        who = {"agent": people.agent, "observers": list(people.observers)}
        reachable = backend.open_to_network()
        self.folder.append(
            Deploy(
                launch=str(number),
                cell=planned.cell,
                seconds=people.seconds,
                in_place=False,
                proof={**who, "open_to_network": reachable},
            )
        )
        self._say(launch, planned, f"agent is pid {people.agent}")
        try:
            self._measure(backend, launch, number, world, planned, people)
        except RpcFailed as error:
            self._fail("trial", error, launch, number, planned)
        if backend.alive():
            try:
                backend.end_world()
            except RpcFailed as error:
                self._fail("deploy", error, launch, number, planned)

    def _measure(
        self,
        backend: RpcBackend,
        launch: RpcLaunch,
        number: int,
        world: World,
        planned: PlannedTrial,
        people: People,
    ) -> None:
        """The trial of a world that is up, recorded; then what broke it is raised."""

        def say(phase: str, rate: float | None, spent_s: float) -> None:
            self._say(launch, planned, phase, rate, spent_s)

        one = Measuring(self.suite, backend, number, world, planned, people, self.folder.path, say)
        trial, broken = one.measure()
        if trial is not None:
            try:
                self.folder.append(trial)
            finally:  # where it cannot be kept, it is at least seen
                self.observer.trial(trial, self._done + 1, self._planned)
        if isinstance(broken, RpcFailed):
            raise RpcFailed(f"{broken}, {one.done}", broken.detail, broken.log)
        if isinstance(broken, KeyboardInterrupt):
            self._append_failure(
                Failure(
                    "trial",
                    f"interrupted {one.done}",
                    now_iso(),
                    key=planned.key,
                    launch=str(number),
                    variant=planned.variant,
                    round=planned.round,
                    cell=planned.cell,
                    row=planned.row,
                )
            )
        if broken is not None:
            raise broken

    def _fail(
        self,
        what: str,
        error: RpcFailed,
        launch: RpcLaunch,
        number: int,
        planned: PlannedTrial | None = None,
    ) -> None:
        self._append_failure(
            Failure(
                what,
                str(error),
                now_iso(),
                key=None if planned is None else planned.key,
                launch=str(number),
                variant=launch.backend,
                round=launch.round,
                cell=None if planned is None else planned.cell,
                row=None if planned is None else planned.row,
                detail=(*error.detail, f"log: {error.log}"),
            )
        )

    def _append_failure(self, failure: Failure) -> None:
        self.failed = True
        self.folder.append(failure)
        self.observer.failure(failure)

    def _say(
        self,
        launch: RpcLaunch,
        planned: PlannedTrial | None,
        phase: str,
        rate: float | None = None,
        spent_s: float | None = None,
    ) -> None:
        """Where the run is; `spent_s` of the present world's episodes, None before they begin."""
        if planned is not None:
            axis = self.suite.x_axis
            phase = f"{axis} {x_of(planned.cell, axis)}: {phase}"
        shown = LaunchPlan(VariantUsed(launch.backend), launch.round, ())
        number = min(self._done + 1, self._planned)
        left_s = max(0.0, self._left_s() - (spent_s or 0.0))
        row = None if planned is None or spent_s is None else planned.row
        self.observer.step(
            Step(number, self._planned, shown, None, row, phase, rate, left_s, about=True)
        )

    def _left_s(self) -> float:
        """About how long the worlds to come take, the present one with them."""
        return expected_s(self.suite, self.launches, self._done)
