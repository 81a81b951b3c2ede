from collections.abc import Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from serve_bench.analysis.checks import TRIAL_CHECKS, Warning, checks, unsteady
from serve_bench.analysis.connections import connection_wait
from serve_bench.analysis.statistics import MAIN, read_rate, summarize
from serve_bench.analysis.verdict import limited_by, worth_a_look
from serve_bench.benchmarks.timeline.lens import describe_stop
from serve_bench.core.facts import HostFacts, TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.result import (
    Failure,
    ReadWarning,
    Record,
    Resume,
    Teardown,
    Trial,
    VariantUsed,
    result_of,
)
from serve_bench.core.traffic import Row
from tests.cases import cases
from tests.records import AT, ROWS, changed, launch, planned, run, trial, worker
from tests.verdict_trials import IDLE, expect, measured, process, usage, with_metric

FIRST = planned()
MS = 1_000_000
GOOD = Histogram.of([9 * MS] * 300).encode()  # 300 answers of 9 ms in 3 s on 1 connection


def good(**changes: Any) -> Trial:
    return changed(trial(FIRST, 100.0, 101.0, 99.0, latency=GOOD), **changes)


def doubts(*records: Record) -> list[Warning]:
    """List the warnings on a run of these records; each has a hint, and is one line."""
    found = list(checks(result_of([run(FIRST), *records])))
    assert all(warning.hint and "\n" not in warning.message + warning.hint for warning in found)
    return found


def of_trial(trial: Trial) -> dict[str, str]:
    """List the messages of the warnings on a trial by itself, by their codes."""
    return {warning.code: warning.message for check in TRIAL_CHECKS for warning in check(trial)}


def codes(*records: Record) -> list[str]:
    return [warning.code for warning in doubts(*records)]


ADDS = {"added_ns": 0.7 * MS, "mean_latency_ns": 2.2 * MS}
BOUND = {"client_bound": True, "reasons": ["non-idle 97 %"]}
STARVED = BOUND | {"non_idle": 0.99, "run_queue_wait": 0.87}
UNSETTLED = replace(good().warmup, steady=False, seconds=4.0)
LOST = replace(good().counts, completed=90, failed={"timeout": 3, "reset": 7, "body": 0})
FEW, HUNDRED = (Histogram.of([ms * MS] * n).encode() for ms, n in ((90, 33), (9, 100)))
OPEN = Row("1000/s", "raw", 100, 1, loop="open", rate_per_s=1000.0)
OBSERVERS = Row("9 observers", "observer", 100, 9)


def judged(**verdict: Any) -> Trial:
    return good(client={"verdict": {"client_bound": False, "reasons": [], **verdict}})


def scaled(*ran: int) -> Trial:
    """Make a row of a deployment of which Serve wants eight replicas, and runs so many in turn."""
    limit = {"replicas": 1, "each": 5, "queued": -1, "most": 8, "ran": ran, "wanted": 8}
    return changed(good(), limits={"Shop": limit})


def answered(latency_ms: float, count: int = 300, **changes: Any) -> Trial:
    """So many answers of this latency in 3 s, on one connection but for the changes."""
    histogram = Histogram.of([int(latency_ms * MS)] * count).encode()
    metrics = trial(FIRST, *[count / 3] * 3, latency=histogram).metrics
    return good(metrics=metrics, **changes)


def behind(more: int) -> Trial:
    """Make an open loop with so many answers more than were due."""
    done = {**asdict(good().counts), "completed": good().counts.completed + more}
    return changed(good(row=OPEN), client={"in_windows": done})


@cases(
    "record, code, message",
    (good(), None, None),
    (judged(**BOUND), "client-bound", "the client was the limit: non-idle 97 %"),
    (judged(**BOUND, non_idle=0.4), "client-bound", "the client adds to the latency: "),
    (judged(**STARVED), "client-bound", "the client waited for a CPU: non-idle 97 %"),
    (judged(), None, None),
    (good(client={"bare": 3}), "bare-done", "3 of 300 streams ended with [DONE] in place of da"),
    (good(client={"retried": 900}), "instant-retries", "3 retries at once for each answer"),
    (good(client={"retried": 900, "asked": {"honor_retry_after": True}}), None, None),
    (changed(good(), usage={"host": {"throttled_percent": 48.0}}), "throttled", "the CPU quota"),
    (judged(**ADDS), "client-adds", "the aiohttp client adds 0.7 of 2.2 ms of "),
    (judged(**ADDS | {"mean_latency_ns": 9 * MS}), None, None),
    (good(warmup=UNSETTLED), "unsteady-warmup", "the rate was not steady after 4.0 s of war"),
    (good(warmup=replace(UNSETTLED, seconds=0.0)), None, None),  # by count there is none
    (good(warmup=UNSETTLED, row=replace(ROWS[0], requests_each=300)), None, None),  # as published
    (good(counts=LOST), "errors", "10 of 100 requests failed: 7 reset, 3 timed out"),
    (trial(FIRST, 11.0, 11.0, 11.0, latency=FEW), "few-samples", "p99 rests on 33 responses"),
    (trial(FIRST, 100.0, latency=HUNDRED), "few-windows", ""),
    (good(served={"a": 10, "b": 0, "c": 0}), "idle-replicas", "2 of 3 replicas got no request"),
    (scaled(1, 8), "rescaled", ""),
    (scaled(4), "replicas-missing", ""),
    (scaled(8), None, None),
    # Little's law, on one connection.
    (answered(9.9), None, None),
    (answered(9.1), None, None),  # 9 % of the time in the client
    (answered(8.5), "littles-law", ""),  # 15 % of the time nothing was in flight
    (answered(10.9), "littles-law", ""),  # 1.09 requests in flight: cannot be
    (behind(0), None, None),
    (behind(150), "backlog", "150 of "),
    # It is of a closed loop that ends as a whole.
    (good(row=OPEN), None, None),
    (good(row=replace(OPEN, loop="closed")), "littles-law", ""),
    (good(row=OBSERVERS), None, None),  # ends at other times
    (good(row=replace(OBSERVERS, client="raw")), "littles-law", ""),
    (answered(50, row=Row("1 observer", "observer", 1, 1)), "littles-law", ""),  # more than can be
)
def test_what_is_doubted_of_a_trial(record: Trial, code: str | None, message: str | None) -> None:
    found = doubts(launch(), record, Teardown("default-1", 0.3, 9, True))
    assert [warning.code for warning in found] == ([code] if code else [])
    assert all(warning.message.startswith(message or "") for warning in found)
    assert all(warning.key == FIRST.key for warning in found)


@cases(
    "windows, how",
    ([100, 101, 99], None),
    ([100] * 10, None),
    ([93, 107, 100, 92, 108, 100], None),  # noise of 6 %, no drift
    ([100, 101, 99, 115, 116, 114], "the rate rises by 15 % from the first half"),
    ([100, 101, 99, 85, 84, 86], "the rate falls by 15 % from the first half"),
    ([100, 101, 20, 99, 100, 101], "window 3 of 6 stands out: 20.0 requests/s, median 100.0"),
    ([100, 50, 150, 60, 140, 100], "the windows spread by 37 % of their mean"),
    ([100, 60, 140], "the windows spread by 33 % of their mean"),
    ([100, 10], None),  # too few to tell, which is another warning
    ([0, 0, 0], None),
    ([], None),
)
def test_how_windows_are_unsteady(windows: Sequence[float], how: str | None) -> None:
    found = unsteady(windows, "requests/s")
    if how is None:
        assert found is None
    else:
        assert found is not None and found.startswith(how)


def test_requests_that_serve_gave_up_are_told_with_the_flag_that_asks_for_it() -> None:
    none = replace(good().counts, completed=0, failed={"status": 205})
    gave_up = good(counts=none, client={"status_codes": {"408": 205}})
    asked = replace(launch(), variant=VariantUsed("default", {}, {"request_timeout_s": 0.7}))
    gave_up = replace(gave_up, warmup=replace(gave_up.warmup, steady=False))
    found = doubts(asked, gave_up)
    (errors,) = [warning for warning in found if warning.code == "errors"]
    assert not {"few-samples", "unsteady-warmup"} & {warning.code for warning in found}
    assert errors.message.endswith("205 with status 408")
    assert "--request-timeout-s 0.7;" in errors.hint


def test_what_is_too_short_for_littles_law_says_so_instead() -> None:
    """500 requests by count in 8 ms: connections begin and end at different times."""
    row = Row("10 connections", "raw", 10, 1)
    short, impossible = (
        trial(FIRST, 62_500.0, latency=Histogram.of([ns] * 500).encode()) for ns in (MS // 20, MS)
    )
    warnings = doubts(good(row=row, metrics=short.metrics, window_s=0.008))
    (found,) = (warning for warning in warnings if warning.code in ("littles-law", "too-short"))
    assert found.code == "too-short" and found.message.startswith("8 ms ")
    # More in flight than connections cannot be, however short.
    assert "littles-law" in codes(good(row=row, metrics=impossible.metrics, window_s=0.008))
    # The time of failed requests counts.
    half = answered(9, 150)
    assert codes(half) == ["littles-law"]
    metrics = {**half.metrics, "failed_latency": half.metrics["latency"]}
    assert codes(replace(half, metrics=metrics)) == []


@cases("busy_s, doubted", (3.0, False), (2.6, True), (3.2, True))
def test_littles_law_knows_what_is_in_flight_at_both_ends(busy_s: float, doubted: bool) -> None:
    """Of one response of 9 s that began before 3 s of windows and ended behind them, 3 s count."""
    histogram = Histogram.of([9000 * MS]).encode()
    slow = trial(FIRST, 0.1, 0.1, 0.1, latency=histogram, client={"busy_s": busy_s})
    assert ("littles-law" in codes(slow)) is doubted


def in_windows(*rates: float, connections: int = 4) -> Trial:
    done = Counts(sent=round(sum(rates)), completed=round(sum(rates)), failed={}, in_flight=0)
    row = Row(f"{connections} connections", "raw", connections)
    return replace(trial(FIRST, *rates, client={"in_windows": asdict(done)}), row=row)


def test_few_or_long_responses_have_no_spread_and_blame_nobody() -> None:
    few, enough = in_windows(2, 6, 4), in_windows(20, 60, 40)
    long = in_windows(20, 60, 40, connections=30)
    assert [("unsteady-windows" in codes(trial)) for trial in (few, long, enough)] == [0, 0, 1]
    rows = [summarize(result_of([run(FIRST), trial]))[0] for trial in (few, long, enough)]
    assert [row.spreads["throughput"].std is None for row in rows] == [True, True, False]
    (found,) = (doubt for doubt in doubts(long) if doubt.code == "too-slow")
    assert found.message.endswith("a response takes 0.75 s, a window 1 s")
    assert found.hint == "measure 3 of 4.2 s" and "too-slow" not in codes(enough)


@cases(
    "host, words",
    # The load average holds what our own last run did, for minutes.
    ({"busy_cores": 0.1, "load_1m": 9.0, "logical_cores": 4}, None),
    ({"busy_cores": 2.5, "load_1m": 0.1, "logical_cores": 4}, "2.5 of 4 cores"),
    # What is in use is of all cores of the host.
    ({"busy_cores": 5.0, "usable_cores": 2, "logical_cores": 64}, None),
    ({"busy_cores": 40.0, "usable_cores": 2, "logical_cores": 64}, "40.0 of 64 cores"),
)
def test_a_busy_host_is_one_where_something_runs(host: dict[str, float], words: str | None) -> None:
    found = checks(result_of([changed(run(FIRST), host=host), good()]))
    said = [warning.message.partition(" were")[0] for warning in found]
    assert said == ([words] if words else [])


def test_a_resume_on_another_host_and_what_was_passed_over_while_reading() -> None:
    here = changed(run(FIRST), host={"id": "a"})
    same, other = (Resume(argv=(), started_at=AT, host=HostFacts(id=name)) for name in "ab")
    assert checks(result_of([here, same, good()])) == ()
    assert [check.code for check in checks(result_of([here, other, good()]))] == ["other-host"]
    cut = ReadWarning("cut-off", "line 9, the last, is cut off: read up to it")
    (warning,) = checks(result_of([run(FIRST), good()], [cut]))
    assert (warning.code, warning.message) == (cut.code, cut.message)


def test_a_variant_that_is_not_engaged() -> None:
    asked = replace(launch(), variant=VariantUsed("haproxy", {"RAY_SERVE_ENABLE_HA_PROXY": "1"}))
    found = doubts(asked, good())
    assert {warning.code for warning in found} == {"variant-not-engaged"}
    assert {warning.variant for warning in found} == {"haproxy"}
    assert "expected haproxy" in found[0].message
    # A worker that died, and a teardown that was not clean.
    worker = Failure("worker", "worker 12 was killed", AT, key=FIRST.key)
    found = doubts(good(), worker, Teardown("default-1", 5.0, 9, False, ("pid 4 raylet",)))
    keys = {warning.code: warning.key for warning in found}
    assert keys == {"unclean-teardown": None, "worker-failed": FIRST.key}
    assert "pid 4 raylet" in found[0].message


BEFORE = [50.0, 48.0, 52.0, 19.0]
"""The service stops in the last of these windows."""


def stopped(*rates: float, failed: int = 8, latency_ms: float = 160.0) -> Trial:
    """Windows of 1 s with these rates; so many requests had no answer."""
    trial = measured(8, 50, IDLE, latency_ms=latency_ms, failed=failed)
    metric = replace(trial.metrics[MAIN], windows=rates)
    return replace(trial, metrics={**trial.metrics, MAIN: metric})


STOPPED = stopped(*BEFORE, *[0.0] * 6)


@cases(
    "trial, window",
    (STOPPED, 4),
    (stopped(*BEFORE, 0.0), None),  # the next answer may be due
    (stopped(*BEFORE, *[0.0] * 6, failed=0), None),  # all were answered after the windows
    (stopped(*BEFORE, *[0.0] * 6, latency_ms=4000), None),  # responses that take so long
    (stopped(*BEFORE, *[0.0] * 5, 1.0), None),
    (stopped(*[0.0] * 6), None),
    # Of a load over time nothing was due in the last five seconds.
    (changed(STOPPED, course={"due": [50] * 5 + [0] * 5}), None),
    (changed(STOPPED, course={"due": [50] * 10}), 4),
)
def test_from_when_on_nothing_succeeds(trial: Trial, window: int | None) -> None:
    assert read_rate(trial).silent_from == window


def test_the_rate_is_of_the_time_before_and_a_warning_says_so() -> None:
    (line,) = summarize(result_of([run(), STOPPED]))
    assert line.spreads[MAIN].value == 50 and line.spreads[MAIN].windows == 3
    at_once = stopped(30.0, *[0.0] * 9)
    assert read_rate(at_once).per_s == 0.0
    assert MAIN not in summarize(result_of([run(), at_once]))[0].spreads
    found = [warning for check in TRIAL_CHECKS for warning in check(at_once)]
    assert any(warning.hint.startswith("so there is no rate") for warning in found)
    warnings = of_trial(STOPPED)
    assert warnings["standstill"] == "no request succeeded from second 4 to the end (6 s)"
    assert "unsteady-windows" not in warnings
    # The verdict says where all requests wait.
    assert worth_a_look(STOPPED) and not worth_a_look(replace(STOPPED, usage=TrialUsage()))
    words = "unclear: no request succeeded from second 4 to the end"
    expect(STOPPED, "unclear", words=words)
    queue = {"most": 8, "wait_s": 0.01, "waiting": 0.0, "running": 0.0, "held": 7.0}
    replica = {
        **{"pid": 2, "app": "app", "deployment": "NoOp", "looks": 16, "ongoing": 8.0, "served": 0},
        "places": [["serve.batch Model.predict", "model.py:9", "Model.__call__", 8.0]],
        "batches": {"predict": {**queue, "ended": "KeyError: 'size'"}},
    }
    seen = changed(STOPPED, waits={"seconds": 0.8, "replicas": [replica]})
    words = "a standstill from second 4 to the end: the batch queue of predict, in which 8 requests"
    verdict = expect(seen, "app wait", "medium", words)
    stalled = changed(seen, course={"due": [50] * 10, "ended": [50] * 4 + [0] * 6})
    launch: Any = (stalled, SimpleNamespace(out=()))
    assert describe_stop([launch], None) == f"limited by {verdict.text}"


def waiting(
    rate: int, sent: int, connections: int, lags_ms: dict[int, int], seen: Any = IDLE
) -> Trial:
    """Make an open loop of 10 s at `rate`/s over connections on which a request takes 190 ms.

    `sent`/s were sent in it; `lags_ms`: how many requests were sent so late; those above 1 ms
    waited for a connection.
    """
    due, within = 10 * rate, 10 * sent
    done = Counts(within, within, {}, 0, unsent=due - within)
    lags = [ms * MS for ms, count in lags_ms.items() for _ in range(count)]
    assert len(lags) == due
    client: dict[str, Any] = {"workers": [worker(connections)], "in_windows": asdict(done)}
    client["waited"] = sum(lag > MS for lag in lags)
    trial = measured(connections, sent, seen, loop="open", client=client)
    for name, times in (
        ("send_lag", lags),
        ("service_time", [190 * MS] * due),
        ("latency", [lag + 190 * MS for lag in lags]),
    ):
        trial = with_metric(trial, name, "ns", *times)
    return replace(trial, counts=Counts(due, due, {}, 0))


def test_a_rate_that_is_missed_for_connections_names_how_many_it_takes() -> None:
    trial = waiting(40, 21, 4, {0: 4, 5500: 396})
    wait = connection_wait(trial)
    assert wait is not None and wait.missed
    for known in ("waited", "in_windows"):
        rest = structs.replace(trial.client, **{known: None})
        assert connection_wait(replace(trial, client=rest)) is None
    assert wait.text == (
        "21 of 40 requests/s could be sent: all 4 connections were busy; 5.45 of 5.63 s are the "
        "wait for them, the service took 190 ms; 40/s need 8 connections or more"
    )
    assert of_trial(trial)["connections"] == wait.text
    expect(trial, "connections", "high", "4 connections of the load: 5.45 of 5.63 s are the wait")
    # A full part of the server comes first.
    full = usage(process(1, "proxy", 97, wait=1), process(2, "replica", 40, wait=1), host=140)
    trial = waiting(40, 21, 4, {0: 4, 5500: 396}, full)
    assert limited_by(trial).cause == "proxy CPU"
    assert "connections" in of_trial(trial)
    # A rate that is kept has the wait where it is much of the latency.
    trial = waiting(20, 20, 1, {0: 150, 200: 50})
    wait = connection_wait(trial)
    assert wait is not None and not wait.missed
    assert wait.text.startswith("the only connection was busy at times: 50 of 240 ms are the wait")
    assert limited_by(trial).cause == "offered load"
    assert connection_wait(waiting(20, 20, 5, {0: 195, 200: 5})) is None  # 2.5 % of the latency


def test_failures_have_their_latency_beside_that_of_the_others() -> None:
    trial = measured(10, 100, IDLE, latency_ms=50, failed=5)
    trial = with_metric(trial, "failed_latency.503", "ns", *[2_000 * MS] * 3)
    trial = with_metric(trial, "failed_latency.timeout", "ns", *[30_000 * MS] * 2)
    message = of_trial(trial)["errors"]
    assert message.endswith("median latency 2 s (503), 30 s (timeout), 50 ms (completed)")
