"""How a run of rows is looked at: `micro`, `noop`, and `run` and `trace` of an app of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from serve_bench.analysis.statistics import FEWEST, LIKE, MAIN, Line, best, rate
from serve_bench.core import ladder
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import Rung
from serve_bench.core.result import Result, cell_slug
from serve_bench.view import waterfall
from serve_bench.view.blocks import listed, sentence
from serve_bench.view.document import Prose, ReportOptions, Section
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.names import RowNames
from serve_bench.view.published import published_for, published_notes
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Entry, Page
from serve_bench.view.texts import cell_title


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
    Field("errors", quiet=True),
    Field("launch_spread"),
    Field("published"),
    Field("limit", "limited by"),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The rows of a run, those of the same cell and load under all variants beside each other."""
    rows = [_name_row(row, page, options) for row in rows]
    places = list(dict.fromkeys(map(_find_place, rows)))
    rows.sort(key=lambda row: places.index(_find_place(row)))
    measured = [row for row in rows if MAIN in row.values and row.dims["status"] != "profiled"]
    lines = {_read_entry(row).line.keys: row for row in measured}
    top = [lines[line.keys] for line in best(_read_entry(row).line for row in measured)]
    sound = [row for row in measured if not _read_entry(row).line.broken]
    lead = next(iter(top or sound or measured), None)
    notes = (*_notes(page), *(published_notes() if options.published else ()))
    fields = (*_name_fields(page.names), *FIGURES)
    table = make_table(TableSpec("Throughput, latency and limit by row", fields, notes), rows)
    hint = "" if lead is None else _read_entry(lead).hint
    prose = Prose(tuple(filter(None, [hint])), "quiet", listed=True)
    app = result.run.suite.get("app")
    target = str(app.get("target")).rpartition("/")[2] if isinstance(app, dict) else ""
    drawn = [
        replace(row, name=page.names.name(_read_entry(row).line, cell=not row.group))
        for row in rows
    ]
    return View(
        rows=rows,
        findings=tuple(_find(lead, top, measured, page)),
        sections=[Section("results", "Results", (table, prose), "headline")] if rows else [],
        charts=tuple(chart_sections(drawn)),
        traced=rows,
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
    mark = " (profiled)" if line.status == "profiled" else ""
    dims = {"load": f"{names.rows[line.row]}{mark}", "cell": names.cell(line.cell)}
    if entry.limited is not None:
        causes = [verdict.cause for verdict in entry.verdicts.values()]
        count, cause = causes.count(entry.limited.cause), entry.limited.cause
        share = f", in {count} of {len(causes)} launches" if count < len(causes) else ""
        dims["limit"] = f"{cause}{share}"
    return replace(
        row,
        dims={**row.dims, **dims},
        values=values,
        name=names.name(line),
        group=names.cell(line.cell) if names.grouped and names.axes else "",
        tones={MAIN: "bad" if entry.failures else "doubt" if row.warnings else "plain"},
    )


def _name_fields(names: RowNames) -> Iterator[Field]:
    """What names a row: its axes where cells are rows, its load, its variant."""
    if names.grouped:
        yield Field("load", noted=True)
    elif len(names.axes) > MOST_AXES:
        yield Field("cell", noted=True)
    else:
        parts = [axis.rpartition(".") for axis in names.axes]
        for axis, (deployment, _, option) in zip(names.axes, parts, strict=True):
            yield Field(axis, option, head=deployment, noted=axis == names.axes[0])
    if names.variants:
        yield Field("variant")


def _notes(page: Page) -> Iterator[str]:
    """What all rows have in common, and how each load was made."""
    cell = page.entries[0].line.cell if page.entries else {}
    if same := {axis: value for axis, value in cell.items() if axis not in page.names.axes}:
        yield f"every cell: {cell_title(same)}"
    loads: dict[str, list[str]] = {}
    for row, name in page.names.rows.items():
        due = f" at {row.rate_per_s:,g} requests/s" if row.rate_per_s else ""
        words = f"client {row.client}, {row.loop} loop{due}, {row.data_size} data"
        loads.setdefault(words, []).append(name)
    yield "; ".join(f"{', '.join(names)}: {words}" for words, names in loads.items())


# What the rows show in sentences.


def _find(
    lead: ViewRow | None, top: Sequence[ViewRow], measured: Sequence[ViewRow], page: Page
) -> Iterator[str]:
    """The highest throughput and what limited it, collapses, ratios, hops. `top`: the rows that are
    not clearly slower than the first of them."""
    if lead is None:
        yield "No row was measured."
        return
    most, head = lead.value(MAIN) or 0.0, f"{lead.name}: {describe_figures(lead)}"
    if top:
        higher = any((row.value(MAIN) or 0.0) > most for row in measured)
        which = "throughput without a failed request" if higher else "throughput"
        head = f"{lead.name} has the highest {which}: {describe_figures(lead)}"
    if (limit := _read_entry(lead).limited) is not None:
        its = "its limit is" if limit.cause == "unclear" else "it is limited by"
        head += f"; {its} {limit.text}"
    yield sentence(head)
    # Few counts differ by chance by more, but what would be a collapse is not called alike.
    alike = [row for row in top[1:] if (row.value(MAIN) or 0.0) >= ladder.COLLAPSE * most]
    if alike:
        texts = [f"{row.name} ({number(row.value(MAIN))})" for row in alike]
        more = f" and {len(texts) - MOST_LIKE} more" if len(texts) > MOST_LIKE else ""
        within = f"within {100 * LIKE:.0f} % or two standard errors"
        yield sentence(f"Not clearly slower ({within}): {'; '.join(texts[:MOST_LIKE])}{more}")
    yield from find_collapses(measured)
    yield from _find_ratios(measured, page)
    for row in measured:
        yield from map(sentence, waterfall.sentences(waterfall.traced_row(row)))
    launches = max(len(row.values[MAIN].launches) for row in measured)
    if launches < FEWEST and len(measured) > 1:
        words = counted(launches, "launch", "launches")
        yield f"The spread between launches is unknown after {words} (--launches {FEWEST})."


def find_collapses(rows: Sequence[ViewRow]) -> Iterator[str]:
    """A sentence on each cell and kind of clients whose throughput collapses with more of them."""
    ladders: dict[tuple[object, ...], dict[int, ViewRow]] = {}
    for row in rows:
        line = _read_entry(row).line
        if line.row.loop == "closed" and not line.broken:
            place = (line.variant, cell_slug(line.cell), line.row.client, line.row.traffic)
            ladders.setdefault(place, {})[line.row.connections] = row
    for steps in ladders.values():
        rungs = [Rung(users, row.values[MAIN].value) for users, row in steps.items()]
        top, lower = ladder.best(rungs), ladder.collapses(rungs)
        if top is not None and lower:
            before = f"{number(top.throughput)} requests/s with {counted(top.clients, 'client')}"
            after = listed([f"{number(step.throughput)} with {step.clients}" for step in lower])
            name = steps[top.clients].name
            text = f"the throughput collapses with more clients, from {before} to {after}"
            yield sentence(f"{name}: {text}")


def _find_ratios(measured: Sequence[ViewRow], page: Page) -> Iterator[str]:
    """Each further variant compared with the first, over the rows that both have."""
    for variant in (part.name for part in page.variants[1:]):
        rows = [row for row in measured if row.dims["variant"] == variant]
        ratios = [row.values["launch_ratio"].value for row in rows if "launch_ratio" in row.values]
        if ratios:
            ends = dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios)))
            times = f"{' to '.join(ends)} times the requests/s of {page.base}"
            yield f"{variant} has {times}, in {counted(len(ratios), 'row')} that both have."


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
