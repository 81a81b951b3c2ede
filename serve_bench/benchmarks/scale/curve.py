"""The curve of `serve-bench scale`: each quantity over the number of replicas, and how it grows.

Pure. Rule: a point is the figure of one size over its launches; the fit is scale_growth.py's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from serve_bench.benchmarks.scale.growth import QUANTITIES, Growth, Quantity, growth
from serve_bench.benchmarks.scale.summary import Figure, ScaleSize


@dataclass(frozen=True)
class Grown:
    """A quantity over replicas under one variant: its points as (replicas, Figure), and the fit
    through their means; None where there are too few."""

    quantity: Quantity
    points: tuple[tuple[int, Figure], ...]
    fit: Growth | None


def growths(sizes: Iterable[ScaleSize]) -> dict[str, tuple[Grown, ...]]:
    """By variant, every quantity of a curve that has a point."""
    out: dict[str, tuple[Grown, ...]] = {}
    every = list(sizes)
    for variant in dict.fromkeys(one.variant for one in every):
        own = [one for one in every if one.variant == variant]
        found = []
        for quantity in QUANTITIES:
            points = [
                (size.replicas, figure)
                for size in own
                if (figure := size.figures.get(quantity.figure)) is not None and figure.count
            ]
            means = [(replicas, figure.mean or 0.0) for replicas, figure in points]
            if points:
                found.append(Grown(quantity, tuple(points), growth(means)))
        out[variant] = tuple(found)
    return out
