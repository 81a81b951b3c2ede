"""How two sides are loaded in turn: the length of a slice and the connections, from drains.

A drain is what a slice takes from its last send to its last response. Rule: a slice is at least
DRAINS of them long, or it measures how a queue fills and empties, and no rate. A short slice
cancels most of what the machine does by itself (docs/ab.md), so connections are given up before it
gets long. Pure: whoever drives slices hands in what it saw.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from serve_bench.load_result import Slice

Method = Literal["slices", "windows"]

SHORTEST_S: Final = 0.05
"""Below it little is gained: the noise of 8 s a side is 1.7 % with 50 ms and 1.4 % with 20 ms."""

STRETCHED_S: Final = 0.1
"""Up to here a slice is made longer; beyond it, connections are given up."""

LONGEST_S: Final = 2.0
"""Above it, slices cancel nothing more: windows do as well."""

DRAINS: Final = 5
AIM: Final = 7
"""A slice is chosen so many drains long, since they wander with the speed of the machine: in seven
rounds of two variants by up to 60 % from those that were seen first."""

WINDOW_S: Final = 1.0
"""Of a load that cannot be sliced; longer where a request takes long."""

#: A drain holds for slices at least so long as a share of those that it was seen with: where a
#: slice is no longer than a request waits, the drain says in which phase it was cut.
SEEN_SHARE: Final = 0.6

MOST_LOOKS: Final = 6
LEAST_PAIRS: Final = 2

#: 6.0 against 1.7 to 2.2 % at the same total time, from a trace of one cluster (docs/ab.md).
WINDOWS_COST: Final = (
    "windows of {window_s:g} s in place of slices: for the same time about three times the noise"
)


@dataclass(frozen=True)
class Wanted:
    """What is to be looked at: slices of so long, on so many connections."""

    connections: int
    slice_s: float


@dataclass(frozen=True)
class Look:
    """What such slices took to drain: the median of the slower side, seconds."""

    connections: int
    slice_s: float
    drain_s: float


@dataclass(frozen=True)
class Slicing:
    """How a row is loaded in turn. `drain_s`: what was seen when it was chosen; `why`: what was
    changed against what was asked for, in words; empty where nothing was."""

    method: Method
    slice_s: float
    connections: int
    asked_connections: int
    drain_s: float = 0.0
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain content."""
        return asdict(self)

    def pairs(self, side_s: float) -> int:
        """Pairs of slices in which each side is loaded for about `side_s`."""
        each_s = self.slice_s + (self.drain_s if self.method == "slices" else 0.0)
        return max(LEAST_PAIRS, round(side_s / each_s))

    def short(self, drains_s: Iterable[float]) -> bool:
        """Whether the slices were too short for these drains (the median of each side)."""
        if self.method == "windows":
            return False
        return self.slice_s < DRAINS * max(drains_s, default=0.0)


def slicing_from(told: Mapping[str, Any]) -> Slicing | None:
    """What a stored trial says of how it was loaded; None where it says nothing."""
    try:
        return Slicing(
            told["method"],
            float(told["slice_s"]),
            int(told["connections"]),
            int(told["asked_connections"]),
            float(told["chosen_drain_s"]),
            str(told["why"]),
        )
    except KeyError:
        return None


def drain_of(slices: Iterable[Slice], side: int, slice_s: float) -> float:
    """The median drain of a side, seconds; 0 without slices."""
    drains = [max(0.0, one.length_s - slice_s) for one in slices if one.side == side]
    return statistics.median(drains) if drains else 0.0


def in_windows(asked: int, drain_s: float, why: str) -> Slicing:
    """A row that cannot be loaded in slices."""
    window_s = max(WINDOW_S, _rounded_up(DRAINS * drain_s))
    told = f"{why}; {WINDOWS_COST.format(window_s=window_s)}"
    return Slicing("windows", window_s, asked, asked, drain_s, told)


def first_look(asked: int, slice_s: float | None = None) -> Wanted:
    """What is looked at first."""
    return Wanted(asked, slice_s or SHORTEST_S)


def choose(
    asked: int, looks: Sequence[Look], *, named: bool = False, slice_s: float | None = None
) -> Slicing | Wanted:
    """How a row is to be loaded, or what has to be looked at before.

    `looks`: what was seen so far, the first of which is `first_look`. `named`: a person wants these
    connections and no fewer. `slice_s`: and this length of a slice.
    """
    last = looks[-1]
    longest_s = slice_s or STRETCHED_S
    length_s = _length(last, slice_s)
    if length_s <= longest_s:
        if last.slice_s < SEEN_SHARE * length_s and len(looks) < MOST_LOOKS:
            return Wanted(last.connections, length_s)
        return _chosen(asked, last, slice_s)
    if named:
        return _lengthened(asked, last, slice_s)
    more = [one for one in looks if one.connections != last.connections]
    if more and _in_vain(more[-1], last):
        return _lengthened(asked, looks[0], slice_s)
    if last.connections == 1 or len(looks) >= MOST_LOOKS:
        return _lengthened(asked, last, slice_s)
    connections = int(last.connections * longest_s / length_s)
    return Wanted(max(1, min(connections, last.connections - 1)), longest_s)


def _length(look: Look, slice_s: float | None) -> float:
    """How long a slice should be, seconds; where its length is named, it need not be longer than
    the rule has it."""
    if slice_s is not None:
        return max(slice_s, DRAINS * look.drain_s)
    return max(SHORTEST_S, _rounded_up(AIM * look.drain_s))


def _rounded_up(seconds: float) -> float:
    """To 5 ms: lengths that are read and compared."""
    return round(math.ceil(round(seconds / 0.005, 6)) * 0.005, 3)


def _in_vain(before: Look, after: Look) -> bool:
    """Fewer connections did not shorten the drain much: it is the request itself that takes so
    long, and no queue."""
    in_step = after.connections / before.connections
    return after.drain_s > before.drain_s * (1.0 + in_step) / 2.0


def _chosen(asked: int, look: Look, slice_s: float | None) -> Slicing:
    length_s = slice_s or _length(look, None)
    why = ""
    if look.connections < asked:
        why = (
            f"{_fewer(look, asked)}: with more, a slice of at most "
            f"{1000 * (slice_s or STRETCHED_S):g} ms would be under {DRAINS} drains"
        )
    elif slice_s is None and length_s > SHORTEST_S:
        why = f"slices of {1000 * length_s:g} ms: a drain takes {1000 * look.drain_s:.0f} ms"
    return Slicing("slices", length_s, look.connections, asked, look.drain_s, why)


def _fewer(look: Look, asked: int) -> str:
    return f"{look.connections} connection{'' if look.connections == 1 else 's'} instead of {asked}"


def _lengthened(asked: int, look: Look, slice_s: float | None) -> Slicing:
    """Fewer connections are not to be had or do not help: longer slices, or windows."""
    if slice_s is not None:
        why = f"slices of {1000 * slice_s:g} ms, as asked, are under {DRAINS} drains"
        return Slicing("slices", slice_s, look.connections, asked, look.drain_s, why)
    length_s = _length(look, None)
    if length_s > LONGEST_S >= DRAINS * look.drain_s:
        length_s = LONGEST_S
    if length_s > LONGEST_S:
        why = f"a drain takes {look.drain_s:.2g} s, so that a slice would take {length_s:g} s"
        return in_windows(asked, look.drain_s, why)
    why = f"slices of {length_s:g} s: a drain takes {1000 * look.drain_s:.0f} ms"
    if look.connections < asked:
        why += f"; {_fewer(look, asked)}"
    return Slicing("slices", length_s, look.connections, asked, look.drain_s, why)
