"""A load dealt out to several nodes: nothing is lost, nothing is added."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.load_spec import Load, Stage
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.runner.load_source import parts_of

ASKED = Request(url="http://127.0.0.1:1/")


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 5000))
def test_connections_and_requests_are_dealt_out_whole(
    connections: int, nodes: int, more: int
) -> None:
    load = Load(ASKED, connections=connections, count=connections + more)
    parts = parts_of(load, nodes)
    assert len(parts) == min(nodes, connections)
    assert sum(part.connections for part in parts) == connections
    assert sum(part.count or 0 for part in parts) == connections + more
    sizes = [part.connections for part in parts]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


def test_rates_add_up_and_each_node_draws_for_itself() -> None:
    parts = parts_of(Load(ASKED, connections=9, rate=300.0, arrivals="poisson", seed=5), 3)
    assert [part.rate for part in parts] == [100.0] * 3
    assert [part.seed for part in parts] == [5, 6, 7]
    staged = Load(ASKED, connections=4, stages=(Stage(100, 1), Stage(50, 2)), ramp=True)
    assert [part.stages for part in parts_of(staged, 2)] == [(Stage(50, 1), Stage(25, 2))] * 2


@pytest.mark.parametrize(
    ("fields", "nodes", "name", "dealt"),
    [
        ({"connections": 4, "rate": 10.0, "max_connections": 7}, 3, "max_connections", [3, 2, 2]),
        ({"connections": 8, "processes": 4}, 2, "processes", [2, 2]),
        ({"connections": 8, "processes": 1}, 2, "processes", [1, 1]),
        ({"connections": 8, "each": 20}, 2, "each", [20, 20]),
        ({"connections": 8, "timeout_s": 3.0}, 2, "timeout_s", [3.0, 3.0]),
        ({"connections": 2}, 5, "connections", [1, 1]),
    ],
)
def test_each_part_is_a_load_of_its_own(
    fields: dict[str, Any], nodes: int, name: str, dealt: list[object]
) -> None:
    parts = parts_of(Load(ASKED, **fields), nodes)
    assert [getattr(part, name) for part in parts] == dealt


def test_no_node_is_refused() -> None:
    with pytest.raises(SpecError, match="1 or more nodes"):
        parts_of(Load(ASKED), 0)
