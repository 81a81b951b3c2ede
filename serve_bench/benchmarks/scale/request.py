"""What `serve-bench scale` is asked to measure: the workload, its sizes, and the load on it.

Pure. Rule: the defaults are those of Ray's nightly benchmarks; each workload takes only the sizes
that it has. Every error is one line that names the flag, or the file and key, and what it takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal

from serve_bench.benchmarks.scale import Workload
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import HANDLE
from serve_bench.core.result import JsonObject, PlannedTrial, Row, VariantUsed, trial_key

WORKLOADS: Final = ("single", "multi", "ensemble", "chain", "curve")

GRAPHS: Final = ("ensemble", "chain")
"""Workloads of composed deployments, with clients instead of a load from every node."""

AS_IT_IS: Final = "as-it-is"
"""The variant of a cluster that was there already: its flags are its own."""

INVALID_SHARE: Final = 0.01
"""A result is invalid when a larger share of its requests failed or timed out: the published run of
multi consists of timeouts and prints zeros."""

MOST_REPLICAS: Final = 100_000
MOST_SIZE: Final = 1000
"""Of a fanout or a chain: each node is a deployment with a process of its own."""

#: Seconds to start a cluster, and for each replica, on a host with 2 cores: for the estimate of
#: time left alone (1, 8, 16 and 32 replicas were deployed in 2.1, 7.1, 11.3 and 23.5 s).
START_S: Final = 8.0
EACH_S: Final = 0.8
REMOVE_S: Final = 4.0


@dataclass(frozen=True)
class ScaleSuite:
    """A run. What a workload does not have is kept at its default and passed over.

    `replicas`: of each deployment; several for `curve` alone. `size`: nodes of an ensemble (its
    fanout) or of a chain (its length). `connections`: of the load from one node; `clients`: of a
    graph. `windows` of `window_s` make the measured part; `requests_each`: of each client of a
    graph, one after the other, for the latency. `nodes`: raylets that are started on this machine.
    `address`: of a cluster that is there already, whose flags are its own.
    """

    workload: Workload
    variants: tuple[VariantUsed, ...]
    replicas: tuple[int, ...] = (1000,)
    deployments: int = 10
    hops: int = 5
    size: int = 10
    max_batch_size: int = 16
    batch_wait_timeout_s: float = 0.01
    max_concurrent_queries: int = 100
    connections: int = 10
    clients: int = 4
    windows: int = 10
    window_s: float = 1.0
    warmup_s: float = 5.0
    requests_each: int = 20
    timeout_s: float = 30.0
    client: Literal["raw", "wrk"] = "raw"
    launches: int = 1
    nodes: int = 1
    address: str | None = None
    seed: int = 1
    sample: bool = True

    @property
    def measured_s(self) -> float:
        """Seconds of all windows."""
        return self.windows * self.window_s

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return {"name": f"scale_{self.workload}", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScaleSuite:
        """The reverse, for going on with a stored run. Raises BadInput."""
        try:
            given = {one.name: data[one.name] for one in fields(cls)}
            given["replicas"] = tuple(given["replicas"])
            given["variants"] = tuple(VariantUsed(**one) for one in given["variants"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"the stored suite cannot be gone on with: {error}") from None


# ------------------------------------------------------------------------------- applications


@dataclass(frozen=True)
class ScaleApp:
    """One application of a workload, as the cluster is told: `builder` is a function of
    serving/apps/graph.py and `args` what it gets; `replicas` by deployment; `answer`: what every
    request must be answered with, as text; by a handle, as the number that it says."""

    name: str
    route: str
    builder: str
    args: JsonObject
    replicas: Mapping[str, int]
    answer: str


def apps_of(suite: ScaleSuite, replicas: int) -> tuple[ScaleApp, ...]:
    """The applications of a workload with so many replicas of each deployment."""
    settings: dict[str, Any] = {
        "num_replicas": replicas,
        "max_ongoing_requests": suite.max_concurrent_queries,
    }
    batch: dict[str, Any] = {
        "max_batch_size": suite.max_batch_size,
        "batch_wait_timeout_s": suite.batch_wait_timeout_s,
    }
    name = f"serve_bench_{suite.workload}"
    if suite.workload in ("single", "curve"):
        args = {**settings, **batch}
        return (ScaleApp(name, f"/{name}", "single", args, {"Echo": replicas}, "hi"),)
    if suite.workload == "multi":
        names = [f"{name}_{number}" for number in range(suite.deployments)]
        args = {**settings, "hops": suite.hops, "apps": names}
        return tuple(
            ScaleApp(
                one, f"/{one}", "multi", {**args, "seed": suite.seed + at}, {"Hop": replicas}, "hi"
            )
            for at, one in enumerate(names)
        )
    nodes = {f"Node{number}": replicas for number in range(suite.size)}
    if suite.workload == "ensemble":
        answer = suite.size * (suite.size - 1) // 2
        nodes |= {"Combiner": replicas}
    else:
        answer = suite.size
    args = {**settings, "size": suite.size}
    return (ScaleApp(name, f"/{name}", suite.workload, args, nodes, str(answer)),)


def processes_of(suite: ScaleSuite, replicas: int) -> int:
    """Replicas of all deployments."""
    return sum(sum(app.replicas.values()) for app in apps_of(suite, replicas))


# ------------------------------------------------------------------------------------- the plan


@dataclass(frozen=True)
class ScaleCell:
    """One size of the workload, and its rows in the order of measuring."""

    replicas: int
    cell: JsonObject
    rows: tuple[PlannedTrial, ...]


@dataclass(frozen=True)
class ScaleLaunch:
    """One start of a cluster, and the sizes to be measured on it in this order."""

    variant: VariantUsed
    round: int
    cells: tuple[ScaleCell, ...] = field(default=())


def cell_of(suite: ScaleSuite, replicas: int) -> dict[str, Any]:
    """What a size sets, as it is recorded."""
    cell: dict[str, Any] = {
        "workload": suite.workload,
        "num_replicas": replicas,
        "max_concurrent_queries": suite.max_concurrent_queries,
    }
    if suite.workload in GRAPHS:
        return cell | {"fanout" if suite.workload == "ensemble" else "length": suite.size}
    if suite.workload == "multi":
        return cell | {"deployments": suite.deployments, "hops": suite.hops}
    return cell | {"max_batch_size": suite.max_batch_size}


def rows_of(suite: ScaleSuite, nodes: int = 1) -> tuple[Row, ...]:
    """The rows of a size. The load of a node has `connections`; there may be several `nodes`."""
    if suite.workload not in GRAPHS:
        each = suite.connections
        things = f"connection{'' if each == 1 else 's'}"
        return (Row(f"{each} {things} a node", suite.client, each * nodes, nodes),)
    count = suite.clients
    things = f"{count} client{'' if count == 1 else 's'}"
    return tuple(
        Row(
            f"{things}, {way}, {what}",
            HANDLE if way == "handle" else suite.client,
            count,
            requests_each=each,
        )
        for way in ("handle", "HTTP")
        for what, each in (("throughput", None), ("latency", suite.requests_each))
    )


def scale_plan(suite: ScaleSuite, done: Iterable[str] = ()) -> tuple[ScaleLaunch, ...]:
    """The launches in order; trials whose keys are `done` are left out.

    Variants alternate within a round, and each round but the first draws the order of its sizes: so
    a drift of the machine meets them all alike.
    """
    finished, out = set(done), []
    for round_ in range(1, suite.launches + 1):
        sizes = list(suite.replicas)
        if round_ > 1:
            random.Random(suite.seed * 1000 + round_).shuffle(sizes)
        for variant in suite.variants:
            cells = []
            for replicas in sizes:
                cell = cell_of(suite, replicas)
                rows = tuple(
                    one
                    for one in _planned(suite, variant.name, round_, cell)
                    if one.key not in finished
                )
                if rows:
                    cells.append(ScaleCell(replicas, cell, rows))
            if cells:
                out.append(ScaleLaunch(variant, round_, tuple(cells)))
    return tuple(out)


def _planned(
    suite: ScaleSuite, variant: str, round_: int, cell: JsonObject
) -> Iterable[PlannedTrial]:
    for row in rows_of(suite):
        key = trial_key(variant, round_, cell, row.label.replace(",", ""))
        yield PlannedTrial(key, round_, variant, cell, row)


def on_nodes(planned: PlannedTrial, nodes: int) -> PlannedTrial:
    """The same trial, once it is known how many nodes load."""
    row = planned.row
    return replace(planned, row=replace(row, connections=row.connections * nodes, processes=nodes))


def expected_s(suite: ScaleSuite, launches: Sequence[ScaleLaunch]) -> float:
    """About how long these launches take."""
    total = 0.0
    for launch in launches:
        total += START_S + suite.nodes if suite.address is None else 0.0
        for cell in launch.cells:
            total += EACH_S * processes_of(suite, cell.replicas) + REMOVE_S
            total += len(cell.rows) * (suite.warmup_s + suite.measured_s)
    return total


def invalid_share(completed: int, failed: int) -> float | None:
    """The share of failed requests where it makes a result invalid; None where it is valid.

    Where nothing was asked for, nothing was measured: that is invalid too.
    """
    asked = completed + failed
    share = failed / asked if asked else 1.0
    return share if share > INVALID_SHARE or not completed else None
