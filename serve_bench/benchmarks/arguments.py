"""Arguments of rpc and scale: texts of a suite file, and of the flags over it. Pure.

Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from serve_bench.core.axes import only_keys
from serve_bench.core.errors import BadInput

T = TypeVar("T")

SHOWN: Final = 30
"""Characters of a value that an error shows."""


@dataclass(frozen=True)
class Arguments:
    """Texts by name, and where each was written: a flag, or a file and key."""

    texts: Mapping[str, str]
    places: Mapping[str, str]

    @classmethod
    def of_table(cls, table: Mapping[str, Any], keys: Sequence[str], place: str) -> Arguments:
        """The keys of a table of a suite file, as they would be written behind flags: a list with
        commas. Raises BadInput for a key that is none of `keys`."""
        only_keys(table, keys, place)
        texts = {
            name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in table.items()
        }
        return cls(texts, {name: f"{place}.{name}" for name in texts})

    @classmethod
    def of_flags(cls, flags: Mapping[str, str]) -> Arguments:
        """Flags by the names of their arguments."""
        return cls(flags, {name: f"--{name.replace('_', '-')}" for name in flags})

    def under(self, others: Arguments) -> Arguments:
        """These, with the others in place of their like."""
        return Arguments({**self.texts, **others.texts}, {**self.places, **others.places})

    def with_text(self, name: str, text: str) -> Arguments:
        """The same with another text for one argument."""
        return replace(self, texts={**self.texts, name: text})

    def require(self, names: Sequence[str], place: str) -> None:
        """BadInput on the first of these that is missing; `place`: of the table."""
        for name in names:
            if name not in self.texts:
                raise BadInput(f"{place}: {name} is missing")

    def text(self, name: str) -> str:
        """Without the space around it."""
        return self.texts[name].strip()

    def refusal(self, name: str, takes: str) -> BadInput:
        """The error of a value that is not allowed."""
        text = self.text(name)[:SHOWN]
        return BadInput(f"{self.places[name]}: {text!r} is not allowed; it takes {takes}")

    def whole(self, name: str, least: int, most: int, why: str = "") -> int:
        """A whole number within bounds; `why`: what the error adds to them."""
        number = self._number(name, int)
        if number is None or not least <= number <= most:
            raise self.refusal(name, f"a whole number from {least:,} to {most:,}{why}")
        return number

    def real(self, name: str, least: float, most: float, what: str = "a number") -> float:
        """A number within bounds; `what` names it in the error."""
        number = self._number(name, float)
        if number is None or not least <= number <= most:  # NaN is not
            raise self.refusal(name, f"{what} from {least:,g} to {most:,g}")
        return number

    def _number(self, name: str, kind: Callable[[str], T]) -> T | None:
        text = self.text(name)
        if not text.isascii() or "_" in text:  # which Python reads as digits too
            return None
        try:
            return kind(text)
        except ValueError:
            return None

    def word(self, name: str, *words: str) -> str:
        """One of these words."""
        text = self.text(name)
        if text not in words:
            raise self.refusal(name, f"{', '.join(words[:-1])} or {words[-1]}")
        return text

    def split(self, name: str) -> list[Arguments]:
        """The values of a list with commas, each as the arguments with it alone."""
        return [self.with_text(name, text.strip()) for text in self.texts[name].split(",")]

    def each(self, name: str, read: Callable[[Arguments], T]) -> tuple[T, ...]:
        """The values of a list with commas, each read by itself. BadInput where one stands there
        twice."""
        values: list[T] = []
        for one in self.split(name):
            value = read(one)
            if value in values:
                raise BadInput(f"{self.places[name]}: {one.text(name)} stands there twice")
            values.append(value)
        return tuple(values)


def rounds(count: int, items: Sequence[T], seed: int) -> Iterator[tuple[int, list[T]]]:
    """Each round of a plan with its order of the items: the first as they are, the others drawn, so
    that a drift of the machine meets them all alike."""
    for number in range(1, count + 1):
        order = list(items)
        if number > 1:
            random.Random(seed * 1000 + number).shuffle(order)
        yield number, order
