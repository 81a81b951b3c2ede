"""The client of a DeploymentHandle: a driver of the Ray cluster, whose calls go through one handle.

A request is a call of a method of the ingress of an application (`/application/method` is the path
of the URL), with the body as its argument: the value of JSON by its content-type, else bytes;
without a body no argument. The router that chooses the replica, and the queue in
front of it, are in this process: what they cost is the client's, as it is in each caller of Serve.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ray
from ray import serve
from ray.serve import exceptions as of_serve

from serve_bench.core.load_result import GIVEN_UP
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Headers
from serve_bench.load.async_engine import AsyncClient, AsyncEngine
from serve_bench.load.connection import Address
from serve_bench.load.pacing import WorkerShare, next_turn
from serve_bench.load.tally import NEVER

CLASSES: Final = (
    ((of_serve.BackPressureError,), "rejected"),
    (
        (
            of_serve.DeploymentUnavailableError,
            of_serve.RequestCancelledError,
            ray.exceptions.RayActorError,
            ray.exceptions.RayChannelError,
            ray.exceptions.RaySystemError,
            ray.exceptions.TaskCancelledError,
        ),
        "reset",
    ),
)
"""Classes of failures by exception; any other is one of the application."""

HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

perf = time.perf_counter_ns


@dataclass(slots=True, eq=False)
class Caller(AsyncClient):
    """One user of the handle. `last`: when the latest event of a stream came (ns), 0: none yet;
    `call`: the request in flight; `stalled`: it was cancelled for its silence; `received`: bytes.
    """

    last: int = 0
    call: Any = None
    stalled: bool = False
    received: int = 0


class HandleEngine(AsyncEngine[Caller]):
    """All callers of one worker. A process can be a driver of one cluster alone."""

    has_threads = makes_cycles = True  # those of the router, and of Ray's client

    def __init__(self, load: Load, address: Address, share: WorkerShare) -> None:
        super().__init__(load, address, share)
        turns = [
            (urlsplit(url).path.rpartition("/")[2], arguments(body, headers))
            for url, body, headers in load.request.turns
        ]
        self._draw = next_turn(load, share, turns)
        self._handle: Any = None
        self._streaming = load.streaming
        gap_s = None if load.streaming is None else load.streaming.event_timeout_s
        self._gap_ns = NEVER if gap_s is None else int(gap_s * 1e9)

    def open_streams(self) -> list[tuple[int, int]] | None:
        if self._streaming is None:
            return None
        return [(client.due, client.last) for client in self._clients if client.busy]

    def connect(self) -> int:
        """Join the cluster, and get the handle."""
        handlers = {number: signal.getsignal(number) for number in HANDLED}
        try:
            ray.init(
                address=f"{self.load.request.host}:{self.load.request.port}",
                namespace="serve",
                log_to_driver=False,
                configure_logging=False,
            )
            self._handle = self._loop.run_until_complete(self._get_handle())
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds
            self.connect_error = f"no handle: {type(error).__name__}: {error}".splitlines()[0]
            return 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)  # Ray takes some of them
        return super().connect()

    async def _get_handle(self) -> Any:
        """Made within the loop: a router without a loop of its own wants that of its caller."""
        application = unquote(urlsplit(self.load.request.url).path.split("/")[1])
        handle: Any = serve.get_app_handle(application)
        return handle.options(stream=True) if self._streaming is not None else handle

    def _make_client(self) -> Caller:
        return Caller()

    async def _preconnect(self, client: Caller) -> bool:
        return True

    async def _attempt(
        self, client: Caller, turn: tuple[str, tuple[Any, ...]]
    ) -> tuple[str | None, int]:
        method, values = turn
        client.stalled = False
        try:
            async with asyncio.timeout(self.load.timeout_s):
                client.call = getattr(self._handle, method).remote(*values)
                if self._streaming is not None:
                    return await self._stream(client)
                answer = await client.call
        except TimeoutError:
            client.call.cancel()
            return "timeout", 0
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # the load is over
                client.call.cancel()
                raise
            return ("stalled" if client.stalled else "reset"), 0  # the call itself was cancelled
        except Exception as error:  # noqa: BLE001 - an exception of the app may be of any kind
            return ("stalled" if client.stalled else class_of(error)), 0
        client.received += size_of(answer)
        expected = self.load.request.expect_body
        return ("body" if expected is not None and answer != expected else None), 0

    async def _stream(self, client: Caller) -> tuple[str | None, int]:
        """A stream, of which each item is an event."""
        client.last = 0
        async for item in client.call:
            now = perf()
            if now >= self.tally.edge:
                self._turn(now)
            self.tally.streamed(client.due, client.last, now, 1)
            client.last = now
            client.received += size_of(item)
        return (None if client.last else "event"), 0

    def _given_up(self, client: Caller, failure: str, now: int) -> None:
        if self._streaming is not None and failure in GIVEN_UP:
            self.tally.no_event(client.due, client.last, now)

    def _account(self, client: Caller) -> None:
        self.tally.bytes += client.received
        client.received = 0

    def _turn(self, now: int) -> None:
        if self._gap_ns < NEVER:
            for client in self._clients:
                if client.busy and client.last and now - client.last > self._gap_ns:
                    client.stalled = True
                    client.call.cancel()
        super()._turn(now)

    async def _disconnect(self, client: Caller) -> None:
        """A caller has no connection of its own; the driver leaves with its process."""


def arguments(body: bytes, headers: Headers) -> tuple[Any, ...]:
    """What a method is called with."""
    if not body:
        return ()
    types = [value for name, value in headers if name.lower() == "content-type"]
    return (json.loads(body) if types and types[0].startswith("application/json") else body,)


def size_of(answer: Any) -> int:
    """Bytes of an answer; 0 of what is no text and no bytes."""
    return len(answer) if isinstance(answer, bytes | str) else 0


def class_of(error: Exception) -> str:
    """The class of failure of a call that ended with an exception."""
    for kinds, name in CLASSES:
        if isinstance(error, kinds):
            return name
    return "exception"
