"""Tables of profiles for a terminal: top functions, layers, and what differs between two.

Rule: idle stacks are counted, reported, and left out of every share, so that a share is one of the
CPU that the process used; unless the profile was meant to show waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    LEAST_POINTS,
    Stacks,
    by_function,
    changes,
    layers,
    top_functions,
    total,
    without,
)
from serve_bench.core.errors import visible
from serve_bench.report.columns import table_blocks
from serve_bench.report.flamegraph import layer_rules

TOP: Final = 15
WIDTH: Final = 100
"""Characters of a line."""


@dataclass(frozen=True)
class Reading:
    """A profile as it is read: the stacks that count, without lines, and how many samples, in
    words."""

    counted: Stacks
    about: str


def reading_of(name: str, stacks: Stacks, *, keep_idle: bool = False) -> Reading:
    """A profile made ready to be read."""
    counted = stacks if keep_idle else without(stacks, IDLE, layer_rules())
    idle = total(stacks) - total(counted)
    left_out = f", {idle} idle ones left out" if idle else ""
    return Reading(by_function(counted), f"{name}: {total(counted)} samples{left_out}")


def profile_text(reading: Reading) -> str:
    """Layers and top functions of one profile."""
    if not reading.counted:
        return f"{reading.about}: nothing but waiting; put load on it first, or use --idle\n"
    top = top_functions(reading.counted, TOP)
    shares = [(share.name, share.self_percent, share.total_percent) for share in top]
    by_layer = _table(("layer", "%"), [*layers(reading.counted, layer_rules()).items()])
    return f"{reading.about}\n{by_layer}{_table(('function', 'self %', 'total %'), shares)}"


def difference_text(a: Reading, b: Reading) -> str:
    """Layers, and functions that grew and that shrank, in percent of the samples of each."""
    in_a, in_b = (layers(reading.counted, layer_rules()) for reading in (a, b))
    shares = [(name, in_a.get(name, 0.0), in_b.get(name, 0.0)) for name in {**in_a, **in_b}]
    text = f"A {a.about}\nB {b.about}\n{_difference('layer', shares)}"
    found = [(of.name, of.self_a, of.self_b) for of in changes(a.counted, b.counted)]
    for title, sign in (("grew", 1), ("shrank", -1)):
        if rows := [row for row in found if sign * (row[2] - row[1]) > 0]:
            text += _difference(f"{title} (self)", rows[:TOP])
        else:
            least = f"no function by more than {LEAST_POINTS:g} point and the sampling error"
            text += f"  {title}: {least}\n"
    return text


def _difference(head: str, rows: Sequence[tuple[str, float, float]]) -> str:
    changed = [(*row, f"{row[2] - row[1]:+.1f}") for row in rows]
    return _table((head, "A %", "B %", "change"), changed)


def _table(heads: Sequence[str], rows: Sequence[Sequence[float | str]]) -> str:
    """Names with figures."""
    shown = [
        [visible(part) if isinstance(part, str) else f"{part:.1f}" for part in row] for row in rows
    ]
    blocks = table_blocks(heads, shown, (0,), WIDTH)
    return "".join(f"  {line}\n" for block in blocks for line in block)
