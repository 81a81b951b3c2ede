"""What a history says in words: its runs, rows, steps and outliers, and what doubts them.

Pure: texts and findings from the series of analysis/history. The document and the gate use them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from serve_bench.analysis.checks import Warning
from serve_bench.analysis.comparing.match import few
from serve_bench.analysis.comparing.model import ends, ratio_text
from serve_bench.analysis.comparing.values import Doubt
from serve_bench.analysis.history import news_of
from serve_bench.analysis.history.levels import FEWEST_LIKE, FEWEST_RUNS, LASTING, LevelMark
from serve_bench.analysis.history.model import Group, History, Night, Series
from serve_bench.benchmarks.parts.texts import cell_title
from serve_bench.benchmarks.versus.summary import SCALES, percent, span_text, value_text
from serve_bench.core.document import Finding
from serve_bench.core.result import cell_slug

# ------------------------------------------------------------------------------------- names


def group_name(group: Group) -> str:
    """`micro`, `press press_noop`; of a user's own app its target, `shop.py:app`."""
    command, suite = group.first.command, group.first.suite.get("name")
    if suite in (None, command):
        return command
    return str(suite) if command == "run" else f"{command} {suite}"


def moments(nights: Sequence[Night]) -> list[str]:
    """When the runs began (UTC), in minutes if that tells them apart: `2026-01-02 03:04`."""
    for length in (16, 19):
        texts = [one.run.started_at[:length].replace("T", " ") for one in nights]
        if len(set(texts)) == len(texts):
            return texts
    return texts


def series_title(group: Group, series: Series) -> str:
    """The row, with variant, cell and client where the group has several."""
    every = group.series
    clients = {one.client for one in every if one.row == series.row}
    words = [
        series.variant if len({one.variant for one in every}) > 1 else None,
        cell_slug(series.cell) if len({cell_slug(one.cell) for one in every}) > 1 else None,
        f"{series.row} ({series.client})" if len(clients) > 1 else series.row,
    ]
    return ", ".join(word for word in words if word)


def part_title(group: Group, series: Series) -> str:
    """Variant and cell of a series, in words."""
    cell = cell_title(series.cell)
    several = len({one.variant for one in group.series}) > 1
    return f"{series.variant}: {cell}" if several else cell


def spread_text(spread: float | None) -> str:
    """A standard deviation of logarithms as a share: `3.1 %`."""
    return "-" if spread is None else percent(math.expm1(spread))


def spread_range(group: Group) -> str:
    """`1.6 % to 1.7 %`, the spreads of all series; empty where none is known."""
    spreads = [one.fit.spread for one in group.series if one.fit.spread is not None]
    return span_text(spreads, spread_text) if spreads else ""


# ------------------------------------------------------------------------------------- marks


def mark_text(series: Series, mark: LevelMark) -> str:
    """`step 0.842 x`, in a table."""
    kind = "step" if series.is_step(mark) else "outlier"
    return f"{kind} {ratio_text(mark.interval.ratio)} x"


def mark_line(group: Group, series: Series, mark: LevelMark) -> str:
    """A step or an outlier in one sentence, with what changed at that run."""
    night, when = group.nights[mark.at], moments(group.nights)[mark.at]
    figures = f"{series.metric} {ratio_text(mark.interval.ratio)} x (95 %: {ends(mark.interval)})"
    with_it = f"; with this run: {', '.join(few(night.changed))}" if night.changed else ""
    if series.is_step(mark):
        before, after = (value_text(series.metric, value) for value in mark_sides(series, mark))
        return (
            f"step, {series.word(mark)}: from {when} on {figures} of the level before, "
            f"{before} -> {after} {SCALES[series.metric].unit}{with_it}"
        )
    if mark.at == len(group.nights) - 1:
        return (
            f"outlier, {series.word(mark)}: the last run, {when}, is unlike the runs before: "
            f"{figures} of their level; {RUN_AGAIN}{with_it}"
        )
    return f"outlier: the run of {when} alone is unlike those of its level: {figures}{with_it}"


RUN_AGAIN: Final = "one bad run, or the first after a step: run again"


def drift_line(group: Group, series: Series) -> str:
    """A drift in one sentence."""
    drift = series.fit.drift
    assert drift is not None
    low, high = (f"{100 * (end - 1):+.2g} %" for end in (drift.interval.low, drift.interval.high))
    each = f"{100 * (drift.interval.ratio - 1):+.2g} % a run (95 %: {low} to {high})"
    return (
        f"drift, {series.word(drift)}: {series.metric} {each}, {ratio_text(series.drifted)} x from "
        f"{moments(group.nights)[0]} to {moments(group.nights)[-1]}; no single run brought it"
    )


def mark_sides(series: Series, mark: LevelMark) -> tuple[float, float | None]:
    """The levels before and after a step; the level of an outlier, and its own value."""
    levels = series.fit.levels
    if series.is_step(mark):
        after = next(at for at, one in enumerate(levels) if mark.at in one.runs)
        return levels[after - 1].value, levels[after].value
    own = next((one for one in reversed(levels) if one.runs[0] < mark.at), levels[0])
    return own.value, series.points[mark.at].value


def news_lines(group: Group) -> list[tuple[str, str]]:
    """What the newest run brought, in a line each, with its word."""
    marks: list[tuple[str, str]] = [
        (series.word(mark), f"{series_title(group, series)}: {mark_line(group, series, mark)}")
        for series, mark in news_of(group)
    ]
    return marks + [
        (
            series.word(series.fit.drift),
            f"{series_title(group, series)}: {drift_line(group, series)}",
        )
        for series in group.series
        if series.fit.drift is not None and series.drifts
    ]


def gap_lines(history: History) -> list[str]:
    """What of the newest runs could not be judged, in a line each: rows of a run, and runs that
    were passed over and are newer than those of their history."""
    return [line for group in history.groups for line in row_gaps(group)] + late_runs(history)


def row_gaps(group: Group) -> list[str]:
    """Rows of the newest run that could not be judged, whatever the metric."""
    when = moments(group.nights)[-1]
    gaps: dict[tuple[str, str, str, str], Series] = {}
    for one in group.series:
        if one.gap:
            gaps.setdefault(_place(one), one)
    return [f"{series_title(group, one)}: the run of {when}: {one.gap}" for one in gaps.values()]


def late_runs(history: History) -> list[str]:
    """Runs that were passed over and are newer than those of their history."""
    return [f"{one.where}: newer, and passed over: {one.why}" for one in history.passed if one.late]


# ---------------------------------------------------------------------------------- headline


def judged(group: Group) -> bool:
    """Whether there is a verdict on any row."""
    return any(one.fit.p is not None for one in group.series)


def headline(group: Group) -> str:
    """The result in one sentence: `1 step in 1 of 3 rows over 9 runs of micro: ...`."""
    runs = f"{len(group.nights)} runs of {group_name(group)}"
    steps = [(one, mark) for one in group.series for mark in one.fit.steps]
    outliers = [(one, mark) for one in group.series for mark in one.fit.outliers]
    rows = _rows(len({_place(one) for one in group.series}))
    if not judged(group):
        most = max(map(_judged, group.series))
        return (
            f"no verdict on {rows}: {most} of {runs} can be judged, and a step takes {FEWEST_RUNS}"
        )
    drifts = [(one, one.fit.drift) for one in group.series if one.fit.drift is not None]
    if not steps and not outliers and not drifts:
        return f"no step in {rows} over {runs}"
    counts = []
    every: tuple[tuple[Sequence[tuple[Series, object]], str], ...] = (
        (steps, "step"),
        (drifts, "drift"),
        (outliers, "outlier"),
    )
    for marks, noun in every:
        if marks:
            own = len({_place(series) for series, _ in marks})
            where = f" in {own} of {rows}" if len(group.series) > 1 else ""
            counts.append(f"{len(marks)} {noun}{'' if len(marks) == 1 else 's'}{where}")
    text = f"{' and '.join(counts)} over {runs}{'' if steps or drifts else ', no step'}"
    if drifts and not steps:
        return text if len(drifts) > 1 else f"{text}: {drift_line(group, drifts[0][0])}"
    leading = steps or outliers
    if len(leading) > 1:
        return f"{text}: {_several(group, leading)}"
    series, mark = leading[0]
    title = f"{series_title(group, series)}: " if len(group.series) > 1 else ""
    return f"{text}: {title}{mark_line(group, series, mark)}"


def _several(group: Group, marks: Sequence[tuple[Series, LevelMark]]) -> str:
    """`at 2026-01-07 03:04 throughput 0.81 to 0.85 x in 3 rows`, for several marks."""
    ratios: dict[int, dict[str, list[float]]] = {}
    for series, mark in sorted(marks, key=lambda one: one[1].at):
        of_run = ratios.setdefault(mark.at, {})
        of_run.setdefault(series.metric, []).append(mark.interval.ratio)
    times = moments(group.nights)
    return "; ".join(
        f"at {times[at]} "
        + ", ".join(
            f"{metric} {span_text(own)} x in {_rows(len(own))}" for metric, own in of_run.items()
        )
        for at, of_run in ratios.items()
    )


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _place(series: Series) -> tuple[str, str, str, str]:
    """The row of a cell that a series is of, whatever the metric."""
    return series.variant, cell_slug(series.cell), series.row, series.client


def _judged(series: Series) -> int:
    return sum(point.judged is not None for point in series.points)


def findings(group: Group) -> Iterator[str]:
    """The sentences that stand first."""
    yield f"{headline(group)}."
    spread = spread_range(group)
    if spread:
        words = Counter(one.word(mark) for one in group.series for mark in one.fit.steps)
        counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
        tally = f"; of the steps {counts}" if counts else ""
        yield f"Runs of one level spread by {spread}{tally}."
    drifting = [one for one in group.series if one.fit.drift is not None]
    if len(drifting) > 1 or (drifting and any(one.fit.steps for one in group.series)):
        yield from (f"{series_title(group, one)}: {drift_line(group, one)}." for one in drifting)
    changed = {at for at, night in enumerate(group.nights) if night.changed}
    if changed:
        stepped = {mark.at for one in group.series for mark in one.fit.steps}
        both = len(stepped & changed)
        where = f"a row steps at {both} of them" if both else "no row steps at any of them"
        yield (
            f"Versions or the host changed with {len(changed)} of {len(group.nights)} runs"
            f"{f'; {where}' if stepped else ''}."
        )


# ------------------------------------------------------------------------------------ doubts


def series_doubts(group: Group, series: Series) -> Iterator[Finding]:
    """What stands under a series: what is invalid or missing, and doubts about its row."""
    times = moments(group.nights)
    invalid = [when for when, one in zip(times, series.points, strict=True) if one.invalid]
    if invalid:
        yield Finding(
            "more than 1 % of the requests failed: invalid, in no level",
            tone="doubt",
            about=", ".join(invalid),
        )
    if series.fit.p is None and any(one.fit.p is not None for one in group.series):
        yield Finding(
            f"{_judged(series)} runs with a figure that can be judged: a step takes {FEWEST_RUNS}"
        )
    if series.fit.correlation:
        yield Finding(
            f"a run is like the one before it (correlation {series.fit.correlation:.2g}): errors "
            "are widened for it, and steps are found later",
            "correlated",
            "doubt",
            "look for what lasts longer than a night: other users, temperature, a full disk",
        )
    first = next(one for one in group.series if _place(one) == _place(series))
    if series is first:  # doubts are about the row, whatever the metric
        count = sum(point.value is not None for point in series.points)
        every = zip(times, series.points, strict=True)
        doubts = ((when, one) for when, point in every for one in point.doubts)
        yield from _by_code(doubts, f"in {{}} of {count} runs")


def run_doubts(group: Group) -> Iterator[Finding]:
    """Doubts about whole runs, each kind once."""
    every = zip(moments(group.nights), group.nights, strict=True)
    return _by_code(((when, one) for when, night in every for one in night.doubts), "{} runs")


def _by_code(doubts: Iterable[tuple[str, Doubt | Warning]], several: str) -> Iterator[Finding]:
    """Each kind of doubt by its first, with the runs that have it."""
    runs: dict[str, list[str]] = {}
    first: dict[str, Doubt | Warning] = {}
    for when, one in doubts:
        runs.setdefault(one.code, []).append(when)
        first.setdefault(one.code, one)
    for code, times in runs.items():
        many = f"{several.format(len(times))}, first {times[0]}"
        yield Finding(
            first[code].message,
            code,
            "doubt",
            first[code].hint,
            times[0] if len(times) == 1 else many,
        )


# --------------------------------------------------------------------------- around the groups


def passed_over(history: History, most: int | None = None) -> Iterator[str]:
    """The runs that are in no group, by the reason; `most`: places that are named."""
    reasons: dict[str, list[str]] = {}
    for one in history.passed:
        reasons.setdefault(one.why.removeprefix(f"{one.where}: "), []).append(one.where)
    for why, places in reasons.items():
        more = f" and {len(places) - most} more" if most and len(places) > most else ""
        yield f"passed over: {', '.join(places[:most])}{more}: {why}"


def method(history: History) -> Iterator[str]:
    """How steps and outliers are judged."""
    yield (
        f"step: at least {LASTING} runs on each side, of which the means of logarithms differ (t "
        "test, Holm's correction over all rows); slower, faster: by less than the threshold of "
        f"{percent(history.threshold)}; an outlier is one run, compared with {FEWEST_LIKE} or "
        "more of its level; drift: a line tells the runs better than levels; with a look every "
        "night for a year a false mark in at most 5 % of rows in which nothing changed; "
        "docs/history.md"
    )
    if any(
        point.interval is not None
        for group in history.groups
        for series in group.series
        for point in series.points
    ):
        yield "95 % interval: of a run over its launches; the spread shows how runs differ"
    if any(name != "throughput" for name in history.metrics):
        yield "CPU us: of proxies and replicas, for a request; p50, p99: of each launch"
