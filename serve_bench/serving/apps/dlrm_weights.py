"""The seeded weights of a ranker, and what is in force of torch. torch alone.

Rule: drawn on the CPU, each table and layer by a generator of its own, so that weights are the same
on every device and in whatever order they are asked for.
"""

from __future__ import annotations

from typing import Any

import torch

from .dlrm_shape import Shape

UNIFORM_STD_1 = 3.0**0.5
"""Uniform numbers up to this have a standard deviation of 1, as the published app's embeddings."""


class Weights:
    """Tables and layers of a shape, by seed."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape, self._seed = shape, seed

    def table(self, number: int, into: Any) -> None:
        """Fills `into` (table_rows, width) with embeddings of standard deviation 1."""
        into.uniform_(-UNIFORM_STD_1, UNIFORM_STD_1, generator=self._generator(number))

    def layers(self, which: str) -> list[tuple[Any, Any]]:
        """(weight, bias) of each layer of "bottom" or "top", within 1/sqrt(inputs), as
        torch.nn.Linear draws them."""
        sizes = self._shape.bottom_layers if which == "bottom" else self._shape.top_layers
        first = 1_000_000 if which == "bottom" else 2_000_000
        drawn = []
        for number, (inputs, outputs) in enumerate(sizes):
            generator, most = self._generator(first + number), inputs**-0.5
            weight = torch.empty(outputs, inputs).uniform_(-most, most, generator=generator)
            bias = torch.empty(outputs).uniform_(-most, most, generator=generator)
            drawn.append((weight, bias))
        return drawn

    def _generator(self, number: int) -> Any:
        return torch.Generator().manual_seed(self._seed * 10_000_000 + number)


def facts(kind: str, device: Any) -> dict[str, Any]:
    """What a ranker of this kind runs on, for a record."""
    cuda = device.type == "cuda"
    return {
        "ranker": kind,
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if cuda else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
