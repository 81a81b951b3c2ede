"""The view of a comparison: a row for each metric of a compared row, with its verdict.

A run of versus, two stored runs, the newest run of a history and the layers of tax all have it: `A`
and `B` with their launches, B/A with its interval, and what the verdict rests on. With three sides
or more a row says in `side` which is its B."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.comparing.match import few, read_software, software_changes
from serve_bench.analysis.comparing.model import (
    Compared,
    ComparedRow,
    Comparing,
    describe_alone,
    geometric_mean,
    name_subject,
    row_title,
    variant_of,
)
from serve_bench.analysis.comparing.values import OF_STREAMS
from serve_bench.analysis.ratios import FEWEST, Interval, paired
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.figures import percent
from serve_bench.view.about_run import command_line, machine, moment
from serve_bench.view.charts import Chart, Point
from serve_bench.view.csv import pick, run_json
from serve_bench.view.document import (
    Document,
    Facts,
    Finding,
    Later,
    Prose,
    Section,
    Table,
    Tone,
    sentences,
)
from serve_bench.view.figures import FIGURES, Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, make_table, make_tiles, row_json
from serve_bench.view.lens import FORMAT, View
from serve_bench.view.rows import ViewRow
from serve_bench.view.verdict_words import describe_comparing, describe_row, describe_side, headline

METRICS: Final[Mapping[str, str]] = {
    "throughput": MAIN,
    "p50": "latency_p50",
    "p99": "latency_p99",
    "cpu": "request_cpu",
    **{name: name for name in OF_STREAMS},
}
"""The figure of each metric that is compared; its members A and B are the values of the sides."""

declare(("request_cpu", "ns", "CPU on a request's way", "CPU"), shown="us", better="lower")
declare(("b_over_a", "1", "B divided by A, with its 95 % interval", "B/A"), digits=4)
declare(("b_over_a_strict", "1", "B/A with the interval that Holm's correction asks for"), digits=4)
declare(("hop_time", "ns", "time of a hop, mean over launches", "time"))
declare(("hop_grown", "ns", "time of a hop in B less that in A", "B - A"), digits=3)
declare(("hop_share", "%", "share of the difference that a hop has", "of it"))
declare(
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
    shown={"rounds": "", "slices": ""},
)

TONES: Final[Mapping[str, Tone]] = {  # of verdicts
    **{"regressed": "bad", "slower": "bad", "improved": "good", "faster": "good"},
    **{"same": "plain", "inconclusive": "doubt"},
}


def compare_rows(comparing: Comparing) -> Iterator[ViewRow]:
    """Yield a row for each metric of each compared row, the first with what is said of all."""
    for part in comparing.split():
        side = None if part is comparing else part.of
        for row, line in part.pairs:
            figure, title = FIGURES[METRICS[line.metric]], row_title(part, row)
            measured = bool(line.a_values or line.b_values)
            word = row.word if row.worse and line.gated else line.judged.word if measured else None
            dims = {
                **dict(zip("ab", part.names, strict=True)),
                "side": side,
                "title": title if side is None else f"{side}, {title}",
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
                "slicing": row.slicing.get("method"),
                "confidence": None if side is None else part.confidence,
            }
            yield ViewRow(
                dims,
                _values(part.paired, row, line),
                f"{figure.title} {figure.shown}".removeprefix("throughput "),
                group=title if row.client in title else f"{title} ({row.client})",
                warnings=tuple(describe_row(row, part.paired)) if line is row.lines[0] else (),
                tones={} if word is None else {"verdict": TONES[word], "b_over_a": TONES[word]},
            )


def _values(pairs: bool, row: ComparedRow, line: Compared) -> dict[str, Value]:
    """Return the figures of a metric of a row: both sides, B/A and its tests."""
    judged, interval, a, b = line.judged, line.judged.interval, line.a_values, line.b_values
    sides = {f"{METRICS[line.metric]}.A": a, f"{METRICS[line.metric]}.B": b}
    tested = pick(judged, "p_adjusted", "alpha", "level", "rounds_needed")
    values = known_values(p_value=judged.p, alarm_threshold=judged.threshold, **tested)
    if line.metric == MAIN:
        sides |= {f"in_slices.{side}": shares for side, shares in row.in_slices.items()}
        values |= known_values(**row.slicing.get("figures", {}))
    values |= {name: mean_value(launches) for name, launches in sides.items() if launches}
    if line.ratio is not None:
        rounds = {number: b[number] / a[number] for number in a if number in b} if pairs else {}
        values["b_over_a"] = interval_value(interval, line.ratio, rounds)
    if interval is not None:
        about = {"log_center": interval.center, "log_error": interval.se}
        freedom = interval.df if math.isfinite(interval.df) else None
        values |= known_values(**about, freedom=freedom, between_runs=interval.between or None)
        if judged.alpha is not None:
            strict = interval.at(1 - judged.alpha)
            values["b_over_a_strict"] = interval_value(strict, strict.ratio)
    return values


def mean_value(launches: Mapping[int, float]) -> Value:
    """Return the geometric mean, with an interval from three launches on."""
    logs = [math.log(value) for value in launches.values()]
    interval = paired(logs) if len(logs) >= FEWEST else None
    return interval_value(interval, geometric_mean(launches.values()) or 0.0, launches)


def interval_value(
    interval: Interval | None, value: float, launches: Mapping[int, float] | None = None
) -> Value:
    """Return a value with the ends of its interval; an end beyond all numbers is none."""
    ends = (None, None) if interval is None else (interval.low, interval.high)
    low, high = (None if end is None or math.isinf(end) else end for end in ends)
    return Value(value, low=low, high=high, launches=launches or {})


def scale_value(value: Value, times: float, plus: float = 0.0) -> Value:
    """Return a multiple of a value, and of the ends of its interval, plus a number."""
    low, high = (None if end is None else times * end + plus for end in (value.low, value.high))
    return Value(times * value.value + plus, low=low, high=high)


def hop_rows(comparing: Comparing) -> Iterator[ViewRow]:
    """Yield the hops of traced requests on both sides, the whole of each row first."""
    for row in comparing.rows:
        for shift in row.hops:
            values = known_values(**{"hop_time.A": shift.a_ns, "hop_time.B": shift.b_ns})
            values["hop_grown"] = Value(shift.grown_ns, low=shift.low, high=shift.high)
            if whole := row.hops[0].grown_ns:
                values["hop_share"] = Value(100.0 * shift.grown_ns / whole)
            title = f"{row.side}, " * (len(comparing.sides) > 2) + row_title(comparing, row)
            yield ViewRow({"title": title, "hop": shift.hop}, values, shift.hop, group=title)


def about_sides(comparing: Comparing) -> Iterator[ViewRow]:
    """Yield the verdict on the whole, the sides with what launches prove, then rows of one side."""
    parts, changes = comparing.split(), dict[str, None]()
    for part in parts:
        found = software_changes(*(read_software(side.launches) for side in part.sides))
        changes |= dict.fromkeys(found)
    names = ("aa", "gate", "noise", "stop", *(["confidence"] if len(parts) > 1 else []))
    dims = {"point": "verdict", "verdict": comparing.word, "differs": [*changes] or None}
    dims |= pick(comparing, *names)
    floors = {f"noise_floor.{name}": floor for name, floor in comparing.floors.items()}
    values = known_values(alarm_threshold=comparing.threshold, **floors)
    yield ViewRow(dims, values, name_subject(comparing), notes=tuple(map(headline, parts)))
    for side in comparing.sides:
        about = {"point": "side", "side": side.letter, "run": side.run.id}
        about |= pick(side, "variant", "settings", "launches")
        yield ViewRow(about, {}, side.name, notes=tuple(describe_side(side)))
    for row in comparing.alone:
        yield ViewRow({"point": "alone", **vars(row)}, {}, row.row, notes=(describe_alone(row),))


_shown = map(Field, "hop hop_time.A hop_time.B hop_grown hop_share".split())
HOPS: Final = TableSpec("Hops of traced requests", tuple(_shown))


def view_comparison(comparing: Comparing, rows: Sequence[ViewRow] = ()) -> View:
    """Build the view of a comparison.

    `rows`: the loads of the run, bare, if it is of a single run."""
    compared, hops = [*compare_rows(comparing)], [*hop_rows(comparing)]
    verdict, *others = points = [*about_sides(comparing)]
    sides = [point for point in others if point.dims["point"] == "side"]
    common = [note for note in sides[0].notes if all(note in side.notes for side in sides)]
    facts = []
    for side in sides:
        alone_here = (note for note in side.notes if note not in common)
        facts.append((f"{side.dims['side']}, {side.name}", ", ".join(alone_here)))
    facts.append(("both" if len(sides) == 2 else "all", ", ".join(common)))
    facts.append(("differs", "; ".join(few(verdict.dims["differs"] or ()))))
    failed = tuple(f"{row.name}: {finding.line}" for row in rows for finding in row.warnings)
    alone = (f"not compared: {point.notes[0]}" for point in others[len(sides) :])
    words = (*alone, *comparing.notes)
    results = (
        *(verdict_table(comparing, compared), Facts(tuple(fact for fact in facts if fact[1]))),
        *(Prose(failed, "bad", listed=True), Prose(words, "doubt", listed=True)),
    )
    share = percent(comparing.confidence)
    draw = partial(ratio_chart, f"B/A with its {share} interval", compared, comparing.threshold)
    main = [row for row in compared if row.dims["metric"] == compared[0].dims["metric"]]
    tiles = main[:1] if len(sides) == 2 else [replace(row, name=row.dims["title"]) for row in main]
    return View(
        rows=rows,
        points=points,
        comparisons=[*compared, *hops],
        findings=[*describe_comparing(comparing)],
        sections=[
            Section("results", "Verdicts", results, "headline"),
            Section("hops", HOPS.caption, (make_table(HOPS, hops),) if hops else (), "table"),
        ],
        charts=[Section("ratios", "Ratios", (Later(draw),))],
        facts=[("threshold", percent(comparing.threshold)), ("gate", ", ".join(comparing.gate))],
        notes=(),
        title=name_subject(comparing),
        tiles=partial(make_tiles, tiles, "b_over_a verdict"),
        planned=(0, 0, ""),
    )


def verdict_table(comparing: Comparing, rows: Sequence[ViewRow]) -> Table:
    """Make a table of every metric of every row; what is said of a row stands under its first."""
    a, b = comparing.names
    things, share = "rounds" if comparing.paired else "launches", percent(comparing.confidence)
    fields = (
        *(Field("name", "metric"), Field("side"), Field("A", of="figure"), Field("B", of="figure")),
        *(Field("b_over_a", head=share), Field("verdict")),
        Field("rounds_needed", "needs", head=things, detail=True),
    )
    caption = name_subject(comparing) if comparing.aa else f"{b} (B) against {a} (A)"
    notes = [f"A, B: geometric means over launches; gate: {', '.join(comparing.gate)} (docs/ab.md)"]
    if len(comparing.sides) > 2:
        caption = name_subject(comparing)
        places = [*dict.fromkeys((row.group, row.dims["metric"]) for row in rows)]
        rows = sorted(rows, key=lambda row: places.index((row.group, row.dims["metric"])))
    if comparing.paired and comparing.sides[0].run.asked.urls:
        notes.append("services were not launched anew: intervals lack the spread between launches")
    return replace(make_table(TableSpec(caption, fields, tuple(notes)), rows), unlike=True)


def ratio_chart(title: str, rows: Sequence[ViewRow], threshold: float) -> Iterator[Chart]:
    """Yield a chart of B/A of rows, of those that have an interval, on one axis."""
    points = []
    for row in rows:
        ratio, label = row.values.get("b_over_a"), f"{row.dims['title']}, {row.dims['metric']}"
        if ratio is not None and ratio.low is not None:
            high = math.inf if ratio.high is None else ratio.high
            points.append(Point(label, ratio.value, row.dims["verdict"], ratio.low, high))
    if points:
        band = f"The band is 1 ± {percent(threshold)}. Latency and CPU: lower is better."
        yield Chart(title, "dots", points, "B/A", caption=band, threshold=threshold)


def comparison_document(comparing: Comparing, where: Sequence[str] = ()) -> Document:
    """Make the document of a comparison of two stored runs, or of two variants of a run.

    `where`: the folders of their records."""
    view = view_comparison(comparing)
    runs = a, b = [side.run for side in comparing.sides]
    asked = [f"{command_line(run)}, begun {moment(run.started_at)}, run {run.id}" for run in runs]
    host = machine(a).pairs
    apart = [(f"B: {name}", text) for name, text in machine(b).pairs if (name, text) not in host]
    request = Facts((*zip("AB", asked, strict=True), *view.facts))
    unlike = "unlike runs, compared with --force"
    return Document(
        title=view.title,
        command=comparing.kind,
        findings=(*sentences(comparing.unfair, "bad"), *sentences(view.findings)),
        doubts=(
            *(Finding(text, "failed", "bad") for text in comparing.failures),
            *(Finding(text, unlike, "doubt") for text in comparing.unlike),
            *(Finding(text, tone="doubt") for text in comparing.warnings),
        ),
        sections=(*view.sections, *view.charts),
        records=tuple(where),
        about=lambda: (request, Facts((*host, *apart))),
    )


def comparison_json(comparing: Comparing, where: Sequence[str] = ()) -> dict[str, Any]:
    """Return the comparison for programs, under the keys that a run has."""
    view = view_comparison(comparing)
    sides = zip(comparing.sides, (*where, None, None)[:2], strict=True)
    return {
        "format": FORMAT,
        "runs": [run_json(side.run, place) for side, place in sides],
        "findings": [*sentences(comparing.unfair, "bad"), *sentences(view.findings)],
        "points": [*map(row_json, view.points)],
        "comparisons": [*map(row_json, view.comparisons)],
        **pick(comparing, "warnings", "failures", "unlike", "notes"),
    }
