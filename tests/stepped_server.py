"""A server whose capacity changes at known moments and which drops known requests.

Requests depart by Lindley's recursion over its slots, whose number is that of a schedule on the
clock of the load (`begin` is an `on_measure`), so what a request waits is known however busy the
host is; only its answer may be late. It serves in a thread of the test.
"""

import asyncio
import threading
import time
from collections.abc import Collection, Sequence
from typing import Self

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class SteppedServer:
    """`slots`: (second, number) in order, the first at 0 or before. A request takes `service_s` of
    a slot. `drops`: the numbers, from 0, of the requests behind `begin` whose connection is reset.
    """

    def __init__(
        self, slots: Sequence[tuple[float, int]], service_s: float, drops: Collection[int] = ()
    ) -> None:
        self.slots, self.service_s, self.drops = list(slots), service_s, set(drops)
        self.dropped: list[int] = []
        self._zero = float("inf")
        self._free: list[float] = [0.0] * self.slots[0][1]
        self._later = self.slots[1:]
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._up = threading.Event()
        self.url = ""

    def begin(self, measure_ns: int) -> None:
        """The clock of the schedule starts at this moment (perf_counter_ns)."""
        self._zero = measure_ns / 1e9

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10), "it is up"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        async def start() -> None:
            server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            self._up.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()

    def departure(self, now: float) -> float | None:
        """When a request that comes now has its answer; None: it is dropped."""
        if now >= self._zero:
            self._number += 1
            if self._number - 1 in self.drops:
                self.dropped.append(self._number - 1)
                return None
        while self._later and now - self._zero >= self._later[0][0]:
            second, number = self._later.pop(0)
            self._free += [self._zero + second] * (number - len(self._free))
        place = min(range(len(self._free)), key=self._free.__getitem__)
        self._free[place] = max(self._free[place], now) + self.service_s
        return self._free[place]

    def answer(self, transport: asyncio.Transport) -> None:
        departs = self.departure(time.perf_counter())
        if departs is None:
            transport.abort()
            return
        wait_s = max(0.0, departs - time.perf_counter())
        self._loop.call_later(wait_s, _write, transport)


def _write(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.write(ANSWER)


class _Connection(asyncio.Protocol):
    """A connection; requests have no body, and one is in flight."""

    def __init__(self, server: SteppedServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._server.answer(self._transport)
