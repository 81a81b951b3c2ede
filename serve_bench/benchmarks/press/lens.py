"""The report on a press run: ladders of clients by published names, each request accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.core.result import Result
from serve_bench.view.document import Finding
from serve_bench.view.figures import INSIDE, declare, known_values, mean_of
from serve_bench.view.frame import Field, ViewRow
from serve_bench.view.ladders import view_ladders, view_run
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import PRESS, published_rows
from serve_bench.view.rows import Page

FIELDS: Final = (
    *(Field("users", "clients"), Field("latency_mean", "aveTime", "us")),
    *(Field("total", unit="us", detail=True), Field(MAIN, "qps", "1/s")),
    Field("latency_p50", detail=True),
)
CONNECTED: Final = (Field("connected", unit="us"), Field("connected_rate"))
declare(("cut", "requests", "requests that time kept from being answered"), shown="", tone="doubt")
declare(
    ("asked", "requests", "requests that were asked for, of all launches"),
    ("late", "requests", "requests that ended in the drain, after time had ended the row"),
    ("unaccounted", "requests", "asked - completed - failed - cut, which must be 0"),
    ("total", "ns", "from the first connect begun to the last answer", "totalTime"),
    ("connected", "ns", "from the last connect to the last answer"),
    ("connected_rate", "1/s", "completed requests over that time", "connected"),
    shown={"requests": ""},
)


def build(page: Page) -> View:
    """Build the view of the settings of a press run, each a ladder of clients."""
    views = view_ladders(page.result, [_count(row, page.result) for row in page.rows])
    published: list[ViewRow] = []
    for view in views if page.options.published else ():
        like = [view.settings.get(name) for name in ("device", "log_level")]
        none = ViewRow({}, gap=f"no published table like {view.name}")
        published += [*published_rows(PRESS, like)] or [none]
    fields = (*FIELDS, *CONNECTED) if page.options.exclude_connect else FIELDS
    return view_run(page.result, views, fields, published)


def _count(row: ViewRow, result: Result) -> ViewRow:
    """Add to the row its published name and the account of its requests."""
    asked_of, line, cut, late = result.run.asked, row.line, 0, 0
    timeout_ms = round(1e3 * asked_of.timeout_s)
    last = line.row.requests_each or f"{asked_of.max_row_s:g}s"  # time, where it alone ends a row
    dims = {**row.dims, "test_name": f"json_1_{timeout_ms}_{line.row.connections}_{last}"}
    if not line.trials:
        return replace(row, dims=dims)
    for trial in line.trials:
        ended = trial.flags.cut or trial.flags.interrupted
        if ended and trial.row.requests is not None:  # unanswered ones are cut
            cut += trial.counts.in_flight + max(0, trial.row.requests - trial.counts.sent)
            late += trial.counts.completed + trial.counts.failed_total - trial.ended_in_windows
    asked = (line.row.requests or 0) * len(line.trials)
    spans = [(trial, trial.seconds.measured) for trial in line.trials if trial.seconds.measured]
    account = known_values(
        asked=asked or None,
        cut=cut,
        late=late,
        unaccounted=asked - line.completed - line.errors - cut if asked else None,
        total=mean_of(1e9 * (trial.seconds.connecting + span) for trial, span in spans),
        connected=mean_of(1e9 * span for _, span in spans),
        connected_rate=mean_of(trial.completed_in_windows / span for trial, span in spans),
    )
    counted = replace(row, dims=dims, values={**row.values, **account})
    return replace(counted, warnings=tuple(_warn(counted, line)))


def _warn(row: ViewRow, line: Line) -> Iterator[Finding]:
    """Yield the warnings of a row, that time cut it, and what it lacks."""
    fixed = line.row.requests_each is not None  # one window by its nature
    yield from (seen for seen in row.warnings if not (fixed and seen.code == "few-windows"))
    asked, cut, done = row.text("asked"), row.text("cut"), f"{line.completed:,}"
    if row.value("cut") or row.value("late"):
        late = f", {row.text('late')} ended after that" if row.value("late") else ""
        interrupted = any(trial.flags.interrupted for trial in line.trials)
        code = "interrupted" if interrupted else "cut by time"
        yield Finding(f"{done} of {asked} requests were completed, {cut} not{late}", code, "doubt")
    if row.value("unaccounted"):
        account = f"{done} completed + {line.errors:,} failed + {cut} cut"
        words = f"{asked} requests asked for, but {account}: do not trust this row"
        yield Finding(words, "accounting", "doubt")


CLASSIC: Final = ("testName", "aveTime(us)", "totalTime(us)", "qps")


def classic_text(page: Page, view: View) -> str:
    """Render a table of the published columns for each setting, under its name."""
    out: list[str] = []
    for ladder in dict.fromkeys(row.dims["ladder"] for row in view.rows):
        rows = [row for row in view.rows if row.dims["ladder"] == ladder and MAIN in row.values]
        table = [CLASSIC, *map(_classic_row, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        out.append(f"{ladder}:")
        for name, *numbers in table:
            out.append("  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]))
        for row, (name, *_) in zip(rows, table[1:], strict=True):
            if row.value("cut") or row.value("late"):
                out.append(f"! {name}: cut off, {row.text('completed')} requests done")
        out.append("")
    return "\n".join(out) or "nothing was measured\n"


def _classic_row(row: ViewRow) -> tuple[str, str, str, str]:
    """Return the four published columns: us with up to five decimals, qps with five."""
    run = f" (run {row.dims['run']})" if row.dims["run"] > 1 else ""
    mean_ns, total_ns = row.value("latency_mean"), row.value("total")
    ave = "-" if mean_ns is None else f"{mean_ns / 1e3:.5f}".rstrip("0").rstrip(".")
    total = "-" if total_ns is None else f"{total_ns / 1e3:.0f}"
    return f"{row.dims['test_name']}{run}", ave, total, f"{row.values[MAIN].value:.5f}"


SEEN: Final = (*INSIDE, "ongoing", "queued", "router_queue")
LENS: Final = Lens(build, figures=SEEN, classic=classic_text)
