"""One load as several that make it up together, each for a node of its own. Pure.

Rule: what is counted (connections, requests, rates) is dealt out whole; what holds for each request
stays. Constant arrivals of several nodes are not evenly spaced together, since their clocks are not
one; Poisson arrivals add up to Poisson arrivals.
"""

from __future__ import annotations

from dataclasses import replace

from serve_bench.core.load_spec import Load, Stage
from serve_bench.core.request_spec import SpecError


def parts_of(load: Load, nodes: int) -> tuple[Load, ...]:
    """The loads of so many nodes; of fewer, where there are not as many connections.

    Raises SpecError when there is no node.
    """
    if nodes < 1:
        raise SpecError(f"a load needs 1 or more nodes, got {nodes}")
    parts = min(nodes, load.connections)
    connections = _dealt(load.connections, parts)
    limits = None if load.max_connections is None else _dealt(load.max_connections, parts)
    counts = None if load.count is None else _dealt(load.count, parts)
    processes = None
    if load.processes is not None:
        processes = [max(1, one) for one in _dealt(load.processes, parts)]
    return tuple(
        replace(
            load,
            connections=connections[at],
            max_connections=None if limits is None else limits[at],
            count=None if counts is None else counts[at],
            processes=None if processes is None else min(connections[at], processes[at]),
            rate=None if load.rate is None else load.rate / parts,
            stages=tuple(Stage(one.rate / parts, one.duration_s) for one in load.stages),
            seed=load.seed + at,
        )
        for at in range(parts)
    )


def _dealt(total: int, parts: int) -> list[int]:
    """`total` in as equal parts as whole numbers allow; the first ones are the larger."""
    base, extra = divmod(total, parts)
    return [base + (1 if at < extra else 0) for at in range(parts)]
