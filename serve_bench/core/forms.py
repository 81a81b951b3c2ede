"""Types of values that people write with a unit: times, shares, rates. Pure.

Rule: in our code such a value is a number in its base unit (seconds, a part of 1, requests/s). How
it is written after a flag or in a file stands here once, as a `Form` (core/axes.py). A narrower
type adds its own bounds: `Annotated[Time, Meta(ge=0.01, le=2)]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Meta

from serve_bench.core.axes import Form
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import (
    MAX_DURATION_S,
    MAX_RATE,
    ROWS,
    STEPS,
    Stage,
    read_client,
    read_step,
)
from serve_bench.core.numbers import MOST_LAUNCHES, whole_number, written
from serve_bench.core.request_spec import SpecError
from serve_bench.core.spec import read_value

_UNITS: Final = {"ms": 1e-3, "m": 60, "h": 3600, "d": 86_400}
_STAGES: Final = "RATE:DURATION, as 100:30s"


def write_time(seconds: float) -> str:
    """Write seconds as `10ms`, `2s` or `720h`."""
    if 0 < seconds < 1:
        return f"{written(1000 * seconds)}ms"
    return f"{written(seconds / 3600)}h" if seconds >= 3600 else f"{written(seconds)}s"


def _read_number(text: str) -> float:
    if not text.isascii() or "_" in text:  # float() takes 1_0, and digits of other scripts
        raise ValueError(text)
    return float(text)


def _read_time(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?", text, re.ASCII)
    seconds = float(match[1]) * _UNITS.get(match[2], 1) if match else -1
    if not 0 <= seconds <= MAX_DURATION_S:
        raise ValueError(text)
    return seconds


_TIME: Final = Form(_read_time, "a time", "DURATION", write_time, ", such as 500ms, 10s or 2m")
_SHARE: Final = Form(
    lambda text: _read_number(text.removesuffix("%")) / (100 if text.endswith("%") else 1),
    "a share",
    "PERCENT",
    lambda share: f"{100 * share:g}%",
    ", such as 5% or 0.05",
)
_RATE: Final = Form(
    lambda text: _read_number(text.removesuffix("/s")),
    "a rate",
    "RATE",
    lambda rate: f"{written(rate)}/s",
    ", such as 2000/s",
)


def _read_row(text: str) -> str:
    read_client(text)
    return text


RowText: TypeAlias = Annotated[str, Form(_read_row, ROWS, "ROW", str)]
"""A row with a fixed load, such as `raw:100`."""

Step: TypeAlias = Annotated[str, Form(read_step, STEPS, "N", str, words=("auto", "published"))]
"""A step of a load that grows, or a word for all of them."""

Time: TypeAlias = Annotated[float, _TIME]
"""Seconds, from 0."""

Duration: TypeAlias = Annotated[Time, Meta(gt=0, le=MAX_DURATION_S)]
"""A length in seconds, above 0."""

Instant: TypeAlias = Annotated[Time, Meta(ge=0, le=MAX_DURATION_S)]
"""Seconds from a start, which may be 0."""


def write_stages(stages: Iterable[Stage]) -> str:
    """Write stages as on a command line: `50:20s,500:30s`."""
    return ",".join(f"{stage.rate:g}:{stage.duration_s:g}s" for stage in stages)


def _read_stages(text: str) -> tuple[Stage, ...]:
    stages = list[Stage]()
    for part in text.split(","):
        rate, colon, duration = part.partition(":")
        try:
            number = float(rate)
        except ValueError:
            colon = ""
        if not colon:
            raise BadInput(f"{part!r} is not allowed; it takes {_STAGES}")
        try:
            stages.append(Stage(number, read_value(Duration, duration, part)))
        except SpecError as error:
            raise BadInput(str(error).removeprefix("stages: ")) from None
    return tuple(stages)


Stages: TypeAlias = Annotated[
    tuple[Stage, ...], Form(_read_stages, _STAGES, "RATE:DURATION,...", write_stages)
]
"""Parts of an open-loop load, one after the other."""

Share: TypeAlias = Annotated[float, _SHARE]
"""A part of 1."""

TracedShare: TypeAlias = Annotated[Share, Meta(gt=0, le=1)]
"""The share of requests that are traced."""

LARGEST_THRESHOLD: Final = 0.9

Threshold: TypeAlias = Annotated[Share, Meta(gt=0, le=LARGEST_THRESHOLD)]
"""The smallest difference that matters, or a spread."""

Rate: TypeAlias = Annotated[float, _RATE, Meta(gt=0, le=MAX_RATE)]
"""Requests/s."""

LONGEST_SLICE_S: Final = 2.0
"""Longer slices cancel no more noise between sides than windows do."""

SliceTime: TypeAlias = Annotated[Time, Meta(ge=0.01, le=LONGEST_SLICE_S)]
"""Seconds of a slice, where sides are loaded in turn."""


class Rounds(NamedTuple):
    """A number of rounds: of the whole run, or with `more` (written as `+N`) of those to add."""

    number: int
    more: bool = False

    @classmethod
    def read(cls, text: str) -> Rounds:
        """Parse `12` or `+6`. Raises ValueError."""
        number = whole_number(text.removeprefix("+")) or 0
        if not 1 <= number <= MOST_LAUNCHES:
            raise ValueError(text)
        return cls(number, text.startswith("+"))
