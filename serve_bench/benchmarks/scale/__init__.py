"""What each workload of `serve-bench scale` takes: keys of the table `scale` of a suite, and flags
of the same names. Plain data, so that the command line can be made from it at once.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Workload: TypeAlias = Literal["single", "multi", "ensemble", "chain", "curve"]

_RUN: Final = ("duration", "warmup", "timeout", "nodes", "launches", "seed")
_LOADED: Final = ("max_ongoing_requests", "connections", *_RUN)
_BATCHED: Final = ("replicas", "max_batch_size", "batch_wait_timeout_s", *_LOADED)
_GRAPH: Final = ("replicas", "max_ongoing_requests", "clients", "requests", *_RUN)

KEYS: Final[dict[Workload, tuple[str, ...]]] = {
    "single": _BATCHED,
    "multi": ("replicas", "deployments", "hops", *_LOADED),
    "ensemble": ("fanout", *_GRAPH),
    "chain": ("length", *_GRAPH),
    "curve": _BATCHED,
}
