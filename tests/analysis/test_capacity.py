import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from serve_bench.analysis.capacity.boundary import (
    BLOCK_S,
    CORRELATIONS,
    fit_boundary,
    measure_correlation_s,
)
from serve_bench.analysis.capacity.estimate import (
    compare_capacities,
    estimate_launch,
    find_bracket,
    find_ceiling,
    is_enough,
    pool_launches,
    pool_levels,
    select_fresh,
)
from serve_bench.analysis.capacity.model import Ask, Bound, LaunchEstimate, Probe
from serve_bench.analysis.capacity.search import ATTEMPTS, BUDGET_S, LONGEST_S, RateSearch
from serve_bench.core.facts import SliceCounts
from tests.capacity_servers import SERVERS, Launch, Server
from tests.cases import cases, sure

P99 = Bound("p99", 0.01)
ERRORS = Bound("errors", 0.01)

Value = Callable[[float], float]
"""What a bound limits, at a rate."""


def probe(
    rate: float,
    seconds: float = 15.0,
    began_s: float = 0.0,
    bounds: tuple[Bound, ...] = (P99,),
    **values: float,
) -> Probe:
    """Make a probe of an even load, with the same counts in each slice; of bounds their values."""
    slices = max(1, round(seconds / 0.5))
    bads = {bound.name: values.get(bound.name, 0.0) * rate / 2 for bound in bounds}
    of = (rate / 2,) * slices
    counts = {name: SliceCounts(of, (bad,) * slices) for name, bad in bads.items()}
    return Probe(rate, 0.5, counts, began_s)


def searched(
    search: RateSearch,
    values: dict[str, Value],
    bounds: tuple[Bound, ...] = (P99,),
    most: float = math.inf,
) -> list[Ask]:
    """Search to the end on a service with these values; the client sends `most` at most."""
    asks: list[Ask] = []
    now = 0.0
    while (step := search.next()) is not None:
        assert len(asks) < 100
        asks.append(step)
        share = {name: of(step.rate) for name, of in values.items()}
        made = probe(step.rate, step.seconds, now, bounds, **share)
        search.add(replace(made, client_bound=step.rate > most))
        now += step.seconds + 1
    return asks


def power(place: float, slope: float, most: float = 0.01) -> Value:
    """Build a law that grows with the power `slope` of the rate, and is `most` at `place`."""
    return lambda rate: min(1.0, most * (rate / place) ** slope)


def server(name: str) -> Server:
    return next(model for model in SERVERS if model.name == name)


def on(live: Launch, of: Server, start: float | None = None) -> LaunchEstimate:
    search = RateSearch(of.bounds, start=start)
    while (step := search.next()) is not None:
        search.add(live.probe(step.rate, step.seconds))
    return estimate_launch(search.probes, of.bounds)


def found_of(
    values: dict[str, Value], *bounds: Bound, start: float | None = 300.0, most: float = math.inf
) -> tuple[LaunchEstimate, list[Ask], RateSearch]:
    limits = bounds or (P99,)
    search = RateSearch(limits, start=start)
    asks = searched(search, values, limits, most)
    return estimate_launch(search.probes, limits), asks, search


@cases("slope", 3.0, 15.0, 40.0)
def test_it_finds_the_place_of_a_service_without_noise(slope: float) -> None:
    found, asks, _ = found_of({"p99": power(640.0, slope)}, start=None)
    assert found.rate == pytest.approx(640, rel=0.005)
    assert found.slope == pytest.approx(slope, rel=0.25)
    assert found.binds == "p99" and not found.cliff and not found.drift and not found.doubts
    assert asks[:2] == [Ask(10.0, 3.0), Ask(20.0, 3.0)]
    assert sum(ask.seconds for ask in asks) <= BUDGET_S
    # Overload is short, and the boundary is long.
    _, asks, _ = found_of({"p99": power(640.0, 15.0)}, start=1200.0)
    assert max(ask.seconds for ask in asks if ask.rate > 1.2 * 640) <= 5
    sides = [ask.rate > 640 for ask in asks if ask.seconds >= 10]
    assert len(sides) >= 4 and abs(sum(sides) - len(sides) / 2) <= 1


def test_a_cliff_is_bisected_until_it_is_narrow() -> None:
    found, _, _ = found_of({"p99": lambda rate: 0.5 if rate > 777 else 0.0})
    assert found.cliff and found.slope is None and found.binds == "p99"
    low, high, capacity = sure(found.low), sure(found.high), pool_launches([found] * 3)
    assert low <= 777 < high <= low * math.exp(0.05 / 4) * 1.001
    assert low < (found.rate or 0) < high
    assert sure(capacity.low) <= low and high <= sure(capacity.high) and capacity.precise
    # Of no error at all one is enough.
    none = Bound("errors", 0.0)
    found, _, _ = found_of({"errors": lambda rate: 0.1 if rate > 500 else 0.0}, none)
    assert found.cliff and sure(found.low) <= 500 < sure(found.high) <= 510


def test_ceilings_are_bounds() -> None:
    found, asks, search = found_of({"p99": lambda rate: 0.0}, start=100.0, most=500.0)
    assert (found.ceiling, found.rate, found.high) == ("client", None, None)
    assert found.low is not None and 450 <= found.low <= 500
    first = next(at for at, ask in enumerate(asks) if ask.rate > 500)
    assert asks[first + 1] == asks[first]
    assert find_ceiling(search.probes) is not None
    assert all(ask.rate <= asks[first].rate for ask in asks)
    search = RateSearch([P99], start=100.0)
    search.add(replace(probe(100.0, p99=0.5), client_bound=True))
    assert sure(search.next()).rate == 100.0
    assert estimate_launch(search.probes, [P99]).doubts == ("no probe is sound",)
    searched(search, {"p99": power(640.0, 15.0)})
    assert estimate_launch(search.probes, [P99]).rate == pytest.approx(640, rel=0.01)
    # A floor stops after the lowest rate.
    found, asks, _ = found_of({"p99": lambda rate: 0.9}, start=8.0)
    assert [ask.rate for ask in asks][-2:] == [1.0, 1.0] and len(asks) <= 8
    assert (found.ceiling, found.rate, found.low, found.high) == ("floor", None, None, 1.0)
    assert found.binds == "p99"


def test_a_miss_with_fewer_replicas_is_no_upper_end() -> None:
    """A replica does 40/s; after a miss Serve adds one, up to four: that probe says nothing."""
    search, replicas, changes = RateSearch([P99], start=30.0), 1, False
    while (step := search.next()) is not None:
        share = power(40.0 * replicas, 15.0)(step.rate)
        made = probe(step.rate, step.seconds, p99=0.5 if changes else share)
        search.add(replace(made, replicas=replicas, steady=not changes))
        changes = not changes and share > 0.01 and replicas < 4
        replicas += changes
    found = estimate_launch(search.probes, [P99])
    assert replicas == 4 and not all(probe.steady for probe in search.probes)
    assert found.rate == pytest.approx(160, rel=0.01) and not found.drift


def test_a_broken_off_probe_is_measured_again_and_says_nothing() -> None:
    search = RateSearch([P99], start=100.0)
    search.add(probe(100.0))
    broken = replace(probe(125.0, 3.0, p99=1.0), whole=False)
    search.add(broken)
    assert sure(search.next()).rate == 125.0
    assert estimate_launch(search.probes, [P99]).high is None
    for _ in range(ATTEMPTS - 1):
        search.add(broken)
    assert search.next() is None


def test_the_lowest_of_two_bounds_is_the_capacity_and_a_mean_is_bounded_too() -> None:
    values = {"p99": power(640.0, 15.0), "errors": power(700.0, 15.0)}
    found, _, _ = found_of(values, P99, ERRORS)
    assert found.rate == pytest.approx(640, rel=0.01) and found.binds == "p99"
    assert found.next is not None and found.next[0] == "errors"
    assert found.next[1] == pytest.approx(700, rel=0.03)
    # M/M/1: 1 / (mu - rate) s; 5 ms at 800/s of 1000.
    mean: dict[str, Value] = {"mean": lambda rate: 1e9 / (1000 - rate) if rate < 999 else 1e9}
    found, _, _ = found_of(mean, Bound("mean", 5e6, "mean"))
    assert found.rate == pytest.approx(800, rel=0.01) and found.binds == "mean"
    assert found.slope == pytest.approx(4, rel=0.25)


def test_a_service_that_changes_by_much_is_searched_anew() -> None:
    search, now = RateSearch([P99], start=300.0), 0.0
    while (step := search.next()) is not None:
        value = power(640.0 if now < 40 else 320.0, 15.0)
        search.add(probe(step.rate, step.seconds, now, p99=value(step.rate)))
        now += step.seconds
    found = estimate_launch(search.probes, [P99])
    assert found.rate == pytest.approx(320, rel=0.05) and "changed" in found.drift
    assert len(select_fresh(search.probes, [P99])) < len(search.probes)


def test_an_end_that_one_probe_set_is_measured_again_where_the_newest_deny_it() -> None:
    values = ((600.0, 5.0, 0.002), (640.0, 5.0, 0.06), (610.0, 15.0, 0.002), (612.0, 15.0, 0.002))
    search = RateSearch([P99], start=600.0)
    for rate, seconds, value in values[:3]:
        search.add(probe(rate, seconds, p99=value))
    assert 600 < sure(search.next()).rate < 640
    search.add(probe(*values[3][:2], p99=values[3][2]))
    assert sure(search.next()).rate == 640.0


WOBBLE = (0.9, 1.1, 1.1, 0.9)
"""Factors of the values of probes in turn, so that blocks scatter."""


def test_the_first_seconds_of_a_launch_are_left_out() -> None:
    def probes(early: float) -> list[Probe]:
        return [
            probe(rate, 15.0, 15.0 * at, p99=power(early if at < 2 else 640.0, 15.0)(rate) * factor)
            for at, (rate, factor) in enumerate(zip((620.0, 660.0) * 4, WOBBLE * 2, strict=True))
        ]

    settled, steady = estimate_launch(probes(655.0), [P99]), estimate_launch(probes(640.0), [P99])
    assert settled.rate == pytest.approx(steady.rate, rel=1e-6) and not settled.drift
    assert settled.blocks == 18


def test_the_bias_of_few_bursts_is_taken_off() -> None:
    # At one rate every line goes through the mean, which is the bound: what is below is the bias.
    bad = (0.019, 0.001, 0.001, 0.019) * 2
    probes = [probe(640.0, 15.0, 30 + 16.0 * at, p99=share) for at, share in enumerate(bad)]
    found = sure(fit_boundary(probes, P99, math.log(640)))
    bias = found.slope * sure(found.error) ** 2 / 2
    assert bias > 5e-4 and math.log(640) - found.place == pytest.approx(bias, rel=1e-3)


def test_where_the_error_is_small_what_is_far_bends_nothing() -> None:
    p95 = Bound("p95", 0.05)
    rates = [600 * math.exp(sign * far) for far in (0.1, 0.04) for sign in (-1, 1)]
    probes = [
        probe(rate, 15.0, 30 + 16.0 * at, (p95,), p95=0.05 * 0.4 / (1 - rate / 1000))
        for at, rate in enumerate(rates * 2)
    ]
    found = estimate_launch(probes, [p95])
    assert found.rate == pytest.approx(600, rel=0.004)
    assert found.blocks == 12


def test_a_lower_rate_that_missed_is_pooled_with_a_higher_that_met() -> None:
    probes = [probe(r, 15.0, p99=v) for r, v in ((100, 0.0), (200, 0.03), (300, 0.002), (400, 0.2))]
    levels = pool_levels(probes, [P99])
    assert levels[1].ratio == levels[2].ratio == pytest.approx((3 * 200 + 0.2 * 300) / 500)
    low, high = find_bracket(levels)
    assert low is not None and high is not None and (low.rate, high.rate) == (100, 200)
    longer = [*probes, probe(300.0, 60.0, p99=0.002)]
    low, high = find_bracket(pool_levels(longer, [P99]))
    assert low is not None and high is not None and (low.rate, high.rate) == (300, 400)
    for bad, ratio_ in ((1.0, 1), (2.0, 10)):  # one request of few is no miss
        few = Probe(1.0, 0.5, {"p99": SliceCounts((20.0,), (bad,))})
        assert pool_levels([few], [P99])[0].ratio == pytest.approx(ratio_)


def test_blocks_are_longer_where_slices_depend_on_each_other() -> None:
    draw = random.Random(1)

    def made(rate: float, keep: float, began_s: float) -> Probe:
        level, bad = 0.0, []
        for _ in range(120):
            level = keep * level + draw.gauss(0, math.sqrt(1 - keep**2))
            bad.append(0.01 * rate / 2 * math.exp(15 * math.log(rate / 640) + 0.5 * level))
        return Probe(rate, 0.5, {"p99": SliceCounts((rate / 2,) * 120, tuple(bad))}, began_s)

    def probes(keep: float) -> list[Probe]:
        return [made(r, keep, 70.0 * at) for at, r in enumerate((620.0, 660.0) * 3)]

    alone, chained = probes(0.0), probes(0.9)
    assert measure_correlation_s(alone, P99) == pytest.approx(0.25, abs=0.1)
    # Half a slice times (1 + keep) / (1 - keep) is 4.75 s; probes of 60 s show less of it.
    assert 1.5 < measure_correlation_s(chained, P99) < 6
    free, bound = estimate_launch(alone, [P99]), estimate_launch(chained, [P99])
    assert 0.8 * BLOCK_S < free.block_s < 1.1 * BLOCK_S
    assert bound.block_s > 0.8 * CORRELATIONS * bound.correlation_s
    assert free.blocks > bound.blocks
    assert free.error is not None and bound.error is not None and bound.error > 2 * free.error


def test_a_small_drift_is_said_and_the_old_blocks_are_left_out() -> None:
    probes = [
        probe(rate, 15.0, 16.0 * at, p99=power(640.0 if at < 4 else 600.0, 15.0)(rate) * wobble)
        for at, (rate, wobble) in enumerate(zip((600.0, 630.0) * 6, WOBBLE * 3, strict=True))
    ]
    found = estimate_launch(probes, [P99])
    assert found.rate == pytest.approx(600, rel=0.01)
    assert "fell by about 6" in found.drift and "at 64 s" in found.drift
    assert not estimate_launch(probes[4:], [P99]).drift


@cases(
    "start, place, needs, doubted",
    (2.5, 5.0, "20,000", True),
    (250.0, 500.0, "20,000", False),
    (1.0, None, "3,000", True),  # as a lower bound, by what the client can send
    (1000.0, None, "3,000", False),
)
def test_too_few_requests(start: float, place: float | None, needs: str, doubted: bool) -> None:
    value = power(place, 15.0, 0.001) if place else lambda rate: 0.0
    most, p999 = math.inf if place else 5 * start, Bound("p99.9", 0.001)
    found, asks, _ = found_of({"p99.9": value}, p999, start=start, most=most)
    words = f"p99.9 takes about {needs} requests near the boundary"
    assert any(doubt.startswith(words) for doubt in found.doubts) == doubted
    assert found.ceiling == (None if place else "client")
    assert not place or max(ask.seconds for ask in asks) == LONGEST_S


@pytest.mark.parametrize("of", SERVERS, ids=lambda server: server.name)
def test_a_launch_of_each_server_is_near_its_truth(of: Server) -> None:
    # 4 standard errors: of the launch, what its blocks say, and of launches.
    for seed in (11, 12, 13):
        found = on(of.launch(seed), of, 0.65 * of.truth)
        room = 4 * math.hypot(max(sure(found.error), 0.03), 1.3 * of.spread)
        assert abs(math.log(sure(found.rate) / of.truth)) < room, seed
        assert found.cliff == (of.name == "breaks")
        assert found.binds == ("errors" if of.name in ("bucket", "breaks") else "latency")


def test_the_error_of_a_launch_is_about_the_scatter_of_launches() -> None:
    of = server("M/M/2")
    found = [on(of.launch(seed), of, 0.65 * of.truth) for seed in range(100, 112)]
    logs = [math.log((launch.rate or 0) / of.truth) for launch in found]
    scatter = math.sqrt(sum(log**2 for log in logs) / len(logs))
    error = math.sqrt(sum((launch.error or 0) ** 2 for launch in found) / len(found))
    assert 0.5 < error / scatter < 2  # chi-square of 12: 0.58 to 1.4 in 99 %


def known(rate: float, error: float = 0.01) -> LaunchEstimate:
    return LaunchEstimate(rate, error, 0.98 * rate, 1.02 * rate)


def test_the_interval_over_launches_and_when_they_are_enough() -> None:
    capacity = pool_launches([known(rate) for rate in (100.0, 102.0, 104.0, 106.0)])
    assert capacity.rate == pytest.approx((100 * 102 * 104 * 106) ** 0.25)
    assert capacity.spread == pytest.approx(0.0251, abs=1e-3)
    # t of 3 degrees of freedom at 0.99 is 4.541.
    half, rate = 4.541 * sure(capacity.spread) / 2, sure(capacity.rate)
    ends = (rate * math.exp(-half), rate * math.exp(half))
    assert (capacity.low, capacity.high) == pytest.approx(ends, rel=1e-4)
    assert not capacity.precise
    alike = pool_launches([known(100.0, 0.02)] * 4)  # by luck, which makes it no narrower
    assert alike.spread == 0
    assert alike.width == pytest.approx(2 * math.sinh(4.541 * 0.02 / 2), rel=1e-4)
    # A single launch has that of its blocks.
    capacity = pool_launches([known(100.0, 0.01)])
    assert capacity.spread is None and not capacity.precise
    assert capacity.low is not None and 96 < capacity.low < 98
    assert "unknown" in capacity.doubts[0]
    assert not pool_launches([known(100.0), known(101.0)]).doubts
    assert not is_enough([known(100.0, 1e-4)], planned=1)
    # Few bursts lower the lower end alone.
    steep = [replace(known(rate), slope=20.0, error=0.02) for rate in (100.0, 101.0)]
    plain = [replace(launch, slope=None) for launch in steep]
    low, high = pool_launches(steep), pool_launches(plain)
    assert low.high == high.high
    assert math.log(sure(high.low) / sure(low.low)) == pytest.approx(20 * 0.02**2 / 2)
    narrow, wide = known(100.0, 0.001), known(100.0, 0.05)
    assert not is_enough([narrow] * 2, planned=3)
    assert is_enough([narrow] * 3, planned=3)
    assert not is_enough([wide] * 3, planned=3) and not is_enough([wide] * 4, planned=3)
    client = LaunchEstimate(None, None, 90.0, None, ceiling="client")
    assert is_enough([client] * 3, planned=3)


def test_a_launch_that_is_only_bounded_bounds_the_capacity() -> None:
    client = LaunchEstimate(None, None, 90.0, None, ceiling="client")
    floor = LaunchEstimate(None, None, None, 1.0, ceiling="floor")
    bounded = pool_launches([known(100.0), client, known(95.0)])
    assert (bounded.rate, bounded.low, bounded.high) == (None, 90.0, None)
    assert bounded.doubts == ("the capacity of 1 of 3 launches is only bounded",)
    assert pool_launches([floor] * 3).high == 1.0
    both = pool_launches([floor, client])
    assert (both.rate, both.low, both.high) == (None, None, None)
    assert pool_launches([]).rate is None
    # One that used its budget too early is left out.
    late = LaunchEstimate(None, None, 90.0, None, doubts=("no rate missed",))
    capacity = pool_launches([known(100.0), known(101.0), known(102.0), late])
    assert capacity.rate == pytest.approx(101, rel=1e-3) and len(capacity.launches) == 4
    assert capacity.doubts == ("1 of 4 launches: no rate missed; left out",)
    bounded = pool_launches([known(100.0), late])
    assert (bounded.rate, bounded.low, bounded.high) == (None, 90.0, None)


def test_the_ratio_of_two_capacities() -> None:
    a = pool_launches([known(rate, 0.001) for rate in (100.0, 101.0, 99.0, 100.0)])
    b = pool_launches([known(rate, 0.001) for rate in (110.0, 111.0, 109.0, 110.0)])
    center, low, high = compare_capacities(a, b)
    assert center == pytest.approx(1.1, rel=1e-3) and low > 1.08 and high < 1.12
    # Welch with equal sides: 6 degrees of freedom, t 2.447.
    half = 2.447 * math.sqrt((sure(a.spread) ** 2 + sure(b.spread) ** 2) / 4)
    assert math.log(high / center) == pytest.approx(half, rel=5e-3)
    same, low, high = compare_capacities(a, a)
    assert same == 1 and low < 1 < high
    with pytest.raises(ValueError, match="two launches"):
        compare_capacities(a, pool_launches([known(100.0)]))
