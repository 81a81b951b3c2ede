"""A profile as a flamegraph: static SVG, for a file of its own and within a page.

The outermost frame stands on top; a frame has the hue of its layer and the shade of its file, and
its title tells name, share and layer under the pointer. Rule: every text of a profile is escaped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    CallNode,
    Layered,
    LayerRules,
    Stacks,
    by_function,
    layered,
    layers,
    tree,
    without,
)
from serve_bench.core.errors import visible

WIDTH: Final = 1200
ROW: Final = 17
LEAST: Final = 0.001
"""Frames narrower than 0.1 % of the width are left out: nobody could see them."""

_CHAR, _HEAD, COLUMNS = 6.6, 24, 4
"""Pixels of a character of the 11 px monospace font, and of the title; columns of the legend."""

GOLDEN: Final = 137.508
"""Degrees between the hues of layers that follow each other: no two of many are alike."""


def flame_svg(stacks: Stacks, title: str, rules: LayerRules, *, keep_idle: bool = False) -> str:
    """The flamegraph of a profile by function, and below it the layers that its colours stand for.
    What waited is left out unless all of it did, or it is to be kept."""
    busy = stacks if keep_idle else without(stacks, IDLE, rules) or stacks
    frames = list(draw_frames(by_function(busy), rules))
    bottom = _HEAD + (max(depth for depth, _ in frames) + 1) * ROW
    legend = list(_draw_legend(layers(busy, rules), bottom + ROW, rules))
    height = bottom + (len(legend) // COLUMNS + 2) * ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" fill="#1b1b1f" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text x="{WIDTH / 2:g}" y="15" font-size="13" text-anchor="middle">{_text(title)}</text>'
    )
    return "\n".join((head, *(svg for _, svg in frames), *legend, "</svg>"))


def layer_colour(layer: str, rules: LayerRules, frame: str = "") -> str:
    """The colour of a layer: grey without a rule for it; of a frame with the shade of its file."""
    names = list(dict.fromkeys(rule.name for rule in rules.rules))
    file = frame.rpartition(" (")[2] or frame
    mixed = zlib.crc32(file.encode()) if frame else 0
    light = 66 + mixed // 4096 % 12
    if layer not in names or layer == IDLE:
        return f"hsl(0,0%,{light}%)"
    return f"hsl({names.index(layer) * GOLDEN % 360:.0f},{58 + mixed // 64 % 16}%,{light}%)"


def draw_frames(stacks: Stacks, rules: LayerRules) -> Iterator[tuple[int, str]]:
    """The depth and the SVG of each frame that is wide enough to be seen, below one for all."""
    root = tree(stacks)
    every = max(root.samples, 1)
    waiting: list[tuple[CallNode, float, int, Layered | None]] = [(root, 0.0, 0, None)]
    while waiting:
        node, x, depth, layer = waiting.pop()
        share = node.samples / every
        title, fill = f"{node.name}: {100.0 * share:.1f} %, {node.samples} samples", "hsl(0,0%,66%)"
        if layer is not None:
            title += f", {layer.name}"
            fill = layer_colour(layer.name, rules, node.name)
        yield depth, _draw_frame(node.name, x * WIDTH, share * WIDTH, depth, title, fill)
        for name in sorted(node.children):
            child = node.children[name]
            if child.samples / every >= LEAST:
                waiting.append((child, x, depth + 1, layered(name, layer, rules)))
            x += child.samples / every


def _draw_frame(name: str, x: float, width: float, depth: int, title: str, fill: str) -> str:
    y, room = _HEAD + depth * ROW, int((width - 6) / _CHAR)
    label = name if len(name) <= room else name[: max(room - 2, 0)] + ".."
    words = f'<text x="{x + 3:.2f}" y="{y + 12}">{_text(label)}</text>' if room >= 3 else ""
    return (
        f"<g><title>{_text(title)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.1):.2f}" height="{ROW - 1}" '
        f'rx="1.5" fill="{fill}"/>{words}</g>'
    )


def _draw_legend(shares: Mapping[str, float], top: int, rules: LayerRules) -> Iterator[str]:
    """The layers with their colours and shares, the largest first, in COLUMNS columns."""
    for place, (name, share) in enumerate(shares.items()):
        x, y = place % COLUMNS * WIDTH // COLUMNS, top + place // COLUMNS * ROW
        yield (
            f'<rect x="{x}" y="{y - 9}" width="11" height="11" fill="{layer_colour(name, rules)}"/>'
            f'<text x="{x + 16}" y="{y}">{_text(name)} {share:.1f} %</text>'
        )


def _text(words: str) -> str:
    """Words in XML, which has no place for control characters and two others."""
    return escape(visible(words).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}))
