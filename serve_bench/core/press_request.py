"""The requests of the press test: JSON, so many samples of so many string features each. Pure.

Rule: made of the cell alone, so that a load is the same in every run; asked for in turn, so that no
request finds always the same rows of the tables in the caches of the CPU.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Mapping
from typing import Final

from serve_bench.core.axes import Value

COUNT: Final = 1000
"""Bodies of a load, as many as the users of the other services."""

USERS: Final = 1_000_000
ITEMS: Final = 100_000
"""How many of them there are to draw from."""

_AS_PUBLISHED: Final = ("user", "item")


def feature_names(sparse_features: int) -> tuple[str, ...]:
    """The names of a sample's features: two as published, else f0, f1 ..."""
    if sparse_features == len(_AS_PUBLISHED):
        return _AS_PUBLISHED
    return tuple(f"f{number}" for number in range(sparse_features))


def bodies(cell: Mapping[str, Value], count: int = COUNT) -> tuple[bytes, ...]:
    """The JSON bodies of a load of this cell. A request asks for one user and several items: the
    first feature is the same in all its samples, the others differ."""
    names = feature_names(int(cell["sparse_features"]))
    return _drawn(int(cell["rows_per_request"]), names, int(cell.get("seed", 0)), count)


@functools.lru_cache(maxsize=8)  # asked for once a trial
def _drawn(samples: int, names: tuple[str, ...], seed: int, count: int) -> tuple[bytes, ...]:
    draw = random.Random(seed)
    first, *others = names

    def a_body() -> bytes:
        user = f"{first}_{_below(draw, USERS)}"
        rows = [
            {first: user} | {name: f"{name}_{_below(draw, ITEMS)}" for name in others}
            for _ in range(samples)
        ]
        return json.dumps({"samples": rows}).encode()

    return tuple(a_body() for _ in range(count))


def _below(draw: random.Random, end: int) -> int:
    """Only `random()` is promised to give the same numbers in every version of Python."""
    return int(draw.random() * end)
