"""The report on a run of rows: `micro`, `noop`, and `run` and `trace` of your own app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from serve_bench.analysis.statistics import FEWEST, MAIN, Line, best
from serve_bench.core import ladder
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import Rung
from serve_bench.core.result import Failure, cell_slug
from serve_bench.core.traffic import body_bytes
from serve_bench.view import waterfall
from serve_bench.view.document import Finding, Prose, Section
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import MICRO, published_for, read_reference
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import BRIEFS, Page, cell_title, limit_words


def _payload(line: Line) -> float | None:
    """Compute the payload, MB/s; None where bodies have no known size."""
    traffic, rate = line.row.traffic, line.spreads.get(MAIN)
    size = sent = body_bytes(traffic.data_size)
    echoed = sent * (traffic.stream_events or 1)
    size += echoed if traffic.echoes else body_bytes(traffic.response_size)
    return rate.value * size / 1e6 if rate is not None and size else None


declare(
    ("payload", "MB/s", "bodies of requests and responses in a second", "MB/s"),
    compute=_payload,
    better="higher",
)
declare(
    ("launch_spread", "requests/s", "std over launches (ddof 1)", "std over launches"),
    compute=lambda line: line.spreads[MAIN].launch_std if MAIN in line.spreads else None,
)
declare(("published", "requests/s", "what others published of such a row, on other hardware"))

PLACE: Final = itemgetter("cell", "load")
"""What the variants of a row have in common."""

RATIO: Final = "launch_ratio"

MOST_LIKE: Final = 3
"""Rows that are named with the best since they are not clearly slower."""

FIGURES: Final = (
    *map(Field, (MAIN, "payload", RATIO, "latency_p50")),
    *(Field("latency_p90", detail=True), Field("latency_p99")),
    *(Field("latency_max", detail=True), Field("events", detail=True)),
    *(Field(f"{metric}_{share}") for metric in ("ttft", "itl") for share in ("p50", "p99")),
    *(Field("tokens"), Field("errors"), Field("launch_spread"), Field("published")),
    Field("limit", "limited by"),
)


def build(page: Page) -> View:
    """Build the view; rows of the same cell and load, under all variants, stand together.

    Headings are cells or loads, whichever are fewer; a matrix is always of a load.
    """
    cells = len({cell_slug(row.line.cell) for row in page.rows})
    by_load = not page.axes or (len(page.loads) >= cells and len(page.axes) < 2)
    rows = [_name_row(row, page, by_load) for row in page.rows]
    places = list(dict.fromkeys(PLACE(row.dims) for row in rows))
    rows.sort(key=lambda row: places.index(PLACE(row.dims)))
    groups = list(dict.fromkeys(row.group for row in rows))
    measured = [row for row in rows if MAIN in row.values and row.dims["status"] != "profiled"]
    named = {row.line.keys: row for row in measured}
    top = [named[line.keys] for line in best(row.line for row in measured)]
    sound = [row for row in measured if not row.line.broken]
    lead = next(iter(top or sound or measured), None)
    cell = rows[0].line.cell if rows else {}
    same = {axis: value for axis, value in cell.items() if axis not in page.axes}
    published = read_reference(MICRO)["notes"] if page.options.published else ()
    notes = (f"every cell: {cell_title(same)}", *published)
    fields = [Field("load", noted=True)] if by_load else []
    for axis in () if by_load else page.axes:
        deployment, _, option = axis.rpartition(".")
        title = BRIEFS.get(axis, option)
        fields.append(Field(axis, title, head=deployment, noted=axis == page.axes[0]))
    fields += [Field("variant")] if page.variants[1:] else []
    spec = TableSpec("Throughput, latency and limit by row", (*fields, *FIGURES), notes)
    hints = [lead.hint] if lead is not None and lead.hint else []
    launches = max((len(row.values[MAIN].launches) for row in measured), default=FEWEST)
    if launches < FEWEST and len(measured) > 1:
        after = counted(launches, "launch", "launches")
        hints.append(f"hint, spread between launches: --launches {FEWEST} (unknown after {after})")
    table = make_table(spec, sorted(rows, key=lambda row: groups.index(row.group)))
    blocks = (table, Prose(tuple(hints), "quiet", listed=True))
    asked = page.result.run.asked
    target = "" if isinstance(asked.app, str) else asked.target.rpartition("/")[2]
    return View(
        rows=rows,
        findings=tuple(_find(lead, top, measured, page)),
        sections=[Section("results", "Results", blocks if rows else (), "headline")],
        charts=chart_sections(rows),
        traced=rows,
        title=f"serve-bench {page.result.run.command} {target}".rstrip(),
        lead=lead,
    )


def _name_row(row: ViewRow, page: Page, by_load: bool) -> ViewRow:
    """Return the row under its names, with its warnings and the figures of this kind."""
    line, values = row.line, dict(row.values)
    profiled, base = line.status == "profiled", page.variants[0] if page.variants[1:] else None
    if base == line.variant and line.trials and not profiled:
        values[RATIO] = Value(1.0)
    if page.options.published and (published := published_for(line.cell, line.row)) is not None:
        values["published"] = published
    if any(trial.flags.interrupted for trial in line.trials):
        broken = Finding("its load was broken off", "interrupted", "doubt")
        row = replace(row, warnings=(*row.warnings, broken))
    load = f"{page.loads[line.row]}{' (profiled)' if profiled else ''}"
    dims = {**row.dims, "load": load, "cell": row.cell}
    if cause := dims["limit"]:
        count = sum(limit.cause == cause for limit in row.verdicts.values())
        if count < len(row.verdicts):
            dims["limit"] = f"{cause}, in {count} of {len(row.verdicts)} launches"
    several = page.axes and len(page.loads) > 1
    return replace(
        row,
        dims=dims,
        values=values,
        group=dims["cell" if by_load else "load"] if several else "",
        tones={MAIN: "bad"} if row.failures else {},
    )


def _find(
    lead: ViewRow | None, top: Sequence[ViewRow], measured: Sequence[ViewRow], page: Page
) -> Iterator[str]:
    """Yield the best row and its limit, those as good (`top`), collapses, ratios, and hops."""
    if lead is None or not (most := lead.values[MAIN].value):  # 0: why stands before it
        yield "No row has a rate."
        return
    said = describe_figures(lead)
    head = f"{lead.name}: {said}"
    if top:
        higher = any(row.values[MAIN].value > most for row in measured if not row.line.broken)
        which = "throughput without a failed request" if higher else "throughput"
        head = f"{lead.name} has the highest {which}: {said}"
    if (limit := lead.limited) is not None:
        its = "its limit is" if limit.cause == "unclear" else "it is limited by"
        head += f"; {its} {limit.text}"
    yield head
    texts = []
    for row in top[1:]:
        # Few counts differ by chance by more, but what would be a collapse is not called alike.
        if (rate := row.values[MAIN].value) >= ladder.COLLAPSE * most:
            words = [part for part in row.name.split(", ") if part not in lead.name.split(", ")]
            texts.append(f"{', '.join(words) or row.name} ({number(rate)})")
    if texts:
        more = f" and {len(texts) - MOST_LIKE} more" if len(texts) > MOST_LIKE else ""
        yield f"Not clearly slower: {'; '.join(texts[:MOST_LIKE])}{more}"
    yield from _find_collapses(measured, page)
    yield from _find_ratios(measured, page, lead)
    for traced in waterfall.read_rows(measured):
        yield from waterfall.sentences(traced)


def _find_collapses(rows: Sequence[ViewRow], page: Page) -> Iterator[str]:
    """Yield a sentence on each cell and kind of clients that collapses with more clients."""
    ladders: dict[tuple[object, ...], dict[int, ViewRow]] = {}
    for row in rows:
        line = row.line
        if line.row.loop == "closed" and not line.broken:
            place = (line.variant, cell_slug(line.cell), line.row.client, line.row.traffic)
            ladders.setdefault(place, {})[line.row.connections] = row
    for steps in ladders.values():
        rungs = [Rung(users, row.values[MAIN].value) for users, row in steps.items()]
        _, top, _, lower = ladder.find_shape(rungs)
        if top is None or not lower:
            continue
        last = steps[lower[-1].clients]
        after = " and ".join(f"{number(step.throughput)} with {step.clients}" for step in lower)
        several = page.axes or page.variants[1:]
        text = last.place if several else "The throughput"
        text += f" collapses with more clients, from {number(top.throughput)} requests/s "
        text += f"with {top.clients} to {after}"
        if last.limited is not None and last.limited.cause != "unclear":
            text += f": limited by {last.limited.cause} ({last.limited.confidence} confidence)"
        yield text


def _find_ratios(measured: Sequence[ViewRow], page: Page, shown: ViewRow) -> Iterator[str]:
    """Yield the comparison of each further variant with the first, over the rows of both."""
    base, *others = page.variants
    for variant in others:
        rows = [row for row in measured if row.dims["variant"] == variant and RATIO in row.values]
        rows.sort(key=lambda row: row.values[RATIO].value)
        if not rows:
            continue
        least, most = rows[0], rows[-1]
        times = " to ".join(dict.fromkeys((least.text(RATIO), most.text(RATIO))))
        which = f"the {len(rows)} rows that both have" if rows[1:] else "the row that is in both"
        text = f"{variant} has {times} times the requests/s of {base}, in {which}"
        # The reason of a ratio may stand in the slower row: so what limits either is said, but of
        # `shown`, which the headline has.
        farthest = least if least.values[RATIO].value * most.values[RATIO].value < 1 else most
        for row in measured:
            alike = PLACE(row.dims) == PLACE(farthest.dims) and row is not shown
            if alike and row.dims["variant"] in (variant, base) and row.limited is not None:
                text += f"; {row.name}: {limit_words(row.limited)}"
        yield text


_ROW: Final = re.compile(r"single client|\d+ clients")
_INDENT: Final = " " * 8
_CLASSIC: Final = {"max_ongoing_requests": "max_concurrent_queries"}
"""Names of axes as they were published, where they are others now."""


def classic_text(page: Page, view: View) -> str:
    """Render the published form, digit for digit: only its rows (by aiohttp), to two places.

    What that form has no words for (a row that was not measured, errors) stands behind a figure, or
    in its place, and never alters a line that has neither.
    """
    lines: list[str] = []
    for variant in page.variants:
        lines += [f"variant {variant}:"] if page.variants[1:] else []
        lines += _failed(failure for failure in page.failures if failure.variant == variant)
        cell = None
        for row in view.rows:
            line = row.line
            load = (line.variant, line.row.loop, line.row.client)
            if load != (variant, "closed", "aiohttp") or line.status == "profiled":
                continue
            if _ROW.fullmatch(line.row.label):
                named = {_CLASSIC.get(name, name): value for name, value in line.cell.items()}
                lines += [f"{named}:"] if line.cell != cell else []
                lines.append(_classic_row(row))
                cell = line.cell
    lines += _failed(seen for seen in page.failures if seen.variant not in page.variants)
    return "\n".join(lines) + "\n" if lines else "no row of the published form was planned\n"


def _failed(failures: Iterable[Failure]) -> list[str]:
    return [f"failed: {failure.message}" for failure in failures]


def _classic_row(row: ViewRow) -> str:
    value, size, errors = row.values.get(MAIN), row.line.row.data_size, row.line.errors
    data = f"{size} data" if size in ("small", "large") else f"{size} bytes data"
    text = f"{_INDENT}{row.line.row.label} {data} "
    if value is None:
        text += row.gap or "no rate recorded"
    else:
        std = round(value.std or 0.0, 2)  # Ray's form has one for a single window too
        text += f"{round(value.value, 2)} +- {std} requests/s"
        text += f" ({errors} errors)" if errors else ""
        text += f" ({row.gap})" if row.gap else ""
    text += "".join(f" ({failed})" for failed in _failed(row.failures))
    if (published := row.values.get("published")) is not None:
        text += f" (published {published.value} +- {published.std} requests/s)"
    return text


OWN: Final = ("tokens", "payload", "launch_spread", "forward")
LENS: Final = Lens(build, figures=OWN, classic=classic_text)
