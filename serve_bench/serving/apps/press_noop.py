"""The HTTP handlers of the press apps, and the press service without a model.

Rule: the kinds of handler differ in how Serve calls them and in nothing else: all take the bytes of
the body, read them where they run, write the same lines of log and give the same answer. A worker
scores the samples (SampleScorer in press.py) or counts them (SampleCounter). No torch and no numpy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from anyio import from_thread
from fastapi import Depends, FastAPI
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .press_samples import NoRequest, Samples, read
from .tally import Batching, SharedTally, folders

#: The deployment to which the cell's settings apply.
MEASURED = "Press"

#: Serve's own: its level and its file are those of the deployment.
logger = logging.getLogger("ray.serve")


class _Handler:
    """A worker behind HTTP. Its lines of log: several at DEBUG, one at INFO, then none."""

    kind: str

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...], features: Any):
        self._worker = make(*arguments)
        self._features = tuple(features)

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Take max_batch_size and batch_wait_timeout_s from user_config, without a restart."""
        self._worker.reconfigure(config)

    def settings(self) -> dict[str, Any]:
        """Return what this replica uses now, for the proof."""
        return {
            "callable": self.kind,
            "log_level": logging.getLevelName(logger.getEffectiveLevel()),
            **self._worker.settings(),
        }

    def _read(self, body: bytes) -> Any:
        """Return what the worker takes, or the response to what is no request."""
        logger.debug("received %d bytes", len(body))
        try:
            samples = read(body, self._features)
        except NoRequest as why:
            logger.info("refused: %s", why)
            return JSONResponse({"detail": str(why)}, status_code=422)
        logger.debug("read %d samples", len(samples))
        payload = self._worker.payload(samples)
        logger.debug("prepared %d samples", len(samples))
        return payload

    def _reply(self, answer: Any, began_ns: int) -> Response:
        body = self._worker.body(answer)
        logger.debug("answer of %d bytes", len(body))
        logger.info("answered in %.3f ms", (time.perf_counter_ns() - began_ns) / 1e6)
        return Response(body, media_type="application/json")

    async def _answer(self, body: bytes) -> Response:
        began_ns, payload = time.perf_counter_ns(), self._read(body)
        refused = isinstance(payload, Response)
        return payload if refused else self._reply(await self._worker(payload), began_ns)

    def _answer_now(self, body: bytes) -> Response:
        began_ns, payload = time.perf_counter_ns(), self._read(body)
        refused = isinstance(payload, Response)
        return payload if refused else self._reply(self._worker.now(payload), began_ns)


class AsyncHandler(_Handler):
    """A handler that is a coroutine: all of it runs on the event loop of the replica."""

    kind = "async"

    async def __call__(self, request: Request) -> Response:
        """Answer samples with scores; 422 to what is no request."""
        return await self._answer(await request.body())


class SyncHandler(_Handler):
    """A blocking handler: Serve runs it in a pool of as many threads as max_ongoing_requests."""

    kind = "sync"

    def __init__(self, *arguments: Any) -> None:
        from ray.serve._private import constants

        if not getattr(constants, "RAY_SERVE_RUN_SYNC_IN_THREADPOOL", False):
            raise ValueError(
                "callable sync: this Serve runs it on the event loop, where it blocks every other "
                "request; it needs RAY_SERVE_RUN_SYNC_IN_THREADPOOL=1"
            )
        super().__init__(*arguments)

    def __call__(self, request: Request) -> Response:
        return self._answer_now(from_thread.run(request.body))


api = FastAPI()


async def _body(request: Request) -> bytes:
    return await request.body()


#: A value, since Serve copies the endpoint without what its annotations name.
_BODY: Any = Depends(_body)


@serve.ingress(api)
class FastApiHandler(_Handler):
    """A `def` endpoint: FastAPI runs it in the same pool of threads.

    The body comes as bytes, so that it is read as by the others, and not checked by FastAPI too.
    """

    kind = "fastapi-def"

    @api.post("/")
    def rank(self, body: bytes = _BODY) -> Response:
        return self._answer_now(body)


HANDLERS: dict[str, Any] = {
    "async": AsyncHandler,
    "sync": SyncHandler,
    "fastapi-def": FastApiHandler,
}


def deployment(
    args: Mapping[str, Any],
    make: Callable[..., Any],
    arguments: tuple[Any, ...] = (),
    resources: Mapping[str, float] | None = None,
) -> Any:
    """Build the service of one tier, a handler of the wanted kind. Raises ValueError.

    Args: callable ("async", "sync", "fastapi-def") and features (the names in each sample).
    """
    kind = str(args.get("callable", "async"))
    if kind not in HANDLERS:
        raise ValueError(f"callable: {kind!r} is not allowed; it takes {', '.join(HANDLERS)}")
    wrapped = serve.deployment(
        HANDLERS[kind], name=MEASURED, ray_actor_options=dict(resources or {})
    )
    return wrapped.bind(make, arguments, tuple(args.get("features", ("user", "item"))))


class SampleCounter(Batching):
    """A worker that ranks nothing and answers {"samples": N}: the difference is a ranker's cost.

    It goes through serve.batch when max_batch_size is above 1.
    """

    def __init__(self) -> None:
        self._counts = SharedTally(folders()[0])
        self._by_size = (self._counts,)

    @serve.batch
    async def _batched(self, requests: list[int]) -> list[int]:
        self._counts.add(len(requests))
        return requests

    async def __call__(self, payload: int) -> int:
        self._counts.add(0)
        if self._max_batch_size > 1:
            return int(await self._batched(payload))
        return payload

    def now(self, payload: int) -> int:
        """Return the payload to several threads at once, without a batch."""
        self._counts.add(0)
        return payload

    def payload(self, samples: Samples) -> int:
        """Return how many samples there are: nothing is hashed."""
        return len(samples)

    def body(self, answer: int) -> bytes:
        """Write the number as JSON."""
        return b'{"samples": %d}' % answer


def build(args: Mapping[str, Any]) -> Any:
    """Build the service without a model. Args: those of `deployment`."""
    return deployment(args, SampleCounter)
