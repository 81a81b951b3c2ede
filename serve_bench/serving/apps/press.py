"""The press service: JSON samples of string features, hashed to ids, scored by a DLRM ranker.

POST {"samples": [{"user": "...", "item": "..."}, ...]} -> {"scores": [...]}, in one tier. What a
handler is, and what is a request, is in press_noop.py and press_samples.py. `build` is the import
path of a declarative deploy.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from .dlrm_features import Answer, Payload, as_block, scores_json
from .dlrm_shape import Shape
from .press_noop import deployment
from .press_samples import Samples, hashed
from .recsys import RankerReplica, ranker_args
from .tally import SharedTally

_Ranker: Any = RankerReplica.func_or_class


class SampleScorer(_Ranker):  # type: ignore[misc]  # what a deployment wraps has no type
    """The ranker of the recommendation service, for several threads too."""

    tally = SharedTally

    def __init__(self, kind: str, shape: Shape, *more: Any) -> None:
        super().__init__(kind, shape, *more)
        self._kind, self._shape = kind, shape
        # `tuned` computes in memory that it keeps: one thread at a time. `plain` makes all anew.
        self._turn: Any = threading.Lock() if kind == "tuned" else contextlib.nullcontext()

    def payload(self, samples: Samples) -> Payload:
        """Hash features, in the form that the ranker takes."""
        dense, ids = hashed(samples, self._shape.dense_features, self._shape.table_rows)
        if self._kind == "tuned":
            return as_block(np.array(dense, np.float32), np.array(ids, np.int32))
        return {"dense": dense, "sparse": ids}

    def now(self, payload: Payload) -> Answer:
        """Return the scores of one request, for several threads at once."""
        self._batches.add(0)
        with self._turn:
            return self._score([payload])[0]

    def body(self, answer: Answer) -> bytes:
        """Write the scores as JSON."""
        if isinstance(answer, bytes):
            return scores_json(answer)
        return json.dumps({"scores": answer}).encode()


def build(args: Mapping[str, Any]) -> Any:
    """Build the service. Args: those of press_noop.deployment, and those of recsys.build."""
    resources, arguments = ranker_args(args)
    shape, features = arguments[1], args.get("features", ("user", "item"))
    if shape.sparse_features != len(features):
        raise ValueError(f"features: {len(features)} names, {shape.sparse_features} tables")
    return deployment(args, SampleScorer, arguments, resources)
