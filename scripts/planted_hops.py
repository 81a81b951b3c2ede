"""The app of `scripts/bench hops`, and patches of Serve's proxy: delays planted in one request.

What a request is to suffer stands in its query (`plant`, `ms`), so that one launch serves all
cases. It runs in the processes of Serve alone: `exporter` stands in the place of the exporter of
marks, which Serve calls in the proxy and in each replica, and puts the patches below the marks.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from typing import Any
from urllib.parse import parse_qs

from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse

QUIET = {"log_level": "WARNING", "enable_access_log": False}

SENT = re.compile(rb"plant=network&ms=([\d.]+)")
"""The query of a request, in what the proxy sends to the replica."""


def exporter() -> list[Any]:
    """Return the exporter of marks, above the patches."""
    from serve_bench_apps import marks

    _stall_in_proxy()
    _stall_the_send()
    made: list[Any] = marks.exporter()
    return made


def _stall_in_proxy() -> None:
    """Stall the proxy's code when it has the request, before it routes (plant=proxy)."""
    from ray.serve._private.proxy_request_response import ASGIProxyRequest

    pack: Any = ASGIProxyRequest.serialized_replica_arg

    @functools.wraps(pack)
    def stalled(self: Any, *args: Any, **options: Any) -> Any:
        query = parse_qs(self.scope["query_string"].decode())
        if query.get("plant") == ["proxy"]:
            time.sleep(float(query["ms"][0]) / 1e3)
        return pack(self, *args, **options)

    setattr(ASGIProxyRequest, "serialized_replica_arg", stalled)  # noqa: B010


def _stall_the_send() -> None:
    """Delay what the router sends to a replica (plant=network)."""
    from ray.serve._private.request_router.replica_wrapper import RunningReplica

    send: Any = RunningReplica.try_send_request

    @functools.wraps(send)
    def stalled(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        body = request.args[0] if request.args else None
        if isinstance(body, bytes) and (found := SENT.search(body)):
            time.sleep(float(found[1]) / 1e3)
        return send(self, request, *args, **options)

    setattr(RunningReplica, "try_send_request", stalled)  # noqa: B010


@serve.deployment(name="Down", logging_config=QUIET, max_ongoing_requests=100)
class Down:
    """A deployment that is called, and waits."""

    async def __call__(self, ms: float) -> str:
        await asyncio.sleep(ms / 1e3)
        return "ok"


def until(at_ns: str) -> float:
    """Return the seconds from now to a moment of the monotonic clock."""
    return max(0.0, (int(at_ns) - time.perf_counter_ns()) / 1e9)


@serve.deployment(name="Front", logging_config=QUIET, max_ongoing_requests=1)
class Front:
    """A deployment of one slot; the query of a request says what delays it.

    hold: keeps the one slot until `until`. block: at `at` the loop of the user's code stands still;
    the request itself is answered before.
    """

    def __init__(self, down: Any) -> None:
        self._down = down

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.005)
    async def batched_5(self, items: list[int]) -> list[int]:
        return items

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.02)
    async def batched_20(self, items: list[int]) -> list[int]:
        return items

    async def __call__(self, request: Request) -> Any:
        query = request.query_params
        plant, ms = query.get("plant"), float(query.get("ms", "0"))
        if plant == "user":
            await asyncio.sleep(ms / 1e3)
        elif plant == "batch":
            await (self.batched_5(0) if ms == 5 else self.batched_20(0))
        elif plant == "downstream":
            await self._down.remote(ms)
        elif plant == "hold":
            await asyncio.sleep(until(query["until"]))
        elif plant == "block":
            asyncio.get_running_loop().call_later(until(query["at"]), time.sleep, ms / 1e3)
        return PlainTextResponse("ok")


def build() -> Any:
    """Build the front, and what it calls."""
    front: Any = Front
    down: Any = Down
    return front.bind(down.bind())


app = build()
