"""What a press run says: settings held against each other, every row, throughput over clients.

Rule: figures are those of the JSON, the published columns keep their names and units; published
figures stand in tables and columns of their own and are never called measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.benchmarks.ladder.charts import (
    Curve,
    curves_of,
    knee_curves,
    latency_charts,
    throughput_charts,
)
from serve_bench.benchmarks.ladder.document import (
    brief,
    clients_cell,
    failed_messages,
    how,
    inside_blocks,
    mark_text,
)
from serve_bench.benchmarks.ladder.summary import NOT_VISIBLE, entries_of
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, asked, machine, method
from serve_bench.benchmarks.parts.pieces import (
    NOTHING,
    Fields,
    count,
    cpu_of_rows,
    distinct,
    doubted,
    errors,
    gaps,
    limit_words,
    page_doubts,
    percent,
    section,
    sentence,
    table_of,
)
from serve_bench.benchmarks.parts.published import PRESS, press_table, published_notes, reference
from serve_bench.benchmarks.parts.rows import Entry, Page, page_of
from serve_bench.benchmarks.parts.texts import bound_sign, latency, number
from serve_bench.benchmarks.press.lines import clients, rate, setting_lines
from serve_bench.benchmarks.press.summary import (
    Comparison,
    PressRow,
    Setting,
    axis_words,
    comparisons,
    settings_of,
)
from serve_bench.core.document import (
    Block,
    Cell,
    Charts,
    Column,
    Document,
    Facts,
    Finding,
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

PUBLISHED_TEST: Final = "docs/press.md, as published: recommand press test results, 2018-03-02"
FORMULAS: Final = (
    ("aveTime", "the mean latency of the completed requests", PUBLISHED_TEST),
    (
        "totalTime",
        "from the first connect begun to the end of the last request; a row that time ends is cut",
        PUBLISHED_TEST,
    ),
    (
        "qps",
        "completed requests / totalTime; published: clients x requests of each / totalTime, which "
        "is the same where none failed and none was cut",
        PUBLISHED_TEST,
    ),
    (
        "CPU",
        "of all processes of the service, % of a core, without the client; the mean over launches",
        "docs/press.md",
    ),
    (
        "knee",
        f"the fewest clients with qps >= {KNEE:g} x the best",
        "docs/press.md; serve_bench/core/ladder.py",
    ),
    (
        "collapse",
        f"more clients than the best, and qps < {COLLAPSE:g} x the best; a row counts by the "
        "median of its runs",
        "docs/press.md; serve_bench/core/ladder.py",
    ),
    (
        "accounting of a row",
        "clients x requests of each = completed + failed, by class + cut",
        "docs/press.md",
    ),
    (
        "settings compared",
        "the best qps of one over the best of the other within a launch; a direction is claimed "
        "where all of n launches have it, which chance brings 1 time in 2^(n - 1)",
        "serve_bench/benchmarks/press/summary.py",
    ),
)
"""Beside those that hold for all runs."""
DEFINITIONS: Final = tuple(f"{name}: {text}" for name, text, _ in FORMULAS[:6])

CAUSES: Final = {
    "replica loop": "one replica's event loop",
    "replica CPU": "CPU of all replicas",
    "concurrency limit": "requests at max_concurrent_queries x replicas",
    "downstream deployment": "a deployment behind the first",
    "offered load": "nothing is full: more clients would bring more",
}
"""What limited a row, where the word alone does not say it."""

MOST_COMPARED: Final = 2
"""Comparisons among the findings; all of them stand with their ratios."""

LEFT_OUT: Final = 1.1
"""The mean by Little's law that is so many times that of the completed requests is stated."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a press run says. Options: `published` adds the published figures, `exclude_connect`
    columns without the time to connect."""
    run, page, settings = result.run, page_of(result, where=options.where), settings_of(result)
    return Document(
        title=f"serve-bench press, run {run.id}",
        command=run.command,
        run=Facts((*_request(result), *asked(run).pairs)),
        machine=machine(run),
        findings=sentences(_findings(page, settings)),
        doubts=tuple(page_doubts(page)),
        sections=tuple(_sections(result, page, settings, options)),
        where=options.where,
        argv=run.argv,
        records=(options.where,) if options.where else (),
        picture=lambda: _over_clients(_curves(settings, options.published)),
    )


def _request(result: Result) -> Iterator[tuple[str, str]]:
    """The service, the requests and the client in words."""
    suite = result.run.suite
    urls = suite.get("urls")
    if urls:
        named = ", ".join(f"{name} {url}" for name, url in urls.items())
        yield "service", f"there already: {named}; what is inside it is {NOT_VISIBLE}"
    else:
        yield "service", _app_words(result)
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
    replicas = [one for deploy in result.deploys for one in deploy.proof.get("replicas", ())]
    facts = replicas[0] if replicas else {}
    torch = f", torch {facts['torch']}" if facts.get("torch") else ""
    devices = sorted({str(one["device"]) for one in replicas if one.get("device")})
    on = f" on {' / '.join(axis_words('device', one) for one in devices)}" if devices else ""
    return (
        f"{request}, hashed to ids -> DLRM ranker ({cell.get('ranker')}; tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows', 0):,} x {cell.get('width')}"
        f"{torch}){on}"
    )


# ------------------------------------------------------------------------------------ findings


def _findings(page: Page, settings: Sequence[Setting]) -> Iterator[str]:
    """What the figures support: gaps, the best setting, comparisons, collapses, doubts."""
    rows = [row for one in settings for row in one.rows]
    missing = sum(row.line.status != "measured" for row in rows)
    yield from gaps(missing, len(rows), failed_messages(page), "row")
    sound = [one for one in settings if one.best is not None and one.knee is not None]
    if not sound:
        ended = any(one.ladder.finished for one in settings)
        why = "No row can be relied on" if ended else "No setting was climbed to its end"
        yield f"{why}: there is no best and no knee."
        return
    top = max(sound, key=lambda one: one.best_qps or 0.0)
    yield _headline(top, len(settings))
    if top.visible and top.knee is not None and top.knee.limited is not None:
        yield sentence(f"What limits {top.name} at its knee: {top.knee.limited.text}")
    yield from (one.sentence for one in comparisons(settings)[:MOST_COMPARED])
    yield from _collapses(settings, sound)
    warnings = [
        _warnings(row, entries_of(one.ladder, page).get(row.line.row))
        for one in settings
        for row in one.rows
    ]
    cut = sum(1 for row in rows if row.ended_by_time)
    further = [f"cut by time ({cut} of {len(rows)} rows)"] if cut else []
    yield from doubted(warnings, page.warnings, further=further)


def _headline(top: Setting, settings: int) -> str:
    best, knee = top.best, top.knee
    assert best is not None and knee is not None
    verb = "serves most," if settings > 1 else "serves at most"
    waits = "" if knee.p50_ms is None else f" at p50 {latency(knee.p50_ms)} ms"
    served = f"{top.name} {verb} {rate(top.best_qps)} requests/s with {clients(best.clients)}"
    return sentence(served + (waits if knee is best else f"; its knee is {clients(knee)}{waits}"))


def _collapses(settings: Sequence[Setting], sound: Sequence[Setting]) -> Iterator[str]:
    fallen = [
        f"{one.name} collapses with {clients(each.at)} to {rate(each.qps)} requests/s, "
        f"{each.share:.2f} of its best"
        + ("" if each.agree or len(each.runs) < 2 else f" ({len(each.runs)} runs that disagree)")
        for one in settings
        for each in one.collapses[:1]
    ]
    if fallen:
        yield sentence("; ".join(fallen))
    elif all(one.best and max(one.ladder.rates) > one.best.clients for one in sound):
        last = min(max(one.ladder.rates) for one in sound)
        yield f"No collapse was seen up to {clients(last)}."


# ------------------------------------------------------------------------------------ sections


def _sections(
    result: Result, page: Page, settings: Sequence[Setting], options: ReportOptions
) -> Iterator[Section]:
    if settings:
        first = _settings(page, settings, options.published)
        yield Section("results", "Results", (first,), "headline")
        if compared := comparisons(settings):
            words = Prose(tuple(one.sentence for one in compared), listed=True)
            ratios = [_ratios(one) for one in compared if len(one.rounds) > 1]
            yield Section("compared", "Settings compared", (words, *ratios), "table")
        rows = tuple(_rows_blocks(page, settings, options.exclude_connect))
        yield Section("rows", "Every row", rows, "table")
    else:
        nothing = Prose(("Nothing was measured.",), "doubt")
        yield Section("results", "Results", (nothing,), "headline")
    if options.published:
        yield Section("published", "Published", tuple(_published(settings)), "table")
    beside = _beside(result, settings)
    yield Section("service", "Service", (beside,), "table" if options.published else "further")
    yield from how(page, DEFINITIONS, ("ratio:", "requests/s:", "hint, offered"))
    curves = _curves(settings, options.published)
    rates = throughput_charts("Requests/s over clients", curves)
    yield from section("throughput", "Throughput over clients", rates)
    knees = Charts(partial(knee_curves, curves))
    waits = (*latency_charts("Latency over clients", curves), knees)
    yield from section("latency", "Latency", waits)
    names = distinct([one.name for one in settings])
    use = (*_use(names, settings), *inside_blocks(page))
    yield from section("cpu", "CPU and GPU, and what limited each row", use)
    yield method(result, (*GENERAL_FORMULAS, *FORMULAS))


def _curves(settings: Sequence[Setting], published: bool) -> list[Curve]:
    """The ladder of each setting, with the published table that is like it, if wanted."""
    tables = [press_table(one.device, one.log_level) if published else None for one in settings]
    names = distinct([one.name for one in settings])
    return curves_of(names, [one.ladder for one in settings], tables)


def _over_clients(curves: Sequence[Curve]) -> Iterator[Block]:
    """Requests/s and latency: the picture of the run."""
    yield from throughput_charts("Requests/s over clients", curves)
    yield from latency_charts("Latency over clients", curves)


# ------------------------------------------------------------------------------------- figures

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


def _limit(row: PressRow) -> str:
    """What limited the row, in a word or two."""
    return "-" if row.limited is None else row.limited.cause


def _host(row: PressRow) -> Number:
    if row.use.host is None:
        return NOTHING
    of = f" of {100 * row.use.cores}" if row.use.cores else ""
    return Number(f"{row.use.host:.0f}{of}", row.use.host)


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


SETTINGS: Final[Fields[Setting]] = (
    (Column("setting", number=False), _setting_text),
    (Column("best", "qps"), lambda one: _qps(one.best_qps)),
    (Column("with", "clients"), lambda one: count(one.best.clients if one.best else None)),
    (Column("knee", "clients"), lambda one: count(one.knee.clients if one.knee else None)),
    (Column("p50", "ms, knee"), lambda one: _ms(one.knee.p50_ms if one.knee else None)),
    (Column("p99", "ms, knee", spare=True), lambda one: _ms(one.knee.p99_ms if one.knee else None)),
    (
        Column("aveTime", "us, 1 client", spare=True),
        lambda one: _us(one.one_client.ave_us if one.one_client else None),
    ),
    (
        Column("CPU", "%, knee", spare=1),
        lambda one: percent(one.knee.use.service if one.knee else None),
    ),
    (
        Column("GPU", "%, knee", spare=True),
        lambda one: percent(one.knee.use.gpu if one.knee else None),
    ),
)
PUBLISHED_BEST: Final = (Column("published best", "qps (clients)"), _published_best)
ROWS: Final[Fields[PressRow]] = (
    (Column("clients"), lambda row: clients_cell(row.line)),
    (
        Column("aveTime", "us"),
        lambda row: Text(row.line.status, "doubt") if row.qps is None else _us(row.ave_us),
    ),
    (Column("totalTime", "us", spare=3), lambda row: _us(row.total_us)),
    (Column("qps", "1/s"), lambda row: _qps(row.qps)),
    (Column("p50", "ms", spare=2), lambda row: _ms(row.p50_ms)),
    (Column("p99", "ms"), lambda row: _ms(row.p99_ms)),
    (Column("errors"), lambda row: errors(row.line.failed)),
    (Column("cut", spare=1), lambda row: count(row.cut, "doubt" if row.ended_by_time else "plain")),
    (Column("CPU", "%", spare=2), lambda row: percent(row.use.service)),
    (Column("GPU", "%"), lambda row: percent(row.use.gpu)),
    (Column("limit", number=False), _limit),
)
CONNECTED: Final[Fields[PressRow]] = (
    (Column("connected", "us"), lambda row: _us(row.without_us)),
    (Column("connected", "1/s"), lambda row: _qps(row.qps_without)),
)
USE: Final[Fields[Sampled]] = (
    (Column("clients"), lambda one: clients_cell(one[1].line)),
    (Column("service", "% of a core"), lambda one: percent(one[1].use.service)),
    (Column("client", "% of a core"), lambda one: percent(one[1].use.client)),
    (Column("host", "% of a core"), lambda one: _host(one[1])),
    (Column("GPU", "%"), lambda one: percent(one[1].use.gpu)),
    (
        Column("what limited", number=False),
        lambda one: limit_words(one[1].limited) if one[0].visible else NOT_VISIBLE,
    ),
)
PUBLISHED: Final[Fields[Mapping[str, Any]]] = (
    (Column("clients"), lambda row: f"{row['clients']:,}"),
    (Column("aveTime", "us"), lambda row: f"{row['ave_us']:.5f}".rstrip("0").rstrip(".")),
    (Column("totalTime", "us"), lambda row: f"{row['total_us']:.0f}"),
    (Column("qps", "1/s"), lambda row: f"{row['qps']:.5f}"),
)

# ------------------------------------------------------------------------------------ settings


def _settings(page: Page, settings: Sequence[Setting], published: bool) -> Table:
    """Each setting: its best, its knee, one client alone, and what was used at the knee."""
    fields = (*SETTINGS, PUBLISHED_BEST) if published else SETTINGS
    return table_of("Settings", fields, settings, doubts=lambda one: _at_both(page, one))


def _at_both(page: Page, setting: Setting) -> list[Finding]:
    """What is doubted of the knee, and of the best."""
    rows = {"at the knee": setting.knee, "at the best": setting.best}
    if setting.best is setting.knee:
        del rows["at the best"]
    entries = entries_of(setting.ladder, page)
    return brief(
        {
            where: row_findings(row, entries.get(row.line.row))
            for where, row in rows.items()
            if row is not None
        }
    )


def _ratios(one: Comparison) -> Table:
    """The ratio of every launch: best to best, and at each number of clients."""

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


# ---------------------------------------------------------------------------------------- rows


def _rows_blocks(page: Page, settings: Sequence[Setting], exclude_connect: bool) -> Iterator[Block]:
    for one in settings:
        yield _rows(page, one, exclude_connect)
        yield Prose(tuple(setting_lines(one)), listed=True)
    causes = {row.limited.cause for one in settings for row in one.rows if row.limited is not None}
    words = [f"{cause} = {meaning}" for cause, meaning in CAUSES.items() if cause in causes]
    if words:
        yield Prose((f"What limited a row: {'; '.join(words)}.",), "quiet")


def _rows(page: Page, setting: Setting, exclude_connect: bool) -> Table:
    """All rows of a setting."""
    notes = [f"As published, the first row is {setting.rows[0].name}."]
    ladder, entries = setting.ladder, entries_of(setting.ladder, page)
    mark = Column("mark", number=False)
    fields = [*ROWS, (mark, lambda row: mark_text(ladder, row.line))]
    if exclude_connect:
        fields[4:4] = CONNECTED
        notes.append("Connected: totalTime and qps without the time to connect.")
    several = f", mean of {setting.launches} launches, errors of all"
    return table_of(
        f"{setting.name}{several if setting.launches > 1 else ''}",
        fields,
        setting.rows,
        notes,
        lambda row: row_findings(row, entries.get(row.line.row)),
    )


def _warnings(row: PressRow, entry: Entry | None) -> list[Any]:
    """Those of a row. One of a fixed number of requests is one window by its nature, so that it has
    but one is no doubt."""
    counted = row.line.row.requests_each is not None
    every = () if entry is None else entry.warnings
    return [one for one in every if not (counted and one.code == "few-windows")]


def row_findings(row: PressRow, entry: Entry | None) -> list[Finding]:
    """What failed and what is doubted of a row, that time cut it, and what it lacks."""
    out: list[Finding] = []
    if entry is not None:
        out += replace(entry, warnings=tuple(_warnings(row, entry))).findings
    done = f"{row.line.completed:,} of {row.asked or 0:,} requests were completed, {row.cut:,} not"
    if row.ended_by_time:
        broken_off = any(trial.flags.get("interrupted") for trial in row.line.trials)
        late = f", {row.late:,} ended after that" if row.late else ""
        out.append(
            Finding(f"{done}{late}", "interrupted" if broken_off else "cut by time", "doubt")
        )
        out += sentences(_left_out(row), "doubt")
    if row.unaccounted:
        words = (
            f"{row.asked or 0:,} requests asked for, but {row.line.completed:,} completed + "
            f"{row.line.errors:,} failed + {row.cut:,} cut: do not trust this row"
        )
        out.append(Finding(words, "accounting", "doubt"))
    return out


def _left_out(row: PressRow) -> Iterator[str]:
    """Of a row that time ended, where those still in flight would have changed the mean latency."""
    waiting = sum(trial.counts.in_flight for trial in row.line.trials)
    if not waiting or not row.qps_without or not row.ave_us:
        return
    mean_us = 1e6 * row.clients / row.qps_without
    if mean_us > LEFT_OUT * row.ave_us:
        what = "in no latency: aveTime and the percentiles are too low"
        if row.line.distributions["latency"].lower_bounds:
            what = "known to take longer: figures marked > are lower bounds"
        yield (
            f"{waiting:,} requests were still in flight, and are {what}; clients / qps gives a "
            f"mean of {number(mean_us, 5)} us"
        )


# ----------------------------------------------------------------------------------- published


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


def _beside(result: Result, settings: Sequence[Setting]) -> Table:
    """Settings here, and what stands for them in the published run."""
    about, most = reference(PRESS), result.run.suite.get("ladder") or {}
    service, cells = about["service"], [one.cell for one in settings if one.cell]

    def values(axis: str) -> str:
        return " / ".join(dict.fromkeys(str(cell.get(axis, "-")) for cell in cells))

    batch, samples = values("max_batch_size"), values("rows_per_request")

    steps = [row.clients for one in settings for row in one.rows]
    rows = [
        (
            f"clients up to {max([*(most.get('steps') or ()), *steps], default=0):,}",
            f"at most {service['max_connection']:,} connections",
        )
    ]
    if cells:
        devices = sorted({one.device for one in settings if one.device})
        on = " / ".join(axis_words("device", one) for one in devices) or "no model"
        queued = values("max_queued_requests")
        rows = [
            (f"num_replicas {values('num_replicas')}", f"{service['batch_threads']} batch threads"),
            (
                f"max_concurrent_queries {values('max_concurrent_queries')}",
                f"{service['worker_count']} workers",
            ),
            (
                f"max_queued_requests {queued}{' (no limit)' if queued == '-1' else ''}",
                f"queue of {service['batch_queue']} batches",
            ),
            (
                f"max_batch_size {batch} of {samples} samples",
                f"batches of {service['batch_size']} samples",
            ),
            *rows,
            (
                f"log level {values('log_level')}",
                "2 / 3 / 5 (taken for DEBUG / INFO / ERROR)",
            ),
            (f"on {on}", about["hardware"]),
        ]
    fields: Fields[tuple[str, str]] = (
        (Column("here", number=False), lambda row: row[0]),
        (Column("published, not measured here", number=False), lambda row: row[1]),
    )
    return table_of("Here, and as published", fields, rows)


# ----------------------------------------------------------------------------------------- use


def _use(names: Sequence[str], settings: Sequence[Setting]) -> Iterator[Block]:
    """CPU by process in charts; of service, client and host in a table, with what limited."""
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
