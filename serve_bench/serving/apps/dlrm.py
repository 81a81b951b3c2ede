"""The ranker: a DLRM (arXiv 1906.00091) for inference, `plain` and `tuned`. torch alone, no ray.

Both hold the same seeded weights and give the same scores (within 1e-5). `plain` does what the
published app does, no more and no less: it is the baseline. `tuned` is in dlrm_tuned.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import torch

from .dlrm_features import FORMS, Answer, Payload, check_rows, features
from .dlrm_shape import Shape
from .dlrm_tuned import TunedRanker
from .dlrm_weights import Weights, facts


class Ranker(Protocol):
    """What both rankers offer. Loaded inputs are valid until the next `load`."""

    kind: str
    device: Any

    def prepare(self, rows: int) -> None:
        """Makes ready for batches of up to so many rows."""

    def load(self, payloads: Sequence[Payload]) -> Any:
        """Features of several requests, in the ranker's own form, as input on the device."""

    def forward(self, loaded: Any) -> Any:
        """Scores of all rows, on the device."""

    def score(self, payloads: Sequence[Payload]) -> list[list[float]]:
        """From requests to the scores of each."""

    def answers(self, payloads: Sequence[Payload]) -> list[Answer]:
        """The same in the form in which it leaves the ranker."""

    def facts(self) -> dict[str, Any]:
        """What is in force, for a record."""


class PlainRanker:
    """As published: an embedding module for each feature, stacked, all products, the upper
    triangle picked by index, eager. Features come as Python lists, scores leave request by
    request."""

    kind = "plain"

    def __init__(self, shape: Shape, device: Any, seed: int) -> None:
        self.device = torch.device(device)
        weights = Weights(shape, seed)
        self._tables = torch.nn.ModuleList()
        for number in range(shape.sparse_features):
            table = torch.empty(shape.table_rows, shape.width)
            weights.table(number, table)
            self._tables.append(torch.nn.Embedding.from_pretrained(table.to(self.device)))
        self._bottom = self._modules(weights.layers("bottom"), end=False)
        self._top = self._modules(weights.layers("top"), end=True)

    def _modules(self, layers: list[tuple[Any, Any]], end: bool) -> Any:
        modules = torch.nn.Sequential()
        for number, (weight, bias) in enumerate(layers):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], device=self.device)
            with torch.no_grad():
                linear.weight.copy_(weight)
                linear.bias.copy_(bias)
            modules.append(linear)
            if not (end and number == len(layers) - 1):
                modules.append(torch.nn.ReLU())
        return modules.eval()

    def prepare(self, rows: int) -> None:
        """Nothing: each batch is computed as it comes."""

    def load(self, payloads: Sequence[Payload]) -> Any:
        """Lists of all requests joined, then arrays, then tensors. ValueError on unequal lists."""
        for payload in payloads:
            check_rows(len(payload["dense"]), len(payload["sparse"]))
        dense = list(chain.from_iterable(payload["dense"] for payload in payloads))
        sparse = list(chain.from_iterable(payload["sparse"] for payload in payloads))
        dense_array = np.asarray(dense, dtype=np.float32)
        sparse_array = np.asarray(sparse, dtype=np.int64)
        return (
            torch.from_numpy(dense_array).to(self.device, non_blocking=True),
            torch.from_numpy(sparse_array).to(self.device, non_blocking=True),
        )

    def forward(self, loaded: Any) -> Any:
        """Scores of all rows, on the device."""
        dense, sparse = loaded
        with torch.inference_mode():
            embedded = [table(sparse[:, number]) for number, table in enumerate(self._tables)]
            first = self._bottom(dense)
            vectors = torch.stack([first, *embedded], dim=1)
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            count = vectors.shape[1]
            row, column = torch.triu_indices(count, count, offset=1, device=self.device)
            joined = torch.cat([first, products[:, row, column]], dim=1)
            return torch.sigmoid(self._top(joined)).squeeze(-1)

    def score(self, payloads: Sequence[Payload]) -> list[list[float]]:
        """From requests to the scores of each."""
        sizes = [len(payload["dense"]) for payload in payloads]
        parts = self.forward(self.load(payloads)).split(sizes, dim=0)
        return [part.detach().cpu().tolist() for part in parts]

    def answers(self, payloads: Sequence[Payload]) -> list[Answer]:
        """Lists, as published."""
        return self.score(payloads)

    def facts(self) -> dict[str, Any]:
        """What is in force, for a record."""
        return facts(self.kind, self.device)


RANKERS: dict[str, Callable[[Shape, Any, int], Ranker]] = {
    "plain": PlainRanker,
    "tuned": TunedRanker,
}


def resolve_device(wanted: str) -> str:
    """The device that "auto", "cpu" or "cuda" means. ValueError: CUDA is asked for in vain."""
    if wanted == "cpu":
        return "cpu"
    available = bool(torch.cuda.is_available())
    if wanted == "cuda" and not available:
        built = torch.version.cuda
        why = "torch is built without CUDA" if built is None else "torch finds no CUDA device"
        raise ValueError(why)
    return "cuda" if available else "cpu"


def build(kind: str, shape: Shape, device: str = "auto", seed: int = 0) -> Ranker:
    """A ranker with its weights on the device, warmed up by one request."""
    ranker = RANKERS[kind](shape, resolve_device(device), seed)
    ranker.score([FORMS[kind](*features(0, shape, seed))])
    return ranker
