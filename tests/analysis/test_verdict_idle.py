"""What limited a trial where no CPU was full: slots, batches, a deployment behind the front."""

from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.case import compare_loads
from serve_bench.analysis.verdict.timers import ROUTER_WAIT, read_flag_s, router_words
from serve_bench.core.facts import TrialFlags
from serve_bench.core.load_result import Counts
from serve_bench.core.result import JsonObject, Trial, VariantUsed
from serve_bench.core.usage import BATCH_SIZE
from tests.cases import cases
from tests.records import cell, changed, launch
from tests.verdict_trials import (
    IDLE,
    bound,
    expect,
    measured,
    process,
    serving,
    tiers,
    usage,
    with_metric,
)

BATCHED = {**cell(batch=16, queries=1000), "batch_wait_timeout_s": 0.1}


def batched(connections: int, rate: float, *sizes: int, **more: Any) -> Trial:
    """Make a row of an app with batches of 16, of which these were seen."""
    at = measured(connections, rate, more.pop("seen", IDLE), of=BATCHED)
    at = with_metric(at, BATCH_SIZE, "requests", *sizes) if sizes else at
    return changed(at, **more)


def slots(connections: int, rate: float, seen: JsonObject = IDLE, **more: Any) -> Trial:
    """Make a row of an app whose replicas have a slot each."""
    of = cell(queries=1, replicas=more.pop("replicas", 1))
    return changed(measured(connections, rate, seen, of=of), **more)


FULL: Final = serving((20, 1), (97, 1), host=130)
FEW: Final[JsonObject] = {"status": "fresh", "levels": {"ongoing": 0.1}}
ALONE: Final = {"p50_ms": 500.0, "alone_p50_ms": 500.0}


@cases(
    "trial, cause, sure, words",
    (slots(10, 20), "concurrency limit", "medium", "concurrency limit, 10 requests for 1 slot"),
    (slots(2, 4, replicas=2, waits=ALONE), "offered load", "medium", ""),  # nobody waits
    (slots(10, 20, FULL), "replica CPU", "high", ""),
    (slots(10, 20, serve_metrics=FEW), "concurrency limit", "low", ""),  # Serve saw none
    (batched(4, 39), "batch wait", "high", "batch wait: timeout 100 ms, p50 103 ms"),
    (batched(4, 39, 4, 4, 4), "batch wait", "high", "batches 25 % full"),
    (batched(4, 8), "app wait", "low", ""),  # a small part of the latency
    (batched(4, 39, seen=FULL), "replica CPU", "high", ""),
    (batched(64, 160, 16, 16), "replica loop", "low", "batches full, 64 in flight for 16"),
    (batched(16, 160, 16, forward={"16": [1, 97_000_000]}), "replica loop", "", "97 % of the time"),
)
def test_slots_and_batches(trial: Trial, cause: str, sure: str, words: str) -> None:
    expect(trial, cause, sure, words)


def test_a_deployment_behind_an_idle_front_is_downstream() -> None:
    at, down = measured(50, 100, tiers(30, 98)), "downstream deployment"
    words = "downstream Ranker: replica CPU 98 % of a core ("
    verdict = expect(at, down, words=words, front="Ingress", behind="Ranker")
    # The app counts in the deployment that the cell is about, and so tells which is the front.
    assert limited_by(replace(at, served={"replica 3": 1000})) == verdict
    unknown = expect(at, "replica CPU", behind="Ranker")
    assert "which deployment HTTP meets is not known" in unknown.unseen
    slots = measured(50, 20, tiers(5, 3), of=cell(queries=1))
    expect(slots, down, words="Ranker: concurrency limit, 50 requests for 1 s", front="Ingress")
    # A busy front is none.
    lone, both = (measured(50, 100, tiers(*cpu)) for cpu in ((97, 40), (96, 98)))
    expect(lone, "replica CPU", front="Ingress", behind="Ingress")
    expect(both, "replica CPU", "medium", front="Ingress")


@cases(
    "proxy_wait, replica_wait, host, cause",
    (11, 21, 167, "downstream deployment"),
    (11, None, 167, "host CPU"),  # the wait of its busiest thread is not known
    (11, 10, 167, "host CPU"),  # it rests at times
    (80, 21, 167, "host CPU"),  # the proxy never rests either
    (11, 21, 185, "downstream deployment"),  # no core is free, of which it has most
)
def test_the_only_part_that_never_rests_comes_before_a_host_with_a_core_free_at_times(
    proxy_wait: float, replica_wait: float | None, host: float, cause: str
) -> None:
    """As planted on 2 cores beside 0.4 cores of other programs: 20 ms of CPU, 8 connections."""
    tier = {"of": "app:Ranker"}
    seen = usage(
        process(1, "proxy", 17, wait=29, thread=5, thread_wait=proxy_wait),
        process(2, "replica", 21, wait=27, thread=5, thread_wait=3, of="app:Ingress"),
        process(3, "replica", 79, wait=95, thread=71, thread_wait=replica_wait, **tier),
        host=host,
    )
    verdict = expect(measured(8, 40, seen, latency_ms=200), cause, front="app:Ingress")
    if cause != "host CPU" and host < 180:
        assert "79 % of a core, which ran or waited for one 92 %" in verdict.figures
        assert (verdict.confidence, verdict.runner_up_cause) == ("low", "host CPU")


@cases(
    "slots, cause, words",
    ({"Ranker": 50, "Ingress": 5}, "concurrency limit", "Ingress: concurrency limit, 50 req"),
    ({"Ranker": 1, "Ingress": 5}, "downstream deployment", "downstream Ranker: concurrency"),
    ({"Ranker": 100, "Ingress": 100}, "app wait", "a wait inside the app"),
)
def test_the_fewest_slots_limit(slots: dict[str, int], cause: str, words: str) -> None:
    at = replace(measured(50, 20, tiers(5, 3), of={"Ranker.num_replicas": 1}), slots=slots)
    expect(at, cause, words=words, front="Ingress")


ROUTERS: Final = {"app#Ranker": {"requests": 1000, "wait_ms": 400.0}}
TIERS: Final = {"app#Ingress": "stale", "app#Ranker": {"processing_ms": 480.0}}


@cases(
    "metrics, sure, words",
    ({"status": "fresh", "routers": ROUTERS}, "", "concurrency limit, 400 of 500 ms waiting"),
    ({"status": "stale", "deployments": TIERS}, "low", "deployment Ranker takes 480 of 500 ms ("),
)
def test_own_metrics_find_what_is_waited_for(metrics: JsonObject, sure: str, words: str) -> None:
    at = changed(measured(50, 100, tiers(5, 3)), serve_metrics=metrics)
    expect(at, "downstream deployment", sure, words, front="Ingress")


@cases(
    "rate, replicas, wait_s, named",
    (13.0, 4, 0.5, True),
    (100.0, 60, 0.5, True),  # 50 tasks at most
    (85.0, 4, 0.5, False),
    (16.0, 4, 0.025, False),
    (0.0, 0, 0.5, False),
    (16.0, 4, None, False),
)
def test_rates_of_a_router(rate: float, replicas: int, wait_s: float | None, named: bool) -> None:
    """2 tasks a replica, each of which gives a request in 0.5 s."""
    assert (router_words(rate, replicas, wait_s) is not None) is named


@cases(
    "env, wait_s",
    ({}, 0.5),
    ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "0.025"}, 0.025),
    ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "none"}, None),
    ({"RAY_SERVE_ENABLE_HA_PROXY": "1"}, None),
    ({"RAY_SERVE_ENABLE_HA_PROXY": "0"}, 0.5),
)
def test_the_wait_is_that_of_the_launch(env: dict[str, str], wait_s: float | None) -> None:
    other = launch("other")
    mine = replace(other, variant=VariantUsed("mine", env=env))
    assert read_flag_s([other, mine], "mine", ROUTER_WAIT) == wait_s
    assert read_flag_s([mine], "none", ROUTER_WAIT) is None


def test_an_open_loop_that_is_answered_in_time_is_limited_by_its_rate() -> None:
    trial = measured(50, 20, IDLE, loop="open", latency_ms=5)
    expect(trial, "offered load", "high", "offered load 20 requests/s, all answered in time (")
    late = bound(0.04, 0.01, "requests were sent late by 12 % of their latency")
    trial = measured(10, 20, IDLE, loop="open", latency_ms=1, client=late)
    expect(trial, "offered load", "medium", "by 12 % of their latency; next limit: client late)")
    seen = usage(process(1, "proxy", 95, wait=1), process(2, "replica", 40, wait=1), host=140)
    trial = measured(50, 400, seen, loop="open", latency_ms=5)
    expect(trial, "offered load", "low", "next limit: proxy CPU 95 %)")
    # One that falls behind is limited by what is full.
    seen = usage(process(1, "proxy", 96, wait=1), process(2, "replica", 40, wait=1), host=140)
    expect(measured(500, 400, seen, loop="open", latency_ms=900, left=800), "proxy CPU")
    nothing = measured(500, 100, IDLE, loop="open", latency_ms=99, left=300)
    expect(nothing, "unclear", words="left over")


def test_many_connections_on_an_idle_server_wait_and_are_no_offered_load() -> None:
    many = measured(100, 1000, IDLE)
    verdict = expect(many, "app wait", "low", "a wait inside the app, CPU idle (")
    assert "`serve-bench run`" in verdict.hint
    assert limited_by(measured(8, 80, IDLE)).confidence == "low"
    assert limited_by(measured(2, 500, IDLE)).confidence == "medium"
    assert limited_by(many, beside=[measured(50, 500, IDLE)]).confidence == "high"
    # A look that failed is told with its reason.
    verdict = expect(changed(many, waits={"why_not": "nobody answered"}), "app wait")
    assert "what requests wait in was not seen: nobody answered" in verdict.unseen
    assert "serve-bench run" not in verdict.hint
    two = measured(2, 20, IDLE)  # may wait for one another
    assert "`serve-bench run`" in expect(two, "app wait", "low").hint
    expect(changed(two, waits={"p50_ms": 100.0, "alone_p50_ms": 50.0}), "app wait")
    expect(changed(two, waits={"p50_ms": 100.0, "alone_p50_ms": 99.0}), "offered load")
    expect(two, "offered load", beside=[measured(1, 10, IDLE)])


LITTLE = usage(process(1, "proxy", 150), host=20)
BESIDE = usage(process(1, "proxy", 9), process(2, "raylet", 98), host=120)
HIDDEN = usage(process(1, "load_worker", 30), host=60)
FILLED = {**HIDDEN, "host": {"cores": 2, "cpu_percent": 198.0}}
BOTH = serving((96, 1), (40, 1), host=180)
NOBODY = "no process of the server was sampled"


@cases(
    "trial, reason",
    (measured(10, 10, {}), "CPU was not sampled"),
    (measured(10, 10, IDLE, failed=300), "75 % of the requests failed"),
    (replace(measured(10, 10, IDLE), counts=Counts(9, 0, {}, 9)), "no request was completed"),
    (measured(10, 10, LITTLE), "processes used 150 % of a core, but the host 20 %"),
    (measured(10, 10, BESIDE), "raylet CPU 98 % of a core, and nothing on the way"),
    (measured(10, 10, HIDDEN, client=bound(0.3, 0.0)), f"{NOBODY}; client 30 % not idle; host 60"),
    (measured(10, 10, FILLED), f"{NOBODY}; host 198 of 200 %"),
    (measured(9, 400, BOTH, client=bound(0.95, 0.02, "x")), "client 95 % not idle; proxy CPU 96"),
)
def test_what_cannot_be_told_is_unclear_with_its_reason(trial: Trial, reason: str) -> None:
    expect(trial, "unclear", words=f"unclear: {reason}")


def test_failures_and_replicas_that_come_and_go_make_it_less_sure() -> None:
    seen = usage(process(1, "proxy", 96, wait=1), process(2, "replica", 40, wait=1), host=140)
    expect(measured(100, 400, seen), "proxy CPU", "high")
    expect(measured(100, 400, seen, failed=400), "proxy CPU", "medium", "9 % of the requests")
    seen["processes"][1]["seen_s"] = 2.0
    seen["processes"].append({**process(3, "haproxy", 2, wait=0), "seen_s": 1.6})  # handed over
    verdict = expect(measured(100, 400, seen), "proxy CPU", "medium")
    assert verdict.reasons == ("replica 2 was there for 2.0 of 10.0 s",)


def test_no_cpu_is_called_idle_on_a_host_without_a_free_core() -> None:
    """On a host that other work fills it is unknown whether requests wait for a CPU."""
    uses = process(1, "proxy", 69, wait=5), process(2, "replica", 11, wait=48)
    light, heavy = (measured(at, 300, usage(*uses, host=200)) for at in (4, 50))
    for beside in ([], [light, heavy]):
        expect(heavy, "unclear", words="unclear: host CPU 200 of 200 %", beside=beside)
    expect(changed(heavy, usage=usage(*uses, host=140)), "app wait")


def test_a_ladder_alone_tells_that_requests_wait_and_not_for_what() -> None:
    ladder = [measured(1, 19, IDLE), measured(10, 20, IDLE), measured(100, 20.5, IDLE)]
    assert compare_loads(ladder[-1], 20.5, ladder).flat == (10, 100, 20.0)
    for before in (measured(1, 1, IDLE), measured(60, 10, IDLE)):  # it grew; of too many clients
        last = measured(100, 10, IDLE)
        assert compare_loads(last, 10.0, [before, last]).flat is None
    light, heavy = measured(1, 20, IDLE), measured(50, 20, IDLE)
    beside = [light, heavy]
    expect(heavy, "app wait", "medium", "20 requests/s from 1 to 50 clients", beside=beside)
    tiered = [changed(trial, usage=tiers(5, 3)) for trial in (light, heavy)]
    expect(tiered[1], "app wait", beside=tiered)
    # Another client or launch is no rung of the ladder.
    row, flags = replace(light.row, client="aiohttp"), TrialFlags(profiled=True)
    others = [changed(light, **change) for change in ({"row": row}, {"flags": flags})]
    others.append(replace(light, launch="default-2"))
    assert limited_by(heavy, beside=others).confidence == "low"
    eight = measured(8, 20, usage(process(1, "proxy", 70), host=176))  # the host is full
    expect(light, "offered load", beside=[eight])
    # A proxy that is busy is below what would make it the limit, and above what would rule it out.
    busy = usage(process(1, "proxy", 78, wait=1), process(2, "replica", 40, wait=1), host=160)
    words, light = "nothing is at its limit, proxy CPU 78 % of a core", measured(50, 400, busy)
    expect(measured(100, 400, busy), "unclear", words=words, beside=[light])


def test_no_load_is_called_the_limit_where_more_clients_bring_no_more() -> None:
    rates = ((1, 9.4), (5, 5.2), (20, 2.0))
    single, five, twenty = (measured(clients, rate, IDLE) for clients, rate in rates)
    expect(single, "offered load")
    slot = [replace(trial, cell=cell(queries=1, replicas=1)) for trial in (single, five, twenty)]
    words = "1 request for 1 slot, and 5 clients bring no more (5.2 requests/s) ("
    expect(slot[0], "concurrency limit", "high", words, beside=slot)
    # A resource that one client uses all the time.
    flat, words = measured(1, 20, IDLE), "CPU idle: 50 clients bring no more (20 requests/s) ("
    expect(flat, "app wait", "medium", words, beside=[measured(50, 20, IDLE)])
    # Between the two there may be a better one.
    words = "confidence; 20 clients bring no more (2 requests/s)"
    assert "between" in expect(single, "offered load", "low", words, beside=[twenty]).hint
    # Slots that served more in another row were not full.
    served, slow = slots(10, 20), slots(12, 5)
    expect(served, "concurrency limit", "medium", beside=[served, slow])
    expect(slow, "concurrency limit", "low", "; the same slots served", beside=[served, slow])
    failing = measured(20, 2.0, IDLE, failed=400)
    assert limited_by(single, beside=[failing]).confidence == "high"


def test_a_client_that_waited_for_a_row_that_was_cut_was_not_the_limit() -> None:
    """By the few answers of the first moment it looks slow: the rest never came."""
    seen = usage(process(1, "proxy", 12), process(2, "replica", 9), host=30)
    slow = measured(200, 13, seen, of=cell(queries=32), latency_ms=2600, left=198)
    for cut in (False, True):  # by the few that came back there would be room
        trial = replace(slow, flags=TrialFlags(cut=cut))
        expect(trial, "concurrency limit", words="198 requests for 32 slots")
    for cut, busy, to_blame in ((False, 0.1, True), (True, 0.9, True), (True, 0.1, False)):
        client = bound(busy, None, "pickup")
        row = measured(5, 145, seen, latency_ms=0.1, client=client, left=5)
        assert (limited_by(replace(row, flags=TrialFlags(cut=cut))).cause == "client") is to_blame
