"""The gRPC client against a server with known answers: ends by class, streams by its log."""

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest.mock import AsyncMock

import grpc
import pytest

from serve_bench.cli.program import run
from serve_bench.core.load_spec import Load, Streaming, Timing
from serve_bench.core.plan import bytes_value
from serve_bench.core.request_spec import Request
from serve_bench.load.driver import drive_load
from serve_bench.load.grpc_client import GrpcEngine
from serve_bench.load.request_log import RequestLog
from tests.cases import Capture, Patch, cases
from tests.load.loads import check_log, run_here

pytestmark = pytest.mark.process

FIRST_S, GAP_S, EVENTS = 0.03, 0.01, 6


@dataclass
class GrpcServer:
    """A running server: its port, and when it wrote the messages of each stream."""

    port: int = 0
    streams: list[list[int]] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)

    def url(self, method: str) -> str:
        return f"http://127.0.0.1:{self.port}/test.Known/{method}"

    async def echo(self, message: bytes, context: Any) -> bytes:
        self.metadata.append(dict(context.invocation_metadata()))
        return message

    async def slow(self, message: bytes, context: Any) -> bytes:
        await asyncio.sleep(600)
        return message

    async def busy(self, message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests")
        return message

    async def wrong(self, message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INTERNAL, "oops")
        return message

    async def gone(self, message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
        return message

    async def stream(self, message: bytes, context: Any) -> AsyncIterator[bytes]:
        times = [time.perf_counter_ns()]
        self.streams.append(times)
        for number in range(EVENTS):
            await asyncio.sleep(GAP_S if number else FIRST_S)
            times.append(time.perf_counter_ns())
            yield b"event"

    async def stall(self, message: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"event"
        await asyncio.sleep(600)

    async def empty(self, message: bytes, context: Any) -> AsyncIterator[bytes]:
        return
        yield b""


@contextmanager
def serving() -> Iterator[GrpcServer]:
    known, ready = GrpcServer(), threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def main() -> None:
        server = grpc.aio.server()
        unary = {
            name: grpc.unary_unary_rpc_method_handler(getattr(known, name))
            for name in ("echo", "slow", "busy", "wrong", "gone")
        }
        streams = {
            name: grpc.unary_stream_rpc_method_handler(getattr(known, name))
            for name in ("stream", "stall", "empty")
        }
        handler = grpc.method_handlers_generic_handler("test.Known", {**unary, **streams})
        server.add_generic_rpc_handlers((handler,))
        known.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready.set()
        await over.wait()
        await server.stop(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(60), "the test server did not start"
    try:
        yield known
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


def load(server: GrpcServer, method: str, **options: Any) -> Load:
    message = options.pop("body", b"hello")
    expected = options.pop("expect_body", None)
    request = Request(
        server.url(method),
        method="POST",
        headers=(("Application", "noop"),),
        body=message,
        expect_body=expected,
    )
    return Load(request, client="grpc", **{"connections": 3, "count": 12, **options})


LOOPS: Final = {"closed": {}, "open": {"rate": 100.0, "max_connections": 30}}

STREAM: Final = Streaming(event_timeout_s=0.2)


@cases(
    "method, streaming, failure, code, seen",
    ("slow", None, "timeout", None, "DEADLINE_EXCEEDED: "),
    ("busy", None, "rejected", 8, "RESOURCE_EXHAUSTED: too many requests"),
    ("wrong", None, "status", 13, "INTERNAL: oops"),
    ("gone", None, "rejected", 14, "UNAVAILABLE: going away"),
    ("empty", None, "malformed", None, "no whole message"),  # OK, and no message
    ("lacking", None, "status", 12, "UNIMPLEMENTED: Method not found!"),
    ("stall", STREAM, "stalled", None, "the answer had begun"),
    ("empty", STREAM, "event", None, "the stream ended without a message"),
)
def test_each_end_has_its_class(
    method: str, streaming: Streaming | None, failure: str, code: int | None, seen: str
) -> None:
    with serving() as server:
        asked = load(server, method, count=6, timeout_s=0.3, streaming=streaming)
        result = run_here(asked)
    assert result.measured.failed == {failure: 6}
    assert code is None or result.status_codes == {code: 6}
    name = str(code) if failure == "status" else failure
    assert [*result.seen] == [name] and result.seen[name].startswith(seen)
    assert result.censored.count == (6 if failure in ("timeout", "stalled") else 0)
    assert result.itl_censored.count == (6 if failure == "stalled" else 0)


def test_another_answer_is_a_failure_and_a_large_one_is_none() -> None:
    with serving() as server:
        other = run_here(load(server, "echo", expect_body=b"other", count=4))
        large = run_here(load(server, "echo", body=b"a" * 3_000_000, count=4))
        huge = run_here(load(server, "echo", body=b"a" * 6_000_000, count=4))
    assert other.measured.failed == {"body": 4}
    assert large.measured.completed == 4
    assert huge.measured.failed == {"status": 4}  # above the limit of the server, 4 MiB


@pytest.mark.parametrize("loop", LOOPS)
def test_times_of_a_stream_are_those_of_the_log_of_the_server(loop: str) -> None:
    with serving() as server:
        result = run_here(load(server, "stream", count=30, streaming=Streaming(), **LOOPS[loop]))
    assert result.measured.completed == 30 and not result.measured.failed
    assert (result.events, result.ttft.count) == (30 * EVENTS, 30)
    known = statistics.median(b - a for stream in server.streams for a, b in pairwise(stream[1:]))
    assert result.itl.percentile(0.5) == pytest.approx(known, rel=0.05, abs=2e6)
    # A call is due before the server has it, and the event reaches the client after it was sent;
    # both sides share the interpreter here.
    first, least = result.ttft.percentile(0.0), min(times[1] - times[0] for times in server.streams)
    assert first is not None and first >= 0.999 * least


LOGGED: Final = {"echo": 0, "busy": 0, "slow": 0, "stream": EVENTS, "stall": 1, "empty": 0}


@pytest.mark.parametrize("method", LOGGED)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_log_has_each_call_with_its_class_and_its_events(loop: str, method: str) -> None:
    """In windows, with workers; calls are in flight at the end of a loop with hardly a drain."""
    events, streams = LOGGED[method], method in ("stream", "stall", "empty")
    options: dict[str, Any] = {"streaming": Streaming(event_timeout_s=0.35)} if streams else {}
    log = RequestLog([1])
    with serving() as server:
        asked = load(server, method, count=None, timeout_s=0.4, **options, **LOOPS[loop])
        drain_s = 0.01 if loop == "open" else None
        result = drive_load(asked, Timing(0.2, 0.2, 2, 0.5, drain_s=drain_s), log=log)
    check_log(log, result)
    rows = list(log.rows())
    assert len(rows) > 3 and {row.client for row in rows} <= set(range(30))
    assert loop == "open" or {row.client for row in rows} == {0, 1, 2}
    assert all((row.stream is not None) == streams for row in rows)
    if method == "echo":
        answered = result.measured.completed
        assert not result.measured.failed and result.status_codes == {0: answered}
        assert result.latency.count == answered
        assert result.bytes_received >= 5 * sum(result.windows)
        assert all(metadata["application"] == "noop" for metadata in server.metadata)
    ended = [row for row in rows if row.error not in ("cut", "unsent")]
    whole = [row.stream for row in ended if row.stream is not None]
    assert all((times.first_ns is None) == (not events) for times in whole)
    assert all(times.gaps == max(0, events - 1) and times.late == (times.gaps,) for times in whole)
    if method in ("slow", "stall"):
        assert result.measured.completed == 0 and result.measured.failed_total
        assert loop == "closed" or result.measured.in_flight


def test_an_exception_that_nobody_expects_ends_the_load(monkeypatch: Patch) -> None:
    monkeypatch.setattr(GrpcEngine, "_attempt", AsyncMock(side_effect=TypeError("not expected")))
    for options in LOOPS.values():
        with serving() as server, pytest.raises(TypeError, match="not expected"):
            run_here(load(server, "echo", **options))


@cases(
    "method, protocol, code, line",
    ("echo", "grpc", 0, ""),
    ("stream", "grpc-stream", 0, ""),
    ("stream", "grpc", 2, "test.Known/stream streams its response: it is grpc-stream"),
    ("stall", "grpc", 1, ""),  # one message, and no end: how it goes on is not known
    ("lacking", "grpc", 2, "has this method (UNIMPLEMENTED)"),
    ("empty", "grpc-stream", 2, "test.Known/empty has no message"),
    ("echo", "grpc-stream", 0, "has one message: if its method does not stream, it is --prot"),
)
def test_the_first_request_of_a_load_says_what_its_method_is(
    method: str, protocol: str, code: int, line: str, tmp_path: Path, capsys: Capture
) -> None:
    with serving() as server:
        words = ["load", server.url(method), "--protocol", protocol, "-c", "2", "-n", "4"]
        words += ["--timeout", "1s", "--body", "hello", "--no-sample", "--live", "plain"]
        assert run([*words, "--out", str(tmp_path / "out")]) == code
    said = [row for row in capsys.readouterr().err.splitlines() if row.startswith("serve-bench: ")]
    if line:
        assert len(said) == 1 and line in said[0]
    assert (tmp_path / "out").exists() == (code != 2)


@cases("size", 0, 1, 127, 128, 300, 70_000)
def test_a_message_is_that_of_protocol_buffers(size: int) -> None:
    from google.protobuf.wrappers_pb2 import BytesValue

    assert bytes_value(b"a" * size) == BytesValue(value=b"a" * size).SerializeToString()
