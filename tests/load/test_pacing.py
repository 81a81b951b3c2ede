import statistics
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_bench.core.load_spec import Arrivals, Stage
from serve_bench.load.pacing import due_times, segments
from tests.cases import cases

ENDLESS = Stage(1000.0, 1e9)


def take(n: int, *args: Any, **options: Any) -> list[int]:
    return list(islice(due_times(*args, **options), n))


def test_a_constant_rate_is_a_comb() -> None:
    assert take(4, [ENDLESS]) == [0, 1_000_000, 2_000_000, 3_000_000]
    last = take(100_001, [Stage(3.0, 1e9)])[-1]  # which does not drift
    assert last == pytest.approx(100_000 / 3 * 1e9, abs=10_000)


@given(st.integers(1, 7), st.floats(1, 50_000), st.sampled_from([True, False]))
def test_workers_share_a_constant_rate_without_a_gap(n: int, rate: float, ramp: bool) -> None:
    stages = [Stage(rate, 0.01), Stage(2 * rate, 0.02)]
    whole = list(due_times(stages, ramp=ramp))
    parts = [list(due_times(stages, ramp=ramp, worker=i, workers=n)) for i in range(n)]
    assert sorted(t for part in parts for t in part) == whole


@cases("first, then", (100, 300), (300, 100))
def test_a_ramp_is_linear(first: int, then: int) -> None:
    """1 s at the first rate, then 2 s at 200 requests/s in the mean."""
    times = list(due_times([Stage(first, 1.0), Stage(then, 2.0)], ramp=True))
    assert len(times) == first + 400
    # In the ramp N(t) = first (1 + t) + (then - first) / 4 t^2; the k-th is due when N(t) = k.
    for k in (first, first + 50, first + 150, first + 399):
        t = times[k] / 1e9 - 1
        assert first * (1 + t) + (then - first) / 4 * t * t == pytest.approx(k, abs=1e-3)


def test_poisson_gaps_are_exponential_and_workers_add_up() -> None:
    alone = take(20_000, [ENDLESS], "poisson", seed=3)
    parts = [take(5_000, [ENDLESS], "poisson", worker=i, workers=4) for i in range(4)]
    assert len({tuple(part) for part in parts}) == 4
    until = min(part[-1] for part in parts)
    together = sorted(t for part in parts for t in part if t <= until)
    for times in (together, alone):
        gaps = [b - a for a, b in pairwise(times)]
        assert statistics.fmean(gaps) == pytest.approx(1e6, rel=0.03)
        assert statistics.pstdev(gaps) == pytest.approx(1e6, rel=0.05)
    assert sum(1 for gap in gaps if gap > 1e6) / len(gaps) == pytest.approx(0.3679, abs=0.01)
    assert take(50, [ENDLESS], "poisson", seed=1) == take(50, [ENDLESS], "poisson", seed=1)
    assert take(50, [ENDLESS], "poisson", seed=1) != take(50, [ENDLESS], "poisson", seed=2)
    times = list(due_times([Stage(1000.0, 2.0), Stage(4000.0, 2.0)], "poisson", seed=5))
    early = sum(1 for t in times if t < 2e9)
    assert early == pytest.approx(2000, rel=0.1)
    assert len(times) - early == pytest.approx(8000, rel=0.06)


@settings(max_examples=50)
@given(
    st.lists(st.builds(Stage, st.floats(0.5, 2000), st.floats(0.01, 2)), min_size=1, max_size=4),
    st.sampled_from(["constant", "poisson"]),
    st.booleans(),
)
def test_due_times_never_go_back(stages: list[Stage], arrivals: Arrivals, ramp: bool) -> None:
    times = list(due_times(stages, arrivals, ramp))
    assert times == sorted(times)
    assert all(0 <= t <= sum(s.duration_s for s in stages) * 1e9 + 1 for t in times)
    if arrivals == "constant":
        expected = sum(segment.gain for segment in segments(stages, ramp))
        assert abs(len(times) - expected) <= 1
