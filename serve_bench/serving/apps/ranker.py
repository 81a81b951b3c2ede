"""The ranker as a service of one tier: GET ?user_id=N makes the candidates of a user and scores
them in the same replica, through the same batches as the two-tier service (recsys.py).

What it lacks against that one is the ingress and the handle between: the difference is their cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .dlrm_features import FORMS, features, scores_json
from .dlrm_shape import Shape
from .recsys import MAX_ONGOING_REQUESTS, MEASURED, QUIET, Ranker, ranker_args

_Ranker: Any = Ranker.func_or_class


@serve.deployment(name=MEASURED, max_ongoing_requests=MAX_ONGOING_REQUESTS, logging_config=QUIET)
class Scorer(_Ranker):  # type: ignore[misc]  # what a deployment wraps has no type
    """A ranker that HTTP meets."""

    def __init__(
        self, kind: str, shape: Shape, device: str, threads: int | None, seed: int
    ) -> None:
        super().__init__(kind, shape, device, threads, seed)
        self._form, self._shape, self._seed = FORMS[kind], shape, seed

    async def __call__(self, request: Request) -> Response:
        """The scores of the user's candidates; 422 to what is no whole number."""
        try:
            user_id = int(request.query_params.get("user_id", ""))
        except ValueError:
            return JSONResponse({"detail": "user_id: a whole number is needed"}, status_code=422)
        payload = self._form(*features(user_id, self._shape, self._seed))
        answer = await super().__call__(payload)
        if isinstance(answer, bytes):
            return Response(scores_json(answer), media_type="application/json")
        return JSONResponse({"scores": answer})


def build(args: Mapping[str, Any]) -> Any:
    """The service. Args: as those of recsys.build."""
    options, arguments = ranker_args(args)
    return Scorer.options(ray_actor_options=options).bind(*arguments)
