"""The applications of `scale`: an echo, hops at random, and graphs whose answer is a known sum.

Each builder takes the arguments that benchmarks/scale/request.py makes. Over HTTP the answer is
text; over a handle a graph takes and returns a number, which is 0 at the entry. Each replica counts
its calls. Replicas ask Ray for next to no CPU, so that any number of them fits: the caller checks
that there is memory for them.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from . import QUIET
from .tally import ReplicaTally, folders

ANSWER = "hi"

#: No request is in progress when an application is removed: there is nothing to wait for.
SHUTDOWN_WAIT_S = 0.1
SHUTDOWN_TIMEOUT_S = 2.0

#: What a replica asks of Ray: next to nothing, so that hundreds fit on a small host. Not nothing:
#: then Ray 2.60 does not spread them, and six came to lie 3, 3 and 0 on three hosts, where this had
#: 2, 2 and 2 in every of five runs. A node without a replica has no proxy, and so no load.
NEXT_TO_NO_CPU = 0.001


def _make_response(answer: Any) -> PlainTextResponse:
    """Make a Response, which carries Content-Length; a bare string is answered chunked."""
    return PlainTextResponse(str(answer))


def _make_deployment(cls: type, name: str, args: Mapping[str, Any]) -> Any:
    return serve.deployment(
        cls,
        name=name,
        num_replicas=int(args.get("num_replicas", 1)),
        max_ongoing_requests=int(args.get("max_ongoing_requests", 100)),
        ray_actor_options={"num_cpus": NEXT_TO_NO_CPU},
        graceful_shutdown_wait_loop_s=SHUTDOWN_WAIT_S,
        graceful_shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
        logging_config=QUIET,
    )


class Echo:
    """An app that answers "hi", in batches."""

    def __init__(self, max_batch_size: int, batch_wait_timeout_s: float) -> None:
        self._counts = ReplicaTally(folders()[0])
        self._counts.make_room(max_batch_size)
        self._batched.set_max_batch_size(max_batch_size)
        self._batched.set_batch_wait_timeout_s(batch_wait_timeout_s)

    @serve.batch
    async def _batched(self, request: list[bool]) -> list[Any]:
        self._counts.add(len(request))
        return [_make_response(ANSWER) if http else ANSWER for http in request]

    async def __call__(self, request: Request | int) -> Any:
        """Answer HTTP with a Response, a handle with the text itself."""
        self._counts.add(0)
        return await self._batched(isinstance(request, Request))


class Hop:
    """An app that passes a request on to an application drawn at random, itself among them.

    Once it has been passed on `hops` times, "hi" comes back all the way.
    """

    def __init__(self, apps: list[str], hops: int, seed: int) -> None:
        self._apps, self._hops = apps, hops
        # Replicas of one application must not draw the same in step.
        self._random = random.Random(f"{seed}:{os.getpid()}")
        self._handles: dict[str, Any] = {}
        self._counts = ReplicaTally(folders()[0])

    async def __call__(self, request: Request | int) -> Any:
        """Take a request that comes in: no hop yet."""
        answer = await self.hop(0)
        return _make_response(answer) if isinstance(request, Request) else answer

    async def hop(self, depth: int) -> str:
        """Answer, or pass on, a request that has been passed on `depth` times."""
        self._counts.add(0)
        if depth >= self._hops:
            return ANSWER
        app = self._random.choice(self._apps)
        if app not in self._handles:  # it may come up later than this one
            self._handles[app] = serve.get_app_handle(app)
        return str(await self._handles[app].hop.remote(depth + 1))


class Adder:
    """A node that adds a number. Those that follow get the sum at the same time, and answer."""

    def __init__(self, plus: int, *following: Any) -> None:
        self._plus, self._following = plus, following
        self._counts = ReplicaTally(folders()[0])

    async def __call__(self, request: Request | int) -> Any:
        """Return the sum; to HTTP as text, where the number is the parameter `input`, or 0."""
        self._counts.add(0)
        given = request.query_params.get("input", 0) if isinstance(request, Request) else request
        answer = int(given) + self._plus
        if len(self._following) == 1:
            answer = await self._following[0].remote(answer)
        elif self._following:
            answer = sum(await asyncio.gather(*(node.remote(answer) for node in self._following)))
        return _make_response(answer) if isinstance(request, Request) else answer


def single(args: Mapping[str, Any]) -> Any:
    """Build one deployment. Args: max_batch_size, batch_wait_timeout_s.

    Args of all builders: num_replicas, max_ongoing_requests.
    """
    echo = _make_deployment(Echo, "Echo", args)
    return echo.bind(int(args["max_batch_size"]), float(args["batch_wait_timeout_s"]))


def multi(args: Mapping[str, Any]) -> Any:
    """Build one of several applications. Args: apps (the names of all), hops, seed."""
    hop = _make_deployment(Hop, "Hop", args)
    return hop.bind(list(args["apps"]), int(args["hops"]), int(args["seed"]))


def ensemble(args: Mapping[str, Any]) -> Any:
    """Build nodes that add 0, 1, 2 ... to the input, and a combiner. Args: size."""
    nodes = [_make_deployment(Adder, f"Node{n}", args).bind(n) for n in range(int(args["size"]))]
    return _make_deployment(Adder, "Combiner", args).bind(0, *nodes)


def chain(args: Mapping[str, Any]) -> Any:
    """Build nodes in a row, each of which adds 1. Args: size."""
    following: tuple[Any, ...] = ()
    for n in reversed(range(int(args["size"]))):
        following = (_make_deployment(Adder, f"Node{n}", args).bind(1, *following),)
    return following[0]
