"""A stored report of rpc, to be drawn: ours, or one that PyTorch's own launcher wrote.

Rule: all that is shown is checked here; what is no such report is one line that names the key.
Units stay those of the report: seconds, requests/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Required, TypeAlias, TypedDict

from msgspec import Meta

from serve_bench.benchmarks.parts.published import rpc_source
from serve_bench.benchmarks.rpc.charts import example_curve, metric_charts
from serve_bench.benchmarks.rpc.exports import OURS
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, MetricCurve
from serve_bench.core.document import Document, Facts, Section
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.facts import HostFacts
from serve_bench.core.figures import host_line
from serve_bench.core.numbers import Amount, Count
from serve_bench.core.schema import built

THEIRS: Final = "as reported"
"""Where a report does not say which backend it is of."""

SHOWN: Final = ("batch", "world_size", "state_size", "nlayers", "out_features")
"""Arguments that are shown beside the charts."""

Drawn: TypeAlias = Annotated[int, Meta(ge=0, le=10**15)] | Annotated[float, Meta(ge=0.0, le=1e15)]
"""A figure: what is larger is no latency or rate, and cannot be drawn."""


class Percentiles(TypedDict):
    p50: Drawn
    p75: Drawn
    p90: Drawn
    p95: Drawn


Metrics = TypedDict(
    "Metrics",
    {
        "agent latency (seconds)": Percentiles,
        "agent throughput": Percentiles,
        "observer latency (seconds)": Percentiles,
        "observer throughput": Percentiles,
    },
)
"""The four metrics, as NAMES has them."""


class ReportRun(TypedDict, total=False):
    """Of a report of ours: its run."""

    id: str
    started_at: str


class StoredRequest(TypedDict, total=False):
    """What was asked for."""

    policy_ms: Amount | None
    steps: Count | None


class ReportClient(TypedDict, total=False):
    """What a trial records of its backend."""

    versions: Mapping[str, str | None]


class ReportWorld(TypedDict, total=False):
    """A world on a backend; one that was not measured has no metrics."""

    x: Required[str | int | bool]
    metrics: Required[Mapping[str, Any]]
    client: list[ReportClient]


class OurPart(TypedDict, total=False):
    """The part of a report that PyTorch's have not, under our key."""

    run: ReportRun
    host: HostFacts
    asked: StoredRequest
    backends: Required[Mapping[str, list[ReportWorld]]]


class Report(TypedDict, total=False):
    """A report. PyTorch's names no x axis if no argument was a list."""

    benchmark_results: Required[list[dict[str, Any]]]
    x_axis_name: str
    serve_bench: OurPart


def report_document(report: object, published: bool, name: str = "plot") -> Document:
    """What a report says: the four metrics over the x axis, with the source's example if wanted and
    alike. Raises BadInput where it is no such report, beginning with its `name` (a file, say)."""
    try:
        checked = built(Report, report, "report")
        assert isinstance(report, Mapping)
        ours, x_axis = checked.get("serve_bench"), checked.get("x_axis_name", "world_size")
        curves = tuple(_curves(checked, x_axis, report))
    except FormatError as error:
        raise BadInput(f"{name}: no report of rpc: {error}") from None
    if not curves:
        raise BadInput(f"{name}: the report holds no figure: benchmark_results is empty")
    example = None
    if published:
        example = example_curve(x_axis, frozenset({report.get("batch") is True}))
    facts = [("arguments", ", ".join(f"{one} {report[one]}" for one in SHOWN if one in report))]
    if example is not None:
        facts.append(("published", rpc_source()))
    if ours is None:
        without = "without run and host; PyTorch's launcher rounds to whole ms and requests/s"
        facts.append(("report", without))
    else:
        facts += _facts(ours, curves)
    title = "PyTorch RPC" if ours is None else "serve-bench rpc: one agent and its observers"
    charts = tuple(metric_charts(curves, x_axis, example))
    return Document(
        title=f"{title}, over {x_axis}",
        command="rpc",
        run=Facts(tuple(facts)),
        machine=Facts(()),
        findings=(),
        doubts=(),
        sections=(Section("results", f"Results over {x_axis}", charts, "headline"),),
        picture=lambda: charts,
    )


def _facts(ours: OurPart, curves: Iterable[MetricCurve]) -> Iterator[tuple[str, str]]:
    """What was asked for in a report of ours, who measured it, and where."""
    request, run = ours.get("asked", {}), ours.get("run", {})
    if request.get("policy_ms") is not None:
        yield "policy", f"none, it takes {request['policy_ms']} ms"
    if request.get("steps") is not None:
        yield "episode", f"{request['steps']} calls of each observer"
    for curve in curves:
        texts = [
            ", ".join(f"{name} {value}" for name, value in client["versions"].items() if value)
            for world in ours["backends"][curve.name]
            for client in world.get("client", ())
            if client.get("versions")
        ]
        yield f"backend {curve.name}", " / ".join(dict.fromkeys(texts))
    yield "run", f"{run.get('id')}, {run.get('started_at')}"
    yield "host", host_line(ours.get("host", {}))


# ------------------------------------------------------------------------------------ reading


def _curves(report: Report, x_axis: str, top: Mapping[str, Any]) -> Iterator[MetricCurve]:
    """The backends that measured anything; of PyTorch's report the only one."""
    if (ours := report.get("serve_bench")) is not None:
        for name, worlds in ours["backends"].items():
            place = f"{OURS}.backends.{name}"
            pairs = [(str(one["x"]), one["metrics"]) for one in worlds]
            if points := _points(pairs, place, "x", ".metrics"):
                yield MetricCurve(name, points)
        return
    pairs = []
    for at, one in enumerate(report["benchmark_results"]):
        if x_axis not in one and "x_axis_name" in report:
            raise FormatError(f"benchmark_results[{at}].{x_axis} is missing")
        pairs.append((str(one.get(x_axis, top.get(x_axis, "-"))), one))
    if points := _points(pairs, "benchmark_results", x_axis):
        yield MetricCurve(THEIRS, points)


def _points(
    pairs: Iterable[tuple[str, Mapping[str, Any]]], place: str, x_axis: str, inner: str = ""
) -> dict[str, dict[str, dict[int, float]]]:
    """The percentiles of the four metrics by point of the x axis, checked."""
    points: dict[str, dict[str, dict[int, float]]] = {}
    for at, (x, metrics) in enumerate(pairs):
        if x in points:
            raise FormatError(f"{place}[{at}].{x_axis}: {x} stands there twice")
        if metrics:
            figures: Any = built(Metrics, metrics, f"{place}[{at}]{inner}")
            points[x] = {
                name: {share: float(figures[name][f"p{share}"]) for share in PERCENTILES}
                for name in NAMES
            }
    return points
