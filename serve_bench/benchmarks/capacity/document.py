"""What a run of capacity says: the rate with its interval, what binds it, each probe. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from serve_bench.analysis.capacity.launch import LaunchSearch
from serve_bench.analysis.capacity.model import LaunchEstimate
from serve_bench.analysis.statistics import mean_rate
from serve_bench.benchmarks.capacity.summary import (
    CellCapacity,
    ProbeLine,
    about,
    cells_of,
    cores_of,
    figure_text,
    latency_of,
    need_words,
    rate_text,
    sentences_of,
)
from serve_bench.core.figures import number
from serve_bench.core.result import Result, cell_slug
from serve_bench.core.slo import ITL, LATENCY, Objective, parse_slo
from serve_bench.view import drawn as charts
from serve_bench.view.about_run import common_axes, method, run_document
from serve_bench.view.blocks import (
    Fields,
    count,
    cpu_of_rows,
    failure,
    gaps,
    milliseconds,
    plain,
    section,
    sentence,
    statement,
    table_of,
)
from serve_bench.view.charts import Lines
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Document,
    Finding,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    Text,
    Tone,
    sentences,
)
from serve_bench.view.rows import NS_PER_MS
from serve_bench.view.texts import cell_title

_TONES: Final[dict[str, Tone]] = {"met": "good", "missed": "bad", "client": "doubt"}


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of capacity says. Raises FormatError for damaged records."""
    cells = cells_of(result)
    return run_document(
        result,
        options.where,
        findings=sentences(_findings(result, cells)),
        doubts=tuple(_doubts(result, cells)),
        facts=tuple(_facts(result, cells)),
        sections=tuple(_sections(result, cells)),
    )


def _findings(result: Result, cells: Sequence[CellCapacity]) -> Iterator[str]:
    """What is missing and the capacities, then what stands beside them."""
    missing, planned = _missing(result, cells)
    messages = [one.message for one in result.failures]
    first = list(gaps(missing, planned, messages, "search", "searches"))
    texts = ["Nothing was measured: there is no capacity."] if not cells else []
    names = [cell.name for cell in cells]
    told = (*sentences_of(cells), *need_words(cells))
    texts += [statement(text, names) for text in told]
    yield " ".join((*first, texts[0]))
    yield from texts[1:]


def _missing(result: Result, cells: Sequence[CellCapacity]) -> tuple[int, int]:
    """How many searches of the fewest launches, or of the last one begun, were not made or did not
    end; and of how many. Later launches are made only if they are needed."""
    ended = {
        (cell.variant, cell_slug(cell.cell), one.round)
        for cell in cells
        for one in cell.searches
        if one.finished
    }
    fewest = cells[0].asked.launches if cells else 1
    last = max([fewest, *(one.round for one in result.trials)])
    planned = [one for one in result.plan if one.round <= last]
    missing = [one for one in planned if (one.variant, cell_slug(one.cell), one.round) not in ended]
    return len(missing), len(planned)


def _facts(result: Result, cells: Sequence[CellCapacity]) -> Iterator[tuple[str, str]]:
    if not cells:
        return
    asked = cells[0].asked
    yield "SLO", parse_slo(asked.slo).text
    traffic = cells[0].traffic
    load = f"client {traffic.client}{traffic.suffix}, open loop, {asked.arrivals} arrivals"
    yield "load", load
    least = "1 launch" if asked.launches == 1 else f"{asked.launches} launches or more"
    yield "planned", f"{least}, until the interval is {100 * asked.precision:g} % wide"
    yield "ended", _end(result, cells)


def _end(result: Result, cells: Sequence[CellCapacity]) -> str:
    if all(one.ceiling is not None for one in cells):
        return "more launches would not tell more"
    if result.failures:
        return "something failed"
    if all(one.capacity.precise for one in cells):
        return "the interval is narrow enough"
    if result.stop is not None and result.stop.why == "budget":
        return "the budget was used up"
    if cells[0].asked.most_launches == 1:
        return "one launch was asked for: the spread between launches is not known"
    return "it was broken off" if result.missing else "the launches were used up"


def _doubts(result: Result, cells: Sequence[CellCapacity]) -> Iterator[Finding]:
    """Failures, then what the search itself doubts."""
    yield from map(failure, result.failures)
    for one in cells:
        about_cell = one.name
        if not one.fresh and one.capacity.spread is not None:
            text = (
                "a running service is not launched: the interval is without the spread of launches"
            )
            yield Finding(text, "one-launch", "doubt", about=about_cell)
        for text in one.capacity.doubts:
            yield Finding(text, "launches", "doubt", about=about_cell)
        unsettled = sum(line.trial.flags.get("unsettled", False) for line in one.probes)
        if unsettled:
            text = f"{unsettled} of {len(one.probes)} probes began before the service had recovered"
            yield Finding(
                text, "unsettled", "doubt", "it takes over a minute to recover", about_cell
            )
        for search, estimate in zip(one.ended, one.capacity.launches, strict=True):
            launch = f"launch {search.round}"
            where = f"{about_cell}, {launch}" if about_cell else launch
            if estimate.drift:
                yield Finding(estimate.drift, "drift", "doubt", about=where)
            for text in estimate.doubts:
                yield Finding(text, "search", "doubt", about=where)
            yield from _scaled(search, where)


def _scaled(search: LaunchSearch, where: str) -> Iterator[Finding]:
    """What Serve did to the replicas during a search."""
    changed = sum(not probe.steady for probe in search.probes)
    hint = "--replicas fixed measures the most of them"
    if changed:
        text = f"{changed} of {len(search.probes)} probes are left out: Serve changed the replicas"
        yield Finding(text, "scaled", "doubt", about=where)
    if (room := search.room) is not None:
        text = f"the last miss was with {room[0]} of {room[1]} replicas that Serve may start"
        yield Finding(text, "scaled", "doubt", hint, where)


def _sections(result: Result, cells: Sequence[CellCapacity]) -> Iterator[Section]:
    if not cells:
        yield Section(
            "results", "Results", (Prose(("Nothing was measured.",), "doubt"),), "headline"
        )
        yield method(result)
        return
    several = len(cells) > 1
    title = "Capacities" if several else "Capacity"
    yield Section("results", title, (_table(cells),), "headline")
    if several:
        blocks = [
            Prose(lines, listed=bool(at))
            for one in cells
            for at, lines in enumerate(((one.name,), tuple(map(sentence, about(one)))))
        ]
        yield Section("cells", "Each cell", tuple(blocks), "table")
    yield Section("launches", "Launches", (_launches(cells),), "table")
    drawn = [block for one in cells for block in _charts(one, several)]
    whole = all(one.binding is None or one.binding.metric == LATENCY for one in cells)
    what = "Latency" if whole else "Times"
    yield from section("rates", f"{what} and misses over the rate", drawn)
    yield Section("boundary", "At the capacity", tuple(_boundary(cells)), "table")
    yield Section("probes", "Probes", tuple(_probes(one, several) for one in cells), "table")
    yield method(result)


def _table(cells: Sequence[CellCapacity]) -> Table:
    need = cells[0].asked.need
    fields: Fields[CellCapacity] = (
        (Column("cell", number=False), lambda one: one.name or one.variant),
        (Column("capacity", "req/s"), lambda one: _rate(None if one.wide else one.capacity.rate)),
        (Column("95 %", "req/s", number=False), _interval),
        (
            Column("launches"),
            lambda one: Number(str(len(one.capacity.launches)), len(one.capacity.launches)),
        ),
        (Column("ratio"), _ratio),
        (Column("95 % of it", number=False), _ratio_interval),
        (Column("cores", "used", detail=True), lambda one: plain(one.cores, 3)),
        (Column("per core", "req/s"), lambda one: plain(one.per_core, 3)),
        (Column("binds", number=False, detail=True), lambda one: one.binds or "-"),
        (Column("needed", number=False), lambda one: _holds(one, need)),
    )
    return table_of("Capacity of each cell", fields, cells, (headline_note(cells),))


def headline_note(cells: Sequence[CellCapacity]) -> str:
    """What the figures hold at."""
    ratio = f"ratio to {cells[0].name}; " if len(cells) > 1 else ""
    axes = common_axes([capacity.cell for capacity in cells])
    alike = f"every cell: {cell_title(axes)}; " if axes else ""
    return f"at {cells[0].slo.text}; {alike}{ratio}cores: of all processes but the load"


def _rate(rate: float | None) -> Number:
    return Number(rate_text(rate), rate)


def _interval(one: CellCapacity) -> str:
    has = one.capacity
    if one.ceiling == "client":
        return f"at least {rate_text(has.low)}"
    if one.ceiling == "floor":
        return "none"
    low, high = (has.low, has.high) if has.rate is not None else one.bracket
    return f"{rate_text(low)} to {rate_text(high)}"


def _ratio(one: CellCapacity) -> Number:
    return Number("-", None) if one.ratio is None else Number(f"{one.ratio[0]:.2f}", one.ratio[0])


def _ratio_interval(one: CellCapacity) -> str:
    return "-" if one.ratio is None else f"{one.ratio[1]:.2f} to {one.ratio[2]:.2f}"


def _holds(one: CellCapacity, need: float | None) -> Cell:
    if need is None:
        return "-"
    return {
        True: Text("holds", "good"),
        False: Text("does not", "bad"),
        None: Text("open", "doubt"),
    }[one.holds(need)]


def _launches(cells: Sequence[CellCapacity]) -> Table:
    rows = [
        (one, search, estimate)
        for one in cells
        for search, estimate in zip(one.ended, one.capacity.launches, strict=True)
    ]
    fields: Fields[tuple[CellCapacity, LaunchSearch, LaunchEstimate]] = (
        (Column("launch"), lambda row: Number(str(row[1].round), row[1].round)),
        (Column("capacity", "req/s"), lambda row: _rate(row[2].rate)),
        (
            Column("error", "%"),
            lambda row: plain(None if row[2].error is None else 100 * row[2].error, 2),
        ),
        (Column("met up to", "req/s"), lambda row: _rate(row[2].low)),
        (Column("missed from", "req/s"), lambda row: _rate(row[2].high)),
        (Column("binds", number=False), lambda row: row[2].binds or "-"),
        (Column("probes"), lambda row: Number(str(len(row[1].probes)), len(row[1].probes))),
        (Column("blocks", detail=True), lambda row: Number(str(row[2].blocks), row[2].blocks)),
        (Column("block", "s", detail=True), lambda row: plain(row[2].block_s or None, 3)),
        (
            Column("autocorrelation", "s", detail=True),
            lambda row: plain(row[2].correlation_s or None, 2),
        ),
    )
    note = "error: standard error from blocks of time within the launch"
    return table_of("Each launch for itself", fields, rows, (note,), group=lambda row: row[0].name)


def _boundary(cells: Sequence[CellCapacity]) -> Iterator[Block]:
    rows = [(one, line) for one in cells for line in one.boundary]
    yield _lines("The probes nearest to the capacity", rows)
    bars = [
        (
            ", ".join(filter(None, [one.name, f"{rate_text(_at(one))} req/s"])),
            [line.trial for line in one.boundary],
            one.limit,
        )
        for one in cells
        if any(line.trial.usage for line in one.boundary)
    ]
    if bars:
        yield Charts(partial(cpu_of_rows, "CPU by process at the capacity", bars))


def _at(one: CellCapacity) -> float | None:
    return one.capacity.rate or one.capacity.low or one.capacity.high


def _probes(one: CellCapacity, several: bool) -> Block:
    table = _lines("Every probe", [(one, line) for line in one.probes])
    return Folded(one.name, (table,)) if several else table


def _lines(caption: str, rows: Sequence[tuple[CellCapacity, ProbeLine]]) -> Table:
    slo = rows[0][0].slo if rows else None
    objectives = () if slo is None else slo.objectives
    fields: Fields[tuple[CellCapacity, ProbeLine]] = (
        (Column("probe"), lambda row: f"{row[1].round}.{row[1].number}"),
        (Column("rate", "req/s"), lambda row: _rate(row[1].probe.rate)),
        (Column("s"), lambda row: plain(row[1].probe.seconds, 2)),
        (Column("answered", "req/s", detail=True), lambda row: plain(mean_rate(row[1].trial))),
        *((_column(one), partial(_value, at, one)) for at, one in enumerate(objectives)),
        (Column("p50", "ms", detail=True), lambda row: milliseconds(latency_of(row[1], 0.5))),
        (Column("replicas"), lambda row: count(row[1].probe.replicas)),
        (Column("cores", "used", detail=True), lambda row: plain(cores_of(row[1].trial), 3)),
        (
            Column("SLO", number=False),
            lambda row: Text(row[1].word, _TONES.get(row[1].word, "plain")),
        ),
    )
    notes = ("probe: launch and number; s: measured seconds",)
    return table_of(caption, fields, rows, notes, group=lambda row: row[0].name)


def _column(one: Objective) -> Column:
    return Column(one.name, "ms" if one.timed else "%")


def _value(at: int, one: Objective, row: tuple[CellCapacity, ProbeLine]) -> Number:
    value = row[1].values[at]
    tone: Tone = "plain"
    if value is not None and not one.met_by(value):
        tone = "bad"
    if one.timed:
        number = milliseconds(value)
        return Number(number.text, number.value, tone)
    return Number("-", None) if value is None else Number(f"{100 * value:.3g}", 100 * value, tone)


def _charts(one: CellCapacity, several: bool) -> Iterator[Block]:
    yield Charts(partial(_drawn, one, several))


def _drawn(one: CellCapacity, several: bool) -> Iterator[Chart]:
    """The time that binds, and the share of what is beyond the limit, over the rate."""
    name = f": {one.name}" if several else ""
    has = one.capacity
    marks = [
        charts.Mark(rate, word)
        for rate, word in ((has.low, "low"), (has.rate, "capacity"), (has.high, "high"))
        if rate is not None
    ]
    timed = [each for each in one.slo.objectives if each.timed]
    binding = one.binding if one.binding in timed else next(iter(timed), None)
    shown = one.binding or next(iter(one.slo.objectives))
    caption = "Points: probes. Rules: the capacity and its 95 % interval."
    if binding is not None:
        at = one.slo.objectives.index(binding)
        series = {
            f"launch {search.round}": [
                charts.LinePoint(line.probe.rate, (line.values[at] or 0.0) / NS_PER_MS)
                for line in sorted(one.probes, key=lambda line: line.probe.rate)
                if line.round == search.round and line.values[at]
            ]
            for search in one.searches
        }
        limit = f"The limit is {figure_text(binding, binding.limit)}."
        yield from _lines_chart(
            f"{binding.name} over the rate{name}", series, "ms", marks, f"{limit} {caption}"
        )
    misses = {
        f"launch {search.round}": [
            charts.LinePoint(line.probe.rate, 100 * value)
            for line in sorted(one.probes, key=lambda line: line.probe.rate)
            if line.round == search.round
            and (value := line.probe.slices[shown.name].value) is not None
            and shown.kind != "mean"
            and value > 0
        ]
        for search in one.searches
    }
    kind = "Gaps between events" if shown.metric == ITL else "Requests"
    what = "Requests that failed" if shown.kind == "errors" else f"{kind} beyond the limit"
    allowed = "" if shown.allowed is None else f"Allowed: {100 * shown.allowed:g} %."
    yield from _lines_chart(
        f"{what} over the rate{name}", misses, "%", marks, f"{allowed} {caption}"
    )


def _lines_chart(
    title: str,
    series: dict[str, list[charts.LinePoint]],
    unit: str,
    marks: Sequence[charts.Mark],
    caption: str,
) -> Iterator[Chart]:
    known = {key: points for key, points in series.items() if points}
    if known:
        spans = (
            f"{name}: {number(min(values))} to {number(max(values))}"
            for name, points in known.items()
            for values in ([one.value for one in points],)
        )
        words = f"{title}, {unit} by requests/s due. {'; '.join(spans)}."
        lines = Lines(known, "requests/s due", unit, "log", True, marks, joined=False)
        yield Chart(title, lines, words, caption)
