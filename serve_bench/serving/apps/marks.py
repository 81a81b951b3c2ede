"""The exporter of Serve's spans: marks of the traced requests, in memory mapped from a file.

Each process has its file, and asks nobody. How it is laid out, and what the kinds are:
core/marks.py. Serve makes the spans of proxy, router and replica itself. What lies between them is
marked by functions put around some of Serve's own; where a Ray has not the function, the mark is
missing and the report says so. A request that is not traced costs a few looks at its context.
"""

from __future__ import annotations

import functools
import mmap
import operator
import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

from .tally import fill

FOLDER = "SERVE_BENCH_MARKS"
"""The variable that names the folder; the parent makes it."""

HEADER_BYTES = 64
SLOT = struct.Struct("<16s8s8sqq16s64s")
SLOTS = 1 << 14
"""Marks of a process before the first is written over: 2 MB. A request has 3 to 12 of them."""

SPANS = {
    "proxy_http_request": "proxy",
    "proxy_grpc_request": "proxy",
    "route_to_replica": "route",
    "replica_handle_request": "replica",
}
"""The first word of the name of a span of Serve, and the kind of its mark."""

perf = time.perf_counter_ns


class Ring:
    """The marks of this process.

    Writing never waits for a disk: the file is in memory, and its pages are there from the start.
    """

    def __init__(self, folder: str) -> None:
        how = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        fd = os.open(os.path.join(folder, str(os.getpid())), how, 0o600)
        size = HEADER_BYTES + SLOTS * SLOT.size
        try:
            fill(fd, size)
            self._memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._written = 0
        self._turn = threading.Lock()  # user code and Serve's own run in different threads

    def add(self, ids: tuple[int, int, int], begin: int, end: int, kind: str, name: str) -> None:
        """Write a mark of trace, span and parent (0: none); begin and end are ns of `perf`."""
        trace, span, parent = ids
        with self._turn:
            start = HEADER_BYTES + self._written % SLOTS * SLOT.size
            SLOT.pack_into(
                self._memory,
                start,
                trace.to_bytes(16, "big"),
                span.to_bytes(8, "big"),
                parent.to_bytes(8, "big"),
                begin,
                end,
                kind.encode(),
                name.encode()[:64],
            )
            self._written += 1
            struct.pack_into("<Q", self._memory, 0, self._written)


class Marker:
    """Marks within the innermost span of Serve.

    A span of the app, as FastAPI makes one, may begin anew from the headers of the request.
    """

    def __init__(self, ring: Ring) -> None:
        from opentelemetry import trace
        from opentelemetry.context import get_current

        self._ring = ring
        self.within: ContextVar[Any] = ContextVar("within", default=None)  # has Serve's span
        self._current, self.context = trace.get_current_span, get_current

    def span(self, context: Any = None) -> Any:
        """Return where a context (None: the present one) is in a trace; None: not traced."""
        if not context and not (context := self.within.get() or self.context()):
            return None  # empty, as of most requests: a look at the span takes five times as long
        where = self._current(context).get_span_context()
        return where if where.is_valid and where.trace_flags.sampled else None

    def add(self, span: Any, begin: int, end: int, kind: str) -> None:
        """Write a mark within a span."""
        self._ring.add((span.trace_id, 0, span.span_id), begin, end, kind, "")

    def mark(self, owner: type, name: str, marked: Callable[..., Any]) -> None:
        """Put `marked` in a method's place for traced requests, with span, method, arguments."""
        method = getattr(owner, name)

        @_replace_method(owner, name)
        def mark_traced(*args: Any, **options: Any) -> Any:
            span = self.span()
            if span is None:
                return method(*args, **options)
            return marked(span, method, *args, **options)


def _processor(ring: Ring) -> Any:
    from opentelemetry.sdk.trace import SpanProcessor

    class SpanMarks(SpanProcessor):
        """A processor that marks each span of Serve when it ends; other spans it leaves alone.

        Spans have the time of day. Marks have the moments at which this is called: between a look
        at one clock and one at the other a process may stand still, and the spans would lie after
        what they hold.
        """

        def __init__(self) -> None:
            self._begun: dict[int, int] = {}

        def on_start(self, span: Any, parent_context: Any = None) -> None:
            self._begun[span.get_span_context().span_id] = perf()

        def on_end(self, span: Any) -> None:
            ids, parent = span.get_span_context(), span.parent
            begin = self._begun.pop(ids.span_id, None)
            first, _, rest = span.name.partition(" ")
            if begin is None or (kind := SPANS.get(first)) is None:
                return
            ring.add(
                (ids.trace_id, ids.span_id, parent.span_id if parent else 0),
                begin,
                perf(),
                kind,
                rest.partition(" ")[0],
            )

    return SpanMarks()


def _replace_method(owner: type, name: str) -> Callable[[Any], None]:
    """Return a decorator that puts a function in the place of a method."""
    method = getattr(owner, name)
    return lambda function: setattr(owner, name, functools.wraps(method)(function))


def _skip_others(marker: Marker) -> None:
    """Make no spans for requests that are not traced.

    Serve makes them all the same and throws them away, which cost `optimized` 12 % of its
    requests/s (Ray 2.60).
    """
    from ray.serve._private.tracing_utils import TraceContextManager

    enter: Any = TraceContextManager.__enter__

    @_replace_method(TraceContextManager, "__enter__")
    def marked_enter(self: Any) -> Any:
        self.trace_context = self.trace_context or marker.within.get()
        if marker.span(self.trace_context) is None:
            self.is_tracing_enabled = False
            return self
        enter(self)
        marker.within.set(marker.context())
        return self


def _skip_others_in_replicas(marker: Marker) -> None:
    """Spare a request that bears no trace the decoding of all headers and an unused span."""
    from ray.serve._private.replica import Replica

    headers, within = Replica.get_asgi_tracing_context, Replica._tracing_context

    @_replace_method(Replica, "get_asgi_tracing_context")
    def get_asgi_tracing_context(self: Any, pairs: Any) -> Any:
        for name, _ in pairs:
            if name == b"traceparent":
                return headers(self, pairs)
        return None

    @_replace_method(Replica, "_tracing_context")
    def _tracing_context(self: Any, request: Any) -> Any:
        return within(self, request) if request.tracing_context else nullcontext()


def _mark_sends(marker: Marker) -> None:
    from ray.serve._private.request_router.replica_wrapper import RunningReplica

    def marked(span: Any, send: Any, *args: Any, **options: Any) -> Any:
        now = perf()
        marker.add(span, now, now, "send")
        return send(*args, **options)

    marker.mark(RunningReplica, "try_send_request", marked)


def _mark_arguments(marker: Marker) -> None:
    from ray.serve._private.router import AsyncioRouter

    async def marked(span: Any, resolve: Any, router: Any, request: Any) -> None:
        given, begin = [*request.args, *request.kwargs.values()], perf()
        await resolve(router, request)
        if any(map(operator.is_not, given, [*request.args, *request.kwargs.values()])):
            marker.add(span, begin, perf(), "argument")

    marker.mark(AsyncioRouter, "_resolve_request_arguments", marked)


def _mark_user_code(marker: Marker) -> None:
    from ray.serve._private.replica import UserCallableWrapper

    async def marked(span: Any, call: Any, *args: Any, **options: Any) -> Any:
        begin = perf()
        try:
            return await call(*args, **options)
        finally:
            marker.add(span, begin, perf(), "user")

    marker.mark(UserCallableWrapper, "_call_func_or_gen", marked)


def _mark_slots(marker: Marker) -> None:
    from ray.serve._private import replica

    @asynccontextmanager
    async def marked(span: Any, start: Any, *args: Any, **options: Any) -> Any:
        begin = perf()
        async with start(*args, **options) as value:
            marker.add(span, begin, perf(), "slot")
            yield value

    for held in list(vars(replica).values()):
        if isinstance(held, type) and "_start_request" in vars(held):
            marker.mark(held, "_start_request", marked)


def _mark_batches(marker: Marker) -> None:
    from ray.serve.batching import _BatchQueue

    put, process = _BatchQueue.put, _BatchQueue._process_batch_inner

    @_replace_method(_BatchQueue, "put")
    def marked_put(self: Any, request: Any) -> Any:
        request.put_ns, request.within = perf(), marker.within.get()
        return put(self, request)

    @_replace_method(_BatchQueue, "_process_batch_inner")
    async def marked_process(self: Any, func: Any, batch: Any) -> Any:
        begin = perf()
        for request in batch:
            if request.within is not None:
                marker.add(marker.span(request.within), request.put_ns, begin, "batch")
        marker.within.set(batch[0].within)  # the loop of a queue has that of its first request
        return await process(self, func, batch)


_PATCHES: tuple[Callable[[Marker], None], ...] = (
    _skip_others,
    _skip_others_in_replicas,
    _mark_sends,
    _mark_arguments,
    _mark_user_code,
    _mark_slots,
    _mark_batches,
)


def exporter() -> list[Any]:
    """Return what takes all spans; Serve calls this once in each proxy and replica."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return []
    try:
        ring = Ring(folder)
    except OSError:  # the app runs without marks; the parent finds no file of this process
        return []
    marker = Marker(ring)
    for patch in _PATCHES:
        with suppress(ImportError, AttributeError):  # this Ray lacks it: the hop is `between`
            patch(marker)
    return [_processor(ring)]
