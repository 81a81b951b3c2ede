"""Tables of profiles for a terminal: top functions, layers, and what differs between two.

Rule: idle stacks are counted, reported, and left out of every share, so that a share is one of the
CPU that the process used; unless the profile was meant to show waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    LEAST_POINTS,
    LayerRules,
    Stacks,
    by_function,
    changes,
    layers,
    split_frame,
    top_functions,
    total,
    without,
)
from serve_bench.core.errors import visible

TOP: Final = 15
NAME: Final = 50
"""Characters of a name."""


@dataclass(frozen=True)
class Reading:
    """A profile as it is read: the stacks that count, without lines, and how many were idle."""

    name: str
    counted: Stacks
    idle: int

    @property
    def samples(self) -> int:
        """Samples that shares are of."""
        return total(self.counted)

    @property
    def about(self) -> str:
        """How many samples, in words."""
        idle = f", {self.idle} idle ones left out" if self.idle else ""
        return f"{self.name}: {self.samples} samples{idle}"


def reading_of(name: str, stacks: Stacks, rules: LayerRules, *, keep_idle: bool = False) -> Reading:
    """A profile made ready to be read."""
    counted = stacks if keep_idle else without(stacks, IDLE, rules)
    return Reading(name, by_function(counted), total(stacks) - total(counted))


def profile_text(reading: Reading, rules: LayerRules) -> str:
    """Layers and top functions of one profile."""
    if not reading.samples:
        return f"{reading.about}: nothing but waiting; put load on it first, or use --idle\n"
    lines = [reading.about, _line("layer", "%")]
    lines += [_line(name, share) for name, share in layers(reading.counted, rules).items()]
    lines.append(_line("function", "self %", "total %"))
    for share in top_functions(reading.counted, TOP):
        lines.append(_line(share.name, share.self_percent, share.total_percent))
    return "\n".join(lines) + "\n"


def difference_text(a: Reading, b: Reading, rules: LayerRules) -> str:
    """Layers, and functions that grew and that shrank, in percent of the samples of each."""
    lines = [f"A {a.about}", f"B {b.about}", _line("layer", "A %", "B %", "change")]
    in_a, in_b = layers(a.counted, rules), layers(b.counted, rules)
    for name in {**in_a, **in_b}:
        shares = in_a.get(name, 0.0), in_b.get(name, 0.0)
        lines.append(_line(name, *shares, f"{shares[1] - shares[0]:+.1f}"))
    every = changes(a.counted, b.counted)
    for title, sign in (("grew", 1), ("shrank", -1)):
        found = [change for change in every if sign * change.self_change > 0]
        head = f"{title}: no function by more than {LEAST_POINTS:g} point and the sampling error"
        lines.append(_line(f"{title} (self)", "A %", "B %", "change") if found else head)
        for change in found[:TOP]:
            lines.append(
                _line(change.name, change.self_a, change.self_b, f"{change.self_change:+.1f}")
            )
    return "\n".join(lines) + "\n"


def _line(name: str, *figures: float | str) -> str:
    """A name, without the folders between package and file where it is too long, and figures."""
    name = visible(name)
    if len(name) > NAME:
        function, file = split_frame(name)
        first, *middle, last = file.split("/") if file.count("/") > 1 else (file, "")
        name = f"{function} ({first}/.../{last})" if middle else name
    name = name if len(name) <= NAME else f"{name[: NAME - 3]}..."
    shown = [figure if isinstance(figure, str) else f"{figure:.1f}" for figure in figures]
    return f"  {name:{NAME}}" + "".join(f"{figure:>9}" for figure in shown)
