"""What limited a trial: situations made by hand, those of the README's tables among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from serve_bench.counts import BATCH_SIZE
from serve_bench.histogram import Histogram
from serve_bench.result import Counts, JsonObject, Metric, Row, Trial
from serve_bench.verdict import Cause, Verdict, limited_by, prevailing
from serve_bench.verdict.evidence import evidence_of
from serve_bench.verdict.hints import HINTS
from serve_bench.verdict.ladder import symptoms
from tests.records import cell, planned, trial

WINDOWS = 10


def process(
    pid: int,
    role: str,
    cpu: float,
    *,
    wait: float | None = None,
    thread: float | None = None,
    of: str = "app:NoOp",
) -> dict[str, Any]:
    """A process as the sampler tells of it; the figures in % of a core."""
    title = f"ray::ServeReplica:{of}" if role == "replica" else role
    return {
        "pid": pid,
        "role": role,
        "title": title,
        "cpu_percent": cpu,
        "busiest_thread_percent": thread,
        "run_queue_wait_percent": wait,
        "seen_s": float(WINDOWS),
    }


def usage(
    *processes: dict[str, Any], host: float, cores: int = 2, steal: float = 0.0
) -> dict[str, Any]:
    told = {"cores": cores, "cpu_percent": host, "steal_percent": steal}
    return {"host": told, "processes": list(processes)}


def measured(
    connections: int,
    rate: float,
    seen: dict[str, Any],
    *,
    of: dict[str, Any] | None = None,
    latency_ms: float | None = None,
    loop: str = "closed",
    client: dict[str, Any] | None = None,
    left: int = 0,
    failed: int = 0,
) -> Trial:
    """A trial of 10 windows of 1 s; in a closed loop the latency is what Little's law makes it."""
    row = Row(f"{connections} connections", "raw", connections, 1, loop=loop)
    made = trial(planned(row=row, of=of or cell(queries=10000)), *[rate] * WINDOWS, client=client)
    if latency_ms is None:
        latency_ms = 1e3 * connections / rate
    done = round(rate * WINDOWS)
    histogram = Histogram.of([round(latency_ms * 1e6)] * done)
    metrics = {**made.metrics, "latency": Metric("ns", "lower", histogram=histogram.encode())}
    errors = {"timeout": failed} if failed else {}
    counts = Counts(done + failed + left, done, errors, left)
    return replace(made, metrics=metrics, counts=counts, usage=seen)


def with_metric(at: Trial, name: str, unit: str, *values: int) -> Trial:
    """The trial with one more histogram."""
    histogram = Histogram.of(values)
    histogram.unit = unit
    metric = Metric(unit, "higher", histogram=histogram.encode())
    return replace(at, metrics={**at.metrics, name: metric})


def bound(non_idle: float | None, wait: float | None, reason: str = "") -> dict[str, Any]:
    """What the client says of itself; a reason makes it the limit."""
    verdict = {
        "client_bound": bool(reason),
        "reasons": [reason] if reason else [],
        "non_idle": non_idle,
        "run_queue_wait": wait,
    }
    return {"verdict": verdict, "workers": [{"timer": "timerfd"}]}


IDLE = usage(process(1, "proxy", 10, wait=0.5), process(2, "replica", 8, wait=0.5), host=30)
"""Nothing does much."""


# ------------------------------------------------------------------- the tables of the README


def of_readme(connections: int, rate: float, host: float, p50_ms: float, **cpu: float) -> Trial:
    """A column of the README's tables, which tell no waiting for a CPU."""
    uses = [process(at, role, share) for at, (role, share) in enumerate(cpu.items(), 1)]
    return measured(connections, rate, usage(*uses, host=host), latency_ms=p50_ms)


DEFAULT_1 = of_readme(1, 187.7, 136, 5.07, load_worker=11, proxy=69, replica=48, controller=3)
DEFAULT_8 = of_readme(8, 282.9, 168, 27.6, load_worker=11, proxy=86, replica=60, controller=3)
DEFAULT_100 = of_readme(100, 484.8, 170, 199, load_worker=2, proxy=96, replica=59, controller=2)
OPTIMIZED_1 = of_readme(
    1, 1689, 136, 0.535, load_worker=38, haproxy_manager=15, fallback_proxy=2, replica=44, gcs=2
)
OPTIMIZED_100 = of_readme(
    100, 5179, 162, 17.5, load_worker=12, haproxy_manager=14, replica=88, haproxy=29
)


def test_default_at_100_connections_is_bound_by_its_proxy() -> None:
    verdict = limited_by(DEFAULT_100)
    assert (verdict.cause, verdict.confidence) == ("proxy CPU", "sure")
    assert verdict.figures == "proxy CPU 96 % of a core"
    assert verdict.text == "proxy CPU 96 % of a core (sure; then host 170 of 200 %)"
    assert "optimized" in verdict.hint


@pytest.mark.parametrize("one", [DEFAULT_1, OPTIMIZED_1])
def test_a_single_client_waits_for_its_answers(one: Trial) -> None:
    verdict = limited_by(one)
    assert (verdict.cause, verdict.confidence) == ("offered load", "sure")
    assert verdict.figures == "offered load, 1 connection"


def test_eight_clients_nearly_fill_the_proxy() -> None:
    verdict = limited_by(DEFAULT_8)
    assert (verdict.cause, verdict.confidence) == ("proxy CPU", "weak")


def test_optimized_at_100_connections_is_bound_by_its_replica() -> None:
    verdict = limited_by(OPTIMIZED_100)
    assert (verdict.cause, verdict.confidence) == ("replica CPU", "weak")
    assert verdict.figures == "replica CPU 88 % of a core"
    assert verdict.runner_up == "host 162 of 200 %"


# ------------------------------------------------------------------------------ one core


def test_a_replica_that_burns_cpu() -> None:
    seen = usage(
        process(1, "proxy", 25, wait=2),
        process(2, "replica", 98, wait=1.5, thread=97),
        host=130,
    )
    verdict = limited_by(measured(20, 50, seen))
    assert (verdict.cause, verdict.confidence) == ("replica CPU", "sure")
    assert (verdict.figures, verdict.runner_up_cause) == ("replica CPU 98 % of a core", "host CPU")
    assert verdict.deployment == "NoOp"


def test_one_replica_of_several_is_a_loop_and_all_are_cpu() -> None:
    proxy = process(1, "proxy", 20, wait=1)
    one = usage(
        proxy, process(2, "replica", 97, wait=1), process(3, "replica", 12, wait=1), host=140
    )
    verdict = limited_by(measured(20, 50, one))
    assert verdict.cause == "replica loop"
    assert verdict.figures == "replica loop 97 % of a core, the other 12 %"
    both = usage(
        proxy,
        process(2, "replica", 97, wait=1),
        process(3, "replica", 95, wait=1),
        host=220,
        cores=4,
    )
    verdict = limited_by(measured(20, 100, both))
    assert verdict.cause == "replica CPU"
    assert verdict.figures == "replica CPU 97 % of a core, busiest of 2"


def test_one_replica_that_is_never_idle_is_at_its_limit_with_less_than_a_core() -> None:
    """As planted on 2 cores: one of three burns, and has to wait for a core as all others do."""
    others = [
        process(1, "proxy", 47, wait=92),
        process(2, "replica", 20, wait=35),
        process(3, "replica", 19, wait=38),
    ]
    hot = usage(*others, process(4, "replica", 76, wait=33), host=173)
    verdict = limited_by(measured(12, 76, hot))
    assert (verdict.cause, verdict.confidence) == ("replica loop", "weak")
    assert verdict.figures == "replica loop 76 % of a core, the others 20 %"
    full = usage(*others, process(4, "replica", 70, wait=50), host=199)
    assert limited_by(measured(12, 76, full)).cause == "host CPU"
    idle = usage(*others, process(4, "replica", 60, wait=10), host=150)
    assert limited_by(measured(2, 76, idle)).cause == "offered load"


def test_haproxy_counts_by_its_busiest_thread() -> None:
    seen = usage(
        process(1, "haproxy", 150, wait=3, thread=40),
        process(2, "replica", 50, wait=1),
        host=260,
        cores=4,
    )
    assert limited_by(measured(100, 9000, seen)).cause != "haproxy CPU"
    seen["processes"][0]["busiest_thread_percent"] = 99.0
    verdict = limited_by(measured(100, 9000, seen))
    assert verdict.cause == "haproxy CPU"
    assert verdict.figures == "haproxy CPU 99 % of a core in one thread"


def test_two_python_threads_that_take_turns_are_one_core() -> None:
    seen = usage(
        process(1, "proxy", 20, wait=1), process(2, "replica", 99, wait=1, thread=55), host=130
    )
    assert limited_by(measured(50, 300, seen)).cause == "replica CPU"


def test_native_threads_of_a_replica_are_not_one_core() -> None:
    seen = usage(
        process(1, "proxy", 10, wait=1),
        process(2, "replica", 130, wait=1, thread=35),
        host=150,
        cores=4,
    )
    assert limited_by(measured(1, 30, seen)).cause == "offered load"


def test_a_gpu_in_use_all_the_time_comes_before_a_replica_that_spins() -> None:
    seen = usage(
        process(1, "proxy", 20, wait=1), process(2, "replica", 99, wait=1), host=150, cores=4
    )
    at = measured(50, 300, {**seen, "gpus": [{"device": 0, "use_percent": 97.0}]})
    verdict = limited_by(at)
    assert (verdict.cause, verdict.confidence) == ("GPU", "likely")
    assert verdict.figures == "GPU 0 in use 97 % of the time"
    assert verdict.runner_up == "replica CPU 99 %"


# ------------------------------------------------------------------------------- the host


def test_hogs_take_the_cores_and_everybody_waits() -> None:
    seen = usage(process(1, "proxy", 45, wait=50), process(2, "replica", 30, wait=35), host=200)
    verdict = limited_by(measured(50, 200, seen))
    assert (verdict.cause, verdict.confidence) == ("host CPU", "sure")
    assert verdict.figures == "host CPU 200 of 200 %, 125 % by others"


def test_our_own_processes_share_all_cores_and_none_has_one() -> None:
    seen = usage(
        process(1, "proxy", 75, wait=25),
        process(2, "replica", 62, wait=20),
        process(3, "load_worker", 52, wait=15),
        host=194,
    )
    verdict = limited_by(measured(100, 400, seen))
    assert verdict.cause == "host CPU" and "by others" not in verdict.figures
    assert verdict.runner_up == "proxy CPU 75 %"


def test_a_full_host_with_a_proxy_that_never_waits_is_the_proxy() -> None:
    seen = usage(process(1, "proxy", 97, wait=2), process(2, "replica", 60, wait=3), host=196)
    verdict = limited_by(measured(100, 400, seen))
    assert (verdict.cause, verdict.confidence) == ("proxy CPU", "sure")


def test_threads_that_wait_together_hold_up_a_process_no_longer_than_it_is_not_running() -> None:
    """As planted: all threads of a proxy at its core waited for 1.6 cores together."""
    seen = usage(process(1, "proxy", 97, wait=160), process(2, "replica", 71, wait=150), host=199)
    verdict = limited_by(measured(100, 428, seen))
    assert (verdict.cause, verdict.confidence) == ("proxy CPU", "likely")
    assert verdict.runner_up == "host 199 of 200 %"
    found = {use.role: use.starved for use in evidence_of(measured(100, 428, seen)).uses}
    assert found == {"proxy": pytest.approx(0.03), "replica": pytest.approx(0.29)}


def test_while_a_little_of_the_host_is_left_the_process_near_its_core_comes_first() -> None:
    seen = usage(process(1, "proxy", 88, wait=140), process(2, "replica", 67, wait=150), host=182)
    verdict = limited_by(measured(100, 375, seen))
    assert (verdict.cause, verdict.confidence) == ("proxy CPU", "weak")
    seen["host"]["cpu_percent"] = 196.0
    assert limited_by(measured(100, 375, seen)).cause == "host CPU"


def test_a_full_host_of_which_nobody_takes_notice_is_no_limit() -> None:
    seen = usage(process(1, "proxy", 30, wait=1), process(2, "replica", 20, wait=0.5), host=200)
    assert limited_by(measured(1, 200, seen)).cause == "offered load"


def test_what_the_hypervisor_takes_counts_as_used() -> None:
    seen = usage(
        process(1, "proxy", 50, wait=30), process(2, "replica", 40, wait=30), host=110, steal=85
    )
    verdict = limited_by(measured(100, 300, seen))
    assert verdict.cause == "host CPU" and "85 % taken by the hypervisor" in verdict.figures


# ----------------------------------------------------------------------------- the client


def test_a_client_at_its_core() -> None:
    seen = usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", 40, wait=1),
        process(3, "load_worker", 97, wait=2),
        host=170,
    )
    told = bound(0.97, 0.02, "a load worker ran or waited for a CPU 97 % of the time (limit 85 %)")
    verdict = limited_by(measured(100, 4000, seen, client=told))
    assert (verdict.cause, verdict.confidence) == ("client", "sure")
    assert verdict.figures == "client 97 % not idle"


def test_a_client_that_waits_for_a_full_host_is_not_the_limit() -> None:
    seen = usage(process(1, "proxy", 45, wait=40), process(2, "replica", 30, wait=30), host=200)
    told = bound(0.92, 0.55, "a load worker ran or waited for a CPU 92 % of the time (limit 85 %)")
    verdict = limited_by(measured(100, 400, seen, client=told))
    assert (verdict.cause, verdict.runner_up_cause) == ("host CPU", "client")


def test_client_and_server_both_at_their_limit_is_unclear() -> None:
    seen = usage(process(1, "proxy", 96, wait=1), process(2, "replica", 40, wait=1), host=180)
    told = bound(0.95, 0.02, "a load worker ran or waited for a CPU 95 % of the time (limit 85 %)")
    verdict = limited_by(measured(100, 400, seen, client=told))
    assert (verdict.cause, verdict.confidence) == ("unclear", "none")
    assert verdict.reasons == ("client 95 % not idle", "proxy CPU 96 % of a core")
    assert verdict.text == "unclear: client 95 % not idle; proxy CPU 96 % of a core"


def test_a_late_client_gives_its_own_reason() -> None:
    told = bound(0.30, 0.05, "responses waited in the client for 25 % of their latency")
    verdict = limited_by(measured(100, 4000, IDLE, client=told))
    assert (verdict.cause, verdict.confidence) == ("client", "likely")
    assert verdict.figures == "client: responses waited in the client for 25 % of their latency"


# --------------------------------------------------------------------------- slots, batches


def test_a_sleeping_replica_with_one_slot_is_a_concurrency_limit() -> None:
    verdict = limited_by(measured(10, 20, IDLE, of=cell(queries=1)))
    assert (verdict.cause, verdict.confidence) == ("concurrency limit", "sure")
    assert verdict.figures == "concurrency limit, 10 for 1 slot"
    assert "max_concurrent_queries" in verdict.hint


def test_as_many_clients_as_slots_leave_nobody_waiting() -> None:
    verdict = limited_by(measured(2, 4, IDLE, of=cell(queries=1, replicas=2)))
    assert (verdict.cause, verdict.confidence) == ("offered load", "likely")


def test_slots_are_no_limit_where_a_core_is() -> None:
    seen = usage(process(1, "proxy", 20, wait=1), process(2, "replica", 97, wait=1), host=130)
    verdict = limited_by(measured(10, 20, seen, of=cell(queries=1)))
    assert verdict.cause == "replica CPU"
    assert verdict.runner_up == "10 requests for 1 slot"


def test_full_slots_that_serve_itself_did_not_see_are_weak() -> None:
    at = replace(
        measured(100, 20, IDLE, of=cell(queries=50)),
        serve_metrics={"status": "fresh", "levels": {"ongoing": 3.0}},
    )
    verdict = limited_by(at)
    assert (verdict.cause, verdict.confidence) == ("concurrency limit", "weak")
    assert verdict.reasons == ("Serve counted 3 requests at its 50 slots",)


BATCHED = {**cell(batch=16, queries=1000), "batch_wait_timeout_s": 0.1}


def test_batches_that_wait_for_requests_that_never_come() -> None:
    verdict = limited_by(measured(4, 39, IDLE, of=BATCHED))
    assert (verdict.cause, verdict.confidence) == ("batch wait", "sure")
    assert verdict.figures.startswith("batch wait: timeout 100 ms, p50 103 ms")
    at = with_metric(measured(4, 39, IDLE, of=BATCHED), BATCH_SIZE, "requests", 4, 4, 4)
    assert limited_by(at).figures.endswith("batches 25 % full")


def test_a_batch_wait_that_is_a_small_part_of_the_latency_is_none() -> None:
    assert limited_by(measured(4, 8, IDLE, of=BATCHED)).cause == "offered load"
    seen = usage(process(1, "proxy", 20, wait=1), process(2, "replica", 95, wait=1), host=130)
    assert limited_by(measured(4, 39, seen, of=BATCHED)).cause == "replica CPU"


def test_full_batches_with_more_in_flight_wait_for_the_batch_function() -> None:
    at = with_metric(measured(64, 160, IDLE, of=BATCHED), BATCH_SIZE, "requests", 16, 16, 16)
    verdict = limited_by(at)
    assert (verdict.cause, verdict.confidence) == ("replica loop", "weak")
    assert "batches full, 64 in flight for 16 a batch" in verdict.figures


def test_a_batch_function_that_is_always_running_without_cpu() -> None:
    at = with_metric(measured(16, 160, IDLE, of=BATCHED), BATCH_SIZE, "requests", 16)
    at = replace(at, forward={"16": [1, 97_000_000]})
    verdict = limited_by(at)
    assert verdict.cause == "replica loop"
    assert verdict.figures == "replica loop 97 % of the time in its batch function"


# ----------------------------------------------------------------------- several deployments


def tiers(front_cpu: float, behind_cpu: float) -> dict[str, Any]:
    return usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", front_cpu, wait=1, of="app:Ingress"),
        process(3, "replica", behind_cpu, wait=1, of="app:Ranker.handle_request"),
        host=front_cpu + behind_cpu + 40,
        cores=4,
    )


def test_a_deployment_behind_an_idle_front_is_downstream() -> None:
    at = measured(50, 100, tiers(30, 98))
    verdict = limited_by(at, front="Ingress")
    assert (verdict.cause, verdict.deployment) == ("downstream deployment", "Ranker")
    assert verdict.figures == "downstream Ranker: replica CPU 98 % of a core"
    # The app counts in the deployment that the cell is about, and so tells which is the front.
    assert limited_by(replace(at, served={"replica 3": 1000})) == verdict
    unknown = limited_by(at)
    assert (unknown.cause, unknown.deployment) == ("replica CPU", "Ranker")
    assert "which deployment HTTP meets is not known" in unknown.unseen


def test_a_busy_front_is_no_downstream_deployment() -> None:
    verdict = limited_by(measured(50, 100, tiers(97, 40)), front="Ingress")
    assert (verdict.cause, verdict.deployment) == ("replica CPU", "Ingress")
    both = limited_by(measured(50, 100, tiers(96, 98)), front="Ingress")
    assert (both.cause, both.confidence) == ("replica CPU", "likely")


def test_slots_of_a_deployment_behind_the_front_are_downstream() -> None:
    at = measured(50, 20, tiers(5, 3), of=cell(queries=1))
    verdict = limited_by(at, front="Ingress")
    assert verdict.cause == "downstream deployment"
    assert verdict.figures == "downstream Ranker: concurrency limit, 50 for 1 slot"


@pytest.mark.parametrize(
    ("slots", "cause", "figures"),
    [
        ({"Ranker": 50, "Ingress": 5}, "concurrency limit", "Ingress: concurrency limit, 50 for 5"),
        ({"Ranker": 1, "Ingress": 5}, "downstream deployment", "downstream Ranker: concurrency"),
        ({"Ranker": 100, "Ingress": 100}, "offered load", "offered load, "),
    ],
)
def test_of_an_own_app_the_deployment_with_the_fewest_slots_limits(
    slots: dict[str, int], cause: str, figures: str
) -> None:
    at = replace(measured(50, 20, tiers(5, 3), of={"Ranker.num_replicas": 1}), slots=slots)
    verdict = limited_by(at, front="Ingress")
    assert verdict.cause == cause and verdict.figures.startswith(figures)


def test_serves_own_metrics_find_the_deployment_that_is_waited_for() -> None:
    waits: JsonObject = {
        "status": "fresh",
        "routers": {"app#Ranker": {"requests": 1000, "wait_ms": 400.0}},
    }
    at = measured(50, 100, tiers(5, 3))
    verdict = limited_by(replace(at, serve_metrics=waits), front="Ingress")
    assert verdict.cause == "downstream deployment"
    assert verdict.figures == (
        "downstream Ranker: concurrency limit, 400 of 500 ms waiting for a slot"
    )
    passed: JsonObject = {
        "status": "stale",
        "deployments": {"app#Ingress": "stale", "app#Ranker": {"processing_ms": 480.0}},
    }
    verdict = limited_by(replace(at, serve_metrics=passed), front="Ingress")
    assert (verdict.cause, verdict.confidence) == ("downstream deployment", "weak")
    assert verdict.figures == "downstream deployment Ranker takes 480 of 500 ms"


# --------------------------------------------------------------------------- offered load


def test_an_open_loop_that_is_answered_in_time_is_limited_by_its_rate() -> None:
    verdict = limited_by(measured(50, 20, IDLE, loop="open", latency_ms=5))
    assert (verdict.cause, verdict.confidence) == ("offered load", "sure")
    assert verdict.figures == "offered load 20 requests/s, all answered in time"
    late = bound(0.04, 0.01, "requests were sent late by 12 % of their latency")
    verdict = limited_by(measured(10, 20, IDLE, loop="open", latency_ms=1, client=late))
    assert (verdict.cause, verdict.confidence) == ("offered load", "likely")
    assert verdict.reasons == ("requests were sent late by 12 % of their latency",)
    assert verdict.runner_up == "client late"
    seen = usage(process(1, "proxy", 95, wait=1), process(2, "replica", 40, wait=1), host=140)
    verdict = limited_by(measured(50, 400, seen, loop="open", latency_ms=5))
    assert (verdict.cause, verdict.confidence) == ("offered load", "weak")
    assert verdict.runner_up == "proxy CPU 95 %"


def test_an_open_loop_that_falls_behind_is_limited_by_what_is_full() -> None:
    seen = usage(process(1, "proxy", 96, wait=1), process(2, "replica", 40, wait=1), host=140)
    at = measured(500, 400, seen, loop="open", latency_ms=900, left=800)
    assert limited_by(at).cause == "proxy CPU"
    few = measured(10, 100, IDLE, loop="open", latency_ms=99, left=300)
    assert limited_by(few).figures == "offered load: all 10 connections in use"
    nothing = limited_by(measured(500, 100, IDLE, loop="open", latency_ms=99, left=300))
    assert nothing.cause == "unclear" and "left over" in nothing.reasons[0]


def test_many_connections_on_an_idle_server_are_a_weak_verdict() -> None:
    verdict = limited_by(measured(100, 1000, IDLE))
    assert (verdict.cause, verdict.confidence) == ("offered load", "weak")
    assert "fewer clients would tell" in verdict.reasons[0]
    assert limited_by(measured(8, 80, IDLE)).confidence == "weak"
    assert limited_by(measured(2, 20, IDLE)).confidence == "likely"
    lighter = measured(50, 500, IDLE)
    assert limited_by(measured(100, 1000, IDLE), beside=[lighter]).confidence == "sure"


# -------------------------------------------------------------------------------- unclear


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (measured(10, 10, {}), "CPU was not sampled"),
        (measured(10, 10, IDLE, failed=300), "75 % of the requests failed"),
        (replace(measured(10, 10, IDLE), counts=Counts(9, 0, {}, 9)), "no request was completed"),
        (
            measured(10, 10, usage(process(1, "proxy", 150), host=20)),
            "processes used 150 % of a core, but the host 20 %",
        ),
        (
            measured(10, 10, usage(process(1, "proxy", 9), process(2, "raylet", 98), host=120)),
            "raylet CPU 98 % of a core, and nothing on the way of a request",
        ),
    ],
)
def test_what_cannot_be_told_is_unclear_with_its_reason(one: Trial, reason: str) -> None:
    verdict = limited_by(one)
    assert (verdict.cause, verdict.reasons) == ("unclear", (reason,))
    assert verdict.text == f"unclear: {reason}"


def test_a_server_that_is_not_visible_is_unclear_with_what_is_known() -> None:
    told = bound(0.3, 0.0)
    seen = usage(process(1, "load_worker", 30), host=60)
    assert limited_by(measured(10, 10, seen, client=told)).reasons == (
        "no process of the server was sampled",
        "client 30 % not idle",
        "host 60 of 200 %",
    )
    full = limited_by(measured(10, 10, {**seen, "host": {"cores": 2, "cpu_percent": 198.0}}))
    assert (full.cause, full.confidence) == ("host CPU", "likely")
    assert full.figures == "host CPU 198 of 200 %, 168 % not by the load"


def test_failures_and_replicas_that_come_and_go_make_it_less_sure() -> None:
    seen = usage(process(1, "proxy", 96, wait=1), process(2, "replica", 40, wait=1), host=140)
    assert limited_by(measured(100, 400, seen)).confidence == "sure"
    failing = limited_by(measured(100, 400, seen, failed=400))
    assert (failing.confidence, failing.reasons) == ("likely", ("9 % of the requests failed",))
    seen["processes"][1]["seen_s"] = 2.0
    handed_over = {**process(3, "haproxy", 2, wait=0), "seen_s": 1.6}
    late = limited_by(measured(100, 400, {**seen, "processes": [*seen["processes"], handed_over]}))
    assert (late.confidence, late.reasons) == ("likely", ("replica 2 was there for 2.0 of 10.0 s",))


def test_what_was_not_looked_at_is_named() -> None:
    unseen = evidence_of(DEFAULT_100).unseen
    assert unseen == (
        "how long processes waited for a CPU is not known",
        "Serve's own queues were not read",
    )


# --------------------------------------------------------------------------------- ladders


def test_the_guides_two_symptoms() -> None:
    ladder = [measured(1, 19, IDLE), measured(10, 20, IDLE), measured(100, 20.5, IDLE)]
    assert [one.text for one in symptoms(ladder)] == [
        "constant requests: 20 -> 20.5 requests/s from 10 to 100 clients, by the client",
        "climbing latency: 52.6 -> 4,878 ms from 1 to 100 clients, by the client",
    ]
    assert symptoms([measured(1, 10, IDLE), measured(10, 100, IDLE)]) == ()
    assert symptoms([measured(9, 100, IDLE), measured(10, 100, IDLE)]) == ()
    assert symptoms([]) == ()


def test_processing_latency_is_taken_from_serve_where_it_was_read() -> None:
    def told(at: Trial, ms: float) -> Trial:
        group = {"app#NoOp": {"processing_ms": ms}}
        return replace(at, serve_metrics={"status": "fresh", "deployments": group})

    ladder = [told(measured(1, 20, IDLE), 40.0), told(measured(10, 20, IDLE), 390.0)]
    climbing = [one for one in symptoms(ladder) if one.sign == "climbing latency"]
    assert [one.text for one in climbing] == [
        "climbing latency: 40 -> 390 ms from 1 to 10 clients, by the replica"
    ]


def test_a_blocked_loop_shows_in_a_ladder_alone() -> None:
    light, heavy = measured(1, 20, IDLE), measured(50, 20, IDLE)
    assert limited_by(heavy).cause == "offered load"
    verdict = limited_by(heavy, beside=[light, heavy])
    assert (verdict.cause, verdict.confidence) == ("replica loop", "weak")
    assert "20 requests/s from 1 to 50 clients" in verdict.figures
    assert limited_by(light, beside=[light, heavy]).cause == "offered load"
    tiered = [replace(one, usage=tiers(5, 3)) for one in (light, heavy)]
    assert limited_by(tiered[1], beside=tiered).cause == "unclear"


def test_another_client_or_launch_is_no_rung_of_the_ladder() -> None:
    light, heavy = measured(1, 20, IDLE), measured(50, 20, IDLE)
    others = [
        replace(light, launch="default-2"),
        replace(light, row=replace(light.row, client="aiohttp")),
        replace(light, flags={"profiled": True}),
    ]
    assert limited_by(heavy, beside=others).cause == "offered load"


# -------------------------------------------------------------------------- the whole set


def test_every_cause_has_a_hint_and_no_hint_is_without_a_cause() -> None:
    assert set(HINTS) == set(get_args(Cause))
    assert all(hint and "\n" not in hint for hint in HINTS.values())


def test_over_launches_the_most_frequent_cause_prevails() -> None:
    proxy, other = limited_by(DEFAULT_100), limited_by(DEFAULT_1)
    assert prevailing([other, proxy, proxy]) == proxy
    assert prevailing([other]) == other


def test_a_verdict_that_is_sure_of_itself_names_its_runner_up() -> None:
    verdict = Verdict("GPU", "GPU 0 in use 99 % of the time", "sure")
    assert verdict.text == "GPU 0 in use 99 % of the time (sure)"
    assert replace(verdict, runner_up="proxy CPU 9 %").text.endswith("(sure; then proxy CPU 9 %)")


def test_a_row_that_was_cut_counts_what_never_came_back_as_in_flight() -> None:
    seen = usage(process(1, "proxy", 12), process(2, "replica", 9), host=30)
    slow = measured(200, 13, seen, of=cell(queries=32), latency_ms=2600, left=198)
    assert limited_by(slow).cause == "offered load"  # by the few that came back there is room
    verdict = limited_by(replace(slow, flags={"cut": True}))
    assert verdict.cause == "concurrency limit" and "198 for 32 slots" in verdict.text


@pytest.mark.parametrize(("flags", "busy"), [({}, 0.1), ({"cut": True}, 0.9)])
def test_a_client_that_waited_for_a_row_that_was_cut_was_not_the_limit(
    flags: dict[str, bool], busy: float
) -> None:
    """By the few answers of the first moment it looks slow: the rest never came."""
    told = {"verdict": {"client_bound": True, "reasons": ["pickup"], "non_idle": busy}}
    seen = usage(process(1, "proxy", 12), process(2, "replica", 9), host=30)
    row = measured(5, 145, seen, latency_ms=0.1, client=told, left=5)
    assert limited_by(replace(row, flags=flags)).cause == "client"
    told["verdict"]["non_idle"] = 0.1
    assert limited_by(replace(row, flags={"cut": True}, client=told)).cause != "client"
