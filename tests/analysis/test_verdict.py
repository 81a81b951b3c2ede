"""What limited a trial, where a core, the host or the client was full: situations made by hand,
those of the README's tables among them."""

from __future__ import annotations

import pytest

from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.evidence import evidence_of
from serve_bench.core.result import Trial
from tests.verdict_trials import (
    DEFAULT_1,
    DEFAULT_8,
    DEFAULT_100,
    IDLE,
    OPTIMIZED_1,
    OPTIMIZED_100,
    bound,
    measured,
    process,
    usage,
)

# ------------------------------------------------------------------- the tables of the README


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
