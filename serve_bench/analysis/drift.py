"""How a quantity grows: a level, such as memory, with the requests of a process. Pure.

A level y over x (millions of requests) is a + b x, a + b x + c (1 - exp(-x / tau)) where it also
warms up, plus noise that is autocorrelated. The slope b and its interval are of feasible
generalised least squares with noise of first order (Prais and Winsten): the autocorrelation comes
from the residuals of least squares, is corrected for its bias [Tanaka 1984: (2 + 4 rho) / n], and
taken as 1, a random walk, where it is nearer to 1 than n^-1/2, so that the t of the slope holds for
either kind of noise [Perron and Yabu, Estimating deterministic trends with an integrated or
stationary noise component, Journal of Econometrics 151, 2009; Canjels and Watson, Review of
Economics and Statistics 79, 1997]. Student's t has as many degrees of freedom as independent
readings [n (1 - rho) / (1 + rho); Bayley and Hammersley 1946]. tau is on a grid that ends at a
third of the range: a slower warm-up looks like growth. A warm-up is reported where Schwarz's
criterion prefers it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from serve_bench.analysis.ratios import CONFIDENCE, quantile

FEWEST: Final = 12
"""Readings below which no slope is reported: three to four for each parameter."""

MOST: Final = 240
"""The most readings that are fitted, taken at equal distances."""

TAUS: Final = (0.015, 0.025, 0.04, 0.065, 0.1, 0.15, 0.22, 1 / 3)
"""Of a warm-up, as shares of the range."""

SLOW_TAUS: Final = (0.5, 1.0)
"""Of a growth that still slows down at the end of the range."""

LOG_STARTS: Final = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2, 0.5)
"""Of a growth as the logarithm of x, as shares of the range."""

NEAR: Final = (0.8, 0.87, 0.94, 1.0, 1.07, 1.15, 1.25)  # around the best of TAUS

UNIT_ROOT: Final = {False: 26.0, True: 45.0}
"""n (1 - rho) of residuals that a random walk has with 97.5 % at most."""

LEAST_DF: Final = 2.0  # degrees of freedom

DriftWord: TypeAlias = Literal["grows", "does not grow", "too short to say"]


@dataclass(frozen=True)
class LevelDrift:
    """The slope of a level with its 95 % interval, in the unit of y for each unit of x."""

    slope: float
    error: float  # standard error of the slope
    df: float  # degrees of freedom of `error`
    rho: float  # autocorrelation of neighbouring readings
    warm_up: float = 0.0  # growth beside that before it levelled off, 0 where nothing shows it
    slows: bool = False  # the growth becomes slower up to the end: it may level off

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.slope - self.half()

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.slope + self.half()

    def half(self, series: int = 1) -> float:
        """Return half of the interval that holds for so many series at once [Bonferroni]."""
        return quantile(self.df, 1 - (1 - CONFIDENCE) / 2 / series) * self.error

    def word(self, threshold: float, series: int = 1) -> DriftWord:
        """Judge the slope by the threshold that matters, on one of so many series.

        The more there are, the more a growth has to stand out. One that is proven and below the
        threshold does not matter."""
        if self.slope >= threshold and not self.slows and self.slope > self.half(series):
            return "grows"
        return "does not grow" if self.high < threshold else "too short to say"

    def longer(self, threshold: float, series: int = 1) -> float | None:
        """Return how many times as long the series has to be for a verdict; None where it has one.

        If slope and noise stay as they are: the error falls with the length to the power 1.5, that
        of a random walk to the power 0.5."""
        if self.word(threshold, series) != "too short to say":
            return None
        grows = self.slope >= threshold
        half = self.half(series) if grows else self.high - self.slope
        room = self.slope if grows else threshold - self.slope
        power = 0.5 if self.rho == 1 else 1.5
        return max(1.25, (half / max(room, 0.05 * half)) ** (1 / power)) if half > 0 else 1.25


def drift_of(xs: Sequence[float], ys: Sequence[float]) -> LevelDrift | None:
    """Fit the slope of a series in the order of x.

    None for fewer than FEWEST readings, where x does not grow, and for levels beyond all bounds.
    Raises BadInput without scipy."""
    import numpy as np

    if len(xs) < FEWEST or xs[-1] <= xs[0]:
        return None
    if len(xs) > MOST:
        kept = [round(number * (len(xs) - 1) / (MOST - 1)) for number in range(MOST)]
        xs, ys = [xs[number] for number in kept], [ys[number] for number in kept]
    n, span = len(xs), xs[-1] - xs[0]
    if max(ys) == min(ys):
        return LevelDrift(0.0, 0.0, float(n), 0.0)
    us, levels = (np.array(xs) - xs[0]) / span, np.array(ys, float)
    straight = [np.ones(n), us]

    def best_tau(taus: Iterable[float], rho: float) -> float:
        return min(taus, key=lambda tau: _squares([*straight, _warming(us, tau)], levels, rho))

    with np.errstate(all="ignore"):
        rho = _rho([*straight, _warming(us, best_tau(TAUS, 0.0))], levels)
        coarse = best_tau(TAUS, rho)
        tau = best_tau([coarse * factor for factor in NEAR], rho)
        bent = [*straight, _warming(us, tau)]
        warms = _better(straight, bent, levels, rho)
        # With how a warm-up changes with tau, the slope has the error of tau too [Gauss, Newton].
        columns = [*bent, us / tau * np.exp(-us / tau)] if warms else straight
        rho = rho if warms else _rho(straight, levels)
        beta, errors = _fit(columns, levels, rho)
        slows = _slows(columns, us, levels, rho)
    k = len(columns)
    free = (n - k) if rho == 1 else n * (1 - rho) / (1 + rho) - k
    df = max(LEAST_DF, min(free, n - k))
    warm_up = beta[2] if warms else 0.0
    drift = LevelDrift(beta[1] / span, errors[1] / span, df, rho, warm_up, slows)
    return drift if math.isfinite(drift.low) and math.isfinite(drift.high) else None


def _slows(columns: Sequence[Any], us: Any, ys: Any, rho: float) -> bool:
    """Return whether the growth becomes slower up to the end.

    It bends further than the fit does, or is as well a logarithm without any steady growth."""
    import numpy as np

    for tau in SLOW_TAUS:
        slower = [*columns, _warming(us, tau)]
        if _better(columns, slower, ys, rho) and _fit(slower, ys, rho)[0][-1] > 0:
            return True
    for start in LOG_STARTS:
        alone = [columns[0], np.log1p(us / start)]
        as_well = not _better(alone, columns, ys, rho)
        if len(columns) == 2:
            as_well = _squares(alone, ys, rho) < _squares(columns, ys, rho) / 2
        if as_well and _fit(alone, ys, rho)[0][-1] > 0:
            return True
    return False


def pool_drifts(drifts: Sequence[LevelDrift]) -> LevelDrift:
    """Pool the slopes of launches of one thing (one at least) by the inverse of their variances.

    Degrees of freedom add up. The warm-up is that of the first."""
    if len(drifts) == 1 or any(drift.error <= 0 for drift in drifts):
        return min(drifts, key=lambda drift: drift.error)
    weights = [1 / max(drift.error**2, 1e-300) for drift in drifts]
    slope = sum(w * drift.slope for w, drift in zip(weights, drifts, strict=True)) / sum(weights)
    return replace(
        drifts[0],
        slope=slope,
        error=sum(weights) ** -0.5,
        df=sum(drift.df for drift in drifts),
        rho=max(drift.rho for drift in drifts),
        slows=any(drift.slows for drift in drifts),
    )


def _warming(us: Any, tau: float) -> Any:
    """Return the column of a warm-up."""
    import numpy as np

    return 1 - np.exp(-us / tau)


def _better(columns: Sequence[Any], more: Sequence[Any], ys: Any, rho: float) -> bool:
    """Return whether Schwarz's criterion prefers the fit of `more` columns."""
    m = len(ys) - (rho == 1)
    left, least = _squares(columns, ys, rho), _squares(more, ys, rho)
    extra = len(more) - len(columns) + 1
    return left > 0 and (least <= 0 or m * math.log(left / least) > extra * math.log(m))


def _solved(columns: Sequence[Any], ys: Any, rho: float) -> tuple[Any, Any, float]:
    """Return coefficients, the inverse of X'X, and the sum of squares, without autocorrelation.

    A random walk has one reading fewer without it, and its constant is not known."""
    import numpy as np

    def whitened(values: Any) -> Any:
        rest = values[1:] - rho * values[:-1]
        return rest if rho == 1 else np.concatenate(([math.sqrt(1 - rho**2) * values[0]], rest))

    rows = np.array([whitened(column) for column in columns[rho == 1 :]])
    target = whitened(ys)
    inverse = np.linalg.pinv(rows @ rows.T, hermitian=True)
    beta = inverse @ (rows @ target)
    rests = target - beta @ rows
    return beta, inverse, float(rests @ rests)


def _squares(columns: Sequence[Any], ys: Any, rho: float) -> float:
    return _solved(columns, ys, rho)[2]


def _fit(columns: Sequence[Any], ys: Any, rho: float) -> tuple[list[float], list[float]]:
    """Return the coefficients with their standard errors; the constant of a random walk is 0."""
    import numpy as np

    beta, inverse, left = _solved(columns, ys, rho)
    variance = left / max(1, len(ys) - (rho == 1) - len(beta))
    errors = np.sqrt(np.maximum(0.0, variance * np.diag(inverse)))
    first = [0.0] * (rho == 1)
    return [*first, *beta.tolist()], [*first, *errors.tolist()]


def _rho(columns: Sequence[Any], ys: Any) -> float:
    """Estimate the bias-corrected autocorrelation of readings around a fit; 1 if it may be 1."""
    beta, _, _ = _solved(columns, ys, 0.0)
    rests = ys - sum(b * column for b, column in zip(beta, columns, strict=True))
    n, squares = len(rests), float(rests[:-1] @ rests[:-1])
    if squares <= 0:
        return 0.0
    rho = float(rests[:-1] @ rests[1:]) / squares
    if rho > 1 - UNIT_ROOT[len(columns) > 2] / n:
        return 1.0
    return max(0.0, rho + (2 + 4 * rho) / n)


# How a quantity grows with a size, such as the number of replicas: a power of it.

FEWEST_SIZES: Final = 3
"""Sizes below which no exponent is fitted: two parameters and one residual."""


class PowerFit(NamedTuple):
    """y = factor n^exponent, with the 95 % interval of the exponent and its standard error."""

    exponent: float
    low: float
    high: float
    std_error: float
    factor: float


def fit_power(points: Sequence[tuple[int, float]]) -> PowerFit | None:
    """Fit a power to (n, y), a point for each size; None if too few sizes have a positive value.

    The interval is that of Student's t and takes the residuals as chance: where a quantity bends,
    it says little."""
    usable = [(math.log(n), math.log(value)) for n, value in points if n > 0 and value > 0]
    xs, ys = [x for x, _ in usable], [y for _, y in usable]
    if len({*xs}) < FEWEST_SIZES:
        return None
    slope, offset = statistics.linear_regression(xs, ys)
    residuals = sum((y - offset - slope * x) ** 2 for x, y in usable)
    degrees = len(usable) - 2
    error = math.sqrt(residuals / degrees / (statistics.pvariance(xs) * len(xs)))
    half = quantile(degrees, 0.975) * error
    return PowerFit(slope, slope - half, slope + half, error, math.exp(offset))
