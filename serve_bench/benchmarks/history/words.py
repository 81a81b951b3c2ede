"""What a history says in running text: its series, steps and outliers, what changed, its method.

Rule: lines of plain text, unbroken; the forms break them, and every form says the same. Figures are
made in serve_bench/history.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from serve_bench.analysis.comparing.parts import ends, ratio_text
from serve_bench.analysis.history import news_of
from serve_bench.analysis.history.levels import FEWEST_LIKE, FEWEST_RUNS, LASTING, Mark
from serve_bench.analysis.history.parts import Group, History, Night, Point, Series
from serve_bench.benchmarks.parts.texts import cell_title, latency, number
from serve_bench.benchmarks.versus.words import UNITS, percent
from serve_bench.core.figures import host_line
from serve_bench.core.result import cell_slug


def value_text(series: Series, value: float | None) -> str:
    """A value in the unit of UNITS."""
    if value is None:
        return "-"
    if series.metric == "throughput":
        return number(value)
    return latency(value / 1e6) if series.metric in ("p50", "p99") else number(value / 1e3, 3)


def ends_text(series: Series, point: Point) -> str:
    """The interval of a run over its launches; empty without one."""
    if point.interval is None:
        return ""
    low, high = (value_text(series, end) for end in (point.interval.low, point.interval.high))
    return f"{low} to {high}"


def moments(nights: Sequence[Night]) -> list[str]:
    """When the runs began (UTC), as short as tells them apart: `2026-01-02 03:04`."""
    for length in (16, 19):
        texts = [one.run.started_at[:length].replace("T", " ") for one in nights]
        if len(set(texts)) == len(texts):
            return texts
    return texts


def series_title(group: Group, series: Series) -> str:
    """What tells a series from the others: variant, cell and client where they differ."""
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


def name_of(group: Group) -> str:
    """`micro`, `press press_noop`; of one's own app what was run, `shop.py:app`."""
    command, suite = group.first.command, group.first.suite.get("name")
    if suite in (None, command):
        return command
    return str(suite) if command == "run" else f"{command} {suite}"


def group_title(group: Group) -> str:
    """`micro, 9 runs from 2026-01-02 03:04 to 2026-01-10 03:04 (UTC)`."""
    times = moments([group.nights[0], group.nights[-1]])
    return f"{name_of(group)}, {len(group.nights)} runs from {times[0]} to {times[1]} (UTC)"


# ------------------------------------------------------------------------------------- marks


def mark_text(series: Series, mark: Mark) -> str:
    """`step 0.842 x`, in a table."""
    kind = "step" if series.is_step(mark) else "outlier"
    return f"{kind} {ratio_text(mark.interval.ratio)} x"


def mark_line(group: Group, series: Series, mark: Mark) -> str:
    """A step or an outlier in one sentence, with what changed at that run."""
    night, when = group.nights[mark.at], moments(group.nights)[mark.at]
    figures = f"{series.metric} {ratio_text(mark.interval.ratio)} x (95 %: {ends(mark.interval)})"
    with_it = f"; with this run: {', '.join(night.changed)}" if night.changed else ""
    if series.is_step(mark):
        before, after = _levels(series, mark)
        return (
            f"step, {series.word(mark)}: from {when} on {figures} of the level before, "
            f"{before} -> {after}{with_it}"
        )
    if mark.at == len(group.nights) - 1:
        return (
            f"outlier, {series.word(mark)}: the last run, {when}, is unlike the runs before: "
            f"{figures} of their level; one bad run, or the first after a step: run again{with_it}"
        )
    return f"outlier: the run of {when} alone is unlike those of its level: {figures}{with_it}"


def _levels(series: Series, mark: Mark) -> tuple[str, str]:
    """The values of the levels before and after a step, with their unit."""
    after = next(at for at, one in enumerate(series.found.levels) if mark.at in one.runs)
    unit = UNITS[series.metric].removeprefix(series.metric).strip()
    values = [value_text(series, series.found.levels[at].value) for at in (after - 1, after)]
    return values[0], f"{values[1]} {unit}"


def news_lines(group: Group) -> list[tuple[str, str]]:
    """What the newest run brought, in a line each, with its word: regressed or improved."""
    return [
        (series.word(mark), f"{series_title(group, series)}: {mark_line(group, series, mark)}")
        for series, mark in news_of(group)
    ]


def gap_lines(history: History) -> list[str]:
    """What of the newest runs could not be judged, in a line each: rows of a run, and runs that
    were passed over and are newer than those of their history."""
    told = []
    for group in history.groups:
        when, seen = moments(group.nights)[-1], set()
        for series in group.series:
            if series.gap and _place(series) not in seen:
                seen.add(_place(series))
                told.append(f"{series_title(group, series)}: the run of {when}: {series.gap}")
    told += [
        f"{one.where}: newer, and passed over: {one.why}" for one in history.passed if one.late
    ]
    return told


def headline(group: Group) -> str:
    """What was found in one sentence: `1 step in 1 of 3 rows over 9 runs of micro: ...`."""
    runs = f"{len(group.nights)} runs of {name_of(group)}"
    steps = [(one, mark) for one in group.series for mark in one.found.steps]
    outliers = [(one, mark) for one in group.series for mark in one.found.outliers]
    of = _rows(len({_place(one) for one in group.series}))
    judged = any(one.found.p is not None for one in group.series)
    if not judged:
        most = max(_values(one) for one in group.series)
        return f"no verdict on {of}: {most} of {runs} can be judged, and a step takes {FEWEST_RUNS}"
    if not steps and not outliers:
        return f"no step in {of} over {runs}{_spreads(group)}"
    told = []
    for marks, one, many in ((steps, "step", "steps"), (outliers, "outlier", "outliers")):
        if marks:
            rows = len({_place(series) for series, _ in marks})
            where = f" in {rows} of {of}" if len(group.series) > 1 else ""
            told.append(f"{len(marks)} {one if len(marks) == 1 else many}{where}")
    said = f"{' and '.join(told)} over {runs}"
    if not steps:
        said += ", no step"
    leading = steps or outliers
    if len(leading) == 1:
        series, mark = leading[0]
        title = f"{series_title(group, series)}: " if len(group.series) > 1 else ""
        return f"{said}: {title}{mark_line(group, series, mark)}"
    return f"{said}: {_at(group, leading)}"


def _at(group: Group, marks: Sequence[tuple[Series, Mark]]) -> str:
    """`from 2026-01-07 03:04 on throughput 0.81 to 0.85 x in 3 rows`, for several."""
    times = moments(group.nights)
    told = []
    for at in sorted({mark.at for _, mark in marks}):
        figures = []
        for metric in dict.fromkeys(series.metric for series, mark in marks if mark.at == at):
            own = [
                mark.interval.ratio
                for series, mark in marks
                if (mark.at, series.metric) == (at, metric)
            ]
            texts = dict.fromkeys((ratio_text(min(own)), ratio_text(max(own))))
            figures.append(f"{metric} {' to '.join(texts)} x in {_rows(len(own))}")
        told.append(f"at {times[at]} {', '.join(figures)}")
    return "; ".join(told)


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _place(series: Series) -> tuple[str, str, str, str]:
    """What row of what cell it is, whatever the metric."""
    return series.variant, cell_slug(series.cell), series.row, series.client


def _values(series: Series) -> int:
    return sum(point.judged is not None for point in series.points)


def _spreads(group: Group) -> str:
    found = [one.found.spread for one in group.series if one.found.spread is not None]
    if not found:
        return ""
    texts = dict.fromkeys((spread_text(min(found)), spread_text(max(found))))
    return f"; runs of a level spread by {' to '.join(texts)}"


def spread_text(spread: float | None) -> str:
    """A standard deviation of logarithms as a share: `3.1 %`."""
    return "-" if spread is None else percent(math.expm1(spread))


# ------------------------------------------------------------------------- below and around


def remarks(group: Group, series: Series) -> Iterator[str]:
    """What stands under a series: steps, outliers, what is invalid or missing, doubts."""
    yield from (mark_line(group, series, mark) for mark in series.marks)
    times = moments(group.nights)
    invalid = [when for when, one in zip(times, series.points, strict=True) if one.invalid]
    if invalid:
        yield (
            f"! {', '.join(invalid)}: more than 1 % of the requests failed: invalid, in no level"
        )
    if series.found.p is None and any(one.found.p is not None for one in group.series):
        yield f"{_values(series)} runs with a figure that can be judged: a step takes {FEWEST_RUNS}"
    first = next(one for one in group.series if _place(one) == _place(series))
    if series is first:  # doubts are about the row, whatever the metric
        yield from _doubts(series, times)


def _doubts(series: Series, times: Sequence[str]) -> Iterator[str]:
    """Each doubt once, with the runs that have it."""
    runs: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for when, point in zip(times, series.points, strict=True):
        for one in point.doubts:
            runs.setdefault(one.code, []).append(when)
            first.setdefault(one.code, f"{one.message} ({one.hint})")
    count = sum(point.value is not None for point in series.points)
    for code, which in runs.items():
        where = (
            which[0] if len(which) == 1 else f"in {len(which)} of {count} runs, first {which[0]}"
        )
        yield f"! {code}, {where}: {first[code]}"


def changes(group: Group) -> Iterator[str]:
    """What is not as in the run before, a line for each run where something changed."""
    for when, night in zip(moments(group.nights), group.nights, strict=True):
        if night.changed:
            yield f"{when}: {', '.join(night.changed)}"


def night_doubts(group: Group) -> Iterator[str]:
    """Doubts about whole runs; those of one kind together."""
    runs: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for when, night in zip(moments(group.nights), group.nights, strict=True):
        for text in night.doubts:
            code = text.partition(":")[0]
            runs.setdefault(code, []).append(when)
            first.setdefault(code, text.partition(": ")[2])
    for code, which in runs.items():
        where = which[0] if len(which) == 1 else f"{len(which)} runs, first {which[0]}"
        yield f"! {code}, {where}: {first[code]}"


def method(history: History) -> Iterator[str]:
    """How steps were told."""
    yield (
        f"step: at least {LASTING} runs on each side, of which the means of logarithms differ by "
        f"more than the threshold of {percent(history.threshold)} (t interval, Holm's correction "
        "over all rows, all places in a row regarded); an outlier is one run, held against "
        f"{FEWEST_LIKE} of its level or more; a false mark in at most 5 % of histories in which "
        "nothing changed; docs/history.md"
    )
    if any(
        point.interval is not None
        for group in history.groups
        for series in group.series
        for point in series.points
    ):
        yield "95 % interval: of a run over its launches; how runs differ is told by the spread"
    if any(name != "throughput" for name in history.metrics):
        yield "CPU us: of proxies and replicas, for a request; p50, p99: of each launch"


def closing(history: History) -> Iterator[str]:
    """What is about the whole: what was found and passed over, and how it was told."""
    used = sum(len(group.nights) for group in history.groups)
    yield f"runs: {history.found} found, {used} in {_groups(history)}"
    yield from (f"! not judged: {text}" for text in gap_lines(history))
    for why, places in _reasons(history).items():
        shown = ", ".join(places[:3])
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        yield f"passed over: {shown}{more}: {why}"
    yield from method(history)


def _groups(history: History) -> str:
    count = len(history.groups)
    return "one history" if count == 1 else f"{count} histories, unlike each other"


def _reasons(history: History) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in history.passed:
        found.setdefault(one.why.removeprefix(f"{one.where}: "), []).append(one.where)
    return found


def host_text(group: Group) -> str:
    """The host of the newest run."""
    return f"host: {host_line(group.newest.host)}"


def tally(group: Group) -> str:
    """`2 regressed, 1 improved`: what the steps say; empty without one."""
    words = Counter(one.word(mark) for one in group.series for mark in one.found.steps)
    return ", ".join(f"{count} {word}" for word, count in words.most_common())
