"""What `serve-bench scale` measures on: a cluster of ours, or one of others, size after size.

The applications of a size are put, loaded from every node, and removed. How a row is measured is
measure.py, what the figures mean belongs to summary.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from serve_bench.benchmarks.scale.cluster import AttachedCluster, OwnCluster
from serve_bench.benchmarks.scale.measure import Rows
from serve_bench.benchmarks.scale.needs import check_cluster
from serve_bench.benchmarks.scale.request import (
    ScaleCell,
    ScaleLaunch,
    ScaleSuite,
    apps_of,
    expected_s,
    processes_of,
)
from serve_bench.benchmarks.scale.trial import with_values
from serve_bench.core.errors import RunFailed
from serve_bench.core.result import Deploy, JsonObject, PlannedTrial
from serve_bench.runner.agenda import Listed
from serve_bench.runner.runner import (
    Bench,
    CellOver,
    Fault,
    Journal,
    Loaded,
    Part,
    Plan,
    PlannedLaunch,
)
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.strays import Reaped


def plan_of(
    suite: ScaleSuite, launches: Sequence[ScaleLaunch], folder: Path, run_id: str
) -> Plan[ScaleCell, PlannedTrial]:
    """The launches that are to be measured; `folder`: of the run."""
    return Plan(
        [
            PlannedLaunch(
                one.variant.name,
                one.round,
                [(cell, partial(Listed, cell.rows)) for cell in one.cells],
                partial(ScaleBench, suite, one, folder, run_id),
            )
            for one in launches
        ],
        lambda place, at: expected_s(suite, launches[place:]) if at is None else None,
    )


class ScaleBench(Bench[ScaleCell, PlannedTrial]):
    """One cluster, started for the launch or attached to."""

    begun = True

    def __init__(
        self,
        suite: ScaleSuite,
        launch: ScaleLaunch,
        folder: Path,
        run_id: str,
        number: int,
        journal: Journal,
    ) -> None:
        self._suite, self._journal = suite, journal
        self._part = Part(str(number), launch.variant, launch.round)
        self.parts = (self._part,)
        self._cluster = self._cluster_of(launch, folder / self._part.log, run_id)
        self._rows = Rows(suite, self._cluster, folder, run_id, self._part, journal)
        self._proven = False
        self._there = False  # the applications of a size are, or may be

    def _cluster_of(
        self, launch: ScaleLaunch, log: Path, run_id: str
    ) -> OwnCluster | AttachedCluster:
        suite, number = self._suite, self._part.number
        sizes = [cell.replicas for cell in launch.cells]
        if suite.address is not None:
            names = {app.name for size in sizes for app in apps_of(suite, size)}
            return AttachedCluster(suite.address, run_id, number, log, tuple(sorted(names)))
        most = max(processes_of(suite, size) for size in sizes)
        spec = LaunchSpec(
            launch.variant,
            run_id,
            number,
            log,
            most_replicas=most,
            raylets=suite.nodes,
            proxy_location="EveryNode",
        )
        return OwnCluster(spec)

    def start(self) -> None:
        """Starts the cluster, or attaches to it."""
        own = self._suite.address is None
        self._journal.say("starting Ray and Serve" if own else "attaching")
        self._cluster.start(lambda phase: self._journal.say(f"launch: {phase}"))
        if isinstance(self._cluster, AttachedCluster):
            check_cluster(self._suite, self._cluster.found["nodes"])

    def put(self, cell: ScaleCell) -> None:
        """Puts the applications of a size. Raises RunFailed when the cluster cannot be proven."""
        self._cell, self._there = cell, True
        count = processes_of(self._suite, cell.replicas)
        self._rows.say(cell, f"deploying {count:,} replica{'' if count == 1 else 's'}")
        try:
            put = self._put = self._cluster.put(
                apps_of(self._suite, cell.replicas), lambda at: self._rows.say(cell, at)
            )
        except RunFailed as error:
            if not self._cluster.alive():
                raise
            self._journal.fail(Fault("deploy", error, self._part, dict(cell.cell)))
            raise CellOver(str(error)) from None
        if not self._proven:
            self._journal.append(self._part.proven(self._cluster.seconds, self._proof))
            self._proven = True
        proof = {"replicas": [asdict(one) for one in put.replicas]}
        self._journal.append(Deploy(self._part.number, dict(cell.cell), put.seconds, False, proof))

    def _proof(self) -> JsonObject:
        proof = self._cluster.prove()
        return {**proof, "proxies": [asdict(one) for one in self._cluster.proxies()]}

    def load(self, row: PlannedTrial) -> Loaded:
        """A row; of a curve, removing the replicas is a part of it."""
        loaded = self._rows.measure(self._cell, self._put, row)
        if not loaded.trials or self._suite.workload != "curve":
            return loaded
        seconds, fault = self._remove()
        (trial,) = loaded.trials
        trial = with_values(trial, {"teardown_time": ("s", seconds)})
        faults = (*loaded.faults, *([] if fault is None else [fault]))
        return replace(loaded, trials=(trial,), faults=faults)

    def leave(self, cell: ScaleCell, whole: bool) -> Fault | None:
        """Removes the applications, where they are still there."""
        return self._remove()[1] if self._there and self._cluster.alive() else None

    def _remove(self) -> tuple[float | None, Fault | None]:
        """How many seconds it took, or what went wrong."""
        self._there = False
        self._rows.say(self._cell, "removing the replicas")
        try:
            return self._cluster.remove(), None
        except RunFailed as error:
            return None, Fault("deploy", error, self._part, dict(self._cell.cell))

    def close(self, part: Part) -> Reaped:
        """Ends the load actors, and the cluster or what was put on it."""
        self._rows.close()
        return self._cluster.close()
