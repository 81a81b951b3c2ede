"""What limited a trial, where slots, batches or a deployment behind the front were full."""

from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.verdict import limited_by
from serve_bench.core.result import JsonObject, Trial
from serve_bench.core.usage import BATCH_SIZE
from tests.cases import cases
from tests.records import cell
from tests.verdict_trials import IDLE, expect, measured, process, serving, tiers, usage, with_metric

BATCHED = {**cell(batch=16, queries=1000), "batch_wait_timeout_s": 0.1}


def batched(connections: int, rate: float, *sizes: int, **more: Any) -> Trial:
    """A row of an app with batches of 16, of which these were seen."""
    at = measured(connections, rate, more.pop("seen", IDLE), of=BATCHED)
    at = with_metric(at, BATCH_SIZE, "requests", *sizes) if sizes else at
    return replace(at, **more)


def slots(connections: int, rate: float, seen: JsonObject = IDLE, **more: Any) -> Trial:
    """A row of an app whose replicas have a slot each."""
    of = cell(queries=1, replicas=more.pop("replicas", 1))
    return replace(measured(connections, rate, seen, of=of), **more)


FULL: Final = serving((20, 1), (97, 1), host=130)
FEW: Final[JsonObject] = {"status": "fresh", "levels": {"ongoing": 0.1}}
ALONE: Final = {"p50_ms": 500.0, "alone_p50_ms": 500.0}


@cases(
    "trial, cause, sure, words",
    (slots(10, 20), "concurrency limit", "high", "concurrency limit, 10 requests for 1 slot"),
    (slots(2, 4, replicas=2, waits=ALONE), "offered load", "medium", ""),  # nobody waits
    (slots(10, 20, FULL), "replica CPU", "high", ""),
    (slots(10, 20, serve_metrics=FEW), "concurrency limit", "low", ""),  # Serve saw none
    (batched(4, 39), "batch wait", "high", "batch wait: timeout 100 ms, p50 103 ms"),
    (batched(4, 39, 4, 4, 4), "batch wait", "high", "batches 25 % full"),
    (batched(4, 8), "app wait", "low", ""),  # a small part of the latency
    (batched(4, 39, seen=FULL), "replica CPU", "high", ""),
    (batched(64, 160, 16, 16), "replica loop", "low", "batches full, 64 in flight for 16"),
    (
        batched(16, 160, 16, forward={"16": [1, 97_000_000]}),
        *("replica loop", "", "97 % of the time in its batch function"),
    ),
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
    words = "downstream Ranker: concurrency limit, 50 requests for 1 slot ("
    expect(slots, down, words=words, front="Ingress")
    # A busy front is none.
    one, both = (measured(50, 100, tiers(*cpu)) for cpu in ((97, 40), (96, 98)))
    expect(one, "replica CPU", front="Ingress", behind="Ingress")
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


@cases(
    "metrics, sure, words",
    (
        {"status": "fresh", "routers": {"app#Ranker": {"requests": 1000, "wait_ms": 400.0}}},
        *("", "concurrency limit, 400 of 500 ms waiting"),
    ),
    (
        {
            "status": "stale",
            "deployments": {"app#Ingress": "stale", "app#Ranker": {"processing_ms": 480.0}},
        },
        *("low", "downstream deployment Ranker takes 480 of 500 ms ("),
    ),
)
def test_serves_own_metrics_find_the_deployment_that_is_waited_for(
    metrics: JsonObject, sure: str, words: str
) -> None:
    at = replace(measured(50, 100, tiers(5, 3)), serve_metrics=metrics)
    expect(at, "downstream deployment", sure, words, front="Ingress")
