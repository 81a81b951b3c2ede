"""Servers with a known answer, for tests of the load engine.

Each serves HTTP on loopback from a thread of its own and writes down when it received and answered
each request, so that a test compares with the server's own times and counts. What a request
gets is decided by a script: request number -> the name of an action.
"""

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LENGTH = b"Content-Length: 2\r\n"
STATUS, END = b"HTTP/1.1 200 OK\r\n", b"\r\nok"
LONG = b"X-A: %s\r\n" % (b"a" * 1_000_000)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"

Script = Callable[[int], str]

Steps = Sequence[tuple[float, bytes]]
"""A stream: after so many seconds these bytes. What is left of it at b"" is not sent."""


@dataclass
class Exchange:
    """One request as the server saw it (perf_counter_ns, the clock of all processes).

    `answered_ns` and `steps_ns`: just before the response, or each step of a stream, was written.
    `peer`: the client's port, which tells connections that are open at the same time apart; 0 on
    unix sockets.
    """

    number: int
    action: str
    received_ns: int
    answered_ns: int = 0
    method: str = ""
    body: bytes = b""
    head: bytes = b""
    peer: int = 0
    steps_ns: list[int] = field(default_factory=list)


@dataclass
class KnownServer:
    port: int = 0
    scheme: str = "http"
    host: str = "127.0.0.1"
    connections: int = 0
    log: list[Exchange] = field(default_factory=list)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/"

    @property
    def asked(self) -> list[list[tuple[str, bytes]]]:
        """Path and body of the requests, by connection."""
        by_peer: dict[int, list[tuple[str, bytes]]] = {}
        for exchange in self.log:
            request = exchange.head.split()[1].decode(), exchange.body
            by_peer.setdefault(exchange.peer, []).append(request)
        return [*by_peer.values()]

    @property
    def actions(self) -> Counter[str]:
        return Counter(exchange.action for exchange in self.log)


@dataclass
class Settings:
    """What the actions need.

    `delay_s`: service time. `stall`: how much longer (s) a request waits, by the time since the
    first one came. `steps`: each request gets such a stream, in place of an action. `early`: it is
    answered behind its head, and its body read then, slowly.
    """

    script: Script = lambda number: "ok"
    delay_s: float = 0.0
    slots: asyncio.Semaphore | None = None
    stall: Callable[[float], float] = lambda since_first: 0.0
    accept_delay_s: float = 0.0
    steps: Callable[[int], Steps] | None = None
    early: bool = False


Action = Callable[[asyncio.StreamWriter], Awaitable[bool]]


async def _send(writer: asyncio.StreamWriter, data: bytes) -> bool:
    writer.write(data)
    await writer.drain()
    return True


def _bytes(data: bytes, keep: bool = True) -> Action:
    async def action(writer: asyncio.StreamWriter) -> bool:
        await _send(writer, data)
        return keep

    return action


async def _drip(writer: asyncio.StreamWriter) -> bool:
    """Send the response byte by byte, each in a segment of its own."""
    for i in range(len(CHUNKED)):
        await _send(writer, CHUNKED[i : i + 1])
        await asyncio.sleep(0)
    return True


async def _reset(writer: asyncio.StreamWriter) -> bool:
    """RST instead of FIN: linger 0."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


async def _close_later(writer: asyncio.StreamWriter) -> bool:
    """Promise keep-alive in a good answer, and end the connection soon after."""
    await _send(writer, OK)
    await asyncio.sleep(0.01)
    return False


async def _silent(writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(3600)
    return False


ACTIONS: dict[str, Action] = {
    "ok": _bytes(OK),
    "chunked": _bytes(CHUNKED),
    "early_hints": _bytes(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK),
    "no_content": _bytes(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "not_modified": _bytes(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n"),
    "head": _bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
    "until_eof": _bytes(b"HTTP/1.1 200 OK\r\n\r\nok", keep=False),
    "connection_close": _bytes(STATUS + b"Connection: close\r\n" + LENGTH + END, keep=False),
    "error500": _bytes(b"HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\nerror"),
    "error503": _bytes(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"),
    "error429": _bytes(b"HTTP/1.1 429 Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"),
    "too_large": _bytes(
        b"HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", keep=False
    ),
    "wrong_body": _bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"),
    "longer_body": _bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nno\r\n\r\nok"),
    "garbage": _bytes(b"this is not HTTP\r\n\r\n"),
    "bad_chunk": _bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n"),
    "surplus": _bytes(OK + OK),
    "surplus_50": _bytes(50 * OK),
    "surplus_letter": _bytes(OK + b"H"),
    "surplus_head": _bytes(OK + b"HTTP/1.1 200 OK\r\nContent-Le"),
    "surplus_cut": _bytes(OK + OK[:-1]),
    "surplus_bytes": _bytes(OK + b"garbage"),
    "folded": _bytes(b"HTTP/1.1 200 OK\r\nX-A: one\r\n\ttwo\r\nContent-Length:\r\n 2\r\n\r\nok"),
    "long_head": _bytes(STATUS + LONG + LENGTH + END),
    "many_headers": _bytes(STATUS + b"X-A: %s\r\n" % (b"a" * 90) * 10_000 + LENGTH + END),
    "long_head_until_eof": _bytes(STATUS + LONG + END, keep=False),
    "bare_lf": _bytes(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
    "spaced_chunk": _bytes(STATUS + b"Transfer-Encoding: chunked\r\n\r\n2 \r\nok\r\n0 \r\n\r\n"),
    "empty_lines": _bytes(OK + b"\r\n\r\n"),
    "two_lengths": _bytes(b"HTTP/1.1 200 OK\r\n%s%s\r\nok" % (LENGTH, LENGTH)),
    "body_of_204": _bytes(b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok"),
    "switched": _bytes(b"HTTP/1.1 101 Switching\r\n\r\n"),
    "close_before": _bytes(b"", keep=False),
    "close_later": _close_later,
    "close_in_head": _bytes(OK[:20], keep=False),
    "close_in_body": _bytes(OK[:-1], keep=False),
    "close_in_chunks": _bytes(CHUNKED[:-5], keep=False),
    "reset": _reset,
    "silent": _silent,
    "drip": _drip,
}

SURPLUS = [name for name in ACTIONS if name.startswith("surplus")]
MALFORMED = ("garbage", "bad_chunk", "two_lengths", "body_of_204", *SURPLUS)
FAILURES: dict[str, str] = {
    **dict.fromkeys(("error500", "not_modified", "switched"), "status"),
    **dict.fromkeys(("wrong_body", "longer_body"), "body"),
    **dict.fromkeys(MALFORMED, "malformed"),
    **dict.fromkeys(("close_before", "reset"), "reset"),
    **dict.fromkeys(("close_in_head", "close_in_body", "close_in_chunks"), "truncated"),
    **{"error503": "rejected", "silent": "timeout"},
}
"""The class of failure that each misbehaviour must be reported as."""


def every_nth(n: int, action: str) -> Script:
    """Each n-th request gets this action, the others `ok`."""
    return lambda number: action if number % n == n - 1 else "ok"


def always(action: str) -> Script:
    return lambda number: action


async def _handle(
    server: KnownServer,
    settings: Settings,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    server.connections += 1
    peer = writer.get_extra_info("peername")
    try:
        if settings.accept_delay_s:
            await asyncio.sleep(settings.accept_delay_s)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            received = time.perf_counter_ns()
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = b"" if settings.early else await reader.readexactly(length)
            number = len(server.log)
            exchange = Exchange(number, settings.script(number), received)
            exchange.method, exchange.body, exchange.head = head.split()[0].decode(), body, head
            exchange.peer = peer[1] if peer else 0
            server.log.append(exchange)
            await _wait(settings, (received - server.log[0].received_ns) / 1e9)
            exchange.answered_ns = time.perf_counter_ns()
            if settings.steps is not None:
                keep = await _stream(writer, exchange, settings.steps(number))
            else:
                keep = await ACTIONS[exchange.action](writer)
            if not keep or b" HTTP/1.0\r\n" in head:
                break
            if settings.early:
                await asyncio.sleep(0.02)  # until the client has seen it, and its buffers are full
                exchange.body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the client went away, as it may, or the server ends
    finally:
        writer.close()


async def _stream(writer: asyncio.StreamWriter, exchange: Exchange, steps: Steps) -> bool:
    """Write a stream; False where it is cut off."""
    for after_s, data in steps:
        if after_s:
            await asyncio.sleep(after_s)
        if not data:
            return False
        exchange.steps_ns.append(time.perf_counter_ns())
        await _send(writer, data)
    return True


async def _wait(settings: Settings, since_first_s: float) -> None:
    stall_s = settings.stall(since_first_s)
    if stall_s > 0:
        await asyncio.sleep(stall_s)
    if settings.slots is not None:
        async with settings.slots:
            await asyncio.sleep(settings.delay_s)
    elif settings.delay_s:
        await asyncio.sleep(settings.delay_s)


@contextmanager
def serving(
    script: Script | None = None,
    *,
    capacity: int | None = None,
    host: str = "127.0.0.1",
    unix_path: str | None = None,
    tls: ssl.SSLContext | None = None,
    **settings: Any,
) -> Iterator[KnownServer]:
    """Run a server in a thread until the block ends; `capacity`: requests served at a time."""
    server = KnownServer(scheme="https" if tls else "http", host=host)
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        slots = asyncio.Semaphore(capacity) if capacity else None
        known = Settings(script or always("ok"), slots=slots, **settings)

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _handle(server, known, reader, writer)

        if unix_path is not None:
            listener = await asyncio.start_unix_server(handle, unix_path, backlog=1024)
        else:
            listener = await asyncio.start_server(handle, host, 0, ssl=tls, backlog=1024)
            server.port = listener.sockets[0].getsockname()[1]
            if known.early:
                listener.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        if hasattr(listener, "abort_clients"):  # from 3.13 on; left open they outlive it
            listener.abort_clients()
        listener.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(60), "the test server did not start"
    try:
        yield server
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(5)
