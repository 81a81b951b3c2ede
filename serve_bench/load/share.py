"""A worker's share of a load. Plain data, sent from the parent to the worker as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from serve_bench.core.load_spec import Load


@dataclass(frozen=True)
class Share:
    """Worker `worker` of `workers`: its connections, how far they may grow, its part of a count.

    `each`: of each connection so many requests, and no more. `first`: the number of its first
    connection, when those of all workers are counted through from 0.
    """

    worker: int
    workers: int
    connections: int
    limit: int
    count: int | None
    each: int | None = None
    first: int = 0


def divide(total: int, workers: int) -> list[int]:
    """`total` in as equal parts as whole numbers allow; the first ones are the larger."""
    base, extra = divmod(total, workers)
    return [base + (1 if i < extra else 0) for i in range(workers)]


def shares(load: Load, workers: int) -> list[Share]:
    """The shares of all workers.

    A count is divided evenly. With `each`, a worker's count follows from its connections, which
    need not be as many as another's.
    """
    connections = divide(load.connections, workers)
    limits = divide(load.connection_limit, workers)
    counts: list[int | None] = [None] * workers
    if load.each is not None:
        counts = [load.each * mine for mine in connections]
    elif load.count is not None:
        counts = list(divide(load.count, workers))
    return [
        Share(i, workers, connections[i], limits[i], counts[i], load.each, sum(limits[:i]))
        for i in range(workers)
    ]
