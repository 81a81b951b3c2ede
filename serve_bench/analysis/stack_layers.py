"""Stacks split by layer: HTTP server, router, replica wrapper, Ray core, user code, idle and so on.

Pure. Rule: which frame belongs to which layer is data, in reference/layers.toml, and not known
here; what no rule knows is user code if Serve's replica called it, else "other", and shown as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from serve_bench.analysis.stacks import NO_FRAME, Stacks, split_frame, total
from serve_bench.core.errors import BadInput

OTHER: Final = "other"
IDLE: Final = "idle"
USER_CODE: Final = "user code"


@dataclass(frozen=True)
class LayerRule:
    """Frames that belong to a layer: patterns of files and of functions; empty means any.

    `leaf`: only where the frame is the innermost. `under`: only where a function like one of these
    is further out.
    """

    name: str
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    leaf: bool = False


@dataclass(frozen=True)
class LayerRules:
    """How stacks are split. See reference/layers.toml for what each part means."""

    rules: tuple[LayerRule, ...]
    passed: tuple[str, ...]
    user_entry: tuple[str, ...]


def read_rules(data: Mapping[str, Any], where: str) -> LayerRules:
    """Rules from the content of a TOML file. BadInput names the rule that is wrong."""
    rules = []
    for number, table in enumerate(data.get("layer", ()), 1):
        unknown = set(table) - {"name", "files", "functions", "under", "leaf"}
        if unknown or not table.get("name") or not (table.get("files") or table.get("functions")):
            raise BadInput(
                f"{where}: layer {number}: it takes name, files, functions, under and leaf; name "
                "and one of files and functions are needed"
            )
        rules.append(
            LayerRule(
                str(table["name"]),
                tuple(table.get("files", ())),
                tuple(table.get("functions", ())),
                tuple(table.get("under", ())),
                bool(table.get("leaf", False)),
            )
        )
    return LayerRules(
        tuple(rules), tuple(data.get("passed", ())), tuple(data.get("user_entry", ()))
    )


def layers(stacks: Stacks, rules: LayerRules) -> dict[str, float]:
    """Percent of all samples by layer, the largest first."""
    counts: Counter[str] = Counter()
    for frames, count in stacks.items():
        counts[layer_of(frames, rules)] += count
    every = total(stacks) or 1
    return {name: 100.0 * count / every for name, count in counts.most_common()}


def layer_of(frames: tuple[str, ...], rules: LayerRules) -> str:
    """The layer of a stack: that of its innermost frame that a rule knows.

    A frame that none knows is user code where Serve's replica called the user's callable further
    out, else "other".
    """
    if frames == (NO_FRAME,):
        return NO_FRAME
    for depth, frame in enumerate(reversed(frames)):
        if frame.startswith(("thread ", "process ")):
            continue  # a heading that py-spy puts on top, no frame
        function, file = split_frame(frame)
        outer = frames[: len(frames) - depth - 1]
        for rule in rules.rules:
            if (depth == 0 or not rule.leaf) and _matches(rule, function, file, outer):
                return rule.name
        if file and not _any(file, rules.passed):
            return USER_CODE if _under(outer, rules.user_entry) else OTHER
    return OTHER


def without(stacks: Stacks, layer: str, rules: LayerRules) -> Stacks:
    """The stacks but for those of one layer (idle, say)."""
    return {frames: n for frames, n in stacks.items() if layer_of(frames, rules) != layer}


def _matches(rule: LayerRule, function: str, file: str, outer: tuple[str, ...]) -> bool:
    return (
        (not rule.files or _any(file, rule.files))
        and (not rule.functions or _any(function, rule.functions))
        and (not rule.under or _under(outer, rule.under))
    )


def _under(outer: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(_any(split_frame(frame)[0], patterns) for frame in outer)


def _any(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
