"""The composer of `serve-bench scale`: launch, put, load from every node, append, remove, next.

Measure, then append: what the figures mean belongs to summary.py. How a size is measured is
measure.py. Whoever wants to show what goes on hands in an Observer.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from serve_bench.benchmarks.scale.cluster import AttachedCluster, OwnCluster, Put
from serve_bench.benchmarks.scale.measure import Rows
from serve_bench.benchmarks.scale.needs import check_cluster
from serve_bench.benchmarks.scale.request import (
    AS_IT_IS,
    ScaleCell,
    ScaleLaunch,
    ScaleSuite,
    apps_of,
    expected_s,
    processes_of,
)
from serve_bench.benchmarks.scale.trial import with_values
from serve_bench.core.errors import RunFailed
from serve_bench.core.plan import LaunchPlan
from serve_bench.core.result import Deploy, Failure, Launch, PlannedTrial, Trial, VariantUsed
from serve_bench.runner.observer import Observer, Step, record_teardown
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.store import RunFolder, now_iso


@dataclass
class ScaleRunner:
    """One sitting of a run: works off the launches and appends every record to `folder`."""

    suite: ScaleSuite
    launches: tuple[ScaleLaunch, ...]
    folder: RunFolder
    run_id: str
    observer: Observer
    first_launch: int = 1
    failed: bool = False
    _done: int = 0
    _ends_s: float = 0.0  # when all is likely to be over, by time.monotonic
    _launch: ScaleLaunch | None = field(default=None)

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        for offset, launch in enumerate(self.launches):
            self._ends_s = time.monotonic() + expected_s(self.suite, self.launches[offset:])
            self._work_off(launch, self.first_launch + offset)
        return not self.failed

    @property
    def _planned(self) -> int:
        return sum(len(cell.rows) for launch in self.launches for cell in launch.cells)

    def _work_off(self, launch: ScaleLaunch, number: int) -> None:
        log = f"logs/launch-{number}.log"
        cluster = self._cluster(launch, number, log)
        started_at, done = now_iso(), self._done
        self._launch = launch
        rows = Rows(self.suite, cluster, self.folder, self.run_id, number, self.say, self.fail_row)
        try:
            self.say(None, "starting Ray and Serve" if self.suite.address is None else "attaching")
            cluster.start(lambda phase: self.say(None, f"launch: {phase}"))
            if isinstance(cluster, AttachedCluster):
                check_cluster(self.suite, cluster.found["nodes"])
            proven = False
            for cell in launch.cells:
                put = self._put(cluster, number, cell)
                if put is None:
                    continue
                if not proven:
                    self._record_launch(cluster, launch, number, started_at, log)
                    proven = True
                self._cell(cluster, rows, number, cell, put)
        except RunFailed as error:
            self.fail("launch", error, number)
        finally:  # Ctrl-C comes this way too
            self._done = done + sum(len(cell.rows) for cell in launch.cells)
            self.say(None, "teardown")
            rows.close()
            self._teardown(cluster, number)

    def _cluster(self, launch: ScaleLaunch, number: int, log: str) -> OwnCluster | AttachedCluster:
        path = self.folder.path / log
        if self.suite.address is not None:
            names = {
                app.name for cell in launch.cells for app in apps_of(self.suite, cell.replicas)
            }
            return AttachedCluster(
                self.suite.address, self.run_id, str(number), path, tuple(sorted(names))
            )
        most = max(processes_of(self.suite, cell.replicas) for cell in launch.cells)
        spec = LaunchSpec(
            launch.variant,
            self.run_id,
            str(number),
            path,
            most_replicas=most,
            raylets=self.suite.nodes,
            proxy_location="EveryNode",
        )
        return OwnCluster(spec)

    def _put(
        self, cluster: OwnCluster | AttachedCluster, number: int, cell: ScaleCell
    ) -> Put | None:
        """The applications of a size; None where they did not come up, which is recorded. Raises
        RunFailed when the cluster is good for nothing more."""
        count = processes_of(self.suite, cell.replicas)
        self.say(cell, f"deploying {count:,} replica{'' if count == 1 else 's'}")
        try:
            put = cluster.put(apps_of(self.suite, cell.replicas), lambda at: self.say(cell, at))
        except RunFailed as error:
            if not cluster.alive():
                raise
            self.fail("deploy", error, number, cell)
            self._remove(cluster, number, cell)
            return None
        return put

    def _cell(
        self,
        cluster: OwnCluster | AttachedCluster,
        rows: Rows,
        number: int,
        cell: ScaleCell,
        put: Put,
    ) -> None:
        """Measures the rows of a size that is up, and removes it."""
        proof = {"replicas": [asdict(one) for one in put.replicas]}
        self.folder.append(Deploy(str(number), dict(cell.cell), put.seconds, False, proof))
        removed = False
        try:
            for planned in cell.rows:
                trial = rows.measure(cell, put, planned)
                if trial is not None and self.suite.workload == "curve":
                    removed = True
                    removing_s = self._remove(cluster, number, cell)
                    trial = with_values(trial, {"teardown_time": ("s", removing_s)})
                if trial is not None:
                    self._keep(trial)
                self._done += 1
                rows.raise_what_ended_it()
        finally:
            if not removed and cluster.alive():
                self._remove(cluster, number, cell)

    def _remove(
        self, cluster: OwnCluster | AttachedCluster, number: int, cell: ScaleCell
    ) -> float | None:
        """Seconds that it took; None where it failed, which is recorded."""
        self.say(cell, "removing the replicas")
        try:
            return cluster.remove()
        except RunFailed as error:
            self.fail("deploy", error, number, cell)
            return None

    def _keep(self, trial: Trial) -> None:
        try:
            self.folder.append(trial)
        finally:  # where it cannot be kept, it is at least seen
            self.observer.trial(trial, self._done + 1, self._planned)

    def _record_launch(
        self,
        cluster: OwnCluster | AttachedCluster,
        launch: ScaleLaunch,
        number: int,
        started_at: str,
        log: str,
    ) -> None:
        began = time.monotonic()
        proof = cluster.prove()
        proof["proxies"] = [asdict(one) for one in cluster.proxies()]
        seconds = {**cluster.seconds, "proof": round(time.monotonic() - began, 4)}
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

    def _teardown(self, cluster: OwnCluster | AttachedCluster, number: int) -> None:
        record_teardown(self.folder, str(number), cluster.close(), self.append_failure)

    def fail(self, what: str, error: RunFailed, number: int, cell: ScaleCell | None = None) -> None:
        """Records what kept a launch, or a size of it, from being measured."""
        log = getattr(error, "log", None)
        assert self._launch is not None, "asked within a launch"
        self.append_failure(
            Failure(
                what,
                str(error),
                now_iso(),
                launch=str(number),
                variant=self._launch.variant.name,
                round=self._launch.round,
                cell=None if cell is None else dict(cell.cell),
                detail=(*error.detail, *((f"log: {log}",) if log else ())),
            )
        )

    def fail_row(self, what: str, message: str, number: int, planned: PlannedTrial) -> None:
        """Records what went wrong with one row."""
        self.append_failure(
            Failure(
                what,
                message,
                now_iso(),
                key=planned.key,
                launch=str(number),
                variant=planned.variant,
                round=planned.round,
                cell=planned.cell,
                row=planned.row,
            )
        )

    def append_failure(self, failure: Failure) -> None:
        """Appends, and tells whoever looks."""
        self.failed = True
        self.folder.append(failure)
        self.observer.failure(failure)

    def say(
        self,
        cell: ScaleCell | None,
        phase: str,
        planned: PlannedTrial | None = None,
        rate: float | None = None,
    ) -> None:
        """Where the run is."""
        variant = VariantUsed(AS_IT_IS) if self._launch is None else self._launch.variant
        round_ = 1 if self._launch is None else self._launch.round
        shown = LaunchPlan(variant, round_, ())
        if cell is not None and len(self.suite.replicas) > 1:
            phase = f"{cell.replicas:,} replicas: {phase}"
        number = min(self._done + 1, self._planned)
        left_s = max(0.0, self._ends_s - time.monotonic())
        row = None if planned is None else planned.row
        step = Step(number, self._planned, shown, None, row, phase, rate, left_s, about=True)
        self.observer.step(step)
