"""The bench of `serve-bench scale`: our own cluster or another one, size after size.

The applications of a size are put, loaded and removed: through a handle, by HTTP from this host, or
from every node. Rule: nodes/ drives the load of nodes, core/plan.py makes the record. A result of
which more than 1 % failed is marked invalid here, once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Final

import psutil
from msgspec import structs

from serve_bench.benchmarks.scale.cluster import AttachedCluster, OwnCluster
from serve_bench.benchmarks.scale.needs import check_cluster
from serve_bench.benchmarks.scale.spec import (
    GraphSpec,
    LoadedSpec,
    ScaleApp,
    ScaleSpec,
    on_nodes,
    why_invalid,
)
from serve_bench.core.errors import RunFailed
from serve_bench.core.facts import NodeProxy, TrialUsage
from serve_bench.core.figures import counted
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import HANDLE, Load, Timing
from serve_bench.core.nodes import NODE
from serve_bench.core.plan import PlannedCell, trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Deploy, JsonObject, Metric, PlannedTrial, Trial
from serve_bench.core.traffic import Row
from serve_bench.core.usage import by_role
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.nodes.crew import NodeCrew
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler
from serve_bench.runner.agenda import ListedBench
from serve_bench.runner.load_source import LoadOn, NodeLoads
from serve_bench.runner.runner import CellOver, Fault, Loaded, Part
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.strays import Reaped, marks
from serve_bench.store import StoreError, now_iso

DRAIN_S: Final = 5.0


class ScaleBench(ListedBench[ScaleSpec]):
    """A cluster that is started for the launch, or attached to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cluster = self._make_cluster()
        log = self.folder / f"logs/nodes-{self.part.number}.log"
        self._node_loads = NodeLoads(LoadOn(self.suite.address), self.run_id, log)
        self._proven = False
        self._there = False  # the applications of a size are, or may be
        self._faults: list[Fault] = []  # of the row
        self._ended: BaseException | None = None  # what ended the row early

    def _make_cluster(self) -> OwnCluster | AttachedCluster:
        suite, launch, log = self.suite, self.launch, self.log
        run_id, number = self.run_id, self.part.number
        sizes = [int(cell["num_replicas"]) for cell, _ in launch.cells]
        if suite.address is not None:
            names = {app.name for size in sizes for app in suite.apps(size)}
            return AttachedCluster(suite.address, run_id, number, log, tuple(sorted(names)))
        most = max(suite.processes(size) for size in sizes)
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
        """Start the cluster, or attach to it."""
        is_own = self.suite.address is None
        self.journal.say("starting Ray and Serve" if is_own else "attaching")
        self._cluster.start(lambda phase: self.journal.say(f"launch: {phase}"))
        if isinstance(self._cluster, AttachedCluster):
            check_cluster(self.suite, self._cluster.facts["nodes"])

    def put(self, cell: PlannedCell) -> None:
        """Put the applications of a size. Raises RunFailed when the cluster cannot be proven."""
        self._cell, self._there = dict(cell[0]), True
        self._replicas = int(self._cell["num_replicas"])
        self._apps = self.suite.apps(self._replicas)
        self._say(f"deploying {counted(self.suite.processes(self._replicas), 'replica')}")
        try:
            put = self._put = self._cluster.put(self._apps, self._say)
        except RunFailed as error:
            if not self._cluster.alive():
                raise
            self.journal.fail(Fault("deploy", error, self.part, self._cell))
            raise CellOver(str(error)) from None
        if not self._proven:
            self.journal.append(self.part.prove(self._cluster.seconds, self._prove))
            self._proven = True
        proof = {"replicas": [asdict(replica) for replica in put.replicas]}
        self.journal.append(Deploy(self.part.number, self._cell, put.seconds, False, proof))

    def _prove(self) -> JsonObject:
        proof = self._cluster.prove()
        return {**proof, "proxies": [structs.asdict(proxy) for proxy in self._cluster.proxies()]}

    def load(self, row: PlannedTrial) -> Loaded:
        """Measure a row; of a curve, removing the replicas is a part of it."""
        self._faults, self._ended = [], None
        trial = self._measure(row)
        if trial is not None and self.suite.workload == "curve":
            seconds, fault = self._remove()
            self._faults += [] if fault is None else [fault]
            trial = add_values(trial, {"teardown_time": ("s", seconds)})
        return Loaded(() if trial is None else (trial,), tuple(self._faults), self._ended)

    def leave(self, cell: PlannedCell, whole: bool) -> Fault | None:
        """Remove the applications, where they are still there."""
        return self._remove()[1] if self._there and self._cluster.alive() else None

    def _remove(self) -> tuple[float | None, Fault | None]:
        """Remove the applications; return the seconds that it took, or what went wrong."""
        self._there = False
        self._say("removing the replicas")
        try:
            return self._cluster.remove(), None
        except RunFailed as error:
            return None, Fault("deploy", error, self.part, self._cell)

    def close(self, part: Part) -> Reaped:
        """End the load actors, and the cluster or what was put on it."""
        self._node_loads.close()
        return self._cluster.close()

    def _say(
        self, phase: str, planned: PlannedTrial | None = None, load: Progress | None = None
    ) -> None:
        if len(self.suite.replicas) > 1:
            phase = f"{self._replicas:,} replicas: {phase}"
        self.journal.say(phase, row=None if planned is None else planned.row, load=load)

    def _follow(self, planned: PlannedTrial) -> Callable[[Progress], None]:
        return lambda now: self._say(now.phase_text, planned, now)

    def _note(self, kind: str, message: str, planned: PlannedTrial) -> None:
        self._faults.append(Fault(kind, message, self.part, planned))

    def _measure(self, planned: PlannedTrial) -> Trial | None:
        """Measure a row, and flag it if it is invalid; None where it could not be loaded."""
        self._say("connect", planned)
        try:
            if isinstance(self.suite, GraphSpec):
                trial = self._from_here(planned)
            else:
                trial = self._from_nodes(planned)
        except (LoadError, RunFailed) as error:
            self._note("trial", str(error), planned)
            why = self._cluster.broken() if self._cluster.alive() else "the cluster ended"
            if why is not None:
                self._ended = RunFailed(f"{why}: it can do nothing more")
            return None
        if isinstance(self._cluster, OwnCluster):
            for casualty in self._cluster.casualties():
                message = f"{casualty} during the trial: the figures are of a broken cluster"
                self._note("trial", message, planned)
            if (why := self._cluster.broken()) is not None and self._ended is None:
                self._ended = RunFailed(f"{why}: the cluster can do nothing more")
        if (why := why_invalid(trial)) is not None:
            self._note("trial", f"invalid: {why}", planned)
            trial = trial.flagged("invalid")
        return trial

    def _from_here(self, planned: PlannedTrial) -> Trial:
        """Load a row from this host, by HTTP or a handle; a latency row is warmed up first."""
        suite, load = self.suite, self._load_from_here(planned.row)
        drive = partial(drive_load, on_progress=self._follow(planned), mark=marks(self.run_id))

        def drive_row() -> LoadResult:
            if load.each is None:
                return drive(load, self._timing())
            warming = Timing(0.0, 0.0, 1, max(0.05, suite.warmup), DRAIN_S)
            try:
                drive(replace(load, each=None), warming)
            except LoadInterrupted as early:  # what was answered until Ctrl-C is of no trial
                raise KeyboardInterrupt from early
            return drive(load, Timing(0.0, 0.0, 1, suite.timeout * load.each))

        return self._drive(planned, drive_row)[0]

    def _from_nodes(self, planned: PlannedTrial) -> Trial:
        """Load a row from every node; a lost node is a fault."""
        if not self._node_loads.up:
            self._say("starting a load actor on each node")
        crew = self._node_loads.crew(self._cluster)
        loads, suite = self._loads(crew), self.suite
        planned = on_nodes(planned, len(loads))
        drive = partial(crew.drive, on_progress=self._follow(planned))
        sample = suite.address is not None and suite.sample
        trial, result = self._drive(planned, partial(drive, loads, self._timing(), sample=sample))
        for node in result.nodes:
            if node.lost:
                name = node.hostname or node.ip or node.node
                self._note("node", f"node {name}: {node.lost}", planned)
        return self._add_costs(trial) if suite.workload == "curve" else trial

    def _drive(
        self, planned: PlannedTrial, drive: Callable[[], LoadResult]
    ) -> tuple[Trial, LoadResult]:
        """Drive a load, and sample our own cluster's processes; nodes of another sample theirs."""
        ours = self.suite.sample and self.suite.address is None
        sampling = Sampler(self._cluster.processes()) if ours else nullcontext()
        started_at, began = now_iso(), time.monotonic()
        with sampling as sampler:
            try:
                result = drive()
            except LoadInterrupted as early:
                result, self._ended = early.result, early
                self._note("trial", "interrupted", planned)
        total_s = time.monotonic() - began
        trial = nodes_trial(planned, self.part.number, started_at, result, total_s)
        trial = trial if self._ended is None else trial.flagged("interrupted")
        if sampler is None:
            return trial, result
        usage = sampler.summary(result.started_at_ns, trial.seconds.measured)
        try:
            keep_samples(self.folder, sampler.samples(trial.key))
        except StoreError as error:  # the figures are worth more than the samples
            self._ended = self._ended or error
        return replace(trial, usage=usage), result

    def _load_from_here(self, row: Row) -> Load:
        """Return the load of a row: by a handle, or by HTTP."""
        app, timeout_s = self._apps[0], self.suite.timeout
        if row.client == HANDLE:
            load = self._cluster.handle_load(app, self.part.variant.env)
        else:
            load = Load(self._request(self._proxy_here(), app))
        return replace(
            load, connections=row.connections, each=row.requests_each, timeout_s=timeout_s
        )

    def _request(self, proxy: NodeProxy, app: ScaleApp) -> Request:
        return Request(
            url=proxy.url + app.route_prefix,
            expect_status=(200,),
            expect_body=app.ready_body.encode(),
        )

    def _loads(self, crew: NodeCrew) -> dict[str, Load]:
        """Return the load of each node that has a healthy, unshared proxy. Raises RunFailed."""
        suite = self.suite
        assert isinstance(suite, LoadedSpec)
        draw = random.Random(f"{suite.seed} {self.part.number} {self._replicas}")
        here = {node.node_id for node in crew.nodes}
        loads: dict[str, Load] = {}
        proxies = sorted(self._cluster.proxies(), key=lambda node: node.node_id)
        for proxy in proxies:
            if not proxy.healthy or proxy.node_id not in here:
                continue
            if loads.keys() & set(proxy.shared_with):
                continue  # it cannot be asked by itself: the kernel deals connections out to all
            loads[proxy.node_id] = Load(
                self._request(proxy, draw.choice(self._apps)),
                connections=suite.connections,
                timeout_s=suite.timeout,
                connection_rates=True,
            )
        if not loads:
            why = "; ".join(f"{node.node_ip}: {node.status} {node.why or ''}" for node in proxies)
            raise RunFailed(f"no node has a healthy proxy of its own: {why or 'no proxy at all'}")
        return loads

    def _proxy_here(self) -> NodeProxy:
        """Return a healthy proxy of a node that is this host. RunFailed without one."""
        interfaces = psutil.net_if_addrs().values()
        here = {address.address for addresses in interfaces for address in addresses}
        for proxy in self._cluster.proxies():
            loopback = proxy.node_ip.startswith("127.") or proxy.node_ip == "::1"
            if proxy.healthy and (loopback or proxy.node_ip in here):
                return proxy
        raise RunFailed("no node on this host has a healthy proxy")

    def _timing(self) -> Timing:
        suite = self.suite
        return Timing(min(0.5, suite.warmup), suite.warmup, suite.windows, suite.window_s)

    def _add_costs(self, trial: Trial) -> Trial:
        """Add what the replicas cost to what they served."""
        replicas, each_mb = by_role(trial.usage).get("replica"), None
        if replicas is not None and replicas.memory_mb is not None:
            each_mb = replicas.memory_mb / replicas.processes
        costs: Mapping[str, tuple[str, float | None]] = {
            "deploy_time": ("s", self._put.seconds),
            "memory_per_replica": ("MB", each_mb),
            "cpu_per_request": ("us", cpu_us_a_request(trial.usage, trial)),
            "controller_loop": ("ms", self._cluster.controller().get("control_loop_ms")),
        }
        return add_values(trial, costs)


SERVING: Final = (
    *("replica", "proxy", "fallback_proxy", "haproxy", "haproxy_manager", "controller"),
    *("raylet", "gcs", "dashboard_agent", "runtime_env_agent"),
)
"""Roles of the processes whose CPU per request costs; the load's own are not among them."""


def nodes_trial(
    planned: PlannedTrial, launch: str, started_at: str, result: LoadResult, total_s: float
) -> Trial:
    """Return the record of a load from nodes; requests of lost ones count as failed."""
    trial, counts = trial_of(planned, launch, started_at, result, total_s), result.measured
    lost = sum(node.failed.get(NODE, 0) for node in result.nodes if node.lost)
    if not lost:
        return trial
    failed = {**counts.failed, NODE: lost}
    return replace(trial, counts=replace(counts, sent=counts.sent + lost, failed=failed))


def add_values(trial: Trial, values: Mapping[str, tuple[str, float | None]]) -> Trial:
    """Add metrics of which less is better: name -> unit and value. None makes no metric."""
    further = {
        name: Metric(unit, "lower", windows=(value,))
        for name, (unit, value) in values.items()
        if value is not None
    }
    return replace(trial, metrics={**trial.metrics, **further})


def cpu_us_a_request(usage: TrialUsage, trial: Trial) -> float | None:
    """Compute the CPU of Ray's and Serve's processes per completed request, microseconds.

    None where it was not sampled. The load's own is left out.
    """
    uses = by_role(usage).items()
    shares = [use.cpu_percent for role, use in uses if role.partition(" ")[0] in SERVING]
    seconds = trial.seconds.measured
    if not shares or not trial.completed_in_windows or seconds <= 0:
        return None
    return sum(shares) / 100.0 * seconds / trial.completed_in_windows * 1e6
