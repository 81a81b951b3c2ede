"""How a run of rows is looked at: `micro`, `noop`, and `run` and `trace` of an app of one's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.statistics import FEWEST, LIKE, MAIN, best
from serve_bench.analysis.statistics import rate as mean_rate
from serve_bench.core import ladder
from serve_bench.core.chat import Lengths
from serve_bench.core.figures import counted, number
from serve_bench.core.ladder import Rung
from serve_bench.core.own_app import APP_NAME
from serve_bench.core.result import Result
from serve_bench.view import streams, waterfall
from serve_bench.view.blocks import limit_words, listed, sentence
from serve_bench.view.document import Finding, Prose, ReportOptions, Section, Table
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.inside import mean_by_role, usage_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.names import Names, names_of, place_of
from serve_bench.view.published import published_notes
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import CellPart, Entry, Page
from serve_bench.view.texts import cell_title, limited_line

declare(
    *("payload", "MB/s", "bodies of requests and responses in a second"),
    title="MB/s",
    better="higher",
)
declare("launch_spread", "requests/s", "std over launches (ddof 1)", title="std over launches")
declare(
    *("tokens", "1/s", "tokens of answers in a second, as the service counts them"),
    lambda line: streams.tokens_per_s(line.trials),
    title="tokens/s",
)

CPU_PERCENT: Final = 5.0
"""Roles below 5 % of a core are "the rest" where the best rows alone are shown."""

MOST_AXES: Final = 3
"""Axes that have a column each; of more, one column has the names of the cells."""

MOST_PATHS: Final = 4
"""Paths of a request that are named where a load asks for several."""

MOST_LIKE: Final = 3
"""Rows that are named beside the best since they are not clearly slower."""

FIGURES: Final = (
    Field(MAIN),
    Field("payload"),
    Field("launch_ratio"),
    Field("latency_p50"),
    Field("latency_p90", detail=True),
    Field("latency_p99"),
    Field("latency_max", detail=True),
    Field("events", detail=True),
    *(Field(f"{metric}_{share}") for metric in ("ttft", "itl") for share in ("p50", "p99")),
    Field("tokens"),
    Field("errors", quiet=True),
    Field("launch_spread"),
    Field("published", "published", "requests/s"),
    Field("limit", "limited by"),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The rows of a run, those of the same cell and load under all variants beside each other."""
    names = names_of(page)
    rows = [name_row(row, names, page) for row in rows]
    order = [id(entry) for entry in names.in_order(page.entries)]
    rows.sort(key=lambda row: order.index(id(row.entry)))
    measured = [row for row in rows if _is_measured(row)]
    fallen = list(find_collapses(measured))
    sections = []
    if rows:
        spec = TableSpec(
            "Throughput, latency and limit by row",
            (*_name_fields(names), *FIGURES),
            (*_notes(page, names), *(published_notes() if options.published else ())),
        )
        leading = [_best(measured), *(row for _, row in fallen)]
        hints = (hint for row in leading if row for hint in _limit_hint(row))
        texts = tuple(dict.fromkeys(hints))
        hint = (Prose(texts, "quiet", listed=True),) if texts else ()
        blocks = (make_table(spec, rows), *hint)
        sections.append(Section("results", "Results", blocks, "headline"))
    if usage := _usage(page, measured):
        sections.append(Section("usage", "CPU by process", (usage,)))
    app = result.run.suite.get("app")
    name = f" {app['target'].rpartition('/')[2]}" if isinstance(app, dict) else ""
    causes = _count_causes(measured)
    limits = [*([causes] if causes else []), *(note for note in page.notes if note[:5] == "hint,")]
    apart = names.cells and len(names.rows) > 1
    return View(
        rows=rows,
        findings=tuple(find(rows, measured, fallen, page)),
        sections=sections,
        charts=tuple(chart_sections([_chart_row(row, names, apart) for row in rows])),
        cpu=[Prose(tuple(limits))] if limits else [],
        traced=rows,
        facts=(*describe_app(result), *_describe_variants(page)),
        notes=(),
        title=f"serve-bench {result.run.command}{name}",
        lead=_best(measured),
    )


def name_row(row: ViewRow, names: Names, page: Page) -> ViewRow:
    """The row under its names, with what is said below it and the figures of this kind."""
    entry = row.entry
    assert entry is not None
    line = entry.line
    values = dict(row.values)
    throughput = values.get(MAIN)
    if throughput is not None and line.row.traffic.payload:
        values["payload"] = Value(throughput.value * line.row.traffic.payload / 1e6)
    if throughput is not None and throughput.launch_std is not None:
        values["launch_spread"] = Value(throughput.launch_std)
    if page.base == line.variant and line.trials and line.status != "profiled":
        values["launch_ratio"] = Value(1.0)
    limits = limited_line(tuple(entry.verdicts.values())) if entry.verdicts else None
    interrupted = any(trial.flags.get("interrupted") for trial in line.trials)
    variant = next(part for part in page.variants if part.name == line.variant)
    codes = dict.fromkeys(warning.code for warning in variant.warnings) if line.trials else ()
    warnings = (
        *entry.findings,
        *([Finding("", "interrupted", "doubt")] if interrupted else []),
        *(Finding("", code, "doubt") for code in codes),
    )
    mark = " (profiled)" if line.status == "profiled" else ""
    cell = {f"cell {short}": line.cell.get(axis) for axis, short in names.axes.items()}
    return replace(
        row,
        dims={
            **row.dims,
            "load": f"{names.row(entry)}{mark}",
            "cell": names.cell(line.cell),
            **{name: None if value is None else f"{value}" for name, value in cell.items()},
            "published": None if entry.published is None else str(entry.published),
            "limit": _cause(entry),
        },
        values=values,
        name=names.whole(entry),
        group=names.full(line.cell) if names.grouped and names.cells else "",
        warnings=warnings,
        notes=tuple(fact for fact in entry.facts if fact != limits),
        tones={MAIN: "bad" if entry.failures else "doubt" if warnings else "plain"},
    )


def _name_fields(names: Names) -> Iterator[Field]:
    """What names a row: its axes where cells are rows, its load, its variant."""
    if names.grouped:
        yield Field("load", noted=True)
    elif len(names.axes) > MOST_AXES:
        yield Field("cell", noted=True)
    else:
        for number_of, short in enumerate(names.axes.values()):
            yield Field(f"cell {short}", short, noted=not number_of)
    if names.variants:
        yield Field("variant")


def _cause(entry: Entry) -> str | None:
    if entry.limited is None:
        return None
    causes = [verdict.cause for verdict in entry.verdicts.values()]
    count, most = causes.count(entry.limited.cause), entry.limited.cause
    return most if count == len(causes) else f"{most}, in {count} of {len(causes)} launches"


def _chart_row(row: ViewRow, names: Names, apart: bool) -> ViewRow:
    """The row as charts name it: cells that have several loads are headings."""
    assert row.entry is not None
    name = names.beside(row.entry, cell=not apart, row=True)
    return replace(row, name=name, group=row.group if apart else "")


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
    yield from (note for note in page.notes if not note.startswith("hint, "))


def _usage(page: Page, measured: Sequence[ViewRow]) -> Table | None:
    """CPU by process at the highest throughput of each variant."""
    sampled = [row for row in measured if mean_by_role(row.trials)]
    found = [
        _best([row for row in sampled if row.dims["variant"] == v.name]) for v in page.variants
    ]
    tops = [row for row in found if row is not None]
    if not tops:
        return None
    which = "; ".join(row.name for row in tops)
    alone = len(tops) == 1
    columns = [("CPU" if alone else row.dims["variant"], row.trials) for row in tops]
    caption = f"At the highest throughput ({which}), % of a core"
    return usage_table(caption, columns, memory=alone, least=CPU_PERCENT)


# What was asked.


def describe_app(result: Result) -> Iterator[tuple[str, str]]:
    """The deployments of an app of the user's own, and the request that every row makes of it."""
    app: Any = result.run.suite.get("app")
    if not isinstance(app, dict):
        return
    names = [str(deployment["name"]) for deployment in app["deployments"]]
    others = f", in front of {', '.join(names[-2::-1])}" if len(names) > 1 else ""
    name = app.get("config", {}).get("name", APP_NAME)
    named = f" as {name}" if name != APP_NAME else ""
    beside = " and ".join(str(other["config"]["name"]) for other in app.get("beside", ()))
    named += f", beside {beside}" if beside else ""
    call = app["asked"].get("call")
    protocol = "calls of a handle" if call else "gRPC" if app.get("grpc") else "HTTP"
    yield "deployments", f"{names[-1]} receives {protocol}{others}{named}"
    yield "request", describe_request(app["asked"], protocol)


def describe_request(asked: Mapping[str, Any], protocol: str = "HTTP") -> str:
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
        headers = ", ".join(dict.fromkeys(name for headers in sets for name, _ in headers))
        text += f", {len(sets):,} sets of headers {how} ({headers})"
    if bodies:
        text += f", {bodies:,} bodies {how}"
    if chat is not None:
        prompt, answer = (Lengths(**chat[name]).text for name in ("prompt", "answer"))
        text += f", chats of {chat['model']}: prompts of {prompt} tokens, answers up to {answer}"
    return text + (f" with a {'body' if http else 'message'} of {size:,} bytes" if size else "")


def _describe_variants(page: Page) -> Iterator[tuple[str, str]]:
    for part in page.variants:
        yield f"variant {part.name}", "; ".join((" ".join(part.env) or "no flags", *part.owners))


# What the rows show in sentences.


def find(
    rows: Sequence[ViewRow],
    measured: Sequence[ViewRow],
    fallen: Sequence[tuple[str, ViewRow]],
    page: Page,
) -> Iterator[str]:
    """The highest throughput and what limited it, collapses, ratios, hops."""
    yield from _find_interrupted(rows, page)
    if not measured:
        yield "No row was measured."
        return
    lines = [row.entry.line for row in measured if row.entry is not None]
    top = best(lines)
    sound = next((row for row in measured if row.entry and not row.entry.line.broken), measured[0])
    shown = next((row for row in measured if top and row.entry and row.entry.line is top[0]), sound)
    if top:
        higher = any(mean_rate(line) > mean_rate(top[0]) for line in lines if not line.broken)
        which = "throughput without a failed request" if higher else "throughput"
        head = f"{shown.name} has the highest {which}: {describe_figures(shown)}"
    else:
        head = f"{shown.name}: {describe_figures(shown)}"
    if shown.entry and (limit := shown.entry.limited) is not None:
        its = "its limit is" if limit.cause == "unclear" else "it is limited by"
        head += f"; {its} {limit.text}"
    yield sentence(head)
    # Few counts differ by chance by more, but what would be a collapse is not called alike.
    near = [line for line in top[1:] if mean_rate(line) >= ladder.COLLAPSE * mean_rate(top[0])]
    alike = [row for line in near for row in measured if row.entry and row.entry.line is line]
    if alike:
        texts = [f"{row.name} ({number(row.value(MAIN))})" for row in alike]
        more = f" and {len(texts) - MOST_LIKE} more" if len(texts) > MOST_LIKE else ""
        within = f"within {100 * LIKE:.0f} % or two standard errors"
        yield sentence(f"Not clearly slower ({within}): {'; '.join(texts[:MOST_LIKE])}{more}")
    yield from (sentence(text) for text, _ in fallen)
    yield from _find_ratios(measured, page, shown)
    for row in measured:
        if row.entry is not None:
            traced = waterfall.of_line(row.name, row.entry.line)
            yield from map(sentence, waterfall.sentences(traced))
    if page.launches < FEWEST and len(measured) > 1:
        launches = counted(page.launches, "launch", "launches")
        yield f"The spread between launches is unknown after {launches} (--launches {FEWEST})."


def _find_interrupted(rows: Sequence[ViewRow], page: Page) -> Iterator[str]:
    """How many rows were broken off, where no failure says so."""
    planned = [row for row in rows if row.dims["status"] != "profiled"]
    count = sum(any(trial.flags.get("interrupted") for trial in row.trials) for row in planned)
    if count and "interrupted" not in [failure.message for failure in page.all_failures]:
        which = f"{count} of {len(planned)} rows" if len(planned) > 1 else "The row"
        yield f"{which} {'was' if count == 1 else 'were'} interrupted."


def _is_measured(row: ViewRow) -> bool:
    """Whether it was measured, and not slowed down by a profiler."""
    return MAIN in row.values and row.dims["status"] != "profiled"


def _best(rows: Sequence[ViewRow]) -> ViewRow | None:
    return max(rows, key=lambda row: row.value(MAIN) or 0.0, default=None)


def _limit_hint(row: ViewRow) -> Iterator[str]:
    limit = None if row.entry is None else row.entry.limited
    if limit is not None and limit.hint:
        yield f"hint, {limit.cause}: {limit.hint}"


def find_collapses(rows: Sequence[ViewRow]) -> Iterator[tuple[str, ViewRow]]:
    """A sentence on each cell and kind of clients whose throughput collapses with more of them, and
    the row with the most."""
    ladders: dict[tuple[object, ...], dict[int, ViewRow]] = {}
    for row in rows:
        if row.entry is None or row.dims["loop"] != "closed" or row.entry.line.broken:
            continue
        line = row.entry.line
        place = (line.variant, place_of(row.entry)[0], line.row.client, line.row.traffic)
        ladders.setdefault(place, {})[line.row.connections] = row
    for steps in ladders.values():
        rungs = [Rung(users, row.values[MAIN].value) for users, row in steps.items()]
        top, lower = ladder.best(rungs), ladder.collapses(rungs)
        if top is None or not lower:
            continue
        last = steps[lower[-1].clients]
        before = f"{number(top.throughput)} requests/s with {counted(top.clients, 'client')}"
        after = listed([f"{number(step.throughput)} with {step.clients}" for step in lower])
        limit = limit_words(None if last.entry is None else last.entry.limited)
        yield (
            f"{steps[top.clients].name}: the throughput collapses with more clients, from "
            f"{before} to {after}; with {last.dims['connections']}: {limit}",
            last,
        )


def _find_ratios(measured: Sequence[ViewRow], page: Page, shown: ViewRow) -> Iterator[str]:
    """Each further variant compared with the first, over the rows that both have. The reason of a
    ratio may stand in the slower row: so what limits either is said of that farthest from 1, but of
    `shown`, which the headline has."""
    for part in page.variants:
        if part.name == page.base:
            continue
        pairs = [
            (row.values["launch_ratio"].value, row)
            for row in measured
            if row.dims["variant"] == part.name and "launch_ratio" in row.values
        ]
        if not pairs:
            continue
        ratios = [ratio for ratio, _ in pairs]
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        times = f"{low} to {high}" if low != high else low
        which = f"the {len(ratios)} rows" if len(ratios) > 1 else "the row"
        text = (
            f"{part.name} has {times} times the requests/s of {page.base}, in {which} that "
            f"{'both have' if len(ratios) > 1 else 'is in both'}"
        )
        _, farthest = min(pairs, key=lambda pair: min(pair[0], 1 / pair[0]) if pair[0] else 0.0)
        for row in measured:
            alike = row.entry and farthest.entry and place_of(row.entry) == place_of(farthest.entry)
            sides = alike and row.dims["variant"] in (part.name, page.base)
            if sides and row is not shown and row.entry and row.entry.limited is not None:
                text += f"; {row.name}: {limit_words(row.entry.limited)}"
        yield sentence(text)


def _count_causes(measured: Sequence[ViewRow]) -> str:
    """What limited the rows, by how often it came; empty where that says no more than one row."""
    limits = [row.entry.limited for row in measured if row.entry is not None]
    causes = Counter(limit.cause for limit in limits if limit is not None)
    texts = ", ".join(f"{cause} in {count}" for cause, count in causes.most_common())
    rows = causes.total()
    return f"Of the {rows} rows whose CPU was sampled, limited by: {texts}." if rows > 1 else ""


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
        for cell in part.cells:
            lines += _classic_cell(cell)
    lines += [f"failed: {failure.message}" for failure in page.failures]
    return "\n".join(lines) + "\n" if lines else "no row of the published form was planned\n"


def _classic_cell(part: CellPart) -> list[str]:
    rows = [entry for entry in part.entries if _is_classic(entry)]
    if not rows:
        return []
    failures = [f"{_INDENT}failed: {failure.message}" for failure in part.failures]
    cell = {_CLASSIC.get(name, name): value for name, value in part.cell.items()}
    return [f"{cell}:", *failures, *(_classic_row(entry) for entry in rows)]


def _is_classic(entry: Entry) -> bool:
    row = entry.line.row
    plain = entry.line.status != "profiled" and row.loop == "closed" and row.client == "aiohttp"
    return plain and _ROW.fullmatch(row.label) is not None


def _classic_row(entry: Entry) -> str:
    size = entry.line.row.data_size
    data = f"{size} data" if size in ("small", "large") else f"{size} bytes data"
    line = f"{_INDENT}{entry.line.row.label} {data} "
    rate = entry.rate
    if rate is None:
        line += entry.gap or "no rate recorded"
    else:
        std = round(rate.std or 0.0, 2)  # the form, which is Ray's, has one for a single window too
        line += f"{round(rate.mean, 2)} +- {std} requests/s"
        line += f" ({entry.line.errors} errors)" if entry.line.errors else ""
        line += f" ({entry.gap})" if entry.gap else ""
    line += "".join(f" (failed: {failure.message})" for failure in entry.failures)
    if entry.published is not None:
        line += f" (published {entry.published.mean} +- {entry.published.std} requests/s)"
    return line


LENS: Final = Lens(build, ("tokens",), classic=classic_text)
