"""Responses that are streams: where an event ends, and what is wrong with a stream.

Rule: no socket and no clock. A reader gets the pieces of a body as they come and counts the events
that they complete: any cut into pieces gives the same events, but for pieces that are events. When
an event came is for the engine to say (`exchanges.py`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Annotated, Final

import msgspec

from serve_bench.core.load_spec import Streaming
from serve_bench.load import http1
from serve_bench.load.http1 import OTHER, PLAIN, WAITING, ResponseFramer, ends_itself

BOM: Final = b"\xef\xbb\xbf"

DONE: Final = b"[DONE]"
"""Data of the event that ends the stream of an OpenAI-compatible service. It is no event itself."""

MAX_EVENT: Final = 16_000_000
"""Bytes of the longest event of SSE or message of gRPC."""

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_FIELDS: Final = frozenset((b"event", b"id", b"retry"))


class EventReader(ABC):
    """Counts the events of one response after another.

    `fresh`: events that are complete and that the engine has not taken yet. `any`: whether there
    was one. `done`: the stream has announced its end, `bare`: by a line without `data:`. `fault`:
    class of failure; None: none yet. `seen`: what was wrong, as it came, empty where nothing came.
    `tokens`: of the prompt and of the answer, as the service counts them; None: it does not.
    `held`: bytes that are kept of an event without its end.
    """

    __slots__ = ("any", "bare", "done", "fault", "fresh", "held", "seen", "tokens")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin another response."""
        self.fresh = self.held = 0
        self.any = self.bare = self.done = False
        self.fault: str | None = None
        self.seen = b""
        self.tokens: tuple[int, int] | None = None

    @abstractmethod
    def feed(self, part: bytes) -> None:
        """Read the next piece of the body."""

    def end(self) -> str | None:
        """End the body; return the class of failure, None if the stream is whole."""
        if not self.any:
            self.fail("event", b"")
        return self.fault

    def fail(self, fault: str, seen: bytes) -> None:
        """Note what is wrong with the stream, unless something was before."""
        if self.fault is None:
            self.fault, self.seen = fault, seen[: http1.LARGE]

    def add(self) -> None:
        """Count an event."""
        self.fresh += 1
        self.any = True


class PieceReader(EventReader):
    """Each piece is an event: where a body has no chunks, each read."""

    __slots__ = ()

    def feed(self, part: bytes) -> None:
        self.add()


class LineReader(EventReader):
    """Each line with anything in it is an event, the last one without a line end too."""

    __slots__ = ("_begun",)

    def reset(self) -> None:
        super().reset()
        self._begun = False

    def feed(self, part: bytes) -> None:
        *lines, rest = part.split(b"\n")
        for line in lines:
            if self._begun or line.strip():
                self.add()
            self._begun = False
        self._begun = self._begun or bool(rest.strip())

    def end(self) -> str | None:
        if self._begun:
            self.add()
        return super().end()


class SseReader(EventReader):
    """Server-sent events (WHATWG HTML, 9.2.6): blocks of lines with `data:`, ended by an empty one.

    Comments and fields without data are no event. A block that has neither data nor a field of the
    standard is malformed. A body that ends within a block is truncated. A line that is DONE alone
    ends the stream too: clients ignore it as a field that they do not know.
    """

    __slots__ = ("_after_cr", "_data", "_first", "_garbage", "_rest")

    announced = False
    """Whether a stream must end with DONE; one without it is truncated."""

    def reset(self) -> None:
        super().reset()
        self._rest = bytearray()  # of a line without its end
        self._data = bytearray()  # lines of a block without its end, each behind a line end
        self._garbage = b""  # the first line of a block that is no field
        self._after_cr = False
        self._first = True

    def feed(self, part: bytes) -> None:
        # The usual piece is one event, whole: reading its lines would take three times as long.
        if (
            part.startswith(b"data:")
            and part.find(b"\n") == len(part) - 2
            and part.endswith(b"\n\n")
            and not (self._rest or self._after_cr or self._garbage)
            and not self._data
            and b"\r" not in part
        ):
            self._first = False
            self._dispatch(part[5:-2])
            return
        if self._after_cr and part:  # a line that ended with CR may go on with LF
            self._after_cr = False
            part = part.removeprefix(b"\n")
        if not part:
            return
        if b"\n" not in part and b"\r" not in part:
            self._rest += part
            self.held += len(part)
            return
        self._after_cr = part.endswith(b"\r")
        *lines, rest = _LINE_END.split(self._rest + part if self._rest else part)
        self._rest = bytearray(rest)
        for line in lines:
            self._line(line)
        self.held = len(rest) + len(self._data)

    def _line(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(BOM)
        if not line:
            data, garbage = self._data, self._garbage
            self._data, self._garbage = bytearray(), b""
            if data:
                self._dispatch(bytes(memoryview(data)[1:]))
            elif garbage:
                self.fail("event", garbage)
            return
        if line.strip() == DONE:
            self.done = self.bare = True
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data += b"\n" + value
        elif name and name not in _FIELDS:  # without a name it is a comment
            self._garbage = self._garbage or line[: http1.LARGE]

    def _dispatch(self, data: bytes) -> None:
        """Take the data of a whole block: of an event, or of the one that ends the stream."""
        if data.removeprefix(b" ") == DONE:
            self.done = True
        else:
            self.add()

    def end(self) -> str | None:
        if self._rest:
            self._line(bytes(self._rest))
            self._rest.clear()
        data = bytes(self._data[1:])
        if self._data and data.removeprefix(b" ") == DONE:
            self.done = True  # its empty line is often left out
        elif self._data or self._garbage or (self.announced and not self.done):
            rest = data or self._garbage or b"no [DONE] at the end"
            self.fail("truncated" if self.any else "event", rest)
        return super().end()


class _Delta(msgspec.Struct):
    """What is new in a chunk of a chat completion."""

    content: str | list[msgspec.Raw] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[msgspec.Raw] | None = None

    @property
    def new(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    """One of the answers of a request; those of a plain completion have `text`."""

    delta: _Delta | None = None
    text: str | None = None


class _Usage(msgspec.Struct):
    """Tokens as the service counts them, within what an answer can have."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None
    completion_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None


class _Chunk(msgspec.Struct):
    """A chunk of a completion, as far as it is read."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


_decode: Final = msgspec.json.Decoder(_Chunk).decode


class OpenAiReader(SseReader):
    """Chunks of completions of an OpenAI-compatible service.

    One with text or a tool call is an event; a role, an end or a count of tokens is none."""

    __slots__ = ()

    announced = True

    def _dispatch(self, data: bytes) -> None:
        if data.removeprefix(b" ") == DONE:
            self.done = True
            return
        if len(data) > http1.MAX_HEAD:  # as objects it would take 30 times as much
            self.fail("too-large", data)
            return
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # ValidationError too
            self.fail("event", data)
            return
        if chunk.error is not None:  # in the place of further text, with a status of 200
            self.fail("event", data)
        if chunk.usage is not None:
            self.tokens = (chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0)
        for choice in chunk.choices or ():
            delta = choice.delta
            if choice.text or (delta is not None and delta.new):
                self.add()
                return


class StreamFramer(ResponseFramer):
    """Frames responses that are streams.

    `first`, `last`: when the first byte and the latest event came (ns); 0: none yet. `streams`: the
    head has come, and says 2xx; only then is the body read for events. Each header is read for
    `eof`, since the head of a long stream is not kept.
    """

    __slots__ = ("_bounded", "_head_read", "first", "last", "reader", "streams")

    def __init__(self, reader: EventReader) -> None:
        self.reader = reader
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self.reader.reset()
        self.first = self.last = 0
        self._bounded = self._head_read = self.streams = False

    def on_header(self, name: bytes, value: bytes) -> None:
        own_end = ends_itself(name, value)
        self._bounded = self._bounded if own_end is None else own_end

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        self._head_read, self.streams = status >= 200, 200 <= status < 300

    def on_body(self, part: bytes) -> None:
        """Read a piece of the body (a callback of llhttp)."""
        if self.streams:
            self._room = http1.MAX_HEAD
            self.reader.feed(part)

    def on_message_complete(self) -> None:
        """Note the end of a response; PLAIN only with a whole stream."""
        status, keep_alive = self.parser.get_status_code(), self.parser.should_keep_alive()
        if self.streams:
            self.fault = self.reader.end()
        if status == 200 and keep_alive and self.done == WAITING and self.fault is None:
            self.done = PLAIN
        else:
            self._complete(status, keep_alive)

    def keep(self, data: bytes) -> bool:
        if not self.streams:
            return super().keep(data)
        self.started = True
        self._room -= len(data)  # full again with each piece of the body
        return self._room > 0 and self.reader.held <= MAX_EVENT

    def seen(self, data: bytes = b"") -> bytes:
        return self.reader.seen or super().seen(data)

    def eof(self) -> bool:
        if self.done or not self.started:
            return bool(self.done)
        if self._bounded or not self._head_read:
            return False
        if self.streams:
            self.fault = self.reader.end()
        self._complete(self.parser.get_status_code(), False)
        return self.done == OTHER


class ChunkFramer(StreamFramer):
    """Frames streams whose events are the chunks of the chunked coding."""

    __slots__ = ("_chunked", "_filled")

    def reset(self) -> None:
        super().reset()
        self._chunked = self._filled = False

    def on_chunk_header(self) -> None:
        self._chunked = True

    def on_body(self, part: bytes) -> None:
        if self._chunked:
            self._filled, self._room = self.streams, http1.MAX_HEAD
        else:
            super().on_body(part)

    def on_chunk_complete(self) -> None:
        """Count a chunk that has data (a callback of llhttp, for the last, empty chunk too)."""
        if self._filled:
            self._filled = False
            self.reader.add()


def stream_framer(streaming: Streaming) -> StreamFramer:
    """Make the framer for streams of these events."""
    if streaming.events == "chunks":
        return ChunkFramer(PieceReader())
    if streaming.events == "lines":
        return StreamFramer(LineReader())
    return StreamFramer(OpenAiReader() if streaming.openai else SseReader())
