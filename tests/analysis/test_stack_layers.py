"""Stacks split by the shipped rules, and rules that are wrong."""

from __future__ import annotations

import pytest

from serve_bench.analysis.stacks import (
    IDLE,
    OTHER,
    USER_CODE,
    layer_of,
    layers,
    parse_raw,
    read_rules,
    without,
)
from serve_bench.core.errors import BadInput
from serve_bench.runner.recording import layer_rules

ENTRY = "UserCallableWrapper._call_func_or_gen (ray/serve/_private/replica.py:900)"


@pytest.mark.parametrize(
    ("stack", "layer"),
    [
        ("run (a.py:1);RequestResponseCycle.send (uvicorn/protocols/http/h.py:9)", "HTTP server"),
        (f"{ENTRY};__call__ (app.py:3);hot (app.py:9)", USER_CODE),
        (f"{ENTRY};__call__ (app.py:3);dumps (json/__init__.py:9)", USER_CODE),
        (f"{ENTRY};matmul (numpy/core.py:3)", USER_CODE),
        (f"{ENTRY};Response.render (starlette/responses.py:3)", "HTTP server"),
        ("main (app.py:3);hot (app.py:9)", OTHER),
        ("f (ray/serve/_private/replica.py:1);dumps (json/__init__.py:9)", "Serve replica"),
        ("f (ray/serve/_private/router.py:1)", "Serve router"),
        ("f (ray/serve/_private/replica.py:1);info (logging/__init__.py:5)", "logging"),
        ("f (ray/serve/_private/replica.py:1);Metric._record (ray/util/metrics.py:5)", "metrics"),
        ("Thread.run (threading.py:9);Condition.wait (threading.py:327)", IDLE),
        ("main (default_worker.py:9);Worker.main_loop (ray/_private/worker.py:1069)", IDLE),
        ("Thread._bootstrap_inner (threading.py:9);Thread.run (threading.py:982)", "event loop"),
        ("f (ray/serve/_private/replica.py:1);take_gil (libpython3.11.so.1.0)", "GIL wait"),
        ("f (ray/serve/_private/proxy.py:1);create_task (asyncio/tasks.py:9)", "event loop"),
        ("f (ray/serve/_private/proxy.py:1);_channel (grpc/_channel.py:9)", "gRPC"),
        ("thread (7): loop", OTHER),
    ],
)
def test_a_stack_belongs_to_the_layer_of_its_innermost_known_frame(stack: str, layer: str) -> None:
    assert layer_of(tuple(stack.split(";")), layer_rules()) == layer


def test_layers_are_shares_of_all_samples_and_idle_can_be_left_out() -> None:
    stacks = parse_raw(
        "a (x.py:1) 30\nf (uvicorn/server.py:1) 50\nr (threading.py:1);wait (threading.py:2) 20\n",
        "x",
    )
    rules = layer_rules()
    assert layers(stacks, rules) == {"HTTP server": 50.0, OTHER: 30.0, IDLE: 20.0}
    assert layers(without(stacks, IDLE, rules), rules) == {"HTTP server": 62.5, OTHER: 37.5}


@pytest.mark.parametrize(
    "table", [{"name": "x"}, {"files": ["a"]}, {"name": "x", "files": ["a"], "fils": ["b"]}]
)
def test_a_wrong_rule_is_named(table: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=r"^mine\.toml: layer 2: it takes name, files"):
        read_rules({"layer": [{"name": "ok", "files": ["a"]}, table]}, "mine.toml")
