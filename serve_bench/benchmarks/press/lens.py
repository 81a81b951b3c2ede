"""How a press run is looked at: settings compared, every row by its published names.

Two settings are compared where they differ in one axis alone, by ratios within the same round,
since a machine changes from launch to launch. A direction is only claimed where every launch has
it, and it is stated how often chance alone brings that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core.axes import cell_defaults
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import JsonObject, Result, Trial
from serve_bench.view.charts import LinePoint
from serve_bench.view.climbs import (
    LadderView,
    collapse_points,
    cpu_blocks,
    describe_running,
    findings,
    knee_point,
    load_sections,
    remarks,
    replicas_of,
    services_of,
    shown_steps,
)
from serve_bench.view.document import (
    Block,
    Finding,
    Folded,
    Prose,
    ReportOptions,
    Section,
    Table,
    sentences,
)
from serve_bench.view.figures import INSIDE, Value, declare, mean_of
from serve_bench.view.frame import Field, TableSpec, ViewRow, differ, launch_table, make_table
from serve_bench.view.ladders import LadderLine
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import PRESS, press_table, published_notes, reference
from serve_bench.view.rows import Page

declare("asked", "requests", "requests that were asked for, of all launches", shown="")
declare(*("cut", "requests", "requests that time kept from being answered"), shown="", tone="doubt")
declare(
    "late", "requests", "requests that ended in the drain, after time had ended the row", shown=""
)
declare("unaccounted", "requests", "asked - completed - failed - cut, which must be 0", shown="")
declare("total", "ns", "from the first connect begun to the last answer", title="totalTime")
declare("connected", "ns", "from the last connect to the last answer")
declare(
    *("connected_rate", "1/s", "completed requests over the time from the last connect"),
    title="connected",
)
declare("served_of_base", "1", "the requests/s of one setting over those of another", title="ratio")

SETTINGS: Final = TableSpec(
    "Settings",
    (
        Field("name", "setting"),
        Field("best", unit="qps"),
        Field("best_with", "with", "clients"),
        Field("users", "knee", "clients"),
        Field("latency_p50", head="ms, knee"),
        Field("latency_p99", head="ms, knee", detail=True),
        Field("one_client_latency", unit="us", head="us, 1 client", detail=True),
        Field("cpu_service", "CPU", head="%, knee"),
        Field("gpu", head="%, knee", detail=True),
        Field("published_best", "published best", "qps (clients)"),
    ),
)
ROWS: Final = TableSpec(
    "Every row",
    (
        Field("users", "clients"),
        Field("latency_mean", "aveTime", "us"),
        Field("total", unit="us", detail=True),
        Field(MAIN, "qps", "1/s"),
        Field("latency_p50", detail=True),
        Field("latency_p99"),
        Field("errors"),
        Field("cut"),
        Field("cpu_service", "CPU", detail=True),
        Field("gpu"),
        Field("limit"),
        Field("mark"),
    ),
)
CONNECTED: Final = (Field("connected", unit="us"), Field("connected_rate"))
USE: Final = TableSpec(
    "CPU of service, client and host, % of a core",
    (
        Field("users", "clients"),
        *(Field(name) for name in ("cpu_service", "cpu_client", "cpu_host", "gpu")),
        Field("limit", "limited by"),
    ),
)
PUBLISHED: Final = TableSpec(
    "Published, not measured here",
    (
        Field("users", "clients"),
        Field("latency_mean", "aveTime", "us"),
        Field("total", unit="us"),
        Field(MAIN, "qps", "1/s"),
    ),
)
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
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
"""The quietest last: others are compared with it."""

MOST_COMPARED: Final = 2
"""Comparisons among the findings; all of them stand with their ratios."""

LEFT_OUT: Final = 1.1
"""The mean by Little's law that is so many times that of the completed requests is stated."""


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The settings of a press run, each a ladder of clients."""
    lost = {failure.key for failure in result.failures if failure.what == "worker"}
    counted_rows = [_count(row, lost, result) for row in rows]
    services = services_of(result, counted_rows, partial(name_settings, result), "client")
    if not services:
        return View(rows, findings=tuple(findings(())))
    points = [_setting(service, result, options.published) for service in services]
    compared = [*compare_settings(services, points)]
    bests = [row for row in compared if row.dims["with"] == "best"]
    steps = [row for service in services for row in service.steps]
    sections = [Section("results", "Results", (make_table(SETTINGS, points),), "headline")]
    if bests:
        ratios = tuple(_compared_blocks(bests, compared))
        sections.append(Section("compared", "Settings compared", ratios, "table"))
    blocks = tuple(_row_blocks(services, result, options.exclude_connect))
    sections.append(Section("rows", "Every row", blocks, "table"))
    if options.published:
        blocks = tuple(_published_blocks(points))
        sections.append(Section("published", "Published", blocks, "table"))
    cut = sum(_is_ended_by_time(row) for row in steps)
    return View(
        rows=steps,
        points=[*points, *(row for service in services for row in collapse_points(service))],
        comparisons=compared,
        lead=max(points, key=lambda point: point.value(MAIN) or 0.0),
        findings=tuple(findings(services, bests[:MOST_COMPARED])),
        doubts=[f"cut by time ({cut} of {len(steps)} rows)"] if cut else [],
        sections=sections,
        charts=tuple(load_sections(services, _published_lines(points, options.published))),
        cpu=(*cpu_blocks(services), Folded(USE.caption, (make_table(USE, steps, bare=True),))),
        traced=[row for service in services for row in shown_steps(service)],
        facts=tuple(_describe(result)),
        definitions=DEFINITIONS,
    )


def _describe(result: Result) -> Iterator[tuple[str, str]]:
    suite = result.run.suite
    yield "service", describe_running(result) or _describe_app(result)
    count = suite.get("requests_per_client")
    yield (
        "client",
        "raw, closed loop: each client is a connection that sends "
        f"{'requests' if count is None else f'{count} requests'}, one after the other; a row ends "
        f"after {suite.get('max_row_s', 0):g} s at the latest, a request after "
        f"{suite.get('timeout_s', 0):g} s",
    )


def _describe_app(result: Result) -> str:
    cell = (result.run.suite.get("cells") or [{}])[0]
    samples = cell.get("rows_per_request")
    request = f"a JSON request of {samples} samples, {cell.get('sparse_features')} strings each"
    if result.run.suite.get("app") == "press_noop":
        return f"{request} -> an app that answers at once, no model"
    replicas = replicas_of(result)
    facts = next(iter(replicas), {})
    torch = f", torch {facts['torch']}" if facts.get("torch") else ""
    devices = sorted({str(replica["device"]) for replica in replicas if replica.get("device")})
    on = f" on {' / '.join(axis_words('device', device) for device in devices)}" if devices else ""
    return (
        f"{request}, hashed to ids -> DLRM ranker ({cell.get('ranker')}; tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows', 0):,} x {cell.get('width')}"
        f"{torch}){on}"
    )


# Rows: by their published names, each request accounted for.


def _count(row: ViewRow, lost: set[str | None], result: Result) -> ViewRow:
    """The row with its account: requests of a load worker that was lost are not known, and so not
    accounted for."""
    assert row.entry is not None
    line = row.entry.line
    cut = late = 0
    for trial in line.trials:
        if trial.row.requests is None or trial.key in lost or not _is_ended(trial):
            continue
        cut += trial.counts.in_flight + max(0, trial.row.requests - trial.counts.sent)
        late += trial.counts.completed + trial.counts.failed_total - trial.ended_in_windows
    values = {**row.values, **dict(_spans(line))}
    if line.row.requests and line.trials:
        asked = line.row.requests * len(line.trials)
        missing = asked - line.completed - line.errors - cut
        account = {"asked": asked, "cut": cut, "late": late, "unaccounted": missing}
        values |= {name: Value(float(value)) for name, value in account.items()}
    elif line.trials:
        values |= {"cut": Value(float(cut)), "late": Value(float(late))}
    dims = {**row.dims, "test_name": _test_name(line, result)}
    counted_row = replace(row, dims=dims, values=values)
    return replace(counted_row, warnings=tuple(_warnings(counted_row)))


def _is_ended(trial: Trial) -> bool:
    """Whether time ended it, or Ctrl-C."""
    return bool(trial.flags.get("cut") or trial.flags.get("interrupted"))


def _spans(line: Line) -> Iterator[tuple[str, Value]]:
    """Times and rates with the opening of connections, and without."""
    spans = [(trial, float(trial.seconds.get("measured", 0.0))) for trial in line.trials]
    spans = [(trial, span) for trial, span in spans if span]
    figures = {
        "total": mean_of(
            1e9 * (float(trial.seconds.get("connecting", 0.0)) + span) for trial, span in spans
        ),
        "connected": mean_of(1e9 * span for _, span in spans),
        "connected_rate": mean_of(trial.completed_in_windows / span for trial, span in spans),
    }
    for name, value in figures.items():
        if value is not None:
            yield name, Value(value)


def _test_name(line: Line, result: Result) -> str:
    """The published name; where time alone ends a row it stands in place of the requests."""
    suite, count = result.run.suite, line.row.requests_each
    timeout_ms = round(1e3 * float(suite.get("timeout_s") or 0.0))
    last = f"{suite.get('max_row_s', 0):g}s" if count is None else str(count)
    return f"json_1_{timeout_ms}_{line.row.connections}_{last}"


def _is_ended_by_time(row: ViewRow) -> bool:
    """Whether time ended it in any launch before its last request had ended."""
    return bool(row.value("cut") or row.value("late"))


def _says_nothing(row: ViewRow, warning: Warning) -> bool:
    """A row of a fixed number of requests is one window by its nature."""
    fixed = row.entry is not None and row.entry.line.row.requests_each is not None
    return fixed and warning.code == "few-windows"


def _warnings(row: ViewRow) -> Iterator[Finding]:
    """What failed and what is doubted of a row, that time cut it, and what it lacks."""
    assert row.entry is not None
    line = row.entry.line
    kept = tuple(seen for seen in row.entry.warnings if not _says_nothing(row, seen))
    yield from replace(row.entry, warnings=kept).findings
    asked, cut = int(row.value("asked") or 0), int(row.value("cut") or 0)
    if _is_ended_by_time(row):
        late = f", {row.text('late')} ended after that" if row.value("late") else ""
        done = f"{line.completed:,} of {asked:,} requests were completed, {cut:,} not{late}"
        interrupted = any(trial.flags.get("interrupted") for trial in line.trials)
        yield Finding(done, "interrupted" if interrupted else "cut by time", "doubt")
        yield from sentences(_left_out(row), "doubt")
    if row.value("unaccounted"):
        words = (
            f"{asked:,} requests asked for, but {line.completed:,} completed + {line.errors:,} "
            f"failed + {cut:,} cut: do not trust this row"
        )
        yield Finding(words, "accounting", "doubt")


def _left_out(row: ViewRow) -> Iterator[str]:
    """Of a row that time ended, where those still in flight would have changed the mean latency."""
    waiting = sum(trial.counts.in_flight for trial in row.trials)
    rate, mean_ns = row.value("connected_rate"), row.value("latency_mean")
    if not waiting or not rate or not mean_ns:
        return
    by_little_ns = 1e9 * row.dims["connections"] / rate
    if by_little_ns > LEFT_OUT * mean_ns:
        assert row.entry is not None
        what = "in no latency: aveTime and the percentiles are too low"
        if row.entry.lower_bounds:
            what = "known to take longer: figures marked > are lower bounds"
        yield (
            f"{waiting:,} requests were still in flight, and are {what}; clients / qps gives a "
            f"mean of {number(by_little_ns / 1e3, 5)} us"
        )


def _row_blocks(
    services: Sequence[LadderView], result: Result, exclude_connect: bool
) -> Iterator[Block]:
    for service in services:
        rows = [replace(row, group="") for row in service.steps]
        notes = [f"As published, the first row is {rows[0].dims['test_name']}."]
        fields = list(ROWS.fields)
        if exclude_connect:
            fields[4:4] = CONNECTED
            notes.append("Connected: totalTime and qps without the time to connect.")
        launches = len({trial.round for row in rows for trial in row.trials})
        several = f", mean of {launches} launches, errors of all" if launches > 1 else ""
        spec = TableSpec(f"{service.name}{several}", tuple(fields), tuple(notes))
        yield make_table(spec, rows)
        yield Prose((*remarks(service), *_router_words(service, result)), listed=True)


def _router_words(service: LadderView, result: Result) -> Iterator[str]:
    """Where a collapse is what the router of an app of one deployment gives."""
    if result.run.suite.get("app") != "press_noop":
        return
    wait_s = router_wait_s(result.launches, service.ladder.variant)
    replicas = int(complete_cell(service.ladder, result).get("num_replicas", 0))
    for row in collapse_points(service):
        words = router_words(row.values[MAIN].value, replicas, wait_s)
        yield from [words] if words else []


# Settings.


def complete_cell(ladder: LadderLine, result: Result) -> JsonObject:
    """A cell as recorded leaves out what stands at its default; a service of others has none. The
    device is that which the replicas say they are on, else the one that was asked."""
    if not ladder.cell:
        return {}
    cell = {**cell_defaults(str(result.run.suite.get("app"))), **ladder.cell}
    launches = {launch.id for launch in result.launches if launch.variant.name == ladder.variant}
    used = [
        facts["device"]
        for deploy in result.deploys
        if deploy.launch in launches and dict(deploy.cell) == dict(ladder.cell)
        for facts in deploy.proof.get("replicas", ())
        if isinstance(facts, Mapping) and facts.get("device")
    ]
    device = used[0] if used else cell.get("device")
    return {**cell, **({"device": str(device).partition(":")[0]} if device else {})}


def name_settings(result: Result, ladders: Sequence[LadderLine]) -> list[tuple[str, str | None]]:
    """What is not the same in all; of a single setting what the published tables are told by."""
    cells = [_axes(ladder, result) for ladder in ladders]
    shown = differ(
        [ViewRow(cell) for cell in cells], dict.fromkeys(k for cell in cells for k in cell)
    )
    shown = shown or ["variant", "device", "log_level"]
    return [
        (", ".join(axis_words(axis, cell[axis]) for axis in shown if cell.get(axis)), None)
        for cell in cells
    ]


def _axes(ladder: LadderLine, result: Result) -> dict[str, Any]:
    return {"variant": ladder.variant, **complete_cell(ladder, result)}


def axis_words(axis: str, value: Any) -> str:
    """A value of an axis, shortly: the axis is named where the value alone does not say it."""
    if axis == "device":
        return {"cpu": "CPU", "cuda": "GPU"}.get(str(value), str(value))
    return str(value) if axis in ("variant", "log_level", "ranker") else f"{axis} {value}"


def _setting(service: LadderView, result: Result, published: bool) -> ViewRow:
    """A setting at its knee, with the published best of the same device and log level."""
    point = knee_point(service)
    dims = {**point.dims, **_axes(service.ladder, result)}
    if published and (table := press_table(dims.get("device"), dims.get("log_level"))):
        best = max(table["rows"], key=lambda row: float(row["qps"]))
        dims["published_best"] = f"{number(best['qps'])} ({best['clients']:,})"
    return replace(point, dims=dims)


def compare_settings(
    services: Sequence[LadderView], points: Sequence[ViewRow]
) -> Iterator[ViewRow]:
    """All pairs that differ in one axis, each with the base of that axis: the quietest log level,
    the CPU, else the setting that was begun first. First by their bests, then at each number of
    clients that both have."""
    axes = [
        axis
        for axis in differ(points, dict.fromkeys(name for point in points for name in point.dims))
        if axis not in ("ladder", "users", "best_with", "end", "collapse_with", "published_best")
    ]
    pairs = list(zip(services, points, strict=True))
    for axis in axes:
        others = [name for name in axes if name != axis]
        groups: dict[tuple[str, ...], list[tuple[LadderView, ViewRow]]] = {}
        for service, point in pairs:
            groups.setdefault(tuple(str(point.dims.get(name)) for name in others), []).append(
                (service, point)
            )
        for group in groups.values():
            base = min(group, key=lambda pair: _rank(axis, pair[1].dims.get(axis)))
            for pair in group:
                if pair is not base:
                    yield from _compare(axis, others, pair, base)


def _rank(axis: str, value: object) -> int:
    if axis == "log_level" and value in LEVELS:
        return -LEVELS.index(str(value))
    return -1 if axis == "device" and value == "cpu" else 0


def _compare(
    axis: str,
    others: Sequence[str],
    pair: tuple[LadderView, ViewRow],
    base: tuple[LadderView, ViewRow],
) -> Iterator[ViewRow]:
    """Nothing where there is no launch in which both served."""
    ours, theirs = (side[1].values.get("best") for side in (pair, base))
    shared = {} if ours is None or theirs is None else ours.launches.keys() & theirs.launches
    if ours is None or theirs is None or not shared:
        return
    where = [axis_words(name, base[1].dims[name]) for name in others if base[1].dims.get(name)]
    dims = {"axis": axis, "setting": pair[0].name, "base": base[0].name}
    sides = [axis_words(axis, side[1].dims.get(axis)) for side in (pair, base)]
    value = _ratio(ours.launches, theirs.launches)
    words = compare_words(value, (sides[0], sides[1]), ", ".join(where), axis)
    values = {"served_of_base": value}
    yield ViewRow({**dims, "with": "best"}, values, "best", notes=(words,))
    rates = [side[0].ladder.rounds for side in (pair, base)]
    for users in sorted({users for steps in rates[0].values() for users in steps}):
        here, there = (
            {place: r[users] for place, r in side.items() if users in r} for side in rates
        )
        here, there = (
            {place: r for place, r in side.items() if place in shared} for side in (here, there)
        )
        if here.keys() & there.keys():
            values = {"served_of_base": _ratio(here, there)}
            yield ViewRow({**dims, "with": users}, values, counted(users, "client"))


def _ratio(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Value:
    """Of the means over the launches that both have, with the ratio of each."""
    shared = sorted(ours.keys() & theirs.keys())
    launches = {number: ours[number] / theirs[number] for number in shared}
    means = [statistics.fmean(side[number] for number in shared) for side in (ours, theirs)]
    return Value(means[0] / means[1], launches=launches)


def compare_words(value: Value, sides: tuple[str, str], where: str, axis: str) -> str:
    """What can be said of a ratio, in one line that ends with a full stop: a direction only where
    every launch has it."""
    about = f"{where}: " if where else ""
    ratios = list(value.launches.values())
    texts = ", ".join(map(_ratio_text, ratios))
    word, words = ("round", "rounds") if axis == "variant" else ("launch", "launches")
    served = f"{about}{sides[0]} serves {_ratio_text(value.value)} of {sides[1]}'s best requests/s"
    if len(ratios) < 2:
        return (
            f"{served} in one {word}: within what one can show, since launches differ too "
            "(--launches 3)."
        )
    if all(ratio < 1 for ratio in ratios) or all(ratio > 1 for ratio in ratios):
        chance = 2 ** (len(ratios) - 1)
        agree = f"all {len(ratios)} {words} agree: by chance 1 time in {chance}"
        return f"{served} ({texts}; {agree})."
    return (
        f"{about}{sides[0]} and {sides[1]} are not distinguished: {sides[0]} serves {texts} of "
        f"{sides[1]}'s best requests/s in the {len(ratios)} {words}."
    )


def _ratio_text(value: float) -> str:
    """Two decimals, three digits where it is small: 0.78, 1.03, 0.0123."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _compared_blocks(
    bests: Sequence[ViewRow], compared: Sequence[ViewRow]
) -> Iterator[Prose | Table]:
    yield Prose(tuple(note for row in bests for note in row.notes), listed=True)
    for best in bests:
        if len(best.values["served_of_base"].launches) > 1:
            names = ("axis", "setting", "base")
            rows = [row for row in compared if all(row.dims[n] == best.dims[n] for n in names)]
            caption = f"qps of {best.dims['setting']} over those of {best.dims['base']}"
            word = "round" if best.dims["axis"] == "variant" else "launch"
            yield launch_table(caption, rows, "served_of_base", word)


# Published.


def _published_blocks(points: Sequence[ViewRow]) -> Iterator[Block]:
    """The published tables of the same devices and log levels, and what else is published."""
    about = reference(PRESS)
    for point in points:
        table = press_table(point.dims.get("device"), point.dims.get("log_level"))
        if table is None:
            yield Prose((f"There is no published table like {point.name}.",), "quiet")
            continue
        caption = (
            f"{PUBLISHED.caption}: {about['source']}; {table['device']}, log level "
            f"{table['log_level']}; {about['hardware']}"
        )
        yield make_table(PUBLISHED, published_rows(table), caption)
    notes = Prose(published_notes("press"), "quiet", listed=True)
    yield Folded(PUBLISHED.caption, (notes,))


def published_rows(table: Mapping[str, Any]) -> list[ViewRow]:
    """The rows of a published table."""
    return [
        ViewRow(
            {"users": row["clients"]},
            {
                "latency_mean": Value(1e3 * row["ave_us"]),
                "total": Value(1e3 * row["total_us"]),
                MAIN: Value(row["qps"]),
            },
        )
        for row in table["rows"]
    ]


def _published_lines(
    points: Sequence[ViewRow], published: bool
) -> dict[str, dict[str, list[LinePoint]]]:
    """Each published table that is like a setting, as a line of its own, by figure."""
    lines: dict[str, dict[str, list[LinePoint]]] = {MAIN: {}, "latency_p50": {}}
    for point in points if published else ():
        table = press_table(point.dims.get("device"), point.dims.get("log_level"))
        if table is not None:
            of = f"{table['device']}, log level {table['log_level']}"
            rows = table["rows"]
            lines[MAIN][f"{PUBLISHED.caption}: {of}"] = [
                LinePoint(row["clients"], row["qps"]) for row in rows
            ]
            lines["latency_p50"][f"{PUBLISHED.caption}: {of}, mean"] = [
                LinePoint(row["clients"], 1e-3 * row["ave_us"]) for row in rows
            ]
    return lines


# The published form.

CLASSIC: Final = ("testName", "aveTime(us)", "totalTime(us)", "qps")


def classic_text(result: Result, page: Page, view: View) -> str:
    """A table of the published columns for each setting, under its name."""
    out: list[str] = []
    for name in dict.fromkeys(row.dims["ladder"] for row in view.rows if "ladder" in row.dims):
        rows = [row for row in view.rows if row.dims["ladder"] == name and MAIN in row.values]
        out += [f"{name}:", *_align([CLASSIC, *map(_classic_row, rows)])]
        out += [
            f"! {_classic_name(row)}: cut off, {row.text('completed')} requests done"
            for row in rows
            if _is_ended_by_time(row)
        ]
        out.append("")
    return "\n".join(out[:-1]) + "\n" if out else "nothing was measured\n"


def _classic_row(row: ViewRow) -> tuple[str, ...]:
    """The four published columns with their digits: us with up to five decimals, qps with five."""
    mean_ns, total_ns = row.value("latency_mean"), row.value("total")
    ave = "-" if mean_ns is None else f"{mean_ns / 1e3:.5f}".rstrip("0").rstrip(".")
    total = "-" if total_ns is None else f"{total_ns / 1e3:.0f}"
    return _classic_name(row), ave, total, f"{row.values[MAIN].value:.5f}"


def _classic_name(row: ViewRow) -> str:
    run = f" (run {row.dims['run']})" if row.dims["run"] > 1 else ""
    return f"{row.dims['test_name']}{run}"


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns two spaces apart, the names of the tests flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


LENS: Final = Lens(
    build,
    (*INSIDE, "ongoing", "queued", "router_queue"),
    ignored=_says_nothing,
    silent=("ratio:", "requests/s:", "hint, offered"),
    classic=classic_text,
)
