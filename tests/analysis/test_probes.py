import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from serve_bench.analysis.capacity import launch
from serve_bench.core.capacity import CapacitySearch, closed_row
from serve_bench.core.facts import SliceCounts, TrialSeconds
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import Result, Trial
from serve_bench.core.slo import parse_slo
from tests.cases import cases, sure
from tests.records import changed, run, trial
from tests.verdict_trials import bound, with_metric

MS = 1_000_000
SLO = parse_slo("p99=20ms,errors=1%")
ASKED = CapacitySearch(SLO.source)
CELL = {"num_replicas": 1}
Logged = tuple[int, int, int | None, int, str | None, launch.Stream | None, int | None]


def request(
    at_s: float,
    latency_ms: float | None,
    error: str | None = None,
    stream: launch.Stream | None = None,
) -> Logged:
    latency = None if latency_ms is None else round(latency_ms * MS)
    return 0, round(at_s * 1e9), latency, 200, error, stream, round(at_s * 1e9)


def probe(search: launch.LaunchSearch, rate: float, seconds: float, slow: float) -> Trial:
    """Make the trial of the next probe, of which the share `slow` is beyond the limit."""
    planned = sure(search.next())
    count = round(rate * seconds)
    rows = [
        request(at / rate, 30.0 if math.floor((at + 1) * slow) > math.floor(at * slow) else 5.0)
        for at in range(count)
    ]
    slices = launch.slices_of(rows, search.slo, seconds, 0.1)
    made = trial(planned, *[rate] * round(seconds))
    return replace(made, slices=slices, seconds=TrialSeconds(total=seconds + 1, measured=0.0))


def climb(search: launch.LaunchSearch, capacity: float) -> list[float]:
    """Measure what a search needs, with 1 % beyond the limit at `capacity`; return its rates."""
    rates: list[float] = []
    for _ in range(60):
        planned = search.next()
        if planned is None:
            return rates
        rate = planned.row.rate_per_s
        if rate is None:
            search.add(trial(planned, *[1.3 * capacity] * 5))
            continue
        rates.append(rate)
        slow = min(0.9, 0.01 * math.exp(15 * math.log(rate / capacity)))
        seconds = search.ask.seconds  # type: ignore[union-attr]
        search.add(probe(search, rate, max(1.0, round(seconds)), slow))
    raise AssertionError(f"the search did not end after 60 loads: {rates}")


def fresh() -> launch.LaunchSearch:
    return launch.LaunchSearch(ASKED, SLO, "default", 1, CELL)


def begin(search: launch.LaunchSearch, served: float = 1000.0) -> launch.LaunchSearch:
    """Start the search, when its closed loop is over."""
    search.add(trial(sure(search.next()), *[served] * 5))
    return search


def next_rate(search: launch.LaunchSearch) -> float:
    return sure(sure(search.next()).row.rate_per_s)


def test_counts_of_a_probe_by_slice() -> None:
    """A request counts in the slice of its due time; unanswered is slow, refused an error."""
    slo = parse_slo("p99=20ms,mean=10ms,errors.rejected=1%,errors=0,goodput=90%@20ms")
    assert [bound.kind for bound in launch.bounds_of(slo)] == ["share", "mean", *["share"] * 3]
    most = [bound.most for bound in launch.bounds_of(slo)]
    assert most == pytest.approx([0.01, 10 * MS, 0.01, 1e-6, 0.1])
    rows = [
        request(0.05, 5),
        request(0.15, 25),
        request(0.16, None, "cut"),
        request(0.17, 3, "rejected"),
        request(0.25, 30_000, "timeout"),
    ]
    bounds = launch.slices_of(rows, slo, 0.3, 0.1).bounds
    assert bounds["p99"] == SliceCounts((1, 2, 1), (0, 2, 1))
    assert bounds["errors"] == SliceCounts((1, 3, 1), (0, 2, 1))
    assert bounds["errors.rejected"] == SliceCounts((1, 3, 1), (0, 1, 0))
    assert bounds["goodput"] == SliceCounts((1, 3, 1), (0, 3, 1))
    assert bounds["mean"].of == (1, 2, 1)
    # The cut one was due 0.16 s after the begin of 0.3 s: it had waited 140 ms or more.
    assert bounds["mean"].bad == pytest.approx((5 * MS, 25 * MS + 140 * MS, 30_000 * MS))


def events(
    first_ms: float | None, gaps: int = 0, gaps_ms: float = 0, late: int = 0
) -> launch.Stream:
    """Make the events of a request; `late` of the gaps are above the limit."""
    first_ns = None if first_ms is None else round(first_ms * MS)
    return first_ns, gaps, round(gaps_ms * MS), (late, late)


def test_first_events_and_gaps_of_a_probe_by_slice() -> None:
    """An event counts where it came, whatever became of its request.

    What a request waited for until it was given up, or broken off, is beyond every limit. One that
    failed otherwise before has none. Latency knows nothing of all that.
    """
    slo = parse_slo("ttft_p99=20ms,ttft_mean=1s,itl_p90=5ms,itl_mean=1s,p99=200ms,errors=1%")
    rows = [
        request(0.01, 90, None, events(5, gaps=9, gaps_ms=80, late=2)),
        request(0.11, 90, None, events(25, gaps=4, gaps_ms=8)),
        request(0.12, 60, "truncated", events(10, gaps=1, gaps_ms=6, late=1)),  # no wait goes on
        request(0.13, 300, "stalled", events(10, gaps=1, gaps_ms=2)),  # 288 ms for the next
        request(0.21, 400, "timeout", events(None)),
        request(0.22, 2, "rejected", events(None)),
        request(0.23, None, "cut", events(None)),
        request(0.24, None, "cut", events(10, gaps=1, gaps_ms=2)),
    ]
    bounds = launch.slices_of(rows, slo, 0.3, 0.1).bounds
    assert bounds["ttft_p99"] == SliceCounts((1, 3, 3), (0, 1, 2))
    assert bounds["itl_p90"] == SliceCounts((9, 7, 2), (2, 2, 1))
    assert bounds["p99"] == SliceCounts((1, 2, 3), (0, 1, 3))
    assert bounds["errors"] == SliceCounts((1, 3, 4), (0, 2, 4))
    # Of cut ones it is known only that they waited until the end of the probe, or in its drain.
    waited_ns = (5 * MS, 45 * MS, (400 + 1000 + 10) * MS)
    assert bounds["ttft_mean"] == SliceCounts((1, 3, 3), waited_ns)
    waited_ns = (80 * MS, (8 + 6 + 2 + 288) * MS, (2 + 1000) * MS)
    assert bounds["itl_mean"] == SliceCounts((9, 7, 2), waited_ns)
    never = [request(at, None, "unsent", events(None)) for at in (0.15, 0.25)]
    unsent = launch.slices_of(never, slo, 0.3, 0.1).bounds
    assert unsent["ttft_p99"] == SliceCounts((0, 1, 1), (0, 1, 1))
    assert unsent["itl_p90"] == SliceCounts((0, 0, 0), (0, 0, 0))  # the first event is no gap


def test_each_objective_of_gaps_has_a_limit_in_the_log() -> None:
    slo = parse_slo("itl_p99=50ms,ttft_p99=1s,itl_p50=10ms")
    assert launch.gap_limits(slo) == (50 * MS, 10 * MS)
    row = request(0.0, 900, None, (5 * MS, 10, 500 * MS, (1, 4)))
    bounds = launch.slices_of([row], slo, 0.1, 0.1).bounds
    assert (bounds["itl_p99"].bad, bounds["itl_p50"].bad) == ((1,), (4,))
    # Requests that were never sent miss all that they can.
    rows = [request(at / 100, 5) for at in range(20)]
    rows += [request(0.25 + at / 100, None, "unsent") for at in range(15)]
    bounds = launch.slices_of(rows, SLO, 0.4, 0.1).bounds
    assert bounds["p99"] == SliceCounts((10, 10, 5, 10), (0, 0, 5, 10))
    assert bounds["errors"] == SliceCounts((10, 10, 5, 10), (0, 0, 5, 10))


def test_a_launch_begins_with_a_closed_loop_at_half_of_which_the_search_starts() -> None:
    search = fresh()
    assert sure(search.next()).row == closed_row(10)
    second = sure(begin(search).next())
    assert second.row.rate_per_s == 500
    assert second.row.loop == "open" and second.row.label == "probe 1"
    search = fresh()
    climb(search, 800)
    found = search.estimate()
    assert found.rate == pytest.approx(800, rel=0.05) and found.binds == "p99"


def test_a_later_launch_starts_where_the_others_found_the_capacity() -> None:
    searches = launch.Searches(ASKED, SLO)
    climb(searches.at("default", 1, CELL), 800)
    found = searches.estimates(("default", "rep1"))[0].rate
    second = begin(searches.at("default", 2, CELL), 5000.0)
    assert next_rate(second) == pytest.approx(found, rel=0.01)
    # Of a round that was launched twice the last launch counts.
    live = launch.Searches(ASKED, SLO)
    climb(live.at("default", 1, CELL), 800)
    result = records(live, 1)
    old = [replace(old, launch="0", key=f"{old.key}-", started_at="2025") for old in result.trials]
    again = launch.Searches(ASKED, SLO, earlier=replace(result, trials=(*old, *result.trials)))
    assert len(again.at("default", 1, CELL).probes) == len(live.at("default", 1, CELL).probes)


def records(searches: launch.Searches, rounds: int) -> Result:
    row, trials, plan = closed_row(10), [], []
    for at in range(1, rounds + 1):
        search = searches.at("default", at, CELL)
        plan.append(plan_trial("default", at, CELL, row))
        for minute, probe in enumerate([sure(search.closed), *search.trials]):
            begun = f"2026-01-0{at}T00:{minute:02}:00+00:00"
            trials.append(replace(probe, started_at=begun, launch=f"{at}"))
    return Result(run(*plan), trials=tuple(trials))


def test_a_resumed_run_goes_on_as_if_it_had_not_ended() -> None:
    live = launch.Searches(ASKED, SLO)
    for round_, capacity in ((1, 800.0), (2, 780.0)):
        climb(live.at("default", round_, CELL), capacity)
    again = launch.Searches(ASKED, SLO, earlier=records(live, 2))
    assert again.estimates(("default", "rep1")) == live.estimates(("default", "rep1"))
    assert again.finished("default", 2, CELL) and not again.finished("default", 3, CELL)
    for searches in (live, again):
        third = begin(searches.at("default", 3, CELL), 900.0)
        third.add(probe(third, next_rate(third), 3, 0.1))
    assert again.at("default", 3, CELL).next() == live.at("default", 3, CELL).next()


def test_a_launch_that_was_broken_off_counts_only_where_there_is_no_other() -> None:
    searches = launch.Searches(ASKED, SLO)
    first = begin(searches.at("default", 1, CELL))
    for slow in (0.0, 0.9):
        first.add(probe(first, next_rate(first), 3, slow))
    alone = searches.capacity(("default", "rep1"))
    assert sure(alone.low) <= 500 < first.probes[1].rate <= sure(alone.high)
    climb(searches.renew("default", 1, CELL), 800)
    assert len(searches.ended(("default", "rep1"))) == 1
    second = begin(searches.at("default", 2, CELL))
    second.add(probe(second, next_rate(second), 3, 0.0))
    assert [search.round for search in searches.ended(("default", "rep1"))] == [1]
    assert [search.round for search in searches.of(("default", "rep1"))] == [1, 2]


def test_connections_follow_rate_and_limit() -> None:
    search = fresh()
    assert search.connections(10) == (20, 20)
    assert search.connections(1000) == (20, 400)  # 1000/s x 0.1 s x 4
    assert search.connections(1e6) == (20, 4000)
    slow = launch.LaunchSearch(ASKED, parse_slo("p99=2s,ttft_p99=1s"), "default", 1, CELL)
    assert slow.connections(100) == (20, 800)
    for text in ("ttft_p99=200ms", "errors=1%"):  # which say nothing of how long responses take
        whole = launch.LaunchSearch(ASKED, parse_slo(text), "default", 1, CELL)
        assert whole.connections(100) == (20, 4000) and whole.limit_s is None


def test_the_client_is_to_blame_for_a_miss_and_not_for_a_probe_that_met() -> None:
    search = begin(fresh())
    client = bound(0.04, 0.01, "requests were sent late by 50 % of their latency")

    def judged(slow: float, lag_ms: float, unsent: int = 0, error: str = "") -> bool | None:
        made = changed(probe(search, 500, 3, slow), client=client)
        made = with_metric(made, "send_lag", "ns", *[round(lag_ms * MS)] * 9)
        if error:
            rows = [request(at / 500, 1, error) for at in range(1500)]
            made = replace(made, slices=launch.slices_of(rows, search.slo, 3, 0.1))
        made = replace(made, counts=replace(made.counts, unsent=unsent))
        of = sure(launch.probe_of(made, search.bounds))
        assert launch.meets(of, search.bounds) == (not slow and not error)
        return of.client_bound

    assert judged(0.5, 5.0) and not judged(0.5, 0.05)  # of a limit of 20 ms
    assert not judged(0.0, 5.0) and judged(0.0, 0.05, unsent=500)
    assert not judged(0.0, 5.0, error="rejected")
    assert launch.probe_of(sure(search.closed), search.bounds) is None  # a closed loop is no probe


def test_a_probe_whose_replicas_change_is_no_probe() -> None:
    search = begin(fresh())
    for ran, steady in (([1, 2], False), ([2], True), ([3], False), ([3], True)):
        scales = {"replicas": 1, "each": 2, "most": 4, "ran": ran}
        limits = {"Scales": scales, "Front": {"replicas": 1, "each": 9}}
        rate = next_rate(search)
        again = bool(search.probes) and not search.probes[-1].steady
        assert not again or rate == search.probes[-1].rate
        search.add(changed(probe(search, rate, 3, 0.1), limits=limits))
        assert (search.probes[-1].replicas, search.probes[-1].steady) == (ran[-1], steady)
    assert search.room == (3, 4)


def test_latency_that_does_not_come_of_the_load_ends_the_search() -> None:
    """At half of what the closed loop served all was answered, and most of it beyond the limit."""
    search = begin(fresh())
    missed = probe(search, 500, 3, 0.9)
    search.add(missed)
    assert search.hopeless and search.next() is None
    assert search.estimate().ceiling == "floor"
    left = begin(fresh())  # a load that left requests behind may be too much
    left.add(replace(missed, counts=replace(missed.counts, in_flight=100)))
    assert not left.hopeless
    # A tenth was beyond the limit: a lower rate may do, and the search goes on.
    tenth = begin(fresh())
    tenth.add(probe(tenth, 500, 3, 0.1))
    assert not tenth.hopeless and tenth.next() is not None
    said = tenth.estimate()
    assert said.ceiling is None and said.rate is None and said.high == 500
    assert any("no rate met before the time" in doubt for doubt in said.doubts)


def test_a_service_that_never_answers_ends_the_launch() -> None:
    searches = launch.Searches(ASKED, SLO)
    climb(searches.at("default", 1, CELL), 800)
    assert not searches.enough()
    searches.at("default", 2, CELL).add(None)
    assert searches.at("default", 2, CELL).next() is None and searches.enough()
    search = begin(searches.renew("default", 2, CELL))
    assert not searches.enough()
    rate = next_rate(search)
    for _ in range(3):  # a probe that fails is asked again
        assert next_rate(search) == rate
        search.add(None)
    assert search.next() is None and search.given_up and not search.finished
    # What was measured before stays, and the launch is to be searched again.
    assert searches.enough() and [last.round for last in searches.ended(("default", "rep1"))] == [1]
    search = fresh()
    search.add(trial(sure(search.next()), 0.0, failed={"status": 500}))
    assert search.given_up and search.next() is None


@cases("p99", None, {"bad": (0,)}, {"bad": (1e9,) * 30}, {"of": (), "bad": ()})
def test_a_damaged_probe_is_none(p99: dict[str, Any] | None) -> None:
    search = begin(fresh())
    made = probe(search, 500, 3, 0.0)
    bounds = {name: counts for name, counts in made.slices.bounds.items() if p99 or name != "p99"}
    if p99 is not None:
        bounds["p99"] = structs.replace(bounds["p99"], **p99)
    assert launch.probe_of(made, search.bounds) is not None
    damaged = replace(made, slices=structs.replace(made.slices, bounds=bounds))
    still = replace(made, row=replace(made.row, rate_per_s=0))
    assert launch.probe_of(damaged, search.bounds) is launch.probe_of(still, search.bounds) is None
    # A probe without a request meets nothing.
    nothing = dict.fromkeys(("p99", "errors"), SliceCounts(of=(0,) * 30, bad=(0,) * 30))
    empty = replace(made, slices=structs.replace(made.slices, bounds=nothing))
    none = launch.probe_of(empty, search.bounds)
    assert not launch.meets(sure(none), search.bounds)
