"""What `serve-bench flags` is asked for: the flags of a variant, and rounds that tell them apart.

Pure. What a variant sets is found out in facts.py; designs are those of analysis/factorial.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from serve_bench.analysis.factorial import Point, Round, Term, design, terms_of
from serve_bench.benchmarks.versus.request import Side, VersusSuite
from serve_bench.core.errors import FormatError
from serve_bench.core.schema import built, plain

MOST: Final = 12
"""Flags at once; with pairs they take 90 rounds."""

LETTERS: Final = "abcdefghijkl"


@dataclass(frozen=True)
class Factor:
    """A flag: its name, and the environment that turns it on. What else that environment holds
    keeps constants as they are which the flag alone would change and the variant does not."""

    name: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Factorial:
    """The flags by letter, the combinations of levels that can be, whether pairs are told apart,
    and the rounds as they were planned first."""

    factors: tuple[Factor, ...]
    points: tuple[Point, ...]
    pairs: bool
    design: tuple[Round, ...]

    @property
    def terms(self) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
        """The effects that can be told, and those that cannot."""
        return terms_of(self.points, self.pairs)

    def name(self, term: Term) -> str:
        """`RAY_SERVE_ENABLE_HA_PROXY`; `a x c` of two."""
        if len(term) == 1:
            return self.factors[term[0]].name
        return " x ".join(LETTERS[at] for at in term)


@dataclass(frozen=True)
class FlagsSuite:
    """What a run of flags measures. `versus`: the rows and the time of a round, its sides with all
    flags off and on."""

    versus: VersusSuite
    factorial: Factorial

    def to_json(self) -> dict[str, Any]:
        """Plain content for the Run record: that of versus, and the design."""
        return {**self.versus.to_json(), "factorial": plain(self.factorial)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlagsSuite:
        """The reverse of `to_json`. Raises BadInput or FormatError."""
        rest = {name: value for name, value in data.items() if name != "factorial"}
        factorial = built(Factorial, data.get("factorial"), "suite.factorial")
        count = len(factorial.factors)
        every = [*factorial.points, *(one for pair in factorial.design for one in pair)]
        if not 0 < count <= MOST or any({*one} - {*"01"} or len(one) != count for one in every):
            raise FormatError("suite.factorial: its points are not levels of its factors")
        if not {one for pair in factorial.design for one in pair} <= set(factorial.points):
            raise FormatError("suite.factorial: its design has points that it does not name")
        return cls(VersusSuite.from_json(rest), factorial)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The combinations of all rounds, those that were added behind the first."""
        of, versus = self.factorial, self.versus
        return design(of.points, of.terms[0], versus.rounds, versus.seed, of.design)

    def side(self, point: Point) -> Side:
        """A combination as a side."""
        off = self.versus.sides[0]
        env = dict(off.variant.env)
        for level, factor in zip(point, self.factorial.factors, strict=True):
            env |= factor.env if level == "1" else {}
        return replace(off, label=label(point), variant=replace(off.variant, env=env))


def label(point: Point) -> str:
    """The letters of the flags that are on: `acd`; `none`."""
    return "".join(x for x, one in zip(LETTERS, point, strict=False) if one == "1") or "none"
