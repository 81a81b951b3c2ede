import re
from itertools import pairwise

import pytest

from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load.driver import drive_load
from serve_bench.load.traces import TraceLog, TraceOrder, Traces
from tests.cases import cases
from tests.load.loads import mixed
from tests.servers import serving

pytestmark = pytest.mark.process

TIMING = Timing(0.2, 0.2, windows=4, window_s=0.25)

PARENT = re.compile(rb"traceparent: 00-([0-9a-f]{32})-[0-9a-f]{16}-01\r\n")


@cases("rate", None, 400.0)
@cases("method", "GET", "POST")
def test_traced_requests_are_those_that_carry_an_id(rate: float | None, method: str) -> None:
    with serving() as server:
        body = b"x" * 10 if method == "POST" else b""
        request = Request(server.url, method=method, body=body, expect_body=b"ok")
        log = TraceLog(0.01, 60.0)
        load = Load(request, connections=4, processes=2, rate=rate)
        result = drive_load(load, TIMING, traces=log)
    assert not result.total.failed and result.total.in_flight == 0
    sent = [found[1].decode() for entry in server.log if (found := PARENT.search(entry.head))]
    ids = [request.trace for request in log.requests]
    (other,) = log.open(1)  # of the same load
    log.close()
    assert all(trace.startswith(other.prefix) for trace in ids)
    assert TraceLog(0.01, 60.0)._prefix != other.prefix  # another load has other ids
    assert sorted(ids) == sorted(set(sent)) == sorted(sent)
    assert 40 <= len(ids) <= 60 + 0.02 * result.measured.completed
    for traced in log.requests:
        assert traced.due_ns <= traced.sent_ns <= traced.first_ns <= traced.end_ns
        assert traced.status == 200


@cases("share, per_s, traced", (0.01, 60.0, 59), (0.1, 60.0, 99))
def test_an_open_loop_traces_by_due_times(share: float, per_s: float, traced: int) -> None:
    """A second at 1,000 requests/s: no clock is read, so a stall before or behind takes none."""
    traces = Traces(TraceOrder(-1, "ab" * 8, share, per_s), 0)
    chosen = []
    for due in range(1_000_000, 1_001_000_000, 1_000_000):
        traces.earn_by(due)
        if traces.due >= 1.0:
            chosen.append(due)
            traces.traced(b"GET / HTTP/1.1\r\n\r\n")
    assert abs(len(chosen) - traced) <= 1
    gaps = {after - before for before, after in pairwise(chosen)}
    assert max(gaps) - min(gaps) <= 1_000_000


def test_traced_requests_without_an_answer_are_there_too() -> None:
    with serving(mixed(3)) as server:
        request = Request(server.url, expect_body=b"ok")
        log = TraceLog(1.0, 0.0)
        load = Load(request, connections=6, count=60, processes=1, timeout_s=0.4)
        result = drive_load(load, Timing(windows=1, window_s=60.0), traces=log)
    counts = result.measured
    failed = [request for request in log.requests if not request.status]
    assert 0 < len(failed) <= counts.failed_total + counts.in_flight
    assert 0 < len(log.requests) - len(failed) <= counts.completed
    assert len({request.trace for request in log.requests}) == len(log.requests)
