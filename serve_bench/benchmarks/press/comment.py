"""A press run as a comment: a row for each setting; its rows as published, under the fold.

Rule: figures and sentences are those of the text; published ones stand in a column that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.ladder.comment import row_codes, variant_codes
from serve_bench.benchmarks.ladder.tables import NOT_VISIBLE, entries_of
from serve_bench.benchmarks.micro.comment import about, closing, every_figure, fixed, struck, usages
from serve_bench.benchmarks.micro.page_panels import names_of
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS
from serve_bench.benchmarks.parts.page import Page, page_of
from serve_bench.benchmarks.parts.published import press_table
from serve_bench.benchmarks.parts.texts import latency
from serve_bench.benchmarks.press import document as of_press
from serve_bench.benchmarks.press import page_found as of_press_found
from serve_bench.benchmarks.press.compare import comparisons
from serve_bench.benchmarks.press.summary import Setting, settings_of
from serve_bench.benchmarks.press.tables import (
    LIMITS,
    compared_table,
    rate,
    ratios_table,
    remarks,
    rows_table,
)
from serve_bench.benchmarks.press.text import asked, told
from serve_bench.core.result import Result
from serve_bench.report.columns import markdown_table
from serve_bench.report.comment import (
    Part,
    bullets,
    comment,
    counted,
    doubts,
    folded,
    formulas,
    split,
)
from serve_bench.report.comment import remarks as listed

BY_NATURE = "few-windows"
"""A row of a fixed number of requests is one window by its nature: that is no doubt."""


def press_comment(
    result: Result,
    published: bool = False,
    where: str | None = None,
    exclude_connect: bool = False,
) -> str:
    """The run as Markdown that ends with a newline."""
    page = page_of(result, published=published, where=where)
    settings = settings_of(result)
    found = split(result, of_press_found.found(page, settings), page.warnings)
    return comment(
        found.first,
        _table(page, settings, published),
        (
            *about(page, found),
            bullets(fixed(page, names_of(page))),
            bullets(asked(result)),
            bullets(one.sentence for one in comparisons(settings)),
            bullets(f"{one.name}: {line.strip()}" for one in settings for line in told(one)),
            bullets(struck(page)),
            listed(_remarks(page, settings)),
            bullets([LIMITS] if any(one.visible for one in settings) else []),
            *closing(page),
            *_tables(settings, exclude_connect),
            *every_figure(page, names_of(page)),
            *usages(page),
            formulas((*GENERAL_FORMULAS, *of_press.FORMULAS)),
        ),
        where,
    )


def _table(page: Page, settings: Sequence[Setting], published: bool) -> list[str]:
    """The settings; with `published` the best of the published table of the same device and log
    level, with its clients in brackets."""
    if not settings:
        return []
    names = ["setting", "best requests/s", "clients", *(["published best"] if published else [])]
    names += ["knee, clients", "p99 ms at the knee", "collapse", "limited by", "doubts"]
    rows = []
    for one in settings:
        best, knee = one.best, one.knee
        row = [one.name]
        row += [one.ladder.without if best is None else rate(one.best_qps)]
        row += ["-" if best is None else f"{best.clients:,}"]
        row += [_published(one)] if published else []
        row += ["-" if knee is None else f"{knee.clients:,}"]
        row += ["-" if knee is None else latency(knee.p99_ms)]
        rows.append([*row, _collapse(one), _limited(one), _doubts(one, page)])
    left = (0, len(names) - 3, len(names) - 2, len(names) - 1)
    return markdown_table(names, rows, left)


def _published(setting: Setting) -> str:
    table = press_table(setting.device, setting.log_level)
    if table is None:
        return "-"
    best = max(table["rows"], key=lambda row: row["qps"])
    return f"{rate(best['qps'])} ({best['clients']:,})"


def _collapse(setting: Setting) -> str:
    best = setting.best
    if best is None:
        return "-"
    if setting.collapses:
        one = setting.collapses[0]
        split_runs = "" if one.agree or len(one.runs) < 2 else "; its runs disagree"
        return f"{one.at.clients:,} clients: {one.share:.2f} of the best{split_runs}"
    last = max(setting.ladder.rates)
    return f"none up to {last:,}" if last > best.clients else "none to be seen"


def _limited(setting: Setting) -> str:
    if not setting.visible:
        return NOT_VISIBLE
    limit = None if setting.knee is None else setting.knee.limited
    return "-" if limit is None else limit.cause


def _doubts(setting: Setting, page: Page) -> str:
    entries = entries_of(setting.ladder, page)
    rows = []
    for row in setting.rows:
        codes = row_codes(entries[row.line.row], BY_NATURE)
        codes += ["cut by time"] if row.ended_by_time else []
        codes += ["accounting"] if row.unaccounted else []
        rows.append(codes)
    return doubts([*counted(rows, "row"), *variant_codes(page, setting.variant)])


def _remarks(page: Page, settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    for one in settings:
        entries = entries_of(one.ladder, page)
        for row in one.rows:
            entry = entries[row.line.row]
            for text in (*remarks(row, entry), *entry.facts):
                yield f"{one.name}, {entry.label}", text


def _tables(settings: Sequence[Setting], exclude_connect: bool) -> Iterator[Part]:
    for one in settings:
        yield folded(f"Setting {one.name}", rows_table(one, exclude_connect).markdown())
    if settings:
        yield folded("All settings", compared_table(settings).markdown())
    for found in comparisons(settings):
        if len(found.rounds) > 1:
            yield folded(found.sentence, ratios_table(found).markdown())
