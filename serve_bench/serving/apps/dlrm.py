"""The ranker: a DLRM (arXiv 1906.00091) for inference, `plain` and `tuned`. torch alone, no ray.

Both hold the same seeded weights and give the same scores (within 1e-5), float32 throughout.
`plain` does what the published app does, no more and no less: it is the baseline. `tuned` is the
same model with what makes it faster, each step with its reason.
"""

from __future__ import annotations

import mmap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch

from .dlrm_features import FORMS, Answer, Payload, as_matrix, features
from .dlrm_shape import Shape

# The seeded weights.
#
# Rule: drawn on the CPU, each table and layer by its own generator, so that weights are the same on
# every device and in whatever order they are asked for.

UNIFORM_STD_1 = 3.0**0.5
"""Uniform numbers up to this have a standard deviation of 1, as the published app's embeddings."""


class Weights:
    """Tables and layers of a shape, by seed."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape, self._seed = shape, seed

    def table(self, number: int, into: Any) -> None:
        """Fill `into` (table_rows, width) with embeddings of standard deviation 1."""
        into.uniform_(-UNIFORM_STD_1, UNIFORM_STD_1, generator=self._generator(number))

    def layers(self, which: str) -> list[tuple[Any, Any]]:
        """Draw (weight, bias) of each layer of "bottom" or "top", as torch.nn.Linear does."""
        # Uniform numbers within 1/sqrt(inputs).
        shape, first = self._shape, 1_000_000 if which == "bottom" else 2_000_000
        widths = (shape.dense_features, *shape.bottom)
        if which == "top":
            widths = (shape.width + shape.pairs, *shape.top, 1)
        drawn = []
        for number, (inputs, outputs) in enumerate(pairwise(widths)):
            generator, most = self._generator(first + number), inputs**-0.5
            weight = torch.empty(outputs, inputs).uniform_(-most, most, generator=generator)
            bias = torch.empty(outputs).uniform_(-most, most, generator=generator)
            drawn.append((weight, bias))
        return drawn

    def _generator(self, number: int) -> Any:
        return torch.Generator().manual_seed(self._seed * 10_000_000 + number)


# The rankers.


class Ranker(ABC):
    """What both rankers offer."""

    kind: str
    device: Any

    @abstractmethod
    def answers(self, payloads: Sequence[Payload]) -> list[Answer]:
        """Return the scores of each request. Raises ValueError on one that is not whole rows."""

    def facts(self) -> dict[str, Any]:
        """Return what is in force, for a record."""
        cuda = self.device.type == "cuda"
        return {
            "ranker": self.kind,
            "device": self.device.type,
            "device_name": torch.cuda.get_device_name(self.device) if cuda else None,
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
        }


class PlainRanker(Ranker):
    """The ranker as published: eager, with an embedding module for each feature.

    Embeddings are stacked, multiplied with one another, and the upper triangle picked by index.
    Features come as Python lists, scores leave request by request.
    """

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

    def answers(self, payloads: Sequence[Payload]) -> list[Answer]:
        """Join lists of all requests, then make arrays, then tensors; lists again, as published."""
        for payload in payloads:
            dense_rows, ids = len(payload["dense"]), len(payload["sparse"])
            if dense_rows != ids:
                what = f"{dense_rows} rows of dense features and {ids} of ids"
                raise ValueError(f"a request has {what}")
        dense = list(chain.from_iterable(payload["dense"] for payload in payloads))
        sparse = list(chain.from_iterable(payload["sparse"] for payload in payloads))
        dense_array = np.asarray(dense, dtype=np.float32)
        sparse_array = np.asarray(sparse, dtype=np.int64)
        numbers = torch.from_numpy(dense_array).to(self.device, non_blocking=True)
        rows = torch.from_numpy(sparse_array).to(self.device, non_blocking=True)
        with torch.inference_mode():
            embedded = [table(rows[:, number]) for number, table in enumerate(self._tables)]
            first = self._bottom(numbers)
            vectors = torch.stack([first, *embedded], dim=1)
            products = torch.bmm(vectors, vectors.transpose(1, 2))
            count = vectors.shape[1]
            row, column = torch.triu_indices(count, count, offset=1, device=self.device)
            joined = torch.cat([first, products[:, row, column]], dim=1)
            scores = torch.sigmoid(self._top(joined)).squeeze(-1)
        parts = scores.split([len(payload["dense"]) for payload in payloads], dim=0)
        return [part.detach().cpu().tolist() for part in parts]


CHUNK_ROWS = 128
"""Rows taken at a time by one thread: what lies between the layers stays in the caches (1.8 MB with
the default shape). plain / tuned at 3,200 rows: 1.31 (1.24 to 1.35) with 128, 1.17 (1.15 to 1.22)
with 512, 1.27 (1.22 to 1.31) with all."""

CHUNK_ROWS_OF_THREADS = 4096
"""Rows taken by several threads: each operator ends with all threads waiting for one another, so
few large ones are steadier. 1.30 (1.21 to 1.37) with 128, 1.33 (1.29 to 1.37) with all."""

PLACES_MULTIPLE = 4
"""A row's vectors take places up to a multiple of this, the spare ones unread: products of 28 x 28
took 54 us for 32 rows where 27 x 27 took 71 (2 cores AMD EPYC, one thread, MKL)."""


class TunedRanker(Ranker):
    """One fused table, packed features, memory made once, batches in chunks."""

    kind = "tuned"

    def __init__(self, shape: Shape, device: Any, seed: int) -> None:
        self.device = torch.device(device)
        self._shape = shape
        self._model = _Model(shape, self.device, seed)
        one_thread = self.device.type == "cpu" and torch.get_num_threads() == 1
        self._chunk_rows = CHUNK_ROWS if one_thread else CHUNK_ROWS_OF_THREADS
        self._memory = _Memory(self._model, self._chunk_rows)
        self._workspaces: dict[int, _Workspace] = {}

    def answers(self, payloads: Sequence[Payload]) -> list[Answer]:
        """Score one array of all requests: on a CPU the very bytes that came."""
        matrix = as_matrix(payloads, self._shape.columns)
        with warnings.catch_warnings():  # of an array that is read-only: it is never written to
            warnings.simplefilter("ignore", UserWarning)
            loaded = torch.from_numpy(matrix).to(self.device)
        with torch.inference_mode():
            out = torch.empty(len(loaded), device=self.device)
            for start in range(0, len(loaded), self._chunk_rows):
                part = loaded[start : start + self._chunk_rows]
                self._workspace(len(part)).run(part, out[start : start + self._chunk_rows])
        scores = out.cpu().numpy().tobytes()  # float32: no score becomes a Python object
        sizes = [len(payload) // self._shape.columns for payload in payloads]  # a float for a row
        ends = accumulate(sizes)
        return [scores[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def _workspace(self, rows: int) -> _Workspace:
        if rows not in self._workspaces:
            self._workspaces[rows] = _Workspace(self._model, self._memory, rows)
        return self._workspaces[rows]


class _Model:
    """The weights as `tuned` wants them: one table of all features, layers transposed."""

    def __init__(self, shape: Shape, device: Any, seed: int) -> None:
        weights = Weights(shape, seed)
        self.shape, self.device = shape, device
        fused = _table(shape, device)
        for number in range(shape.sparse_features):
            weights.table(number, fused[number * shape.table_rows :][: shape.table_rows])
        self.table = fused.to(device)
        self.bottom = [self._layer(*layer) for layer in weights.layers("bottom")]
        first, *rest = weights.layers("top")
        # The first top layer takes the bottom output and the pairs: as two products, the two need
        # not be copied side by side.
        self.from_first = self._layer(first[0][:, : shape.width], first[1])
        self.from_pairs = first[0][:, shape.width :].t().contiguous().to(device)
        self.top = [self._layer(*layer) for layer in rest]
        self.offsets = (
            torch.arange(shape.sparse_features, dtype=torch.int32) * shape.table_rows
        ).to(device)
        row, column = torch.triu_indices(shape.vectors, shape.vectors, offset=1)
        self.places = -(-shape.vectors // PLACES_MULTIPLE) * PLACES_MULTIPLE
        self.upper = (row * self.places + column).to(device)

    def _layer(self, weight: Any, bias: Any) -> tuple[Any, Any]:
        return weight.t().contiguous().to(self.device), bias.to(self.device)


class _Memory:
    """What lies between the layers, for batches of up to `rows`: nothing is allocated later.

    The vectors of a row lie together, the bottom output's place first: the gather fills all of them
    at once (a row of the table stands in for the bottom output until it is written, and in spare
    places for good), so that nothing is stacked or copied.
    """

    def __init__(self, model: _Model, rows: int) -> None:
        shape, device, places = model.shape, model.device, model.places
        self.ids = torch.zeros(rows, places, dtype=torch.int32, device=device)
        self.vectors = torch.empty(rows, places, shape.width, device=device)
        self.products = torch.empty(rows, places, places, device=device)
        self.pairs = torch.empty(rows, shape.pairs, device=device)
        self.bottom = [torch.empty(rows, width, device=device) for width in shape.bottom]
        self.top = [torch.empty(rows, width, device=device) for width in (*shape.top, 1)]


class _Workspace:
    """The first rows of a memory, as views that are made once, and the forward through them."""

    def __init__(self, model: _Model, memory: _Memory, rows: int) -> None:
        self._model = model  # each view costs about a microsecond
        ids, vectors, products = memory.ids[:rows], memory.vectors[:rows], memory.products[:rows]
        self._table_ids = ids[:, 1 : model.shape.vectors]
        self._flat_ids = ids.view(-1)
        self._vectors, self._transposed = vectors, vectors.transpose(1, 2)
        self._flat_vectors = vectors.view(-1, model.shape.width)
        self._first = vectors[:, 0]
        self._products, self._flat_products = products, products.view(rows, -1)
        self._pairs = memory.pairs[:rows]
        self._bottom = [part[:rows] for part in memory.bottom]
        self._top = [part[:rows] for part in memory.top]

    def run(self, matrix: Any, out: Any) -> None:
        """Write the scores of the packed rows into `out`."""
        model, dense_features = self._model, self._model.shape.dense_features
        torch.add(matrix[:, dense_features:], model.offsets, out=self._table_ids)
        torch.index_select(model.table, 0, self._flat_ids, out=self._flat_vectors)
        hidden = matrix[:, :dense_features].view(torch.float32)
        for (weight, bias), into in zip(model.bottom, self._bottom, strict=True):
            hidden = torch.addmm(bias, hidden, weight, out=into).relu_()
        self._first.copy_(hidden)
        torch.bmm(self._vectors, self._transposed, out=self._products)
        torch.index_select(self._flat_products, 1, model.upper, out=self._pairs)
        weight, bias = model.from_first
        top = torch.addmm(bias, hidden, weight, out=self._top[0])
        hidden = top.addmm_(self._pairs, model.from_pairs)
        for (weight, bias), into in zip(model.top, self._top[1:], strict=True):
            hidden = torch.addmm(bias, hidden.relu_(), weight, out=into)
        torch.sigmoid(hidden.view(-1), out=out)


def _table(shape: Shape, device: Any) -> Any:
    """Allocate the fused table, on a CPU in huge pages where the kernel offers them.

    A gather touches rows all over 665 MB, and with 4 kB pages each is a miss in the page tables too
    (a forward takes 1.05 to 1.09 times as long). Private memory: shared memory gets none by advice.
    """
    rows = shape.sparse_features * shape.table_rows
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if device.type != "cpu" or advice is None:
        return torch.empty(rows, shape.width)
    memory = mmap.mmap(-1, shape.tables_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(advice)
    except OSError:  # a kernel built without them
        return torch.empty(rows, shape.width)
    return torch.frombuffer(memory, dtype=torch.float32).view(rows, shape.width)


RANKERS: dict[str, Callable[[Shape, Any, int], Ranker]] = {
    "plain": PlainRanker,
    "tuned": TunedRanker,
}


def resolve_device(wanted: str) -> str:
    """Return the device that "auto", "cpu" or "cuda" means. Raises ValueError without that CUDA."""
    if wanted == "cpu":
        return "cpu"
    available = bool(torch.cuda.is_available())
    if wanted == "cuda" and not available:
        built = torch.version.cuda
        why = "torch is built without CUDA" if built is None else "torch finds no CUDA device"
        raise ValueError(why)
    return "cuda" if available else "cpu"


def build(kind: str, shape: Shape, device: str = "auto", seed: int = 0) -> Ranker:
    """Return a ranker with its weights on the device, warmed up by one request."""
    ranker = RANKERS[kind](shape, resolve_device(device), seed)
    ranker.answers([FORMS[kind](*features(0, shape, seed))])
    return ranker
