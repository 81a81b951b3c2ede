"""A stall of a known length gives known latencies.

In an open loop those of requests due in it, in a closed loop the one that each connection had sent.
How many are due in it is bounded from below, since a busy host moves the stall, which the server
counts from its first request.
"""

from typing import Any, Final

import pytest
from msgspec import structs

from serve_bench.analysis.checks import checks
from serve_bench.analysis.comparing.values import list_doubts, read_values, rows_of
from serve_bench.analysis.statistics import LowerBound, distribution, latency_figures
from serve_bench.benchmarks.micro.command import latency_text
from serve_bench.cli.progress import trial_text
from serve_bench.core.facts import TrialFlags
from serve_bench.core.histogram import Histogram, bounded
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.nodes import Node, NodePart, node_fact
from serve_bench.core.plan import row_of, trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Result, Run, Trial
from serve_bench.core.traffic import Row
from serve_bench.load.driver import drive_load
from serve_bench.view.row_charts import latency_curve
from tests.cases import sure
from tests.rounds import MS, a_result
from tests.servers import serving

pytestmark = pytest.mark.process

CLIENTS: Final[tuple[Client, ...]] = ("raw", "aiohttp")
WARM_S, MEASURED_S, NEVER_S = 0.4, 0.8, 600.0
TIMING = Timing(WARM_S, WARM_S, windows=4, window_s=MEASURED_S / 4)
RATE = 200.0

STALLS = {
    "at the start": (WARM_S + 0.1, WARM_S + 0.5),
    "across the end": (WARM_S + 0.5, WARM_S + 1.2),
    "for good": (WARM_S + 0.5, NEVER_S),
}


def stalled(client: Client, stall: str, **options: Any) -> LoadResult:
    """Load a server that stands still between two instants after its first request (s)."""
    begin_s, end_s = STALLS[stall]
    wait = lambda since_s: end_s - since_s if begin_s <= since_s < end_s else 0.0  # noqa: E731
    with serving(delay_s=0.002, stall=wait) as server:
        load = Load(
            Request(server.url, expect_body=b"ok"),
            client=client,
            timeout_s=1.5 if stall == "for good" else 30.0,
            **options,
        )
        return drive_load(load, TIMING)


def slow(result: LoadResult, least_s: float) -> int:
    slots = [*result.latency.occupied(), *result.censored.occupied()]
    least = Histogram.of([int(least_s * 1e9)]).occupied()[0][0]
    return sum(n for index, n in slots if index >= least)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stall", STALLS)
def test_every_request_due_in_a_stall_is_in_the_latency(client: Client, stall: str) -> None:
    result = stalled(client, stall, connections=20, rate=RATE)
    measured, (begin_s, end_s) = result.measured, STALLS[stall]
    assert measured.sent + measured.unsent == RATE * MEASURED_S
    assert result.latency.count + result.censored.count == RATE * MEASURED_S
    assert measured.balanced and result.total.balanced
    # Those due in the first 0.2 s of the stall waited for at least what was left of it.
    waited_s = min(end_s, WARM_S + MEASURED_S + 1.0) - begin_s - 0.2
    assert slow(result, waited_s) >= 0.5 * RATE * 0.2
    if stall == "for good":
        assert measured.failed == {"timeout": 20}  # on each connection the first; others behind it
        assert measured.in_flight + measured.unsent == result.censored.count - 20 > 0
        (value, lower), (_, exact) = bounded(result.latency, result.censored, (0.99, 0.25))
        assert lower and value is not None and value > 1.4e9 and not exact
    else:
        assert measured.completed == RATE * MEASURED_S and result.censored.count == 0
    if stall == "across the end":
        within = result.in_windows
        assert within is not None and within.in_flight >= 19
        # Throughput is of what came within the windows.
        assert result.completed_in_windows == sum(result.windows) < measured.completed


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stall", STALLS)
def test_each_connection_waits_for_a_stall_once(client: Client, stall: str) -> None:
    result = stalled(client, stall, connections=5)
    measured, (begin_s, end_s) = result.measured, STALLS[stall]
    lasted_s = min(end_s - begin_s, 1.5)
    assert measured.sent == measured.completed + measured.failed_total
    assert measured.failed == ({"timeout": 5} if stall == "for good" else {})
    assert slow(result, lasted_s - 0.1) == 5
    assert result.mean_in_flight == pytest.approx(5, rel=0.1)


def test_a_row_that_was_not_answered_says_so_in_every_figure() -> None:
    result = stalled("raw", "for good", connections=20, rate=RATE)
    row: Row = row_of(Load(Request("http://h/"), connections=20, rate=RATE))
    trial = trial_of(PlannedTrial("k", 1, "url", {"url": "u"}, row), "", "at", result, 1.0)
    assert isinstance(latency_figures([trial], (0.99,))[0], LowerBound)
    run = Run("id", (), "load", "at", "0")
    said = {doubt.code: doubt.message for doubt in checks(Result(run, trials=(trial,)))}
    waiting = result.measured.in_flight + result.measured.unsent
    assert said["unanswered"].startswith(f"{waiting:,} of 160 had no answer when the drain e")
    assert set(read_values(trial)).isdisjoint({"p99"}) and trial.unanswered == waiting
    (side,) = rows_of(Result(run, trials=(trial,)), "url").values()
    assert side.failed_share >= waiting / 160
    assert "lower-bound" in {doubt.code for doubt in list_doubts("A", side, {})}
    assert sure(trial.client.in_windows).in_flight > 0


def test_percentiles_that_rest_on_what_never_came_are_lower_bounds() -> None:
    """Of 100 requests 90 took 1 to 90 ms, 5 were given up after 50 ms and 5 after 200 ms."""
    answered = Histogram.of([k * MS for k in range(1, 91)])
    given_up = Histogram.of([50 * MS] * 5 + [200 * MS] * 5)

    def at(q: float) -> tuple[float, bool]:
        ((value, lower),) = bounded(answered, given_up, (q,))
        assert value is not None
        return round(value / MS), lower

    assert at(0.4) == (40, False)  # none was given up before that
    assert at(0.49) == (49, False)
    assert at(0.6) == (55, True)  # 60 ms at most by those that came, 55 at least by all
    assert at(0.9) == (85, True)
    assert at(0.91) == (86, True)  # rank 91 of 90 that came
    assert at(1.0) == (200, True)
    assert bounded(answered, Histogram(), (0.9,)) == [(answered.percentile(0.9), False)]
    assert bounded(Histogram(), given_up, (0.5, 1.0))[0][1]
    assert bounded(Histogram(), Histogram(), (0.5,)) == [(None, False)]
    # So are the mean and the maximum.
    found = distribution(Histogram.of([MS] * 99), Histogram.of([9 * MS]))
    bounds = {name for name, value in found.items() if isinstance(value, LowerBound)}
    assert bounds == {"mean", "max", "p99_9"} and found["count"] == 99
    assert found["max"] == 9 * MS and found["mean"] == pytest.approx(1.08 * MS, rel=1e-3)
    assert isinstance(found["max"] / 1e6, LowerBound)
    assert not any(isinstance(at, LowerBound) for at in distribution(Histogram.of([MS])).values())


def test_a_curve_of_a_page_ends_where_requests_without_an_answer_leave_it_open() -> None:
    row = Row("row", "raw", 10)
    answered = a_result([MS * k for k in range(1, 91)], (40, 50))
    whole = structs.replace(answered, censored=Histogram.of([95 * MS] * 10))
    points = dict(latency_curve([a_trial(whole, row)]))
    assert max(points) == 0.9 and points[0.9] == pytest.approx(90, rel=0.01)
    closed = a_trial(structs.replace(whole, censored=Histogram()), row)
    assert max(dict(latency_curve([closed]))) > 0.98 - 1e-9
    load = Load(Request("http://h/"), connections=2)
    fact = node_fact(Node("ab", "10.1.0.2", "one"), load, NodePart(whole))
    assert fact.latency_lower_bounds == ("mean", "max", "p99")


def a_trial(result: LoadResult, row: Row) -> Trial:
    planned = PlannedTrial("key", 1, "default", {}, row)
    return trial_of(planned, "launch", "2026-11-23T00:00:00Z", result, 2.0)


def test_noop_says_what_is_not_known() -> None:
    """Of 500 requests one was given up after 30 s: p99 is known, mean and maximum are not."""
    result = a_result([5 * MS] * 499, (499,), censored=Histogram.of([30_000 * MS]))
    trial = a_trial(result, Row("row", "aiohttp", 1))
    shown = {line.split()[0]: line.split()[1:] for line in latency_text(trial).splitlines()[1:]}
    assert shown["max"] == [">", "30000.000", "ms"] and shown["mean"][0] == ">"
    assert float(shown["mean"][1]) == pytest.approx((499 * 5 + 30_000) / 500, rel=1e-3)
    assert float(shown["p99"][0]) == pytest.approx(5.0, rel=1e-3) and shown["count"] == ["499"]
    assert ", p50 5.00 ms" in trial_text(trial, 1, 1)
    half = structs.replace(result, censored=Histogram.of([30_000 * MS] * 998))
    assert ", p50 > 30000.00 ms" in trial_text(a_trial(half, trial.row), 1, 1)


def test_what_came_in_the_drain_is_in_no_count_of_the_windows() -> None:
    """13 of 13 requests ended, two of them when time had ended the row."""
    result = a_result([MS] * 10, (8,))
    assert result.measured.completed + result.measured.failed_total == 13
    assert result.ended_in_windows == 11
    trial = a_trial(result, Row("1 client", "raw", 1, requests_each=13))
    assert trial.flags == TrialFlags(cut=True) and trial.ended_in_windows == 11
    whole = structs.replace(result, in_windows=result.measured)
    assert a_trial(whole, trial.row).flags == TrialFlags(cut=False)
