"""Settings of a press run held against each other: what an axis is worth, launch by launch.

Pure. Rule: two settings are compared where they differ in one axis alone, by ratios within the same
round, since what a machine does changes from launch to launch; a direction is only claimed where
every launch has it, and it is said how often chance alone brings that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from serve_bench.benchmarks.press.summary import Setting, axis_words, differing
from serve_bench.core.result import JsonObject

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
"""The quietest last: others are held against it."""

Found = Literal["distinguished", "not distinguished", "one launch"]


@dataclass(frozen=True)
class Comparison:
    """`other` against `base`, which differ in `axis` alone.

    `rounds`: best requests/s of other over that of base, in each launch that has both; `steps`: the
    same at each number of clients that both have. `ratio`: of the means over those launches.
    """

    axis: str
    other: Setting
    base: Setting
    where: str
    rounds: Mapping[int, float]
    steps: Mapping[int, Mapping[int, float]]
    ratio: float

    @property
    def found(self) -> Found:
        """What the launches support: a direction that all of them have, or none."""
        if len(self.rounds) < 2:
            return "one launch"
        alike = all(one < 1 for one in self.rounds.values()) or all(
            one > 1 for one in self.rounds.values()
        )
        return "distinguished" if alike else "not distinguished"

    @property
    def word(self) -> str:
        """What a round is called: with one variant it is a launch, else one launch of each."""
        return "round" if self.axis == "variant" else "launch"

    @property
    def sentence(self) -> str:
        """What can be said, in one line that ends with a full stop."""
        other, base = (axis_words(self.axis, value_of(one, self.axis)) for one in self.sides)
        where = f"{self.where}: " if self.where else ""
        served = f"{where}{other} serves {_ratio(self.ratio)} of {base}'s best requests/s"
        each = ", ".join(_ratio(one) for one in self.rounds.values())
        if self.found == "one launch":
            return (
                f"{served} in one {self.word}: within what one can show, since launches differ "
                "too (--launches 3)."
            )
        count, plural = len(self.rounds), "rounds" if self.axis == "variant" else "launches"
        if self.found == "distinguished":
            chance = 2 ** (count - 1)
            return f"{served} ({each}; all {count} {plural} agree: by chance 1 time in {chance})."
        return (
            f"{where}{other} and {base} are not distinguished: {other} serves {each} of {base}'s "
            f"best requests/s in the {count} {plural}."
        )

    @property
    def sides(self) -> tuple[Setting, Setting]:
        """Other, then base."""
        return (self.other, self.base)


def comparisons(settings: Sequence[Setting]) -> tuple[Comparison, ...]:
    """All pairs that differ in one axis, each against the base of that axis: the quietest log
    level, the CPU, else the setting that was begun first."""
    cells = [_axes(one) for one in settings]
    axes = differing(cells)
    found = []
    for axis in axes:
        others = [one for one in axes if one != axis]
        groups: dict[tuple[str, ...], list[Setting]] = {}
        for setting, cell in zip(settings, cells, strict=True):
            groups.setdefault(tuple(str(cell.get(one)) for one in others), []).append(setting)
        for group in groups.values():
            base = min(group, key=lambda one: _rank(axis, value_of(one, axis)))
            where = ", ".join(
                axis_words(one, value)
                for one in others
                if (value := _axes(base).get(one)) is not None
            )
            found += [
                made
                for one in group
                if one is not base and (made := _compare(axis, one, base, where)) is not None
            ]
    return tuple(found)


def value_of(setting: Setting, axis: str) -> object:
    """What a setting has on an axis; the variant and the device that was used among them."""
    return _axes(setting).get(axis)


def _axes(setting: Setting) -> JsonObject:
    device = {"device": setting.device} if setting.device else {}
    return {"variant": setting.variant, **setting.cell, **device}


def _rank(axis: str, value: object) -> int:
    if axis == "log_level" and value in LEVELS:
        return -LEVELS.index(str(value))
    return -1 if axis == "device" and value == "cpu" else 0


def _compare(axis: str, other: Setting, base: Setting, where: str) -> Comparison | None:
    """None where there is no launch in which both served."""
    bests = dict(_bests(other, base))
    if not bests:
        return None
    ratios = {round_: ours / theirs for round_, (ours, theirs) in bests.items()}
    steps: dict[int, dict[int, float]] = {}
    for round_ in bests:
        ours, theirs = other.ladder.rounds[round_], base.ladder.rounds[round_]
        for users in (users for users in ours if theirs.get(users)):
            steps.setdefault(users, {})[round_] = ours[users] / theirs[users]
    means = [statistics.fmean(side) for side in zip(*bests.values(), strict=True)]
    return Comparison(
        axis=axis,
        other=other,
        base=base,
        where=where,
        rounds=ratios,
        steps=dict(sorted(steps.items())),
        ratio=means[0] / means[1],
    )


def _bests(other: Setting, base: Setting) -> Iterator[tuple[int, tuple[float, float]]]:
    for round_ in sorted(other.ladder.rounds.keys() & base.ladder.rounds.keys()):
        ours, theirs = other.ladder.best_of(round_), base.ladder.best_of(round_)
        if ours and theirs:
            yield round_, (ours, theirs)


def _ratio(value: float) -> str:
    """Two decimals, three digits where it is small: 0.78, 1.03, 0.0123."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
