"""How a press run is looked at: ladders of clients by the published names, each request accounted
for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.core.figures import number
from serve_bench.core.result import Result
from serve_bench.view.document import Finding, ReportOptions
from serve_bench.view.figures import INSIDE, declare, declare_all, known_values, mean_of
from serve_bench.view.frame import Field, ViewRow
from serve_bench.view.ladders import LadderView, view_ladders, view_run
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import PRESS, press_table, reference
from serve_bench.view.rows import Page

FIELDS: Final = (
    *(Field("users", "clients"), Field("latency_mean", "aveTime", "us")),
    *(Field("total", unit="us", detail=True), Field(MAIN, "qps", "1/s")),
    Field("latency_p50", detail=True),
)
CONNECTED: Final = (Field("connected", unit="us"), Field("connected_rate"))
DEFINITIONS: Final = (
    "aveTime: the mean latency of the completed requests, without those in flight as time cuts a "
    "row; totalTime: from the first connect begun to the end of the last request",
    "qps: completed requests / totalTime; published: clients x requests of each / totalTime, which "
    "is the same where none failed and none was cut; connected: without the time to connect",
)

LEFT_OUT: Final = 1.1
"""The mean by Little's law that is so many times that of the completed requests is stated."""

declare("cut", "requests", "requests that time kept from being answered", shown="", tone="doubt")
declare_all(
    ("asked", "requests", "requests that were asked for, of all launches"),
    ("late", "requests", "requests that ended in the drain, after time had ended the row"),
    ("unaccounted", "requests", "asked - completed - failed - cut, which must be 0"),
    ("total", "ns", "from the first connect begun to the last answer", "totalTime"),
    ("connected", "ns", "from the last connect to the last answer"),
    ("connected_rate", "1/s", "completed requests over that time", "connected"),
    shown={"requests": ""},
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The settings of a press run, each a ladder of clients."""
    views = view_ladders(result, [_count(row, result) for row in rows])
    published = [*_published(views)] if options.published else []
    fields = (*FIELDS, *CONNECTED) if options.exclude_connect else FIELDS
    asked, most_s = (result.run.suite.get(name) for name in ("requests_per_client", "max_row_s"))
    words = f"raw, closed loop; {asked or 'unlimited'} requests each, rows up to {most_s or 0:g} s"
    return view_run(result, views, fields, published, DEFINITIONS, [("client", words)])


def _count(row: ViewRow, result: Result) -> ViewRow:
    """The row with the account of its requests, what is doubted of it, and its published name, in
    which time stands in place of the requests where it alone ends a row."""
    assert row.entry is not None
    suite, line = result.run.suite, row.entry.line
    timeout_ms = round(1e3 * float(suite.get("timeout_s") or 0.0))
    last = line.row.requests_each or f"{suite.get('max_row_s', 0):g}s"
    name = f"json_1_{timeout_ms}_{line.row.connections}_{last}"
    account = known_values(**_account(line)) if line.trials else {}
    counted = replace(row, dims={**row.dims, "test_name": name}, values={**row.values, **account})
    return replace(counted, warnings=tuple(_warnings(counted, line)))


def _account(line: Line) -> dict[str, float | None]:
    """What became of the requests: those that time, or Ctrl-C, left unanswered are cut. Times and
    rates with the opening of connections, and without."""
    cut = late = 0
    for trial in line.trials:
        ended = trial.flags.get("cut") or trial.flags.get("interrupted")
        if ended and trial.row.requests is not None:
            cut += trial.counts.in_flight + max(0, trial.row.requests - trial.counts.sent)
            late += trial.counts.completed + trial.counts.failed_total - trial.ended_in_windows
    asked = (line.row.requests or 0) * len(line.trials)
    unaccounted = asked - line.completed - line.errors - cut
    spans = [
        (trial, float(trial.seconds.get("connecting", 0.0)), float(trial.seconds["measured"]))
        for trial in line.trials
        if trial.seconds.get("measured")
    ]
    return {
        "asked": asked or None,
        "cut": cut,
        "late": late,
        "unaccounted": unaccounted if asked else None,
        "total": mean_of(1e9 * (connecting + span) for _, connecting, span in spans),
        "connected": mean_of(1e9 * span for _, _, span in spans),
        "connected_rate": mean_of(trial.completed_in_windows / span for trial, _, span in spans),
    }


def _is_cut(row: ViewRow) -> bool:
    """Whether time ended it in any launch before its last request had ended."""
    return bool(row.value("cut") or row.value("late"))


def _warnings(row: ViewRow, line: Line) -> Iterator[Finding]:
    """What is doubted of a row, that time cut it, and what it lacks. A row of a fixed number of
    requests is one window by its nature."""
    fixed = line.row.requests_each is not None
    yield from (seen for seen in row.warnings if not (fixed and seen.code == "few-windows"))
    asked, cut, done = row.text("asked"), row.text("cut"), f"{line.completed:,}"
    if _is_cut(row):
        late = f", {row.text('late')} ended after that" if row.value("late") else ""
        words = f"{done} of {asked} requests were completed, {cut} not{late}{_left_out(row)}"
        interrupted = any(trial.flags.get("interrupted") for trial in line.trials)
        yield Finding(words, "interrupted" if interrupted else "cut by time", "doubt")
    if row.value("unaccounted"):
        account = f"{done} completed + {line.errors:,} failed + {cut} cut"
        words = f"{asked} requests asked for, but {account}: do not trust this row"
        yield Finding(words, "accounting", "doubt")


def _left_out(row: ViewRow) -> str:
    """Where requests still in flight would have changed the mean latency."""
    waiting = sum(trial.counts.in_flight for trial in row.trials)
    rate, mean_ns = row.value("connected_rate"), row.value("latency_mean")
    by_little_ns = 1e9 * row.dims["connections"] / rate if rate else 0.0
    if not waiting or not mean_ns or by_little_ns <= LEFT_OUT * mean_ns:
        return ""
    mean = f"{number(by_little_ns / 1e3, 5)} us"
    return f"; {waiting:,} were still in flight, and clients / qps gives a mean of {mean}"


def _published(views: Sequence[LadderView]) -> Iterator[ViewRow]:
    """The published tables of the same devices and log levels."""
    about = reference(PRESS)
    for view in views:
        table = press_table(view.settings.get("device"), view.settings.get("log_level"))
        if table is None:
            yield ViewRow({}, gap=f"no published table like {view.name}")
            continue
        setting = f"{table['device']}, log level {table['log_level']}"
        for row in table["rows"]:
            times = {"latency_mean": 1e3 * row["ave_us"], "total": 1e3 * row["total_us"]}
            values = known_values(throughput=row["qps"], **times)
            source = f"{about['source']}; {setting}; {about['hardware']}"
            yield ViewRow({"users": row["clients"]}, values, group=source)


# The published form.

CLASSIC: Final = ("testName", "aveTime(us)", "totalTime(us)", "qps")


def classic_text(result: Result, page: Page, view: View) -> str:
    """A table of the published columns for each setting, under its name; columns two spaces apart,
    the names of the tests flush left."""
    out: list[str] = []
    for ladder in dict.fromkeys(row.dims["ladder"] for row in view.rows):
        rows = [row for row in view.rows if row.dims["ladder"] == ladder and MAIN in row.values]
        table = [CLASSIC, *map(_classic_row, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        out.append(f"{ladder}:")
        for name, *numbers in table:
            out.append("  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]))
        for row, (name, *_) in zip(rows, table[1:], strict=True):
            if _is_cut(row):
                out.append(f"! {name}: cut off, {row.text('completed')} requests done")
        out.append("")
    return "\n".join(out) or "nothing was measured\n"


def _classic_row(row: ViewRow) -> tuple[str, str, str, str]:
    """The four published columns with their digits: us with up to five decimals, qps with five."""
    run = f" (run {row.dims['run']})" if row.dims["run"] > 1 else ""
    mean_ns, total_ns = row.value("latency_mean"), row.value("total")
    ave = "-" if mean_ns is None else f"{mean_ns / 1e3:.5f}".rstrip("0").rstrip(".")
    total = "-" if total_ns is None else f"{total_ns / 1e3:.0f}"
    return f"{row.dims['test_name']}{run}", ave, total, f"{row.values[MAIN].value:.5f}"


LENS: Final = Lens(build, (*INSIDE, "ongoing", "queued", "router_queue"), classic=classic_text)
"""How a press run is looked at."""
