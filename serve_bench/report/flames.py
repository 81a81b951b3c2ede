"""The frames of flamegraphs as SVG: in a file of their own, and within a page.

Zoom by click, search by a pattern, totals on hover; a frame has the hue of its layer and the shade
of its file. flamegraph.js and flamegraph.css are the script and the style of SVG and page alike.
Rule: every text of a profile is escaped.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    OTHER,
    USER_CODE,
    CallNode,
    Layered,
    LayerRules,
    Stacks,
    layered,
    layers,
    total,
    tree,
    without,
)
from serve_bench.core.errors import visible
from serve_bench.report.theme import file_text

WIDTH: Final = 1200
ROW: Final = 17
LEAST: Final = 0.0005
"""Frames narrower than 0.05 % of the width are left out: nobody could see them."""

LEAST_IN_PAGE: Final = 0.001
"""The same within a page of a run, which has several."""

_CHAR: Final = 6.6
"""Pixels of a character of the 11 px monospace font."""

HUES: Final = {
    USER_CODE: 96,
    "Serve replica": 28,
    "Serve proxy": 205,
    "HAProxy": 222,
    "Serve router": 172,
    "Serve controller": 150,
    "Serve, other": 45,
    "HTTP server": 262,
    "gRPC": 290,
    "Ray core and serialization": 350,
    "event loop": 190,
    "logging": 60,
    "metrics": 75,
    "kernel": 10,
    "torch": 318,
    "torch RPC": 335,
    "GIL wait": 0,
    "thread pool": 240,
}
"""Degrees of the colour circle of each layer (reference/layers.toml); grey are the others."""


@dataclass(frozen=True)
class Box:
    """A frame as it is drawn: place and width as shares of the whole, depth from the top."""

    name: str
    x: float
    width: float
    depth: int
    title: str
    fill: str


@dataclass(frozen=True)
class LayerShare:
    """A layer in the legend of a flamegraph: its name, its share in %, its colour."""

    name: str
    percent: float
    colour: str


@dataclass(frozen=True)
class Flame:
    """A flamegraph within a page: the markup of its frames, and what their colours stand for."""

    svg: str
    layers: tuple[LayerShare, ...]


def flame(stacks: Stacks, rules: LayerRules) -> Flame:
    """A flamegraph for a page, without what waited; of stacks that all waited of them."""
    busy = without(stacks, IDLE, rules) or stacks
    drawn = boxes_of(busy, rules, LEAST_IN_PAGE)
    return Flame(svg(drawn, ""), legend(layers(busy, rules)))


def legend(shares: Mapping[str, float]) -> tuple[LayerShare, ...]:
    """The layers with their colours, the largest first."""
    return tuple(LayerShare(name, share, layer_colour(name)) for name, share in shares.items())


def layer_colour(layer: str, name: str = "") -> str:
    """The colour of a layer; of a frame in it, by its `name`, with the shade of its file."""
    file = name.rpartition(" (")[2].rpartition(":")[0] or name
    mixed = zlib.crc32(file.encode()) if name else 0
    hue = HUES.get(layer)
    tint = f"{hue},{58 + mixed // 64 % 16}%" if hue is not None else "0,0%"
    return f"hsl({tint},{66 + mixed // 4096 % 12}%)"


def boxes(
    root: CallNode,
    width: Callable[[CallNode], float],
    look: Callable[[CallNode, Layered | None], tuple[str, str]],
    rules: LayerRules | None = None,
    least: float = LEAST,
) -> list[Box]:
    """The frames below `root`; `width` is a share of the whole, `look` title and fill of a node
    and its layer, by `rules` if there are any; the root has none."""
    drawn: list[Box] = []
    waiting: list[tuple[CallNode, float, int, Layered | None]] = [(root, 0.0, 0, None)]
    while waiting:
        node, x, depth, layer = waiting.pop()
        title, fill = look(node, layer)
        drawn.append(Box(node.name, x, width(node), depth, title, fill))
        for name in sorted(node.children):
            child = node.children[name]
            if width(child) >= least:
                below = None if rules is None else layered(name, layer, rules)
                waiting.append((child, x, depth + 1, below))
            x += width(child)
    return drawn


def boxes_of(stacks: Stacks, rules: LayerRules, least: float = LEAST) -> list[Box]:
    """The frames of one profile."""
    every = max(total(stacks), 1)

    def look(node: CallNode, layer: Layered | None) -> tuple[str, str]:
        title = f"{node.name}: {100.0 * node.counts[0] / every:.1f} %, {node.counts[0]} samples"
        if layer is None:
            return title, layer_colour(OTHER)
        return f"{title}, {layer.name}", layer_colour(layer.name, node.name)

    return boxes(tree(stacks), lambda node: node.counts[0] / every, look, rules, least)


def svg(drawn: Sequence[Box], title: str, *, standalone: bool = False) -> str:
    """The frames as SVG: a file with its own script, or a part of a page, which has it."""
    top = 2 * ROW + 8 if standalone else 0
    height = top + (max(box.depth for box in drawn) + 1) * ROW + 4
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" data-top="{top}" data-row="{ROW}">'
    ]
    if standalone:
        out += [
            f"<style>{file_text('flamegraph.css')}\n{file_text('flames.css')}</style>",
            f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
            f'<text class="title" x="{WIDTH / 2:g}" y="15">{_text(title)}</text>',
            '<text class="button" data-do="reset" x="8" y="15">reset zoom</text>',
            f'<text class="button" data-do="search" x="{WIDTH - 8}" y="15">search</text>',
            f'<text class="said" x="8" y="{ROW + 13}"> </text>',
        ]
    out += [_frame(box, top) for box in drawn]
    if standalone:
        out.append(f"<script><![CDATA[{file_text('flamegraph.js')}]]></script>")
    return "\n".join([*out, "</svg>"])


def _frame(box: Box, top: int) -> str:
    x, y, width = box.x * WIDTH, top + box.depth * ROW, box.width * WIDTH
    room = int((width - 6) / _CHAR)
    text = box.name if len(box.name) <= room else box.name[: max(room - 2, 0)] + ".."
    shown = _text(text) if room >= 3 else ""
    return (
        f'<g class="frame" data-x="{box.x:.9f}" data-w="{box.width:.9f}" data-d="{box.depth}" '
        f'data-name="{_text(box.name)}"><title>{_text(box.title)}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.1):.2f}" height="{ROW - 1}" '
        f'rx="1.5" fill="{box.fill}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 12}">{shown}</text></g>'
    )


def _text(words: str) -> str:
    """Words in XML, which has no place for control characters and two others."""
    return escape(visible(words).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}))
