"""The tables on the page of a press run: settings, ratios, rows, what was used.

Rule: figures are those of press_json in its units; doubts stand under the row that they are about,
and published figures in columns that say that they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serve_bench.benchmarks.ladder.tables import entries_of
from serve_bench.benchmarks.parts.page import Page
from serve_bench.benchmarks.parts.pieces import NOTHING, count, errors, limit_words, percent
from serve_bench.benchmarks.parts.published import PRESS, press_table, reference
from serve_bench.benchmarks.parts.texts import latency
from serve_bench.benchmarks.press.compare import Comparison
from serve_bench.benchmarks.press.summary import PressRow, Setting
from serve_bench.benchmarks.press.tables import cpu, gpu, limit, micros, rate, row_findings
from serve_bench.core.document import Cell, Column, Number, Row, Table, Text, Tone
from serve_bench.core.result import Row as Load


def qps(value: float | None) -> Number:
    """Requests/s, as the text has them."""
    return Number(rate(value), value)


def ms(value: float | None) -> Number:
    """Of a figure that is kept in ms."""
    return Number(latency(value), value)


def us(value: float | None) -> Number:
    """Of a figure that is kept in us."""
    return Number(micros(value), value)


def _gpus(settings: Sequence[Setting]) -> bool:
    return any(one.device == "cuda" for one in settings)


# ----------------------------------------------------------------------------------- settings


def settings_table(page: Page, settings: Sequence[Setting], published: bool) -> Table:
    """Each setting: its best, its knee, one client alone, and what was used at the knee."""
    gpus, told = _gpus(settings), _published_rows(settings) if published else {}
    columns = [
        Column("setting", number=False),
        Column("best", "qps"),
        Column("clients", "at the best"),
        Column("knee", "clients"),
        Column("p50", "ms at the knee"),
        Column("aveTime", "us, 1 client"),
        Column("CPU", "% of a core, at the knee"),
        *([Column("GPU", "%, at the knee")] if gpus else []),
        *([Column("best", "qps, published")] if told else []),
    ]
    rows = [_setting(page, one, gpus, told) for one in settings]
    notes = ["CPU: all processes of the service, without the client."]
    if told:
        notes.append(
            f"Published, not measured here: {reference(PRESS)['source']}; "
            f"{reference(PRESS)['hardware']}."
        )
    return Table("Settings", tuple(columns), tuple(rows), tuple(notes))


def _published_rows(settings: Sequence[Setting]) -> dict[str, Any]:
    """The published tables that are like a setting, by its name."""
    found = {one.name: press_table(one.device, one.log_level) for one in settings}
    return {name: table for name, table in found.items() if table is not None}


def _setting(page: Page, setting: Setting, gpus: bool, told: Mapping[str, Any]) -> Row:
    alone, knee, best = setting.one_client, setting.knee, setting.best
    ave = us(None if alone is None else alone.ave_us)
    beside: list[Cell] = []
    if told:
        table = told.get(setting.name)
        most = None if table is None else max(row["qps"] for row in table["rows"])
        beside.append(Text(rate(most), "quiet"))
    if knee is None or best is None:
        said = Text(setting.name, below=(setting.ladder.without,))
        cells: list[Cell] = [said, NOTHING, NOTHING, NOTHING, NOTHING, ave, NOTHING]
        return Row((*cells, *([NOTHING] if gpus else []), *beside))
    entries = entries_of(setting.ladder, page)
    below = [limit_words(knee.limited)] if setting.visible else []
    doubts = [one.of("at the knee") for one in row_findings(knee, entries.get(knee.line.row))]
    if best is not knee:
        doubts += [one.of("at the best") for one in row_findings(best, entries.get(best.line.row))]
    cells = [
        Text(setting.name, below=tuple(below)),
        qps(setting.best_qps),
        count(best.clients),
        count(knee.clients),
        ms(knee.p50_ms),
        ave,
        _cpu(setting, knee),
        *([_gpu(setting, knee)] if gpus else []),
    ]
    return Row((*cells, *beside), tuple(doubts))


def _cpu(setting: Setting, row: PressRow) -> Number:
    return Number(cpu(setting, row), row.use.service)


def _gpu(setting: Setting, row: PressRow) -> Number:
    return Number(gpu(setting, row), row.use.gpu)


def ratios_tables(compared: Sequence[Comparison]) -> Iterator[Table]:
    """Of settings that differ in one axis: the ratio of every launch, where there are several."""
    for one in compared:
        if len(one.rounds) < 2:
            continue
        rows = [_ratios("best", one.rounds, list(one.rounds))]
        rows += [
            _ratios(f"{users:,} client{'' if users == 1 else 's'}", found, list(one.rounds))
            for users, found in one.steps.items()
        ]
        yield Table(
            f"qps of {one.other.name} over those of {one.base.name}",
            (Column("", number=False), *(Column(f"{one.word} {at}") for at in one.rounds)),
            tuple(rows),
        )


def _ratios(name: str, found: Mapping[int, float], rounds: Sequence[int]) -> Row:
    figures = (Number(f"{found[at]:.3f}", found[at]) if at in found else NOTHING for at in rounds)
    return Row((name, *figures))


# --------------------------------------------------------------------------------------- rows


def rows_table(page: Page, setting: Setting, published: bool) -> Table:
    """All rows of a setting, with the published ones for as many clients beside."""
    table = press_table(setting.device, setting.log_level) if published else None
    gpus = setting.device == "cuda"
    entries = entries_of(setting.ladder, page)
    columns = [
        Column("clients"),
        Column("aveTime", "us"),
        Column("totalTime", "us"),
        Column("qps", "1/s"),
        Column("p50", "ms"),
        Column("p99", "ms"),
        Column("errors"),
        Column("cut", "requests"),
        Column("CPU", "% of a core"),
        *([Column("GPU", "%")] if gpus else []),
        Column("limit", number=False),
        Column("mark", number=False),
        *([Column("aveTime", "us, published"), Column("qps", "1/s, published")] if table else []),
    ]
    told = {} if table is None else {row["clients"]: row for row in table["rows"]}
    rows = []
    for row in setting.rows:
        cells = [*_row(setting, row, gpus)]
        if table is not None:
            there = told.get(row.clients, {})
            cells += [Text(_text(there.get(name)), "quiet") for name in ("ave_us", "qps")]
        rows.append(Row(tuple(cells), tuple(row_findings(row, entries.get(row.line.row)))))
    notes = [f"Rows are named {setting.rows[0].name} in the published form."]
    if table is not None:
        notes.append(
            f"Published, not measured here: {reference(PRESS)['source']}; "
            f"{reference(PRESS)['hardware']}; {table['device']}, log level {table['log_level']}; "
            f"CPU {table['cpu_percent']} %, GPU {table['gpu_percent']} %."
        )
    launches = setting.launches
    several = f", mean of {launches} launches, errors of all" if launches > 1 else ""
    return Table(f"{setting.name}{several}", tuple(columns), tuple(rows), tuple(notes))


def _text(value: float | None) -> str:
    return "-" if value is None else rate(value)


def _clients(row: Load) -> Number:
    again = f" (run {row.run})" if row.run > 1 else ""
    return Number(f"{row.connections:,}{again}", row.connections)


def _row(setting: Setting, row: PressRow, gpus: bool) -> Iterator[Cell]:
    yield _clients(row.line.row)
    if row.qps is None:
        yield Text(row.line.status, "doubt")
        yield from (NOTHING for _ in range(7 + gpus))
        yield from ("", "")
        return
    mark = setting.ladder.mark(row.line)
    yield from (us(row.ave_us), us(row.total_us), qps(row.qps), ms(row.p50_ms), ms(row.p99_ms))
    yield errors(row.line.failed)
    yield count(row.cut, "doubt" if row.ended_by_time else "plain")
    yield _cpu(setting, row)
    yield from (_gpu(setting, row),) if gpus else ()
    yield limit(setting, row)
    yield Text(mark, _tone(mark))


def _tone(mark: str) -> Tone:
    if mark in ("collapse", "this run fell"):
        return "bad"
    return "doubt" if mark == "in doubt" else "plain"


# ---------------------------------------------------------------------------------------- use


def use_table(settings: Sequence[Setting]) -> Table | None:
    """CPU of service, client and host in every row, and of the GPU; None where none was sampled."""
    gpus = _gpus(settings)
    rows = [
        Row(
            (
                _clients(row.line.row),
                percent(row.use.service),
                percent(row.use.client),
                _host(row),
                *([percent(row.use.gpu)] if gpus else []),
                limit_words(row.limited) if setting.visible else "not visible",
            ),
            group=setting.name,
        )
        for setting in settings
        for row in setting.rows
        if any(trial.usage for trial in row.line.trials)
    ]
    if not rows:
        return None
    columns = (
        Column("clients"),
        Column("service", "% of a core"),
        Column("client", "% of a core"),
        Column("host", "% of a core"),
        *((Column("GPU", "%"),) if gpus else ()),
        Column("what limited", number=False),
    )
    return Table("CPU of service, client and host", columns, tuple(rows))


def _host(row: PressRow) -> Number:
    if row.use.host is None:
        return NOTHING
    of = f" of {100 * row.use.cores}" if row.use.cores else ""
    return Number(f"{row.use.host:.0f}{of}", row.use.host)
