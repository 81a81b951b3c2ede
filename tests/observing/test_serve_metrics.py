"""Serve's metrics: text as Ray 2.60 exports it, freshness by counting, on a clock of the test."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from serve_bench.observing import inside
from tests.cases import cases
from tests.servers import serving

COMMON = (
    'Component="core_worker",NodeAddress="192.0.2.2",SessionName="s",Version="2.60.0",'
    'otel_scope_name="x",otel_scope_version=""'
)


def text(
    requests: float, http_requests: float | None = None, *, worker: str = "w1", ongoing: float = 0.0
) -> str:
    """Write what the endpoint shows after so many requests of 2 ms."""
    at = f'{{{COMMON},WorkerId="{worker}",application="a",deployment="D",replica="r",route="/"}}'
    lines = [
        "# HELP ray_serve_deployment_request_counter_total .",
        "# TYPE ray_serve_deployment_request_counter_total counter",
        f"ray_serve_deployment_request_counter_total{at} {requests}",
        f'ray_serve_deployment_processing_latency_ms_bucket{at[:-1]},le="1.0"}} 1.0',
        f"ray_serve_deployment_processing_latency_ms_sum{at} {requests * 2.0}",
        f"ray_serve_deployment_processing_latency_ms_count{at} {requests}",
        f"ray_serve_replica_processing_queries{at} {ongoing}",
        'ray_node_cpu_utilization{ip="x"} 3.0',
    ]
    if http_requests is not None:
        proxy = f'{{{COMMON},WorkerId="p1",application="a",method="GET",status_code="200"}}'
        lines.append(f"ray_serve_num_http_requests_total{proxy} {http_requests}")
    return "\n".join(lines) + "\n"


class Exports:
    """An endpoint on a clock that only sleeping moves on: (from second, text) in order."""

    def __init__(self, script: Sequence[tuple[float, str]]) -> None:
        self.script = script
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def get(self, url: str) -> inside.MetricSeries:
        return inside.parse([shown for since, shown in self.script if since <= self.now][-1])


def test_serve_s_series_are_read_and_buckets_and_other_metrics_left_out() -> None:
    series = inside.parse(text(10, ongoing=3))
    times = {f"deployment_processing_latency_ms_{part}" for part in ("sum", "count")}
    counts = {"deployment_request_counter_total", "replica_processing_queries"}
    assert {name for name, _ in series} == times | counts
    ((_, labels),) = [key for key in series if key[0] == "deployment_request_counter_total"]
    assert dict(labels)["application"] == "a" and "NodeAddress" not in dict(labels)
    series = inside.parse('ray_serve_x{a="q\\"uote",b="back\\\\slash",c="li\\nne",d="}"} 1.5e+06\n')
    ((name, labels),) = series
    assert name == "x" and series[(name, labels)] == 1.5e6
    assert dict(labels) == {"a": 'q"uote', "b": "back\\slash", "c": "li\nne", "d": "}"}
    with pytest.raises(inside.MetricsAbsent, match="a line that is no metric"):
        inside.parse("ray_serve_x{ nonsense\n")


def begun(
    script: Sequence[tuple[float, str]], ended_s: float, *, http: bool = False
) -> tuple[Exports, inside.Meter]:
    """Start a meter at second 0; return it and the second at which the load has ended."""
    exports = Exports(script)
    meter = inside.Meter("u", 2.0, http, exports.get, exports.clock, exports.sleep)
    assert meter.begin() is None
    exports.now = ended_s
    return exports, meter


def test_a_delta_is_given_as_soon_as_the_counts_are_those_of_the_client() -> None:
    script = [(0.0, text(5, 5)), (101.1, text(85, 40)), (102.3, text(105, 105))]
    _, meter = begun(script, 101.2, http=True)
    delta = meter.end(100, 100)
    assert delta["status"] == "fresh"
    assert delta["deployments"] == {"a#D": {"requests": 100.0, "processing_ms": 2.0}}
    assert delta["http"] == {"requests": 100.0}
    assert 1.0 < delta["waited_s"] < 1.5
    _, behind_haproxy = begun([(0, text(0, 0)), (11, text(100, 61))], 11)
    delta = behind_haproxy.end(100, 100)  # counts of HTTP are neither waited for nor told
    assert delta["status"] == "fresh" and "http" not in delta and delta["waited_s"] == 0
    _, meter = begun([(0, text(5)), (11, text(103))], 11)  # some may have arrived or not
    assert meter.end(95, 100)["deployments"]["a#D"]["requests"] == 98.0
    _, meter = begun([(0, text(500)), (11, text(100, worker="w2"))], 11)
    assert meter.end(100, 100)["deployments"] == {"a#D": "stale"}  # replaced: no delta
    # An export that does not come reads stale, and never zero.
    _, meter = begun([(0, text(5, 5)), (101, text(85, 90))], 101.2, http=True)
    delta = meter.end(100, 100)
    assert delta["status"] == "stale"
    assert delta["deployments"] == {"a#D": "stale"} and delta["http"] == "stale"
    assert delta["waited_s"] == pytest.approx(meter.patience_s, abs=0.3)


def test_after_a_stale_end_the_next_begin_waits_for_a_state_that_stays() -> None:
    late = [(0.0, text(5)), (101, text(85)), (106.5, text(105)), (120, text(205))]
    exports, meter = begun(late, 101.2)
    assert meter.end(100, 100)["status"] == "stale"
    meter.begin()
    exports.now = 120
    assert meter.end(100, 100)["deployments"]["a#D"]["requests"] == 100.0
    # Requests between two loads are in neither.
    script = [(0.0, text(5)), (100, text(105)), (103, text(125)), (120, text(225))]
    exports, meter = begun(script, 100)
    assert meter.end(100, 100)["status"] == "fresh"
    exports.now = 102
    meter.loaded_between()
    meter.begin()
    exports.now = 120
    assert meter.end(100, 100)["deployments"]["a#D"]["requests"] == 100.0


@cases("under_load, level", (60, 8.0), (0, "stale"), (100, "stale"))
def test_levels_are_those_of_an_export_during_the_load(under_load: int, level: float | str) -> None:
    _, meter = begun([(0, text(0)), (5, text(under_load, ongoing=8)), (11.5, text(100))], 11)
    assert meter.end(100, 100)["levels"] == {"ongoing": level}


def test_an_endpoint_is_scraped_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    body = text(3).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with serving(steps=lambda number: [(0.0, answer)]) as server:
        assert len(inside.scrape(server.url)) == 4
    # One that is not there is a line, and the run goes on.
    meter = inside.Meter("http://127.0.0.1:9/metrics", 2.0)
    why = meter.begin()
    assert why is not None and why.startswith("http://127.0.0.1:9/metrics: ") and "\n" not in why
    assert meter.end(1, 1)["status"] == "absent"


def replica(name: str, finished: int, worked_on: int, at_work: int) -> dict[str, Any]:
    counts = {"finished": finished, "worked_on": worked_on, "at_work": at_work}
    return {"deployment": name, "ingress": name == "Front", **counts}


@cases(
    "failed, statuses, replicas, counted",
    ({"reset": 9}, {}, [replica("Front", 100, 0, 0)], None),  # nobody gave up
    ({"timeout": 20}, {}, [replica("Front", 80, 0, 0)], ("Front", 0, 80)),  # all were cancelled
    ({"timeout": 20}, {}, [replica("Front", 40, 6, 3)] * 2, ("Front", 12, 92)),
    ({"timeout": 5}, {}, [replica("Front", 95, 9, 0)], ("Front", 5, 104)),  # no more than gave up
    ({"stalled": 20}, {}, [replica("Front", 99, 0, 0)], ("Front", 19, 99)),  # Serve cancelled none
    ({"status": 20}, {408: 20}, [replica("Child", 0, 20, 0)], ("Child", 20, 20)),
    ({"timeout": 20}, {}, [replica("Front", 0, 0, 20)], None),  # not known yet
)
def test_what_was_finished_for_nobody_is_no_more_than_what_was_given_up(
    failed: dict[str, int], statuses: dict[int, int], replicas: Any, counted: object
) -> None:
    result: Any = SimpleNamespace(
        total=SimpleNamespace(sent=100, failed=failed), status_codes=statuses
    )
    assert inside.count_for_nobody(replicas, result) == counted
