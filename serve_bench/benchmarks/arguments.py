"""Arguments of rpc and scale: texts of a suite file, and of the flags over it. Pure.

Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from serve_bench.core.axes import Kind, only_keys
from serve_bench.core.errors import BadInput

T = TypeVar("T")

SHOWN: Final = 30
"""Characters of a value that an error shows."""


def whole(least: int, most: int, why: str = "") -> Kind:
    """A whole number within bounds; `why`: what the error adds to them."""
    allowed = f"a whole number from {least:,} to {most:,}{why}"
    return Kind(partial(_read_number, int, least, most), allowed)


def real(least: float, most: float, what: str = "a number") -> Kind:
    """A number within bounds; `what` names it in the error."""
    return Kind(partial(_read_number, float, least, most), f"{what} from {least:,g} to {most:,g}")


def _read_number(kind: Callable[[str], float], least: float, most: float, value: object) -> float:
    text = str(value)
    number = kind(text) if text.isascii() and "_" not in text else math.nan  # Python reads more
    if not least <= number <= most:  # NaN is not
        raise ValueError(text)
    return number


@dataclass(frozen=True)
class Arguments:
    """Texts by name, and where each was written: a flag, or a file and key."""

    texts: Mapping[str, str]
    places: Mapping[str, str]

    @classmethod
    def of_table(cls, table: Any, keys: Sequence[str], place: str) -> Arguments:
        """The keys of a table of a suite file, as they would be written behind flags: a list with
        commas. Raises BadInput for a key that is none of `keys`, and where it is no table."""
        if not isinstance(table, Mapping):
            raise BadInput(f"{place}: must be a table")
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

    def require(self, names: Sequence[str], place: str) -> None:
        """BadInput on the first of these that is missing; `place`: of the table."""
        for name in names:
            if name not in self.texts:
                raise BadInput(f"{place}: {name} is missing")

    def value(self, name: str, kind: Kind) -> Any:
        """The value of an argument. Raises BadInput."""
        text = self.texts[name].strip()
        try:
            return kind.parse(text)
        except ValueError:
            shown = f"{text[:SHOWN]!r} is not allowed; it takes {kind.allowed}"
            raise BadInput(f"{self.places[name]}: {shown}") from None

    def values(self, kinds: Mapping[str, Kind]) -> dict[str, Any]:
        """The values of those of these arguments that are given. Raises BadInput."""
        return {name: self.value(name, kind) for name, kind in kinds.items() if name in self.texts}

    def each(self, name: str, read: Callable[[Arguments], T]) -> tuple[T, ...]:
        """What is read for each value of a list with commas, of the arguments with it alone.
        BadInput where one stands there twice."""
        values: list[T] = []
        for text in self.texts[name].split(","):
            value = read(replace(self, texts={**self.texts, name: text.strip()}))
            if value in values:
                raise BadInput(f"{self.places[name]}: {text.strip()} stands there twice")
            values.append(value)
        return tuple(values)
