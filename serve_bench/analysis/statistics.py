"""From records to figures: mean and spread of windows, percentiles, ratios between variants.

Rule: pure functions of a Result; nothing is rounded, and units stay as recorded (times in
nanoseconds). The mean ± std of a row is over its windows, as in the published benchmark. Launches
differ more than windows, so several launches have a spread of their own beside it. Profiled trials
enter no mean. Doubts about figures are in checks.py.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, Literal, TypeAlias, TypeVar

from serve_bench.core.figures import LowerBound as LowerBound
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.result import (
    Better,
    JsonObject,
    Metric,
    PlannedTrial,
    Result,
    Row,
    Trial,
    cell_slug,
)

MAIN: Final = "throughput"
"""The metric of the ratios between variants."""

LATENCY: Final = "latency"

OF_RESPONSES: Final = (MAIN, "events")
"""Metrics that count responses, or their events, in windows."""

CENSORED: Final = CENSORED_BY[LATENCY]
"""The waiting times of requests with a time-out or no answer: no metric of its own, but part of the
figures of the latency."""

_At = TypeVar("_At", bound=PlannedTrial | Trial)
_Place: TypeAlias = tuple[str, str, Row]  # variant, cell, row

LineStatus: TypeAlias = Literal["measured", "partly measured", "not measured", "profiled"]


@dataclass(frozen=True)
class Spread:
    """A metric kept by windows.

    `mean`: of the launches' means (each launch has the same number of windows unless it was broken
    off). `std`: over windows within a launch (ddof 0, as published; with several launches the root
    of their mean variance); None for single windows, and those too short for one. `launch_std`:
    over the launches' means (ddof 1, since launches are a small sample); None for a single launch.
    """

    unit: str
    better: Better
    mean: float
    std: float | None
    windows: int
    launches: int
    launch_std: float | None


def made_of(value: float, parts: Iterable[float | None]) -> float:
    """A value derived from `parts`: a LowerBound if one of them is."""
    return LowerBound(value) if any(isinstance(one, LowerBound) for one in parts) else value


#: The percentiles of a Distribution, by field, as shares.
PERCENTILES: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}


@dataclass(frozen=True)
class Distribution:
    """A metric kept as a histogram, those of all launches merged. Percentiles: nearest rank.

    Requests without an answer count with at least the time that they were waited for. Figures that
    depend on them are LowerBounds, named in `lower_bounds`; std uses the bound itself.
    """

    unit: str
    better: Better
    count: int
    mean: float
    std: float
    p50: float
    p75: float
    p90: float
    p99: float
    p99_9: float
    max: float
    lower_bounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One row of one cell under one variant, over all its launches.

    `keys`: of the planned trials; `trials`: the measured ones. `ratio`: the mean of MAIN over that
    of the same row under the first variant; None for the first variant, and if either is not
    measured or `broken` (Result.broken).
    """

    variant: str
    cell: JsonObject
    row: Row
    keys: tuple[str, ...]
    trials: tuple[Trial, ...]
    status: LineStatus
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    ratio: float | None = None
    broken: bool = False

    @property
    def completed(self) -> int:
        """Requests of the windows that were answered."""
        return sum(trial.counts.completed for trial in self.trials)

    @property
    def failed(self) -> dict[str, int]:
        """Failed requests by class, the most frequent first."""
        total: Counter[str] = Counter()
        for trial in self.trials:
            total.update(trial.counts.failed)
        return dict(sorted((+total).items(), key=lambda item: (-item[1], item[0])))

    @property
    def errors(self) -> int:
        """Failed requests of all classes."""
        return sum(self.failed.values())


def variants(result: Result) -> tuple[str, ...]:
    """The variants in the order of the plan; the first is the base of ratios."""
    every = [*_everything(result), *result.profiled]
    return tuple(dict.fromkeys(at.variant for at in every))


def summarize(result: Result) -> tuple[Line, ...]:
    """One line for each planned or measured variant, cell and row, in the order of the plan.

    A trial stands where it was planned: from several nodes it has more connections than that row.
    A profiled trial has a line of its own behind its row. Raises FormatError if a stored histogram
    cannot be read.
    """
    trials, broken = {trial.key: trial for trial in result.trials}, result.broken
    rows = {planned.key: planned.row for planned in result.plan}
    planned = _grouped(_everything(result), rows)
    profiled = _grouped(result.profiled, rows)
    lines: list[Line] = []
    for place in _ordered(planned | profiled):
        if place in planned:
            keys = tuple(dict.fromkeys(at.key for at in planned[place]))
            measured = [trials[key] for key in keys if key in trials]
            line = _line(keys, measured, planned[place][0])
            lines.append(replace(line, broken=any(one.key in broken for one in measured)))
        for one in profiled.get(place, ()):
            lines.append(replace(_line((one.key,), [one], one), status="profiled"))
    return _with_ratios(lines)


SILENT: Final = 2.0
"""No request succeeds any more if none does for this multiple of the longest time that one took:
else those at hand may just not be ready."""


def silent_from(trial: Trial) -> int | None:
    """The window from which on no request succeeded though some were due, up to the end; None:
    there is none, or only the last window has no answer."""
    metric, due = trial.metrics.get(MAIN), trial.course.get("due")
    windows = metric.windows or () if metric is not None else ()
    if due:  # of a load over time, in seconds
        windows = windows[: max((at for at, count in enumerate(due, 1) if count), default=0)]
    answered = max((at for at, rate in enumerate(windows, 1) if rate), default=0)
    if not 0 < answered < len(windows) - 1 or not trial.counts.failed_total + trial.unanswered:
        return None
    longest_s = (merged([trial], LATENCY).max or 0.0) / 1e9
    silent_s = (len(windows) - answered) * trial.window_s
    return answered if silent_s >= SILENT * longest_s else None


def windows_of(trial: Trial, name: str = MAIN) -> tuple[float, ...]:
    """The windows of a metric up to a standstill, without that in which it began: it has both
    states. None, if that is the first."""
    metric, stop = trial.metrics.get(name), silent_from(trial)
    windows = () if metric is None else tuple(metric.windows or ())
    return windows if stop is None else windows[: stop - 1]


def mean_rate(trial: Trial) -> float | None:
    """Requests/s over the windows, up to a standstill; None without windows."""
    windows = windows_of(trial)
    return statistics.fmean(windows) if windows else None


def answered(trial: Trial) -> bool:
    """Whether any request succeeded: of those that began in the windows, or in the warm-up."""
    return bool(trial.counts.completed or trial.completed_in_windows)


FEWEST_RESPONSES: Final = 10
"""With fewer responses a window, one more or less is the spread."""

FEWEST_LONG: Final = 3.0
"""A window that is so many responses long has a spread of its own. Below, most responses lie in two
windows, which makes these alike. Windows become 5.5 responses long where they may; the response
time is that of a warm-up of two responses, and may be a third off."""


def responses_long(trial: Trial) -> float | None:
    """How many responses one after the other a window of a closed loop takes, failed ones too. None
    where it is no stretch of time with a rate of its own."""
    metric, row = trial.metrics.get(MAIN), trial.row
    if row.loop != "closed" or row.requests is not None or trial.in_windows is None:
        return None
    if metric is None or not metric.windows or (rate := mean_rate(trial)) is None:
        return None
    failed = trial.in_windows.failed_total / len(metric.windows)
    return (rate * trial.window_s + failed) / max(1, row.connections)


def has_spread(trial: Trial) -> bool:
    """Whether the windows of a trial are long enough for a spread of its rate."""
    rate, long = mean_rate(trial), responses_long(trial)
    if rate is None or trial.in_windows is None:
        return True  # the spread of something else than a load in windows
    return rate * trial.window_s >= FEWEST_RESPONSES and (long is None or long >= FEWEST_LONG)


def spread(metrics: Sequence[Metric], of_windows: bool = True) -> Spread:
    """The figures of one metric, kept by windows, over launches (at least one). `of_windows`:
    whether they have a spread."""
    launches = [metric.windows for metric in metrics if metric.windows]
    means = [statistics.fmean(windows) for windows in launches]
    variances = [statistics.pvariance(windows) for windows in launches]
    several = any(len(windows) > 1 for windows in launches)
    return Spread(
        unit=metrics[0].unit,
        better=metrics[0].better,
        mean=statistics.fmean(means),
        std=statistics.fmean(variances) ** 0.5 if of_windows and several else None,
        windows=sum(len(windows) for windows in launches),
        launches=len(launches),
        launch_std=statistics.stdev(means) if len(means) > 1 else None,
    )


def distribution(
    metric: Metric, histogram: Histogram, censored: Histogram | None = None
) -> Distribution:
    """The figures of a histogram and that of requests without an answer; one must have values."""
    given_up = censored if censored is not None else Histogram(unit=histogram.unit)
    everything = histogram.joined(given_up)
    low = bool(given_up.count)
    known = {"mean": (everything.mean, low), "max": (everything.max, low)}
    shares = tuple(PERCENTILES.values())
    known |= zip(PERCENTILES, bounded(histogram, given_up, shares), strict=True)
    figures = {
        name: LowerBound(_known(value)) if lower else _known(value)
        for name, (value, lower) in known.items()
    }
    return Distribution(
        unit=metric.unit,
        better=metric.better,
        count=histogram.count,
        std=_known(everything.std),
        lower_bounds=tuple(name for name, at in figures.items() if isinstance(at, LowerBound)),
        **figures,
    )


def measured_s(trial: Trial) -> float:
    """Seconds that the windows cover: an interrupted trial ends in the middle of one."""
    metric = trial.metrics.get(MAIN)
    whole = trial.window_s * len(metric.windows or ()) if metric is not None else 0.0
    return float(trial.seconds.get("measured") or whole)


def latency_figures(
    trials: Sequence[Trial], shares: Sequence[float], name: str = LATENCY
) -> list[float | None]:
    """Percentiles (ns) of the latency of all requests of the windows, those without an answer too,
    or of another metric of CENSORED_BY: a LowerBound if it depends on what never came, None without
    any. Raises FormatError."""
    values = bounded(merged(trials, name), merged(trials, CENSORED_BY[name]), shares)
    return [LowerBound(at) if at is not None and lower else at for at, lower in values]


def merged(trials: Iterable[Trial], name: str) -> Histogram:
    """The merged histogram of a metric of these trials, which is not to be changed."""
    metrics = (trial.metrics.get(name) for trial in trials)
    known = [metric.values for metric in metrics if metric is not None and metric.histogram]
    return reduce(Histogram.joined, known) if known else Histogram()


def _line(keys: tuple[str, ...], trials: list[Trial], at: Trial | PlannedTrial) -> Line:
    status: LineStatus = "not measured" if not trials else "measured"
    if 0 < len(trials) < len(keys):
        status = "partly measured"
    by_windows: dict[str, list[Metric]] = {}
    by_histogram: dict[str, Metric] = {}
    for trial in trials:
        for name, metric in trial.metrics.items():
            if metric.windows:
                if windows := windows_of(trial, name):
                    by_windows.setdefault(name, []).append(replace(metric, windows=windows))
            elif metric.histogram is not None:
                by_histogram[name] = metric
    histograms = {name: merged(trials, name) for name in by_histogram}
    given_up = {name: histograms.pop(by, Histogram()) for name, by in CENSORED_BY.items()}
    for name, waited in given_up.items():
        if waited.count and name not in histograms:  # no request came so far
            histograms[name], by_histogram[name] = Histogram(), by_histogram[CENSORED_BY[name]]
    return Line(
        variant=at.variant,
        cell=at.cell,
        row=at.row,
        keys=keys,
        trials=tuple(trials),
        status=status,
        spreads={
            name: spread(metrics, name not in OF_RESPONSES or all(map(has_spread, trials)))
            for name, metrics in by_windows.items()
        },
        distributions={
            name: distribution(by_histogram[name], histogram, given_up.get(name))
            for name, histogram in histograms.items()
            if histogram.count or (name in given_up and given_up[name].count)
        },
    )


def _with_ratios(lines: list[Line]) -> tuple[Line, ...]:
    base = lines[0].variant if lines else ""
    means = {
        (line.variant, cell_slug(line.cell), line.row): line.spreads[MAIN].mean
        for line in lines
        if line.status != "profiled" and not line.broken and MAIN in line.spreads
    }

    def ratio(line: Line) -> float | None:
        own, of_base = (
            means.get((variant, cell_slug(line.cell), line.row)) for variant in (line.variant, base)
        )
        if line.variant == base or line.status == "profiled" or own is None:
            return None
        return own / of_base if of_base else None

    return tuple(replace(line, ratio=ratio(line)) for line in lines)


def _everything(result: Result) -> Iterator[PlannedTrial | Trial]:
    """The planned trials, then the measured ones, which may have no plan (a load of a URL)."""
    yield from result.plan
    yield from result.trials


def _grouped(every: Iterable[_At], rows: Mapping[str, Row]) -> dict[_Place, list[_At]]:
    groups: dict[_Place, list[_At]] = {}
    for at in every:
        row = rows.get(at.key, at.row)
        groups.setdefault((at.variant, cell_slug(at.cell), row), []).append(at)
    return groups


def _ordered(places: Iterable[_Place]) -> list[_Place]:
    """By variant, cell and row, each in the order in which it first appears."""
    every = list(places)
    order = [
        {part: at for at, part in enumerate(dict.fromkeys(of))} for of in zip(*every, strict=True)
    ]
    return sorted(every, key=lambda place: [order[i][part] for i, part in enumerate(place)])


def _known(value: float | None) -> float:
    if value is None:
        raise ValueError("an empty histogram has no figures")
    return float(value)


# The best cell of a matrix: the row with the highest throughput, and those like it.
#
# Rule: a row with failed requests is not the best while another has none, and a row of a broken
# cluster (Result.broken) never is. Launches differ more than windows, so only several launches can
# separate two cells well. Cells within LIKE of the best, or within two standard errors, are listed
# beside it.

LIKE: Final = 0.05
"""Two launches of the same cell differ by 2 to 10 % on a host with 2 cores (SD of the ratio of two
identical clusters, measured with a prototype: docs/ab.md). Cells this close are not called
different."""

FEWEST: Final = 3
"""Fewest launches for a spread over launches."""


def best(lines: Iterable[Line]) -> tuple[Line, ...]:
    """The row with the highest throughput, then those that are not clearly slower; none if fewer
    than two are measured."""
    known = (one for one in lines if MAIN in one.spreads)
    measured = [one for one in known if one.status != "profiled" and not one.broken]
    if len(measured) < 2:
        return ()
    sound = [one for one in measured if not one.errors] or measured
    first = max(sound, key=rate)
    like = [one for one in sound if one is not first and _like(first, one)]
    return first, *sorted(like, key=rate, reverse=True)


def rate(line: Line) -> float:
    """The mean throughput of a row, requests/s."""
    return line.spreads[MAIN].mean


def _like(first: Line, other: Line) -> bool:
    """Whether the difference is within LIKE, or within two standard errors: of launches if there
    are enough, else of windows, which vary less than launches, or of counts without a spread."""
    a, b = rate(first), rate(other)
    return a <= (1 + LIKE) * b or a - b < 2 * math.hypot(_error(first), _error(other))


def _error(line: Line) -> float:
    of = line.spreads[MAIN]
    if of.launch_std is not None and of.launches >= FEWEST:
        return of.launch_std / math.sqrt(of.launches)
    if of.std is None:  # as of counts by chance
        return of.mean / math.sqrt(max(1, line.completed))
    return of.std / math.sqrt(of.windows)
