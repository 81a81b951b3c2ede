"""What a run of capacity does between its launches: its budget, its next search, its end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.capacity.launch import LaunchSearch, Searches
from serve_bench.benchmarks.capacity.bench import CapacityClusters, Progressing, timing_of
from serve_bench.benchmarks.capacity.command import find_searches, launches_left, plan_lines
from serve_bench.core.capacity import CapacitySearch, closed_row
from serve_bench.core.content import Content
from serve_bench.core.histogram import Histogram
from serve_bench.core.plan import Suite, plan
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Failure, Metric
from serve_bench.core.slo import parse_slo
from serve_bench.runner.agenda import Agenda
from serve_bench.spec.suite import read_services
from serve_bench.store.files import read_toml, suite_file
from tests.analysis.test_probes import climb
from tests.capacity_runs import Service as Known
from tests.capacity_runs import capacity_result
from tests.cases import cases
from tests.records import AT, trial
from tests.suites import suite_with

SLO = "p99=50ms"
CELL = {"max_batch_size": 1, "max_ongoing_requests": 10000, "num_replicas": 8}


def asked(budget_s: float = 1200.0) -> CapacitySearch:
    """Plan a search of three launches or more."""
    return CapacitySearch(parse_slo(SLO).source, budget_s=budget_s)


def suite(budget_s: float) -> Suite:
    """Make a suite that searches the capacity of the no-op."""
    whole = suite_with(read_toml(suite_file("noop")), "noop.toml")
    return replace(whole, rows=(closed_row(),), launches=20, capacity=asked(budget_s))


def test_what_is_settled_is_gone_on_with_only_after_a_failure() -> None:
    """A failed launch is made again; a resumed run has the budget of its own command line."""
    earlier, of = capacity_result("a", {"default": [Known(400.0)] * 3}, cell=CELL), suite(77.0)
    searches = find_searches(of, earlier)
    assert searches.asked.budget_s == 77.0
    assert len(searches.estimates(("default", "bs1-ongoing10000-rep8"))) == 3
    assert launches_left(of, searches, earlier) == ()
    hurt = replace(earlier, failures=(Failure("trial", "gone", AT),))
    left = launches_left(of, find_searches(of, hurt), hurt)
    assert [planned.round for planned in left] == list(range(4, 21))


def test_the_budget_ends_a_run_before_the_round_that_would_exceed_it() -> None:
    """Each round took 100 s: a fourth fits into 500 s and not into 399 s."""
    for budget_s, ends in ((500.0, False), (399.0, True)):
        progress = Progressing(Searches(asked(budget_s), parse_slo(SLO)))
        progress.began_s -= 300.0
        stop = progress.over(3, 20)
        assert (stop is not None) == ends
        assert stop is None or (stop.why, stop.after_round, stop.of) == ("budget", 3, 20)


def test_the_budget_says_before_the_start_what_it_will_not_buy() -> None:
    """A round of 120 s of probes takes 3 to 4 minutes."""
    for minutes, said in ((20, []), (9, ["2 of 3 launches: a wide"]), (5, ["1 of 3 launches: no"])):
        of = suite(60.0 * minutes)
        lines = [line for line in plan_lines(of, plan(of)) if line.startswith("a budget of")]
        assert [f"a budget of {minutes} min 0 s is for about {line}" for line in said] == [
            line.rpartition(" interval")[0] for line in lines
        ]


@cases("slo, drain_s", ("p99=2s,ttft_p99=200ms", 4.0), ("ttft_p99=200ms", None))
def test_a_probe_lasts_as_long_as_its_responses(slo: str, drain_s: float | None) -> None:
    """A probe is warm once as many are in flight as later, and waits for the ends of streams."""
    search = Searches(asked(), parse_slo(slo)).at("a", 1, {})
    closed = search.next()
    assert closed is not None
    taken = Metric("ns", "lower", histogram=Histogram.of([round(9e9)] * 20).encode())
    made = trial(closed, *[1000.0] * 5)
    search.add(replace(made, metrics={**made.metrics, "latency": taken}))
    probe = search.next()
    assert probe is not None
    timing = timing_of(search, probe.row)
    assert timing.warmup_min_s == pytest.approx(9.0, rel=1e-3)
    assert timing.drain_s == drain_s


def test_a_later_search_of_a_service_starts_where_the_first_ended(tmp_path: Path) -> None:
    """The plan is made before anything is known."""
    searches = Searches(asked(), parse_slo("p99=20ms,errors=1%"))
    services = read_services(Content("x"), {"a": Request("http://127.0.0.1:1/")})
    of = replace(services, rows=(closed_row(),), launches=2)
    clusters = CapacityClusters(Agenda(of, plan(of)), "x", tmp_path, searches=searches)
    clusters.plan()
    first, second = plan(of)
    later: LaunchSearch = clusters.search(second, {})  # as the runner does for its counts
    assert later.start is None
    climb(clusters.search(first, {}), 800)
    journal: Any = None
    clusters.bench(clusters, second, 1, journal)
    found = searches.estimates(("a", "app"))[0].rate
    assert found is not None
    assert clusters.search(second, {}).start == pytest.approx(found)
