"""The numbers of records with their bounds, and whole numbers as text.

Rule: a number is finite and at most 2^63; where less than 0 makes no sense, it is refused.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

MOST: Final = 2**63 - 1
"""The largest whole number of a record."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
"""A whole number from 0: requests, bytes, nanoseconds, a process id."""

Whole: TypeAlias = Annotated[int, Meta(ge=-MOST, le=MOST)]
"""Any whole number: a seed."""

Connections: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]

Amount: TypeAlias = Count | Annotated[float, Meta(ge=0, le=float(MOST))]
"""A number from 0: seconds, a rate, a share."""

Share: TypeAlias = Annotated[int, Meta(ge=0, lt=1)] | Annotated[float, Meta(ge=0, lt=1)]
"""A share of 1, below it."""

Positive: TypeAlias = (
    Annotated[int, Meta(gt=0, le=MOST)] | Annotated[float, Meta(gt=0, le=float(MOST))]
)
"""A number above 0: what is divided by it."""

Signed: TypeAlias = (
    Annotated[int, Meta(ge=-MOST, le=MOST)]
    | Annotated[float, Meta(ge=-float(MOST), le=float(MOST))]
)
"""Any number; a difference of two readings may be below 0."""

MOST_LAUNCHES: Final = 1_000
"""Launches of a run, and rounds of `versus`: a plan names each of them."""

MOST_DIGITS: Final = 18
"""Of a whole number in a text. Python refuses to read thousands of them."""


def whole_number(text: str) -> int | None:
    """Parse a text of decimal digits; None for any other text, or one above MOST_DIGITS."""
    plain = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) if plain else None


def written(number: float) -> str:
    """Write a number in full: 1000, not 1e+03."""
    return str(int(number)) if number == int(number) else f"{number:g}"
