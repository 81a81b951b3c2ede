import json
import statistics
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.histogram import slot_middle
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Streaming, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load import streams
from serve_bench.load.driver import drive_load
from serve_bench.load.http1 import OTHER, PLAIN, judge
from serve_bench.load.request_log import RequestLog
from tests.cases import cases
from tests.load.loads import check_log, run_here, split
from tests.servers import KnownServer, Steps, serving

pytestmark = pytest.mark.process

REQUEST: Final = Request("http://127.0.0.1/")
CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(reader: streams.EventReader, parts: list[bytes]) -> tuple[int, bool, str | None]:
    """Events, whether DONE came, and the class of failure."""
    for part in parts:
        reader.feed(part)
    fault = reader.end()
    return reader.fresh, reader.done, fault


def chunks(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


PLACES = st.lists(st.integers(0, 1 << 16), max_size=12)
END = st.sampled_from([b"\n", b"\r\n", b"\r"])
VALUE = st.text("ab: {}\u00e9", max_size=6).map(str.encode)


@st.composite
def sse_streams(draw: st.DrawFn) -> tuple[bytes, int]:
    out, events = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), 0
    for _ in range(draw(st.integers(1, 6))):
        end = draw(END)
        lines = draw(st.lists(st.sampled_from([b":", b": hi", b"id: 1", b"retry: 5"]), max_size=2))
        lines += [b"data:" + draw(VALUE) for _ in range(draw(st.integers(0, 2)))]
        events += any(line.startswith(b"data:") for line in lines)
        out += b"".join(line + end for line in lines) + end
    return out, events


@given(st.binary(max_size=60) | sse_streams().map(lambda stream: stream[0]), PLACES)
def test_any_cut_of_any_bytes_reads_the_same(data: bytes, places: list[int]) -> None:
    data = data.replace(b"\0", b"data: x\n\n").replace(b"\1", b"data: [DONE]\n\n")
    data = data.replace(b"\2", b'data: {"choices":[{"text":"a"}]}\n\n')
    for kind in (streams.SseReader, streams.OpenAiReader, streams.LineReader):
        assert read(kind(), split(data, places)) == read(kind(), [data])


@given(sse_streams(), PLACES, PLACES)
def test_any_cut_of_chunks(stream: tuple[bytes, int], places: list[int], reads: list[int]) -> None:
    data, events = stream
    parts = split(data, places)
    for streaming, count in ((Streaming(), events), (Streaming("chunks"), len(parts))):
        framer = streams.stream_framer(streaming)
        for piece in split(CHUNKED + chunks(parts), reads):
            framer.parser.feed_data(piece)
        assert framer.reader.fresh == count and framer.done == (PLAIN if count else OTHER)
        assert judge(framer, REQUEST) == (None if count else "event")


@cases(
    "data, events, fault",
    (b"data: a\n\ndata: b\n\n", 2, None),
    (b"data: a\ndata: b\n\n", 1, None),
    (b"data\n\n", 1, None),
    (b": comment\n\nevent: x\n\ndata: a\n\n", 1, None),
    (b"data: a\nother: 1\n\n", 1, None),
    (b"data: a\n\ngarbage\n\n", 1, "event"),
    (b"garbage\n\n", 0, "event"),
    (b"data: a\n\ndata: b\n", 1, "truncated"),
    (b"data: a\n\ndata: b", 1, "truncated"),
    (b"data: a\n\ngarb", 1, "truncated"),
    (b"data: a", 0, "event"),
    (b"", 0, "event"),
    (b": only a comment\n\n", 0, "event"),
    (b"data: a\n\ndata: [DONE]\n\n", 1, None),
    (b"data: a\n\n[DONE]", 1, None),
    (b"data: a\n\n[DONE]\n\n", 1, None),
    (b"data: a\n[DONE]", 0, "event"),
    (b"[DONE]\n", 0, "event"),
    (b"data: a\n\ndata:[DONE]", 1, None),
    (b"data: [DONE]\n\n", 0, "event"),
)
def test_what_is_wrong_with_server_sent_events(data: bytes, events: int, fault: str | None) -> None:
    count, done, found = read(streams.SseReader(), [data])
    assert (count, found, done) == (events, fault, b"[DONE]" in data)


def chat(*contents: str | None) -> list[bytes]:
    """Make a chat completion: who answers, the texts, why it ends, the tokens."""
    chunks: list[Any] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    chunks += [{"choices": [{"index": 0, "delta": {"content": content}}]} for content in contents]
    counts = {"prompt_tokens": 7, "completion_tokens": len(contents), "total_tokens": 9}
    chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": counts})
    return [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks]


def test_a_chat_completion_has_an_event_for_each_text_and_its_tokens() -> None:
    done = b"data: [DONE]\n\n"
    reader = streams.OpenAiReader()
    assert read(reader, [*chat("Hello", " world", None), done]) == (2, True, None)
    assert reader.tokens == (7, 3)
    plain = [b'data: {"choices":[{"text":"a"}],"usage":null}\n\n', done]
    assert read(streams.OpenAiReader(), plain) == (1, True, None)
    thinking = [b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}\n\n', done]
    assert read(streams.OpenAiReader(), thinking) == (1, True, None)
    assert read(streams.OpenAiReader(), chat("a")) == (1, False, "truncated")
    assert read(streams.OpenAiReader(), [*chat("a"), b"[DONE]"]) == (1, True, None)
    assert read(streams.OpenAiReader(), [*chat(), done]) == (0, True, "event")
    empty = b'data: {"choices":null,"usage":{"prompt_tokens":null},"error":null}\n\n'
    assert read(streams.OpenAiReader(), [*chat("a"), empty, done]) == (1, True, None)
    assert (
        read(streams.OpenAiReader(), [b'data: {"error":{"message":"x"}}\n\n', done])[2] == "event"
    )
    deep = b'data: {"x":' + 9_999 * b"[" + 9_999 * b"]" + b"}\n\n"
    counts = [b'data: {"usage":{"prompt_tokens":%b}}\n\n' % n for n in (b"-5", b"9" * 400)]
    garbled = (b"data: {\n\n", b'data: {"choices":1}\n\n', b"data: \xff\n\n")
    for wrong in (*garbled, deep, *counts):
        assert read(streams.OpenAiReader(), [*chat("a"), wrong, done]) == (1, True, "event")


def test_lines_and_pieces() -> None:
    assert read(streams.LineReader(), [b"{}\r\n\r\n{", b"}\n \n{}"]) == (3, False, None)
    framer = streams.stream_framer(Streaming("chunks"))
    for piece in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", b"c", b"d"):
        framer.parser.feed_data(piece)
    assert (framer.reader.fresh, framer.done) == (3, PLAIN)


def framed(*pieces: bytes, eof: bool = False) -> streams.StreamFramer:
    framer = streams.stream_framer(Streaming())
    for piece in pieces:
        framer.parser.feed_data(piece)
        if not framer.done:
            framer.keep(piece)
    if eof:
        framer.eof()
    return framer


def test_what_a_framer_makes_of_whole_cut_and_other_responses() -> None:
    whole = framed(b"HTTP/1.1 200 OK\r\n\r\ndata: a\n\n", eof=True)
    assert (whole.done, whole.reader.fresh, judge(whole, REQUEST)) == (OTHER, 1, None)
    within = framed(b"HTTP/1.1 200 OK\r\n\r\ndata: a\n\ndata: b", eof=True)
    assert judge(within, REQUEST) == "truncated"
    # Only a response that is expected is read as a stream.
    error = framed(b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\ndata: a\n\n")
    assert (error.reader.fresh, judge(error, REQUEST)) == (0, "status")
    hinted = framed(b"HTTP/1.1 103 Early Hints\r\n\r\n", CHUNKED, b"9\r\ndata: a\n\n\r\n0\r\n\r\n")
    assert (hinted.reader.fresh, judge(hinted, REQUEST)) == (1, None)
    framer = framed(CHUNKED, b"9\r\ndata: a\n\n\r\n4\r\noops\r\n0\r\n\r\n")
    assert judge(framer, REQUEST) == "truncated"
    framer.last = 5
    framer.reset()
    assert (framer.last, framer.reader.fresh, framer.started) == (0, 0, False)
    framer.parser.feed_data(CHUNKED + b"9\r\ndata: a\n\n\r\n0\r\n\r\n")
    assert (framer.done, framer.reader.fresh) == (PLAIN, 1)


HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + CHUNKED.partition(b"\r\n")[2]
)
LAST: Final = b"0\r\n\r\n"
FIRST_S, GAP_S, EVENTS_EACH = 0.030, 0.010, 8
EVENT: Final = chunks([b"data: a\n\n"]).removesuffix(LAST)


def spaced(number: int) -> Steps:
    """Send the head at once, the first event after FIRST_S, the others GAP_S apart."""
    gaps = [(GAP_S, EVENT)] * (EVENTS_EACH - 1)
    return [(0.0, HEAD), (FIRST_S, EVENT), *gaps, (0.0, LAST)]


def stream_load(server: KnownServer, **changes: Any) -> Load:
    streaming = changes.pop("streaming", Streaming())
    return Load(Request(server.url), streaming=streaming, **{"connections": 4, **changes})


LOOPS: Final = {"closed": {}, "open": {"rate": 100.0, "max_connections": 60}}


@pytest.mark.alone
@pytest.mark.parametrize("loop", LOOPS)
def test_times_are_those_of_the_log_of_the_server(loop: str) -> None:
    with serving(steps=spaced) as server:
        result = run_here(stream_load(server, count=60, **LOOPS[loop]))
    assert result.measured.completed == 60 and not result.measured.failed
    assert result.ttfb.count == result.ttft.count == 60
    assert result.itl.count == 60 * (EVENTS_EACH - 1)
    assert (result.events, result.event_windows) == (60 * EVENTS_EACH, (60 * EVENTS_EACH,))
    truth = {
        "ttfb": [entry.steps_ns[0] - entry.received_ns for entry in server.log],
        "ttft": [entry.steps_ns[1] - entry.received_ns for entry in server.log],
        "itl": [b - a for entry in server.log for a, b in pairwise(entry.steps_ns[1:-1])],
        "service_time": [entry.steps_ns[-1] - entry.received_ns for entry in server.log],
    }
    for name, values in truth.items():
        known, median = statistics.median(values), getattr(result, name).percentile(0.5)
        assert median == pytest.approx(known, rel=0.02, abs=1e6), name


def test_events_of_one_read_are_merged() -> None:
    together: Steps = [(0.0, HEAD + EVENT), (0.02, EVENT * 3), (0.02, EVENT + LAST)]
    with serving(steps=lambda number: together) as server:
        result = run_here(stream_load(server, count=20))
    assert (result.events, result.merged) == (100, 40)
    zero = sum(n for index, n in result.itl.occupied() if index == 0)
    assert (result.itl.count, zero) == (80, 40)
    bare: Steps = [(0.0, HEAD + EVENT), (0.01, chunks([b"[DONE]"]))]  # is accepted and counted
    with serving(steps=lambda number: bare) as server:
        result = run_here(stream_load(server, count=8))
    assert (result.measured.completed, result.bare, result.seen) == (8, 8, {})


BROKEN_OFF: Final = "the connection ended within the answer"
BUSY: Final = b"HTTP/1.1 503 Busy\r\nSet-Cookie: a=b\r\nContent-Length: 4\r\n\r\n"
WRONG: Final[dict[str, tuple[Steps, str, str]]] = {  # with its class, and what is shown of it
    "garbage": ([(0.0, HEAD + EVENT + chunks([b"garbage\n\n"]))], "event", "garbage"),
    "no event": ([(0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")], "event", "ok"),
    "cut within chunks": ([(0.0, HEAD + EVENT), (0.01, b"")], "truncated", BROKEN_OFF),
    "cut within an event": ([(0.0, HEAD + EVENT + chunks([b"data: b"]))], "truncated", " b"),
    "stalled": ([(0.0, HEAD + EVENT), (600.0, EVENT)], "stalled", "the answer had begun"),
    "no first event": ([(0.0, HEAD), (600.0, EVENT)], "timeout", "the answer had begun"),
    "bad chunk": ([(0.0, HEAD + EVENT), (0.02, b"zz\r\n")], "malformed", "zz\\r\\n"),
    "error": ([(0.0, BUSY), (0.02, b"full")], "rejected", "HTTP/1.1 503 Busy: full"),
    "refused": ([(0.0, b"")], "reset", "the connection ended before an answer"),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_stream_is_a_class_of_failure(what: str, loop: str) -> None:
    wrong, failure, seen = WRONG[what]
    well: Steps = [(0.0, HEAD + EVENT * 2 + LAST)]
    with serving(steps=lambda number: wrong if number % 2 else well) as server:
        load = stream_load(
            server, count=12, timeout_s=1.5, streaming=Streaming(event_timeout_s=0.5), **LOOPS[loop]
        )
        result = run_here(load)
    assert result.measured.completed == 6
    assert result.measured.failed == {failure: 6}
    assert result.seen == {failure: seen}
    first = what not in ("no event", "no first event", "error", "refused")
    assert result.ttft.count == 6 + 6 * first
    given_up = failure in ("timeout", "stalled")
    assert (result.failed_latency.count, result.censored.count) == (6, 6 * given_up)


def test_a_load_by_time_counts_events_by_window_and_keeps_a_log() -> None:
    """With workers, a warm-up and several windows, as `serve-bench load` drives it."""
    limit_ns = round(1.5e9 * GAP_S)
    log = RequestLog([limit_ns, 1])
    with serving(steps=spaced) as server:
        load, timing = stream_load(server), Timing(0.3, 0.3, windows=4, window_s=0.2)
        result: LoadResult = drive_load(load, timing, log=log)
    assert len(result.event_windows) == 4 and sum(result.event_windows) == result.events > 0
    assert len(log) == result.measured.completed == result.ttft.count
    within = result.measured.completed * EVENTS_EACH
    assert within - 4 * EVENTS_EACH <= result.events <= within + 4 * EVENTS_EACH
    check_log(log, result)
    known = [row.stream for row in log.rows() if row.stream is not None]
    late = sum(n for index, n in result.itl.occupied() if slot_middle(index) > limit_ns)
    assert sum(stream.late[0] for stream in known) == pytest.approx(late, abs=1)
    assert all(stream.gaps == EVENTS_EACH - 1 for stream in known)
    together = sum(n for index, n in result.itl.occupied() if index == 0)  # on a busy host alone
    assert sum(stream.gaps - stream.late[1] for stream in known) == together


@pytest.mark.parametrize("loop", LOOPS)
def test_the_log_of_streams_has_the_class_and_the_events_of_each(loop: str) -> None:
    sound: Steps = [(0.0, HEAD + EVENT * 2), (0.01, EVENT + LAST)]
    kinds = [sound, *(steps for steps, _, _ in WRONG.values())]
    ends = {failure for _, failure, _ in WRONG.values()}
    log = RequestLog()
    with serving(steps=lambda number: kinds[number % len(kinds)]) as server:
        streaming = Streaming(event_timeout_s=0.2)
        load = stream_load(server, timeout_s=0.5, streaming=streaming, **LOOPS[loop])
        drain_s = 0.1 if loop == "open" else None  # some are cut there
        result = drive_load(load, Timing(0.2, 0.2, 2, 0.5, drain_s=drain_s), log=log)
    check_log(log, result)
    assert set(result.measured.failed) == ends and result.measured.completed
    assert bool(result.measured.in_flight) == (loop == "open")
    without = [row for row in log.rows() if row.stream is not None and row.stream.first_ns is None]
    assert {"timeout", "rejected", "reset", "event"} <= {row.error for row in without}
    assert sum(row.error in ("timeout", "cut") for row in without) == result.ttft_censored.count
