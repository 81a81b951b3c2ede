import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.load_spec import Load, Stage
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.load.failures import LoadError
from serve_bench.runner.load_source import LoadOn, NodeLoads, parts_of, read_load_on
from tests.cases import cases


def test_the_flags_are_read() -> None:
    assert read_load_on(None, None) is None
    assert read_load_on("ray", 3) == LoadOn(None, 3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert read_load_on(address, None) == LoadOn(address, None)


def test_a_cluster_that_is_not_there_is_an_error_of_the_load(tmp_path: Path) -> None:
    place = NodeLoads(LoadOn("127.0.0.1:9", None), "0" * 6, tmp_path / "logs" / "nodes.log")
    with pytest.raises(LoadError, match=r"no Ray cluster at 127\.0\.0\.1:9: connection refused"):
        place.drive()
    place.close()
    assert os.listdir(tmp_path) == []


ASKED = Request(url="http://127.0.0.1:1/")


@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 5000))
def test_connections_are_dealt_out_whole(connections: int, nodes: int, more: int) -> None:
    load = Load(ASKED, connections=connections, count=connections + more)
    parts = parts_of(load, nodes)
    assert len(parts) == min(nodes, connections)
    assert sum(part.connections for part in parts) == connections
    assert sum(part.count or 0 for part in parts) == connections + more
    sizes = [part.connections for part in parts]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


POISSON = {"connections": 9, "rate": 300.0, "arrivals": "poisson", "seed": 5}
STAGES = {"connections": 4, "stages": (Stage(100, 1), Stage(50, 2)), "ramp": True}


@cases(
    "fields, nodes, name, dealt",
    ({"connections": 4, "rate": 10.0, "max_connections": 7}, 3, "max_connections", [3, 2, 2]),
    ({"connections": 8, "processes": 4}, 2, "processes", [2, 2]),
    ({"connections": 8, "processes": 1}, 2, "processes", [1, 1]),
    ({"connections": 8, "each": 20}, 2, "each", [20, 20]),
    ({"connections": 8, "timeout_s": 3.0}, 2, "timeout_s", [3.0, 3.0]),
    ({"connections": 2}, 5, "connections", [1, 1]),
    (POISSON, 3, "rate", [100.0] * 3),
    (POISSON, 3, "seed", [5, 6, 7]),  # each node draws for itself
    (STAGES, 2, "stages", [(Stage(50, 1), Stage(25, 2))] * 2),
)
def test_each_part_is_a_load_of_its_own(
    fields: dict[str, Any], nodes: int, name: str, dealt: list[object]
) -> None:
    parts = parts_of(Load(ASKED, **fields), nodes)
    assert [getattr(part, name) for part in parts] == dealt
    with pytest.raises(SpecError, match="1 or more nodes"):
        parts_of(Load(ASKED), 0)
