"""Comparisons as they are looked at: a row for each metric of a compared row, with its verdict.

A run of versus, two stored runs, the newest run of a history and the layers of tax are all compared
so: `A` and `B` with their launches, B/A with its interval, and what the verdict rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

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
from serve_bench.view.blocks import in_parts
from serve_bench.view.charts import Chart, Dots, Point
from serve_bench.view.csv import json_of, pick, run_json
from serve_bench.view.document import (
    Block,
    Charts,
    Document,
    Facts,
    Finding,
    Prose,
    Section,
    Table,
    Tone,
    sentences,
)
from serve_bench.view.figures import FIGURES, Value, declare, known_values
from serve_bench.view.frame import (
    Field,
    TableSpec,
    ViewRow,
    finding_json,
    line_chart,
    make_table,
    make_tiles,
    row_json,
)
from serve_bench.view.lens import FORMAT, View
from serve_bench.view.texts import cell_title
from serve_bench.view.verdict_words import (
    describe_changes,
    describe_comparing,
    describe_difference,
    describe_method,
    describe_row,
    headline,
    side_facts,
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
    *("request_cpu", "ns", "CPU of proxies and replicas for a request"),
    title="CPU",
    shown="us",
    better="lower",
)
declare("b_over_a", "1", "B divided by A, with its 95 % interval", title="B/A", digits=4)
declare("b_over_a_strict", "1", "B/A with the interval that Holm's correction asks for", digits=4)
declare("hop_time", "ns", "time of a hop, mean over launches", title="time")
declare("hop_grown", "ns", "time of a hop in B less that in A", title="B - A", digits=3)
declare("hop_share", "%", "share of the difference that a hop has", title="of it")
for _name, _unit, _meaning in (
    ("p_value", "1", "chance of such a ratio where nothing changed"),
    ("p_adjusted", "1", "the same by Holm's correction"),
    ("alpha", "1", "share of the error that Holm's correction leaves"),
    ("level", "1", "the part of it that the look has"),
    ("alarm_threshold", "1", "the size from which a change is regressed or improved"),
    ("noise_floor", "1", "how far from 1 the interval of A compared with itself reaches"),
    ("rounds_needed", "rounds", "rounds, or launches a side, that would probably decide it"),
    ("log_center", "1", "mean of the logarithms of B/A"),
    ("log_error", "1", "standard error of that mean"),
    ("freedom", "1", "degrees of freedom of the interval"),
    ("between_runs", "1", "the part of the squared error that comes from runs, not from launches"),
    ("in_slices", "1", "requests/s in slices over those of a steady load: 1 where they agree"),
    ("slices", "slices", "slices of a side in all rounds"),
    ("slice_length", "s", "length of a slice"),
    ("short_rounds", "rounds", "rounds with a slice below five drains"),
    ("drain", "s", "from the last send of a slice to its last response, median"),
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
        _values(comparing.paired, row, line),
        f"{figure.title} {figure.shown}".removeprefix("throughput "),
        group=title if row.client in title else f"{title} ({row.client})",
        warnings=tuple(describe_row(row, comparing.paired)) if line is last else (),
        tones={} if word is None else {"verdict": TONES[word], "b_over_a": TONES[word]},
    )


def _values(pairs: bool, row: ComparedRow, line: Compared) -> dict[str, Value]:
    judged, interval, a, b = line.judged, line.judged.interval, line.a_values, line.b_values
    values = {
        f"{METRICS[line.metric]}.{letter}": mean_value(launches)
        for letter, launches in (("A", a), ("B", b))
        if launches
    }
    if line.ratio is not None:
        rounds = {number: b[number] / a[number] for number in a if number in b} if pairs else {}
        values["b_over_a"] = replace(_interval_value(interval, line.ratio), launches=rounds)
    values |= known_values(
        p_value=judged.p,
        alarm_threshold=judged.threshold,
        **pick(judged, "p_adjusted", "alpha", "level", "rounds_needed"),
    )
    if interval is not None:
        values |= known_values(
            log_center=interval.center,
            log_error=interval.se,
            freedom=interval.df if math.isfinite(interval.df) else None,
            between_runs=interval.between or None,
        )
        if judged.alpha is not None:
            strict = interval.at(1 - judged.alpha)
            values["b_over_a_strict"] = _interval_value(strict, strict.ratio)
    if line.metric == MAIN:
        for effect in row.effects:
            values[f"in_slices.{effect.side}"] = _interval_value(effect.interval, effect.ratio)
        if (slicing := row.slicing) is not None:
            lengths = {"slice_length": slicing.slice_s, "short_rounds": slicing.short}
            drains = dict(zip(("drain.A", "drain.B"), slicing.drain_s, strict=True))
            values |= known_values(slices=slicing.slices, **lengths, **drains)
    return values


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
        yield ViewRow(about, {}, side.name, notes=(", ".join(side_facts(side)),))
    for row in comparing.alone:
        yield ViewRow({"point": "alone", **vars(row)}, {}, row.row, notes=(alone_words(row),))


# The whole.


def verdict_table(comparing: Comparing, rows: Sequence[ViewRow]) -> Table:
    """Every metric of every row; what is said of a row stands under its last gated one."""
    (a, b), things = comparing.names, "rounds" if comparing.paired else "launches"
    fields = (
        Field("name", "metric"),
        Field("A", of="figure"),
        Field("B", of="figure"),
        Field("b_over_a", head="95 %"),
        Field("verdict"),
        Field("rounds_needed", "needs", head=things, detail=True),
    )
    caption = subject(comparing) if comparing.aa else f"{b} (B) against {a} (A)"
    if len({cell_slug(row.cell) for row in comparing.rows}) == 1:
        caption += f": {cell_title(comparing.rows[0].cell)}"
    notes = (
        "A and B: geometric means over launches; B/A with its 95 % interval. In the gate: "
        f"{', '.join(comparing.gate)}; other metrics do not affect the exit code. docs/ab.md",
    )
    return replace(make_table(TableSpec(caption, fields, notes), rows), unlike=True)


def view_comparison(comparing: Comparing, rows: Sequence[ViewRow] = ()) -> View:
    """What a comparison says. `rows`: the loads of the run, if it is of a single run."""
    compared, hops = compare_rows(comparing), [*hop_rows(comparing)]
    differ = Facts((("sides", describe_difference(comparing)),))
    results: list[Block] = [verdict_table(comparing, compared), differ]
    failed = [
        f"{row.dims['variant']}, {row.name}: {finding.line}"
        for row in rows
        for finding in row.warnings
        if finding.code == "failed"
    ]
    alone = [f"not compared: {alone_words(row)}" for row in comparing.alone]
    if failed:
        results.append(Prose(tuple(failed), "bad", listed=True))
    if alone or comparing.notes:
        results.append(Prose((*alone, *comparing.notes), "doubt", listed=True))
    times = ("hop_time.A", "hop_time.B", "hop_grown", "hop_share")
    spec = TableSpec("Hops of traced requests", (Field("name", "hop"), *map(Field, times)))
    sides = tuple((side.name, ", ".join(side_facts(side))) for side in comparing.sides)
    method = Prose(tuple(describe_method(comparing)), "quiet", listed=True)
    return View(
        rows=rows,
        points=[*about_sides(comparing)],
        comparisons=[*compared, *hops],
        findings=[*describe_comparing(comparing)],
        sections=[
            Section("results", "Verdicts", tuple(results), "headline"),
            *([Section("hops", spec.caption, (make_table(spec, hops),), "table")] if hops else []),
            Section("sides", "What ran on each side", (Facts(sides), method)),
        ],
        charts=[Section("ratios", "Ratios", (Charts(partial(_charts, comparing, compared)),))],
        facts=[("threshold", percent(comparing.threshold)), ("gate", ", ".join(comparing.gate))],
        notes=(),
        title=subject(comparing),
        tiles=[*make_tiles(compared[0], ("b_over_a", "verdict"))] if compared else [],
        planned=(0, 0, ""),
    )


def _charts(comparing: Comparing, rows: Sequence[ViewRow]) -> Iterator[Chart]:
    """B/A of each row, then in each round, of the metrics in the gate."""
    ratio_rows = [row for row in rows if "b_over_a" in row.values]
    yield from ratio_chart("B/A with its 95 % interval", ratio_rows, comparing.threshold)
    for metric in comparing.gate:
        lines = {row.dims["title"]: row for row in ratio_rows if row.dims["metric"] == metric}
        for suffix, part in in_parts(lines):
            rounds = [
                ViewRow({"title": title, "round": number}, {"b_over_a": Value(ratio)})
                for title, row in part.items()
                for number, ratio in row.values["b_over_a"].launches.items()
            ]
            yield from line_chart(
                f"B/A of {metric} in each round{suffix}",
                rounds,
                *("round", ("b_over_a",), "title"),
                caption="A round is a fresh launch of both sides. The band is that of the verdict.",
                log_x=False,
                around=(1 - comparing.threshold, 1 + comparing.threshold),
            )


def ratio_chart(title: str, rows: Sequence[ViewRow], threshold: float) -> Iterator[Chart]:
    """B/A of rows, of those that have an interval, on one axis."""
    points, words = [], []
    several = len({row.dims["metric"] for row in rows}) > 1
    for row in rows:
        ratio, (name, metric) = row.values["b_over_a"], (row.dims["title"], row.dims["metric"])
        if ratio.low is not None:
            high = math.inf if ratio.high is None else ratio.high
            label = f"{name}, {metric}" if several else name
            points.append(Point(label, row.dims["verdict"], ratio.value, ratio.low, high))
            words.append(f"{name}, {metric}: {row.text('b_over_a')}, {row.dims['verdict']}")
    if points:
        band = f"The band is 1 ± {percent(threshold)}: same where a whole interval lies in it, "
        band += "regressed or improved where it lies beyond. Latency and CPU: lower is better."
        yield Chart(title, Dots(points, "B/A", threshold), "; ".join(words), band)


# Two stored runs.


def comparison_document(comparing: Comparing, where: Sequence[str] = ()) -> Document:
    """What a comparison of two stored runs says, or of two variants of a run. `where`: the folders
    of their records."""
    view = view_comparison(comparing)
    a, b = (side.run for side in comparing.sides)
    request = [
        (name, f"{command_line(run)}, begun {moment(run.started_at)}, run {run.id}")
        for name, run in (("A", a), ("B", b))
    ]
    hosts = machine(a).pairs, machine(b).pairs
    apart = [(f"B: {name}", text) for name, text in hosts[1] if (name, text) not in hosts[0]]
    unlike = "unlike runs, compared with --force"
    return Document(
        title=view.title,
        command=comparing.kind,
        run=Facts((*request, *view.facts)),
        machine=Facts((*hosts[0], *apart)),
        findings=_find(comparing),
        doubts=(
            *(Finding(text, "failed", "bad") for text in comparing.failures),
            *(Finding(text, unlike, "doubt") for text in comparing.unlike),
            *sentences(comparing.warnings, "doubt"),
        ),
        sections=(*view.sections, *view.charts),
        where=" and ".join(where) or None,
        records=tuple(where),
    )


def _find(comparing: Comparing) -> tuple[Finding, ...]:
    """What is unfair about a comparison, then what it found."""
    return (*sentences(comparing.unfair, "bad"), *sentences(describe_comparing(comparing)))


def comparison_data(comparing: Comparing) -> dict[str, Any]:
    """The same for programs, under the keys that a run has."""
    rows = (*compare_rows(comparing), *hop_rows(comparing))
    return {
        "findings": [finding_json(finding) for finding in _find(comparing)],
        "points": [row_json(row) for row in about_sides(comparing)],
        "comparisons": [row_json(row) for row in rows],
        **pick(comparing, "warnings", "failures", "unlike", "notes"),
    }


def comparison_json(comparing: Comparing, where: Sequence[str] = ()) -> str:
    """The whole as JSON."""
    places = (*where, None, None)[:2]
    runs = [run_json(side.run, place) for side, place in zip(comparing.sides, places, strict=True)]
    return json_of({"format": FORMAT, "runs": runs, **comparison_data(comparing)})
