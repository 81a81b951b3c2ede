"""How two sides are loaded in turn: the length of a slice, from what it takes to drain.

A drain is what a slice takes from its last send to its last response. Rule: a row is loaded with
the connections that it names, and a slice is at least DRAINS of its drains long, or it measures how
a queue fills and empties, and no rate. A longer slice cancels less of what the machine does by
itself, so it takes more time to tell as much (docs/ab.md). Pure: whoever drives slices hands in
what it saw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.core.facts import SliceMethod, SlicesFacts
from serve_bench.core.forms import LONGEST_SLICE_S

SHORTEST_S: Final = 0.05
"""Below it little is gained: the noise of 8 s a side is 1.7 % with 50 ms and 1.4 % with 20 ms."""

DRAINS: Final = 5
AIM: Final = 7
"""Length of a chosen slice, in drains. They wander with the speed of the machine: in seven rounds
of two variants by up to 60 % from those that were seen first."""

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
class DrainSample:
    """What slices of a length took to drain: the median of the slower side, seconds."""

    slice_s: float
    drain_s: float


@dataclass(frozen=True)
class Slicing:
    """How a row is loaded in turn."""

    method: SliceMethod
    slice_s: float
    connections: int
    drain_s: float = 0.0  # seen when it was chosen
    why: str = ""  # it is not the shortest slices, in words

    def pairs(self, side_s: float) -> int:
        """Return the pairs of slices in which each side is loaded for about `side_s`."""
        each_s = self.slice_s + (self.drain_s if self.method == "slices" else 0.0)
        return max(LEAST_PAIRS, round(side_s / each_s))

    def short(self, drains_s: Iterable[float]) -> bool:
        """Return whether the slices were too short for these drains (the median of each side)."""
        if self.method != "slices":
            return False
        return self.slice_s < DRAINS * max(drains_s, default=0.0)


def slicing_from(record: SlicesFacts) -> Slicing:
    """Read from a stored trial how it was loaded."""
    drain_s, why = record.chosen_drain_s, record.why
    return Slicing(record.method, record.slice_s, record.connections, drain_s, why)


def in_windows(connections: int, drain_s: float, why: str) -> Slicing:
    """Make the Slicing of a row that can only be loaded in windows."""
    window_s = max(WINDOW_S, _round_up(DRAINS * drain_s))
    reason = f"{why}; {WINDOWS_COST.format(window_s=window_s)}"
    return Slicing("windows", window_s, connections, drain_s, reason)


def choose(
    connections: int, looks: Sequence[DrainSample], slice_s: float | None = None
) -> Slicing | float:
    """Choose how to load a row; or return the seconds of slices to look at before.

    `looks`: what was seen so far. `slice_s`: a person wants slices of this length."""
    if not looks:
        return slice_s or SHORTEST_S
    last = looks[-1]
    length_s = slice_s or max(SHORTEST_S, _round_up(AIM * last.drain_s))
    if slice_s is not None:
        short = slice_s < DRAINS * last.drain_s
        why = f"slices of {ms_text(slice_s)}, as asked, are under {DRAINS} drains" if short else ""
        return Slicing("slices", slice_s, connections, last.drain_s, why)
    if length_s > LONGEST_SLICE_S >= DRAINS * last.drain_s:
        length_s = LONGEST_SLICE_S
    if length_s > LONGEST_SLICE_S:
        why = f"a drain takes {last.drain_s:.2g} s, so that a slice would take {length_s:g} s"
        return in_windows(connections, last.drain_s, why)
    if last.slice_s < SEEN_SHARE * length_s and len(looks) < MOST_LOOKS:
        return length_s
    longer = length_s > SHORTEST_S
    why = f"slices of {ms_text(length_s)}: a drain takes {ms_text(last.drain_s)}" if longer else ""
    return Slicing("slices", length_s, connections, last.drain_s, why)


def turns_words(open_loop: bool, side_s: float, slice_s: float | None) -> str:
    """Describe how a row will be loaded in turn, as far as that is known before."""
    if open_loop:
        return f"in turn in windows of {ms_text(WINDOW_S)}"
    shortest_s, longest_s = slice_s or SHORTEST_S, slice_s or LONGEST_SLICE_S
    most, fewest = (max(LEAST_PAIRS, round(side_s / turn_s)) for turn_s in (shortest_s, longest_s))
    if slice_s is not None:
        return f"in turn in slices of {ms_text(slice_s)}, as asked; up to {most:,} pairs a round"
    return (
        f"in turn in slices of {ms_text(shortest_s)} to {ms_text(longest_s)}, {AIM} drains as the "
        f"first round sees them; {most:,} to {fewest:,} pairs a round"
    )


def _round_up(seconds: float) -> float:
    """Round up to 5 ms: lengths that are read and compared."""
    return round(math.ceil(round(seconds / 0.005, 6)) * 0.005, 3)


def ms_text(seconds: float) -> str:
    """Format seconds as `50 ms` or `2 s`."""
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:g} s"
