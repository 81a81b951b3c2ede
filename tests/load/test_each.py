import asyncio
import os
import socket
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.histogram import bounded, slot, slot_middle
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load import connection
from serve_bench.load.connection import lacking_ports
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.request_log import CUT, UNSENT, LoggedRequest, Notes, RequestLog, StreamTimes
from serve_bench.load.tally import NEVER
from tests import servers
from tests.cases import cases, sure
from tests.load.loads import TIMING, check_log, injected_failures, mixed, run_here

pytestmark = pytest.mark.process

EACH = 6
SHORT = Timing(0.2, 0.2, windows=3, window_s=0.5)


@pytest.fixture
def unfair(monkeypatch: pytest.MonkeyPatch) -> str:
    """Answer one connection at once, and no other: it would take all of a shared count."""
    favourite: list[object] = []

    async def action(writer: asyncio.StreamWriter) -> bool:
        favourite[:] = favourite or [writer]
        if writer is not favourite[0]:
            await asyncio.sleep(0.02)
        return await servers.ACTIONS["ok"](writer)

    monkeypatch.setitem(servers.ACTIONS, "unfair", action)
    return "unfair"


def test_each_connection_sends_its_own_requests(unfair: str) -> None:
    with servers.serving(servers.always(unfair)) as server:
        result = run_here(Load(Request(server.url), connections=5, each=EACH))
    assert [*Counter(exchange.peer for exchange in server.log).values()] == [EACH] * 5
    assert result.total.completed == 5 * EACH == sum(result.windows)
    assert result.window_s == result.duration_s < 3600
    assert result.reconnects == 0 and server.connections == 6  # and the one that tried the address


@cases(
    "action, keepalive",
    ("connection_close", True),
    ("ok", False),
    ("until_eof", True),
    ("close_later", True),
)
def test_a_connection_that_is_done_is_not_opened_again(action: str, keepalive: bool) -> None:
    log = RequestLog()
    with servers.serving(servers.always(action)) as server:
        load = Load(Request(server.url), connections=4, each=EACH, keepalive=keepalive)
        result = drive_load(load, TIMING, log=log)
    assert Counter(row.client for row in log.rows()) == dict.fromkeys(range(4), EACH)
    assert result.total.sent == 4 * EACH
    assert result.window_s == result.duration_s < 3600  # that of the load, whatever was asked
    assert server.connections == 1 + 4 + result.reconnects  # one tried the address
    if action != "close_later":  # there the next request is under way when the end comes
        assert result.total.completed == 4 * EACH == len(server.log)
        assert result.reconnects == 4 * (EACH - 1)


def test_a_server_that_goes_away_fails_each_connections_requests() -> None:
    """Also what a connection could not even begin to send counts as one of its own."""
    log = RequestLog()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def go_away() -> None:
            taken = [listener.accept()[0] for _ in range(4)]  # one tries the address
            taken[1].recv(1)  # the load has begun: none waits to be taken
            listener.close()
            for connection in taken:
                connection.close()

        thread = threading.Thread(target=go_away, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        load = Load(Request(f"http://127.0.0.1:{port}/"), connections=3, each=4)
        result = drive_load(load, TIMING, log=log)
        thread.join(5)
    assert result.total.failed == {"reset": 3, "connect": 9} and result.total.sent == 12
    assert Counter(row.client for row in log.rows()) == dict.fromkeys(range(3), 4)
    check_log(log, result)


def test_time_ends_a_load_that_is_not_done() -> None:
    """One connection is never answered, which leaves the tail open; the others end in the drain."""
    timing = Timing(windows=1, window_s=0.4, drain_s=0.2)
    log = RequestLog()
    with servers.serving(lambda number: "silent" if number == 5 else "ok", delay_s=0.01) as server:
        load = Load(Request(server.url), connections=4, processes=2, each=10_000)
        result = drive_load(load, timing, log=log)
    measured = result.measured
    assert 10 < sum(result.windows) == measured.completed - 3 and result.in_windows is not None
    assert result.in_windows.in_flight == 4
    assert result.duration_s == result.window_s == pytest.approx(0.4, abs=1e-9)
    assert measured.in_flight == 1 and measured.balanced and measured.failed == {}
    assert result.total.in_flight == 1 and result.total.balanced
    assert result.total.completed == len(server.log) - 1
    ends = Counter(row.error for row in log.rows())
    assert ends == {None: measured.completed, "cut": 1}
    cut = list(log.rows())[-1]
    assert (cut.error, cut.latency_ns, cut.status) == ("cut", None, 0)
    (waited,) = [index for index, _ in result.censored.occupied()]
    assert slot_middle(waited) >= 0.2e9  # the drain, and what it had been in flight before
    (_, (highest, lower)) = bounded(result.latency, result.censored, (0.5, 1.0))
    assert lower and highest is not None and slot(highest) == waited


@cases(
    "options, timing",
    ({"each": 40}, TIMING),
    ({"each": 40, "retries": 1}, TIMING),
    ({"count": 250}, TIMING),
    ({"count": 250, "rate": 2000.0, "max_connections": 30}, TIMING),
    ({}, SHORT),
    ({"rate": 300.0, "max_connections": 30}, SHORT),
    ({"client": "aiohttp"}, SHORT),
    ({"client": "aiohttp", "rate": 300.0, "max_connections": 30}, SHORT),
)
def test_log_account_and_server_agree(options: dict[str, Any], timing: Timing) -> None:
    """Nothing is lost from warm-up to drain, through two workers; failures have their class."""
    log = RequestLog()
    with servers.serving(mixed(7), delay_s=0.001) as server:
        request = Request(server.url, expect_body=b"ok")
        load = Load(request, connections=5, processes=2, timeout_s=1.0, **options)
        result = drive_load(load, timing, log=log)
    rows = list(log.rows())
    assert result.measured.completed > 100 and len(rows) == len(log)
    check_log(log, result)
    expected = injected_failures(server)
    assert result.total.in_flight == 0
    if "retries" in options:
        assert result.retried
    else:
        assert result.total.failed == expected and expected.total() >= 10
        assert result.total.completed == server.actions["ok"]
        assert result.total.sent == len(server.log)
        assert result.failed_latency.count == result.measured.failed_total
    if "count" in options:
        assert result.total.sent == 250  # with a rate the last is due then:
        assert result.duration_s >= 249 / options.get("rate", 1e9) - 0.01
    if "each" in options:
        assert Counter(row.client for row in rows) == dict.fromkeys(range(5), 40)
        assert [worker.connections for worker in result.workers] == [3, 2]
        assert 0 < result.connecting_s < result.time_to_connect_s
    if "each" in options and not result.retried:
        times = result.failed_times
        assert set(result.seen) == {"rejected" if kind == "503" else kind for kind in times}
        assert all(text.isprintable() for text in result.seen.values())
        assert {"500", "503"} < set(times) and not {"status", "rejected"} & set(times)
        assert sum(histogram.count for histogram in times.values()) == expected.total()


def test_a_log_is_of_our_own_clients_and_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    log = RequestLog()
    with servers.serving() as server:
        for _ in range(2):  # the second load begins the log anew
            drive_load(Load(Request(server.url), connections=2, each=3), TIMING, log=log)
    assert len(log) == 6
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after == before


def test_a_log_that_was_not_written_whole_is_refused() -> None:
    notes, log = Notes(), RequestLog()
    notes.add(3, 5_000, 5_100, 7_500, 200, None)
    notes.add(1, 4_000, 4_000, 6_000, 503, "rejected")
    notes.add(2, 4_500, 4_600, NEVER, 0, CUT)
    notes.add(0, 4_700, NEVER, NEVER, 0, UNSENT)
    ((fd, _),) = log.open(1)
    assert notes.write(fd) == 4 and os.fstat(fd).st_size == 4 * 31
    log.take({0: 4}, begin_ns=4_200)
    assert list(log.rows()) == [
        LoggedRequest(1, -200, 2_000, 503, "rejected", sent_ns=-200),
        LoggedRequest(3, 800, 2_500, 200, None, sent_ns=900),
        LoggedRequest(2, 300, None, 0, "cut", sent_ns=400),
        LoggedRequest(0, 500, None, 0, "unsent"),
    ]
    for claimed in (3, 5):
        with pytest.raises(BrokenAccount, match="124 bytes in the log of"):
            log.take({0: claimed}, begin_ns=0)
    log.close()


READ = st.tuples(st.integers(1, 3_000), st.integers(1, 3))
"""How long after the one before a read came (ns), and how many events it brought."""


@given(
    st.lists(st.tuples(st.integers(1, 9_000), st.lists(READ, max_size=6)), max_size=8),
    st.lists(st.integers(1, 3_000), max_size=3),
)
def test_the_log_of_a_stream_has_its_gaps(
    requests: list[tuple[int, list[tuple[int, int]]]], limits: list[int]
) -> None:
    """First event, number, sum and long ones of the gaps; an event of the same read is 0 ns off."""
    log = RequestLog(limits)
    (order,) = log.open(1, streams=True)
    notes, expected = Notes(order.limits_ns), []
    events = sure(notes.events())
    for number, (due, reads) in enumerate(requests):
        times, now = [], due
        for after, count in reads:
            now += after
            events.add(now, count)
            times += [now] * count
        notes.add(number, due, due, now + 1, 200, None)
        notes.add_events(events.take())
        gaps = [b - a for a, b in pairwise(times)]
        late = tuple(sum(gap > limit for gap in gaps) for limit in limits)
        expected.append(StreamTimes(times[0] - due if times else None, len(gaps), sum(gaps), late))
    written = {0: notes.write(order.fd)}
    assert os.fstat(order.fd).st_size == len(requests) * (51 + 4 * len(limits))
    log.take(written, begin_ns=0)
    log.close()
    assert [row.stream for row in sorted(log.rows())] == expected


def test_more_connections_than_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    range_file = tmp_path / "range"
    assert lacking_ports(1) is None and lacking_ports(65_536) is not None
    monkeypatch.setattr(connection, "EPHEMERAL_PORTS", range_file)
    assert lacking_ports(28_233) is None  # not known
    range_file.write_text("32768\t60999\n")
    assert lacking_ports(28_232) is None
    line = lacking_ports(28_233)
    assert line is not None and "there are 28,232 (32768" in line and "\n" not in line
