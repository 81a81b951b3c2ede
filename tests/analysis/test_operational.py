"""What-if by operational laws: made usages with answers by hand, and rows that allow none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.operational import (
    Change,
    WhatIf,
    changes_for,
    demands,
    router_wait_s,
    router_words,
    what_if,
)
from serve_bench.analysis.verdict import limited_by
from serve_bench.core.result import Trial, VariantUsed
from serve_bench.store import read
from tests import places, records
from tests.verdict_trials import bound, measured, process, serving, usage

PROXY = measured(100, 1000.0, serving((98, 1, 95), (62, 1, 60), host=175, cores=8))
"""1,000 requests/s, the proxy full, the replica at 62 %, cores free."""
REPLICA = measured(100, 1000.0, serving((40, 1, 39), (96, 1, 95), host=150, cores=8))
HOST = measured(100, 1000.0, serving((70, 30, 65), (80, 30, 75), host=197, cores=2))
"""A replica at 80 %, both processes wait for a core, and the host has none."""
SLOTS = replace(PROXY, usage=usage(process(1, "proxy", 10), process(2, "replica", 8), host=30))

HALF_PROXY = Change("proxy CPU", demand=0.5)
TWICE = Change("replica CPU", replicas=2)


def ends(one: WhatIf) -> tuple[float, float]:
    assert not one.why_not, one.why_not
    return one.low, one.high


def test_demands_are_cpu_seconds_over_answered_requests() -> None:
    by_name = {one.name: one for one in demands(PROXY)}
    assert {name: round(one.seconds * 1e6) for name, one in by_name.items()} == {
        "proxy CPU": 980,
        "replica CPU": 620,
        "host CPU": 1750,
    }
    assert by_name["host CPU"].fixed == pytest.approx(0.15)
    assert (by_name["host CPU"].level, by_name["host CPU"].count) == (1.75 / 8, 8)


def test_the_proxy_at_half_its_cpu_leaves_the_replica_as_the_limit() -> None:
    one = what_if([PROXY], HALF_PROXY)
    # The replica has 62 % of a core at 1,000: 90 % at 1,452, 100 % at 1,613.
    assert ends(one) == pytest.approx((900 / 0.62, 1000 / 0.62))
    assert one.limits == ("replica CPU",)
    assert one.then is not None
    assert one.then.name == "proxy CPU"
    assert one.then.high == pytest.approx(1000 / 0.49)
    assert one.text == (
        "prediction: with the proxy at half its CPU per request at most 1,450 to 1,610 requests/s "
        "(measured 1,000), then replica CPU limits; next proxy CPU, 2,040"
    )


def test_twice_the_replicas_halve_the_share_of_each() -> None:
    one = what_if([REPLICA], TWICE)
    # Two replicas at 48 % each, but the proxy has 40 % of a core: 1,875 to 2,083, then 2,250.
    assert ends(one) == pytest.approx((900 / 0.48, 1000 / 0.48))
    assert one.limits == ("replica CPU",)
    assert one.text.startswith("prediction: with 2 replicas at most 1,880 to 2,080 requests/s")
    four = what_if([REPLICA], Change("replica CPU", replicas=4))
    assert ends(four) == pytest.approx((900 / 0.40, 1000 / 0.40))
    assert four.limits == ("proxy CPU",)


def test_more_replicas_add_nothing_behind_a_full_proxy() -> None:
    one = what_if([PROXY], TWICE)
    assert ends(one) == pytest.approx((1000, 1000 / 0.98))
    assert one.limits == ("proxy CPU",)
    assert one.doubts[0] == "that adds nothing: proxy CPU is full already"


def test_more_replicas_add_nothing_on_a_full_host() -> None:
    one = what_if([HOST], TWICE)
    assert one.limits == ("host CPU",)
    # 1.97 of 2 cores; at best the 0.47 that are not of the load do not grow with the rate.
    assert ends(one) == pytest.approx((1000, 1000 * (2 - 0.47) / (1.97 - 0.47)))
    assert one.doubts[0] == "that adds nothing: the 2 cores of the host are full"
    more = what_if([HOST], Change("host CPU", cores=2))
    assert more.limits == ("replica CPU",)
    assert ends(more) == pytest.approx((900 / 0.8, 1000 / 0.8))
    assert "with 4 cores" in more.text


def test_less_demand_of_a_process_frees_the_host() -> None:
    seen = serving((98, 1, 95), (30, 1, 28), host=175, cores=2)
    one = what_if([measured(100, 1000.0, seen)], HALF_PROXY)
    # 1.75 - 0.49 cores are left of 2: 0.9 x 2 / 1.26 at least, (2 - 0.47) / (1.26 - 0.47) at best.
    assert one.limits == ("host CPU",)
    assert ends(one) == pytest.approx((1800 / 1.26, 1530 / 0.79))


def test_uneven_replicas_are_a_range() -> None:
    seen = usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", 98, wait=1),
        process(3, "replica", 90, wait=1),
        host=240,
        cores=8,
    )
    trial = measured(100, 1000.0, seen)
    assert limited_by(trial).cause == "replica CPU"
    one = what_if([trial], TWICE)
    assert ends(one) == pytest.approx((900 / 0.49, 1000 / 0.47))
    assert "with 4 replicas" in one.words


def test_launches_widen_the_range() -> None:
    other = measured(100, 1200.0, serving((98, 1, 95), (62, 1, 60), host=175, cores=8))
    one = what_if([PROXY, other], HALF_PROXY)
    assert ends(one) == pytest.approx((900 / 0.62, 1200 / 0.62))
    assert one.measured == 1100
    assert one.ground == "full from 90 % to 100 % of its time, 2 launches"


def test_a_limit_below_the_usual_level_counts_from_there() -> None:
    low = measured(100, 1000.0, serving((83, 1, 80), (62, 1, 60), host=160, cores=8))
    assert limited_by(low).confidence == "low"
    one = what_if([low], HALF_PROXY)
    assert ends(one) == pytest.approx((830 / 0.62, 1000 / 0.62))
    assert "the limit of the row has low confidence" in one.doubts
    assert "full from 83 %" in one.ground


def test_several_deployments_each_by_its_name() -> None:
    seen = usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", 97, wait=1, of="app:Ingress"),
        process(3, "replica", 50, wait=1, of="app:Ranker"),
        host=200,
        cores=8,
    )
    trial = measured(100, 1000.0, seen)
    limit = limited_by(trial)
    assert changes_for([trial], limit) == (
        Change("Ingress replica CPU", demand=0.5),
        Change("Ingress replica CPU", replicas=2),
    )
    one = what_if([trial], Change("Ingress replica CPU", replicas=4))
    assert one.limits == ("Ranker replica CPU",)
    assert one.words == "with 4 Ingress replicas"


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (
            measured(100, 1000.0, {}),
            "no CPU of the server limits this row (unclear: CPU was not sampled)",
        ),
        (
            measured(1, 100.0, serving((20, 1, 18), (20, 1, 18), host=50)),
            "no CPU of the server limits this row (offered load, 1 connection)",
        ),
        (
            measured(
                8, 9000.0, serving((30, 1), (20, 1), host=150), client=bound(0.99, 0.0, "full")
            ),
            "no CPU of the server limits this row (client 99 % not idle)",
        ),
    ],
)
def test_no_prediction_where_no_cpu_limits(trial: Trial, why: str) -> None:
    one = what_if([trial], HALF_PROXY)
    assert one.why_not == why
    assert one.text == f"no prediction with the proxy at half its CPU per request: {why}"
    assert changes_for([trial], limited_by(trial)) == ()


def test_no_prediction_without_the_server_in_sight() -> None:
    """A host filled by others says nothing of a server that is not seen."""
    trial = measured(8, 100.0, usage(process(1, "load_worker", 20), host=199))
    assert limited_by(trial).cause == "host CPU"
    assert (
        "no CPU of the server limits this row"
        in what_if([trial], Change("host CPU", cores=2)).why_not
    )
    assert what_if([], HALF_PROXY).why_not == "nothing was measured"
    assert what_if([PROXY], Change("GPU 0", demand=0.5)).why_not == "GPU 0 was not sampled"


def test_one_replica_alone_is_no_ground() -> None:
    seen = usage(
        process(1, "proxy", 30, wait=1),
        process(2, "replica", 98, wait=1),
        process(3, "replica", 40, wait=1),
        host=190,
        cores=8,
    )
    why = what_if([measured(100, 1000.0, seen)], TWICE).why_not
    assert why.startswith("one replica alone, or its loop, limits this row (replica loop 98 %")


def test_most_launches_decide_and_the_others_are_said() -> None:
    idle = replace(SLOTS, round=3)
    assert "no CPU of the server limits" in what_if([PROXY, idle], HALF_PROXY).why_not
    one = what_if([PROXY, PROXY, idle], HALF_PROXY)
    assert ends(one) == pytest.approx((900 / 0.62, 1000 / 0.62))
    assert one.doubts[-1] == "no CPU limits 1 of 3 launches"


@pytest.mark.parametrize(
    ("seen", "of", "doubt"),
    [
        (
            serving((98, 1, 95), (180, 1, 70), host=300, cores=8),
            {},
            "threads: replica CPU may use several cores",
        ),
        (serving((98, 1, 95), (62, 1, 60), host=300, cores=8), {}, "other programs use 140 %"),
        (
            serving((98, 1, 95), (62, 1, 60), host=175, cores=8),
            {"of": {"num_replicas": 1, "max_ongoing_requests": 1000, "max_batch_size": 8}},
            "CPU per request changes with the size of the batches",
        ),
        (
            serving((98, 1, 95), (62, 1, 60), host=175, cores=8),
            {"failed": 2000},
            "the CPU of failed requests counts for the others",
        ),
    ],
)
def test_doubts(seen: dict[str, Any], of: dict[str, Any], doubt: str) -> None:
    one = what_if([measured(100, 1000.0, seen, **of)], HALF_PROXY)
    assert one.text.startswith("prediction: ")
    assert any(text.startswith(doubt) for text in one.doubts), one.doubts


def test_stored_runs_predict_or_say_why_not() -> None:
    """Each trial with a usage: what it says begins with a word, and is of the order of what was
    measured."""
    predicted = refused = 0
    for file in sorted(places.FORMATS.glob("*.jsonl")):
        for trial in (one for one in read(file).trials if one.usage):
            limit = limited_by(trial)
            changes = changes_for([trial], limit)
            for change in changes:
                one = what_if([trial], change)
                assert one.text.startswith("prediction: with ")
                assert one.measured * (1 - 1e-9) <= one.low <= one.high <= 4 * one.measured
                predicted += 1
            if not changes:
                why = what_if([trial], HALF_PROXY).why_not
                assert why.startswith("no CPU of the server limits this row (")
                refused += 1
    assert predicted > 50
    assert refused > 50


@pytest.mark.parametrize(
    ("rate", "replicas", "wait_s", "named"),
    [
        (16.0, 4, 0.5, True),
        (13.0, 4, 0.5, True),
        (100.0, 60, 0.5, True),  # 50 tasks at most
        (85.0, 4, 0.5, False),
        (16.0, 4, 0.025, False),
        (0.0, 0, 0.5, False),
        (16.0, 4, None, False),
    ],
)
def test_a_rate_that_is_the_router_s(
    rate: float, replicas: int, wait_s: float | None, named: bool
) -> None:
    """2 tasks a replica, each of which gives a request in 0.5 s."""
    assert (router_words(rate, replicas, wait_s) is not None) is named


@pytest.mark.parametrize(
    ("env", "wait_s"),
    [
        ({}, 0.5),
        ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "0.025"}, 0.025),
        ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "none"}, None),
        ({"RAY_SERVE_ENABLE_HA_PROXY": "1"}, None),
        ({"RAY_SERVE_ENABLE_HA_PROXY": "0"}, 0.5),
    ],
)
def test_the_wait_of_the_router_is_that_of_the_launch(
    env: dict[str, str], wait_s: float | None
) -> None:
    other = records.launch("other")
    one = replace(other, variant=VariantUsed("mine", env=env))
    assert router_wait_s([other, one], "mine") == wait_s
    assert router_wait_s([one], "none") is None
