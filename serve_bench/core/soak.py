"""What a soak is: a load in blocks, each a row. Pure words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from serve_bench.core.load_spec import Arrivals, make_row
from serve_bench.core.numbers import Positive
from serve_bench.core.traffic import Row, Traffic

BLOCKS: Final = 60
"""Readings of a soak, unless its blocks become shorter than SHORTEST_S or longer than LONGEST_S."""

SHORTEST_S: Final = 5.0
"""Shortest block: its begin and its drain take a few per cent of it."""

LONGEST_S: Final = 60.0
"""Longest block: what is lost when a run is killed."""

LEAK: Final = 50.0
"""The growth that matters, in MB per million requests: 50 bytes a request, which at 100 requests/s
are 430 MB a day. What a process keeps of each request on purpose (a counter, a line of a log) is
less; a request that is kept whole is more."""

CONNECTIONS: Final = 10


@dataclass(frozen=True)
class SoakSpec:
    """How a soak is loaded, and the growth that matters."""

    for_s: Positive  # how long it lasts, in blocks of `block_s`
    block_s: Positive
    arrivals: Arrivals = "constant"  # where it has a rate
    leak: Positive = LEAK  # MB per million requests

    @property
    def blocks(self) -> int:
        return max(1, round(self.for_s / self.block_s))


def block_length_s(for_s: float) -> float:
    return min(LONGEST_S, max(SHORTEST_S, for_s / BLOCKS))


def soak_row(connections: int, rate: float | None, traffic: Traffic) -> Row:
    """Make the row of a soak: closed-loop connections, or a rate (requests/s)."""
    if rate is None:
        return make_row(connections, "connection", traffic)
    about = {"label": f"{rate:g} requests/s{traffic.suffix}", "loop": "open", "rate_per_s": rate}
    return make_row(connections, "connection", traffic, **about)


def block_rows(spec: SoakSpec, row: Row) -> tuple[Row, ...]:
    """Make the rows of the blocks of a load."""
    return tuple(
        replace(row, label=f"block {number}", run=number) for number in range(1, spec.blocks + 1)
    )
