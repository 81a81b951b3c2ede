"""What a run of rows says: `micro`, `noop`, and `run` for an app of the user's own.

Rule: a failure or a doubt stands with the row, the variant or the run that it is about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.statistics import Distribution, Spread
from serve_bench.benchmarks.micro.charts import (
    cpu_charts,
    latencies,
    stream_times,
    throughput,
    windows,
)
from serve_bench.benchmarks.micro.summary import broken_off, causes, collapses, findings
from serve_bench.core.chat import Lengths
from serve_bench.core.own_app import APP_NAME
from serve_bench.core.result import Result
from serve_bench.view import about_run, streams, waterfall
from serve_bench.view.blocks import (
    NOTHING,
    Fields,
    count,
    milliseconds,
    plain,
    rate,
    section,
    share,
    table_of,
    whole_run,
)
from serve_bench.view.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Finding,
    Flamegraph,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    TableRow,
    Text,
    Tone,
    sentences,
)
from serve_bench.view.inside import mean_by_role, usage_table
from serve_bench.view.names import Names, measured, names_of
from serve_bench.view.rows import Entry, Page, page_of
from serve_bench.view.seen import cpu_tables, evidence
from serve_bench.view.texts import cell_title, limited_line, number, ratio

HINT: Final = "hint, "
"""What a note of the page begins with that says what to try."""

LATENCIES: Final = ("p50", "p90", "p99", "max")

CPU_PERCENT: Final = 5.0
"""Roles below 5 % of a core are "the rest" where the best rows alone are shown."""

MOST_AXES: Final = 3
"""Axes that have a column each; of more, one column has the names of the cells."""

MOST_PATHS: Final = 4
"""Paths of a request that are named where a load asks for several."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of rows says, with the published figures of the no-op matrix beside if wanted."""
    page = page_of(result, published=options.published, where=options.where)
    names = names_of(page)
    own = isinstance(result.run.suite.get("app"), dict)  # the content of its spec
    cpu = "CPU by process, and limits by row"
    traced = [waterfall.of_line(names.whole(one), one.line) for one in page.entries]
    sections = (
        Section("results", "Results", tuple(_results(page, names)), "headline"),
        *section("usage", "CPU by process", _usage(page, names), "table"),
        *section("throughput", "Throughput by cell", throughput(page, names)),
        *section("latency", "Latency by percentile", latencies(page, names)),
        *section("streams", "TTFT and ITL by percentile", stream_times(page, names)),
        *section("windows", "Windows over time", windows(page, names)),
        *section("cpu", cpu, _cpu(page, names)),
        *section("details", "Every figure", _details(page, names)),
        *waterfall.sections(traced),
        *section("profiles", "Flamegraphs", profiles(page, names)),
        about_run.method(result),
    )
    variants = {
        f"variant {part.name}": "; ".join((" ".join(part.env) or "no flags", *part.owners))
        for part in page.variants
    }
    app: Any = result.run.suite.get("app")
    name = f" {app['target'].rpartition('/')[2]}" if own and isinstance(app, dict) else ""
    return about_run.run_document(
        result,
        options.where,
        title=f"serve-bench {result.run.command}{name}",
        findings=sentences(findings(page, names)),
        doubts=_whole_run(page),
        sections=sections,
        facts=(*(_app(result) if own else ()), *variants.items()),
    )


def _whole_run(page: Page) -> Iterator[Finding]:
    """What failed and what is doubted of the run, then of each variant."""
    yield from whole_run(page.warnings, page.failures)
    for part in page.variants:
        yield from whole_run(part.warnings, part.failures)


def _app(result: Result) -> Iterator[tuple[str, str]]:
    """The deployments of the app, and the request that every row makes of it."""
    app: Any = result.run.suite.get("app")
    if not isinstance(app, dict):
        return
    names = [str(one["name"]) for one in app["deployments"]]
    others = f", in front of {', '.join(names[-2::-1])}" if len(names) > 1 else ""
    name = app.get("config", {}).get("name", APP_NAME)
    named = f" as {name}" if name != APP_NAME else ""
    beside = " and ".join(str(one["config"]["name"]) for one in app.get("beside", ()))
    named += f", beside {beside}" if beside else ""
    call = app["asked"].get("call")
    protocol = "calls of a handle" if call else "gRPC" if app.get("grpc") else "HTTP"
    yield "deployments", f"{names[-1]} receives {protocol}{others}{named}"
    yield "request", request_text(app["asked"], protocol)


def request_text(asked: Mapping[str, Any], protocol: str = "HTTP") -> str:
    """What a load asks of an app by HTTP, gRPC or a handle, in words."""
    size, http = int(asked.get("body_bytes", 0)), protocol == "HTTP"
    if asked.get("call"):
        return f"{asked['call']}()" + (f" with an argument of {size:,} bytes" if size else "")
    text = f"{asked['method']} {asked['route']}" if http else str(asked["route"])
    paths, sets = asked.get("paths", ()), asked.get("header_sets", ())
    chat, bodies = asked.get("chat"), int(asked.get("bodies_count") or 0)
    how = "drawn at random" if asked.get("draw") == "random" else "in turn"
    if len(paths) > 1:
        shown = ", ".join(paths[1:MOST_PATHS])
        more = f" and {len(paths) - MOST_PATHS:,} more" if len(paths) > MOST_PATHS else ""
        text += f", {shown}{more} ({len(paths):,} paths {how})"
    if sets:
        headers = ", ".join(dict.fromkeys(name for one in sets for name, _ in one))
        text += f", {len(sets):,} sets of headers {how} ({headers})"
    if bodies:
        text += f", {bodies:,} bodies {how}"
    if chat is not None:
        prompt, answer = (Lengths(**chat[name]).text for name in ("prompt", "answer"))
        text += f", chats of {chat['model']}: prompts of {prompt} tokens, answers up to {answer}"
    return text + (f" with a {'body' if http else 'message'} of {size:,} bytes" if size else "")


def _results(page: Page, names: Names) -> Iterator[Block]:
    if page.entries:
        yield _table(page, names)
    rows = measured(page)
    told = [_best(rows), *(last for _, last in collapses(rows, names))]
    limits = [entry.limited for entry in told if entry is not None and entry.limited is not None]
    hints = [*_hints(page).items(), *((limit.cause, limit.hint) for limit in limits if limit.hint)]
    texts = tuple(f"hint, {name}: {hint}" for name, hint in dict.fromkeys(hints))
    yield from [Prose(texts, "quiet", listed=True)] if texts else []
    yield from failures(page)


def _table(page: Page, names: Names) -> Table:
    """Every row, those of the same cell and load under all variants beside each other; cells are
    headings, or rows themselves."""
    hints = _hints(page)
    shared = {part.name: [one.code for one in part.warnings] for part in page.variants}
    struck = {
        id(part.entries[0]): [
            Finding(f"{one.what}: {one.message}", "failed", "bad", about="the whole cell")
            for one in part.failures
        ]
        for variant in page.variants
        for part in variant.cells
    }
    return table_of(
        "Throughput, latency and limit by row",
        tuple(_fields(page, names)),
        names.in_order(page.entries),
        tuple(_notes(page, names)),
        lambda one: (*struck.get(id(one), ()), *_doubts(one, hints, shared[one.line.variant])),
        lambda one: names.full(one.line.cell) if names.grouped and names.cells else "",
        names.whole,
    )


def _hints(page: Page) -> dict[str, str]:
    """What to do about doubts of several rows, by code: it is said once, below the table."""
    every = [(one.code, one.hint) for entry in page.entries for one in entry.findings if one.hint]
    return {code: hint for code, hint in every if every.count((code, hint)) > 1}


def _doubts(entry: Entry, hints: Mapping[str, str], shared: Sequence[str]) -> Iterator[Finding]:
    for one in entry.findings:
        yield replace(one, hint="") if hints.get(one.code) == one.hint else one
    if broken_off(entry):
        yield Finding("", "interrupted", "doubt")
    # What doubts the variant stands with the doubts of the run; here it is named.
    yield from (Finding("", code, "doubt") for code in dict.fromkeys(shared) if entry.line.trials)


def _notes(page: Page, names: Names) -> Iterator[str]:
    """What all rows have in common, then how the figures were got."""
    cell = page.entries[0].line.cell
    same = {axis: value for axis, value in cell.items() if axis not in names.axes}
    if same:
        yield f"every cell: {cell_title(same)}"
    if not names.grouped and names.legend:
        yield names.legend
    clients: dict[str, list[str]] = {}
    for row, name in names.rows.items():
        words = [f"client {row.client}"]
        words += [f"{row.data_size} data"] if row.data_size != "small" else []
        due = f" at {row.rate_per_s:,g} requests/s" if row.rate_per_s else ""
        words += [f"open loop{due}"] if row.loop == "open" else []
        clients.setdefault(", ".join(words), []).append(name)
    yield "; ".join(f"{', '.join(rows)}: {words}" for words, rows in clients.items())
    if any(row.traffic.payload for row in names.rows):
        yield "MB/s: bodies of requests and responses"
    yield from (note for note in page.notes if not note.startswith(HINT))


Field = tuple[Column, Callable[[Entry], Cell]]


def _fields(page: Page, names: Names) -> Iterator[Field]:
    yield from _name_fields(names)
    yield Column("requests/s"), _rate
    if any(one.line.row.traffic.payload for one in page.entries):
        yield Column("MB/s"), _payload
    yield Column("ratio"), lambda one: _ratio(one, page.base)
    for name in LATENCIES:
        yield Column(name, "ms", detail=name in ("p90", "max")), _latency(name)
    yield from streams.fields(page.entries)
    yield Column("errors"), _errors
    yield Column("std over launches"), lambda one: _over_launches(one.rate)
    yield Column("published", "requests/s"), _published
    yield Column("limited by", number=False), _cause


def _name_fields(names: Names) -> Iterator[Field]:
    """What names a row: its axes where cells are rows, its load, its variant. What stands under a
    row stands with the first of them."""
    fields: list[Field] = []
    if not names.grouped and len(names.axes) > MOST_AXES:
        fields.append((Column("cell", number=False), lambda one: names.cell(one.line.cell)))
    elif not names.grouped:
        fields += [(Column(short, number=False), _axis(axis)) for axis, short in names.axes.items()]
    if names.grouped:
        fields.append((Column("load", number=False), names.row))
    if names.variants:
        fields.append((Column("variant", number=False), lambda one: one.line.variant))
    (column, first), *rest = fields
    yield column, lambda one: _named(first(one), one)
    yield from rest


def _axis(axis: str) -> Callable[[Entry], Cell]:
    return lambda one: str(one.line.cell.get(axis, "-"))


def _named(name: Cell, entry: Entry) -> Text:
    """The name of a row, marked if a profiler was attached, with what is to be said of it below."""
    profiled = entry.line.status == "profiled"
    limits = limited_line(tuple(entry.verdicts.values())) if entry.verdicts else None
    below = [fact for fact in entry.facts if fact != limits]
    mark = " (profiled)" if profiled else ""
    return Text(f"{name}{mark}", "quiet" if profiled else "plain", tuple(below))


def _rate(entry: Entry) -> Number:
    """`629.4 ± 5.3`; what is missing instead where nothing was measured."""
    tone: Tone = "doubt" if entry.findings else "plain"
    if entry.failures or not entry.line.trials:
        tone = "bad"
    if entry.line.status == "profiled":
        tone = "quiet"
    return Number(entry.gap or "-", None, tone) if entry.rate is None else rate(entry.rate, tone)


def _payload(entry: Entry) -> Number:
    """Bodies of requests and responses, MB/s."""
    size = entry.line.row.traffic.payload
    return NOTHING if entry.rate is None or not size else plain(entry.rate.mean * size / 1e6, 3)


def _ratio(entry: Entry, base: str | None) -> Number:
    value = entry.line.ratio
    return Number(ratio(entry.line, base), value, "quiet" if value is None else "plain")


def _latency(name: str) -> Callable[[Entry], Cell]:
    return lambda entry: share(entry.line.distributions.get("latency"), name)


def _errors(entry: Entry) -> Number:
    failed = entry.line.errors
    return count(failed, "doubt" if failed else "plain") if entry.line.trials else NOTHING


def _over_launches(spread: Spread | None) -> Number:
    """`14.1 (3)`: the spread of the launches' means, and how many there were."""
    if spread is None or spread.launch_std is None:
        return NOTHING
    return Number(f"{number(spread.launch_std)} ({spread.launches})", spread.launch_std)


def _published(entry: Entry) -> Number:
    known = entry.published
    return Number(str(known or "-"), None if known is None else known.mean, "quiet")


def _cause(entry: Entry) -> str:
    if entry.limited is None:
        return "-"
    causes = [one.cause for one in entry.verdicts.values()]
    count, most = causes.count(entry.limited.cause), entry.limited.cause
    return most if count == len(causes) else f"{most}, in {count} of {len(causes)} launches"


def failures(page: Page) -> Iterator[Folded]:
    """The failures whose last lines are known; the messages alone stand where they struck."""
    blocks: list[Block] = []
    for one in page.all_failures:
        if one.detail:
            blocks.append(Prose((f"failed: {one.what}: {one.message}",), "bad"))
            blocks.append(Code("\n".join(one.detail)))
    if blocks:
        yield Folded("Failures, with the last log lines", tuple(blocks))


def _usage(page: Page, names: Names) -> Iterator[Block]:
    """CPU by process at the highest throughput of each variant."""
    sampled = [one for one in measured(page) if mean_by_role(one.line.trials)]
    of_each = [_best([one for one in sampled if one.line.variant == v.name]) for v in page.variants]
    best = [one for one in of_each if one is not None]
    if not best:
        return
    of_which = "; ".join(names.whole(one) for one in best)
    caption = f"At the highest throughput ({of_which}), % of a core"
    alone = len(best) == 1
    columns = [("CPU" if alone else one.line.variant, one.line.trials) for one in best]
    yield usage_table(caption, columns, memory=alone, least=CPU_PERCENT)


def _best(entries: Sequence[Entry]) -> Entry | None:
    return max(entries, key=lambda one: one.rate.mean if one.rate else 0.0, default=None)


def _cpu(page: Page, names: Names) -> Iterator[Block]:
    """What limited how many rows, CPU by process of each cell, what each verdict rests on."""
    hints = tuple(note for note in page.notes if note.startswith(HINT))
    texts = (*filter(None, (causes(page),)), *hints)
    yield from [Prose(texts)] if texts else []
    yield from cpu_charts(page, names)
    yield from cpu_tables(page)
    yield from evidence(page, names)


def _details(page: Page, names: Names) -> Iterator[Block]:
    entries = [entry for entry in page.entries if entry.line.trials]
    if not entries:
        return
    inside = tuple(
        Code(
            f"{names.whole(entry)}, launch {trial.launch}\n"
            f"{json.dumps(trial.serve_metrics, indent=1, ensure_ascii=False)}"
        )
        for entry in entries
        for trial in entry.line.trials
        if trial.serve_metrics and trial.serve_metrics.get("status") != "absent"
    )
    yield Folded("Every metric of each row", (metrics_table(entries, names),))
    yield Folded("Requests of each row", (_requests(entries, names),))
    if inside:
        yield Folded("Serve's own metrics around each trial", inside)


def metrics_table(entries: Sequence[Entry], names: Names) -> Table:
    """Each metric of each row: by windows with the std over them, or as a histogram."""
    rows = []
    for one in entries:
        line, group = one.line, names.whole(one)
        cells = {name: (of.unit, _spread_cells(of)) for name, of in line.spreads.items()}
        cells |= {name: (of.unit, _histogram_cells(of)) for name, of in line.distributions.items()}
        for name, (unit, figures) in cells.items():
            label = f"{name.replace('_', ' ')}, {'ms' if unit == 'ns' else unit}"
            rows.append(TableRow((label, *figures), group=group))
    heads = (Column(name) for name in ("mean", "std", *LATENCIES))
    columns = (Column("metric", number=False), *heads, Column("over", number=False))
    caption = "Windows by mean and std, histograms by percentiles too"
    return Table(caption, columns, tuple(rows), unlike=True)


def _spread_cells(spread: Spread) -> Iterator[Cell]:
    yield from (_value(value, spread.unit) for value in (spread.mean, spread.std))
    yield from ["-"] * len(LATENCIES)
    launches = f" in {spread.launches} launches" if spread.launches > 1 else ""
    yield f"{spread.windows:,} window{'s' if spread.windows != 1 else ''}{launches}"


def _histogram_cells(of: Distribution) -> Iterator[Cell]:
    yield from (_value(getattr(of, name), of.unit) for name in ("mean", "std", *LATENCIES))
    yield f"{of.count:,} values"


def _value(value: float | None, unit: str) -> Number:
    return milliseconds(value) if unit == "ns" else plain(value)


def _requests(entries: Sequence[Entry], names: Names) -> Table:
    """What became of the requests of each row; the replicas count those of the warm-up too."""

    def classes(one: Entry) -> str:
        failed = one.line.failed.items()
        return ", ".join(f"{name} {number_of:,}" for name, number_of in failed) or "none"

    def served(one: Entry) -> str:
        taken = (trial.served.items() for trial in one.line.trials if trial.served)
        return "; ".join(", ".join(f"{name}: {n:,}" for name, n in of) for of in taken) or "-"

    fields: Fields[Entry] = (
        (Column("completed"), lambda one: count(one.line.completed)),
        (Column("failed"), _errors),
        (Column("by class", number=False), classes),
        (Column("by replica, with the warm-up", number=False), served),
    )
    return table_of("Outcome", fields, entries, group=names.whole)


def profiles(page: Page, names: Names) -> Iterator[Block]:
    """The flamegraphs of the profiled rows, the first row's open."""
    every = [(entry, tuple(_flamegraphs(entry, names))) for entry in page.entries]
    shown = [(entry, drawn) for entry, drawn in every if drawn]
    for at, (entry, drawn) in enumerate(shown):
        yield from [Folded(names.whole(entry), drawn)] if at else drawn


def _flamegraphs(entry: Entry, names: Names) -> Iterator[Flamegraph]:
    for trial in entry.line.trials:
        for profile in trial.profiles:
            path = str(profile.get("path", ""))
            if "failed" in profile or not path:
                continue
            process, row = f"{profile['role']} {profile['pid']}", names.whole(entry)
            yield Flamegraph(
                f"{row}: {process}",
                path,
                f"flamegraph of {process} during {row}: the wider a frame, the more samples had it "
                "on the stack",
            )
