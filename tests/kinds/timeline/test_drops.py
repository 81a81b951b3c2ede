"""Answers that drop while requests wait: what is called so, and what is not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from serve_bench.analysis.course import ReplicaCount, ReplicaLine
from serve_bench.benchmarks.timeline.lens import describe_stop, has_own_router
from serve_bench.core.facts import CourseFacts, ReplicaChange
from serve_bench.core.result import result_of
from serve_bench.core.schema import built
from tests.cases import cases
from tests.records import planned, run, trial

IN, OUT = [False] * 10, [True] * 20


def launch(ended: list[int], waiting: int = 500, fewer: int = 4) -> Any:
    """Of 4 replicas, of which `fewer` run from second 10 on."""
    counts = (ReplicaCount(0.0, 4, 0, 4, 0), ReplicaCount(10.0, 4, 4 - fewer, fewer, 0))
    seconds = len(ended)
    state = {"at_s": 0.0, "wanted": 4, "starting": 0, "running": 4, "draining": 0}
    course = CourseFacts(
        ended=tuple(ended),
        waiting=tuple(waiting if at >= 10 else 0 for at in range(seconds)),
        changes=(built(ReplicaChange, {**state, "deployment": "default:Shop"}, "change"),),
    )
    loaded = replace(trial(planned()), course=course, metrics={})
    return loaded, SimpleNamespace(out=(*IN, *OUT), replicas=ReplicaLine("Shop", counts))


ENDED = [20] * 10 + [85] * 8 + [16] * 12  # so Serve's router answered after an overload


@cases("rate, wait_s, named", (16, 0.5, True), (16, 0.025, False), (24, 0.5, False))
def test_a_queue_that_does_not_drain(rate: int, wait_s: float, named: bool) -> None:
    """The router's wait fits the rate: 2 tasks for each of 4 replicas, a request each 0.5 s."""
    text = describe_stop([launch(ENDED[:-12] + [rate] * 12)], wait_s)
    assert text.startswith(f"in 11 s from second 19 on, {rate} answers/s come while requests wait")
    assert "at most 4 replicas gave 85/s before: the replicas are not the limit" in text
    assert ("16/s fits what Serve's router gives once requests queue" in text) == named


@cases(
    "ended, waiting, running",
    ([100] * 10 + [60] * 20, 500, 4),  # more than half as many
    ([100] * 10 + [0, 163, 5, 206, 9] * 4, 500, 4),  # bursts
    ([100] * 26 + [10] * 4, 500, 4),  # a pause
    ([100] * 10 + [10] * 20, 20, 4),  # hardly one waits: few are due
    ([200] * 10 + [50] * 20, 500, 1),  # by fewer replicas
)
def test_what_is_no_drop(ended: list[int], waiting: int, running: int) -> None:
    assert not describe_stop([launch(ended, waiting, running)], None)


@cases(
    "cell, tables, different",
    ({}, {"user_config": {}}, False),
    ({"Shop.request_router_config.max_backoff_s": 0.025}, {}, True),
    ({}, {"request_router_config": {"max_backoff_s": 0.025}}, True),
)
def test_a_router_of_its_own(cell: dict[str, Any], tables: dict[str, Any], different: bool) -> None:
    suite = {"app": {"deployments": [{"name": "Shop", "tables": tables}]}}
    assert has_own_router(result_of([replace(run(), suite=suite)]), cell) is different
