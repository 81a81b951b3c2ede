"""Protocols of rows: from a suite file or flags to rows, and from a row to its load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serve_bench.core.app_spec import own_spec
from serve_bench.core.capacity import closed_row, probe_row
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_spec import Streaming
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment, OwnGrpc
from serve_bench.core.plan import Suite, load_of, route_of, rows_of
from serve_bench.core.result import Row, Traffic
from serve_bench.core.suite import Overrides, read_suite

URL = "http://127.0.0.1:8000"


def suite(load: dict[str, Any] | None = None, **flags: Any) -> Suite:
    """A suite file with this load, and flags."""
    return read_suite({"load": load or {}}, "a.toml", Overrides(**flags))


def own_app() -> OwnApp:
    return OwnApp("x:app", "x:app", "", (OwnDeployment("D", 1),), (), Asked("/chat"))


def test_each_protocol_and_number_of_events_makes_rows() -> None:
    made = suite({"protocol": ["http", "stream"], "stream_events": [1, 100], "clients": ["raw:8"]})
    assert [row.label for row in made.rows] == [
        "8 connections",
        "8 connections, stream of 1",
        "8 connections, stream of 100",
    ]
    assert made.streaming == Streaming()
    http, one, _ = made.rows
    assert (http.traffic, one.traffic) == (Traffic(), Traffic("small", "stream", 1))
    assert route_of(made.app, one) == "/noop?events=1"
    loads = [load_of(made, row, URL, made.cells[0]) for row in (http, one)]
    assert [load.streaming for load in loads] == [None, Streaming()]
    assert [load.request.expect_body for load in loads] == [b"ok", None]
    assert loads[1].request.url == f"{URL}/noop?events=1"


def test_flags_go_before_the_file_and_rows_of_the_file_get_the_raw_client() -> None:
    made = suite({"protocol": "http"}, matrix={"protocol": ("stream",), "stream_events": (3,)})
    assert [(row.client, row.label) for row in made.rows] == [
        ("raw", "1 connection, stream of 3"),
        ("raw", "8 connections, stream of 3"),
        ("raw", "100 connections, stream of 3"),
    ]
    assert len(made.cells) == 1  # an axis of the load makes no cell


def test_how_streams_are_read_is_of_the_file_or_the_flags() -> None:
    load = {"protocol": "stream", "events": "lines", "event_timeout_ms": 250}
    assert suite(load).streaming == Streaming("lines", 0.25)
    assert suite(load, events="chunks").streaming == Streaming("chunks", 0.25)
    assert suite(load, event_timeout_s=1.0).streaming == Streaming("lines", 1.0)
    with pytest.raises(BadInput, match="--event-timeout: goes with --protocol stream"):
        suite(event_timeout_s=1.0)
    assert suite({"protocol": "stream"}, slo="ttft_p95=1s").slo == "ttft_p95=1s"
    with pytest.raises(BadInput, match="--slo: ttft_p95: is measured of streams alone"):
        suite({"protocol": ["http", "stream"]}, slo="ttft_p95=1s")


def test_an_app_of_ones_own_streams_what_it_streams() -> None:
    made = read_suite(
        {"load": {"protocol": "stream", "clients": ["raw:2"]}},
        "a.toml",
        Overrides(own=own_spec(own_app())),
    )
    (row,) = made.rows
    assert (row.label, row.stream_events) == ("2 connections, stream", None)
    assert load_of(made, row, URL, {}).request.url == f"{URL}/chat"


def test_an_app_of_ones_own_with_a_servicer_has_one_protocol_of_grpc() -> None:
    grpc = OwnGrpc(("b.add",), {"/a.B/C": "unary-stream"})
    app = own_spec(replace(own_app(), asked=Asked("/a.B/C", "POST"), grpc=grpc))
    made = suite({"protocol": "grpc-stream", "clients": ["raw:2"]}, own=app)
    (row,) = made.rows
    assert (row.label, row.client) == ("2 connections, grpc-stream", "grpc")
    load = load_of(made, row, URL, {})
    assert (load.client, load.streaming) == ("grpc", Streaming())
    assert load.request.headers == (("application", "default"),)
    for protocols, message in (
        (["http", "grpc"], "grpc stands alone: the route names one method"),
        (["grpc", "grpc-stream"], "grpc stands alone"),
    ):
        with pytest.raises(BadInput, match=message):
            suite({"protocol": protocols, "clients": ["raw:2"]}, own=app)
    with pytest.raises(BadInput, match="grpc: is of apps with a servicer"):
        suite({"protocol": "grpc", "clients": ["raw:2"]}, own=own_spec(own_app()))


def test_a_growing_load_and_a_search_keep_the_traffic() -> None:
    made = suite(ladder=Ladder(steps=(1, 5)), settings={"protocol": "stream"})
    assert [row.label for row in rows_of(made)] == ["1 user, stream of 10", "5 users, stream of 10"]
    assert Suite.from_json(made.to_json()) == made
    traffic = Traffic("small", "stream", 10)
    for row in (closed_row(4, traffic), probe_row(1, 9.0, 4, traffic)):
        assert row.traffic == traffic


@pytest.mark.parametrize(
    ("load", "flags", "message"),
    [
        ({"protocol": "soap"}, {}, "a.toml: load.protocol: 'soap' is not allowed"),
        (
            {"protocol": "grpc"},
            {"settings": {"intermediate_handle": True}},
            "intermediate_handle: the forwarding deployment has no gRPC",
        ),
        ({"protocol": ["http", "http"]}, {}, "http is given twice"),
        (
            {"protocol": ["http", "stream"]},
            {"settings": {"body_type": "str"}},
            "--body-type: str has no effect on rows of stream of 10: leave it out",
        ),
        (
            {"response_size": [0, 10]},
            {"matrix": {"body_type": ("response", "str")}},
            "--body-type: str has no effect on rows of response of 10 B: leave it out",
        ),
        (
            {"protocol": "grpc"},
            {"settings": {"body_type": "str"}},
            "--body-type: str has no effect on rows of grpc: leave it out",
        ),
        ({"protocol": []}, {}, "a.toml: load.protocol: at least one value"),
        ({"stream_events": 3}, {}, "a.toml: load.stream_events: is for streams of the app noop"),
        ({"events": "sse"}, {}, 'a.toml: load.events: goes with protocol = "stream"'),
        ({"protocol": "stream", "events": "xml"}, {}, "a.toml: load.events must be one of sse"),
        ({"protocol": "stream", "event_timeout_ms": 0}, {}, "load.event_timeout_ms: 0 is not"),
        (
            {"protocol": "stream"},
            {"clients": ("8",)},
            "--clients: '8': the aiohttp client speaks plain",
        ),
        ({"protocol": "grpc-stream", "events": "lines"}, {}, "lines: of grpc-stream each message"),
        ({"protocol": "stream"}, {"app": "recsys"}, "stream: is for the app noop; recsys has http"),
        (
            {"protocol": "grpc", "users": [1, 2], "requests_per_client": 5},
            {},
            'a.toml: load.requests_per_client: goes with protocol = "http" or "stream"',
        ),
        (
            {},
            {"ladder": Ladder(), "matrix": {"protocol": ("http", "stream")}},
            "a load that grows takes one protocol, size",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(
    load: dict[str, Any], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        suite(load, **flags)
    assert message in str(caught.value)


def test_records_of_before_are_of_plain_http() -> None:
    from serve_bench.core.schema import built

    row = built(Row, {"label": "8 clients", "client": "aiohttp", "connections": 8}, "row")
    assert row.traffic == Traffic() and row.traffic.suffix == ""
