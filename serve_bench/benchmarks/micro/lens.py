"""How a run of rows is looked at: `micro`, `noop`, and `run` and `trace` of an app of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from serve_bench.analysis.statistics import FEWEST, MAIN, Line, best, rate
from serve_bench.core import ladder
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import Rung
from serve_bench.core.result import Result, cell_slug
from serve_bench.view import waterfall
from serve_bench.view.blocks import limit_words, listed, sentence
from serve_bench.view.document import Block, Finding, Prose, ReportOptions, Section
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.names import BRIEFS, RowNames, cell_title
from serve_bench.view.published import published_for, published_notes
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Entry, Page


def _payload(line: Line) -> float | None:
    """None where bodies have no size that is known."""
    size = line.row.traffic.payload
    return rate(line) * size / 1e6 if MAIN in line.spreads and size else None


declare(
    *("payload", "MB/s", "bodies of requests and responses in a second", _payload),
    title="MB/s",
    better="higher",
)
declare(
    *("launch_spread", "requests/s", "std over launches (ddof 1)"),
    lambda line: line.spreads[MAIN].launch_std if MAIN in line.spreads else None,
    title="std over launches",
)
declare("published", "requests/s", "what others published of such a row, on other hardware")

MOST_AXES: Final = 3
"""Axes that have a column each; of more, one column has the names of the cells."""

MOST_LIKE: Final = 3
"""Rows that are named beside the best since they are not clearly slower."""

FIGURES: Final = (
    *map(Field, (MAIN, "payload", "launch_ratio", "latency_p50")),
    Field("latency_p90", detail=True),
    Field("latency_p99"),
    Field("latency_max", detail=True),
    Field("events", detail=True),
    *(Field(f"{metric}_{share}") for metric in ("ttft", "itl") for share in ("p50", "p99")),
    Field("tokens"),
    Field("errors"),
    Field("launch_spread"),
    Field("published"),
    Field("limit", "limited by"),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The rows of a run, those of the same cell and load under all variants beside each other."""
    names = page.names
    rows = [_name_row(row, page, options) for row in rows]
    places = list(dict.fromkeys(map(_find_place, rows)))
    rows.sort(key=lambda row: places.index(_find_place(row)))
    measured = [row for row in rows if MAIN in row.values and row.dims["status"] != "profiled"]
    lines = {_read_entry(row).line.keys: row for row in measured}
    top = [lines[line.keys] for line in best(_read_entry(row).line for row in measured)]
    sound = [row for row in measured if not _read_entry(row).line.broken]
    lead = next(iter(top or sound or measured), None)
    fallen = list(find_collapses(measured, names))
    how = (note for note in page.notes if not note.startswith("hint, "))
    notes = (*_notes(page), *how, *(published_notes() if options.published else ()))
    spec = TableSpec(
        "Throughput, latency and limit by row", (*_name_fields(names), *FIGURES), notes
    )
    entries = [row.entry for row in (lead, *(row for _, row in fallen)) if row is not None]
    hints = [*dict.fromkeys(entry.hint for entry in entries if entry and entry.hint)]
    launches = max((len(row.values[MAIN].launches) for row in measured), default=FEWEST)
    if launches < FEWEST and len(measured) > 1:
        after = counted(launches, "launch", "launches")
        hints.append(f"hint, spread between launches: --launches {FEWEST} (unknown after {after})")
    groups = list(dict.fromkeys(row.group for row in rows))
    blocks: list[Block] = [make_table(spec, sorted(rows, key=lambda row: groups.index(row.group)))]
    blocks += [Prose(tuple(hints), "quiet", listed=True)] if hints else []
    app = result.run.suite.get("app")
    target = str(app.get("target")).rpartition("/")[2] if isinstance(app, dict) else ""
    drawn = []
    for row in rows:
        line = _read_entry(row).line
        heading = names.cell(line.cell) if row.group else ""
        drawn.append(replace(row, name=names.name(line, cell=not row.group), group=heading))
    return View(
        rows=rows,
        findings=tuple(_find(lead, top, measured, fallen, page)),
        sections=[Section("results", "Results", tuple(blocks), "headline")] if rows else [],
        charts=tuple(chart_sections(drawn)),
        traced=rows,
        facts=[
            (f"variant {part.name}", f"{' '.join(part.env) or 'no flags'}; {part.engaged}")
            for part in page.variants
        ],
        notes=[note for note in page.notes if note.startswith("hint, ") and note not in hints],
        title=f"serve-bench {result.run.command} {target}".rstrip(),
        lead=lead,
    )


def _find_place(row: ViewRow) -> tuple[str, object]:
    """The cell and the load of a row, which its variants have in common."""
    line = _read_entry(row).line
    return cell_slug(line.cell), line.row


def _read_entry(row: ViewRow) -> Entry:
    assert row.entry is not None, "no row of this kind is derived"
    return row.entry


def _name_row(row: ViewRow, page: Page, options: ReportOptions) -> ViewRow:
    """The row under its names, with its warnings and the figures of this kind."""
    entry, names = _read_entry(row), page.names
    line, values = entry.line, dict(row.values)
    if page.base == line.variant and line.trials and line.status != "profiled":
        values["launch_ratio"] = Value(1.0)
    if options.published and (published := published_for(line.cell, line.row)) is not None:
        values["published"] = published
    if any(trial.flags.get("interrupted") for trial in line.trials):
        broken = Finding("its load was broken off", "interrupted", "doubt")
        row = replace(row, warnings=(*row.warnings, broken))
    mark = " (profiled)" if line.status == "profiled" else ""
    dims = {"load": f"{names.rows[line.row]}{mark}", "cell": names.cell(line.cell)}
    if entry.limited is not None:
        causes = [verdict.cause for verdict in entry.verdicts.values()]
        count, cause = causes.count(entry.limited.cause), entry.limited.cause
        share = f", in {count} of {len(causes)} launches" if count < len(causes) else ""
        dims["limit"] = f"{cause}{share}"
    several = names.axes and len(names.rows) > 1
    group = dims["cell" if names.by_load else "load"] if several else ""
    return replace(
        row,
        dims={**row.dims, **dims},
        values=values,
        name=names.name(line),
        group=group,
        tones={MAIN: "bad" if entry.failures else "doubt" if row.warnings else "plain"},
    )


def _name_fields(names: RowNames) -> Iterator[Field]:
    """What names a row: its load, or its cell with a column for each of few axes; its variant."""
    if names.by_load or not names.axes:
        yield Field("load", noted=True)
    elif len(names.axes) > MOST_AXES:
        yield Field("cell", noted=True)
    else:
        parts = [axis.rpartition(".") for axis in names.axes]
        for axis, (deployment, _, option) in zip(names.axes, parts, strict=True):
            title = BRIEFS.get(axis, option)
            yield Field(axis, title, head=deployment, noted=axis == names.axes[0])
    if names.variants:
        yield Field("variant")


def _notes(page: Page) -> Iterator[str]:
    """What all rows have in common, and how each load was made."""
    cell = page.entries[0].line.cell if page.entries else {}
    if same := {axis: value for axis, value in cell.items() if axis not in page.names.axes}:
        yield f"every cell: {cell_title(same)}"
    clients: dict[str, list[str]] = {}
    for row, name in page.names.rows.items():
        words = [f"client {row.client}"]
        words += [f"{row.data_size} data"] if row.data_size != "small" else []
        due = f" at {row.rate_per_s:,g} requests/s" if row.rate_per_s else ""
        words += [f"open loop{due}"] if row.loop == "open" else []
        clients.setdefault(", ".join(words), []).append(name)
    yield "; ".join(f"{', '.join(rows)}: {words}" for words, rows in clients.items())


# What the rows show in sentences.


def _find(
    lead: ViewRow | None,
    top: Sequence[ViewRow],
    measured: Sequence[ViewRow],
    fallen: Sequence[tuple[str, ViewRow]],
    page: Page,
) -> Iterator[str]:
    """The highest throughput and what limited it, collapses, ratios, hops. `top`: the rows that are
    not clearly slower than the first of them."""
    if lead is None:
        measured_any = any(entry.line.trials for entry in page.entries)
        yield "No row has a rate." if measured_any else "No row was measured."
        return
    most, head = lead.value(MAIN) or 0.0, f"{lead.name}: {describe_figures(lead)}"
    if top:
        sound = (row for row in measured if not _read_entry(row).line.broken)
        higher = any((row.value(MAIN) or 0.0) > most for row in sound)
        which = "throughput without a failed request" if higher else "throughput"
        head = f"{lead.name} has the highest {which}: {describe_figures(lead)}"
    if (limit := _read_entry(lead).limited) is not None:
        its = "its limit is" if limit.cause == "unclear" else "it is limited by"
        head += f"; {its} {limit.text}"
    yield sentence(head)
    # Few counts differ by chance by more, but what would be a collapse is not called alike.
    alike = [row for row in top[1:] if (row.value(MAIN) or 0.0) >= ladder.COLLAPSE * most]
    if alike:
        texts = []
        for row in alike:
            words = [part for part in row.name.split(", ") if part not in lead.name.split(", ")]
            texts.append(f"{', '.join(words) or row.name} ({number(row.value(MAIN))})")
        more = f" and {len(texts) - MOST_LIKE} more" if len(texts) > MOST_LIKE else ""
        yield sentence(f"Not clearly slower: {'; '.join(texts[:MOST_LIKE])}{more}")
    yield from (sentence(text) for text, _ in fallen)
    yield from _find_ratios(measured, page, lead)
    for row in measured:
        yield from map(sentence, waterfall.sentences(waterfall.traced_row(row)))


def find_collapses(rows: Sequence[ViewRow], names: RowNames) -> Iterator[tuple[str, ViewRow]]:
    """A sentence on each cell and kind of clients whose throughput collapses with more of them, and
    the row with the most."""
    ladders: dict[tuple[object, ...], dict[int, ViewRow]] = {}
    for row in rows:
        line = _read_entry(row).line
        if line.row.loop == "closed" and not line.broken:
            place = (line.variant, cell_slug(line.cell), line.row.client, line.row.traffic)
            ladders.setdefault(place, {})[line.row.connections] = row
    for steps in ladders.values():
        rungs = [Rung(users, row.values[MAIN].value) for users, row in steps.items()]
        top, lower = ladder.best(rungs), ladder.collapses(rungs)
        if top is None or not lower:
            continue
        last = steps[lower[-1].clients]
        limit = _read_entry(last).limited
        after = listed([f"{number(step.throughput)} with {step.clients}" for step in lower])
        several = names.axes or names.variants
        where = names.name(_read_entry(last).line, load=False) if several else "The throughput"
        before = f"{number(top.throughput)} requests/s with {top.clients}"
        text = f"{where} collapses with more clients, from {before} to {after}"
        if limit is not None and limit.cause != "unclear":
            text += f": limited by {limit.cause} ({limit.confidence} confidence)"
        yield text, last


def _find_ratios(measured: Sequence[ViewRow], page: Page, shown: ViewRow) -> Iterator[str]:
    """Each further variant compared with the first, over the rows that both have. The reason of a
    ratio may stand in the slower row: so what limits either is said of that farthest from 1, but of
    `shown`, which the headline has."""
    for variant in (part.name for part in page.variants[1:]):
        rows = [row for row in measured if row.dims["variant"] == variant]
        ratios = {
            row.values["launch_ratio"].value: row for row in rows if "launch_ratio" in row.values
        }
        if not ratios:
            continue
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        times = f"{low} to {high}" if low != high else low
        count = sum("launch_ratio" in row.values for row in rows)
        which = f"the {count} rows that both have" if count > 1 else "the row that is in both"
        text = f"{variant} has {times} times the requests/s of {page.base}, in {which}"
        farthest = ratios[min(ratios, key=lambda ratio: min(ratio, 1 / ratio) if ratio else 0.0)]
        for row in measured:
            alike = _find_place(row) == _find_place(farthest) and row is not shown
            limit = _read_entry(row).limited
            if alike and row.dims["variant"] in (variant, page.base) and limit is not None:
                text += f"; {row.name}: {limit_words(limit)}"
        yield sentence(text)


# The published form.

_ROW: Final = re.compile(r"single client|\d+ clients")
_INDENT: Final = " " * 8
_CLASSIC: Final = {"max_ongoing_requests": "max_concurrent_queries"}
"""Names of axes as they were published, where they are others now."""


def classic_text(result: Result, page: Page, view: View) -> str:
    """The published form, digit for digit: only its rows (`single client`, `N clients`, both by
    aiohttp), figures rounded to two places. With several variants, each has a line with its name on
    top. What the published form has no words for (a row that was not measured, errors) stands
    behind a figure, or in its place, and never alters a line that has neither."""
    lines: list[str] = []
    for part in page.variants:
        if len(page.variants) > 1:
            lines.append(f"variant {part.name}:")
        lines += [f"failed: {failure.message}" for failure in part.failures]
        rows = [row for row in view.rows if row.dims["variant"] == part.name]
        classic = [row for row in rows if _is_classic(_read_entry(row).line)]
        for _, group in groupby(classic, key=lambda row: _find_place(row)[0]):
            cell_rows = list(group)
            cell = _read_entry(cell_rows[0]).line.cell
            named = {_CLASSIC.get(name, name): value for name, value in cell.items()}
            lines.append(f"{named}:")
            lines += map(_classic_row, cell_rows)
    lines += [f"failed: {failure.message}" for failure in page.failures]
    return "\n".join(lines) + "\n" if lines else "no row of the published form was planned\n"


def _is_classic(line: Line) -> bool:
    plain = line.status != "profiled" and line.row.loop == "closed" and line.row.client == "aiohttp"
    return plain and _ROW.fullmatch(line.row.label) is not None


def _classic_row(row: ViewRow) -> str:
    entry, value = _read_entry(row), row.values.get(MAIN)
    size, errors = entry.line.row.data_size, entry.line.errors
    data = f"{size} data" if size in ("small", "large") else f"{size} bytes data"
    line = f"{_INDENT}{entry.line.row.label} {data} "
    if value is None:
        line += row.gap or "no rate recorded"
    else:
        std = round(value.std or 0.0, 2)  # Ray's form has one for a single window too
        line += f"{round(value.value, 2)} +- {std} requests/s"
        line += f" ({errors} errors)" if errors else ""
        line += f" ({row.gap})" if row.gap else ""
    line += "".join(f" (failed: {failure.message})" for failure in entry.failures)
    if (published := row.values.get("published")) is not None:
        line += f" (published {published.value} +- {published.std} requests/s)"
    return line


LENS: Final = Lens(build, ("tokens", "payload", "launch_spread"), classic=classic_text)
