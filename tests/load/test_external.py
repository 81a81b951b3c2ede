"""wrk and ab: their output in every form, and the real programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.load import LoadError, external
from serve_bench.load.external import ExternalError, ExternalResult
from tests import servers
from tests.servers import serving

WRK = """Running 10s test @ http://127.0.0.1:8000/noop
  2 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    14.52ms    3.10ms 101.33ms   91.20%
    Req/Sec     3.46k   512.10     4.40k    71.50%
  Latency Distribution
     50%   13.98ms
     75%  900.00us
     90%    1.20s
     99%    1.50m
  68820 requests in 10.01s, 12.47MB read
  Socket errors: connect 0, read 7, write 0, timeout 3
  Non-2xx or 3xx responses: 12
Requests/sec:   6875.12
Transfer/sec:      1.25MB
"""

AB = """Server Software:        uvicorn
Concurrency Level:      100
Time taken for tests:   3.021 seconds
Complete requests:      20000
Failed requests:        5
   (Connect: 0, Receive: 1, Length: 4, Exceptions: 0)
Non-2xx responses:      2
Keep-Alive requests:    20000
Total transferred:      3460000 bytes
HTML transferred:       40000 bytes
Requests per second:    6620.30 [#/sec] (mean)
Time per request:       15.105 [ms] (mean)

Connection Times (ms)
              min  mean[+/-sd] median   max
Connect:        0    0   0.2      0       4
Processing:     2   15   4.1     14      61
Waiting:        1   15   4.1     14      61
Total:          2   15   4.2     14      62

Percentage of the requests served within a certain time (ms)
  50%     14
  90%     19
  99%     30
 100%     62 (longest request)
"""


def test_wrk_output() -> None:
    result = external.parse_wrk(WRK)
    assert (result.completed, result.rate, result.seconds) == (68820, 6875.12, 10.01)
    assert result.errors == {"read": 7, "timeout": 3}
    assert (result.non_2xx, result.failed) == (12, 22)
    assert result.bytes_received == int(12.47 * (1 << 20))
    assert result.latency_mean_ns == pytest.approx(14.52e6)
    assert result.latency_max_ns == pytest.approx(101.33e6)
    assert result.percentiles_ns == {
        0.5: pytest.approx(13.98e6),
        0.75: pytest.approx(0.9e6),
        0.9: pytest.approx(1.2e9),
        0.99: pytest.approx(90e9),
    }
    assert (result.thread_rate_mean, result.thread_rate_max) == (3460.0, 4400.0)
    # Below 1000/s without a unit; "-nan%" where there was no whole interval.
    few = external.parse_wrk(WRK.replace("3.46k   512.10     4.40k", "62.47     12.10    90.00"))
    assert (few.thread_rate_mean, few.thread_rate_max) == (62.47, 90.0)


def test_ab_output() -> None:
    result = external.parse_ab(AB)
    assert (result.completed, result.rate, result.seconds) == (20000, 6620.30, 3.021)
    assert result.errors == {"receive": 1, "length": 4}
    assert (result.non_2xx, result.failed) == (2, 7)
    assert result.latency_std_ns == pytest.approx(4.2e6)
    assert result.percentiles_ns[0.99] == 30e6 and result.percentiles_ns[1.0] == 62e6


@pytest.mark.parametrize(
    ("units", "text", "value"),
    [
        (external.TIME_UNITS, "250.00us", 250e3),
        (external.TIME_UNITS, "1.20ms", 1.2e6),
        (external.TIME_UNITS, "2.00s", 2e9),
        (external.TIME_UNITS, "1.50m", 90e9),
        (external.TIME_UNITS, "1.00h", 3600e9),
        (external.COUNT_UNITS, "512.10", 512.1),
        (external.COUNT_UNITS, "3.46k", 3460),
        (external.COUNT_UNITS, "1.50M", 1.5e6),
        (external.SIZE_UNITS, "100.00B", 100),
        (external.SIZE_UNITS, "1.50KB", 1536),
        (external.SIZE_UNITS, "2.00GB", 2 << 30),
    ],
)
def test_units(units: Mapping[str, float], text: str, value: float) -> None:
    assert external.scaled(text, units) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "1.5 parsec", "ms"])
def test_unknown_units_are_refused(text: str) -> None:
    with pytest.raises(ExternalError, match="cannot read"):
        external.scaled(text, external.TIME_UNITS)


@pytest.mark.parametrize("parse", [external.parse_wrk, external.parse_ab])
def test_other_output_is_refused(parse: Callable[[str], ExternalResult]) -> None:
    with pytest.raises(ExternalError, match="in the output"):
        parse("something else")


def test_commands() -> None:
    request = Request("http://h:1/x", headers=(("Authorization", "Bearer t"),))
    timing = Timing(windows=3, window_s=1.0)
    wrk = external.wrk_argv(Load(request, client="wrk", connections=9), timing)
    assert wrk[wrk.index("-d") + 1] == "3s" and wrk[wrk.index("-c") + 1] == "9"
    assert "Authorization: Bearer t" in wrk and wrk[-1] == "http://h:1/x"
    ab = external.ab_argv(Load(request, client="ab", connections=2, count=50), timing)
    assert ab[ab.index("-n") + 1] == "50" and "-k" in ab and "-t" not in ab
    by_time = external.ab_argv(Load(request, client="ab", keepalive=False), timing)
    assert "-k" not in by_time and by_time[by_time.index("-t") + 1] == "3"


def test_our_own_clients_are_not_started_here() -> None:
    timing = Timing(windows=1)
    with pytest.raises(SpecError, match="not an external program"):
        external.drive_external(Load(Request("http://h/")), timing)


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ExternalError, match=r"^wrk is not on PATH$"):
        external.drive_external(Load(Request("http://h/"), client="wrk"), Timing(windows=1))


def test_the_files_of_a_load_go_with_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words: list[str] = []

    def run(argv: list[str], *rest: object) -> None:
        words[:] = argv
        raise ExternalError("enough")

    monkeypatch.setattr(external, "program_path", lambda program: program)
    monkeypatch.setattr(external, "_run", run)
    load = Load(Request("http://h/", method="POST", body=b"x"), client="ab")
    with pytest.raises(ExternalError, match="enough"):
        external.drive_external(load, Timing(windows=1), place=tmp_path)
    (body,) = (word for word in words if word.endswith("/body"))
    assert Path(body).is_relative_to(tmp_path)


@pytest.mark.external
def test_the_real_ab_counts_what_the_server_counts() -> None:
    with serving(servers.every(10, "error500")) as server:
        load = Load(Request(server.url), client="ab", connections=2, count=50, keepalive=False)
        result = external.drive_external(load, Timing(windows=1))
    assert result.completed == 50 == len(server.log)
    assert result.non_2xx == 5
    assert result.version


@pytest.mark.external
@pytest.mark.parametrize("body", [b"", b"\x00binary"])
def test_the_real_wrk_runs(body: bytes) -> None:
    with serving() as server:
        request = Request(server.url, method="POST" if body else "GET", body=body)
        load = Load(request, client="wrk", connections=2)
        result = external.drive_external(load, Timing(windows=1, window_s=1.0))
    assert result.non_2xx == 0 == result.failed
    assert 0 < result.completed <= len(server.log) <= result.completed + 2
    assert {e.body for e in server.log} == {body}
    assert result.version


@pytest.mark.external
@pytest.mark.parametrize("client", ["wrk", "ab"])
def test_the_real_programs_find_nobody(client: Client) -> None:
    with serving() as server:
        pass
    load = Load(Request(server.url), client=client)
    with pytest.raises(LoadError, match=r"^connect: ") as caught:
        external.drive_external(load, Timing(windows=1, window_s=1.0))
    assert "\n" not in str(caught.value)
