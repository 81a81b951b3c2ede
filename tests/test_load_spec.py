"""Load, Request and Timing: what is refused, in one line, and the way through JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from serve_bench.load_spec import Load, Request, SpecError, Stage, Timing

URL = "http://127.0.0.1:8000/noop"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"url": "ftp://host/"}, "unknown scheme 'ftp'.*http://, https://"),
        ({"url": "127.0.0.1:8000"}, "unknown scheme"),
        ({"url": "http:///path"}, "no host"),
        ({"url": "http://host:99999/"}, "bad port"),
        ({"url": "http://host:0/"}, "port 0"),
        ({"url": "http://host/a b"}, "percent-encode"),
        ({"method": "get"}, "capital letters"),
        ({"headers": (("Bad Name", "x"),)}, "header name"),
        ({"headers": (("X", "a\r\nInjected: 1"),)}, "line end"),
        ({"draw": "shuffle"}, "cycle or random"),
        ({"expect_status": (99,)}, "200 to 599"),
    ],
)
def test_bad_requests_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as caught:
        Request(**({"url": URL} | options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"client": "curl"}, "raw, aiohttp, wrk, ab"),
        ({"connections": 0}, "connections must be 1 or more"),
        ({"connections": 2, "processes": 3}, r"processes must be 1 to .*\(2\)"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": 4000}, "at most 1800"),
        ({"connect_timeout_s": math.nan}, "connect_timeout_s"),
        ({"retries": -1}, "retries"),
        ({"arrivals": "bursty"}, "constant, poisson"),
        ({"rate": 0}, "rate must be a number above 0"),
        ({"rate": -5.0}, "rate must be a number above 0"),
        ({"rate": math.inf}, "rate must be a number above 0"),
        ({"rate": 5.0, "stages": (Stage(1, 1),)}, "exclude each other"),
        ({"ramp": True}, "ramp needs stages"),
        ({"connections": 10, "count": 9}, r"at least the number of connections \(10\)"),
        ({"max_connections": 5}, "max_connections is for an open loop"),
        ({"rate": 1.0, "connections": 9, "max_connections": 5}, "at least connections"),
        ({"spin": True}, "spin is for an open loop"),
        ({"pickup_every": -1}, "pickup_every"),
        ({"client": "wrk", "rate": 1.0}, "no open loop"),
    ],
)
def test_bad_loads_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as caught:
        Load(Request(URL), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"windows": 0}, "windows must be 1"),
        ({"window_s": 0.001}, "window_s must be 0.01"),
        ({"warmup_min_s": -1.0}, "warmup_min_s"),
        ({"warmup_min_s": 9.0}, r"warmup_max_s \(5\) is below"),
        ({"drain_s": math.inf}, "drain_s"),
    ],
)
def test_bad_timings_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        Timing(**options)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, math.nan])
def test_bad_stages_are_refused(duration_s: float) -> None:
    with pytest.raises(SpecError, match="duration_s"):
        Stage(10.0, duration_s)


def test_a_load_survives_json() -> None:
    request = Request(
        "https://[::1]:8443/x?y=1",
        method="POST",
        headers=(("Authorization", "Bearer abc"),),
        bodies=(b"\x00\xff", b"two"),
        draw="random",
        expect_status=(200, 404),
        expect_body=b"\x01",
    )
    stages = (Stage(10.0, 1.0), Stage(20.0, 2.0))
    load = Load(request, connections=4, stages=stages, ramp=True, count=8, max_connections=9)
    assert Load.from_json(json.loads(json.dumps(load.to_json()))) == load


def test_a_url_is_read_as_a_client_would() -> None:
    assert (Request("http://h/").port, Request("https://h/").port) == (80, 443)
    six = Request("http://[::1]:81/")
    assert (six.host, six.port, six.scheme) == ("::1", 81, "http")


def test_a_rate_is_one_stage_without_an_end() -> None:
    assert not Load(Request(URL)).open_loop
    load = Load(Request(URL), rate=50.0)
    assert load.open_loop and [stage.rate for stage in load.schedule] == [50.0]
