"""What a press run says: settings held against each other, every row, throughput over clients.

Rule: figures are those of the JSON, the published columns keep their names and units; published
figures stand in tables and columns of their own and are never called measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from serve_bench.benchmarks.ladder.charts import Curve, curves_of
from serve_bench.benchmarks.ladder.document import (
    at_both,
    clients_cell,
    host_cell,
    how,
    inside_blocks,
    load_sections,
    mark_text,
    replicas_of,
    services_there,
    traced_sections,
)
from serve_bench.benchmarks.ladder.summary import NOT_VISIBLE
from serve_bench.benchmarks.parts.about_run import method, run_document
from serve_bench.benchmarks.parts.blocks import (
    NOTHING,
    Fields,
    count,
    cpu_of_rows,
    distinct,
    errors,
    limit_words,
    page_doubts,
    percent,
    section,
    table_of,
)
from serve_bench.benchmarks.parts.published import PRESS, press_table, published_notes, reference
from serve_bench.benchmarks.parts.rows import Page, page_of
from serve_bench.benchmarks.parts.texts import bound_sign, latency
from serve_bench.benchmarks.press.summary import (
    Comparison,
    PressRow,
    Setting,
    axis_words,
    comparisons,
    settings_of,
)
from serve_bench.benchmarks.press.words import clients, findings, rate, row_findings, setting_lines
from serve_bench.core.document import (
    Block,
    Cell,
    Charts,
    Column,
    Document,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    Text,
    sentences,
)
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import Result

DEFINITIONS: Final = (
    "aveTime: the mean latency of the completed requests",
    "totalTime: from the first connect begun to the end of the last request; a row that time ends "
    "is cut",
    "qps: completed requests / totalTime; published: clients x requests of each / totalTime, which "
    "is the same where none failed and none was cut",
    "CPU: of all processes of the service, % of a core, without the client; the mean over launches",
    f"knee: the fewest clients with qps >= {KNEE:g} x the best of the ladder",
    f"collapse: more clients than the best, and qps < {COLLAPSE:g} x the best; a step counts by "
    "the median of its runs",
)

CAUSES: Final = {
    "replica loop": "one replica's event loop",
    "replica CPU": "CPU of all replicas",
    "concurrency limit": "requests at max_ongoing_requests x replicas",
    "router back-off": "Serve's router sleeps while slots are free",
    "downstream deployment": "a deployment behind the first",
    "offered load": "nothing is full: more clients would bring more",
}
"""What limited a row, where the word alone does not say it."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a press run says. Options: `published` adds the published figures, `exclude_connect`
    columns without the time to connect."""
    page = page_of(result, where=options.where)
    settings = settings_of(result, page)
    return run_document(
        result,
        options.where,
        findings=sentences(findings(page, settings)),
        doubts=page_doubts(page),
        sections=_sections(result, page, settings, options),
        facts=_request(result),
    )


def _request(result: Result) -> Iterator[tuple[str, str]]:
    suite = result.run.suite
    yield "service", services_there(result) or _app_words(result)
    each = suite.get("requests_per_client")
    yield (
        "client",
        "raw, closed loop: each client is a connection that sends "
        f"{'requests' if each is None else f'{each} requests'}, one after the other; a row ends "
        f"after {suite.get('max_row_s', 0):g} s at the latest, a request after "
        f"{suite.get('timeout_s', 0):g} s",
    )


def _app_words(result: Result) -> str:
    cell = (result.run.suite.get("cells") or [{}])[0]
    samples = cell.get("rows_per_request")
    request = f"a JSON request of {samples} samples, {cell.get('sparse_features')} strings each"
    if result.run.suite.get("app") == "press_noop":
        return f"{request} -> an app that answers at once, no model"
    replicas = replicas_of(result)
    facts = next(iter(replicas), {})
    torch = f", torch {facts['torch']}" if facts.get("torch") else ""
    devices = sorted({str(one["device"]) for one in replicas if one.get("device")})
    on = f" on {' / '.join(axis_words('device', one) for one in devices)}" if devices else ""
    return (
        f"{request}, hashed to ids -> DLRM ranker ({cell.get('ranker')}; tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows', 0):,} x {cell.get('width')}"
        f"{torch}){on}"
    )


def _sections(
    result: Result, page: Page, settings: Sequence[Setting], options: ReportOptions
) -> Iterator[Section]:
    if settings:
        fields = (*SETTINGS, PUBLISHED_BEST) if options.published else SETTINGS
        table = table_of(
            "Settings",
            fields,
            settings,
            doubts=lambda place: at_both(
                row_findings(place.knee),
                row_findings(place.best) if place.best is not place.knee else [],
            ),
        )
        yield Section("results", "Results", (table,), "headline")
        if compared := comparisons(settings):
            words = Prose(tuple(one.sentence for one in compared), listed=True)
            ratios = [_ratios(one) for one in compared if len(one.rounds) > 1]
            yield Section("compared", "Settings compared", (words, *ratios), "table")
        rows = tuple(_rows_blocks(settings, options.exclude_connect))
        yield Section("rows", "Every row", rows, "table")
    else:
        nothing = Prose(("Nothing was measured.",), "doubt")
        yield Section("results", "Results", (nothing,), "headline")
    if options.published:
        yield Section("published", "Published", tuple(_published(settings)), "table")
    yield from how(page, DEFINITIONS, ("ratio:", "requests/s:", "hint, offered"))
    yield from load_sections("clients", {"": _curves(settings, options.published)})
    names = distinct([one.name for one in settings])
    use = (*_use(names, settings), *inside_blocks(page))
    yield from section("cpu", "CPU, GPU and limits by row", use)
    yield from traced_sections(zip(names, [one.ladder for one in settings], strict=True))
    yield method(result)


def _curves(settings: Sequence[Setting], published: bool) -> list[Curve]:
    """The ladder of each setting, with the published table that is like it, if wanted."""
    tables = [press_table(one.device, one.log_level) if published else None for one in settings]
    names = distinct([one.name for one in settings])
    return curves_of(names, [one.ladder for one in settings], tables)


Sampled = tuple[Setting, PressRow]


def _qps(value: float | None) -> Number:
    return Number(rate(value), value)


def _ms(value: float | None) -> Number:
    return Number(latency(value), value)


def _us(value: float | None) -> Number:
    """Microseconds: a decimal where it says something."""
    if value is None:
        return NOTHING
    text = f"{value:.1f}" if value < 10_000 else f"{value:.0f}"
    return Number(bound_sign(value) + text, value)


def _published_best(setting: Setting) -> Cell:
    """The best of the published table of the same device and log level, with its clients."""
    table = press_table(setting.device, setting.log_level)
    if table is None:
        return "-"
    best = max(table["rows"], key=lambda row: row["qps"])
    return Text(f"{rate(best['qps'])} ({best['clients']:,})", "quiet")


def _setting_text(setting: Setting) -> Text:
    knee = setting.knee
    if knee is None or setting.best is None:
        return Text(setting.name, below=(setting.ladder.without,))
    return Text(setting.name, below=(limit_words(knee.limited),) if setting.visible else ())


def _knee(cell: Callable[[PressRow], Cell]) -> Callable[[Setting], Cell]:
    """A cell of the row at the knee; a dash where there is none."""
    return lambda one: NOTHING if one.knee is None else cell(one.knee)


def _alone(one: Setting) -> Cell:
    return NOTHING if one.one_client is None else _us(one.one_client.ave_us)


SETTINGS: Final[Fields[Setting]] = (
    (Column("setting", number=False), _setting_text),
    (Column("best", "qps"), lambda one: _qps(one.best_qps)),
    (Column("with", "clients"), lambda one: count(one.best.clients if one.best else None)),
    (Column("knee", "clients"), _knee(lambda row: count(row.clients))),
    (Column("p50", "ms, knee"), _knee(lambda row: _ms(row.p50_ms))),
    (Column("p99", "ms, knee", detail=True), _knee(lambda row: _ms(row.p99_ms))),
    (Column("aveTime", "us, 1 client", detail=True), _alone),
    (Column("CPU", "%, knee"), _knee(lambda row: percent(row.use.service))),
    (Column("GPU", "%, knee", detail=True), _knee(lambda row: percent(row.use.gpu))),
)
PUBLISHED_BEST: Final = (Column("published best", "qps (clients)"), _published_best)
ROWS: Final[Fields[PressRow]] = (
    (Column("clients"), lambda row: clients_cell(row.line)),
    (
        Column("aveTime", "us"),
        lambda row: Text(row.line.status, "doubt") if row.qps is None else _us(row.ave_us),
    ),
    (Column("totalTime", "us", detail=True), lambda row: _us(row.total_us)),
    (Column("qps", "1/s"), lambda row: _qps(row.qps)),
    (Column("p50", "ms", detail=True), lambda row: _ms(row.p50_ms)),
    (Column("p99", "ms"), lambda row: _ms(row.p99_ms)),
    (Column("errors"), lambda row: errors(row.line.failed)),
    (Column("cut"), lambda row: count(row.cut, "doubt" if row.ended_by_time else "plain")),
    (Column("CPU", "%", detail=True), lambda row: percent(row.use.service)),
    (Column("GPU", "%"), lambda row: percent(row.use.gpu)),
    (Column("limit", number=False), lambda row: row.limited.cause if row.limited else "-"),
)
CONNECTED: Final[Fields[PressRow]] = (
    (Column("connected", "us"), lambda row: _us(row.without_us)),
    (Column("connected", "1/s"), lambda row: _qps(row.qps_without)),
)
USE: Final[Fields[Sampled]] = (
    (Column("clients"), lambda one: clients_cell(one[1].line)),
    (Column("service", "% of a core"), lambda one: percent(one[1].use.service)),
    (Column("client", "% of a core"), lambda one: percent(one[1].use.client)),
    (Column("host", "% of a core"), lambda one: host_cell(one[1].line)),
    (Column("GPU", "%"), lambda one: percent(one[1].use.gpu)),
    (
        Column("limited by", number=False),
        lambda one: limit_words(one[1].limited) if one[0].visible else NOT_VISIBLE,
    ),
)
PUBLISHED: Final[Fields[Mapping[str, Any]]] = (
    (Column("clients"), lambda row: f"{row['clients']:,}"),
    (Column("aveTime", "us"), lambda row: f"{row['ave_us']:.5f}".rstrip("0").rstrip(".")),
    (Column("totalTime", "us"), lambda row: f"{row['total_us']:.0f}"),
    (Column("qps", "1/s"), lambda row: f"{row['qps']:.5f}"),
)


def _ratios(one: Comparison) -> Table:

    def at(round_: int) -> Callable[[tuple[str, Mapping[int, float]]], Cell]:
        return lambda row: (
            Number(f"{row[1][round_]:.3f}", row[1][round_]) if round_ in row[1] else NOTHING
        )

    rows = [("best", one.rounds), *((clients(users), each) for users, each in one.steps.items())]
    return table_of(
        f"qps of {one.other.name} over those of {one.base.name}",
        [
            (Column("", number=False), lambda row: row[0]),
            *((Column(f"{one.word} {round_}"), at(round_)) for round_ in one.rounds),
        ],
        rows,
    )


def _rows_blocks(settings: Sequence[Setting], exclude_connect: bool) -> Iterator[Block]:
    for one in settings:
        yield _rows(one, exclude_connect)
        yield Prose(tuple(setting_lines(one)), listed=True)
    causes = {row.limited.cause for one in settings for row in one.rows if row.limited is not None}
    words = [f"{cause} = {meaning}" for cause, meaning in CAUSES.items() if cause in causes]
    if words:
        yield Prose((f"Limits: {'; '.join(words)}.",), "quiet")


def _rows(setting: Setting, exclude_connect: bool) -> Table:
    notes = [f"As published, the first row is {setting.rows[0].name}."]
    mark = (Column("mark", number=False), lambda row: mark_text(setting.ladder, row.line))
    fields: list[tuple[Column, Callable[[PressRow], Cell]]] = [*ROWS, mark]
    if exclude_connect:
        fields[4:4] = CONNECTED
        notes.append("Connected: totalTime and qps without the time to connect.")
    several = f", mean of {setting.launches} launches, errors of all"
    return table_of(
        f"{setting.name}{several if setting.launches > 1 else ''}",
        fields,
        setting.rows,
        notes,
        row_findings,
    )


def _published(settings: Sequence[Setting]) -> Iterator[Block]:
    """The published tables of the same devices and log levels, and what else is published."""
    about = reference(PRESS)
    for one in settings:
        table = press_table(one.device, one.log_level)
        if table is None:
            yield Prose((f"There is no published table like {one.name}.",), "quiet")
        else:
            caption = (
                f"Published, not measured here, like {one.name}: {about['source']}; "
                f"{about['hardware']}; {table['device']}, log level {table['log_level']}; CPU "
                f"{table['cpu_percent']} %, GPU {table['gpu_percent']} %"
            )
            yield table_of(caption, PUBLISHED, table["rows"])
    notes = Prose(published_notes("press"), "quiet", listed=True)
    yield Folded("Published, not measured here", (notes,))


def _use(names: Sequence[str], settings: Sequence[Setting]) -> Iterator[Block]:
    """CPU by process in charts; of service, client and host in a table, with limited by."""
    sampled = [
        (name, one, [row for row in one.rows if any(trial.usage for trial in row.line.trials)])
        for name, one in zip(names, settings, strict=True)
    ]
    for name, _, rows in sampled:
        title = "CPU by process" if len(settings) == 1 else f"CPU by process: {name}"
        bars = [(row.line.row.label, row.line.trials, row.limited) for row in rows]
        yield Charts(partial(cpu_of_rows, title, bars))
    if every := [(one, row) for _, one, rows in sampled for row in rows]:
        caption = "CPU of service, client and host"
        table = table_of(caption, USE, every, group=lambda one: one[0].name)
        yield Folded(caption, (table,))
