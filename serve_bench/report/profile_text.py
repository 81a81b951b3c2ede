"""Tables of profiles for a terminal: top functions, layers, and what differs between two.

Rule: idle stacks are counted, reported, and left out of every share, so that a share is one of the
CPU that the process used; unless the profile was meant to show waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    LEAST_POINTS,
    Stacks,
    by_function,
    layers,
    list_changes,
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


def profile_text(name: str, stacks: Stacks, *, keep_idle: bool = False) -> str:
    """Render layers and top functions of one profile."""
    counted, about = _count(name, stacks, keep_idle)
    if not counted:
        return f"{about}: nothing but waiting; put load on it first, or use --idle\n"
    top = top_functions(counted, TOP)
    shares = [(share.name, share.self_percent, share.total_percent) for share in top]
    by_layer = _table(("layer", "%"), [*layers(counted, layer_rules()).items()])
    return f"{about}\n{by_layer}{_table(('function', 'self %', 'total %'), shares)}"


def difference_text(a: tuple[str, Stacks], b: tuple[str, Stacks], keep_idle: bool = False) -> str:
    """Render what differs between two profiles with their names: layers and functions.

    In percent of the samples of each; functions that grew first, then those that shrank."""
    (of_a, about_a), (of_b, about_b) = (_count(*profile, keep_idle) for profile in (a, b))
    in_a, in_b = layers(of_a, layer_rules()), layers(of_b, layer_rules())
    shares = [(name, in_a.get(name, 0.0), in_b.get(name, 0.0)) for name in {**in_a, **in_b}]
    text = f"A {about_a}\nB {about_b}\n{_difference('layer', shares)}"
    found = list_changes(of_a, of_b)
    for title, sign in (("grew", 1), ("shrank", -1)):
        if rows := [row for row in found if sign * (row[2] - row[1]) > 0]:
            text += _difference(f"{title} (self)", rows[:TOP])
        else:
            least = f"no function by more than {LEAST_POINTS:g} point and the sampling error"
            text += f"  {title}: {least}\n"
    return text


def _count(name: str, stacks: Stacks, keep_idle: bool) -> tuple[Stacks, str]:
    """Return the stacks that count, by function, and how many samples, in words."""
    counted = stacks if keep_idle else without(stacks, IDLE, layer_rules())
    idle = total(stacks) - total(counted)
    left_out = f", {idle} idle ones left out" if idle else ""
    return by_function(counted), f"{name}: {total(counted)} samples{left_out}"


def _difference(head: str, rows: Sequence[tuple[str, float, float]]) -> str:
    changed = [(*row, f"{row[2] - row[1]:+.1f}") for row in rows]
    return _table((head, "A %", "B %", "change"), changed)


def _table(heads: Sequence[str], rows: Sequence[Sequence[float | str]]) -> str:
    shown = [
        [visible(part) if isinstance(part, str) else f"{part:.1f}" for part in row] for row in rows
    ]
    blocks = table_blocks(heads, shown, (0,), WIDTH)
    return "".join(f"  {line}\n" for block in blocks for line in block)
