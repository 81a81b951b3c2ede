"""Requests that carry a traceparent: which, and their times at the client."""

from __future__ import annotations

import re

import pytest

from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load import drive_load
from serve_bench.load.traces import TraceLog
from tests.load.test_drive import mixed
from tests.servers import serving

TIMING = Timing(0.2, 0.2, windows=4, window_s=0.25)

PARENT = re.compile(rb"traceparent: 00-([0-9a-f]{32})-[0-9a-f]{16}-01\r\n")


@pytest.mark.parametrize("rate", [None, 400.0])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_traced_requests_are_those_that_carry_an_id(rate: float | None, method: str) -> None:
    with serving() as server:
        body = b"x" * 10 if method == "POST" else b""
        request = Request(server.url, method=method, body=body, expect_body=b"ok")
        log = TraceLog(0.01, 60.0)
        load = Load(request, connections=4, processes=2, rate=rate)
        result = drive_load(load, TIMING, traces=log)
    assert not result.total.failed and result.total.in_flight == 0
    sent = [found[1].decode() for one in server.log if (found := PARENT.search(one.head))]
    ids = [one.trace for one in log.requests]
    assert sorted(ids) == sorted(set(sent)) == sorted(sent)
    assert 40 <= len(ids) <= 60 + 0.02 * result.measured.completed
    for one in log.requests:
        assert one.due <= one.sent <= one.first <= one.end and one.status == 200


def test_traced_requests_without_an_answer_are_there_too() -> None:
    """Some fail, and those at the end are cut."""
    with serving(mixed(3)) as server:
        request = Request(server.url, expect_body=b"ok")
        log = TraceLog(1.0, 0.0)
        load = Load(request, connections=6, processes=1, timeout_s=0.4, connect_timeout_s=0.4)
        result = drive_load(load, Timing(0.2, 0.2, windows=4, window_s=0.2), traces=log)
    counts = result.measured
    failed = [one for one in log.requests if not one.status]
    assert 0 < len(failed) <= counts.failed_total + counts.in_flight
    assert 0 < len(log.requests) - len(failed) <= counts.completed
    assert len({one.trace for one in log.requests}) == len(log.requests)


def test_another_load_has_other_ids() -> None:
    ids = []
    for _ in range(2):
        with serving() as server:
            log = TraceLog(0.5, 100.0)
            drive_load(Load(Request(server.url), processes=1, connections=1), TIMING, traces=log)
        ids.append({one.trace for one in log.requests})
    assert ids[0] and ids[1] and not ids[0] & ids[1]
