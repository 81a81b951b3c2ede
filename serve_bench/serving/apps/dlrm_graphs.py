"""CUDA graphs by padded batch size: which size a batch is padded to, and the graphs kept for it.

Rule: nothing here names CUDA but `CudaDevice`; all else asks a device object, so that the logic is
tested on a machine without one. UNVERIFIED on a real GPU so far: `CudaDevice`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

LEAST_ROWS = 32
"""The smallest size: one request of the published app."""

MOST_GRAPHS = 48
"""Sizes kept at once; with four to an octave that is 12 octaves, 32 to 131,072 rows."""

WARM_UP_RUNS = 3
"""Runs before a capture, as PyTorch's notes on CUDA graphs have them: libraries set up lazily."""


class Device(Protocol):
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
    """The slots in use, the least recently used given up beyond `most`.

    `make_run(rows, input, output)` gives the function that computes output from input; it is called
    once for a slot. Rows beyond those of a batch hold what an earlier batch left there (zeros at
    first): valid ids, whose scores nobody reads.
    """

    def __init__(
        self,
        device: Device,
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
        made = self._slots[size] = self._capture(size)
        return made

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
