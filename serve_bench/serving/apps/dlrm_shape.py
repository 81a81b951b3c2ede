"""The dimensions of a DLRM and the work that one forward must do; padded batches and their CUDA
graphs.

No torch at import, so that a command can say what fits before anything is started. The model is
that of arXiv 1906.00091; the defaults are those of the published recommendation app.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

FLOAT_BYTES = 4
INDEX_BYTES = 4

#: Row numbers of the one fused table are 32-bit: so many rows in all tables together at most.
MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Shape:
    """A DLRM. `width` is the length of an embedding; `table_rows` the rows of each table.

    `bottom` and `top` are the widths of the layers; the last of `bottom` must be `width`, since its
    output stands beside the embeddings, and a last layer of one follows `top`. `rows_per_request`:
    candidates that one request has scored. Raises ValueError naming the field.
    """

    dense_features: int = 13
    sparse_features: int = 26
    width: int = 64
    table_rows: int = 100_000
    bottom: tuple[int, ...] = (256, 64)
    top: tuple[int, ...] = (256, 128, 64)
    rows_per_request: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not numbers or not all(isinstance(n, int) and n >= 1 for n in numbers):
                raise ValueError(f"{field.name}: {value!r} is not allowed; it takes 1 or more")
        if self.bottom[-1] != self.width:
            raise ValueError(
                f"bottom: its last layer must be as wide as an embedding ({self.width}), "
                f"not {self.bottom[-1]}"
            )
        if self.sparse_features * self.table_rows > MOST_ROWS:
            raise ValueError(
                f"table_rows: {self.sparse_features} tables may have {MOST_ROWS:,} rows in all"
            )

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> Shape:
        """From the fields among `args`; layers as a list or as text such as "256,64"."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in args:
                continue
            value = args[field.name]
            if field.name in ("bottom", "top"):
                parts = value.split(",") if isinstance(value, str) else value
                values[field.name] = tuple(int(part) for part in parts)
            else:
                values[field.name] = int(value)
        return cls(**values)

    @property
    def columns(self) -> int:
        """Numbers in a packed row: dense features, then the ids of the sparse ones."""
        return self.dense_features + self.sparse_features

    @property
    def vectors(self) -> int:
        """Vectors that interact: one of each table, and the output of the bottom layers."""
        return self.sparse_features + 1

    @property
    def pairs(self) -> int:
        """Pairs of different vectors."""
        return self.vectors * (self.vectors - 1) // 2

    @property
    def bottom_layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each bottom layer."""
        return _layers(self.dense_features, self.bottom)

    @property
    def top_layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each top layer, the last with one output."""
        return _layers(self.width + self.pairs, (*self.top, 1))

    @property
    def tables_bytes(self) -> int:
        """Memory of all tables."""
        return self.sparse_features * self.table_rows * self.width * FLOAT_BYTES

    def bytes_moved(self, rows: int) -> int:
        """The least that a forward of so many rows must move: the gathered embeddings, its inputs,
        the weights of the layers once, and its scores. What is in between may stay in caches."""
        layers = (*self.bottom_layers, *self.top_layers)
        weights = sum((inputs + 1) * outputs for inputs, outputs in layers)
        a_row = self.sparse_features * (self.width * FLOAT_BYTES + INDEX_BYTES)
        a_row += (self.dense_features + 1) * FLOAT_BYTES
        return rows * a_row + weights * FLOAT_BYTES

    def flops(self, rows: int) -> int:
        """Floating-point operations of a forward: layers and one product for each pair, a multiply
        and an add counted as two."""
        layers = (*self.bottom_layers, *self.top_layers)
        a_row = sum(inputs * outputs for inputs, outputs in layers) + self.pairs * self.width
        return 2 * rows * a_row


def _layers(inputs: int, widths: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(zip((inputs, *widths[:-1]), widths, strict=True))


# --------------------------------------------------------------------------------------------------
# CUDA graphs by padded batch size: which size a batch is padded to, and the graphs kept for it.
#
# Rule: nothing here names CUDA but `CudaDevice`; all else uses a device object, so that it can be
# tested on a machine without one. UNVERIFIED on a real GPU so far: `CudaDevice`.

LEAST_ROWS = 32
"""The smallest size: one request of the published app."""

MOST_GRAPHS = 48
"""Sizes kept at once; with four to an octave that is 12 octaves, 32 to 131,072 rows."""

WARM_UP_RUNS = 3
"""Runs before a capture, as PyTorch's notes on CUDA graphs have them: libraries set up lazily."""


class GraphDevice(Protocol):
    """What a graph cache needs of a device."""

    def empty(self, rows: int, columns: int, *, integers: bool, pinned: bool) -> Any:
        """Zeroed memory (rows, columns), or (rows,) for columns 0; `pinned`: on the host."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """Records what `run` does to device memory; the answer does it again."""

    def finish(self) -> None:
        """Waits until all that was asked of the device is done."""


def padded(rows: int) -> int:
    """The size that a batch is padded to: four sizes to an octave, so at most a quarter is waste
    (below LEAST_ROWS, that). 32 40 48 56 64 80 96 112 128 ..."""
    if rows <= LEAST_ROWS:
        return LEAST_ROWS
    step = 1 << max(0, (rows - 1).bit_length() - 3)
    return -(-rows // step) * step


@dataclass
class Slot:
    """One size: memory of fixed addresses on host (pinned) and device, and its graph."""

    rows: int
    stage: Any  # pinned input
    input: Any
    output: Any
    result: Any  # pinned output
    replay: Callable[[], None]


class GraphCache:
    """The slots in use, the least recently used values up beyond `most`.

    `make_run(rows, input, output)` gives the function that computes output from input; it is called
    once for a slot. Rows beyond those of a batch hold what an earlier batch left there (zeros at
    first): valid ids, whose scores nobody reads.
    """

    def __init__(
        self,
        device: GraphDevice,
        columns: int,
        make_run: Callable[[int, Any, Any], Callable[[], None]],
        most: int = MOST_GRAPHS,
    ) -> None:
        self._device, self._columns, self._make_run = device, columns, make_run
        self._most = most
        self._slots: OrderedDict[int, Slot] = OrderedDict()
        self.captured = 0

    def slot(self, rows: int) -> Slot:
        """The slot for a batch of so many rows, captured if it is not there."""
        size = padded(rows)
        kept = self._slots.get(size)
        if kept is not None:
            self._slots.move_to_end(size)
            return kept
        while len(self._slots) >= self._most:
            self._slots.popitem(last=False)
        slot = self._slots[size] = self._capture(size)
        return slot

    def prepare(self, rows: int) -> None:
        """Captures every size up to that of so many rows, so that no request waits for it."""
        size = padded(1)
        while size <= padded(rows):
            self.slot(size)
            size = padded(size + 1)

    def load(self, matrix: Any) -> tuple[Slot, int]:
        """Sends a batch on its way to the device: through pinned memory, without waiting."""
        rows = len(matrix)
        slot = self.slot(rows)
        slot.stage.numpy()[:rows] = matrix
        slot.input[:rows].copy_(slot.stage[:rows], non_blocking=True)
        return slot, rows

    def scores(self, slot: Slot, rows: int) -> Any:
        """The scores of the batch on the host; waits for them. Valid until the next batch."""
        slot.result[:rows].copy_(slot.output[:rows], non_blocking=True)
        self._device.finish()
        return slot.result[:rows]

    def _capture(self, rows: int) -> Slot:
        device, columns = self._device, self._columns
        stage = device.empty(rows, columns, integers=True, pinned=True)
        into = device.empty(rows, columns, integers=True, pinned=False)
        out = device.empty(rows, 0, integers=False, pinned=False)
        result = device.empty(rows, 0, integers=False, pinned=True)
        replay = device.capture(self._make_run(rows, into, out))
        self.captured += 1
        return Slot(rows, stage, into, out, result, replay)


class CudaDevice:
    """A CUDA device: all graphs share one memory pool, since one runs at a time."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch, self._device = torch, device
        self._pool = torch.cuda.graph_pool_handle()

    def empty(self, rows: int, columns: int, *, integers: bool, pinned: bool) -> Any:
        """Zeroed memory on the device, or pinned memory of the host."""
        torch = self._torch
        size = (rows, columns) if columns else (rows,)
        dtype = torch.int32 if integers else torch.float32
        if pinned:
            return torch.zeros(size, dtype=dtype, pin_memory=True)
        return torch.zeros(size, dtype=dtype, device=self._device)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """Runs on a stream of its own first, then records."""
        torch = self._torch
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                run()
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        replay: Callable[[], None] = graph.replay
        return replay

    def finish(self) -> None:
        """Waits for the current stream alone."""
        self._torch.cuda.current_stream(self._device).synchronize()
