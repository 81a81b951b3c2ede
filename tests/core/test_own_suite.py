"""The suite file of the user's own app, and the suite that comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from serve_bench.benchmarks.own_app.request import parts_of
from serve_bench.core.app_spec import own_spec
from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import OwnApp, OwnDeployment
from serve_bench.core.plan import Suite
from serve_bench.core.suite import Overrides, read_suite
from tests.refused import refusal

APP = own_spec(OwnApp("a:b", "a:b", "/", (OwnDeployment("One", 1),), ("num_replicas", "x")))


def test_a_file_is_taken_apart() -> None:
    serve: dict[str, Any] = {"request_timeout_s": 5, "env": {"OMP_NUM_THREADS": 1}}
    data = {
        "name": "mine",
        "app": "shop.py:app",
        "request": {"route": "/best", "method": "POST", "body": "[1]", "expect_status": [200]},
        "serve": {**serve, "grpc_servicers": "a_pb2_grpc.add_a"},
        "options": {"One.num_replicas": [1, 2], "One.x": 3},
        "load": {"windows": 2},
    }
    parts = parts_of(data, "s.toml")
    assert parts.options == (("One.num_replicas", (1, 2)), ("One.x", (3,)))
    assert (parts.env, parts.request_timeout_s) == ({"OMP_NUM_THREADS": "1"}, 5.0)
    assert parts.request["route"] == "/best" and parts.servicers is not None
    assert parts.servicers.functions == ("a_pb2_grpc.add_a",)
    assert parts.rest == {"name": "mine", "load": {"windows": 2, "clients": ["raw:100"]}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"request": {"rout": "/"}}, "s.toml: request: unknown key 'rout'; did you mean 'route'?"),
        ({"request": {"expect_status": ["a"]}}, "s.toml: request.expect_status[0] is"),
        ({"request": {"body": "a", "body_file": "b"}}, "give body or body_file, not both"),
        ({"serve": {"request_timeout_s": 0}}, "serve.request_timeout_s: 0.0 is not allowed"),
        ({"serve": {"env": {"RAY_ADDRESS": "x"}}}, "RAY_ADDRESS is set by serve-bench itself"),
        ({"options": {"One": {"x": 1}}}, "write 'One' with its option in quotes"),
        ({"options": {"One.x": [[1]]}}, "options: One.x: [1] is not allowed; it takes plain"),
    ],
)
def test_what_is_wrong_with_a_file(data: dict[str, Any], says: str) -> None:
    assert says in refusal(parts_of, data, "s.toml")


def test_all_combinations_and_replicas_change_last() -> None:
    options = {"One.num_replicas": (1, 2), "One.x": (3, 4)}
    rest = parts_of({}, "s.toml").rest
    suite = read_suite(rest, "s.toml", Overrides(own=APP, options=options))
    assert suite.cells == (
        {"One.num_replicas": 1, "One.x": 3},
        {"One.num_replicas": 2, "One.x": 3},
        {"One.num_replicas": 1, "One.x": 4},
        {"One.num_replicas": 2, "One.x": 4},
    )
    assert [row.label for row in suite.rows] == ["100 connections"]


def test_without_options_there_is_the_app_as_it_is_and_http_options_go_to_every_variant() -> None:
    options: dict[str, Any] = {"request_timeout_s": 5.0}
    flags = Overrides(own=APP, variants=("default", "optimized"), http_options=options)
    suite = read_suite(parts_of({}, "s").rest, "s", flags)
    assert suite.cells == ({},) and Suite.from_json(suite.to_json()) == suite
    assert [variant.http_options for variant in suite.variants] == [options] * 2


def test_the_axes_and_bodies_of_our_apps_are_none_of_it() -> None:
    for key in ("cell", "cells", "matrix"):
        with pytest.raises(BadInput, match=f"s: {key} is for the apps that come with the tool"):
            read_suite({key: {}}, "s", Overrides(own=APP))
    with pytest.raises(BadInput, match="the app a:b has a body of its own"):
        read_suite({"load": {"data_size": "large"}}, "s", Overrides(own=APP))
