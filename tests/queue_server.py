"""Queues behind real sockets, whose capacity theory knows: `python -m tests.queue_server KIND`.

The server draws service times and computes when each request departs (Lindley's recursion); it only
waits until then. So its queue is that of theory, however busy the host; only the answer may be
late. It prints its port, and serves until it is ended.

    mm1         one server, exponential service
    cliff       refuses above a rate; up to there it answers at once
    slow        never meets anything
    stream      mm1; the first event at the departure, the last one LAST_S later
    chain       a stream of EVENTS; each waits in the queue of mm1 anew, from the one before on
    grpc        cliff at half of its rate, as a unary method of gRPC
"""

import asyncio
import random
import sys
import time
from typing import Any

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: a\n\n\r\n"
END = b"0\r\n\r\n"

MU = 1000.0
"""Requests/s of a server that is never idle."""

CLIFF_RATE, CLIFF_BURST = 800.0, 20.0
"""Above this rate the cliff refuses; bursts of so many requests are taken. At 95.9 % of it 1 % of
Poisson arrivals are refused (`bucket` in tests/capacity_servers.py)."""

LAST_S = 0.1
EVENTS = 5


class Queue:
    """When a request departs, and how it is answered."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._random = random.Random(seed)
        self._free = 0.0  # when the server has served all that has come
        self._tokens, self._last = CLIFF_BURST, 0.0

    def take(self, now: float) -> tuple[float, bytes]:
        """(time of departure, answer) of a request that comes now."""
        if self.kind in ("cliff", "grpc"):
            self._tokens += (now - self._last) * CLIFF_RATE / (1 if self.kind == "cliff" else 2)
            self._tokens, self._last = min(self._tokens, CLIFF_BURST), now
            if self._tokens < 1:
                return now, BUSY
            self._tokens -= 1
            return now + (0.005 if self.kind == "grpc" else 0.0), OK
        if self.kind == "slow":
            return now + 0.5, OK
        self._free = max(self._free, now) + self._random.expovariate(MU)
        return self._free, OK

    def then(self, event: int, at: float) -> float | None:
        """When the event after this one of a stream comes, which came then; None after the last."""
        if self.kind == "stream":
            return at + LAST_S if event == 0 else None
        return self.take(at)[0] if event < EVENTS - 1 else None


async def serve(kind: str, seed: int) -> None:
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
                if kind in ("stream", "chain"):
                    loop.call_at(at, self._event, 0, at)
                else:
                    loop.call_at(at, self._answer, answer)

        def _event(self, event: int, at: float) -> None:
            then = queue.then(event, at)
            self._answer((b"" if event else HEAD) + EVENT + (END if then is None else b""))
            if then is not None:
                loop.call_at(then, self._event, event + 1, then)

        def _answer(self, answer: bytes) -> None:
            transport = self._transport
            if isinstance(transport, asyncio.WriteTransport) and not transport.is_closing():
                transport.write(answer)

    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def serve_grpc(seed: int) -> None:
    """Serve `/test.Queue/Call` until it is cancelled."""
    import grpc

    queue = Queue("grpc", seed)

    async def call(message: bytes, context: Any) -> bytes:
        now = time.monotonic()
        at, answer = queue.take(now)
        if answer == BUSY:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
        await asyncio.sleep(at - now)
        return message

    server = grpc.aio.server()
    methods = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Queue", methods),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    which = sys.argv[1]
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    asyncio.run(serve_grpc(number) if which == "grpc" else serve(which, number))
