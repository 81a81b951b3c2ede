"""The tables of a press run: rows as published and beside them, settings compared, ratios.

Rule: the published columns keep their names, units and digits; figures come from
benchmarks/press/summary.py and benchmarks/press/compare.py, doubts from the page. `Table` is names,
rows and which columns are flush left: text and Markdown lay out the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from serve_bench.benchmarks.ladder.tables import NOT_VISIBLE
from serve_bench.benchmarks.parts.page import Entry
from serve_bench.benchmarks.parts.texts import bound_sign, latency, number
from serve_bench.benchmarks.press.compare import Comparison
from serve_bench.benchmarks.press.summary import PressRow, Setting
from serve_bench.core.document import Finding, sentences
from serve_bench.report.columns import Fitted, columns, fitted, markdown_table, wrapped

_SHORT: Final = {
    "proxy CPU": "proxy",
    "haproxy CPU": "haproxy",
    "replica loop": "loop",
    "replica CPU": "replica",
    "concurrency limit": "slots",
    "batch wait": "batch",
    "downstream deployment": "behind",
    "host CPU": "host",
    "offered load": "load",
}
"""Causes of a verdict in a word that fits the table; the others are as short themselves."""

LIMITS: Final = (
    "limit, what limited the row: loop = one replica's event loop, replica = CPU of all replicas, "
    "slots = requests at max_concurrent_queries x replicas, behind = a deployment behind the "
    "first, load = nothing is full: more clients would bring more."
)


@dataclass(frozen=True)
class Table:
    """Names of columns, rows, the columns that are flush left, and units if they stand apart."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: tuple[int, ...] = (0,)
    units: Sequence[str] = ()
    spare: Sequence[str] = ()  # columns that may go when there is no room, the first first
    fold: tuple[int, ...] | None = None  # columns that may be folded; None: those flush left

    def fitted(self, width: int) -> Fitted:
        """The table as it fits; the units are its first row."""
        rows = [self.units, *self.rows] if self.units else self.rows
        return fitted(self.names, rows, self.left, width, self.spare, self.fold)

    def text(self, width: int, indent: int = 0) -> Iterator[str]:
        """The table as text, and what was left out where `width` is not enough."""
        table = self.fitted(width - indent)
        yield from (" " * indent + line for line in table.lines)
        yield from table.said(width, indent)

    def markdown(self) -> list[str]:
        """The table as Markdown, each unit beside its name."""
        units = self.units or [""] * len(self.names)
        pairs = zip(self.names, units, strict=True)
        names = [f"{name} ({unit})" if unit else name for name, unit in pairs]
        return markdown_table(names, self.rows, self.left)


# ------------------------------------------------------------------------------ as published

CLASSIC: Final = ("testName", "aveTime(us)", "totalTime(us)", "qps")


def classic_row(name: str, ave_us: float | None, total_us: float | None, qps: float | None) -> Any:
    """The four published columns with their digits: us with up to five decimals, qps with five."""
    ave = "-" if ave_us is None else f"{ave_us:.5f}".rstrip("0").rstrip(".")
    total = "-" if total_us is None else f"{total_us:.0f}"
    return (name, ave, total, "-" if qps is None else f"{qps:.5f}")


def classic_press(settings: Sequence[Setting]) -> str:
    """A table of the published form for each setting, under its name."""
    out: list[str] = []
    for setting in settings:
        rows = [
            classic_row(_name(row), row.ave_us, row.total_us, row.qps)
            for row in setting.rows
            if row.qps is not None
        ]
        cut = (row for row in setting.rows if row.ended_by_time and row.qps is not None)
        out += [f"{setting.name}:", *columns(CLASSIC, rows)]
        out += [f"! {_name(row)}: cut off, {row.line.completed:,} requests done" for row in cut]
        out.append("")
    return "\n".join(out[:-1]) + "\n" if out else "nothing was measured\n"


def _name(row: PressRow) -> str:
    return row.name if row.run == 1 else f"{row.name} (run {row.run})"


# ------------------------------------------------------------------------------------- rows

#: The mean by Little's law so far above that of the completed requests is said.
LEFT_OUT: Final = 1.1

_NAMES: Final = (
    *("testName", "aveTime", "totalTime", "qps", "p50", "p99", "errors"),
    *("CPU", "GPU", "limit", "mark"),
)
_UNITS: Final = ("", "us", "us", "1/s", "ms", "ms", "", "%", "%", "", "")
_SPARE: Final = ("GPU", "p50", "totalTime", "CPU")


def rows_table(setting: Setting, exclude_connect: bool, marked: bool = True) -> Table:
    """All rows of a setting, `marked` as knee, best or collapse."""
    rows: list[Sequence[str]] = []
    for row in setting.rows:
        marks = [setting.ladder.mark(row.line), ""]
        lines = _lines(setting, row, exclude_connect)
        rows += [(*line, mark) for line, mark in zip(lines, marks, strict=False)]
    if not marked:
        cut = [row[:-1] for row in rows]
        return Table(_NAMES[:-1], cut, units=_UNITS[:-1], spare=_SPARE, fold=())
    return Table(_NAMES, rows, (0, len(_NAMES) - 1), _UNITS, _SPARE, fold=())


ROOM_FOR_MARKS: Final = 100
"""Below this width the marks are said under the table alone."""


def rows_text(setting: Setting, entries: Any, exclude_connect: bool, width: int) -> Iterator[str]:
    """The table with doubts, failures and cuts under their row."""
    table = rows_table(setting, exclude_connect, width >= ROOM_FOR_MARKS).fitted(width)
    names, units, *rows = table.blocks
    yield from (*names, *units)
    blocks = iter(rows)
    for row in setting.rows:
        for _ in _lines(setting, row, exclude_connect):
            yield from next(blocks)
        for one in remarks(row, entries.get(row.line.row)):
            yield from wrapped(f"! {one}", width, indent=4)
    yield from table.said(width)


def remarks(row: PressRow, entry: Entry | None) -> Iterator[str]:
    """The findings of a row, one line each."""
    return (one.line for one in row_findings(row, entry))


def row_findings(row: PressRow, entry: Entry | None) -> Iterator[Finding]:
    """What is to be said under a row. A row of a fixed number of requests is one window by its
    nature, so that it has but one is no doubt."""
    if entry is not None:
        counted = row.line.row.requests_each is not None
        doubts = (one for one in entry.warnings if not (counted and one.code == "few-windows"))
        yield from replace(entry, warnings=tuple(doubts)).findings
    if row.ended_by_time:
        broken_off = any(trial.flags.get("interrupted") for trial in row.line.trials)
        how = "interrupted" if broken_off else "cut by time"
        late = f", {row.late:,} ended after that" if row.late else ""
        yield Finding(
            f"{row.line.completed:,} of {row.asked or 0:,} requests were completed, "
            f"{row.cut:,} not{late}",
            how,
            "doubt",
        )
        yield from sentences(_left_out(row), "doubt")
    if row.unaccounted:
        yield Finding(
            f"{row.asked or 0:,} requests asked for, but {row.line.completed:,} "
            f"completed + {row.line.errors:,} failed + {row.cut:,} cut: do not trust this row",
            "accounting",
            "doubt",
        )


def _left_out(row: PressRow) -> Iterator[str]:
    """Of a row that time ended, where those still in flight would have changed the mean latency."""
    waiting = sum(trial.counts.in_flight for trial in row.line.trials)
    if not waiting or not row.qps_without or not row.ave_us:
        return
    mean_us = 1e6 * row.clients / row.qps_without
    if mean_us > LEFT_OUT * row.ave_us:
        bounds = row.line.distributions["latency"].lower_bounds
        what = "in no latency: aveTime and the percentiles are too low"
        if bounds:
            what = "known to take longer: figures marked > are lower bounds"
        yield (
            f"{waiting:,} requests were still in flight, and are {what}; clients / qps gives a "
            f"mean of {number(mean_us, 5)} us"
        )


def _lines(setting: Setting, row: PressRow, exclude_connect: bool) -> Iterator[Sequence[str]]:
    name = row.name if row.run == 1 else f"  run {row.run}"
    blank = [""] * (len(_NAMES) - 5)
    if row.qps is None:
        yield (name, row.line.status, "-", "-", *blank)
        return
    yield (
        name,
        micros(row.ave_us),
        micros(row.total_us),
        rate(row.qps),
        latency(row.p50_ms),
        latency(row.p99_ms),
        f"{row.line.errors}{' cut' if row.ended_by_time else ''}",
        cpu(setting, row),
        gpu(setting, row),
        limit(setting, row),
    )
    if exclude_connect:
        yield ("  without connecting", "", micros(row.without_us), rate(row.qps_without), *blank)


def micros(value: float | None) -> str:
    """Microseconds: a decimal where it says something."""
    if value is None:
        return "-"
    return bound_sign(value) + (f"{value:.1f}" if value < 10_000 else f"{value:.0f}")


def rate(value: float | None) -> str:
    """Requests/s with four digits; no commas, as in the published table."""
    return number(value).replace(",", "")


def cpu(setting: Setting, row: PressRow) -> str:
    """CPU of the service, % of a core."""
    if row.use.service is not None:
        return f"{row.use.service:.0f}"
    return "-" if setting.visible else NOT_VISIBLE


def gpu(setting: Setting, row: PressRow) -> str:
    """GPU use in %; none where no GPU is used."""
    if not setting.visible:
        return NOT_VISIBLE
    if setting.device != "cuda":
        return "none"
    return "-" if row.use.gpu is None else f"{row.use.gpu:.0f}"


def limit(setting: Setting, row: PressRow) -> str:
    """What limited the row, in a word."""
    if row.limited is None:
        return "-" if setting.visible else NOT_VISIBLE
    return _SHORT.get(row.limited.cause, row.limited.cause)


# --------------------------------------------------------------------------------- published


def published_rows(table: Any, each: int) -> Table:
    """A published table in its own columns."""
    rows = [
        classic_row(f"json_1_200000_{row['clients']}_{each}", *(row[of] for of in _PUBLISHED))
        for row in table["rows"]
    ]
    return Table(CLASSIC, rows)


_PUBLISHED: Final = ("ave_us", "total_us", "qps")


# -------------------------------------------------------------------------------- comparison

COMPARED: Final = ("setting", "best qps", "at", "knee", "ave ms, 1", "CPU %", "GPU %", "limit")


def compared_table(settings: Sequence[Setting]) -> Table:
    """Each setting: its best, its knee, latency with one client, and what was used at the knee."""
    spare = ("GPU %", "ave ms, 1", "CPU %", "knee")
    return Table(COMPARED, [_compared(setting) for setting in settings], spare=spare)


def _compared(setting: Setting) -> Sequence[str]:
    one, knee, best = setting.one_client, setting.knee, setting.best
    alone_ms = None if one is None or one.ave_us is None else one.ave_us / 1e3
    if knee is None or best is None:
        return (setting.name, setting.ladder.without, "-", "-", latency(alone_ms), *["-"] * 3)
    return (
        setting.name,
        rate(setting.best_qps),
        str(best.clients),
        str(knee.clients),
        latency(alone_ms),
        cpu(setting, knee),
        gpu(setting, knee),
        limit(setting, knee),
    )


def ratios_table(one: Comparison) -> Table:
    """The ratio of every launch: best to best, and at each number of clients."""
    rounds = list(one.rounds)
    rows = [("best", *(f"{one.rounds[at]:.3f}" for at in rounds))]
    for users, found in one.steps.items():
        texts = (f"{found[at]:.3f}" if at in found else "-" for at in rounds)
        rows.append((f"{users} client{'s' if users != 1 else ''}", *texts))
    return Table(("", *(f"{one.word} {at}" for at in rounds)), rows)
