"""The values of the flags that micro and recsys share: text in, what goes against a suite out.

Rule: BadInput in one line that names the flag. Flags of one command alone are read there.
"""

from __future__ import annotations

from collections.abc import Mapping

from serve_bench.core.axes import AXES, Value
from serve_bench.core.errors import BadInput

LARGEST = 1_000_000
MOST_LAUNCHES = 1_000
"""As in a suite (suite.py): a plan names each launch."""

#: Flags of the model that hold in every cell, by the axis that each sets.
MODEL_SETTINGS = ("device", "threads", "table_rows", "gpu_fraction")


def values(axis: str, text: object, flag: str | None = None) -> tuple[Value, ...]:
    """One or more values of an axis, with commas; the flag is named after the axis by default.

    Of rankers also the word both.
    """
    text = "plain,tuned" if axis == "ranker" and text == "both" else text
    flag = flag or f"--{axis.replace('_', '-')}"
    return tuple(AXES[axis].read(part.strip(), flag) for part in str(text).split(","))


def settings(given: Mapping[str, object], axes: tuple[str, ...]) -> dict[str, Value]:
    """The axes among these that were given a value, which is one."""
    found: dict[str, Value] = {}
    for name in axes:
        if given[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            found[name] = AXES[name].read(str(given[name]).strip(), flag)
    return found


def names(text: object) -> tuple[str, ...]:
    """Words with commas; none where nothing was given."""
    return tuple(part.strip() for part in str(text).split(",")) if text is not None else ()


def check_texts(given: Mapping[str, object], but: tuple[str, ...] = ("body",)) -> None:
    """BadInput on a flag whose text is empty: it would count as not given."""
    for name, value in given.items():
        if value == "" and name not in but:
            raise BadInput(f"--{name.replace('_', '-')}: '' is not allowed; it takes a value")


def check_number(flag: str, number: object, least: float, most: float = LARGEST) -> None:
    """BadInput unless a number that was given lies within."""
    if isinstance(number, int | float) and not least <= number <= most:
        raise BadInput(f"{flag}: {number} is not allowed; it takes {least} to {most}")


def asked(given: Mapping[str, object], suite: str, but: tuple[str, ...]) -> list[str]:
    """The flags that were given a value, as they are spelt; the suite only if it is another."""
    found = [
        name
        for name, value in given.items()
        if not (value is None or value is False or value == []) and name not in but
    ]
    if given.get("suite") == suite:
        found.remove("suite")
    return [f"--{name.replace('_', '-')}" for name in found]
