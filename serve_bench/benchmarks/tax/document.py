"""A run of tax as a document: layers, what each adds, CPU by process. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from serve_bench.analysis.comparing.model import Compared, ComparedRow, ends
from serve_bench.benchmarks.tax.summary import (
    METRICS,
    LayerFigures,
    TaxFigures,
    adds,
    figures_of,
    interval_of,
    line_of,
    sentences_of,
)
from serve_bench.benchmarks.versus.summary import SCALES, metric_number, value_text
from serve_bench.core.figures import percent, ratio_text
from serve_bench.core.result import Result
from serve_bench.view.about_run import method, run_document
from serve_bench.view.blocks import failure, statement
from serve_bench.view.document import (
    Chart,
    Charts,
    Column,
    Document,
    Folded,
    Number,
    ReportOptions,
    Section,
    Table,
    TableRow,
    sentences,
)
from serve_bench.view.drawn import Ratio, ratios

LAYER_NOTE = (
    "requests/s, p50, p99: client raw, of a handle a driver in Python, whose own work limits it; "
    "geometric means over rounds"
)
STREAM_METRICS: Final = ("ttft_p50", "itl_p50")
STREAM_NOTE = "TTFT: to the first event; ITL: between events; -: they came together"


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of tax says. Raises FormatError for damaged records."""
    figures = figures_of(result)
    suite = figures.suite
    facts = [
        ("planned", f"{suite.versus.rounds} rounds, {figures.measured} measured on all layers"),
        ("app", suite.versus.sides[0].app.name),
        ("left out", "; ".join(suite.left_out)),
    ]
    return run_document(
        result,
        options.where,
        findings=sentences(map(statement, sentences_of(figures))),
        doubts=(*map(failure, result.failures), *figures.doubts),
        facts=[one for one in facts if one[1]],
        sections=(*_sections(figures), method(result)),
    )


def _sections(figures: TaxFigures) -> Iterator[Section]:
    yield Section("layers", "Layers", (_values(figures), _compared(figures)), "headline")
    yield Section("chart", "Shares with their intervals", (Charts(partial(_charts, figures)),))
    if len(figures.suite.layers) > 2:
        yield Section("steps", "Steps", (_compared(figures, steps=True),), "table")
    yield Section("cpu", "CPU by process", (_cpu(figures),), "table")
    yield Section("rounds", "Rounds", (_rounds(figures),), "table")


def _values(figures: TaxFigures) -> Table:
    streams = figures.suite.traffic.streams
    metrics = (*METRICS, *(STREAM_METRICS if streams else ()))
    columns = (Column("layer", number=False), *(_column(name) for name in metrics))
    rows = [
        TableRow(
            (one.layer.title, *(metric_number(name, one.value(name)) for name in metrics)),
            group=row.row.label,
        )
        for row in figures.rows
        for one in row.layers
    ]
    notes = [LAYER_NOTE] if any(one.way == "handle" for one in figures.suite.layers) else []
    notes += [STREAM_NOTE] if streams else []
    return Table("each layer", columns, tuple(rows), tuple(notes))


def _column(metric: str) -> Column:
    scale = SCALES[metric]
    if scale.unit == scale.heading:
        return Column(scale.heading)
    return Column(scale.name.replace("CPU per request", "CPU/request"), scale.unit)


_COMPARED: Final = (
    Column("layer", number=False),
    Column("requests/s", "x"),
    Column("95 %", number=False),
    Column("p50 adds", "ms"),
    Column("95 %", "ms", number=False),
    Column("CPU adds", "us"),
)


def _compared(figures: TaxFigures, steps: bool = False) -> Table:
    """Each layer compared with the first; or with the one before, for its step."""
    rows = [
        TableRow((one.layer.title, *_cells(one.step if steps else one.first)), group=row.row.label)
        for row in figures.rows
        for one in row.layers[1:]
    ]
    with_ = "the layer before" if steps else figures.suite.layers[0].title
    return Table(f"compared with {with_}", _COMPARED, tuple(rows))


def _cells(compared: ComparedRow | None) -> tuple[Number | str, ...]:
    rate = line_of(compared, "throughput")
    ratio = None if rate is None else rate.ratio
    return (
        Number(ratio_text(ratio), ratio),
        ends(interval_of(compared, "throughput")),
        *_added(line_of(compared, "p50")),
        _added(line_of(compared, "cpu"))[0],
    )


def _added(line: Compared | None) -> tuple[Number, str]:
    known = adds(line)
    if known is None or line is None:
        return Number("-", None), "-"
    value, low, high = known
    span = "-"
    if low is not None and high is not None:
        span = f"{_signed(line.metric, low)} to {_signed(line.metric, high)}"
    return Number(_signed(line.metric, value), value / SCALES[line.metric].size), span


def _signed(metric: str, value: float) -> str:
    """`+0.84`; value_text knows no sign."""
    sign = "-" if value < 0 else "+"
    return f"{sign}{value_text(metric, abs(value))}"


def _charts(figures: TaxFigures) -> Iterator[Chart]:
    """The shares of the requests/s, with intervals, on one axis."""
    points, texts = [], []
    for row in figures.rows:
        for one in row.layers[1:]:
            line = line_of(one.first, "throughput")
            at = None if line is None else line.judged.interval
            if line is not None and at is not None:
                word = line.judged.word
                name, series = one.layer.title, row.row.label
                points.append(Ratio(name, series, at.ratio, at.low, at.high, word))
                texts.append(f"{name}, {series}: {ratio_text(at.ratio)} ({ends(at)})")
    if points:
        base, threshold = figures.suite.layers[0].title, figures.suite.versus.threshold
        title = f"requests/s, divided by that of {base}, with its 95 % interval"
        band = f"The band is 1 ± {percent(threshold)}."
        yield ratios(title, points, threshold, "; ".join(texts), band)


#: The order of roles in tables.
_ROLES: Final = ("uvicorn", "haproxy", "proxy", "fallback_proxy", "replica")


def _cpu(figures: TaxFigures) -> Table:
    every = [one for row in figures.rows for one in row.layers]
    roles = [role for role in _ROLES if any(role in one.cpu_us for one in every)]
    quiet = any(one.idle for one in every)
    columns = (
        Column("layer", number=False),
        *(Column(role.replace("_", " "), "us") for role in roles),
        Column("all", "us"),
        *([Column("idle", "% of a core"), Column("all idle", "%", detail=True)] if quiet else []),
    )
    rows = [
        TableRow(
            (one.layer.title, *(_us(one.cpu_us.get(role)) for role in roles), *_sums(one, quiet)),
            group=row.row.label,
        )
        for row in figures.rows
        for one in row.layers
    ]
    note = (
        "idle: the same processes in a second without any load, taken off for the time of other "
        "layers; all idle: all processes of the cluster, those of controller, raylet and agents too"
    )
    way = "on a request's way: without client, controller, raylet and agents"
    notes = (f"{way}; {note}" if quiet else way,)
    return Table("CPU per request by process", columns, tuple(rows), notes)


def _us(value: float | None) -> Number:
    return Number("-" if value is None else f"{value:,.0f}", value)


def _sums(one: LayerFigures, quiet: bool) -> Iterator[Number]:
    yield _us(sum(one.cpu_us.values()) if one.cpu_us else None)
    idle = sum(one.idle.values()) if one.idle else None
    for cores in (idle, one.idle_all) if quiet else ():
        of_core = None if cores is None else 100 * cores
        yield Number("-" if of_core is None else f"{of_core:.1f}", of_core)


def _rounds(figures: TaxFigures) -> Folded:
    layers = figures.suite.layers
    columns = (Column("round"), *(Column(one.name) for one in layers))
    rows = []
    for row in figures.rows:
        values = [one.row.values.get("throughput", {}) for one in row.layers]
        for at in sorted({at for some in values for at in some}):
            cells = [metric_number("throughput", some.get(at)) for some in values]
            rows.append(TableRow((Number(str(at), at), *cells), group=row.row.label))
    return Folded("requests/s of each round", (Table("each round", columns, tuple(rows)),))
