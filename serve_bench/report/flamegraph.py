"""Flamegraphs: one profile as an SVG or a page, two as a page that shows the difference.

One file each, with no address in it: it works offline. templates/flame.html lays out the page;
frames are drawn by flames.py. Rule: every text of a profile is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    CallNode,
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
    tree,
    without,
)
from serve_bench.core.errors import visible
from serve_bench.report.flames import Box, Flame, boxes, boxes_of, legend, svg
from serve_bench.report.page import environment

# --------------------------------------------------------------------------------------------------
# Tables of stacks for a terminal: top functions, layers, and what grew and shrank.
#
# Rule: idle stacks are counted, reported, and left out of every share, so that a share is one of
# the CPU that the process used; unless the profile was meant to show waiting.

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


# --------------------------------------------------------------------------------------------------
# One file each: of a profile, and of the difference of two.

LISTED: Final = 25
"""Functions in a table of a page."""


def flame_svg(stacks: Stacks, title: str, rules: LayerRules) -> str:
    """A flamegraph as one SVG file, root on top."""
    return svg(boxes_of(stacks, rules), title, standalone=True)


def flame_html(reading: Reading, rules: LayerRules) -> str:
    """A flamegraph with its tables, as one page."""
    functions = [
        (one.name, f"{one.self_percent:.1f}", f"{one.total_percent:.1f}")
        for one in top_functions(reading.counted, LISTED)
    ]
    tables = [FlameTable(("function", "self %", "total %"), functions)]
    drawn = boxes_of(reading.counted, rules)
    return _page(reading.name, [reading.about], drawn, tables, layers(reading.counted, rules))


def diff_html(difference: ProfileDifference) -> str:
    """The difference of two profiles as one page.

    A frame is as wide as its mean share, so that what came and what went can both be seen; red
    grew, blue shrank, by the change of its share in percentage points.
    """
    a, b = difference.a, difference.b
    all_a, all_b = max(a.samples, 1), max(b.samples, 1)

    def width(node: CallNode) -> float:
        return (node.counts[0] / all_a + node.counts[1] / all_b) / 2

    def look(node: CallNode, _: object) -> tuple[str, str]:
        share_a, share_b = 100.0 * node.counts[0] / all_a, 100.0 * node.counts[1] / all_b
        title = (
            f"{node.name}: A {share_a:.1f} % ({node.counts[0]}), "
            f"B {share_b:.1f} % ({node.counts[1]}), {share_b - share_a:+.1f} points"
        )
        return title, _signed(share_b - share_a)

    figures = ("A %", "B %", "points")
    split = [(n, f"{x:.1f}", f"{y:.1f}", f"{y - x:+.1f}") for n, x, y in difference.layers]
    tables = [FlameTable(("layer", *figures), split)]
    for name, some in (("grew", difference.grew), ("shrank", difference.shrank)):
        rows = [
            (one.name, f"{one.self_a:.1f}", f"{one.self_b:.1f}", f"{one.self_change:+.1f}")
            for one in some[:LISTED]
        ]
        tables.append(FlameTable(("function (self)", *figures), rows, name))
    about = [f"A: {a.about}", f"B: {b.about}", "red: a larger share in B, blue: a smaller one"]
    drawn = boxes(tree(a.counted, b.counted), width, look)
    return _page(f"{a.name} / {b.name}", about, drawn, tables)


def _signed(points: float) -> str:
    """Grey at no change, full colour at 20 points."""
    strength = min(abs(points) / 20.0, 1.0) ** 0.6
    if abs(points) < 0.1:
        return "hsl(0,0%,80%)"
    return f"hsl({4 if points > 0 else 215},{25 + 60 * strength:.0f}%,{82 - 24 * strength:.0f}%)"


@dataclass(frozen=True)
class FlameTable:
    """A table below a flamegraph."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


def _page(
    title: str,
    about: Sequence[str],
    drawn: Sequence[Box],
    tables: Sequence[FlameTable],
    shares: Mapping[str, float] | None = None,
) -> str:
    """`shares`: of the layers that the colours of the frames stand for; none of a difference."""
    template = environment().get_template("flame.html")
    context = {"title": title, "about": about, "tables": tables}
    return template.render(context, flame=Flame(svg(drawn, ""), legend(shares or {}))) + "\n"
