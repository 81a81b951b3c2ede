"""The recommendation service: an ingress that makes a user's candidates, a ranker that scores them.

Two tiers, as published: GET ?user_id=N -> Ingress -> handle -> Ranker, which batches across
requests -> {"scores": [...]}. `build` is the import path of a declarative deploy. Batch size, wait,
concurrency and replica counts are settings of the deployments, changed without a restart; model,
device and threads are arguments, which start the replicas anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from ray import serve

from .dlrm_features import FORMS, Payload, features
from .dlrm_shape import Shape
from .tally import Tally, folders

#: The deployment to which the cell's num_replicas, max_concurrent_queries and max_batch_size apply.
MEASURED = "Ranker"
INGRESS = "Ingress"

#: As published.
MAX_ONGOING_REQUESTS = 1000
INGRESS_PER_RANKER = 2
MAX_BATCH_SIZE = 100
BATCH_WAIT_TIMEOUT_S = 0.05

#: An access log is a line per request; Ray's own benchmarks silence it too.
QUIET = {"log_level": "WARNING", "enable_access_log": False}

api = FastAPI()


@serve.deployment(name=MEASURED, max_ongoing_requests=MAX_ONGOING_REQUESTS, logging_config=QUIET)
class Ranker:
    """Scores requests in batches. torch is imported here alone: an ingress does without."""

    def __init__(
        self, kind: str, shape: Shape, device: str, threads: int | None, seed: int
    ) -> None:
        from . import dlrm, dlrm_clock

        dlrm_clock.threads(threads)
        self._ranker = dlrm.build(kind, shape, device, seed)
        self._ranker.prepare(MAX_BATCH_SIZE * shape.rows_per_request)
        self._max_batch_size = MAX_BATCH_SIZE
        batches, forward_ns = folders()
        self._batches, self._forward_ns = Tally(batches), Tally(forward_ns)
        self._make_room()

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Takes max_batch_size and batch_wait_timeout_s from user_config, without a restart."""
        self._max_batch_size = int(config["max_batch_size"])
        self._make_room()
        self._batched.set_max_batch_size(self._max_batch_size)
        self._batched.set_batch_wait_timeout_s(float(config["batch_wait_timeout_s"]))

    def _make_room(self) -> None:
        self._batches.make_room(self._max_batch_size)
        self._forward_ns.make_room(self._max_batch_size)

    @serve.batch(max_batch_size=MAX_BATCH_SIZE, batch_wait_timeout_s=BATCH_WAIT_TIMEOUT_S)
    async def _batched(self, payloads: list[Payload]) -> list[list[float]]:
        return self._score(payloads)

    def _score(self, payloads: list[Payload]) -> list[list[float]]:
        began = time.perf_counter_ns()
        scores = self._ranker.score(payloads)
        taken = time.perf_counter_ns() - began
        size = len(payloads)
        self._batches.add(size)
        self._forward_ns.add(0, taken)
        self._forward_ns.add(size, taken)
        return scores

    async def __call__(self, payload: Payload) -> list[float]:
        self._batches.add(0)
        if self._max_batch_size > 1:
            scores: list[float] = await self._batched(payload)
            return scores
        return self._score([payload])[0]

    def settings(self) -> dict[str, Any]:
        """What this replica uses now, for the proof."""
        return {
            "max_batch_size": self._max_batch_size,
            "queue_max_batch_size": self._batched._get_max_batch_size(),
            "batch_wait_timeout_s": self._batched._get_batch_wait_timeout_s(),
            **self._ranker.facts(),
        }


@serve.deployment(name=INGRESS, max_ongoing_requests=MAX_ONGOING_REQUESTS, logging_config=QUIET)
@serve.ingress(api)
class Ingress:
    """Makes the features of a user's candidates, in the form that the ranker takes."""

    def __init__(self, ranker: Any, kind: str, shape: Shape, seed: int) -> None:
        self._ranker, self._form = ranker, FORMS[kind]
        self._shape, self._seed = shape, seed

    @api.get("/")
    async def recommend(self, user_id: int) -> Any:
        """The scores of the user's candidates. FastAPI answers 422 to what is no number."""
        payload = self._form(*features(user_id, self._shape, self._seed))
        return {"scores": await self._ranker.remote(payload)}


def ranker_args(args: Mapping[str, Any]) -> tuple[dict[str, float], tuple[Any, ...]]:
    """Resources of a ranker replica, and the arguments that it is made with. ValueError."""
    kind = str(args.get("ranker", "plain"))
    if kind not in FORMS:
        raise ValueError(f"ranker: {kind!r} is not allowed; it takes {', '.join(FORMS)}")
    resources = {name: float(args[name]) for name in ("num_cpus", "num_gpus") if name in args}
    threads = int(args["threads"]) if args.get("threads") else None
    device, seed = str(args.get("device", "auto")), int(args.get("seed", 0))
    return resources, (kind, Shape.from_args(args), device, threads, seed)


def build(args: Mapping[str, Any]) -> Any:
    """The service. Args, all optional: ranker ("plain" or "tuned"), device ("auto", "cpu", "cuda"),
    threads (of torch, per replica), seed, num_gpus and num_cpus (per ranker replica), and the
    fields of dlrm_shape.Shape."""
    resources, arguments = ranker_args(args)
    ranker = Ranker.options(ray_actor_options=resources).bind(*arguments)
    kind, shape, _, _, seed = arguments
    ingress = Ingress.options(num_replicas=INGRESS_PER_RANKER)
    return ingress.bind(ranker, kind, shape, seed)
