"""Where a load comes from: processes of this host, or actors on the nodes of a Ray cluster.

Both have one interface and give a LoadResult; a load from nodes adds the share of each node. Rule:
a lost node is a failed worker of the result, and the others continue. nodes/ runs the loads; this
module splits a load into one for each node.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from msgspec import structs

from serve_bench.core.errors import BadInput
from serve_bench.core.load_result import LoadResult, WorkerFailure
from serve_bench.core.load_spec import Load, Stage, Timing
from serve_bench.core.load_spec import LoadOn as LoadOn
from serve_bench.core.nodes import Node
from serve_bench.core.request_spec import SpecError
from serve_bench.load.driver import Drive, OnProgress, drive_load
from serve_bench.load.failures import LoadInterrupted
from serve_bench.load.merge import losses
from serve_bench.load.request_log import RequestLog
from serve_bench.load.traces import TraceLog
from serve_bench.load.workers import KEPT, divide, end_workers
from serve_bench.nodes.crew import NodeCrew, NodesFailed
from serve_bench.serving.launch_spec import reachable

# One load split into several that add up to it, one for each node. Pure.
#
# Rule: counts (connections, requests, rates) are split so that they add up; settings of a single
# request stay. Constant arrivals of several nodes are not evenly spaced together, since the nodes
# share no clock. Poisson arrivals add up to Poisson arrivals.


def parts_of(load: Load, nodes: int) -> tuple[Load, ...]:
    """Split a load among this many nodes, or among fewer if it has fewer connections.

    Raises SpecError without a node.
    """
    if nodes < 1:
        raise SpecError(f"a load needs 1 or more nodes, got {nodes}")
    parts = min(nodes, load.connections)
    connections = divide(load.connections, parts)
    limits = None if load.max_connections is None else divide(load.max_connections, parts)
    counts = None if load.count is None else divide(load.count, parts)
    processes = [max(1, count) for count in divide(load.processes or 1, parts)]
    return tuple(
        replace(
            load,
            connections=connections[part],
            max_connections=None if limits is None else limits[part],
            count=None if counts is None else counts[part],
            processes=None if load.processes is None else min(connections[part], processes[part]),
            rate=None if load.rate is None else load.rate / parts,
            stages=tuple(Stage(stage.rate / parts, stage.duration_s) for stage in load.stages),
            seed=load.seed + part,
        )
        for part in range(parts)
    )


RAY: Final = "ray"
"""`--load-on` for the measured cluster, or without one for that which Ray finds."""

MOST_NODES: Final = 10_000


class Joinable(Protocol):
    """A cluster that another driver can join."""

    @property
    def gcs_address(self) -> str: ...
    @property
    def joining(self) -> Mapping[str, str]: ...


class LocalLoads:
    """Loads from processes of this host."""

    def drive(self, cluster: Joinable | None = None) -> Drive:
        """Return the driver of a load, which keeps its workers for the next one."""
        return partial(drive_load, keeps=True)

    def close(self) -> None:
        """End the workers that were kept between loads."""
        end_workers(KEPT)


@dataclass
class NodeLoads:
    """Loads from the nodes of a Ray cluster, whose actors stay up until `close`."""

    load_on: LoadOn
    run_id: str
    log: Path  # for the output of Ray
    _crew: NodeCrew | None = field(default=None)

    def drive(self, cluster: Joinable | None = None) -> Drive:
        """Return the driver of a load. Raises LoadError when the nodes cannot be reached."""
        return partial(self._drive, self.crew(cluster))

    def _drive(
        self,
        crew: NodeCrew,
        load: Load,
        timing: Timing,
        *,
        on_progress: OnProgress | None = None,
        mark: Mapping[str, str] | None = None,
        log: RequestLog | None = None,
        traces: TraceLog | None = None,
    ) -> LoadResult:
        """Drive a load that is split over nodes, as `drive_load` does from this process."""
        if log is not None or traces is not None:
            raise SpecError("a log of the requests needs a load from this host")
        loads = self._split(load, crew.look())
        # No node knows how long the answers of the others take.
        timing = replace(timing, stretched_s=None)
        try:
            return with_losses(crew.drive(loads, timing, on_progress=on_progress))
        except LoadInterrupted as early:
            raise LoadInterrupted(with_losses(early.result)) from early

    def _split(self, load: Load, nodes: Iterable[Node]) -> dict[str, Load]:
        """Split a load among the nodes. Raises NodesFailed when fewer are alive than requested."""
        alive = sorted(node.node_id for node in nodes)
        wanted = len(alive) if self.load_on.nodes is None else self.load_on.nodes
        if not alive or wanted > len(alive):
            how = f"{len(alive)} node{'' if len(alive) == 1 else 's'}"
            raise NodesFailed(f"--load-nodes {wanted}: the cluster has {how} alive")
        return dict(zip(alive, parts_of(load, wanted), strict=False))

    @property
    def up(self) -> bool:
        """Whether the actors are there."""
        return self._crew is not None

    def crew(self, cluster: Joinable | None = None) -> NodeCrew:
        """Return the actors, started by the first call. Raises LoadError without reachable nodes.

        `cluster`: the measured one; another is joined as the shell would.
        """
        if self._crew is None:
            env = dict(os.environ)
            address = self.load_on.address
            if cluster is not None and address in (None, cluster.gcs_address):
                if address is None:
                    env = {k: v for k, v in env.items() if not k.startswith("RAY_")}
                address, env = cluster.gcs_address, {**env, **cluster.joining}
            crew = NodeCrew(address or "auto", self.run_id, self.log, env)
            crew.start()
            self._crew = crew
        return self._crew

    def close(self) -> None:
        """End the actors."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()


def with_losses(result: LoadResult) -> LoadResult:
    """Add to a result of nodes what each completed, in words, and lost nodes as failures."""
    lost = tuple(
        WorkerFailure(0, node.lost, node.last_heard.completed, node=f"{node.hostname} ({node.ip})")
        for node in result.nodes
        if node.lost is not None and node.last_heard is not None
    )
    number = len(result.nodes)
    count = f"load from {number} node{'' if number == 1 else 's'} of a Ray cluster"
    shares = ", ".join(f"{node.ip} {node.completed:,}" for node in result.nodes)
    notes = (*result.notes, f"{count}; completed by each: {shares}", *losses(lost))
    return structs.replace(result, failures=(*result.failures, *lost), notes=notes)


def read_load_on(text: str | None, nodes: int | None) -> LoadOn | None:
    """Read the two flags; None: a load from this host. Raises BadInput."""
    if text is None:
        if nodes is not None:
            raise BadInput("--load-nodes: goes with --load-on ray")
        return None
    if nodes is not None and not 1 <= nodes <= MOST_NODES:
        raise BadInput(f"--load-nodes: {nodes} is not allowed; it takes 1 to {MOST_NODES:,}")
    if text == RAY:
        return LoadOn(None, nodes)
    if ":" not in text:
        takes = "it takes ray, or HOST:PORT of a Ray cluster"
        raise BadInput(f"--load-on: {text!r} is not allowed; {takes}")
    return LoadOn(reachable(text, "--load-on"), nodes)
