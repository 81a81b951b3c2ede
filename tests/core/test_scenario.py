"""The plan: order, keys, and what is left of it."""

from __future__ import annotations

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.core.plan import expected_s, label_of, parse_row, plan, without
from serve_bench.core.result import Traffic
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.store.files import read_toml, suite_file


def suite_with(**overrides: object):  # type: ignore[no-untyped-def]
    return read_suite(read_toml(suite_file("micro")), "micro.toml", Overrides(**overrides))  # type: ignore[arg-type]


def test_two_variants_make_36_trials_on_two_clusters() -> None:
    launches = plan(suite_with(variants=("default", "optimized")))
    assert [launch.variant.name for launch in launches] == ["default", "optimized"]
    keys = [trial.key for launch in launches for _, trials in launch.cells for trial in trials]
    assert len(keys) == len(set(keys)) == 36
    assert keys[0] == "default/r1/bs1-ongoing1-rep1/single-client"


def test_later_rounds_keep_the_cells_in_another_order_which_is_always_the_same() -> None:
    suite = suite_with(launches=3)
    orders = [[label_of(cell) for cell, _ in launch.cells] for launch in plan(suite)]
    again = [[label_of(cell) for cell, _ in launch.cells] for launch in plan(suite)]
    assert orders == again
    assert orders[0] == [label_of(cell) for cell in suite.cells]
    assert orders[1] != orders[0] and orders[2] not in orders[:2]
    for order in orders[1:]:
        assert sorted(map(str, order)) == sorted(map(str, orders[0]))


def test_of_two_cells_each_comes_first_as_often() -> None:
    suite = suite_with(matrix={"num_replicas": (1, 2)}, launches=4)
    firsts = [launch.cells[0][0]["num_replicas"] for launch in plan(suite)]
    assert sorted(firsts) == [1, 1, 2, 2] and firsts[:2] == [1, 2]


def test_variants_take_turns_within_a_round() -> None:
    launches = plan(suite_with(variants=("default", "optimized"), launches=2))
    turns = [(launch.round, launch.variant.name) for launch in launches]
    assert turns == [(round_, name) for round_ in (1, 2) for name in ("default", "optimized")]


def test_what_is_measured_is_left_out_with_the_clusters_that_only_it_needed() -> None:
    launches = plan(suite_with(variants=("default", "optimized")))
    done = [trial.key for _, trials in launches[0].cells for trial in trials]
    rest = without(launches, [*done, "optimized/r1/bs1-ongoing1-rep1/8-clients"])
    assert [launch.variant.name for launch in rest] == ["optimized"]
    labels = [trial.row.label for trial in rest[0].cells[0][1]]
    assert labels == ["single client", "100 connections"]
    assert without(launches, done + [t.key for _, ts in launches[1].cells for t in ts]) == ()


def test_a_cell_is_named_by_the_published_axes_and_what_differs_from_the_default() -> None:
    plain, other = suite_with(), suite_with(settings={"body_type": "str"})
    published = ("max_batch_size", "max_ongoing_requests", "num_replicas")
    assert list(label_of(plain.cells[0]).items()) == [(name, 1) for name in published]
    assert label_of(other.cells[0])["body_type"] == "str"


@pytest.mark.parametrize(
    ("text", "label", "client", "connections"),
    [
        ("1", "single client", "aiohttp", 1),
        ("8", "8 clients", "aiohttp", 8),
        ("aiohttp:3", "3 clients", "aiohttp", 3),
        ("raw:1", "1 connection", "raw", 1),
        ("raw:100", "100 connections", "raw", 100),
    ],
)
def test_a_row_is_read(text: str, label: str, client: str, connections: int) -> None:
    row = parse_row(text, Traffic(), "--clients")
    assert (row.label, row.client, row.connections) == (label, client, connections)
    for wrong in ("", "0", "raw:", "-1", "1.5", "raw:999999", "٣"):
        with pytest.raises(BadInput, match="--clients"):
            parse_row(wrong, Traffic(), "--clients")


def test_the_expected_time_holds_all_windows_and_grows_with_clusters() -> None:
    suite = suite_with()
    one = expected_s(suite, plan(suite))
    two = expected_s(suite, plan(suite_with(launches=2)))
    assert one > 18 * 10
    assert two > 1.9 * one
