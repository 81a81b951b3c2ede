"""Recipes: what to record with py-spy and how, as a person writes them in profiles/*.toml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.errors import BadInput

FLAGS: Final = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")
TARGETS: Final = ("proxy", "replica", "controller", "all")
FORMATS: Final = ("flamegraph", "speedscope", "chrometrace", "raw")
LONGEST_S: Final = 3600.0
FASTEST: Final = 1000  # samples a second; py-spy falls behind long before


@dataclass(frozen=True)
class Recipe:
    """One recipe. `what` and `why` are for people; None means that the recipe does not say."""

    what: str
    why: str
    target: str
    duration_s: float | None = None
    rate: int | None = None
    format: str | None = None
    flags: tuple[str, ...] = ()


def read_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from the content of a TOML file. BadInput names the key and what is allowed."""
    known = ("what", "why", "target", "duration_s", "rate", "format", *FLAGS)
    for name in data:
        if name not in known:
            raise BadInput(f"{where}: unknown key {name!r}; allowed: {', '.join(known)}")
    for name in ("what", "why", "target"):
        if not isinstance(data.get(name), str):
            raise BadInput(f"{where}: {name} is needed, a text")
    for name in FLAGS:
        if not isinstance(data.get(name, False), bool):
            raise BadInput(f"{where}: {name} takes true or false")
    duration_s, rate = data.get("duration_s"), data.get("rate")
    return Recipe(
        what=data["what"],
        why=data["why"],
        target=one_of(data["target"], TARGETS, f"{where}: target"),
        duration_s=None if duration_s is None else duration(duration_s, f"{where}: duration_s"),
        rate=None if rate is None else sample_rate(rate, f"{where}: rate"),
        format=one_of(data["format"], FORMATS, f"{where}: format") if "format" in data else None,
        flags=tuple(name for name in FLAGS if data.get(name, False)),
    )


def one_of(value: object, allowed: tuple[str, ...], where: str) -> str:
    """The value if it is one of those; BadInput otherwise."""
    if value not in allowed:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes {', '.join(allowed)}")
    return str(value)


def duration(value: object, where: str) -> float:
    """Seconds to record, 0.1 to an hour."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{where}: {value!r} is not a number of seconds")
    if not 0.1 <= value <= LONGEST_S:
        raise BadInput(f"{where}: {value} is not allowed; it takes 0.1 to {LONGEST_S:.0f} seconds")
    return float(value)


def sample_rate(value: object, where: str) -> int:
    """Samples a second, 1 to 1000."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= FASTEST:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes 1 to {FASTEST} a second")
    return value
