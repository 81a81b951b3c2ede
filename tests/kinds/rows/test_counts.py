"""What replicas counted: files as an app writes them, what grew, and how a report tells it."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from serve_bench.benchmarks.parts.inside import served_facts
from serve_bench.benchmarks.parts.perf_metrics import perf_metrics
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Trial, result_of
from serve_bench.core.usage import BATCH_SIZE, ReplicaCounts, ReplicaRequests, counts_of, grown
from tests.records import cell, launch, planned, run, trial


def test_a_file_holds_requests_and_then_batches_by_size() -> None:
    content = struct.pack("=5Q", 70, 10, 0, 20, 0)
    assert counts_of(content) == ReplicaCounts(70, {1: 10, 3: 20})
    assert counts_of(content + b"\1\2\3") == ReplicaCounts(70, {1: 10, 3: 20})
    assert counts_of(b"") == ReplicaCounts(0, {})


def test_what_grew_names_replicas_that_took_nothing_but_none_of_an_earlier_cell() -> None:
    before = {1: ReplicaCounts(5, {2: 1}), 2: ReplicaCounts(7), 3: ReplicaCounts(9, {4: 2})}
    after = {
        1: ReplicaCounts(15, {2: 4, 8: 1}),
        2: ReplicaCounts(7),
        3: ReplicaCounts(9, {4: 2}),
        4: ReplicaCounts(3, {1: 3}),
    }
    found = grown(before, after, replicas=[1, 2])
    assert found.requests == {1: 10, 2: 0, 4: 3}  # 3 is of an earlier cell, 4 came and ended
    assert found.batches == {1: 3, 2: 3, 8: 1}
    assert found.by_replica == {"replica 1": 10, "replica 2": 0, "replica 4": 3}


def test_an_app_that_does_not_count_leaves_nothing_rather_than_zero() -> None:
    found = grown({}, {}, replicas=[1, 2])
    assert found == ReplicaRequests() and found.by_replica == {} and found.batch_sizes is None


def test_sizes_are_kept_exactly() -> None:
    metric = ReplicaRequests({}, {1: 5, 16: 10, 1000: 2}).batch_sizes
    assert metric is not None and metric.unit == "requests" and metric.histogram is not None
    read = Histogram.decode(metric.histogram)
    assert (read.count, read.max, read.unit) == (17, 1000, "requests")
    assert read.mean == pytest.approx((5 + 160 + 2000) / 17)


def row(sizes: dict[int, int], served: dict[str, int], most: int = 16) -> Trial:
    metric = ReplicaRequests({}, sizes).batch_sizes
    made = replace(trial(planned(of=cell(most))), served=served)
    return made if metric is None else replace(made, metrics={**made.metrics, BATCH_SIZE: metric})


def test_batches_are_told_by_mean_and_by_how_many_were_single_and_full() -> None:
    (said,) = served_facts([row({1: 10, 4: 20, 7: 10, 16: 60}, {})], 16)
    assert said == (
        "batches: mean size 11.20 of 16, 100 in all: 10 % of 1, 30 % of 2 to 7, 60 % of 16"
    )
    two = served_facts([row({1: 1, 2: 3}, {}), row({2: 4}, {})], 2)  # two launches
    assert two == ("batches: mean size 1.88 of 2, 8 in all: 12 % of 1, 88 % of 2",)


def test_an_uneven_spread_is_told_and_a_usual_one_is_not() -> None:
    assert served_facts([row({}, {"replica 1": 500, "replica 2": 600})], 1) == ()
    assert served_facts([row({}, {"replica 1": 3, "replica 2": 0})], 1) == ()  # too few to say
    (said,) = served_facts([row({}, {"replica 1": 900, "replica 2": 100})], 1)
    assert said == ("uneven: of 2 replicas the busiest took 90 % of the requests, the idlest 10 %")


def test_batch_sizes_are_no_latency_for_the_release_tooling() -> None:
    told = perf_metrics(result_of([run(planned(of=cell(16))), launch(), row({8: 100}, {})]))
    assert "batch_size" not in told
