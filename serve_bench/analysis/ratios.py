"""The statistics of A against B: intervals of a ratio, and what they say in one of four words.

Pure. Rule: it computes with logarithms, since ratios of 2 and 1/2 are equally far from 1, and
launches are the only unit of repetition: a window or a slice is no sample. Formulas and their
sources are in docs/ab.md; analysis/comparing/values.py takes the values from records.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from serve_bench.core.errors import BadInput
from serve_bench.core.result import Better

Word: TypeAlias = Literal["regressed", "improved", "same", "inconclusive"]

CONFIDENCE: Final = 0.95
THRESHOLD: Final = 0.05
"""Default threshold: a smaller change counts as the same."""

FEWEST: Final = 3
"""Launches a side for a verdict: with two, the 95 % interval is 12.7 standard errors wide on either
side, and their standard deviation means next to nothing."""

MOST_ROUNDS: Final = 200
"""The largest number of rounds to suggest. Beyond, the ratio lies at the threshold itself, or the
noise is too large."""


ROUNDING: Final = 1e-12
"""Logarithms that differ by less are equal: 475/500 lies at a threshold of 5 %, not beyond it."""


@dataclass(frozen=True)
class Interval:
    """The ratio B/A with a t interval on its logarithm.

    `center`: mean log ratio; `se` its standard error; `df` degrees of freedom (of Welch not whole).
    `n_a`, `n_b`: launches a side; of `pairs` both are the number of rounds.
    """

    center: float
    se: float
    df: float
    n_a: int
    n_b: int
    pairs: bool = True
    confidence: float = CONFIDENCE

    @property
    def ratio(self) -> float:
        """B/A: the geometric mean over rounds, or the ratio of the geometric means."""
        return math.exp(self.center)

    @property
    def half(self) -> float:
        """Half the width, in logarithms."""
        return quantile(self.df, 0.5 + self.confidence / 2) * self.se if self.se else 0.0

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
        """Launches of the side with fewer."""
        return min(self.n_a, self.n_b)

    @property
    def distance(self) -> float:
        """|ratio - 1| of the end that is farther from 1: the noise floor, of A against itself."""
        return max(abs(self.low - 1), abs(self.high - 1))

    def at(self, confidence: float) -> Interval:
        """The interval at another confidence (a share)."""
        return replace(self, confidence=confidence)


def paired(logs: Sequence[float]) -> Interval:
    """From log(B/A) of each round. ValueError on fewer than two, and on nan or infinity."""
    _finite(logs)
    n = len(logs)
    se = statistics.stdev(logs) / math.sqrt(n)
    return Interval(statistics.fmean(logs), se, n - 1, n, n)


def unpaired(a_values: Sequence[float], b_values: Sequence[float]) -> Interval:
    """From the values of independent launches, two or more a side (Welch).

    ValueError on fewer, and on a value that is not above 0.
    """
    for value in (*a_values, *b_values):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"a ratio is made of values above 0, got {value}")
    a, b = [math.log(value) for value in a_values], [math.log(value) for value in b_values]
    _finite(a)
    _finite(b)
    of_a, of_b = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    squared = of_a + of_b
    df = float(len(a) + len(b) - 2)
    if squared > 0:  # Welch-Satterthwaite, by shares: squares of tiny variances would vanish
        share = of_a / squared
        df = 1 / (share**2 / (len(a) - 1) + (1 - share) ** 2 / (len(b) - 1))
    center = statistics.fmean(b) - statistics.fmean(a)
    return Interval(center, math.sqrt(squared), df, len(a), len(b), pairs=False)


def _finite(logs: Sequence[float]) -> None:
    if len(logs) < 2:
        raise ValueError(f"an interval takes two launches or more, got {len(logs)}")
    if not all(math.isfinite(one) for one in logs):
        raise ValueError(f"logarithms of ratios must be numbers, got {list(logs)}")


# -------------------------------------------------------------------------------- the verdict


@dataclass(frozen=True)
class Judged:
    """The verdict on one cell and metric.

    `threshold`: the bound of an alarm, with the noise floor. `p`: of the alarm, two-sided, 1 if the
    ratio is within the threshold; `p_adjusted`: by Holm over the cells, an alarm up to
    1 - confidence; `alpha`: the level for `p` itself. None if nothing was tested.
    `rounds_needed`: rounds (launches a side) in all that would probably settle it; None if it is
    settled, or would not be with MOST_ROUNDS. `why`: the reason of an inconclusive one, else empty.
    """

    word: Word
    interval: Interval | None
    threshold: float
    alpha: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    rounds_needed: int | None = None
    why: str = ""
    weighed: bool = False  # a doubt (comparing/values.py) or the floor made it inconclusive


def judge(
    intervals: Sequence[Interval | None],
    better: Better,
    threshold: float = THRESHOLD,
    floor: float = 0.0,
    fewest: int = FEWEST,
) -> tuple[Judged, ...]:
    """The verdicts on all cells of one metric, in order; an interval may be missing (None).

    `threshold` and `floor` (the noise floor) are shares of 1. An alarm lies beyond both; "same" is
    within the threshold, whatever the noise. Holm's step-down keeps the chance of any false alarm
    over all cells within 1 - CONFIDENCE.
    """
    if not 0 <= threshold < 1 or not floor >= 0:
        raise ValueError(f"threshold {threshold} or floor {floor} cannot be")
    holds = max(threshold, floor)
    tested = {
        at: _alarm_p(one, holds)
        for at, one in enumerate(intervals)
        if one is not None and one.fewest >= fewest
    }
    levels = _holm(tested)
    return tuple(
        _judged(one, better, (threshold, holds), fewest, levels[at], len(tested))
        if at in levels and one is not None
        else Judged("inconclusive", one, holds, rounds_needed=fewest, why=_too_few(one, fewest))
        for at, one in enumerate(intervals)
    )


@dataclass(frozen=True)
class _Level:
    """The result of Holm's correction for one cell."""

    p: float
    adjusted: float
    alpha: float
    alarm: bool


def _holm(tested: dict[int, float]) -> dict[int, _Level]:
    """Step-down: the smallest p against alpha/m, the next against alpha/(m-1), until one fails;
    the rest is held against the level of that one."""
    m = len(tested)
    levels: dict[int, _Level] = {}
    adjusted, alarms, level = 0.0, True, 0.0
    for step, at in enumerate(sorted(tested, key=lambda one: tested[one])):
        p = tested[at]
        if alarms:
            level = (1 - CONFIDENCE) / (m - step)
            alarms = p <= level
        adjusted = max(adjusted, min(1.0, (m - step) * p))
        levels[at] = _Level(p, adjusted, level, alarms)
    return levels


def _alarm_p(interval: Interval, threshold: float) -> float:
    """Two-sided p of a true ratio within the bound on the interval's side."""
    beyond = _beyond(interval, threshold)
    if beyond <= ROUNDING:
        return 1.0
    if interval.se == 0:
        return 0.0
    return min(1.0, 2 * float(_special().stdtr(interval.df, -beyond / interval.se)))


def _judged(
    interval: Interval,
    better: Better,
    bounds: tuple[float, float],
    fewest: int,
    level: _Level,
    cells: int,
) -> Judged:
    """`bounds`: the threshold of "same", and that of an alarm."""
    threshold, holds = bounds
    levels = (holds, level.alpha, level.p, level.adjusted)
    if level.alarm:
        up = interval.center > 0
        return Judged("improved" if up == (better == "higher") else "regressed", interval, *levels)
    if _inside(interval, threshold):
        return Judged("same", interval, *levels)
    floored = _beyond(interval, threshold) > 0 >= _beyond(interval, holds)
    needed = None  # more rounds do not lift a ratio out of the floor
    if not floored:
        within = _beyond(interval, threshold) <= 0
        needed = rounds_needed(interval, threshold if within else holds, level.alpha, fewest)
    why = _why(interval, bounds, level, cells)
    return Judged("inconclusive", interval, *levels, needed, why, weighed=floored)


def _bounds(threshold: float) -> tuple[float, float]:
    """1 - threshold and 1 + threshold as logarithms; a floor of 1 or more has no lower bound."""
    return (math.log(1 - threshold) if threshold < 1 else -math.inf, math.log(1 + threshold))


def _beyond(interval: Interval, threshold: float) -> float:
    """How far the centre lies beyond the bound on its side, in logarithms; not above 0 within."""
    low, high = _bounds(threshold)
    return max(low - interval.center, interval.center - high)


def _inside(interval: Interval, threshold: float) -> bool:
    low, high = _bounds(threshold)
    return low <= interval.center - interval.half and interval.center + interval.half <= high


def _too_few(interval: Interval | None, fewest: int) -> str:
    if interval is None:
        return "no interval: not measured in two launches of both sides"
    each = f"{interval.n_a} {'rounds' if interval.pairs else 'launches a side'}"
    if interval.n_a != interval.n_b:
        each = f"{interval.n_a} and {interval.n_b} launches"
    return f"{each}: a verdict takes {fewest}"


def _why(interval: Interval, bounds: tuple[float, float], level: _Level, cells: int) -> str:
    threshold, holds = bounds
    floored = holds > threshold and (interval.high < 1 - threshold or interval.low > 1 + threshold)
    low, high = (math.exp(one) for one in _bounds(holds))
    if floored and low <= interval.high and interval.low <= high:
        return (
            f"beyond the threshold of {100 * threshold:.3g} %, and not beyond the noise floor of "
            f"{100 * holds:.3g} %"
        )
    low, high = (math.exp(one) for one in _bounds(holds if floored else threshold))
    if interval.high < low or interval.low > high:
        return (
            f"beyond the threshold at 95 %, not at the {100 * (1 - level.alpha):.3g} % that Holm's "
            f"correction asks over {cells} cells"
        )
    crossed = [one for one in (low, high) if interval.low <= one <= interval.high]
    return f"the interval reaches across {' and '.join(f'{one:.4g}' for one in crossed)}"


def rounds_needed(
    interval: Interval, threshold: float, alpha: float = 1 - CONFIDENCE, fewest: int = FEWEST
) -> int | None:
    """Rounds (launches a side) in all at which an interval of this centre and spread would just lie
    beyond the threshold, at `alpha`, or within it. None above MOST_ROUNDS.

    An estimate: further rounds move the centre, so it suffices in about half of all cases.
    """
    low, high = _bounds(threshold)
    within = low < interval.center < high
    room = min(abs(interval.center - low), abs(high - interval.center))
    level = CONFIDENCE if within else 1 - alpha
    # The number of launches a side with the same error, if the sides have unequal numbers.
    now = 2 / (1 / interval.n_a + 1 / interval.n_b)
    df_each = interval.df / (now - 1)
    for rounds in range(fewest, MOST_ROUNDS + 1):
        se = interval.se * math.sqrt(now / rounds)
        if quantile(df_each * (rounds - 1), 0.5 + level / 2) * se < room:
            return rounds
    return None


def quantile(df: float, share: float) -> float:
    """The quantile of Student's t distribution at a share (0 to 1).

    Raises BadInput without scipy.
    """
    return float(_special().stdtrit(df, share))


def _special() -> Any:
    """scipy.special, imported late since that is slow."""
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
