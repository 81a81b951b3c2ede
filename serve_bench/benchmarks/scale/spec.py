"""What `serve-bench scale` is asked to measure: the workload, its sizes, and the load on it.

Pure. Rule: the defaults are those of Ray's nightly benchmarks; each workload has only the sizes
that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.failed_requests import INVALID_SHARE, failures_of
from serve_bench.core.figures import counted
from serve_bench.core.forms import Time
from serve_bench.core.load_spec import HANDLE, MAX_CONNECTIONS, MAX_DURATION_S, MAX_TIMEOUT_S
from serve_bench.core.plan import LaunchPlan, plan_launches, without
from serve_bench.core.result import JsonObject, PlannedTrial, Trial, VariantUsed
from serve_bench.core.slo import read_slo
from serve_bench.core.spec import Opt, Spec
from serve_bench.core.traffic import Row
from serve_bench.spec.suite import variants_of

AS_IT_IS: Final = "as-it-is"
"""The variant of a cluster that was there already: its flags are its own."""

#: Seconds to start a cluster, and for each replica, on a host with 2 cores: for the estimate of
#: time left alone (1, 8, 16 and 32 replicas were deployed in 2.1, 7.1, 11.3 and 23.5 s).
START_S: Final = 8.0
EACH_S: Final = 0.8
REMOVE_S: Final = 4.0

Size: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]
"""Nodes of a fanout or a chain: each is a deployment with its own process."""

ReplicasOption: TypeAlias = Annotated[
    tuple[Annotated[int, Meta(ge=1, le=100_000)], ...],
    Opt("Replicas of each deployment; curve takes several"),
]
DurationOption: TypeAlias = Annotated[
    Annotated[Time, Meta(ge=1, le=MAX_DURATION_S)],
    Opt("Measured time", spellings=("-d", "--duration")),
]

WarmupOption: TypeAlias = Annotated[
    Annotated[Time, Meta(ge=0, le=3600)], Opt("Longest warm-up; it ends once the rate is steady")
]


@dataclass(frozen=True)
class ScaleApp:
    """An application of a workload, as the cluster gets it."""

    name: str
    route_prefix: str
    builder: str  # a function of serving/apps/graph.py
    args: JsonObject  # what it gets
    replicas: Mapping[str, int]  # by deployment
    ready_body: str  # answer to every request, as text; by a handle, as the number


@dataclass(frozen=True, kw_only=True)
class ScaleSpec(Spec):
    """A run of a workload. `duration` is cut into windows of about 1 s."""

    table: ClassVar[str] = "scale"
    workload: ClassVar[str]
    size_option: ClassVar[str] = "replicas"
    """What is made smaller where memory does not suffice."""

    sizes: ClassVar[tuple[str, ...]] = ()
    """What its cells hold, besides the replicas."""

    replicas: ReplicasOption = (1,)
    max_ongoing_requests: Annotated[
        int, Meta(ge=1, le=1_000_000), Opt("Requests that one replica takes at once")
    ] = 100
    duration: DurationOption = 10.0
    warmup: WarmupOption = 5.0
    timeout: Annotated[
        Annotated[Time, Meta(ge=0.001, le=MAX_TIMEOUT_S)], Opt("Longest time of a request")
    ] = 30.0
    nodes: Annotated[int, Meta(ge=1, le=64), Opt("Raylets to start on this machine")] = 1
    launches: Annotated[
        int, Meta(ge=1, le=1000), Opt("Launches: fresh clusters of each variant")
    ] = 1
    seed: Annotated[int, Meta(ge=0, le=2**31), Opt("Seed of everything that is drawn")] = 1
    variants: tuple[VariantUsed, ...] = ()
    address: str | None = None  # of a cluster that is there already, with its own flags
    sample: bool = True
    slo: str | None = None

    @property
    def windows(self) -> int:
        return max(1, round(self.duration))

    @property
    def window_s(self) -> float:
        return self.duration / self.windows

    def apps(self, replicas: int) -> tuple[ScaleApp, ...]:
        """Return the applications with `replicas` of each deployment."""
        raise NotImplementedError

    def rows(self) -> tuple[Row, ...]:
        """Return the rows of a size, those of one node: `on_nodes` has them of several."""
        raise NotImplementedError

    def processes(self, replicas: int) -> int:
        """Count the replicas of all deployments."""
        return sum(sum(app.replicas.values()) for app in self.apps(replicas))

    def cell(self, replicas: int) -> dict[str, Any]:
        """Return what a size sets, as it is recorded."""
        return {
            "workload": self.workload,
            "num_replicas": replicas,
            "max_ongoing_requests": self.max_ongoing_requests,
            **{name: getattr(self, name) for name in self.sizes},
        }

    def plan(self, done: Iterable[str] = ()) -> tuple[LaunchPlan, ...]:
        """Plan the launches without the `done` keys; variants alternate within a round."""
        cells = [(cell, cell, self.rows()) for cell in map(self.cell, self.replicas)]
        about = (self.launches, self.variants, cells, self.seed)
        return without(plan_launches(*about, lambda row: row.label.replace(",", "")), done)

    def expected_s(self, launches: Sequence[LaunchPlan]) -> float:
        """Estimate how long these launches take."""
        total = 0.0
        for launch in launches:
            total += START_S + self.nodes if self.address is None else 0.0
            for cell, rows in launch.cells:
                total += EACH_S * self.processes(int(cell["num_replicas"])) + REMOVE_S
                total += len(rows) * (self.warmup + self.duration)
        return total

    def to_json(self) -> dict[str, Any]:
        return {"name": f"scale_{self.workload}", "workload": self.workload, **super().to_json()}

    def checked(self, places: Mapping[str, str]) -> Self:
        if len(self.replicas) > 1 and self.workload != "curve":
            raise BadInput(f"{places['replicas']}: takes one number; several are for scale curve")
        return self

    def _app(
        self,
        builder: str,
        deployments: Iterable[str],
        replicas: int,
        ready_body: str,
        number: int | None = None,
        **args: Any,
    ) -> ScaleApp:
        """Make an application, of several that with this `number`; `args`: of its builder."""
        name = f"serve_bench_{self.workload}" + ("" if number is None else f"_{number}")
        args |= {"num_replicas": replicas, "max_ongoing_requests": self.max_ongoing_requests}
        counts = dict.fromkeys(deployments, replicas)
        return ScaleApp(name, f"/{name}", builder, args, counts, ready_body)


@dataclass(frozen=True, kw_only=True)
class LoadedSpec(ScaleSpec):
    """Workloads that are loaded from every node."""

    connections: Annotated[
        int,
        Meta(ge=1, le=MAX_CONNECTIONS),
        Opt("Connections of the load from each node", spellings=("-c", "--connections")),
    ] = 10

    def rows(self) -> tuple[Row, ...]:
        label = f"{counted(self.connections, 'connection')} a node"
        return (Row(label, "raw", self.connections, 1),)


@dataclass(frozen=True, kw_only=True)
class SingleSpec(LoadedSpec):
    """One deployment of many replicas, loaded from every node."""

    workload: ClassVar = "single"
    sizes: ClassVar = ("max_batch_size",)

    replicas: ReplicasOption = (1000,)
    duration: DurationOption = 600.0
    max_batch_size: Annotated[int, Meta(ge=1, le=100_000), Opt("Largest batch of serve.batch")] = 16
    batch_wait_timeout_s: Annotated[
        float, Meta(ge=0.0, le=60.0), Opt("How long serve.batch waits to fill a batch", "SECONDS")
    ] = 0.01

    def apps(self, replicas: int) -> tuple[ScaleApp, ...]:
        size, wait_s = self.max_batch_size, self.batch_wait_timeout_s
        batches = {"max_batch_size": size, "batch_wait_timeout_s": wait_s}
        return (self._app("single", ["Echo"], replicas, "hi", None, **batches),)


@dataclass(frozen=True, kw_only=True)
class CurveSpec(SingleSpec):
    """How cost and requests/s grow with the number of replicas."""

    workload: ClassVar = "curve"

    replicas: ReplicasOption = (1, 2, 4, 8, 16, 32)
    duration: DurationOption = 10.0


@dataclass(frozen=True, kw_only=True)
class MultiSpec(LoadedSpec):
    """Several deployments; each request hops between them."""

    workload: ClassVar = "multi"
    sizes: ClassVar = ("deployments", "hops")

    replicas: ReplicasOption = (100,)
    duration: DurationOption = 600.0
    deployments: Annotated[Size, Opt("Number of applications, each with a deployment")] = 10
    hops: Annotated[int, Meta(ge=0, le=100), Opt("Nested calls of a request")] = 5

    def apps(self, replicas: int) -> tuple[ScaleApp, ...]:
        apps = [
            self._app("multi", ["Hop"], replicas, "hi", app, seed=self.seed + app, hops=self.hops)
            for app in range(self.deployments)
        ]
        names = [app.name for app in apps]
        return tuple(replace(app, args={**app.args, "apps": names}) for app in apps)


@dataclass(frozen=True, kw_only=True)
class GraphSpec(ScaleSpec):
    """Workloads of composed deployments, with clients instead of a load from every node."""

    warmup: WarmupOption = 1.0
    clients: Annotated[
        int, Meta(ge=1, le=10_000), Opt("Clients at once, of the handle and of HTTP")
    ] = 4
    requests: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        Opt("Requests of each client for the latency, one after the other"),
    ] = 20

    @property
    def size(self) -> int:
        """Nodes of the graph, each a deployment."""
        return int(getattr(self, self.size_option))

    def rows(self) -> tuple[Row, ...]:
        clients = counted(self.clients, "client")
        ends = {"throughput": None, "latency": self.requests}
        return tuple(
            Row(f"{clients}, {way}, {what}", client, self.clients, requests_each=ends[what])
            for way, client in (("handle", HANDLE), ("HTTP", "raw"))
            for what in ends
        )

    def _graph(self, replicas: int, answer: int, *others: str) -> tuple[ScaleApp, ...]:
        """Make the application of a graph. `others`: further deployments."""
        names = [*(f"Node{number}" for number in range(self.size)), *others]
        return (self._app(self.workload, names, replicas, str(answer), size=self.size),)


@dataclass(frozen=True, kw_only=True)
class EnsembleSpec(GraphSpec):
    """A wide graph: all nodes at once, their answers added up."""

    workload: ClassVar = "ensemble"
    size_option: ClassVar = "fanout"
    sizes: ClassVar = ("fanout",)

    fanout: Annotated[Size, Opt("Nodes of the ensemble, each a deployment")] = 10

    def apps(self, replicas: int) -> tuple[ScaleApp, ...]:
        return self._graph(replicas, self.size * (self.size - 1) // 2, "Combiner")


@dataclass(frozen=True, kw_only=True)
class ChainSpec(GraphSpec):
    """A long graph: each node adds 1 and passes on."""

    workload: ClassVar = "chain"
    size_option: ClassVar = "length"
    sizes: ClassVar = ("length",)

    length: Annotated[Size, Opt("Nodes of the chain, each a deployment")] = 10

    def apps(self, replicas: int) -> tuple[ScaleApp, ...]:
        return self._graph(replicas, self.size)


WORKLOADS: Final[Mapping[str, type[ScaleSpec]]] = {
    kind.workload: kind for kind in (SingleSpec, MultiSpec, EnsembleSpec, ChainSpec, CurveSpec)
}


GRAPHS: Final = tuple(name for name, kind in WORKLOADS.items() if issubclass(kind, GraphSpec))


def read_scale(
    workload: str,
    content: Content,
    flags: Mapping[str, str],
    *,
    quick: bool = False,
    address: str | None = None,
    sample: bool = True,
) -> ScaleSpec:
    """Read what a workload is asked for, by a suite file and flags over it. Raises BadInput."""
    kind, file = WORKLOADS[workload], content.file
    content.check_keys(("name", "variant", "variants", "env", "scale", "quick", "slo"))
    if "scale" not in content:
        raise BadInput(f"{file}: is no suite of serve-bench scale: it has no table scale")
    named = content.get("scale.workload")
    if named not in list(WORKLOADS):  # it may be no text
        raise BadInput(f"{content.where('scale.workload')}: takes {', '.join(WORKLOADS)}")
    if named != workload:
        raise BadInput(f"{file}: is a suite of serve-bench scale {named}, not {workload}")
    for table in ("scale", "quick"):
        content.check_keys(("workload", *kind.options()), table)
    if quick:
        content = content.over("scale", content.table("quick"), f"{file}: quick")
    used = variants_of(content)
    if address is not None:
        if "nodes" in flags:
            raise BadInput("--nodes: starts raylets here; it does not go with --address")
        if any(key.partition(".")[0] in ("variant", "env") for key in content.places):
            its = "a cluster that is there already has its own flags"
            raise BadInput(f"--variant and --env do not go with --address: {its}")
        flags, used = {**flags, "nodes": "1"}, (VariantUsed(AS_IT_IS),)
    slo = content.text("slo", "")
    return kind.read(
        kind.add_flags(content, flags),
        variants=used,
        address=address,
        sample=sample,
        slo=read_slo(slo, content.where("slo")).source if slo else None,
    )


def stored_scale(data: Mapping[str, Any]) -> ScaleSpec:
    """Read what a stored run was asked for. Raises BadInput."""
    if (kind := WORKLOADS.get(str(data.get("workload")))) is None:
        raise BadInput("the stored suite cannot be resumed: suite.workload is unknown")
    return kind.stored(data)


def on_nodes(planned: PlannedTrial, nodes: int) -> PlannedTrial:
    """Return the same trial, once it is known how many nodes load."""
    row = planned.row
    return replace(planned, row=replace(row, connections=row.connections * nodes, processes=nodes))


def why_invalid(trial: Trial) -> str | None:
    """Return why a trial is invalid: too many requests failed, or none was answered; else None."""
    failed = trial.counts.failed_total
    if not (requests := trial.counts.completed + failed):
        return "no request was answered"
    if (share := failed / requests) <= INVALID_SHARE:
        return None
    return f"{100 * share:.1f} % of the requests failed ({failures_of([trial])})"
