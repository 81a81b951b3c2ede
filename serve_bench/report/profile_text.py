"""Tables of profiles for a terminal: top functions, layers, and what differs between two.

Rule: idle stacks are counted, reported, and left out of every share, so that a share is one of the
CPU that the process used; unless the profile was meant to show waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    FunctionChange,
    LayerRules,
    Stacks,
    by_function,
    changes,
    layers,
    noise_points,
    split_frame,
    top_functions,
    total,
    without,
)
from serve_bench.core.errors import visible

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
    lines += [
        f"  {_cut(one.name, 50):50} {one.self_percent:7.1f} {one.total_percent:8.1f}"
        for one in top_functions(reading.counted, TOP)
    ]
    return "\n".join(lines) + "\n"


def _cut(text: str, width: int) -> str:
    """A frame in `width` characters: folders between package and file go first, then its end.

    `Replica.handle (ray/serve/_private/replica.py)` becomes `Replica.handle (ray/.../replica.py)`.
    """
    text = visible(text)
    if len(text) > width:
        function, file = split_frame(text)
        first, *middle, last = file.split("/") if file.count("/") > 1 else (file, "")
        if middle:
            text = f"{function} ({first}/.../{last})"
    return text if len(text) <= width else text[: width - 3] + "..."


@dataclass(frozen=True)
class ProfileDifference:
    """Two profiles against each other: functions that grew, that shrank, and the layers of both."""

    a: Reading
    b: Reading
    grew: tuple[FunctionChange, ...]
    shrank: tuple[FunctionChange, ...]
    layers: tuple[tuple[str, float, float], ...]


def difference_of(a: Reading, b: Reading, rules: LayerRules) -> ProfileDifference:
    """Changes above LEAST_POINTS that are also above twice the error of sampling."""
    sure = [
        change
        for change in changes(a.counted, b.counted, LEAST_POINTS)
        if abs(change.self_change)
        > noise_points(change.self_a, a.samples) + noise_points(change.self_b, b.samples)
    ]
    in_a, in_b = layers(a.counted, rules), layers(b.counted, rules)
    shares = [
        (name, in_a.get(name, 0.0), in_b.get(name, 0.0)) for name in in_a.keys() | in_b.keys()
    ]
    return ProfileDifference(
        a,
        b,
        tuple(change for change in sure if change.self_change > 0),
        tuple(change for change in sure if change.self_change < 0),
        tuple(sorted(shares, key=lambda share: (-max(share[1:]), share[0]))),
    )


def difference_text(difference: ProfileDifference) -> str:
    """What grew and what shrank, in percent of the samples of each."""
    lines = [f"A {difference.a.about}", f"B {difference.b.about}"]
    lines += ["  layer                              A %      B %   change"]
    lines += [f"  {name:28} {a:9.1f} {b:8.1f} {b - a:+8.1f}" for name, a, b in difference.layers]
    for title, some in (("grew", difference.grew), ("shrank", difference.shrank)):
        if not some:
            least = f"{LEAST_POINTS:g} point and the sampling error"
            lines.append(f"{title}: no function by more than {least}")
            continue
        lines.append(f"  {f'{title} (self)':50}     A %      B %   change")
        lines += [
            f"  {_cut(one.name, 50):50} {one.self_a:7.1f} {one.self_b:8.1f} {one.self_change:+8.1f}"
            for one in some[:TOP]
        ]
    return "\n".join(lines) + "\n"
