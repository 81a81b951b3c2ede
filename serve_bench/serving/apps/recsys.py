"""The recommendation service: an ingress that makes a user's candidates, a ranker that scores them.

Two tiers, as published: GET ?user_id=N -> Ingress -> handle -> Ranker, which batches across
requests -> {"scores": [...]}. With `plain` both tiers do what the published app does; with `tuned`
the ingress answers without FastAPI, and features and scores travel as bytes.

`build` (two tiers) and `one_tier` are the import paths of a declarative deploy. Batch size, wait,
concurrency and replica counts are settings of the deployments, changed without a restart; other
arguments start the replicas anew.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.exceptions import RayServeException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from . import QUIET
from .dlrm_features import FORMS, Answer, Payload, as_scores, features, scores_json
from .dlrm_shape import Shape
from .tally import Batching, ReplicaTally, folders

#: The deployment to which the cell's num_replicas, max_ongoing_requests and max_batch_size apply.
MEASURED = "Ranker"
INGRESS = "Ingress"

#: As published.
MAX_ONGOING_REQUESTS = 1000
INGRESS_PER_RANKER = 2
MAX_BATCH_SIZE = 100
BATCH_WAIT_TIMEOUT_S = 0.05

JSON_HEADERS = [(b"content-type", b"application/json")]

#: Numbers that need no judging: what else int() or FastAPI would take is left to FastAPI.
_USUAL_QUERY = re.compile(rb"user_id=(0|-?[1-9][0-9]{0,17})")

api = FastAPI()


@serve.deployment(name=MEASURED, max_ongoing_requests=MAX_ONGOING_REQUESTS, logging_config=QUIET)
class RankerReplica(Batching):
    """A ranker of requests in batches. torch is imported here alone: an ingress does without.

    `tally`: what it counts with; another where several threads score.
    """

    tally = ReplicaTally

    def __init__(
        self, kind: str, shape: Shape, device: str, threads: int | None, seed: int
    ) -> None:
        import torch

        from . import dlrm

        # Set even to the present number: before that, MKL takes fewer threads for products that it
        # finds small, and two rankers would differ.
        torch.set_num_threads(threads or torch.get_num_threads())
        self._ranker = dlrm.build(kind, shape, device, seed)
        self._max_batch_size = MAX_BATCH_SIZE
        batches, forward_ns = folders()
        self._batches, self._forward_ns = self.tally(batches), self.tally(forward_ns)
        self._by_size = (self._batches, self._forward_ns)
        for tally in self._by_size:
            tally.make_room(MAX_BATCH_SIZE)

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=BATCH_WAIT_TIMEOUT_S)
    async def _batched(self, payloads: list[Payload]) -> list[Answer]:
        return self._score(payloads)

    def _score(self, payloads: list[Payload]) -> list[Answer]:
        began = time.perf_counter_ns()
        answers = self._ranker.answers(payloads)
        taken = time.perf_counter_ns() - began
        size = len(payloads)
        self._batches.add(size)
        self._forward_ns.add(0, taken)
        self._forward_ns.add(size, taken)
        return answers

    async def __call__(self, payload: Payload) -> Answer:
        self._batches.add(0)
        if self._max_batch_size > 1:
            return await self._batched(payload)
        return self._score([payload])[0]

    def settings(self) -> dict[str, Any]:
        return super().settings() | self._ranker.facts()


def usual_user(scope: Any) -> int | None:
    """Return the user of a plain GET of the app's root; None for all that FastAPI must judge."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    if scope["path"] != scope.get("root_path", "") + "/":
        return None
    match = _USUAL_QUERY.fullmatch(scope["query_string"])
    return None if match is None else int(match[1])


@serve.ingress(api)
class _Ingress:
    """An ingress that makes the features of a user's candidates, as the ranker takes them."""

    def __init__(self, ranker: Any, kind: str, shape: Shape, seed: int) -> None:
        self._ranker, self._form = ranker, FORMS[kind]
        self._shape, self._seed = shape, seed

    async def _ask(self, user_id: int) -> Any:
        return await self._ranker.remote(self._form(*features(user_id, self._shape, self._seed)))

    async def _scores(self, user_id: int) -> list[float]:
        scores: list[float] = await self._ask(user_id)
        return scores

    @api.get("/")
    async def recommend(self, user_id: int) -> Any:
        """Answer with the scores of the user's candidates; FastAPI answers 422 to no number."""
        return {"scores": await self._scores(user_id)}


class _DirectIngress(_Ingress):
    """An ingress that answers the usual request itself, and leaves every other to FastAPI.

    The layers of FastAPI cost more than making the features does.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as an ASGI application."""
        user_id = usual_user(scope)
        answer = None
        if user_id is not None:
            # Refused before it reached a ranker: Serve tells FastAPI what to answer then.
            with contextlib.suppress(RayServeException):
                answer = await self._ask(user_id)
        if answer is None:
            await super().__call__(scope, receive, send)  # type: ignore[misc]  # of serve.ingress
            return
        body = scores_json(answer)
        headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _scores(self, user_id: int) -> list[float]:
        return as_scores(await self._ask(user_id))


#: By kind of ranker; `plain` is all FastAPI, as published.
INGRESSES = {"plain": _Ingress, "tuned": _DirectIngress}


def ranker_args(args: Mapping[str, Any]) -> tuple[dict[str, float], tuple[Any, ...]]:
    """Return a ranker replica's resources, and its constructor's arguments. Raises ValueError."""
    kind = str(args.get("ranker", "plain"))
    if kind not in FORMS:
        raise ValueError(f"ranker: {kind!r} is not allowed; it takes {', '.join(FORMS)}")
    resources = {name: float(args[name]) for name in ("num_cpus", "num_gpus") if name in args}
    threads = int(args["threads"]) if args.get("threads") else None
    device, seed = str(args.get("device", "auto")), int(args.get("seed", 0))
    return resources, (kind, Shape.from_args(args), device, threads, seed)


def build(args: Mapping[str, Any]) -> Any:
    """Build the service.

    Args, all optional: ranker ("plain" or "tuned"), device ("auto", "cpu", "cuda"), threads (of
    torch, per replica), seed, num_gpus and num_cpus (per ranker replica), and the fields of
    dlrm_shape.Shape.
    """
    resources, arguments = ranker_args(args)
    ranker = RankerReplica.options(ray_actor_options=resources).bind(*arguments)
    kind, shape, _, _, seed = arguments
    ingress = serve.deployment(
        INGRESSES[kind],
        name=INGRESS,
        num_replicas=INGRESS_PER_RANKER,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        logging_config=QUIET,
    )
    return ingress.bind(ranker, kind, shape, seed)


# The same ranker as a service of one tier: it lacks the ingress and the handle between, so the
# difference from two tiers is their cost.

_Ranker: Any = RankerReplica.func_or_class


@serve.deployment(name=MEASURED, max_ongoing_requests=MAX_ONGOING_REQUESTS, logging_config=QUIET)
class OneTier(_Ranker):  # type: ignore[misc]  # what a deployment wraps has no type
    """A replica that makes a user's candidates and scores them: GET ?user_id=N."""

    def __init__(self, kind: str, shape: Shape, *more: Any) -> None:
        super().__init__(kind, shape, *more)
        self._form, self._shape, self._seed = FORMS[kind], shape, more[-1]

    async def __call__(self, request: Request) -> Response:
        """Answer with the scores of the user's candidates; 422 to what is no whole number."""
        try:
            user_id = int(request.query_params.get("user_id", ""))
        except ValueError:
            return JSONResponse({"detail": "user_id: a whole number is needed"}, status_code=422)
        payload = self._form(*features(user_id, self._shape, self._seed))
        answer = await super().__call__(payload)
        if isinstance(answer, bytes):
            return Response(scores_json(answer), media_type="application/json")
        return JSONResponse({"scores": answer})


def one_tier(args: Mapping[str, Any]) -> Any:
    """Build the service of one tier. Args: as those of `build`."""
    resources, arguments = ranker_args(args)
    return OneTier.options(ray_actor_options=resources).bind(*arguments)
