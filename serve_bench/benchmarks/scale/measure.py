"""The rows of a size of `serve-bench scale`: the load is driven, and becomes the record of a trial.

Rule: where a load comes from, what it is asked with and how it is recorded stand here; how nodes
load is nodes/, how a handle is called the cluster's program.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from serve_bench.benchmarks.scale.cluster import (
    AttachedCluster,
    HandleLoad,
    NodeProxy,
    OwnCluster,
    Put,
)
from serve_bench.benchmarks.scale.request import GRAPHS, ScaleCell, ScaleSuite, apps_of, on_nodes
from serve_bench.benchmarks.scale.trial import (
    cpu_us_a_request,
    external_trial,
    handle_trial,
    judged,
    nodes_trial,
    why_invalid,
    with_values,
)
from serve_bench.core.errors import RunFailed
from serve_bench.core.load_result import LoadResult, Warmup
from serve_bench.core.load_result import Progress as LoadProgress
from serve_bench.core.load_spec import HANDLE, Load, Timing
from serve_bench.core.plan import trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.load import LoadError, LoadInterrupted, drive_load
from serve_bench.nodes import NodeCrew, NodesInterrupted, NodesResult
from serve_bench.observing.host import pss_bytes
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler, sampler_of
from serve_bench.runner.runner import Fault, Journal, Loaded, Part
from serve_bench.serving.strays import marks
from serve_bench.store import StoreError, now_iso

DRAIN_S = 5.0


@dataclass
class Rows:
    """Measures rows on one cluster, whose launch is `part`. `folder`: of the run."""

    suite: ScaleSuite
    cluster: OwnCluster | AttachedCluster
    folder: Path
    run_id: str
    part: Part
    journal: Journal
    _crew: NodeCrew | None = None
    _faults: list[Fault] = field(default_factory=list)  # of the row
    _ended: BaseException | None = field(default=None)  # what ended the row early

    def measure(self, cell: ScaleCell, put: Put, planned: PlannedTrial) -> Loaded:
        """One row."""
        self._faults, self._ended = [], None
        trial = self._trial(cell, put, planned)
        trials = () if trial is None else (trial,)
        return Loaded(trials, tuple(self._faults), self._ended)

    def say(
        self,
        cell: ScaleCell,
        phase: str,
        planned: PlannedTrial | None = None,
        rate: float | None = None,
    ) -> None:
        """What goes on, told with the size where there are several."""
        if len(self.suite.replicas) > 1:
            phase = f"{cell.replicas:,} replicas: {phase}"
        self.journal.say(phase, row=None if planned is None else planned.row, rate=rate)

    def _note(self, what: str, message: str, planned: PlannedTrial) -> None:
        self._faults.append(Fault(what, message, self.part, planned))

    def _trial(self, cell: ScaleCell, put: Put, planned: PlannedTrial) -> Trial | None:
        self.say(cell, "connect", planned)
        try:
            if planned.row.client == HANDLE:
                trial = self._by_handle(cell, planned)
            elif self.suite.workload in GRAPHS:
                trial = self._by_http(cell, planned)
            else:
                trial = self._from_nodes(cell, put, planned)
        except (LoadError, RunFailed) as error:
            self._note("trial", str(error), planned)
            why = self.cluster.broken() if self.cluster.alive() else "the cluster ended"
            if why is not None:
                self._ended = RunFailed(f"{why}: it can do nothing more")
            return None
        if isinstance(self.cluster, OwnCluster):
            for one in self.cluster.casualties():
                message = f"{one} during the trial: the figures are of a broken cluster"
                self._note("trial", message, planned)
            if (why := self.cluster.broken()) is not None and self._ended is None:
                self._ended = RunFailed(f"{why}: the cluster can do nothing more")
        trial = judged(trial)
        if (told := why_invalid(trial)) is not None:
            self._note("trial", told, planned)
        return trial

    def close(self) -> None:
        """Ends the load actors."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    # -- the three kinds of load --------------------------------------------------------------

    def _by_handle(self, cell: ScaleCell, planned: PlannedTrial) -> Trial:
        row, suite = planned.row, self.suite
        app = apps_of(suite, cell.replicas)[0]
        started_at, began = now_iso(), time.monotonic()
        with self._sampling() as sampler:
            self.say(cell, "measure through the handle", planned)
            told = self.cluster.handle_load(
                HandleLoad(
                    app.name,
                    clients=row.connections,
                    expect=app.answer,
                    warmup_s=suite.warmup_s,
                    timeout_s=suite.timeout_s,
                    windows=0 if row.requests_each else suite.windows,
                    window_s=suite.window_s,
                    requests_each=row.requests_each,
                )
            )
            ended_ns = time.time_ns()
        trial = handle_trial(
            planned,
            self.part.number,
            started_at,
            told,
            suite.warmup_s,
            time.monotonic() - began,
        )
        began_ns = ended_ns - int(1e9 * (told.seconds + told.drained_s))
        return self._with_usage(trial, sampler, began_ns)

    def _by_http(self, cell: ScaleCell, planned: PlannedTrial) -> Trial:
        row, suite = planned.row, self.suite
        app = apps_of(suite, cell.replicas)[0]
        proxy = self._proxy_here()
        load = Load(
            Request(
                url=proxy.url + app.route,
                expect_status=(200,),
                expect_body=app.answer.encode(),
            ),
            connections=row.connections,
            each=row.requests_each,
            timeout_s=suite.timeout_s,
        )
        started_at, began = now_iso(), time.monotonic()
        with self._sampling() as sampler:
            try:
                result = self._driven(cell, planned, load)
            except LoadInterrupted as early:
                result, self._ended = early.result, early
                self._note("trial", "interrupted", planned)
        total_s = time.monotonic() - began
        trial = trial_of(planned, self.part.number, started_at, result, total_s)
        if self._ended is not None:
            trial = trial.flagged("interrupted")
        return self._with_usage(trial, sampler, result.started_at_ns)

    def _driven(self, cell: ScaleCell, planned: PlannedTrial, load: Load) -> LoadResult:
        """A load from this process. A latency row is preceded by a warm-up of its own, as the
        clients of a handle have."""

        def progress(now: LoadProgress) -> None:
            self.say(cell, now.phase_text, planned, now.rate)

        mark = marks(self.run_id)
        if load.each is not None:
            warm = replace(load, each=None)
            warm_s = max(0.05, self.suite.warmup_s)
            drive_load(warm, Timing(0.0, 0.0, 1, warm_s, DRAIN_S), on_progress=progress, mark=mark)
            most_s = self.suite.timeout_s * load.each
            return drive_load(load, Timing(0.0, 0.0, 1, most_s), on_progress=progress, mark=mark)
        return drive_load(load, self._timing(), on_progress=progress, mark=mark)

    def _from_nodes(self, cell: ScaleCell, put: Put, planned: PlannedTrial) -> Trial:
        crew = self._nodes(cell)
        loads = self._loads(crew, cell)
        planned = on_nodes(planned, len(loads))
        started_at, began, suite = now_iso(), time.monotonic(), self.suite
        attached = suite.address is not None

        def progress(now: LoadProgress) -> None:
            self.say(cell, now.phase_text, planned, now.rate)

        warmup = None
        if suite.client == "wrk":  # it has no warm-up of its own
            warm = {node: replace(load, client="raw") for node, load in loads.items()}
            least = Timing(self._timing().warmup_min_s, suite.warmup_s, 1, 0.05, DRAIN_S)
            before = crew.drive(warm, least, on_progress=progress)
            whole = before.combined(next(iter(warm.values())))
            warmup = None if whole is None else whole.warmup
            self.say(cell, "measure by wrk", planned)
        with self._sampling() as sampler:
            try:
                result = crew.drive(
                    loads,
                    self._timing(),
                    on_progress=progress,
                    sample=attached and suite.sample,
                )
            except NodesInterrupted as early:
                result, self._ended = early.result, early
                self._note("trial", "interrupted", planned)
        total_s = time.monotonic() - began
        trial, at_ns = self._nodes_trial(crew, planned, started_at, loads, result, warmup, total_s)
        for node in trial.client["nodes"]:
            if node.get("lost"):
                who = node.get("hostname") or node.get("ip") or node["node"]
                self._note("node", f"node {who}: {node['lost']}", planned)
        trial = self._with_usage(trial, sampler, at_ns)
        if suite.workload == "curve":
            trial = self._with_costs(trial, put)
        return trial

    def _nodes_trial(
        self,
        crew: NodeCrew,
        planned: PlannedTrial,
        started_at: str,
        loads: Mapping[str, Load],
        result: NodesResult,
        warmup: Warmup | None,
        total_s: float,
    ) -> tuple[Trial, int]:
        """The record, and when its measured part began (ns since the epoch)."""
        nodes, at_ns = result.node_facts(crew.nodes, loads), min(result.began_at_ns.values())
        if planned.row.client == "wrk":
            trial = external_trial(
                planned,
                self.part.number,
                started_at,
                nodes,
                warmup or Warmup(0.0, False, 0),
                total_s,
            )
        else:
            load = replace(next(iter(loads.values())), connections=planned.row.connections)
            combined = result.combined(load)
            assert combined is not None, "where all nodes are lost, the crew has raised"
            trial = nodes_trial(planned, self.part.number, started_at, combined, nodes, total_s)
        trial = replace(trial, client={**trial.client, "skew_s": result.skew_s})
        if self._ended is not None:
            trial = trial.flagged("interrupted")
        return trial, at_ns

    # -- what they need -----------------------------------------------------------------------

    def _nodes(self, cell: ScaleCell) -> NodeCrew:
        if self._crew is None:
            self.say(cell, "starting a load actor on each node")
            log = self.folder / f"logs/nodes-{self.part.number}.log"
            address = self.cluster.address
            env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
            if self.suite.address is not None:  # it is joined as the shell would
                env = dict(os.environ)
            self._crew = NodeCrew(address.gcs, self.run_id, log, {**env, **address.environment})
            self._crew.start()
        return self._crew

    def _loads(self, crew: NodeCrew, cell: ScaleCell) -> dict[str, Load]:
        """The load of each node with a healthy proxy of its own. RunFailed without any."""
        suite = self.suite
        apps = apps_of(suite, cell.replicas)
        draw = random.Random(f"{suite.seed} {self.part.number} {cell.replicas}")
        here = {node.node_id for node in crew.nodes if node.alive}
        loads: dict[str, Load] = {}
        proxies = sorted(self.cluster.proxies(), key=lambda one: one.node_id)
        for proxy in proxies:
            if not proxy.healthy or proxy.node_id not in here:
                continue
            if loads.keys() & set(proxy.shared_with):
                continue  # it cannot be asked by itself: the kernel deals connections out to all
            app = draw.choice(apps)
            request = Request(
                url=proxy.url + app.route,
                expect_status=() if suite.client == "wrk" else (200,),
                expect_body=None if suite.client == "wrk" else app.answer.encode(),
            )
            loads[proxy.node_id] = Load(
                request,
                client=suite.client,
                connections=suite.connections,
                processes=suite.connections if suite.client == "wrk" else None,
                timeout_s=suite.timeout_s,
                connection_rates=suite.client == "raw",
            )
        if not loads:
            why = "; ".join(f"{one.node_ip}: {one.status} {one.why or ''}" for one in proxies)
            raise RunFailed(f"no node has a healthy proxy of its own: {why or 'no proxy at all'}")
        return loads

    def _proxy_here(self) -> NodeProxy:
        """A healthy proxy of a node that is this host. RunFailed without one."""
        every = psutil.net_if_addrs().values()
        here = {address.address for one in every for address in one}
        for proxy in self.cluster.proxies():
            loopback = proxy.node_ip.startswith("127.") or proxy.node_ip == "::1"
            if proxy.healthy and (loopback or proxy.node_ip in here):
                return proxy
        raise RunFailed("no node on this host has a healthy proxy")

    def _timing(self) -> Timing:
        suite = self.suite
        least_s = min(0.5, suite.warmup_s)
        return Timing(least_s, suite.warmup_s, suite.windows, suite.window_s)

    def _sampling(self) -> Any:
        """A Sampler on the processes of a cluster of ours; of another, its nodes sample."""
        if not self.suite.sample or self.suite.address is not None:
            return nullcontext()
        return sampler_of(self.cluster.processes())

    def _with_usage(self, trial: Trial, sampler: Sampler | None, began_ns: int) -> Trial:
        if sampler is None:
            return trial
        usage = sampler.summary(began_ns, trial.seconds["measured"])
        try:
            keep_samples(self.folder, sampler.samples(trial.key))
        except StoreError as error:  # the figures are worth more than the samples beside them
            self._ended = self._ended or error
        return replace(trial, usage=usage)

    def _with_costs(self, trial: Trial, put: Put) -> Trial:
        """What so many replicas cost, beside what they served."""
        pids = [one.pid for one in put.replicas]
        memory = [pss_bytes(pid) for pid in pids] if self.suite.address is None else []
        known = [one for one in memory if one is not None]
        each = sum(known) / len(known) / 1e6 if known and len(known) == len(memory) else None
        controller = self.cluster.controller()
        return with_values(
            trial,
            {
                "deploy_time": ("s", put.seconds),
                "memory_per_replica": ("MB", each),
                "cpu_per_request": ("us", cpu_us_a_request(trial.usage, trial)),
                "controller_loop": ("ms", controller.get("control_loop_ms")),
            },
        )
