"""From records to figures: mean and spread of windows, percentiles, ratios between variants.

Rule: pure functions of a Result; nothing is rounded, and units stay as recorded (times in
nanoseconds). The mean ± std of a row is over its windows, as in the published benchmark. Launches
differ more than windows, so several launches also have a spread over launches. Profiled trials
enter no mean. Warnings about figures are in checks.py."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import compress
from typing import Final, Literal, TypeAlias

from serve_bench.core.figures import LowerBound as LowerBound
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.result import JsonObject, PlannedTrial, Result, Trial, cell_slug
from serve_bench.core.traffic import Row

MAIN: Final = "throughput"
"""The metric of the ratios between variants."""

LATENCY: Final = "latency"

OF_RESPONSES: Final = (MAIN, "events")
"""Metrics that count responses, or their events, in windows."""

CENSORED: Final = CENSORED_BY[LATENCY]
"""The waiting times of requests with a time-out or no answer: a part of the figures of the latency,
and no metric by themselves."""

LineStatus: TypeAlias = Literal["measured", "partly measured", "not measured", "profiled"]


@dataclass(frozen=True)
class Value:
    """The value of a figure of a row, in the figure's unit; a LowerBound if no more is known."""

    value: float
    std: float | None = None  # over `windows` windows (ddof 0), else over launches (ddof 1)
    windows: int | None = None
    launches: Mapping[int, float] = field(default_factory=dict)  # the value of each
    low: float | None = None  # the lower end of its interval
    high: float | None = None  # the upper end
    of: float | None = None  # the whole that it is a part of, such as all cores of a host
    missing: int | None = None  # launches in which it was not seen

    @property
    def launch_std(self) -> float | None:
        """The spread over launches (ddof 1, since launches are a small sample)."""
        return statistics.stdev(self.launches.values()) if len(self.launches) > 1 else None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Its interval; else that of its launches; else value ± std, not below 0."""
        if self.low is not None or self.high is not None:
            return self.low, self.high
        if len(self.launches) > 1:
            return min(self.launches.values()), max(self.launches.values())
        if self.std is None:
            return None, None
        return max(0.0, self.value - self.std), self.value + self.std


def made_of(value: float, parts: Iterable[float | None]) -> float:
    """Return a value derived from `parts`: a LowerBound if one of them is."""
    return LowerBound(value) if any(isinstance(part, LowerBound) for part in parts) else value


#: Percentiles of a histogram by their names, as shares.
PERCENTILES: Final = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}

STATISTICS: Final = ("mean", "std", *PERCENTILES, "max", "count")


@dataclass(frozen=True)
class Line:
    """One row of one cell under one variant, over all its launches."""

    variant: str
    cell: JsonObject
    row: Row
    keys: tuple[str, ...]  # of the planned trials
    trials: tuple[Trial, ...]  # the measured ones
    status: LineStatus
    spreads: Mapping[str, Value] = field(default_factory=dict)  # of metrics by windows
    # The STATISTICS of metrics that are kept as histograms.
    distributions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Mean of MAIN over that of the same row under the first variant; None for the first variant,
    # and if either is not measured or `broken`.
    ratio: float | None = None
    broken: bool = False  # Result.broken
    completed: int = 0  # requests of the windows that were answered
    failed: Mapping[str, int] = field(default_factory=dict)  # by class, the most frequent first
    errors: int = 0  # all failed requests


def variants(result: Result) -> tuple[str, ...]:
    """Return the variants in the order of the plan; the first is the base of ratios."""
    places = (result.plan, result.trials, result.profiled)
    return tuple(dict.fromkeys(part.variant for parts in places for part in parts))


def summarize(result: Result) -> tuple[Line, ...]:
    """Return a line for each planned or measured variant, cell and row, in the order of the plan.

    A trial stands where it was planned: from several nodes it has more connections than that row. A
    profiled trial has its own line after its row. Raises FormatError on an unreadable histogram."""
    trials, broken = {trial.key: trial for trial in result.trials}, result.broken
    rows = {planned.key: planned.row for planned in result.plan}
    places: dict[tuple[str, str, Row], list[PlannedTrial | Trial]] = {}
    all_trials: list[PlannedTrial | Trial] = [*result.plan, *result.trials, *result.profiled]
    for trial in all_trials:  # a load of a URL has no plan
        place = (trial.variant, cell_slug(trial.cell), rows.get(trial.key, trial.row))
        places.setdefault(place, []).append(trial)
    order = [list(dict.fromkeys(parts)) for parts in zip(*places, strict=True)]
    rates: dict[tuple[str, Row], float] = {}  # of the first variant
    lines: list[Line] = []
    for place in sorted(places, key=lambda place: [*map(list.index, order, place)]):
        found, (variant, slug, row) = places[place], place
        profiled = [trial for trial in found if isinstance(trial, Trial) and trial.flags.profiled]
        if keys := tuple(dict.fromkeys(trial.key for trial in found if trial not in profiled)):
            measured = [trials[key] for key in keys if key in trials]
            line = _line(keys, measured, found[0], row)
            line = replace(line, broken=any(trial.key in broken for trial in measured))
            if MAIN in line.spreads and not line.broken:
                mean, base = line.spreads[MAIN].value, rates.get((slug, row))
                if variant == order[0][0]:
                    rates[slug, row] = mean
                elif base:
                    line = replace(line, ratio=mean / base)
            lines.append(line)
        for trial in profiled:
            lines.append(replace(_line((trial.key,), [trial], trial, row), status="profiled"))
    return tuple(lines)


SILENT: Final = 2.0
"""No request succeeds any more if none does for this multiple of the longest time that a request
took: else those in progress may just not be ready."""


FEWEST_RESPONSES: Final = 10
"""With fewer responses a window, one more or less is the spread."""

FEWEST_LONG: Final = 3.0
"""A window of at least this many responses has a spread. Below, most responses lie in two windows,
which makes these alike. Windows become 5.5 responses long where they may; the response time is that
of a warm-up of two responses, and may be a third off."""


@dataclass(frozen=True)
class TrialRate:
    """Requests/s of a trial by its windows, up to a standstill."""

    windows: tuple[float, ...]  # without that in which the standstill began: it has both states
    # The window from which on no request succeeded though some were due, up to the end; None where
    # there is none, or only the last window has no answer.
    silent_from: int | None
    mean: float | None  # None without windows
    per_s: float  # by the counts where the row has a number of requests, or no windows
    seconds: float  # that the windows cover; an interrupted trial ends in the middle of one
    # How many responses one after the other a window of a closed loop takes, failed ones too; None
    # where it is no stretch of time with a rate of its own.
    responses: float | None
    # The windows are long enough for a spread of the rate, or it is that of something else than a
    # load in windows.
    has_spread: bool


def read_rate(trial: Trial) -> TrialRate:
    """Compute the rate of a trial, and where it came to a standstill."""
    metric, row, within = trial.metrics.get(MAIN), trial.row, trial.client.in_windows
    windows = watched = whole = tuple(metric.windows or ()) if metric is not None else ()
    seconds, silent, responses = trial.seconds.measured or trial.window_s * len(whole), None, None
    if due := trial.course.due:  # of a load over time, in seconds
        watched = whole[: max((second for second, n in enumerate(due, 1) if n), default=0)]
    last = max((number for number, rate in enumerate(watched, 1) if rate), default=0)
    if 0 < last < len(watched) - 1 and trial.counts.failed_total + trial.unanswered:
        longest_s = (merged([trial], LATENCY).max or 0.0) / 1e9
        if (len(watched) - last) * trial.window_s >= SILENT * longest_s:
            silent, windows = last, whole[: last - 1]
    mean = statistics.fmean(windows) if windows else None
    has_spread = True
    if mean is not None and within is not None:
        has_spread = mean * trial.window_s >= FEWEST_RESPONSES
        if row.loop == "closed" and row.requests is None:
            failed = within.failed_total / len(whole)
            responses = (mean * trial.window_s + failed) / max(1, row.connections)
            has_spread = has_spread and responses >= FEWEST_LONG
    if row.requests is None and mean is not None:
        per_s = mean
    elif silent is not None or seconds <= 0:
        per_s = 0.0  # one that stood still from the start has no rate of either state
    else:
        per_s = trial.completed_in_windows / seconds
    return TrialRate(windows, silent, mean, per_s, seconds, responses, has_spread)


def answered(trial: Trial) -> bool:
    """Return whether any request succeeded: one that began in the windows, or in the warm-up."""
    return bool(trial.counts.completed or trial.completed_in_windows)


def spread(launches: Mapping[int, Sequence[float]], of_windows: bool = True) -> Value:
    """Compute the value of a metric that is kept by windows: the mean of the means of launches.

    There is at least one, each with as many windows unless it was broken off. `of_windows`: whether
    these have a std within a launch (ddof 0, as published; of several launches the root of their
    mean variance)."""
    means = {launch: statistics.fmean(windows) for launch, windows in launches.items()}
    several = of_windows and any(len(windows) > 1 for windows in launches.values())
    variance = statistics.fmean(map(statistics.pvariance, launches.values()))
    std = variance**0.5 if several else None
    return Value(statistics.fmean(means.values()), std, sum(map(len, launches.values())), means)


def distribution(answered: Histogram, given_up: Histogram | None = None) -> dict[str, float]:
    """Compute the STATISTICS of a histogram with a value, percentiles by nearest rank.

    Requests that were `given_up` count with at least the time that they were waited for: what
    depends on them is a LowerBound, but for std, which uses the bound itself."""
    waited = Histogram(unit=answered.unit) if given_up is None else given_up
    everything = answered.joined(waited)
    bound = LowerBound if waited.count else float
    shares = zip(PERCENTILES, bounded(answered, waited, [*PERCENTILES.values()]), strict=True)
    return {
        "mean": bound(everything.mean or 0.0),
        "std": everything.std or 0.0,
        **{name: (LowerBound if lower else float)(value or 0.0) for name, (value, lower) in shares},
        "max": bound(everything.max or 0.0),
        "count": answered.count,
    }


def latency_figures(
    trials: Sequence[Trial], shares: Sequence[float], name: str = LATENCY
) -> list[float | None]:
    """Compute percentiles (ns) of the latency of all requests of the windows, or of another metric.

    Those without an answer count too (CENSORED_BY): a figure is a LowerBound if it depends on what
    never came, and None without any. Raises FormatError."""
    values = bounded(merged(trials, name), merged(trials, CENSORED_BY[name]), shares)
    return [LowerBound(value) if value is not None and lower else value for value, lower in values]


def merged(trials: Iterable[Trial], name: str) -> Histogram:
    """Merge the histograms of a metric of these trials; the result is not to be changed."""
    metrics = (trial.metrics.get(name) for trial in trials)
    known = [metric.values for metric in metrics if metric is not None and metric.histogram]
    return reduce(Histogram.joined, known) if known else Histogram()


def _line(
    keys: tuple[str, ...], trials: Sequence[Trial], planned: PlannedTrial | Trial, row: Row
) -> Line:
    """Summarize the trials of a row, with its spreads, distributions and failures."""
    failed = Counter[str]()
    for trial in trials:
        failed.update(trial.counts.failed)
    status: LineStatus = "not measured" if not trials else "measured"
    if 0 < len(trials) < len(keys):
        status = "partly measured"
    kept = {name: metric for trial in trials for name, metric in trial.metrics.items()}
    rates = [read_rate(trial) for trial in trials]
    steady = all(rate.has_spread for rate in rates)
    by_windows: dict[str, dict[int, Sequence[float]]] = {}
    for trial, rate in zip(trials, rates, strict=True):
        end = None if rate.silent_from is None else rate.silent_from - 1
        for name, metric in trial.metrics.items():
            if windows := (metric.windows or ())[:end]:
                by_windows.setdefault(name, {})[trial.round] = windows
    kinds = by_windows.items()
    histograms = {name: merged(trials, name) for name, metric in kept.items() if metric.histogram}
    given_up = {name: histograms.pop(by, Histogram()) for name, by in CENSORED_BY.items()}
    for name, waited in given_up.items():
        if waited.count:  # no request may have come so far
            histograms.setdefault(name, Histogram())
    return Line(
        variant=planned.variant,
        cell=planned.cell,
        row=row,
        keys=keys,
        trials=tuple(trials),
        status=status,
        completed=sum(trial.counts.completed for trial in trials),
        errors=failed.total(),
        failed=dict(sorted((+failed).items(), key=lambda item: (-item[1], item[0]))),
        spreads={name: spread(seen, name not in OF_RESPONSES or steady) for name, seen in kinds},
        distributions={
            name: distribution(histogram, given_up.get(name))
            for name, histogram in histograms.items()
            if histogram.count or (name in given_up and given_up[name].count)
        },
    )


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
    """Return the row with the highest throughput, then those that are not clearly slower.

    These are within LIKE, or two standard errors. Empty if fewer than two are measured."""
    known = (line for line in lines if MAIN in line.spreads)
    measured = [line for line in known if line.status != "profiled" and not line.broken]
    if len(measured) < 2:
        return ()
    sound = [line for line in measured if not line.errors] or measured
    sound.sort(key=lambda line: line.spreads[MAIN].value, reverse=True)
    rates: list[tuple[float, float]] = []  # with their errors
    for line in sound:
        # By launches if there are enough, else by windows, which vary less than launches.
        rate, count = line.spreads[MAIN], max(1, line.completed)
        error = rate.value / math.sqrt(count)  # without a spread, as of counts by chance
        if rate.launch_std is not None and len(rate.launches) >= FEWEST:
            error = rate.launch_std / math.sqrt(len(rate.launches))
        elif rate.std is not None:
            error = rate.std / math.sqrt(rate.windows or 1)
        rates.append((rate.value, error))
    most, of_most = rates[0]
    least = [min(most / (1 + LIKE), most - 2 * math.hypot(of_most, error)) for _, error in rates]
    near = (rate >= bound for (rate, _), bound in zip(rates, least, strict=True))
    return tuple(compress(sound, near))
