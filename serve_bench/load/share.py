"""A worker's share of a load. Plain data, sent from the parent to the worker as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Worker `worker` of `workers`: its connections, how far they may grow, its part of a count."""

    worker: int
    workers: int
    connections: int
    limit: int
    count: int | None


def divide(total: int, workers: int) -> list[int]:
    """`total` in as equal parts as whole numbers allow; the first ones are the larger."""
    base, extra = divmod(total, workers)
    return [base + (1 if i < extra else 0) for i in range(workers)]


def shares(connections: int, limit: int, count: int | None, workers: int) -> list[Share]:
    """The shares of all workers."""
    counts: list[int | None] = [None] * workers
    if count is not None:
        counts = list(divide(count, workers))
    each = zip(divide(connections, workers), divide(limit, workers), counts, strict=True)
    return [Share(i, workers, c, most, n) for i, (c, most, n) in enumerate(each)]
