import json
import math
from typing import Any

import pytest

from serve_bench.core.load_spec import Load, Stage, Streaming, Timing
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.schema import built, plain
from tests.cases import cases

URL = "http://127.0.0.1:8000/noop"
SECURED = Request("https://h/", unix_socket="s")
CALL, NAMED = (Request("http://h/a.B/C", "POST", named) for named in ((), (("x!y", "a"),)))


@cases(
    "options, line",
    ({"url": "http:///path"}, "no host"),
    ({"url": f"http://{'a' * 64}.com/"}, "1 to 63 characters"),
    ({"url": "http://host/a b"}, "percent-encode"),
    ({"headers": (("Bad Name", "x"),)}, "header name"),
    ({"headers": (("content-length", "3"),)}, "a body is sent with its own Content-Length"),
    ({"methods": ("CONNECT",)}, "and not CONNECT"),
    ({"headers": (("X", "a\r\nInjected: 1"),)}, "line end"),
    ({"header_sets": ((("a", "b\n"),),)}, "a line end in the value"),
    ({"headers": (("transfer-encoding", "chunked"),)}, "not allowed"),
    ({"unix_socket": ""}, "path of 1 to 107 bytes, got 0"),
    ({"unix_socket": "é" * 54}, "path of 1 to 107 bytes, got 108"),
    ({"paths": ("/a b",)}, "paths: a space, control .* in '/a b'; percent-encode it"),
    ({"paths": ("/a\n",)}, r"paths: a space, control .* in '/a\\n'; percent-encode it"),
    ({"paths": ("/a#b",)}, "paths: a # in '/a#b': a fragment is not sent"),
    ({"paths": ("x" * 500,)}, r"paths: 'x{77}\.\.\.' does not begin with /"),
    ({"paths": ("/",) * 1_000_001}, "paths: 1,000,001 of them; allowed: 1,000,000"),
    ({"paths": ("/",) * 2049, "bodies": (b"a" * (1 << 20), b"")}, "1,074,790,400 bytes; allowed: "),
)
def test_bad_requests_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as caught:
        Request(**({"url": URL} | options))
    assert "\n" not in str(caught.value)


@cases(
    "options, line",
    ({"connections": 2, "processes": 3}, r"processes must be 1 to .*\(2\)"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"connections": 10**400}, "connections must be at most 1,000,000"),
    ({"rate": 1.0, "max_connections": 10**7}, "connections must be at most 1,000,000"),
    ({"connections": 999, "processes": 999}, "processes must be at most 256"),
    ({"connect_timeout_s": math.nan}, "connect_timeout_s"),
    ({"rate": 5.0, "stages": (Stage(1, 1),)}, "exclude each other"),
    ({"each": 0}, "each must be 1 or more, got 0"),
    ({"each": 3, "count": 3}, "each and count exclude each other"),
    ({"each": 3, "rate": 1.0}, "each is for a closed loop"),
    ({"each": 3, "client": "aiohttp"}, "each is for the clients raw and handle, not aiohttp"),
    ({"max_connections": 5}, "max_connections is for an open loop"),
    ({"pickup_every": -1}, "pickup_every"),
    ({"client": "aiohttp", "request": SECURED}, "client aiohttp has no TLS on a unix socket"),
    ({"connection_rates": True, "client": "aiohttp"}, "connection_rates"),
    ({"connection_rates": True, "rate": 10.0}, "connection_rates"),
    ({"retries": 1, "streaming": Streaming()}, "streaming and retries exclude each other"),
    ({"client": "handle", "request": Request(URL, "POST")}, "names no method of an application"),
    ({"client": "grpc", "request": Request(f"{URL}?x=1")}, "names no method of gRPC"),
    ({"client": "grpc", "request": CALL, "keepalive": False}, "connection for each request"),
    ({"client": "grpc", "request": NAMED}, "header x!y: is no name of"),
)
def test_bad_loads_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as caught:
        Load(**({"request": Request(URL)} | options))
    assert "\n" not in str(caught.value)


@cases(
    "options, line",
    ({"window_s": 1e9}, "window_s must be at most 2,592,000"),
    ({"windows": 0}, "windows must be 1"),
    ({"window_s": 0.001}, "window_s must be 0.01"),
    ({"warmup_min_s": -1.0}, "warmup_min_s"),
    ({"warmup_min_s": 9.0}, r"warmup_max_s \(5\) is below"),
    ({"drain_s": math.inf}, "drain_s"),
)
def test_bad_timings_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        Timing(**options)
    for duration_s in (0.0, -1.0, math.nan):
        with pytest.raises(SpecError, match="duration_s"):
            Stage(10.0, duration_s)
    with pytest.raises(SpecError, match="openai is for events sse"):
        Streaming("lines", openai=True)
    with pytest.raises(SpecError, match="event_timeout_s"):
        Streaming(event_timeout_s=0.0)


def test_a_load_survives_json() -> None:
    about: dict[str, Any] = {
        **{"bodies": (b"\x00\xff", b"two"), "paths": ("/a?b=1", "/c"), "draw": "random"},
        **{"expect_status": (200, 404), "expect_body": b"\x01", "methods": ("POST", "PUT")},
    }
    headers = (("Authorization", "Bearer abc"),)
    request = Request("https://[::1]:8443/x?y=1", "POST", headers, **about)
    stages = (Stage(10.0, 1.0), Stage(20.0, 2.0))
    load = Load(request, connections=4, stages=stages, ramp=True, count=8, max_connections=9)
    for given in (load, Load(request, connections=4, each=7)):
        assert built(Load, json.loads(json.dumps(plain(given))), "it") == given


def test_totals_ports_and_schedules() -> None:
    totals = [Load(Request(URL), connections=4, count=9), Load(Request(URL), connections=4, each=7)]
    assert [load.total for load in totals] == [9, 28]
    assert Load(Request(URL), connections=4).total is None and not Load(Request(URL)).open_loop
    load = Load(Request(URL), rate=50.0)
    assert load.open_loop and [stage.rate for stage in load.schedule] == [50.0]
    assert (Request("http://h/").port, Request("https://h/").port) == (80, 443)
    six = Request("http://[::1]:81/")
    assert (six.host, six.port, six.scheme) == ("::1", 81, "http")
    # Paths stand in for that of the URL.
    assert Request(URL).turns == [(URL, b"", (), "GET")]
    request = Request("https://[::1]:8443/own?q=1", paths=("/", "/a?b=1"))
    assert [turn[0][18:] for turn in request.turns] == ["/", "/a?b=1"]
    most = Request(URL, paths=("/",) * 2048, bodies=(b"a" * (1 << 20), b""))
    assert len(most.turns) == 2048


def test_headers_vary_over_those_of_every_request() -> None:
    sets = ((("x-model", "a"),), (("X-Model", "b"), ("y", "2")), ())
    request = Request(URL, headers=(("X-MODEL", "none"), ("z", "1")), header_sets=sets)
    first, second, third = (named for _, _, named, _ in request.turns)
    assert first == (("z", "1"), ("x-model", "a"))
    assert second == (("z", "1"), ("X-Model", "b"), ("y", "2"))
    assert third == request.headers
    both = Request(URL, paths=("/a", "/b"), header_sets=sets, methods=("GET", "PUT"))
    asked = [(url[-2:], method) for url, _, _, method in both.turns]
    assert asked == [("/a", "GET"), ("/b", "PUT"), ("/a", "GET")]
