"""Stacks of py-spy, and the tables that are made of them: top functions, change, tree, layers.

Pure. Raw stacks are lines `frame;frame;frame count`, a frame is `function (file:line)`. Rule:
shares are of all samples of a profile, so two profiles of different length can be compared. The
layers of stacks are below."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.schema import built

Stacks: TypeAlias = Mapping[tuple[str, ...], int]
"""Samples by stack, the outermost frame first."""

WAITED: Final = "the thread waited"
"""The innermost frame of a stack that py-spy took for busy although its thread waited: idle."""

LEAST_RAN: Final = 0.02
LEAST_OF_BUSIEST: Final = 0.1
"""A thread counts as waiting below 2 % of the time on a CPU, and a tenth of the busiest thread."""

C_LOOPS: Final = ("Thread.run", "_event_loop")
"""How functions end that run a loop in C, as uvloop; py-spy does not see it wait. Such a thread has
no more samples than it ran."""

LEAST_POINTS: Final = 1.0
"""A change of a share below 1 point is not listed."""

NO_FRAME: Final = "no Python frame"
"""The frame of a stack that py-spy writes without frames: of a C or C++ thread known to Python."""
MOST_DIGITS: Final = 15
"""Of a count: more samples than a float can count were never taken."""

_LIBRARY: Final = re.compile(r".*/(?:(?:site|dist)-packages|lib-dynload|lib/python\d[\d.]*)/")
_FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)")


def parse_raw(text: str, where: str) -> Stacks:
    """Parse raw (collapsed) text. Raises BadInput with the number of a line that is no stack."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        frames, space, count = line.rpartition(" ")
        if not space or not count.isascii() or not count.isdigit() or len(count) > MOST_DIGITS:
            raws = "raw stacks are lines `frame;frame count`"
            raise BadInput(f"{where}: line {number} is no stack; {raws}")
        stacks[tuple(frames.split(";")) if frames else (NO_FRAME,)] += int(count)
    return stacks


def to_raw(stacks: Stacks) -> str:
    """Render stacks as text that `parse_raw` reads, most samples first."""
    ranked = sorted(stacks.items(), key=lambda item: (-item[1], item[0]))
    return "".join(f"{';'.join(frames)} {count}\n" for frames, count in ranked)


def total(stacks: Stacks) -> int:
    """Count all samples."""
    return sum(stacks.values())


def merged(many: Iterable[Stacks]) -> Stacks:
    """Merge profiles into one, such as those of the replicas of a deployment."""
    out: Counter[tuple[str, ...]] = Counter()
    for stacks in many:
        out.update(stacks)
    return out


def by_thread_ran(stacks: Stacks, ran: Mapping[int, float], ticks: float) -> Stacks:
    """Remove the thread from stacks of `--threads`, and mark those of idle threads.

    py-spy takes waiting threads for busy in some samples (a fifth of them on a busy host), and in
    C_LOOPS in most; the kernel knows better. `ran`: the share of time on a CPU by thread id; a
    thread that is not in it counts as busy. `ticks`: samples of a thread that always runs."""
    most = max(ran.values(), default=0.0)
    out: Counter[tuple[str, ...]] = Counter()
    threads: dict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for frames, count in stacks.items():
        if frames[0].startswith("thread ("):
            tid = int(frames[0].removeprefix("thread (").partition(")")[0])
            threads[tid][frames[1:]] += count
        else:
            out[frames] += count
    for tid, bodies in threads.items():
        share = ran.get(tid, 1.0)
        waited = share < LEAST_RAN and share < LEAST_OF_BUSIEST * most
        loops = [body for body in bodies if not body or split_frame(body[-1])[0].endswith(C_LOOPS)]
        left = round(share * ticks) - sum(n for body, n in bodies.items() if body not in loops)
        for body, count in bodies.items():
            kept = 0 if waited else count
            if body in loops and tid in ran:
                kept = min(kept, max(0, left))
                left -= kept
            out[body or (NO_FRAME,)] += kept
            out[*body, WAITED] += count - kept
    return +out  # without those that have none


@cache
def split_frame(frame: str) -> tuple[str, str]:
    """Return function and file of a frame, without the line; the file is empty if it has none."""
    match = _FRAME.fullmatch(frame)
    return (match["function"], match["file"]) if match else (frame, "")


@cache
def function_of(frame: str) -> str:
    """Remove the line from a frame: `hot (app.py:12)` is `hot (app.py)`."""
    function, file = split_frame(frame)
    return f"{function} ({file})" if file else function


@cache
def package_relative(frame: str) -> str:
    """Shorten the path of a frame: from its package or Python's library on, else folder and file.

    py-spy names files from their package on. If it cannot look beside a file (a script without a
    package, another container), it writes the absolute path, which should not be in a picture."""
    function, file = split_frame(frame)
    if not file.startswith("/"):
        return frame
    line = frame.removeprefix(f"{function} ({file}").removesuffix(")")
    short = _LIBRARY.sub("", file)
    short = "/".join(file.split("/")[-2:]) if short == file else short
    return f"{function} ({short}{line})"


def shortened(stacks: Stacks) -> Stacks:
    """Return the same stacks with `package_relative` frames."""
    return _renamed(stacks, package_relative)


def by_function(stacks: Stacks) -> Stacks:
    """Return the same stacks without line numbers: one frame for a function."""
    return _renamed(stacks, function_of)


def _renamed(stacks: Stacks, rename: Callable[[str], str]) -> Stacks:
    return merged({tuple(map(rename, frames)): count} for frames, count in stacks.items())


@dataclass(frozen=True)
class FunctionShare:
    """A function and its percent of all samples: as innermost frame, and anywhere in a stack."""

    name: str
    self_percent: float
    total_percent: float


def top_functions(stacks: Stacks, count: int = 15) -> list[FunctionShare]:
    """List functions with most samples as innermost frame; a stack counts once for each."""
    alone, within = _self_and_total(stacks)
    samples = total(stacks) or 1
    ranked = sorted(within, key=lambda name: (-alone[name], -within[name], name))
    return [
        FunctionShare(name, 100.0 * alone[name] / samples, 100.0 * within[name] / samples)
        for name in ranked[:count]
    ]


def _self_and_total(stacks: Stacks) -> tuple[Counter[str], Counter[str]]:
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for frames, count in stacks.items():
        names = [function_of(frame) for frame in frames]
        alone[names[-1]] += count
        for name in set(names):
            within[name] += count
    return alone, within


def list_changes(a: Stacks, b: Stacks) -> list[tuple[str, float, float]]:
    """List functions with changed shares as innermost frames, the largest change first.

    A change has LEAST_POINTS and is more than twice the error of sampling. Each function comes with
    its percent of the samples of both profiles."""
    own_a, own_b = _self_and_total(a)[0], _self_and_total(b)[0]
    all_a, all_b = total(a), total(b)
    found = []
    for name in own_a.keys() | own_b.keys():
        shares = 100.0 * own_a[name] / (all_a or 1), 100.0 * own_b[name] / (all_b or 1)
        noise = measure_noise(shares[0], all_a) + measure_noise(shares[1], all_b)
        change = abs(shares[1] - shares[0])
        if change > noise and change >= LEAST_POINTS:
            found.append((name, *shares))
    return sorted(found, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def measure_noise(share_percent: float, samples: int) -> float:
    """Return about two standard errors of a share of this many samples, in percentage points.

    Binomial: samples of one thread depend on each other, so the true error is larger."""
    share = share_percent / 100.0
    return 200.0 * math.sqrt(share * (1.0 - share) / samples) if samples else 100.0


@dataclass
class CallNode:
    """A frame in a call tree, with the samples that had it there."""

    name: str
    samples: int
    children: dict[str, CallNode]


def build_tree(stacks: Stacks) -> CallNode:
    """Build the call tree of a profile; its root has all samples."""
    root = CallNode("all", 0, {})
    for frames, count in stacks.items():
        root.samples += count
        node = root
        for frame in frames:
            node = node.children.setdefault(frame, CallNode(frame, 0, {}))
            node.samples += count
    return root


# Stacks split by layer: HTTP server, router, replica wrapper, Ray core, user code, idle and so on.
#
# Rule: reference/layers.toml assigns frames to layers. A frame without a rule is user code if
# Serve's replica called it, else "other".

OTHER: Final = "other"
IDLE: Final = "idle"
USER_CODE: Final = "user code"


class LayerRule(Struct, frozen=True, forbid_unknown_fields=True):
    """Frames of a layer: patterns of files and of functions; empty means any."""

    name: Annotated[str, Meta(min_length=1)]
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    under: tuple[str, ...] = ()  # only if a function like one of these is further out
    leaf: bool = False  # only as the innermost frame

    def __post_init__(self) -> None:
        if not self.files and not self.functions:
            raise ValueError("it takes one of files and functions")


class LayerRules(Struct, frozen=True, rename={"rules": "layer"}):
    """How stacks are split into layers. reference/layers.toml explains each part."""

    rules: tuple[LayerRule, ...] = ()
    passed: tuple[str, ...] = ()
    user_entry: tuple[str, ...] = ()


def read_rules(data: Mapping[str, Any], where: str) -> LayerRules:
    """Read rules from the content of a TOML file. Raises BadInput for a wrong rule."""
    try:
        return built(LayerRules, data, where)
    except FormatError as error:
        raise BadInput(str(error)) from None


def layers(stacks: Stacks, rules: LayerRules) -> dict[str, float]:
    """Return the percent of all samples by layer, the largest first."""
    counts: Counter[str] = Counter()
    for frames, count in stacks.items():
        counts[layer_of(frames, rules)] += count
    samples = total(stacks) or 1
    return {name: 100.0 * count / samples for name, count in counts.most_common()}


def layer_of(frames: tuple[str, ...], rules: LayerRules) -> str:
    """Return the layer of a stack: that of its innermost frame with a rule.

    A frame without a rule is user code if Serve's replica called the user's callable further out,
    else "other"."""
    layer: Layered | None = None
    for frame in frames:
        layer = layered(frame, layer, rules)
    return OTHER if layer is None else layer.name


@dataclass(frozen=True)
class Layered:
    """The layer of a stack down to a frame.

    `onward`: the same for frames further in, to which rules of innermost frames do not pass.
    `under`: patterns of rules that a function of it is like, and not the functions: a stack may
    have tens of thousands."""

    name: str
    onward: str
    under: frozenset[tuple[str, ...]]


def layered(frame: str, outer: Layered | None, rules: LayerRules) -> Layered:
    """Return the layer of a stack that continues with this frame.

    `outer`: of what it continues from."""
    onward = OTHER if outer is None else outer.onward
    before: frozenset[tuple[str, ...]] = frozenset() if outer is None else outer.under
    its_rules, plain, under = _frame_facts(frame, rules)
    its_own = [rule for rule in its_rules if not rule.under or rule.under in before]
    passing = next((rule.name for rule in its_own if not rule.leaf), None)
    if passing is None and plain:
        passing = USER_CODE if rules.user_entry in before else OTHER
    onward = onward if passing is None else passing
    name = its_own[0].name if its_own else onward
    if outer is None and frame == NO_FRAME:
        name = NO_FRAME
    return Layered(name, onward, before if under <= before else before | under)


@cache
def _frame_facts(
    frame: str, rules: LayerRules
) -> tuple[tuple[LayerRule, ...], bool, frozenset[tuple[str, ...]]]:
    """Return the rules of a frame, whether it may be user code, and the patterns that it matches.

    Patterns are those for frames further out; nothing depends on what is further out."""
    function, file = split_frame(frame)
    of_file = (rule for rule in rules.rules if not rule.files or _any(file, rule.files))
    by_both = (rule for rule in of_file if not rule.functions or _any(function, rule.functions))
    its_rules = tuple(by_both)
    under = {rules.user_entry, *(rule.under for rule in rules.rules)}
    plain = bool(file) and not _any(file, rules.passed)
    return its_rules, plain, frozenset(name for name in under if _any(function, name))


def without(stacks: Stacks, layer: str, rules: LayerRules) -> Stacks:
    """Return the stacks without those of one layer, such as idle."""
    return {frames: n for frames, n in stacks.items() if layer_of(frames, rules) != layer}


@cache
def _any(text: str, patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and _like(patterns).match(text) is not None


@cache
def _like(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
