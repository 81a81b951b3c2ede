"""The growth of a level on simulated series: coverage of its interval, false and missed growths."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from serve_bench.analysis.drift import FEWEST, MOST, drift_of, pool_drifts
from tests.cases import sure

RANGE: Final = 0.1
"""Million requests of a series: 5 minutes at 330 requests/s."""

READINGS: Final = 60
LEAK: Final = 50.0
PROCESSES: Final = 15
"""That are judged beside each other: as many as a Serve with one replica has."""

Noise = Callable[[random.Random, int], list[float]]


def first_order(rho: float) -> Noise:
    """Each value is `rho` times the one before and noise; 1: a random walk."""

    def noise(draw: random.Random, n: int) -> list[float]:
        values = [draw.gauss(0, 1) / math.sqrt(1 - rho * rho) if rho < 1 else 0.0]
        while len(values) < n:
            values.append(rho * values[-1] + draw.gauss(0, 1))
        return values

    return noise


def allocator(draw: random.Random, n: int) -> list[float]:
    """Draw a random walk: now and then a MB more or less."""
    values = [0.0]
    while len(values) < n:
        values.append(values[-1] + (draw.choice((-1, 1)) if draw.random() < 0.3 else 0))
    return values


def saturating(draw: random.Random, n: int) -> list[float]:
    """Draw a warm-up of 10 to 40 MB, done within the first 3 to 30 % of the range (1/e)."""
    tau, size = draw.uniform(0.03, 0.3), draw.uniform(10, 40)
    return [size * (1 - math.exp(-at / n / tau)) + draw.gauss(0, 0.5) for at in range(n)]


def logarithm(draw: random.Random, n: int) -> list[float]:
    """Draw a growth of 9 to 42 MB that becomes slower and never ends."""
    start, size = draw.uniform(0.005, 0.05), draw.uniform(3, 8)
    return [size * math.log(1 + at / n / start) + draw.gauss(0, 0.5) for at in range(n)]


def steps(most: int) -> Noise:
    """One to `most` jumps of 5 to 20 MB, two of three upwards."""

    def noise(draw: random.Random, n: int) -> list[float]:
        signs = (1, 1, -1) if most > 1 else (1, 1, 1)
        several = range(draw.randint(1, most))
        jumps = [(draw.random(), draw.uniform(5, 20) * draw.choice(signs)) for _ in several]
        sums = (sum(size for when, size in jumps if at / n >= when) for at in range(n))
        return [level + draw.gauss(0, 0.3) for level in sums]

    return noise


def sawtooth(draw: random.Random, n: int) -> list[float]:
    """Draw a collector that frees 5 MB every 4 to 20 readings."""
    period, begin = draw.randint(4, 20), draw.random()
    return [5 * ((at / period + begin) % 1) + draw.gauss(0, 0.3) for at in range(n)]


NOISES: Final[Mapping[str, Noise]] = {
    "white": first_order(0.0),
    "first order, 0.5": first_order(0.5),
    "first order, 0.9": first_order(0.9),
    "random walk": first_order(1.0),
    "allocator": allocator,
    "one step up": steps(1),
    "one to three steps": steps(3),
    "sawtooth": sawtooth,
    "warm-up (exponential)": saturating,
    "warm-up (logarithm)": logarithm,
}


def trials(name: str, slope: float, runs: int) -> tuple[float, Counter[str]]:
    """Compute the share of intervals that hold the slope, and the verdicts."""
    draw = random.Random(f"{name}, {slope}")
    held, words = 0, Counter[str]()
    for _ in range(runs):
        noise = NOISES[name](draw, READINGS)
        xs = [RANGE * (at + 1) / READINGS for at in range(READINGS)]
        ys = [100 + slope * x + y for x, y in zip(xs, noise, strict=True)]
        drift = sure(drift_of(xs, ys))
        held += drift.low <= slope <= drift.high
        words[drift.word(LEAK, PROCESSES)] += 1
    return held / runs, words


@pytest.mark.parametrize("name", NOISES)
def test_what_grows_is_told_from_what_does_not(name: str) -> None:
    """At most 5 % of series without a growth, whatever the noise: of 40, three may be."""
    held, words = trials(name, 0.0, 40)
    assert words["grows"] <= 3
    if not name.endswith("(logarithm)"):
        assert held >= 0.85  # 90 % is 36 of 40, with an SD of 2
        held, words = trials(name, 1000.0, 40)  # a kilobyte a request
        assert held >= 0.8 and words["does not grow"] == 0 and words["grows"] >= 36


def line(slope: float, n: int = 60, noise: float = 0.1) -> tuple[list[float], list[float]]:
    draw = random.Random(7)
    xs = [at / n for at in range(n)]
    return xs, [50 + slope * x + draw.gauss(0, noise) for x in xs]


def test_a_warm_up_is_told_apart_from_the_growth_beside_it() -> None:
    xs, ys = line(200.0)
    warm = [y + 30 * (1 - math.exp(-x / 0.05)) for x, y in zip(xs, ys, strict=True)]
    drift, plain = sure(drift_of(xs, warm)), sure(drift_of(xs, ys))
    assert drift.slope == pytest.approx(200, abs=2) and drift.warm_up == pytest.approx(30, abs=1)
    assert plain.warm_up == 0
    drift = sure(drift_of(range(20), [7.0] * 20))
    assert (drift.low, drift.slope, drift.high, drift.word(50)) == (0, 0, 0, "does not grow")
    assert drift.longer(50) is None
    assert drift_of(range(FEWEST - 1), range(FEWEST - 1)) is None  # too few readings
    assert drift_of([1.0] * 20, range(20)) is None  # no requests
    assert drift_of(range(20), [1e308 * (-1) ** at for at in range(20)]) is None  # no finite figure


def test_a_proven_growth_below_the_threshold_does_not_matter() -> None:
    drift = sure(drift_of(*line(20.0)))
    assert drift.low > 0 and drift.word(50) == "does not grow" and drift.word(10) == "grows"
    # The more processes there are, the more a growth has to stand out.
    assert drift.half(20) > drift.half(1) == pytest.approx(drift.high - drift.slope)
    drift = sure(drift_of(*line(0.0, noise=5.0)))
    assert drift.word(1.0) == "too short to say"
    assert (drift.longer(1.0) or 0.0) > (drift.longer(3.0) or 0.0) >= 1.25
    drift = sure(drift_of(*line(9.0, 5 * MOST)))  # a long series is thinned
    assert drift.slope == pytest.approx(9, abs=0.1) and drift.df < MOST
    # Launches are joined by their precision.
    good, bad = sure(drift_of(*line(9.0))), sure(drift_of(*line(30.0, noise=5.0)))
    both = pool_drifts((good, bad))
    assert abs(both.slope - good.slope) < abs(both.slope - bad.slope) / 10
    assert both.error < good.error and pool_drifts([bad]) == bad
