"""Comparisons as they are looked at: a row for each metric of a compared row, with its verdict.

A run of versus, two stored runs, the newest run of a history and the layers of tax are all compared
so: `A` and `B` with their launches, B/A with its interval, and what the verdict rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.model import (
    Compared,
    ComparedRow,
    Comparing,
    alone_words,
    geometric_mean,
    row_title,
    subject,
    variant_of,
)
from serve_bench.analysis.comparing.values import OF_STREAMS
from serve_bench.analysis.ratios import FEWEST, Interval, paired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.figures import percent
from serve_bench.core.result import cell_slug
from serve_bench.view.about_run import command_line, machine, moment
from serve_bench.view.blocks import in_parts, section
from serve_bench.view.charts import Chart, Ratio
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import (
    Block,
    Charts,
    Document,
    Facts,
    Finding,
    Folded,
    Prose,
    Section,
    Table,
    Tone,
    sentences,
)
from serve_bench.view.drawn import ratios
from serve_bench.view.figures import FIGURES, Value, declare, known_values
from serve_bench.view.frame import (
    Field,
    TableSpec,
    ViewRow,
    finding_json,
    line_chart,
    make_table,
    row_json,
)
from serve_bench.view.lens import FORMAT, View
from serve_bench.view.texts import cell_title
from serve_bench.view.verdict_words import (
    describe_changes,
    describe_comparing,
    describe_method,
    describe_side,
    headline,
    raised_thresholds,
    row_remarks,
)

METRICS: Final[Mapping[str, str]] = {
    "throughput": MAIN,
    "p50": "latency_p50",
    "p99": "latency_p99",
    "cpu": "request_cpu",
    **{name: name for name in OF_STREAMS},
}
"""The figure of each metric that is compared; its members A and B are the values of the sides."""

declare(
    *("request_cpu", "ns", "CPU of the server for a request"),
    title="CPU",
    shown="us",
    better="lower",
)
declare("b_over_a", "1", "B divided by A, with its 95 % interval", title="B/A", digits=4)
declare("b_over_a_strict", "1", "B/A with the interval that Holm's correction asks for", digits=4)
declare("in_slices", "1", "requests/s in slices divided by requests/s of a steady load", digits=4)
declare("drain", "s", "from the last send of a slice to its last response, median")
declare("hop_time", "ns", "time of a hop, mean over launches", title="time")
declare("hop_grown", "ns", "time of a hop in B less that in A", title="B - A", digits=3)
declare("hop_share", "%", "share of the difference that a hop has", title="of it")
declare("noise_floor", "1", "how far from 1 the interval of A compared with itself reaches")
for _name, _unit, _meaning in (
    ("p_value", "1", "chance of such a ratio where nothing changed"),
    ("p_adjusted", "1", "the same by Holm's correction"),
    ("alpha", "1", "share of the error that Holm's correction leaves"),
    ("level", "1", "the part of it that the look has"),
    ("alarm_threshold", "1", "the size from which a change is regressed or improved"),
    ("rounds_needed", "rounds", "rounds, or launches a side, that would probably decide it"),
    ("log_center", "1", "mean of the logarithms of B/A"),
    ("log_error", "1", "standard error of that mean"),
    ("freedom", "1", "degrees of freedom of the interval"),
    ("between_runs", "1", "the part of the squared error that comes from runs, not from launches"),
    ("slices", "slices", "slices of a side in all rounds"),
    ("slice_length", "s", "length of a slice"),
    ("short_rounds", "rounds", "rounds with a slice below five drains"),
):
    declare(_name, _unit, _meaning, shown=None if _unit in ("1", "s") else "")

TONES: Final[Mapping[str, Tone]] = {
    "regressed": "bad",
    "slower": "bad",
    "improved": "good",
    "faster": "good",
    "same": "plain",
    "inconclusive": "doubt",
}
"""Of a verdict."""

SHORT: Final = 12
"""Characters of a name that may stand over a column: a longer name would push the verdict off a
narrow screen."""

HOPS: Final = TableSpec(
    "Each hop",
    (
        Field("name", "hop"),
        Field("hop_time.A", "A"),
        Field("hop_time.B", "B"),
        Field("hop_grown"),
        Field("hop_share"),
    ),
    ("Means of traced requests, then over launches; -: a side does not have the hop.",),
)
SLICES: Final = TableSpec(
    "How both sides were loaded in turn",
    (
        Field("slicing", "in"),
        Field("slices", "of a side"),
        Field("slice_length", "length"),
        Field("drain.A"),
        Field("drain.B"),
        Field("in_slices.A", "A in slices", head="x (95 %)"),
        Field("in_slices.B", "B in slices", head="x (95 %)"),
    ),
    (
        "In drawn order. In slices: requests/s in slices divided by requests/s of a steady load; "
        "if it is not 1, B/A holds for slices. Windows are noisier: docs/ab.md.",
    ),
)


# Rows.


def compare_rows(comparing: Comparing) -> list[ViewRow]:
    """A row for each metric of each compared row; its remarks stand with the last that is gated."""
    return [_compare_line(comparing, row, line) for row in comparing.rows for line in row.lines]


def _compare_line(comparing: Comparing, row: ComparedRow, line: Compared) -> ViewRow:
    figure, title = FIGURES[METRICS[line.metric]], row_title(comparing, row)
    measured = line.a is not None or line.b is not None
    word = row.word if row.worse and line.gated else line.judged.word if measured else None
    last = next((other for other in reversed(row.lines) if other.gated), row.lines[-1])
    dims = {
        **dict(zip("ab", comparing.names, strict=True)),
        "title": title,
        "variant": variant_of(row),
        **row.cell,
        **pick(row, "row", "client", "planned", "measured", "rate_per_s"),
        **pick(line, "metric", "better", "gated"),
        "figure": figure.name,
        "verdict": word,
        "row_verdict": row.word,
        "settled": line.judged.settled,
        "why": line.judged.why or None,
        "worse": row.worse or None,
        "slicing": None if row.slicing is None else row.slicing.method,
    }
    return ViewRow(
        dims,
        dict(_values(comparing.paired, row, line)),
        f"{figure.title} {figure.shown}".removeprefix("throughput "),
        group=title if row.client in title else f"{title} ({row.client})",
        warnings=tuple(row_remarks(row, comparing.paired)) if line is last else (),
        tones={} if word is None else {"verdict": TONES[word], "b_over_a": TONES[word]},
    )


def _values(pairs: bool, row: ComparedRow, line: Compared) -> Iterator[tuple[str, Value]]:
    judged, interval, a, b = line.judged, line.judged.interval, line.a_values, line.b_values
    for letter, launches in zip("AB", (a, b), strict=True):
        if launches:
            yield f"{METRICS[line.metric]}.{letter}", mean_value(launches)
    if line.ratio is not None:
        rounds = {number: b[number] / a[number] for number in a if number in b} if pairs else {}
        yield "b_over_a", replace(_interval_value(interval, line.ratio), launches=rounds)
    if interval is not None:
        if judged.alpha is not None:
            strict = interval.at(1 - judged.alpha)
            yield "b_over_a_strict", _interval_value(strict, strict.ratio)
        yield from known_values(
            log_center=interval.center,
            log_error=interval.se,
            freedom=interval.df if math.isfinite(interval.df) else None,
            between_runs=interval.between or None,
        ).items()
    yield from known_values(
        p_value=judged.p,
        alarm_threshold=judged.threshold,
        **pick(judged, "p_adjusted", "alpha", "level", "rounds_needed"),
    ).items()
    if line.metric != MAIN:
        return
    for effect in row.effects:
        yield f"in_slices.{effect.side}", _interval_value(effect.interval, effect.ratio)
    if (slicing := row.slicing) is not None:
        drains = dict(zip(("drain.A", "drain.B"), slicing.drain_s, strict=True))
        lengths = {"slice_length": slicing.slice_s, "short_rounds": slicing.short}
        yield from known_values(slices=slicing.slices, **lengths, **drains).items()


def mean_value(launches: Mapping[int, float]) -> Value:
    """The geometric mean, with an interval from three launches on."""
    mean = geometric_mean(launches.values()) or 0.0
    interval = None
    if len(launches) >= FEWEST:
        interval = paired([math.log(value) for value in launches.values()])
    return replace(_interval_value(interval, mean), launches=launches)


def _interval_value(interval: Interval | None, value: float) -> Value:
    """With the ends of the interval; an end beyond all numbers is none."""
    if interval is None:
        return Value(value)
    return Value(
        value, low=interval.low, high=interval.high if math.isfinite(interval.high) else None
    )


def bare_loads(rows: Sequence[ViewRow]) -> list[ViewRow]:
    """The loads of the sides without what their comparison says better: the ratio of their means,
    and warnings, of which some are not of slices."""
    return [
        replace(
            row,
            values={name: row.values[name] for name in row.values if name != "launch_ratio"},
            warnings=tuple(finding for finding in row.warnings if finding.tone == "bad"),
        )
        for row in rows
    ]


def hop_rows(comparing: Comparing) -> Iterator[ViewRow]:
    """The hops of traced requests on both sides, the whole of each row first."""
    for row in comparing.rows:
        for shift in row.hops:
            values = known_values(**{"hop_time.A": shift.a_ns, "hop_time.B": shift.b_ns})
            values["hop_grown"] = Value(shift.grown_ns, low=shift.low, high=shift.high)
            if whole := row.hops[0].grown_ns:
                values["hop_share"] = Value(100.0 * shift.grown_ns / whole)
            title = row_title(comparing, row)
            yield ViewRow({"title": title, "hop": shift.hop}, values, shift.hop, group=title)


def about_sides(comparing: Comparing) -> Iterator[ViewRow]:
    """The verdict on the whole, then both sides with what their launches prove."""
    floors = {f"noise_floor.{name}": Value(floor) for name, floor in comparing.floors.items()}
    dims = {
        "point": "verdict",
        "verdict": comparing.word,
        **pick(comparing, "aa", "gate", "noise", "stop"),
        "differs": describe_changes(comparing) or None,
    }
    threshold = {"alarm_threshold": Value(comparing.threshold)}
    yield ViewRow(dims, threshold | floors, subject(comparing), notes=(headline(comparing),))
    for letter, side in zip("AB", comparing.sides, strict=True):
        about = {"point": "side", "side": letter, "run": side.run.id}
        about |= pick(side, "variant", "settings", "launches")
        yield ViewRow(about, {}, side.name, notes=(describe_side(side, comparing.kind),))
    for row in comparing.alone:
        yield ViewRow({"point": "alone", **vars(row)}, {}, row.row, notes=(alone_words(row),))


# Tables.


def verdict_table(comparing: Comparing, rows: Sequence[ViewRow]) -> Table:
    """Every metric of every row; remarks under the last of a row."""
    a, b = comparing.names
    notes = (
        "A and B: geometric means over launches; B/A with its 95 % interval. In the gate: "
        f"{', '.join(comparing.gate)}; other metrics do not affect the exit code.",
    )
    fields = (
        Field("name", "metric"),
        *_side_fields(comparing),
        Field("b_over_a", head="95 %"),
        Field("verdict"),
    )
    caption = f"{b} against {a}" if comparing.aa else f"{b} (B) against {a} (A)"
    if len({cell_slug(row.cell) for row in comparing.rows}) == 1:
        caption += f": {cell_title(comparing.rows[0].cell)}"
    table = make_table(TableSpec(caption, fields, notes), rows)
    return replace(table, whole_groups=True, unlike=True)


def _side_fields(comparing: Comparing) -> Iterator[Field]:
    """The columns of A and B, with their names where they are short: the caption has them too."""
    short = max(map(len, comparing.names)) <= SHORT
    for letter, name in zip("AB", comparing.names, strict=True):
        yield Field(letter, head=name if short else "", of="figure")


def split_rounds(rows: Sequence[ViewRow]) -> Iterator[ViewRow]:
    """A row for each round, or launch, of those that are gated."""
    for row in rows:
        figure = row.dims["figure"]
        names = [name for name in (f"{figure}.A", f"{figure}.B", "b_over_a") if name in row.values]
        numbers = sorted({number for name in names for number in row.values[name].launches})
        for number in numbers if row.dims["gated"] else ():
            values = {name: row.values[name].launches.get(number) for name in names}
            dims = {**row.dims, "round": number}
            yield ViewRow(dims, known_values(**values), group=f"{row.group}, {row.name}")


# The whole.


def view_comparison(comparing: Comparing, rows: Sequence[ViewRow] = ()) -> View:
    """What a comparison says. `rows`: the loads of the run, if it is of a single run."""
    compared, hops = compare_rows(comparing), [*hop_rows(comparing)]
    budget = comparing.sides[0].run.suite.get("budget_s")
    facts = [
        ("threshold", percent(comparing.threshold)),
        ("gate", ", ".join(comparing.gate)),
        ("noise floor", f"of run {comparing.noise}" if comparing.noise else ""),
        ("budget", f"{budget:g} s" if budget and comparing.kind == "versus" else ""),
    ]
    results = Section("results", "Verdicts", tuple(result_blocks(comparing, compared)), "headline")
    hop_table = [make_table(HOPS, hops)] if hops else []
    sliced = [row for row in compared if "slice_length" in row.values]
    slice_table = [make_table(SLICES, sliced, bare=True)] if sliced else []
    verdict, *sides = about_sides(comparing)
    proven = [(f"{row.dims['side']}: {row.name}", row.notes[0]) for row in sides[:2]]
    if changes := verdict.dims["differs"]:
        proven.append(("differs", ", ".join(few(changes))))
    return View(
        rows=rows,
        points=[verdict, *sides],
        comparisons=[*compared, *hops],
        findings=[*describe_comparing(comparing)],
        sections=[
            results,
            *section("hops", "Where the difference is", hop_table, "table"),
            Section("sides", "Sides", (Facts(tuple(proven)),), "table"),
            *section("slices", "Slices", slice_table, "table"),
        ],
        charts=[*_chart_sections(comparing, compared)],
        facts=[fact for fact in facts if fact[1]],
        notes=[*describe_method(comparing)],
        title=subject(comparing),
        planned=(0, 0, ""),
    )


def result_blocks(comparing: Comparing, rows: Sequence[ViewRow]) -> Iterator[Block]:
    """The verdicts, then what failed and what could not be compared."""
    if rows:
        yield verdict_table(comparing, rows)
    else:
        yield Prose(("Nothing was planned.",), "doubt")
    notes = list(comparing.notes)
    if comparing.kind == "compare" and any(min(row.measured) < FEWEST for row in comparing.rows):
        notes.append(f"hint: measure with --launches {FEWEST}")
    texts: tuple[tuple[Sequence[str], Tone], ...] = (
        ([f"failed: {text}" for text in comparing.failures], "bad"),
        ([f"not compared: {alone_words(row)}" for row in comparing.alone], "doubt"),
        (notes, "quiet"),
    )
    yield from (Prose(tuple(lines), tone, listed=True) for lines, tone in texts if lines)


def _chart_sections(comparing: Comparing, rows: Sequence[ViewRow]) -> Iterator[Section]:
    noun = "round" if comparing.paired else "launch"
    split = [*split_rounds(rows)]
    band = "".join(
        f" Of {name} the threshold is {percent(threshold)}, by the noise floor."
        for name, threshold in raised_thresholds(comparing).items()
    )
    caption = f"Latency and CPU: lower is better.{band}"
    draw = partial(ratio_chart, "B/A with its 95 % interval", rows, comparing.threshold, caption)
    yield Section("ratios", "Ratios", (Charts(draw),))
    blocks: list[Block] = [Charts(partial(_round_charts, comparing, split))]
    if split:
        fields = (Field("round", noun), *_side_fields(comparing), Field("b_over_a"))
        table = replace(make_table(TableSpec(f"Each {noun}", fields), split), unlike=True)
        blocks.append(Folded(f"Figures of each {noun}", (table,)))
    yield Section("rounds", f"Single {noun}{'s' if comparing.paired else 'es'}", tuple(blocks))


# Charts.


def ratio_chart(
    title: str, rows: Sequence[ViewRow], threshold: float, caption: str
) -> Iterator[Chart]:
    """B/A of all rows that have an interval, on one axis."""
    points = [
        Ratio(
            row.dims["title"],
            row.dims["metric"],
            value.value,
            value.low,
            math.inf if value.high is None else value.high,
            row.dims["verdict"] or "inconclusive",
        )
        for row in rows
        if (value := row.values.get("b_over_a")) is not None and value.low is not None
    ]
    words = "; ".join(
        f"{point.label}, {point.metric}: {FIGURES['b_over_a'].show(Value(point.ratio))} "
        f"({point.low:.4g} to {point.high:.4g}), {point.word}"
        for point in points
    )
    if points:
        band = f"The band is 1 ± {percent(threshold)}: same where a whole interval lies in it, "
        band += "regressed or improved where it lies beyond."
        yield ratios(title, points, threshold, words, f"{band} {caption}")


def _round_charts(comparing: Comparing, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """B/A of the metrics in the gate in each round; none of runs whose launches are no pairs."""
    for metric in comparing.gate if comparing.paired else ():
        by_title: dict[str, list[ViewRow]] = {}
        for row in rows:
            if row.dims["metric"] == metric:
                by_title.setdefault(row.dims["title"], []).append(row)
        for part, lines in in_parts(by_title):
            yield from line_chart(
                f"B/A of {metric} in each round{part}",
                [row for line in lines.values() for row in line],
                "round",
                ("b_over_a",),
                "title",
                caption="A round is a fresh launch of both sides: rounds are what is repeated, and "
                "how far they lie from each other is the width of the interval. The band is that "
                "of the verdict.",
                log_x=False,
                around=(1 - comparing.threshold, 1 + comparing.threshold),
            )


# Two stored runs.


def comparison_document(comparing: Comparing, where: Sequence[str] = ()) -> Document:
    """What a comparison of two stored runs says, or of two variants of a run. `where`: the folders
    of their records."""
    view = view_comparison(comparing)
    runs = [side.run for side in comparing.sides]
    request = [
        (f"{letter}: {name}", text)
        for letter, run in zip("AB", runs, strict=True)
        for name, text in (
            ("command", command_line(run)),
            ("begun", moment(run.started_at)),
            ("run", run.id),
        )
    ]
    how = Prose(("How each figure is computed, with sources: docs/ab.md.",), "quiet")
    unlike = "unlike runs, compared with --force"
    return Document(
        title=view.title,
        command=comparing.kind,
        run=Facts((*request, *view.facts)),
        machine=Facts(tuple(_both_hosts(*(dict(machine(run).pairs) for run in runs)))),
        findings=_all_findings(comparing, view),
        doubts=(
            *(Finding(text, unlike, "doubt") for text in comparing.unlike),
            *sentences(comparing.warnings, "doubt"),
        ),
        sections=(
            *view.sections,
            *view.charts,
            Section("how", "Notes", (Prose(tuple(view.notes or ()), "quiet", listed=True),)),
            Section("method", "Method", (how,), "method"),
        ),
        where=" and ".join(where) or None,
        records=tuple(where),
    )


def _all_findings(comparing: Comparing, view: View) -> tuple[Finding, ...]:
    return (*sentences(comparing.unfair, "bad"), *sentences(view.findings))


def _both_hosts(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is the same of two hosts once, the rest of each."""
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) == b.get(name):
            yield name, a[name]
        else:
            sides = (("A", a), ("B", b))
            yield from ((f"{letter}: {name}", of[name]) for letter, of in sides if name in of)


def comparison_json(comparing: Comparing, where: Sequence[str] = ()) -> str:
    """The same for programs, under the keys that a run has."""
    view = view_comparison(comparing)
    places = (*where, None, None)
    return json_of(
        {
            "format": FORMAT,
            "runs": [
                run_json(side.run, places[number]) for number, side in enumerate(comparing.sides)
            ],
            "findings": [finding_json(finding) for finding in _all_findings(comparing, view)],
            "points": [row_json(row) for row in view.points],
            "comparisons": [row_json(row) for row in view.comparisons],
            **pick(comparing, "warnings", "failures", "unlike", "notes"),
        }
    )
