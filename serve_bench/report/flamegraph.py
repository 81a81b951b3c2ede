"""A profile as a flamegraph: static SVG, for a file of its own and within a page.

The outermost frame stands on top; a frame has the hue of its layer and the shade of its file, and
its title tells name, share and layer under the pointer. Rule: every text of a profile is escaped.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    USER_CODE,
    CallNode,
    Layered,
    LayerRules,
    Stacks,
    by_function,
    layered,
    layers,
    total,
    tree,
    without,
)
from serve_bench.core.errors import visible

WIDTH: Final = 1200
ROW: Final = 17
LEAST: Final = 0.001
"""Frames narrower than 0.1 % of the width are left out: nobody could see them."""

_CHAR: Final = 6.6
"""Pixels of a character of the 11 px monospace font."""

_HEAD: Final = 24
_LEGEND_ROW: Final = 18
"""Pixels of the title, and of a row of the legend."""

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


NO_LAYER: Final = "hsl(0,0%,66%)"
"""The colour of the frame of all samples."""


@dataclass(frozen=True)
class Box:
    """A frame as it is drawn: place and width as shares of the whole, depth from the top."""

    name: str
    x: float
    width: float
    depth: int
    title: str
    fill: str


def flame_svg(stacks: Stacks, title: str, rules: LayerRules, *, keep_idle: bool = False) -> str:
    """The flamegraph of a profile by function, and below it the layers that its colours stand for.
    What waited is left out unless all of it did, or it is to be kept."""
    busy = stacks if keep_idle else without(stacks, IDLE, rules) or stacks
    drawn = boxes_of(by_function(busy), rules)
    bottom = _HEAD + (max(box.depth for box in drawn) + 1) * ROW
    legend, rows = _legend(layers(busy, rules), bottom + _LEGEND_ROW)
    height = bottom + (rows + 1) * _LEGEND_ROW
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" fill="#1b1b1f" '
            'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="{WIDTH / 2:g}" y="15" font-size="13" text-anchor="middle">'
            f"{_text(title)}</text>",
            *(_frame(box) for box in drawn),
            *legend,
            "</svg>",
        )
    )


def layer_colour(layer: str, name: str = "") -> str:
    """The colour of a layer; of a frame in it, by its `name`, with the shade of its file."""
    file = name.rpartition(" (")[2] or name
    mixed = zlib.crc32(file.encode()) if name else 0
    hue = HUES.get(layer)
    tint = f"{hue},{58 + mixed // 64 % 16}%" if hue is not None else "0,0%"
    return f"hsl({tint},{66 + mixed // 4096 % 12}%)"


def boxes_of(stacks: Stacks, rules: LayerRules) -> list[Box]:
    """The frames of one profile that are wide enough to be seen, below one for all of it."""
    every = max(total(stacks), 1)
    drawn: list[Box] = []
    waiting: list[tuple[CallNode, float, int, Layered | None]] = [(tree(stacks), 0.0, 0, None)]
    while waiting:
        node, x, depth, layer = waiting.pop()
        share = node.samples / every
        title, fill = f"{node.name}: {100.0 * share:.1f} %, {node.samples} samples", NO_LAYER
        if layer is not None:
            title, fill = f"{title}, {layer.name}", layer_colour(layer.name, node.name)
        drawn.append(Box(node.name, x, share, depth, title, fill))
        for name in sorted(node.children):
            child = node.children[name]
            if child.samples / every >= LEAST:
                waiting.append((child, x, depth + 1, layered(name, layer, rules)))
            x += child.samples / every
    return drawn


def _frame(box: Box) -> str:
    x, y, width = box.x * WIDTH, _HEAD + box.depth * ROW, box.width * WIDTH
    room = int((width - 6) / _CHAR)
    label = box.name if len(box.name) <= room else box.name[: max(room - 2, 0)] + ".."
    words = f'<text x="{x + 3:.2f}" y="{y + 12}">{_text(label)}</text>' if room >= 3 else ""
    return (
        f"<g><title>{_text(box.title)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.1):.2f}" height="{ROW - 1}" '
        f'rx="1.5" fill="{box.fill}"/>{words}</g>'
    )


def _legend(shares: Mapping[str, float], top: int) -> tuple[Sequence[str], int]:
    """The layers with their colours and shares, the largest first, and how many rows they take."""
    parts: list[str] = []
    x, row = 0.0, 0
    for name, share in shares.items():
        label = f"{name} {share:.1f} %"
        width = 16 + (len(label) + 3) * _CHAR
        if x + width > WIDTH and x:
            x, row = 0.0, row + 1
        y = top + row * _LEGEND_ROW
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 9}" width="11" height="11" fill="{layer_colour(name)}"/>'
            f'<text x="{x + 16:.1f}" y="{y}">{_text(label)}</text>'
        )
        x += width
    return parts, row + 1


def _text(words: str) -> str:
    """Words in XML, which has no place for control characters and two others."""
    return escape(visible(words).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}))
