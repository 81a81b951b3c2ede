import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from serve_bench.analysis.statistics import MAIN, Line, Value
from serve_bench.benchmarks.micro.lens import _payload
from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.cli.experiment import check_load
from serve_bench.core.app_spec import AppSpec, deploy_spec, own_spec
from serve_bench.core.capacity import closed_row, probe_row
from serve_bench.core.errors import BadInput
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_spec import LoadOn, Streaming
from serve_bench.core.own_app import Asked, MethodKind, OwnApp, OwnDeployment, OwnGrpc
from serve_bench.core.plan import (
    TRIAL_S,
    Suite,
    bytes_value,
    expected_trial_s,
    load_of,
    plan,
    rows_of,
    timing_of,
)
from serve_bench.core.result import Metric, PlannedTrial, Trial, result_of
from serve_bench.core.row_places import MetricNames
from serve_bench.core.traffic import Traffic
from serve_bench.spec.suite import Around
from serve_bench.store.files import read_toml, suite_file
from tests.cases import cases, refusal
from tests.records import launch, run, trial
from tests.suites import suite_with

URL = "http://127.0.0.1:8000"


def suite(load: dict[str, Any] | None = None, user: AppSpec | None = None, **flags: Any) -> Suite:
    return suite_with({"load": load or {}}, "a.toml", Around(app=user), **flags)


def own_app() -> OwnApp:
    return OwnApp("x:app", "x:app", "", (OwnDeployment("D", 1),), (), Asked("/chat"))


def labels(made: Suite) -> list[str]:
    return [row.label for row in made.rows]


QUOTE = Asked("/", "POST", (("content-type", "application/json"),), b"{}", call="quote")
CALLED = replace(own_app(), asked=QUOTE, config={"name": "my app"}, calls={"quote": False})
HANDLED = own_spec(CALLED)
TWO = {"clients": ["raw:2"]}
METHOD: dict[str, MethodKind] = {"/a.B/C": "unary-stream"}
SERVICED = own_spec(
    replace(own_app(), asked=Asked("/a.B/C", "POST"), grpc=OwnGrpc(("b.add",), METHOD))
)


def test_each_protocol_and_number_of_events_makes_rows() -> None:
    made = suite({"protocol": ["http", "stream"], "stream_events": [1, 100], "clients": ["raw:8"]})
    streams = ["8 connections, stream of 1", "8 connections, stream of 100"]
    assert labels(made) == ["8 connections", *streams]
    assert made.streaming == Streaming()
    http, stream, _ = made.rows
    assert (http.traffic, stream.traffic) == (Traffic(), Traffic("small", "stream", 1))
    loads = [load_of(made, row, URL, made.cells[0]) for row in (http, stream)]
    assert [load.streaming for load in loads] == [None, Streaming()]
    assert [load.request.expect_body for load in loads] == [b"ok", None]
    assert loads[1].request.url == f"{URL}/noop?events=1"
    # Flags go before the file, and rows of the file get the raw client.
    made = suite({"protocol": "http"}, protocol=["stream"], stream_events=[3])
    clients = ["1 connection", "8 connections", "100 connections"]
    assert labels(made) == [f"{client}, stream of 3" for client in clients]
    assert {row.client for row in made.rows} == {"raw"}
    assert len(made.cells) == 1  # an axis of the load makes no cell


def test_how_streams_are_read_is_of_the_file_or_the_flags() -> None:
    load = {"protocol": "stream", "events": "lines", "event_timeout": "250ms"}
    assert suite(load).streaming == Streaming("lines", 0.25)
    assert suite(load, events="chunks").streaming == Streaming("chunks", 0.25)
    assert suite(load, event_timeout="1s").streaming == Streaming("lines", 1.0)
    assert suite({"protocol": "stream"}, slo="ttft_p95=1s").slo == "ttft_p95=1s"
    # Settings of the noop app have an effect.
    cells = [{"body_type": "str"}, {"event_gap_ms": 5.0}]
    rows = [
        {"client": "raw:1", "cells": {"body_type": "str"}},
        {"client": "raw:1", "protocol": "stream", "cells": {"event_gap_ms": 5.0}},
    ]
    made = suite_with({"cells": cells, "rows": rows}, "a.toml")
    protocols = [[row.protocol for row in made.rows_in(cell)] for cell in made.cells]
    assert protocols == [["http"], ["stream"]]
    # A growing load and a search keep the traffic.
    made = suite(users="1,5", protocol="stream")
    assert [row.label for row in rows_of(made)] == ["1 user, stream of 10", "5 users, stream of 10"]
    assert Suite.from_json(made.to_json()) == made
    traffic = Traffic("small", "stream", 10)
    for row in (closed_row(4, traffic), probe_row(1, 9.0, 4, traffic)):
        assert row.traffic == traffic


def test_an_app_of_ones_own_has_its_own_streams_and_one_protocol_of_grpc() -> None:
    made = suite({"protocol": "stream", "clients": ["raw:2"]}, user=own_spec(own_app()))
    (row,) = made.rows
    assert (row.label, row.stream_events) == ("2 connections, stream", None)
    assert load_of(made, row, URL, {}).request.url == f"{URL}/chat"
    made = suite({"protocol": "grpc-stream", "clients": ["raw:2"]}, user=SERVICED)
    (row,) = made.rows
    assert (row.label, row.client) == ("2 connections, grpc-stream", "grpc")
    load = load_of(made, row, URL, {})
    assert (load.client, load.streaming) == ("grpc", Streaming())
    assert load.request.headers == (("application", "default"),)


def test_a_suite_of_rows_without_names_has_the_usual_metrics() -> None:
    made = suite_with({"rows": [{"client": "raw:2"}]}, "a.toml")
    ((_, (at,)),) = plan(made)[0].cells
    begun = replace(run(at), suite=made.to_json())
    content = json.loads(perf_metrics(result_of([begun, launch(), measured(at)])))
    names = {perf_metric["perf_metric_name"] for perf_metric in content["perf_metrics"]}
    assert "default_bs1_ongoing10000_rep1_2_connections_latency_p50_ms" in names


@cases(
    "load, flags, message",
    ({"protocol": "handle"}, {"clients": ["8"]}, "--clients: '8': the aiohttp client speaks"),
    ({"response_size": [0, 10]}, {"matrix": {"body_type": ("str",)}}, "rows of response of 10 B"),
    ({"response_size": "echo"}, {}, "load.response_size: echo: needs request bodies: set"),
    ({"response_size": "echo"}, {"app": "recsys"}, "echo: is for the app noop"),
    ({"stream_events": 3}, {}, "a.toml: load.stream_events: is for streams of the app noop"),
    ({"events": "sse"}, {}, "a.toml: load.events: goes with the protocol stream"),
    ({"protocol": "grpc-stream", "events": "lines"}, {}, "lines: of grpc-stream each message"),
    ({"protocol": "stream"}, {"app": "recsys"}, "stream: is for the app noop; recsys has http"),
    ({"protocol": "grpc", "users": [1], "requests_per_client": 5}, {}, "requests_per_client"),
    ({"protocol": ["http", "stream"]}, {"users": "auto"}, "a load that grows takes one"),
    ({"protocol": ["http", "stream"]}, {"slo": "ttft_p95=1s"}, "--slo: ttft_p95: is measured of"),
    ({}, {"cell": {"event_gap_ms": 5.0}}, "event_gap_ms: is for rows of streams"),
    ({"protocol": "grpc", **TWO}, {"user": own_spec(own_app())}, "grpc: is of apps with a serv"),
    ({"protocol": ["http", "handle"]}, {"user": HANDLED}, "handle stands alone"),
)
def test_bad_protocols(load: dict[str, Any], flags: dict[str, Any], message: str) -> None:
    assert message in refusal(suite, load, **flags)


def test_a_row_of_a_handle_is_a_call_in_the_cluster() -> None:
    sizes = {"data_size": 20, "response_size": ["small", "7"], "clients": ["raw:2"]}
    made = suite({"protocol": ["handle", "handle-stream"], "stream_events": 3, **sizes})
    kinds = ["handle", "handle, response of 7 B", "handle-stream of 3"]
    assert labels(made) == [f"2 callers, {kind}" for kind in kinds]
    assert {row.client for row in made.rows} == {"handle"}
    loads = [load_of(made, row, "http://127.0.0.1:6379", made.cells[0]) for row in made.rows]
    paths = [urlsplit(load.request.url).path for load in loads]
    assert paths == ["/noop/answer", "/noop/answer", "/noop/events"]
    assert [load.request.body.rstrip(b"\0") for load in loads] == [b"", b"bytes=7", b"events=3"]
    assert {len(load.request.body) for load in loads} == {20}
    assert [load.request.expect_body for load in loads] == [b"ok", None, None]


def test_an_echo_has_the_body_of_its_request_by_every_protocol() -> None:
    sizes = {"data_size": [20, 70_000], "response_size": ["echo", "7"], "clients": ["raw:2"]}
    protocols = ["http", "stream", "grpc", "grpc-stream", "handle"]
    made = suite({"protocol": protocols, "stream_events": 3, **sizes})
    rows = [row for row in made.rows if row.traffic.echoes]
    assert [row.label.removesuffix("echo of 20 B").strip(", ") for row in rows[:5]] == [
        *("2 connections", "2 connections, stream of 3", "2 connections, grpc"),
        *("2 connections, grpc-stream of 3", "2 callers, handle"),
    ]
    million = {MAIN: Value(1e6)}  # requests/s
    lines = [Line("", {}, row, (), (), "measured", spreads=million) for row in rows[:5]]
    assert [_payload(line) for line in lines] == [40, 80, 40, 80, 40]
    assert len({row.label for row in made.rows}) == len(made.rows) == 20
    requests = [load_of(made, row, "http://a", made.cells[0]).request for row in rows]
    assert [urlsplit(sent.url).query for sent in requests[:2]] == ["echo=1", "events=3&echo=1"]
    assert [request.method for request in requests[:2]] == ["POST", "POST"]
    message, stream = b"echo=1".ljust(20, b"\0"), b"events=3&echo=1".ljust(20, b"\0")
    bodies = [bytes_value(message), bytes_value(stream), message]
    assert [request.body for request in requests[2:5]] == bodies
    assert [request.expect_body for request in requests[:5]] == [
        *(b"a" * 20, None, bytes_value(message), None, message)
    ]
    assert not any(request.expect_body for request in requests[5:])


def test_a_handle_is_of_a_cluster_of_this_interpreter_and_this_host() -> None:
    other = {"variant": "other", "variants": {"other": {"python": "/usr/bin/python3"}}}
    handle = {"load": {"protocol": "handle"}}
    said = refusal(suite_with, handle | other, "a.toml")
    assert "protocol: handle: the load is a driver of Ray in this" in said
    from_nodes = replace(suite(handle["load"]), load_on=LoadOn())
    assert "--load-on: the load of a handle" in refusal(check_load, from_nodes, None)


def test_a_handle_of_an_app_of_ones_own_calls_one_method() -> None:
    CALLED.check_call("handle")
    for calls, said in (
        ({"best": False}, "--call: quote is no method of the ingress; it has best"),
        ({"quote": True}, "quote makes a stream: it is handle-stream"),
    ):
        assert said in refusal(replace(CALLED, calls=calls).check_call, "handle")
    made = suite({"protocol": "handle", "clients": ["raw:2"]}, user=HANDLED)
    request = load_of(made, made.rows[0], "http://127.0.0.1:6379", {}).request
    assert request.url == "http://127.0.0.1:6379/my%20app/quote"
    assert (request.body, request.headers) == (b"{}", QUOTE.headers)
    assert deploy_spec(made.app, made.cells[0])["ready"] is None
    assert Asked.from_json(QUOTE.to_json()).body == b""  # to be shown, not to be sent
    assert Asked.from_json(Asked(call="x").to_json()) == Asked(call="x")


def of_rows(*rows: dict[str, Any], load: dict[str, Any] | None = None, **flags: Any) -> Suite:
    cells = [{"max_ongoing_requests": 5}, {"max_ongoing_requests": 9}]
    data = {"load": load or {}, "cells": cells, "rows": list(rows)}
    return suite_with(data, "a.toml", **flags)


FIVE: dict[str, Any] = {"client": "raw:2", "cells": {"max_ongoing_requests": 5}}
NAMED = {**FIVE, "metrics": {"rate": "x"}}


def test_rows_are_measured_where_they_belong() -> None:
    stream = {"client": "raw:3", "protocol": "stream", "window_seconds": 7, "windows": 2}
    nine = {**FIVE, "cells": {"max_ongoing_requests": 9}}
    made = of_rows({**FIVE, "metrics": {"rate": "http"}}, {**FIVE, **stream}, nine)
    (launch,) = plan(made)
    assert [[at.row.label for at in trials] for _, trials in launch.cells] == [
        ["2 connections", "3 connections, stream of 10"],
        ["2 connections"],
    ]
    assert [made.windows_of(row) for row in made.rows] == [(10, 1.0), (2, 7.0)]
    assert (timing_of(made, made.rows[1]).windows, timing_of(made, made.rows[1]).window_s) == (2, 7)
    assert expected_trial_s(made, made.rows[1]) == 2 * 7 + 0.5 + TRIAL_S
    assert Suite.from_json(made.to_json()) == made
    assert made.places is not None and made.places[0].metrics == MetricNames(rate="http")


@cases(
    "rows, flags, message",
    ([{**FIVE, "users": 3}], {}, "a.toml: rows[1]: unknown key 'users'"),
    ([{**FIVE, "protocol": ["http", "grpc"]}], {}, "rows[1]: is one row; it takes one value"),
    ([{**FIVE, "metrics": {"p50": "x"}}], {}, "rows[1].metrics: unknown key 'p50'"),
    ([{**FIVE, "cells": {"num_replicas": 3}}], {}, "rows[1].cells: no cell of the suite is so"),
    ([FIVE], {}, "a.toml: cells: bs1-ongoing9-rep1 has no row"),
    ([FIVE], {"clients": ["raw:1"]}, "--clients: the suite a.toml has cells and rows of its"),
    ([], {}, "a.toml: rows: at least one is needed"),
    ([FIVE, {**FIVE, "windows": 3}], {}, "rows[2]: 2 connections has other windows before"),
    ([FIVE, FIVE], {}, "rows[2]: 2 connections is given twice for these cells"),
    ([{"client": "raw:1", "metrics": {"rate": "x"}}], {}, "metrics: several cells have this"),
    ([{**FIVE, "metrics": {"events": "x"}}], {}, "metrics: gaps and events are of streams"),
    ([{**FIVE, "metrics": {"rate": "x", "suffix": "y"}}], {}, "gaps and suffix go together"),
    ([{**FIVE, "metrics": {"rate": "a b"}}], {}, "metrics.rate: 'a b' is not allowed"),
    ([NAMED, {**NAMED, "client": "raw:3"}], {}, "rows[2].metrics: x rate is the name of a"),
)
def test_bad_rows(rows: list[dict[str, Any]], flags: dict[str, Any], message: str) -> None:
    assert message in refusal(of_rows, *rows, **flags)
    with pytest.raises(BadInput, match=r"a.toml: load.clients: belongs to each of \[\[rows\]\]"):
        of_rows(FIVE, load={"clients": ["raw:1"]})


def in_ray() -> set[str]:
    """List the metrics of Ray's microbenchmarks.py (2026-11-26), but two that it leaves out."""
    names = set()
    for protocol in ("http", "grpc", "handle"):
        for size in ("", "_1mb", "_10mb"):
            names |= {f"{protocol}{size}_{p}_latency" for p in ("p50", "p90", "p95", "p99")}
        for app in ("", "_model_comp"):
            for most in ("", "_100_max_ongoing_requests", "_800_max_ongoing_requests"):
                name = f"{protocol}{app}{most}"
                names |= {f"{name}_avg_rps", f"{name}_throughput_std"}
    for name in ("http_streaming", "http_intermediate_streaming", "handle_streaming"):
        names |= {f"{name}_avg_tps", f"{name}_throughput_std"}
        names |= {f"{name}_{p}_latency" for p in ("p50", "p90", "p95", "p99")}
        for users in ("bs1", "bs64"):
            names |= {f"{name}_ttft_{p}_{users}" for p in ("p50", "p90", "p95", "p99")}
            names |= {f"{name}_inter_token_{p}_{users}" for p in ("p50", "p90", "p99", "p999")}
    return names


def measured(at: PlannedTrial) -> Trial:
    """Make a trial with every figure: 5 requests/s, 100 events/s, all times 2 ms."""
    times = Metric("ns", "lower", histogram=Histogram.of([2_000_000] * 50).encode())
    metrics = {name: times for name in ("latency", "ttft", "itl")}
    metrics["throughput"] = Metric("requests/s", "higher", windows=(4.0, 6.0))
    metrics["events"] = Metric("events/s", "higher", windows=(100.0, 100.0))
    return replace(trial(at), metrics=metrics)


def test_the_suite_of_rays_microbenchmark_has_its_names() -> None:
    file = suite_file("ray_microbenchmarks")
    made = suite_with(read_toml(file), file.name)
    (launch_,) = plan(made)
    trials = [measured(at) for _, rows in launch_.cells for at in rows]
    assert len(trials) == 36
    begun = replace(run(*(at for _, rows in launch_.cells for at in rows)), suite=made.to_json())
    content = json.loads(perf_metrics(result_of([begun, launch(), *trials])))
    values = {row["perf_metric_name"]: row["perf_metric_value"] for row in content["perf_metrics"]}
    assert set(values) == in_ray() and len(values) == len(content["perf_metrics"])
    assert values["grpc_model_comp_100_max_ongoing_requests_avg_rps"] == 5.0
    assert values["grpc_model_comp_100_max_ongoing_requests_throughput_std"] == 1.0
    assert values["http_streaming_avg_tps"] == 100.0
    assert values["handle_10mb_p95_latency"] == pytest.approx(2.0, rel=0.01)
    other = [replace(trial, variant="other", key=f"o{trial.key}") for trial in trials]
    both = json.loads(perf_metrics(result_of([begun, launch(), *trials, *other])))
    named = {perf_metric["perf_metric_name"] for perf_metric in both["perf_metrics"]}
    assert named == {f"{variant}_{name}" for variant in ("default", "other") for name in in_ray()}
