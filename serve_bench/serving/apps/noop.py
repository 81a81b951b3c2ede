"""The no-op application: it answers "ok" and does nothing else, so that only Serve is measured.

Serve imports `build`. Batch size, concurrency and replica count are settings of the deployment, so
their change does not restart a replica. Each replica counts its requests (place 0) and batches (by
size) in a file that serve-bench reads (layout: core/usage.py). A query asks for other answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

from . import QUIET
from .noop_answers import ANSWER, EVENT, asked, body_of, query_of
from .tally import Batching, ReplicaTally, folders

#: The deployment to which the cell's num_replicas, max_ongoing_requests and max_batch_size apply.
MEASURED = "NoOp"

#: Concurrency of the intermediate deployment: Ray's own microbenchmark gives its forwarder 1,000.
INTERMEDIATE_CONCURRENCY = 1000


def _reply(body_type: str) -> Any:
    """Return a Response, with Content-Length, or a bare string, which is chunked, as published."""
    return ANSWER if body_type == "str" else PlainTextResponse(ANSWER)


class Methods:
    """What an ingress answers: calls of a handle and of gRPC, and HTTP with a query.

    A message is such a query, filled up with zeros (noop_answers.py).
    """

    async def answer(self, message: bytes = b"", *body: bytes) -> bytes:
        """Answer a handle with the body that the query asks for.

        It echoes the message, or the body that HTTP has beside it.
        """
        raise NotImplementedError

    def events(self, message: bytes, *body: bytes) -> AsyncIterator[bytes]:
        """Stream as many events to a handle as the query asks for; `body` as in `answer`."""
        raise NotImplementedError

    async def by_http(self, request: Request) -> Any:
        """Answer HTTP where a query asks for something."""
        query: bytes = request.scope["query_string"]
        body = (await request.body(),) if asked(query, b"echo") else ()
        if asked(query, b"events"):
            return StreamingResponse(self.events(query, *body), media_type="text/event-stream")
        return PlainTextResponse(await self.answer(query, *body))

    async def Call(self, message: Any) -> Any:
        """Answer gRPC, in a message of the same type."""
        return type(message)(value=await self.answer(message.value))

    async def Stream(self, message: Any) -> AsyncIterator[Any]:
        """Stream as many messages over gRPC as the query asks for."""
        async for event in self.events(message.value):
            yield type(message)(value=event)


@serve.deployment(name=MEASURED)
class NoOp(Batching, Methods):
    """An ingress that answers "ok"; through `serve.batch` when max_batch_size is above 1."""

    def __init__(self, body_type: str) -> None:
        self._body_type = body_type
        self._gap_s = 0.0
        self._counts = ReplicaTally(folders()[0])
        self._by_size = (self._counts,)

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Take what Batching takes, and the time before each event."""
        super().reconfigure(config)
        self._gap_s = float(config.get("event_gap_ms", 0.0)) / 1e3

    def settings(self) -> dict[str, Any]:
        """Return what Batching returns, and the time before each event."""
        return {**super().settings(), "event_gap_ms": round(self._gap_s * 1e3, 6)}

    @serve.batch
    async def _batched(self, requests: list[Any]) -> list[Any]:
        self._counts.add(len(requests))
        return [_reply(self._body_type) for _ in requests]

    async def answer(self, message: bytes = b"", *body: bytes) -> bytes:
        query = query_of(message)
        await self._count(query)
        if asked(query, b"echo"):
            return body[0] if body else message
        return body_of(query)

    async def events(self, message: bytes, *body: bytes) -> AsyncIterator[bytes]:
        query, event = query_of(message), EVENT
        if asked(query, b"echo"):
            event = b"data: %b\n\n" % body[0] if body else message
        await self._count(query)
        for _ in range(asked(query, b"events")):
            if self._gap_s:
                await asyncio.sleep(self._gap_s)
            yield event

    async def _count(self, request: Any) -> Any:
        self._counts.add(0)
        return await self._batched(request) if self._max_batch_size > 1 else None

    async def __call__(self, request: Request | bytes) -> Any:
        if isinstance(request, Request) and request.scope["query_string"]:
            return await self.by_http(request)
        self._counts.add(0)
        if self._max_batch_size > 1:
            return await self._batched(request)
        return _reply(self._body_type)


@serve.deployment(
    name="Forwarder", max_ongoing_requests=INTERMEDIATE_CONCURRENCY, logging_config=QUIET
)
class Forwarder(Methods):
    """An ingress that passes each request on through a handle, as a composed model does."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._streaming = handle.options(stream=True)

    async def answer(self, message: bytes = b"", *body: bytes) -> bytes:
        answer: bytes = await self._handle.answer.remote(message, *body)
        return answer

    async def events(self, message: bytes, *body: bytes) -> AsyncIterator[bytes]:
        async for event in self._streaming.events.remote(message, *body):
            yield event

    async def __call__(self, request: Request) -> Any:
        if request.scope["query_string"]:
            return await self.by_http(request)
        return await self._handle.remote(await request.body())


def build(args: dict[str, str]) -> Any:
    """Build the app. Args: body_type ("response", "str"), intermediate_handle ("0", "1")."""
    noop = NoOp.bind(args.get("body_type", "response"))
    if args.get("intermediate_handle", "0") == "1":
        return Forwarder.bind(noop)
    return noop
