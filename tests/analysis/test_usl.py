"""The Universal Scalability Law: known curves come back, intervals hold them, other shapes do not
predict."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from serve_bench.analysis.usl import RANGE, REACH, UslCurve, UslFit, UslPoint, fit_usl

STEPS = (1, 2, 4, 8, 16, 32, 64)


def law(rate: float, sigma: float, kappa: float) -> UslCurve:
    """The curve with these parameters."""
    return UslCurve((1 - sigma) / rate, sigma / rate, kappa / rate)


def exact(curve: UslCurve, steps: tuple[int, ...] = STEPS) -> UslFit:
    return fit_usl([UslPoint(n, curve.at(n), 0.01, 2) for n in steps], "users")


def test_the_law_in_its_published_form() -> None:
    rate, sigma, kappa, n = 100.0, 0.05, 0.001, 20
    published = rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
    curve = law(rate, sigma, kappa)
    assert curve.at(n) == pytest.approx(published)
    assert (curve.one, curve.sigma, curve.kappa) == pytest.approx((rate, sigma, kappa))
    assert curve.peak == pytest.approx(math.sqrt((1 - sigma) / kappa))
    beside = max(curve.at(curve.peak - 0.5), curve.at(curve.peak + 0.5))
    assert curve.peak_rate == curve.at(curve.peak) > beside


@pytest.mark.parametrize(
    ("sigma", "kappa"), [(0.05, 0.001), (0.3, 0.0), (0.0, 0.0004), (0.0, 0.0), (1.0, 0.0)]
)
def test_points_on_a_curve_give_that_curve(sigma: float, kappa: float) -> None:
    fit = exact(law(100, sigma, kappa))
    assert fit.holds
    assert fit.curve is not None
    assert fit.curve.one == pytest.approx(100, rel=1e-6)
    assert fit.curve.sigma == pytest.approx(sigma, abs=1e-7)
    assert fit.curve.kappa == pytest.approx(kappa, abs=1e-8)


@pytest.mark.parametrize(
    ("sigma", "kappa", "launches"), [(0.05, 0.001, 1), (0.05, 0.001, 3), (0.2, 0.0005, 3)]
)
def test_intervals_hold_the_truth(sigma: float, kappa: float, launches: int) -> None:
    """In 100 runs with an error of 3 % for each point, known from three launches or not at all."""
    truth, chance, noise = law(100, sigma, kappa), random.Random(3), 0.03
    of: dict[str, tuple[Callable[[UslFit], tuple[float, float]], float]] = {
        "sigma": (lambda fit: (fit.sigma.low, fit.sigma.high), sigma),
        "kappa": (lambda fit: (fit.kappa.low, fit.kappa.high), kappa),
        "peak": (lambda fit: (fit.peak.low, fit.peak.high), truth.peak),
        "peak rate": (lambda fit: (fit.peak_rate.low, fit.peak_rate.high), truth.peak_rate),
        "beyond": (lambda fit: (fit.at(128).low, fit.at(128).high), truth.at(128)),
    }
    held = dict.fromkeys(of, 0)
    wide = 0
    for _ in range(100):
        points = []
        for n in STEPS:
            drawn = [1 + noise * math.sqrt(launches) * chance.gauss(0, 1) for _ in range(launches)]
            mean = sum(drawn) / launches
            squares = sum((one - mean) ** 2 for one in drawn)
            error = math.sqrt(squares / max(1, launches - 1) / launches) / mean
            points.append(UslPoint(n, truth.at(n) * mean, error, launches - 1))
        fit = fit_usl(points, "users")
        for name, (ends, value) in of.items():
            low, high = ends(fit)
            held[name] += low <= value <= high
        wide += fit.peak_rate.high > 1.5 * fit.peak_rate.low
    assert min(held.values()) >= 90, held
    assert wide <= 10  # an interval that holds everything would be no use


def test_the_same_points_give_the_same_interval() -> None:
    points = [UslPoint(n, law(100, 0.05, 0.001).at(n) * (1 + 0.02 * (-1) ** n)) for n in STEPS]
    assert fit_usl(points, "users") == fit_usl(points[::-1], "users")
    assert fit_usl(points, "users").peak != fit_usl(points, "users", seed=2).peak


def test_a_larger_error_makes_a_wider_interval() -> None:
    curve = law(100, 0.05, 0.001)
    fits = [fit_usl([UslPoint(n, curve.at(n), e, 2) for n in STEPS], "users") for e in (0.02, 0.06)]
    narrow, wide = (fit.peak_rate.high - fit.peak_rate.low for fit in fits)
    assert wide > 2 * narrow


def test_the_text_of_a_peak_and_of_none() -> None:
    peak = exact(law(100, 0.05, 0.001))
    assert peak.text.startswith("prediction (USL): at most 904 requests/s at 31 users (95 %: ")
    grows = fit_usl(
        [UslPoint(n, law(100, 0.02, 0).at(n), 0.01, 2) for n in (1, 2, 4, 8)], "replicas"
    )
    assert grows.reach == REACH * 8
    assert grows.text.startswith("prediction (USL): 1,230 requests/s at 16 replicas (95 %: ")
    assert grows.text.endswith("; no peak up to there")
    assert grows.peak.value == math.inf


def test_a_plateau_has_no_place_for_its_peak() -> None:
    flat = [UslPoint(n, 1000.0, 0.02, 2) for n in (10, 20, 50, 100)]
    text = fit_usl(flat, "users").text
    assert text.startswith("prediction (USL): ")
    assert "1,000 requests/s" in text
    early = [UslPoint(n, min(990.0 + n, 1010), 0.02, 2) for n in (10, 20, 50, 100, 200)]
    assert fit_usl(early, "users").text.endswith("; with how many users is not known")


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        # A server that is full from 8 users on: linear, then flat.
        (
            [min(100.0 * n, 800.0) for n in STEPS],
            "the model does not hold: at 8 users it is 22 % off",
        ),
        # A step up in the middle: a second machine.
        ([100.0, 180.0, 300.0, 310.0, 1200.0, 1250.0, 1300.0], "the model does not hold: at 8 "),
        ([100, 200, 390, 700, 40, 20, 10], "the model does not hold: the rate collapses at 16"),
    ],
)
def test_what_is_no_such_curve_predicts_nothing(rates: list[float], why: str) -> None:
    points = [UslPoint(n, rate, 0.01, 2) for n, rate in zip(STEPS, rates, strict=True)]
    fit = fit_usl(points, "users")
    assert not fit.holds
    assert fit.why_not.startswith(why)
    assert fit.text == f"no prediction (USL): {fit.why_not}"


def test_a_residual_within_its_error_is_no_reason() -> None:
    curve = law(100, 0.05, 0.001)
    rates = [curve.at(n) * (1.15 if n == 8 else 1) for n in STEPS]
    sure = fit_usl([UslPoint(n, r, 0.01, 2) for n, r in zip(STEPS, rates, strict=True)], "users")
    unsure = fit_usl([UslPoint(n, r, 0.1, 2) for n, r in zip(STEPS, rates, strict=True)], "users")
    assert not sure.holds
    assert sure.farthest is not None
    assert sure.farthest[0] == 8
    assert sure.farthest[1] < -0.05  # the curve is below what was measured
    assert unsure.holds


def test_a_steep_fall_behind_an_early_peak_is_within_the_law() -> None:
    fit = exact(law(100, 0.0, 0.5), (1, 2, 3, 4, 5, 6))
    assert fit.holds
    assert fit.peak.value == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((1, 2, 4), "3 numbers of users, 4 are needed"),
        ((), "0 numbers of users, 4 are needed"),
        ((10, 12, 20, 30), f"from 10 to 30 users, {RANGE:g} times as many are needed"),
    ],
)
def test_too_few_points(steps: tuple[int, ...], why: str) -> None:
    fit = exact(law(100, 0.05, 0.001), steps)
    assert (fit.curve, fit.holds, fit.why_not) == (None, False, why)
    with pytest.raises(ValueError, match="no fit"):
        fit.at(8)


def test_a_step_that_served_nothing_is_left_out() -> None:
    curve = law(100, 0.05, 0.001)
    points = [UslPoint(n, curve.at(n), 0.01, 2) for n in STEPS]
    assert fit_usl([*points, UslPoint(128, 0.0)], "users") == fit_usl(points, "users")
