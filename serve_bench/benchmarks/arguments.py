"""Arguments of rpc and scale: texts of a suite file, and of the flags over it. Pure.

Rule: a value is read the same wherever it was written. Every error is one line that names the flag,
or the file and key, and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from serve_bench.core.axes import Kind, only_keys
from serve_bench.core.errors import BadInput

T = TypeVar("T")
Texts: TypeAlias = Mapping[str, str]


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

    texts: Texts
    places: Texts

    @classmethod
    def read(
        cls, tables: Mapping[str, Any], flags: Texts, keys: Sequence[str], optional: Sequence[str]
    ) -> Arguments:
        """Tables of a suite file by their places, a later one over an earlier, and flags over them.
        A list of a file is a text with commas, as behind a flag. Raises BadInput for a key that is
        none of `keys`, for one that no table has and is not optional, and for what is no table."""
        texts: dict[str, str] = {}
        places: dict[str, str] = {}
        for place, table in tables.items():
            if not isinstance(table, Mapping):
                raise BadInput(f"{place}: must be a table")
            only_keys(table, keys, place)
            for name, value in table.items():
                texts[name] = ",".join(map(str, value if isinstance(value, list) else [value]))
                places[name] = f"{place}.{name}"
        for name in keys:
            if name not in (*texts, *optional):
                raise BadInput(f"{next(iter(tables))}: {name} is missing")
        places |= {name: f"--{name.replace('_', '-')}" for name in flags}
        return cls({**texts, **flags}, places)

    def value(self, name: str, kind: Kind) -> Any:
        """The value of an argument. Raises BadInput."""
        return kind.read(self.texts[name].strip(), self.places[name])

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
