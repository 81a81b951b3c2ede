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
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import ray
from ray import serve
from ray.serve import exceptions as of_serve

from serve_bench.core.request_spec import Headers, is_json
from serve_bench.load.async_engine import CallClient, CallEngine
from serve_bench.load.pacing import Assignment, next_turn

CLASSES: Final[dict[type[Exception], str]] = {
    of_serve.BackPressureError: "rejected",
    of_serve.DeploymentUnavailableError: "reset",
    of_serve.RequestCancelledError: "reset",
    ray.exceptions.RayActorError: "reset",
    ray.exceptions.RayChannelError: "reset",
    ray.exceptions.TaskCancelledError: "reset",
}
"""Classes of failures by exception; any other is one of the application."""

HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HandleEngine(CallEngine[CallClient]):
    """All callers of one worker, a process that is the driver of one cluster until it ends."""

    has_threads = makes_cycles = True  # those of the router, and of Ray's client

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        turns = [
            (urlsplit(url).path.rpartition("/")[2], arguments(body, headers))
            for url, body, headers, _ in work.load.request.turns
        ]
        self._draw = next_turn(work.load, work.share, turns)
        self._size = size_of
        self._methods: dict[str, Any] = {}

    def connect(self) -> int:
        handlers = {number: signal.getsignal(number) for number in HANDLED}
        try:
            ray.init(
                address=f"{self.load.request.host}:{self.load.request.port}",
                namespace="serve",
                log_to_driver=False,
                configure_logging=False,
            )
            self._methods = self._loop.run_until_complete(self._handles())
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds
            self.connect_error = f"no handle: {type(error).__name__}: {error}".splitlines()[0]
            return 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)  # Ray takes some of them
        return super().connect()

    async def _handles(self) -> dict[str, Any]:
        """Make a handle for each method, in the loop: a router may need the loop of its caller."""
        application = unquote(urlsplit(self.load.request.url).path.split("/")[1])
        handle: Any = serve.get_app_handle(application)
        names = {urlsplit(url).path.rpartition("/")[2] for url, *_ in self.load.request.turns}
        streams = self._streaming is not None
        return {name: handle.options(method_name=name, stream=streams) for name in names}

    def _make_client(self) -> CallClient:
        return CallClient()

    async def _attempt(
        self, client: CallClient, turn: tuple[str, tuple[Any, ...]]
    ) -> tuple[str | None, int]:
        method, values = turn
        client.stalled = False
        limit = asyncio.timeout(self.load.timeout_s)
        try:
            async with limit:
                client.call = self._methods[method].remote(*values)
                if self._streaming is not None:
                    return await self._stream(client)
                answer = await client.call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # the load is over
                client.call.cancel()
                raise
            return ("stalled" if client.stalled else "reset"), 0  # the call itself was cancelled
        except Exception as error:  # noqa: BLE001 - an exception of the app may be of any kind
            if isinstance(error, TimeoutError) and limit.expired():
                client.call.cancel()
                return "timeout", 0
            failure = "stalled" if client.stalled else class_of(error)
            cause = getattr(error, "cause", None) or error  # without the traceback that Ray adds
            self.see(failure, f"{type(cause).__name__}: {cause}")
            return failure, 0
        return self._answer(client, answer)


def arguments(body: bytes, headers: Headers) -> tuple[Any, ...]:
    """Return the arguments of a call: none, the value of JSON, or the bytes of the body."""
    if not body:
        return ()
    return (json.loads(body) if is_json(headers) else body,)


def size_of(answer: Any) -> int:
    """Return the length of an answer; 0 if it is neither text nor bytes."""
    return len(answer) if isinstance(answer, bytes | str) else 0


def class_of(error: Exception) -> str:
    """Return the class of failure of an exception of a call."""
    names = (name for kind, name in CLASSES.items() if isinstance(error, kind))
    return next(names, "exception")
