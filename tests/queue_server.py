"""Queues behind real sockets, whose capacity theory knows: `python -m tests.queue_server KIND`.

The server draws service times and computes when each request departs (Lindley's recursion); it only
waits until then. So its queue is that of theory, however busy the host; only the answer may be
late. It prints its port, and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"

MU = 1000.0
"""Requests/s of a server that is never idle."""

CLIFF_RATE, CLIFF_BURST = 800.0, 20.0
"""Above this rate the cliff refuses; bursts of so many requests are taken."""


class Queue:
    """When a request departs, and how it is answered. `kind`: mm1, md1, cliff or slow (a service
    that never meets anything)."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._random = random.Random(seed)
        self._free = 0.0  # when the server has served all that has come
        self._tokens, self._last = CLIFF_BURST, 0.0

    def take(self, now: float) -> tuple[float, bytes]:
        """(time of departure, answer) of a request that comes now."""
        if self.kind == "cliff":
            self._tokens += (now - self._last) * CLIFF_RATE
            self._tokens, self._last = min(self._tokens, CLIFF_BURST), now
            if self._tokens < 1:
                return now, BUSY
            self._tokens -= 1
            return now + 0.005, OK
        if self.kind == "slow":
            return now + 0.5, OK
        service = 1 / MU if self.kind == "md1" else self._random.expovariate(MU)
        self._free = max(self._free, now) + service
        return self._free, OK


async def serve(kind: str, seed: int) -> None:
    """Serves until it is cancelled."""
    queue, loop = Queue(kind, seed), asyncio.get_running_loop()

    class Connection(asyncio.Protocol):
        """A connection; requests have no body."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = transport
            self._rest = b""

        def data_received(self, data: bytes) -> None:
            self._rest += data
            while b"\r\n\r\n" in self._rest:
                _, _, self._rest = self._rest.partition(b"\r\n\r\n")
                at, answer = queue.take(time.monotonic())
                loop.call_at(at, self._answer, answer)

        def _answer(self, answer: bytes) -> None:
            transport = self._transport
            if isinstance(transport, asyncio.WriteTransport) and not transport.is_closing():
                transport.write(answer)

    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1))
