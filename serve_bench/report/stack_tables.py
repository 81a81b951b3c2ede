"""Tables of stacks for a terminal: top functions, layers, and what grew and shrank.

Rule: idle stacks are counted, said, and left out of every share, so that a share is one of the CPU
that the process used; unless the profile was meant to show waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.stack_layers import IDLE, LayerRules, layers, without
from serve_bench.analysis.stacks import (
    Change,
    FunctionShare,
    Stacks,
    by_function,
    changes,
    noise_points,
    split_frame,
    top_functions,
    total,
)

TOP: Final = 15
LEAST_POINTS: Final = 1.0
"""A change of a share below 1 point is not listed."""


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
    split = layers(reading.counted, rules)
    lines = [reading.about, "  layer                              %"]
    lines += [f"  {name:28} {share:7.1f}" for name, share in split.items()]
    lines += ["  function                                            self %  total %"]
    lines += [_function(one) for one in top_functions(reading.counted, TOP)]
    return "\n".join(lines) + "\n"


def _function(one: FunctionShare) -> str:
    return f"  {_cut(one.name, 50):50} {one.self_percent:7.1f} {one.total_percent:8.1f}"


def _cut(text: str, width: int) -> str:
    """Function and file are what tells; folders between package and file go first, then its end.

    `Replica.handle (ray/serve/_private/replica.py)` becomes `Replica.handle (ray/.../replica.py)`.
    """
    if len(text) > width:
        function, file = split_frame(text)
        first, *middle, last = file.split("/") if file.count("/") > 1 else (file, "")
        if middle:
            text = f"{function} ({first}/.../{last})"
    return text if len(text) <= width else text[: width - 3] + "..."


@dataclass(frozen=True)
class Difference:
    """Two profiles against each other: functions that grew, that shrank, and the layers of both."""

    a: Reading
    b: Reading
    grew: tuple[Change, ...]
    shrank: tuple[Change, ...]
    layers: tuple[tuple[str, float, float], ...]


def difference_of(a: Reading, b: Reading, rules: LayerRules) -> Difference:
    """Changes above LEAST_POINTS that are also above twice the error of sampling."""
    sure = [
        change
        for change in changes(a.counted, b.counted, LEAST_POINTS)
        if abs(change.self_change)
        > noise_points(change.self_a, a.samples) + noise_points(change.self_b, b.samples)
    ]
    in_a, in_b = layers(a.counted, rules), layers(b.counted, rules)
    names = sorted(in_a.keys() | in_b.keys(), key=lambda name: -_most(name, in_a, in_b))
    return Difference(
        a,
        b,
        tuple(change for change in sure if change.self_change > 0),
        tuple(change for change in sure if change.self_change < 0),
        tuple((name, in_a.get(name, 0.0), in_b.get(name, 0.0)) for name in names),
    )


def _most(name: str, in_a: Mapping[str, float], in_b: Mapping[str, float]) -> float:
    return max(in_a.get(name, 0.0), in_b.get(name, 0.0))


def difference_text(difference: Difference) -> str:
    """What grew and what shrank, in percent of the samples of each."""
    lines = [f"A {difference.a.about}", f"B {difference.b.about}"]
    lines += ["  layer                              A %      B %   change"]
    lines += [f"  {name:28} {a:9.1f} {b:8.1f} {b - a:+8.1f}" for name, a, b in difference.layers]
    for title, found in (("grew", difference.grew), ("shrank", difference.shrank)):
        lines += _changed(title, found)
    return "\n".join(lines) + "\n"


def _changed(title: str, found: Sequence[Change]) -> list[str]:
    if not found:
        return [f"{title}: no function by more than {LEAST_POINTS:g} point and the sampling error"]
    head = f"{title} (self)"
    lines = [f"  {head:50}     A %      B %   change"]
    lines += [
        f"  {_cut(one.name, 50):50} {one.self_a:7.1f} {one.self_b:8.1f} {one.self_change:+8.1f}"
        for one in found[:TOP]
    ]
    return lines
