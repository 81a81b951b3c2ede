"""A profile as a flamegraph: static SVG, for a file or within a page.

The outermost frame stands on top; a frame has the hue of its layer, and its title shows name, share
and layer under the pointer. Rule: every text of a profile is escaped."""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final

from serve_bench.analysis.stacks import (
    IDLE,
    CallNode,
    Layered,
    LayerRules,
    Stacks,
    build_tree,
    by_function,
    layered,
    layers,
    read_rules,
    without,
)
from serve_bench.report.theme import element, say, write

WIDTH: Final = 1200
ROW: Final = 17
LEAST: Final = 1.2
"""Pixels: frames that are narrower are left out, since nobody could see them."""

CHARACTER, HEAD, COLUMNS = 6.6, 24, 4
"""Pixels of a character of the 11 px monospace font, and of the title; columns of the legend."""

GOLDEN: Final = 137.508
"""Degrees between the hues of layers that follow each other: no two of many are alike."""


@cache
def layer_rules() -> LayerRules:
    """Read the shipped rules that split stacks by layer."""
    file = resources.files("serve_bench").joinpath("reference", "layers.toml")
    return read_rules(tomllib.loads(file.read_text(encoding="utf-8")), file.name)


def flame_svg(stacks: Stacks, title: str, *, keep_idle: bool = False) -> str:
    """Draw the flamegraph of a profile by function, and below it the colours of layers.

    Waiting stacks are left out unless all of them wait, or `keep_idle`."""
    busy = stacks if keep_idle else without(stacks, IDLE, layer_rules()) or stacks
    parts = [element("rect", width="100%", height="100%", fill="#fff")]
    parts.append(write(title, WIDTH / 2, 15, font_size=13, text_anchor="middle"))
    frames = list(draw_frames(by_function(busy)))
    top = HEAD + (max(depth for depth, _ in frames) + 2) * ROW
    legend = layers(busy, layer_rules())
    for place, (name, share) in enumerate(legend.items()):
        x, y = place % COLUMNS * WIDTH // COLUMNS, top + place // COLUMNS * ROW
        parts.append(element("rect", x=x, y=y - 9, width=11, height=11, fill=_colour(name)))
        parts.append(write(f"{name} {share:.1f} %", x + 16, y))
    height = top + (len(legend) // COLUMNS + 1) * ROW
    size = {"width": f"{WIDTH}", "height": f"{height}", "viewBox": f"0 0 {WIDTH} {height}"}
    looks = {"class_": "flame", "font_family": "ui-monospace, Menlo, Consolas, monospace"}
    looks |= {"fill": "#1b1b1f", "xmlns": "http://www.w3.org/2000/svg"}
    return element("svg", *parts, *(svg for _, svg in frames), font_size=11, **size, **looks)


def _colour(layer: str, frame: str = "") -> str:
    """Return the colour of a layer: grey without a rule for it; frames differ in their shade."""
    names = list(dict.fromkeys(rule.name for rule in layer_rules().rules))
    light = 66 + zlib.crc32(frame.encode()) % 12
    if layer not in names or layer == IDLE:
        return f"hsl(0,0%,{light}%)"
    return f"hsl({names.index(layer) * GOLDEN % 360:.0f},64%,{light}%)"


def draw_frames(stacks: Stacks) -> Iterator[tuple[int, str]]:
    """Yield depth and SVG of each frame that is wide enough to be seen, below one for all."""
    root = build_tree(stacks)
    waiting: list[tuple[CallNode, int, int, Layered | None]] = [(root, 0, 0, None)]
    scale = WIDTH / max(root.samples, 1)
    while waiting:
        node, before, depth, layer = waiting.pop()
        width, name = node.samples * scale, "" if layer is None else layer.name
        percent = 100.0 * (node.samples / max(root.samples, 1))
        title = f"{node.name}: {percent:.1f} %, {node.samples} samples"
        x, y = before * scale, HEAD + depth * ROW
        looks = {"x": x, "y": y, "width": max(width - 0.4, 0.1), "height": ROW - 1}
        rect = element("rect", fill=_colour(name, node.name), **looks)
        most = int((width - 6) / CHARACTER)
        label = node.name if len(node.name) <= most else f"{node.name[: max(most - 2, 0)]}.."
        words = write(label, x + 3, y + 12) if most >= 3 else ""
        yield depth, element("g", say(f"{title}, {name}" if name else title), rect, words)
        for name, child in sorted(node.children.items()):
            if child.samples * scale >= LEAST:
                waiting.append((child, before, depth + 1, layered(name, layer, layer_rules())))
            before += child.samples
