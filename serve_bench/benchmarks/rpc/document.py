"""What a run of rpc says: agent and observers of each world on each backend.

Rule: figures are those of summary.py (seconds, requests/s, bytes), latencies shown in ms. With
several backends rows stand by the x axis, the one argument that was swept, so that the same world
can be read across; what doubts a world stands under its row. Lines join
worlds only where the x axis has numbers; else each world has a row of its own. The four metrics are
drawn of a `MetricCurve`, so that a stored report is drawn like a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import merged
from serve_bench.benchmarks.rpc.summary import (
    AGENT,
    AGENT_LATENCY,
    AGENT_RATE,
    AGENT_SECONDS,
    NAMES,
    OBSERVER_LATENCY,
    OBSERVER_RATE,
    OBSERVER_SECONDS,
    OBSERVERS,
    OTHERS,
    PERCENTILES,
    Figures,
    MetricCurve,
    RpcPoint,
    RpcSummary,
    rpc_summary,
)
from serve_bench.core.result import Result
from serve_bench.view import drawn as charts
from serve_bench.view.about_run import method, run_document
from serve_bench.view.blocks import (
    NOTHING,
    Fields,
    count,
    cpu_charts,
    curve_of,
    doubted,
    gaps,
    host_percent,
    listed,
    milliseconds,
    percent,
    percentile_charts,
    plain,
    rate,
    section,
    sentence,
    statement,
    table_of,
    whole_run,
)
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Document,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    sentences,
)
from serve_bench.view.drawn import LinePoint, Point
from serve_bench.view.published import RPC, reference, rpc_source
from serve_bench.view.texts import latency, number

MOST_NAMED: Final = 4
"""Worlds that a sentence names."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of rpc says, with its source's example below the tables, if wanted."""
    summary = rpc_summary(result)
    return run_document(
        result,
        options.where,
        facts=(*_request(summary), *_versions(summary)),
        findings=sentences(_findings(summary)),
        doubts=whole_run(summary.warnings, summary.failures),
        sections=_sections(result, summary, options.published),
    )


def _request(summary: RpcSummary) -> Iterator[tuple[str, str]]:
    suite, cells = summary.run.suite, [one.cell for one in summary.points]
    if not cells:
        return

    def values(name: str) -> str:
        return " / ".join(dict.fromkeys(str(cell.get(name, "-")) for cell in cells))

    takes = {
        frozenset({True}): "the policy takes a request of each at once",
        frozenset({False}): "the policy takes one request at a time",
    }.get(summary.batched, "with batch True the policy takes a request of each at once")
    yield (
        "world",
        f"one agent and world_size - 1 observers, each with one call in flight; "
        f"world_size {values('world_size')}, batch {values('batch')}: {takes}",
    )
    if suite.get("policy_ms") is not None:
        yield "policy", f"none; it takes {suite['policy_ms']:g} ms, whatever it is asked"
    else:
        layers = f"{values('nlayers')} linear layer{'' if values('nlayers') == '1' else 's'}"
        threads = f"{values('threads')} thread{'' if values('threads') == '1' else 's'}"
        yield (
            "policy",
            f"state {values('state_size')} flattened, {layers}, "
            f"{values('out_features')} actions; on {values('device')}, {threads}",
        )
    launches = int(suite.get("launches") or 1)
    several = f"; {launches} launches, merged" if launches > 1 else ""
    yield (
        "episode",
        f"{suite.get('steps', '?')} calls of each observer; episodes of a world: "
        f"{_episodes(summary)}{several}",
    )


def _episodes(summary: RpcSummary) -> str:
    """How many were asked for; where time decides, also how many there were."""
    suite = summary.run.suite
    most, seconds = int(suite.get("episodes") or 0), suite.get("seconds")
    if seconds is None:
        return str(most or "?")
    counts = [one.episodes for one in summary.measured] or [0]
    measured = " to ".join(dict.fromkeys(str(one) for one in (min(counts), max(counts))))
    return f"as many as begin within {seconds:g} s, at most {most:,} (were {measured})"


def _versions(summary: RpcSummary) -> Iterator[tuple[str, str]]:
    for backend in summary.backends:
        texts = [
            ", ".join(f"{name} {value}" for name, value in versions.items() if value)
            for one in summary.of(backend)
            for trial in one.trials
            if (versions := trial.client.get("versions"))
        ]
        if texts:
            yield f"backend {backend}", " / ".join(dict.fromkeys(texts))


def _findings(summary: RpcSummary) -> Iterator[str]:
    """What the figures support: gaps, the fastest backend at the last world, what a call costs."""
    points = summary.points
    missing = sum(one.gap is not None for one in points)
    struck = (*summary.failures, *(failure for one in points for failure in one.failures))
    yield from gaps(missing, len(points), [one.message for one in struck], "world")
    if not summary.measured:
        yield "Nothing was measured."
        return
    yield _headline(summary)
    yield from _costs(summary)
    yield from doubted([one.warnings for one in points], summary.warnings, "world")


def _headline(summary: RpcSummary) -> str:
    """Of several backends the one with the most calls/s and the others beside it, at the last point
    of the x axis where most were measured, at the fastest where the axis has no order; of one
    backend, its worlds."""
    if len(summary.backends) == 1:
        worlds = [_calls(one, f" at {one.x_axis} {one.x}") for one in summary.measured]
        return sentence(f"{summary.backends[0]} answers {'; '.join(worlds)}")
    in_order = all(x.isdigit() for x in summary.xs)
    by_x = {x: _ranked(summary, x) for x in summary.xs}
    most = max(
        by_x,
        key=lambda x: (
            len(by_x[x]),
            summary.xs.index(x) if in_order else max((mean for _, mean in by_x[x]), default=0.0),
        ),
    )
    if not by_x[most]:
        return "No valid world."
    (first, best), *others = by_x[most]
    beside = [
        f"{one.backend} {_times(mean / best).text} of that (p50 {_p50(one)} ms)"
        for one, mean in others
        if best
    ]
    where = f"With {summary.x_axis} {most}"
    return sentence(
        "; ".join([f"{where}, {first.backend} answers most: {_calls(first, '')}", *beside])
    )


def _ranked(summary: RpcSummary, x: str) -> list[tuple[RpcPoint, float]]:
    """Those that are compared, with their calls/s, the fastest first: measured, and by nothing that
    broke."""
    rated = [
        (one, one.rate.mean)
        for one in summary.at(x)
        if one.figures and one.rate is not None and not one.line.broken
    ]
    return sorted(rated, key=lambda pair: -pair[1])


def _calls(point: RpcPoint, at: str) -> str:
    """`2,748 calls/s of all observers at world_size 10 (an observer waits 3.41 ms, p50)`."""
    mean = number(None if point.rate is None else point.rate.mean)
    return f"{mean} calls/s of all observers{at} (an observer waits {_p50(point)} ms, p50)"


def _p50(point: RpcPoint) -> str:
    return latency(1e3 * point.figures[OBSERVER_SECONDS].percentiles[50])


def _costs(summary: RpcSummary) -> Iterator[str]:
    """What was full, and the CPU that a call takes on each backend, at least and at most."""
    costs: dict[str, list[float]] = {}
    full: dict[str, list[str]] = {}
    several = len(summary.backends) > 1
    for one in summary.points:
        if (cost := one.cpu_ms_a_call) is not None:
            costs.setdefault(one.backend, []).append(cost)
        if one.limited:
            place = f"{one.x_axis} {one.x}"
            named = f"{one.backend} ({place})" if several else place
            full.setdefault(one.limited, []).append(named)
    words = [
        f"the {what} was full {'with' if several else 'at'} {listed(names[:MOST_NAMED])}"
        + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
        for what, names in full.items()
    ]
    each = [
        f"{' to '.join(dict.fromkeys(number(end, 3) for end in (min(own), max(own))))} ms on {name}"
        for name, own in costs.items()
    ]
    if each:
        words.append(f"the CPU time of a call, of all processes, is {', '.join(each)}")
    if words:
        yield statement("; ".join(words))


def _metrics_over_x(summary: RpcSummary, published: bool, of: str = "") -> list[Chart]:
    """The four metrics over the x axis, or those `of` throughput or latency, with the published
    example, if wanted and alike."""
    example = example_curve(summary.x_axis, summary.batched) if published else None
    every = metric_charts(summary.curves, summary.x_axis, example)
    return [one for one in every if of in one.title]


def _sections(result: Result, summary: RpcSummary, published: bool) -> Iterator[Section]:
    x_axis = summary.x_axis

    def throughput() -> Iterator[Chart]:
        yield from rate_chart(summary)
        yield from _metrics_over_x(summary, published, "throughput")

    def latencies() -> Iterator[Chart]:
        yield from _metrics_over_x(summary, published, "latency")
        yield from latency_charts(summary)

    yield from section("results", f"Results over {x_axis}", _results(summary), "headline")
    yield from section("ratios", "Ratios between backends", _ratios(summary), "table")
    yield from section("cpu", "Limits by world", _inside(summary), "table")
    if published:
        yield from section("published", "Published, not measured here", _example(summary), "table")
    if summary.measured:
        yield from section("throughput", f"Throughput over {x_axis}", [Charts(throughput)])
        yield from section("latency", f"Latency over {x_axis}", [Charts(latencies)])
    yield method(result)


def _results(summary: RpcSummary) -> Iterator[Block]:
    if not summary.points:
        yield Prose(("Nothing was planned.",), "doubt")
        return
    notes = (
        "agent: from a batch's first request until each has its action; observer: from its call "
        "until it has its action; ±: std over episodes",
    )
    yield _table(summary, "Agent and observers", FIGURES, summary.by_x, notes, doubts=True)
    if summary.measured:
        yield Folded("Every percentile of the four metrics", (_percentiles_table(summary),))


PointFields: TypeAlias = Fields[RpcPoint]


def _table(
    summary: RpcSummary,
    caption: str,
    fields: PointFields,
    points: Sequence[RpcPoint],
    notes: Sequence[str] = (),
    doubts: bool = False,
) -> Table:
    """A row for each world: by the x axis, its backends under it where there are several. With
    `doubts`, the findings about each stand under it."""
    several = len(summary.backends) > 1
    head = Column("backend" if several else summary.x_axis, number=False)
    return table_of(
        caption,
        ((head, lambda one: one.backend if several else one.x), *fields),
        points,
        notes,
        doubts=lambda one: one.findings if doubts else (),
        group=lambda one: f"{summary.x_axis} {one.x}" if several else "",
        about=lambda one: one.title,
    )


def _metric(name: str, value: float) -> Number:
    return milliseconds(1e9 * value) if "latency" in name else plain(value)


def _share(name: str, share: int, head: str, detail: bool = False) -> PointFields:
    """A percentile of a metric, under `agent` or `observer`."""

    def cell(point: RpcPoint) -> Number:
        figures = point.figures.get(name)
        return NOTHING if figures is None else _metric(name, figures.percentiles[share])

    unit = "ms" if "latency" in name else "1/s"
    return ((Column(head, f"p{share} {unit}", detail=detail), cell),)


FIGURES: Final[PointFields] = (
    *_share(AGENT_SECONDS, 50, "agent"),
    *_share(AGENT_SECONDS, 95, "agent", detail=True),
    *_share(AGENT_RATE, 50, "agent", detail=True),
    *_share(OBSERVER_SECONDS, 50, "observer"),
    *_share(OBSERVER_SECONDS, 95, "observer", detail=True),
    *_share(OBSERVER_SECONDS, 99, "observer"),
    *_share(OBSERVER_RATE, 50, "observer", detail=True),
    (Column("all observers", "requests/s"), lambda point: rate(point.rate)),
    (
        Column("launches", "± 1/s"),
        lambda point: plain(None if point.rate is None else point.rate.launch_std),
    ),
)


def _ratios(summary: RpcSummary) -> Iterator[Table]:
    first = summary.backends[0] if summary.backends else ""
    points = [one for one in summary.measured if one.backend != first]
    if not any(one.ratios for one in points):
        return

    def ratio(head: str, unit: str, name: str) -> PointFields:
        column = Column(head, unit, detail="throughput" in name)
        return ((column, lambda point: _times(point.ratios.get(name))),)

    fields: PointFields = (
        *ratio("agent", "latency", AGENT_SECONDS),
        *ratio("agent", "1/s", AGENT_RATE),
        *ratio("observer", "latency", OBSERVER_SECONDS),
        *ratio("observer", "1/s", OBSERVER_RATE),
        (Column("observer", "p50 ms more"), lambda point: _more(point.more_s)),
        (Column("all observers", "requests/s"), lambda point: _times(point.line.ratio)),
    )
    caption = f"Ratios to {first}: of medians; of requests/s those of means"
    yield _table(summary, caption, fields, points)


def _times(value: float | None) -> Number:
    """Two decimals; more where two would hold less than two digits of it."""
    if value is None:
        return NOTHING
    return Number(f"{value:.2f}" if value >= 0.1 else f"{value:.2g}", value)


def _more(seconds: float | None) -> Cell:
    if seconds is None:
        return NOTHING
    return f"{'+' if seconds >= 0 else '-'}{latency(1e3 * abs(seconds))}"


MetricRow: TypeAlias = tuple[RpcPoint, str, Figures]


def _percentiles_table(summary: RpcSummary) -> Table:

    def percentile(share: int) -> tuple[Column, Callable[[MetricRow], Cell]]:
        return (Column(f"p{share}"), lambda row: _metric(row[1], row[2].percentiles[share]))

    fields: Fields[MetricRow] = (
        (Column("metric", number=False), lambda row: row[1].removesuffix(" (seconds)")),
        (Column("unit", number=False), lambda row: "ms" if "latency" in row[1] else "requests/s"),
        *map(percentile, (*PERCENTILES, 99)),
        (Column("mean"), lambda row: _metric(row[1], row[2].mean)),
        (Column("std"), lambda row: _metric(row[1], row[2].std)),
        (Column("samples"), lambda row: count(row[2].count)),
    )
    rows = [(one, *pair) for one in summary.measured for pair in one.figures.items()]
    caption = "Percentiles of the four metrics"
    table = table_of(caption, fields, rows, group=lambda row: row[0].title)
    return replace(table, unlike=True)


def _group(name: str) -> Callable[[RpcPoint], Cell]:
    return lambda point: percent(point.cpu.groups.get(name))


INSIDE: Final[PointFields] = (
    (Column("agent", "CPU %"), _group(AGENT)),
    (Column("observers", "CPU %"), _group(OBSERVERS)),
    (Column("others", "CPU %", detail=True), _group(OTHERS)),
    (Column("host", "CPU %"), lambda point: host_percent(point.cpu)),
    (Column("a call", "CPU ms"), lambda point: number(point.cpu_ms_a_call, 3)),
    (Column("memory", "MB in processes", detail=True), lambda point: _memory(point)),
    (Column("limited by", number=False), lambda point: point.limited or "-"),
)


def _inside(summary: RpcSummary) -> Iterator[Block]:
    """CPU, memory and limit of every world that was measured, where any is known."""
    points = [one for one in summary.by_x if one.trials]
    if not any(AGENT in one.cpu.groups or one.memory_bytes is not None for one in points):
        return
    notes = (
        "CPU: % of a core; host: all that runs there; a call: what all processes of the world used "
        "for one; memory: of all processes, proportional (what n share counts 1/n in each)",
    )
    yield _table(summary, "CPU and memory", INSIDE, points, notes)
    yield Charts(partial(cpu_chart, summary))


def _memory(point: RpcPoint) -> Number:
    """`1,620 in 80`: MB, and processes."""
    if point.memory_bytes is None:
        return NOTHING
    size = point.memory_bytes / 1e6
    processes = "" if point.processes is None else f" in {point.processes}"
    return Number(f"{size:,.0f}{processes}", size)


def _example(summary: RpcSummary) -> Iterator[Block]:
    """The source's example: the four metrics with their percentiles, as printed there."""
    yield Prose((rpc_source(),), "quiet")
    example = example_curve(summary.x_axis, summary.batched)
    if example is None:
        text = "There is no example like this run: its x axis is world_size, its batch True."
        yield Prose((text,), "quiet")
        return
    columns = (Column("metric", number=False), *(Column(f"p{share}") for share in PERCENTILES))
    rows = tuple(
        TableRow(
            (name, *(str(metrics[name][share]) for share in PERCENTILES)), group=f"world_size {x}"
        )
        for x, metrics in example.points.items()
        for name in NAMES
    )
    yield Table("The published example", columns, rows)


LOG_X: Final = 20.0
LOG_Y: Final = 12.0
"""An axis whose largest value is so many times its smallest is logarithmic: on a linear one the
small half could not be read."""

PUBLISHED: Final = "PUBLISHED, not measured here; hardware not named"
"""The series of the published example."""

Value = tuple[float, float | None, float | None]
"""A figure with the ends of its bar."""


def example_curve(x_axis: str, batched: frozenset[bool]) -> MetricCurve | None:
    """The published example; None where it is not alike (x axis world_size, batch True)."""
    if x_axis != "world_size" or batched != {True}:
        return None
    keys = {name: name.removesuffix(" (seconds)").replace(" ", "_") for name in NAMES}
    return MetricCurve(
        PUBLISHED,
        {
            str(row["world_size"]): {
                name: dict(zip(PERCENTILES, row[key], strict=True)) for name, key in keys.items()
            }
            for row in reference(RPC)["example"]
        },
    )


def metric_charts(
    curves: Sequence[MetricCurve], x_axis: str, example: MetricCurve | None = None
) -> Iterator[Chart]:
    """The four metrics over the x axis: the median of each, with a bar up to p95; latencies in
    ms."""
    every = [*([example] if example is not None else []), *curves]
    for name in NAMES:
        of_latency = "latency" in name
        per = 1e3 if of_latency else 1.0
        series: dict[str, dict[str, Value]] = {
            curve.name: {
                x: (per * own[name][50], per * own[name][50], per * own[name][95])
                for x, own in curve.points.items()
            }
            for curve in every
        }
        title = name.removesuffix(" (seconds)").capitalize()
        unit = "ms" if of_latency else "requests/s"
        yield from _over_x(title, x_axis, series, unit, "The median; bars reach up to p95.")


def rate_chart(summary: RpcSummary) -> Iterator[Chart]:
    """Calls/s of all observers, by their mean over episodes."""
    series: dict[str, dict[str, Value]] = {}
    for high in summary.points:
        if (rate := high.rate) is not None:
            series.setdefault(high.backend, {})[high.x] = (rate.mean, *rate.ends)
    caption = "Mean ± std over episodes (ddof 0)."
    yield from _over_x("Calls of all observers", summary.x_axis, series, "requests/s", caption)


def _over_x(
    title: str, x_axis: str, series: Mapping[str, Mapping[str, Value]], unit: str, caption: str
) -> Iterator[Chart]:
    """A figure by series and point of the x axis: lines over numbers above 0, else rows."""
    measured = list(dict.fromkeys(x for name in series if name != PUBLISHED for x in series[name]))
    if not measured:
        return
    text = latency if unit == "ms" else number
    points = "; ".join(
        f"{name}, {x_axis} {x}: {text(value[0])}"
        for name, own in series.items()
        for x, value in own.items()
    )
    words = f"{title} over {x_axis}, {unit}. {points}."
    if len(measured) == 1 or not all(x.isascii() and x.isdigit() and int(x) for x in measured):
        xs = dict.fromkeys([*measured, *(x for own in series.values() for x in own)])
        rows = [
            Point(f"{x_axis} {x}", name, *own[x])
            for x in xs
            for name, own in series.items()
            if x in own
        ]
        yield charts.intervals(title, rows, unit, words, caption)
        return
    lines = {
        name: [LinePoint(float(x), *value) for x, value in own.items()]
        for name, own in series.items()
    }
    every = [one for own in lines.values() for one in own]
    yield charts.ladder(
        title,
        lines,
        x_name=x_axis,
        unit=unit,
        words=words,
        log_x=_far([one.x for one in every], LOG_X),
        log_y=_far([one.value for one in every], LOG_Y),
        caption=caption,
    )


def _far(values: Sequence[float], factor: float) -> bool:
    """Whether an axis of these values is logarithmic."""
    return min(values) > 0 and max(values) >= factor * min(values)


def latency_charts(summary: RpcSummary) -> Iterator[Chart]:
    """Percentiles of all calls and of all batches, a chart for each point of the x axis."""
    for title, name in (("Observer latency", OBSERVER_LATENCY), ("Agent latency", AGENT_LATENCY)):
        for x in summary.xs:
            curves = {
                one.backend: points
                for one in summary.at(x)
                if (points := curve_of(merged(one.trials, name)))
            }
            where = f"{summary.x_axis} {x}"
            yield from percentile_charts(f"{title}, {where}", curves)


def cpu_chart(summary: RpcSummary) -> Iterator[Chart]:
    """CPU by process of each world, with what was full."""
    several = len(summary.backends) > 1
    rows = [
        (
            one.title if several else f"{one.x_axis} {one.x}",
            [trial.usage for trial in one.trials],
            f"limited by {one.limited}" if one.limited else "",
        )
        for one in summary.by_x
    ]
    caption = "100 % is one core; all processes of a role together, mean over launches."
    yield from cpu_charts("CPU by process", rows, caption)
