"""The statistics of A against B: intervals of a ratio, and what they say in one of six words.

Pure. Rule: it computes with logarithms, since ratios of 2 and 1/2 are equally far from 1, and
launches are the only unit of repetition: a window or a slice is no sample. Whether a change is
proven and how large it is are two questions. Formulas and their sources are in docs/ab.md;
analysis/comparing/values.py takes the values from records.

Who looks again and again finds an alarm sooner or later. So each look after a round has a level
such that all of them together stay within alpha: error spending [Lan, DeMets 1983], with the levels
from the distribution of the cumulated means [Armitage, McPherson, Rowe 1969]. The levels are those
of normal means; used as levels of t they hold as well as docs/ab.md shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.result import Better

Word: TypeAlias = Literal["regressed", "slower", "improved", "faster", "same", "inconclusive"]

CONFIDENCE: Final = 0.95
THRESHOLD: Final = 0.05
"""Default threshold: the size from which on a proven change is regressed or improved."""

CLEAR: Final = 0.5
"""A run does not end with "regressed" before the interval lies beyond this share of the threshold:
the estimate of a run that ends early is too far from 1."""

FEWEST: Final = 3
"""Launches per side for a verdict: of two, the 95 % interval is ± 12.7 standard errors."""

MOST_ROUNDS: Final = 200
"""The largest number of rounds to suggest. Beyond, the ratio lies at the threshold itself, or the
noise is too large."""

ROUNDING: Final = 1e-12
"""Logarithms that differ by less are equal: 475/500 lies at a threshold of 5 %, not beyond it."""


@dataclass(frozen=True)
class Interval:
    """The ratio B/A with a t interval on its logarithm."""

    center: float  # mean log ratio
    se: float  # standard error of `center`
    df: float  # degrees of freedom (of Welch not whole)
    n_a: int  # launches of A; of `pairs` the number of rounds, as n_b
    n_b: int
    pairs: bool = True
    confidence: float = CONFIDENCE
    planned: int | None = None  # rounds of a run that is judged after each; None: judged once
    between: float = 0.0  # the part of se^2 that more launches do not lessen: that of runs

    @property
    def level(self) -> float:
        """The two-sided level of the t quantile.

        It is smaller than 1 - confidence where there are more looks than this one."""
        alpha = 1 - self.confidence
        if self.planned is None or min(self.planned, self.n_a) < FEWEST:
            return alpha
        return nominal(self.n_a, self.planned, alpha)

    @property
    def ratio(self) -> float:
        """B/A: the geometric mean over rounds, or the ratio of the geometric means."""
        return math.exp(self.center)

    @property
    def half(self) -> float:
        """Half of the width, in logarithms."""
        return quantile(self.df, 1 - self.level / 2) * self.se if self.se else 0.0

    @property
    def low(self) -> float:
        """The lower end, as a ratio."""
        return _exp(self.center - self.half)

    @property
    def high(self) -> float:
        """The upper end, as a ratio; infinite if too large for a float."""
        return _exp(self.center + self.half)

    @property
    def fewest(self) -> int:
        """The launches of the side with fewer."""
        return min(self.n_a, self.n_b)

    def at(self, confidence: float) -> Interval:
        """Return the interval at another confidence (a share)."""
        return replace(self, confidence=confidence)


def trimmed(n: int) -> int:
    """Return how many of `n` rounds to omit at each end: none of up to 6, one of 7, two of 12."""
    return max(0, (n - 2) // 5)


def paired(logs: Sequence[float], planned: int | None = None) -> Interval:
    """Compute the interval from log(B/A) of each round, so that an odd launch moves it little.

    By the trimmed mean with Yuen's standard error (1974); of few rounds by the plain mean. Half a
    degree of freedom less for each round left out at an end keeps the error at 5 %
    (evidence/ab.md). `planned`: see Interval.

    Raises ValueError on fewer than two rounds, and on nan or infinity."""
    _finite(logs)
    n, out = len(logs), trimmed(len(logs))
    ranked, kept = sorted(logs), n - 2 * out
    inner = ranked[out : n - out]
    winsorized = [inner[0]] * out + inner + [inner[-1]] * out
    se = statistics.stdev(winsorized) * math.sqrt((n - 1) / (kept * (kept - 1)))
    return Interval(statistics.fmean(inner), se, kept - 1 - out / 2, n, n, planned=planned)


@dataclass(frozen=True)
class RunSpread:
    """How far runs of one suite differ."""

    sd: float  # standard deviation of the logarithm of a run's value
    df: float = math.inf  # degrees of freedom; infinite: assumed
    launches: float = math.inf  # that the value of a run is a mean of
    runs: int = 0  # that it was estimated from


def freedom(*terms: tuple[float, float]) -> float:
    """Return the degrees of freedom of a sum of variances from those of each (Satterthwaite).

    Infinite where no part varies. By shares, since squares of tiny variances would vanish."""
    whole = sum(part for part, _ in terms)
    shares = sum((part / whole) ** 2 / df for part, df in terms if df) if whole > 0 else 0.0
    return 1 / shares if shares else math.inf


ASSUMED: Final = RunSpread(0.06)
"""The spread between runs where it is not known: that of a shared host on which other work comes
and goes. Intervals with it hold the truth where the spread is smaller, and are too wide for it."""


def unpaired(
    a_values: Sequence[float], b_values: Sequence[float], runs: RunSpread | None = None
) -> Interval:
    """Compute Welch's interval from the values of independent launches, two or more per side.

    With `runs` the spread between runs is in it, with Satterthwaite's degrees of freedom of the
    sum. Raises ValueError on fewer, and on a value that is not above 0."""
    for value in (*a_values, *b_values):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"a ratio is made of values above 0, got {value}")
    a, b = [math.log(value) for value in a_values], [math.log(value) for value in b_values]
    found = welch(a, b)
    if runs is None:
        return found
    # A run's value has the spread of its launches in it already.
    frees = len(a) - 1, len(b) - 1
    pooled = (frees[0] * statistics.variance(a) + frees[1] * statistics.variance(b)) / sum(frees)
    between = max(0.0, 2 * (runs.sd**2 - pooled / runs.launches))
    if not between:
        return found
    rest = found.se**2 - 2 * pooled / runs.launches
    df = freedom((2 * runs.sd**2, runs.df), (rest, found.df))
    return replace(found, se=math.sqrt(found.se**2 + between), df=df, between=between)


def welch(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Compute Welch's interval of mean(b) - mean(a), of logarithms or other values.

    Raises ValueError for fewer than two values on a side."""
    _finite(a)
    _finite(b)
    squares = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    df = freedom((squares[0], len(a) - 1), (squares[1], len(b) - 1))
    center = statistics.fmean(b) - statistics.fmean(a)
    return Interval(center, math.sqrt(sum(squares)), df, len(a), len(b), pairs=False)


RUNS_KNOWN: Final = 4
"""Runs that show how far runs differ: with three the t quantile is 4.3, with four 3.2."""


def against_runs(runs: Sequence[Sequence[float]], newest: Sequence[float]) -> Interval | None:
    """Compare the newest run with earlier ones, all by the values of their launches.

    The unit is the run: runs of one suite differ by more than their launches do (2 to 6 % on shared
    hosts against 1 to 2 %), so launches of several runs in one heap would alarm far too often: with
    spreads of 3 and 1 %, ten runs of three launches and no change, in 57 % of runs in place of 5 %
    (test_history.py). A run counts by the mean m of its logarithms, and the newest is compared with
    the prediction interval for one more run (Hahn and Meeker, Statistical Intervals, 1991):

        m_new - mean(m_i) ± t(0.975, n - 1) * s * sqrt(1 + 1/n)

    s holds the spread of launches already; a newest run of fewer launches has more of it, which is
    added. Below RUNS_KNOWN runs the spread is ASSUMED, as that of two runs is, and each side takes
    FEWEST launches: None with fewer."""
    logs = [[math.log(value) for value in run] for run in runs]
    new = [math.log(value) for value in newest]
    means, n_a, n_b = [statistics.fmean(run) for run in logs], sum(map(len, logs)), len(new)
    n = len(runs)
    spread = ASSUMED
    if n >= RUNS_KNOWN:
        launches = statistics.harmonic_mean([len(run) for run in logs])
        spread = RunSpread(statistics.stdev(means), n - 1, launches, n)
    elif min(n_a, n_b) < FEWEST:
        return None
    # The variance of launches, pooled over all runs: unknown, and in s already, of one launch each.
    launch_df = n_a - n + n_b - 1
    squares = sum(statistics.variance(run) * (len(run) - 1) for run in (*logs, new) if run[1:])
    pooled = squares / launch_df if launch_df else 0.0
    weight = statistics.fmean(1 / len(run) for run in logs) / n + 1 / n_b
    between = (1 + 1 / n) * max(0.0, spread.sd**2 - pooled / spread.launches)
    squared = between + pooled * weight
    of_runs = (1 + 1 / n) * spread.sd**2 if between else 0.0
    df = freedom((of_runs, spread.df), (squared - of_runs, launch_df))
    center = statistics.fmean(new) - statistics.fmean(means)
    return Interval(center, math.sqrt(squared), df, n_a, n_b, pairs=False, between=between)


def _finite(logs: Sequence[float]) -> None:
    if len(logs) < 2 or not all(math.isfinite(log) for log in logs):
        raise ValueError(f"an interval takes two launches or more, all numbers, got {list(logs)}")


@dataclass(frozen=True)
class Hypothesis:
    """One figure to judge: a metric of a row."""

    interval: Interval | None
    better: Better
    floor: float = 0.0  # the noise floor, a share of 1


@dataclass(frozen=True)
class Judged:
    """The verdict on one figure; `alpha` to `p_adjusted` are None if nothing was tested."""

    word: Word
    interval: Interval | None
    threshold: float  # from which size an alarm is regressed or improved, with the noise floor
    alpha: float | None = None  # its share by Holm
    level: float | None = None  # what the current look has of `alpha`; `p` is compared with it
    p: float | None = None  # of no change (none beyond the floor), two-sided
    p_adjusted: float | None = None  # proven up to 1 - CONFIDENCE
    # In all (launches per side), to settle it probably if inconclusive; None: not with MOST_ROUNDS.
    rounds_needed: int | None = None
    why: str = ""  # the reason of an inconclusive one, else empty
    weighed: bool = False  # a doubt (comparing/values.py) or the floor made it inconclusive
    settled: bool = False  # more rounds would hardly change it


def judge(
    family: Sequence[Hypothesis], threshold: float = THRESHOLD, fewest: int = FEWEST
) -> tuple[Judged, ...]:
    """Judge figures together, and return their verdicts in order.

    A change is proven where the interval excludes no change, and the noise floor if there is one;
    then its estimate says the word. Holm's step-down keeps the chance of any false proof over all
    of them within 1 - CONFIDENCE. `threshold`: a share of 1."""
    if not 0 <= threshold < 1 or not all(claim.floor >= 0 for claim in family):
        raise ValueError(f"threshold {threshold} or a floor cannot be")
    known = ((n, claim.interval) for n, claim in enumerate(family) if claim.interval is not None)
    tested = {n: interval for n, interval in known if interval.fewest >= fewest}
    p = {n: p_beyond(interval, family[n].floor) for n, interval in tested.items()}
    shares = _holm(tested, p)
    verdicts = []
    for n, claim in enumerate(family):
        if (interval := tested.get(n)) is not None:
            proof = p[n], *shares[n]
            verdicts.append(_judged(claim, interval, threshold, fewest, proof, len(tested)))
            continue
        measured, holds = "not measured in two launches of both sides", max(threshold, claim.floor)
        if (few := claim.interval) is not None:
            measured = launches_text(few.n_a, few.n_b, few.pairs)
        why = f"{measured}: a verdict takes {fewest}"
        verdicts.append(Judged("inconclusive", few, holds, rounds_needed=fewest, why=why))
    return tuple(verdicts)


def _holm(tested: Mapping[int, Interval], p: Mapping[int, float]) -> dict[int, tuple[float, bool]]:
    """Return for each figure its share of alpha, and whether it is proven, by Holm's step-down.

    The smallest p is tested at alpha/m, the next at alpha/(m-1), until one is above the level that
    its look has of that; the others have the share of that one."""
    shares: dict[int, tuple[float, bool]] = {}
    proven, share = True, 0.0
    for step, n in enumerate(sorted(tested, key=lambda claim: p[claim])):
        if proven:
            share = (1 - CONFIDENCE) / (len(tested) - step)
            proven = p[n] <= tested[n].at(1 - share).level
        shares[n] = share, proven
    return shares


def p_beyond(interval: Interval, bound: float) -> float:
    """Return the two-sided p of a true ratio within `bound` (a share of 1; 0: no change), by t."""
    beyond = _beyond(interval, bound)
    if beyond <= ROUNDING:
        return 1.0
    if interval.se == 0:
        return 0.0
    return min(1.0, 2 * float(_special().stdtr(interval.df, -beyond / interval.se)))


def _judged(
    claim: Hypothesis,
    interval: Interval,
    threshold: float,
    fewest: int,
    tested: tuple[float, float, bool],
    figures: int,
) -> Judged:
    """Judge a figure. `tested`: p, the share of alpha, whether the change is proven."""
    p, share, proven = tested
    holds = max(threshold, claim.floor)
    at_share = interval.at(1 - share)
    level = at_share.level
    levels = (holds, share, level, p, min(1.0, (1 - CONFIDENCE) * p / level))
    if proven:
        better = (interval.center > 0) == (claim.better == "higher")
        large = _beyond(interval, holds) >= -ROUNDING
        word: Word = "improved" if better else "regressed"
        if not large:
            word = "faster" if better else "slower"
        beyond = _beyond(interval, CLEAR * threshold)
        clear = beyond > at_share.half if large else _inside(at_share, threshold)
        return Judged(word, interval, *levels, settled=clear)
    if _inside(interval, threshold):
        return Judged("same", interval, *levels, settled=True)
    floored = p_beyond(interval, 0.0) <= level
    needed = rounds_needed(interval, threshold, share, fewest, claim.floor)
    why = _why(interval, threshold, claim.floor if floored else 0.0, level, figures)
    return Judged("inconclusive", interval, *levels, needed, why, weighed=floored)


def _bounds(threshold: float) -> tuple[float, float]:
    """Return 1 - threshold and 1 + threshold as logarithms; from 1 on there is no lower bound."""
    return (math.log(1 - threshold) if threshold < 1 else -math.inf, math.log(1 + threshold))


def _beyond(interval: Interval, threshold: float) -> float:
    """Return how far the centre lies beyond its bound, in logarithms; not above 0 within."""
    low, high = _bounds(threshold)
    return max(low - interval.center, interval.center - high)


def _inside(interval: Interval, threshold: float) -> bool:
    low, high = _bounds(threshold)
    return low <= interval.center - interval.half and interval.center + interval.half <= high


def launches_text(a: int, b: int, pairs: bool) -> str:
    """Render `6 rounds`, of pairs; `3 launches a side`, `3 and 5 launches`."""
    if pairs:
        return counted(a, "round")
    return f"{counted(a, 'launch', 'launches')} a side" if a == b else f"{a} and {b} launches"


def _why(interval: Interval, threshold: float, floor: float, level: float, figures: int) -> str:
    if floor:
        return f"a change is proven, and not one beyond the noise floor of {100 * floor:.3g} %"
    if not interval.low <= 1 <= interval.high:
        asked = f"{100 * (1 - level):.3g} % that Holm's correction asks over {figures} figures"
        return f"a change is proven at {100 * interval.confidence:.3g} %, not at the {asked}"
    low, high = (math.exp(bound) for bound in _bounds(threshold))
    crossed = [bound for bound in (low, 1.0, high) if interval.low <= bound <= interval.high]
    texts = [f"{bound:.4g}" for bound in crossed]
    return f"the interval reaches across {', '.join(texts[:-1])} and {texts[-1]}"


def rounds_needed(
    interval: Interval,
    threshold: float,
    alpha: float = 1 - CONFIDENCE,
    fewest: int = FEWEST,
    floor: float = 0.0,
) -> int | None:
    """Estimate the rounds (launches per side) in all at which an interval would be conclusive.

    With this centre and spread it would just exclude no change (all within the floor), at `alpha`,
    or lie within the threshold. None above MOST_ROUNDS. Further rounds move the centre, so the
    estimate suffices in about half of all cases."""
    low, high = _bounds(threshold)
    rooms = (
        (_beyond(interval, floor), 1 - alpha),
        (min(interval.center - low, high - interval.center), interval.confidence),
    )
    # The number of launches a side with the same error, if the sides have unequal numbers.
    now = 2 / (1 / interval.n_a + 1 / interval.n_b)
    df_each = interval.df / (now - 1)
    for rounds in range(fewest, MOST_ROUNDS + 1):
        se = interval.se * math.sqrt(now / rounds)
        if interval.between:
            within = (interval.se**2 - interval.between) * now / rounds
            se = math.sqrt(within + interval.between)
        df = interval.df if interval.between else df_each * (rounds - 1)
        then = replace(interval, se=se, df=df, n_a=rounds, n_b=rounds)
        if any(then.at(confidence).half < room for room, confidence in rooms if room > 0):
            return rounds
    return None


def quantile(df: float, share: float) -> float:
    """Return the quantile of Student's t distribution at a share (0 to 1).

    Raises BadInput without scipy."""
    return float(_special().stdtrit(df, share))


def _special() -> Any:
    """Import scipy.special, late since that is slow."""
    try:
        from scipy import special
    except ImportError as error:
        raise BadInput(f"intervals need scipy, which cannot be imported: {error}") from None
    return special


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


PLANNED: Final = 0.8
"""The share of alpha that the planned rounds may spend; the rest is for rounds that are added."""

_POINTS: Final = 301


def spent(n: int, planned: int, alpha: float) -> float:
    """Return the error that may be spent up to round `n`.

    It is even over the planned rounds, and never all, so that rounds can always be added."""
    return alpha * (PLANNED * n / planned if n <= planned else 1 - (1 - PLANNED) * planned / n)


def nominal(n: int, planned: int, alpha: float) -> float:
    """Return the two-sided level of a look after round `n`, with a look after each from FEWEST on.

    A run that is judged at all of them errs in at most `alpha` of all cases. `planned`: the rounds
    of the first plan. Raises ValueError where they are below FEWEST, or `n`."""
    if not min(n, planned) >= FEWEST:
        raise ValueError(f"looks begin after round {FEWEST}, not {min(n, planned)}")
    for earlier in range(FEWEST, n):  # each look follows from the one before
        _look(earlier, planned, alpha)
    return _look(n, planned, alpha)[0]


@cache
def _look(n: int, planned: int, alpha: float) -> tuple[float, Any, Any]:
    """Return the level of a look, and where the sum of standard normal steps may be, how likely.

    On a grid, as far as no look up to this one has ended the sum."""
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr

    before, grid, density = 0.0, None, None
    if n > FEWEST:
        before = spent(n - 1, planned, alpha)
        _, grid, density = _look(n - 1, planned, alpha)
    due = spent(n, planned, alpha) - before

    def beyond(bound: float) -> float:
        """Return how likely the walk ends at this look, at |sum| >= bound."""
        if grid is None:
            return float(2 * ndtr(-bound / np.sqrt(n)))
        up, down = ndtr(grid - bound), ndtr(-grid - bound)
        return float(np.trapezoid((up + down) * density, grid))

    bound = brentq(lambda end: beyond(end) - due, 0.0, 12 * np.sqrt(n), xtol=1e-10)
    after = np.linspace(-bound, bound, _POINTS)
    if grid is None:
        likely = np.exp(-(after**2) / (2 * n)) / np.sqrt(2 * np.pi * n)
    else:
        steps = np.exp(-((after[:, None] - grid[None, :]) ** 2) / 2) / np.sqrt(2 * np.pi)
        likely = np.trapezoid(steps * density, grid, axis=1)
    return float(2 * ndtr(-bound / np.sqrt(n))), after, likely
