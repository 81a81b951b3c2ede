"""What `serve-bench scale` is asked to measure: the workload, its sizes, and the load on it.

Pure. Rule: the defaults are those of Ray's nightly benchmarks; each workload takes only the sizes
that it has. Every error is one line that names the flag, or the file and key, and what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from serve_bench.benchmarks.arguments import Arguments, real, whole
from serve_bench.benchmarks.scale import KEYS, Workload
from serve_bench.core.axes import Kind, axis_flags, only_keys
from serve_bench.core.errors import BadInput
from serve_bench.core.failed_requests import INVALID_SHARE, failures_of
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import HANDLE, MAX_CONNECTIONS, MAX_DURATION_S, MAX_TIMEOUT_S
from serve_bench.core.plan import LaunchPlan, PlannedCell, orders, without
from serve_bench.core.result import JsonObject, PlannedTrial, Row, Trial, VariantUsed, trial_key
from serve_bench.core.schema import plain, stored_suite
from serve_bench.core.slo import slo_of_file
from serve_bench.core.suite import variants_of
from serve_bench.core.timeline import seconds_of

GRAPHS: Final = ("ensemble", "chain")
"""Workloads of composed deployments, with clients instead of a load from every node."""

AS_IT_IS: Final = "as-it-is"
"""The variant of a cluster that was there already: its flags are its own."""

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
    max_ongoing_requests: int = 100
    connections: int = 10
    clients: int = 4
    windows: int = 10
    window_s: float = 1.0
    warmup_s: float = 5.0
    requests_each: int = 20
    timeout_s: float = 30.0
    launches: int = 1
    nodes: int = 1
    address: str | None = None
    seed: int = 1
    sample: bool = True
    slo: str | None = None

    @property
    def measured_s(self) -> float:
        return self.windows * self.window_s

    def expected_s(self, launches: Sequence[LaunchPlan]) -> float:
        """About how long these launches take."""
        total = 0.0
        for launch in launches:
            total += START_S + self.nodes if self.address is None else 0.0
            for cell, rows in launch.cells:
                total += EACH_S * processes_of(self, int(cell["num_replicas"])) + REMOVE_S
                total += len(rows) * (self.warmup_s + self.measured_s)
        return total

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record."""
        return {"name": f"scale_{self.workload}", **plain(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScaleSuite:
        """The reverse, for going on with a stored run. Raises BadInput."""
        return stored_suite(cls, data)


@dataclass(frozen=True)
class ScaleApp:
    """One application of a workload, as the cluster is told: `builder` is a function of
    serving/apps/graph.py and `args` what it gets; `replicas` by deployment; `ready_body`: what
    every request must be answered with, as text; by a handle, as the number that it says."""

    name: str
    route_prefix: str
    builder: str
    args: JsonObject
    replicas: Mapping[str, int]
    ready_body: str


def apps_of(suite: ScaleSuite, replicas: int) -> tuple[ScaleApp, ...]:
    """The applications of a workload with so many replicas of each deployment."""
    settings: dict[str, Any] = {
        "num_replicas": replicas,
        "max_ongoing_requests": suite.max_ongoing_requests,
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


def cell_of(suite: ScaleSuite, replicas: int) -> dict[str, Any]:
    """What a size sets, as it is recorded."""
    cell: dict[str, Any] = {
        "workload": suite.workload,
        "num_replicas": replicas,
        "max_ongoing_requests": suite.max_ongoing_requests,
    }
    if suite.workload in GRAPHS:
        return cell | {"fanout" if suite.workload == "ensemble" else "length": suite.size}
    if suite.workload == "multi":
        return cell | {"deployments": suite.deployments, "hops": suite.hops}
    return cell | {"max_batch_size": suite.max_batch_size}


def rows_of(suite: ScaleSuite) -> tuple[Row, ...]:
    """The rows of a size, those of one node: `on_nodes` has them of several."""
    if suite.workload not in GRAPHS:
        label = f"{counted(suite.connections, 'connection')} a node"
        return (Row(label, "raw", suite.connections, 1),)
    clients = counted(suite.clients, "client")
    return tuple(
        Row(
            f"{clients}, {way}, {what}",
            HANDLE if way == "handle" else "raw",
            suite.clients,
            requests_each=each,
        )
        for way in ("handle", "HTTP")
        for what, each in (("throughput", None), ("latency", suite.requests_each))
    )


def scale_plan(suite: ScaleSuite, done: Iterable[str] = ()) -> tuple[LaunchPlan, ...]:
    """The launches in order; trials whose keys are `done` are left out. Variants alternate within a
    round."""
    launches = (
        LaunchPlan(variant, round_, tuple(_size(suite, variant.name, round_, at) for at in sizes))
        for round_, sizes in orders(suite.launches, suite.replicas, suite.seed)
        for variant in suite.variants
    )
    return without(launches, done)


def _size(suite: ScaleSuite, variant: str, round_: int, replicas: int) -> PlannedCell:
    cell, trials = cell_of(suite, replicas), []
    for row in rows_of(suite):
        key = trial_key(variant, round_, cell, row.label.replace(",", ""))
        trials.append(PlannedTrial(key, round_, variant, cell, row))
    return cell, tuple(trials)


def on_nodes(planned: PlannedTrial, nodes: int) -> PlannedTrial:
    """The same trial, once it is known how many nodes load."""
    row = planned.row
    return replace(planned, row=replace(row, connections=row.connections * nodes, processes=nodes))


def why_invalid(trial: Trial) -> str | None:
    """Why a trial is that of a broken run: too many of its requests failed, or none was answered;
    None where it is not."""
    counts = trial.counts
    requests = counts.completed + counts.failed_total
    if not requests:
        return "no request was answered"
    share = counts.failed_total / requests
    if share <= INVALID_SHARE:
        return None
    return f"{100 * share:.1f} % of the requests failed ({failures_of([trial])})"


#: Upper ends of axes, which the registry has.
_MOST: Final = {name: one.flag.most or 0.0 for name, one in axis_flags("scale").items()}


def _time(least: float, most: float) -> Kind:
    takes = f"a time from {least:g} s to {most:,.0f} s, such as 500ms, 10s or 2m"
    return Kind(partial(_read_time, least, most), takes)


def _read_time(least: float, most: float, value: object) -> float:
    seconds = seconds_of(str(value), "", zero=True)
    if not least <= seconds <= most:
        raise ValueError(value)
    return seconds


_SETTINGS: Final[Mapping[str, Kind]] = {
    "deployments": whole(1, MOST_SIZE),
    "hops": whole(0, 100),
    "fanout": whole(1, MOST_SIZE),
    "length": whole(1, MOST_SIZE),
    "max_batch_size": whole(1, int(_MOST["max_batch_size"])),
    "max_ongoing_requests": whole(1, int(_MOST["max_ongoing_requests"])),
    "batch_wait_timeout_s": real(0.0, _MOST["batch_wait_timeout_s"], "seconds"),
    "connections": whole(1, MAX_CONNECTIONS),
    "clients": whole(1, 10_000),
    "requests": whole(1, 1_000_000),
    "nodes": whole(1, 64),
    "launches": whole(1, 1000),
    "seed": whole(0, 2**31),
    "duration": _time(1.0, MAX_DURATION_S),
    "warmup": _time(0.0, 3600.0),
    "timeout": _time(0.001, MAX_TIMEOUT_S),
}
_FIELDS: Final = {
    **{"fanout": "size", "length": "size", "requests": "requests_each"},
    **{"warmup": "warmup_s", "timeout": "timeout_s"},
}
"""Fields of a ScaleSuite that have another name than their argument."""


def read_scale(
    workload: Workload,
    data: Mapping[str, Any],
    file: str,
    flags: Mapping[str, str],
    *,
    quick: bool = False,
    variants: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    address: str | None = None,
    sample: bool = True,
    slo: str | None = None,
) -> ScaleSuite:
    """The suite of a workload. `flags`: those of KEYS that were given, as text. Raises BadInput."""
    arguments = Arguments.read(_read_tables(workload, data, file, quick), flags, KEYS[workload], ())
    number = whole(1, MOST_REPLICAS)
    replicas = arguments.each("replicas", lambda single: int(single.value("replicas", number)))
    if len(replicas) > 1 and workload != "curve":
        place = arguments.places["replicas"]
        raise BadInput(f"{place}: takes one number; several are for scale curve")
    used, values = variants_of(data, file, variants, env), arguments.values(_SETTINGS)
    if address is not None:
        if "nodes" in flags:
            raise BadInput("--nodes: starts raylets here; it does not go with --address")
        if variants or env:
            raise BadInput(
                "--variant and --env do not go with --address: a cluster that is there already has "
                "its own flags"
            )
        values["nodes"], used = 1, (VariantUsed(AS_IT_IS),)
    duration_s = values.pop("duration")
    windows = max(1, round(duration_s))
    return ScaleSuite(
        workload=workload,
        variants=used,
        replicas=replicas,
        windows=windows,
        window_s=duration_s / windows,
        address=address,
        sample=sample,
        slo=slo or slo_of_file(data, file),
        **{_FIELDS.get(name, name): value for name, value in values.items()},
    )


def _read_tables(
    workload: Workload, data: Mapping[str, Any], file: str, quick: bool
) -> dict[str, Any]:
    only_keys(data, ("name", "variant", "variants", "scale", "quick", "slo"), file)
    table = data.get("scale")
    if not isinstance(table, Mapping):
        raise BadInput(f"{file}: is no suite of serve-bench scale: it has no table scale")
    kind = table.get("workload")
    if kind not in list(KEYS):  # it may be no text
        raise BadInput(f"{file}: scale.workload: takes {', '.join(KEYS)}")
    if kind != workload:
        raise BadInput(f"{file}: is a suite of serve-bench scale {kind}, not {workload}")
    settings = {name: value for name, value in table.items() if name != "workload"}
    small = {f"{file}: quick": data.get("quick", {})} if quick else {}
    return {f"{file}: scale": settings, **small}
