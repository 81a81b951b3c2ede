"""The values of flags: those that micro and recsys share, and those of `serve-bench load`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from serve_bench.core.axes import AXES, Value
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_DURATION_S, Stage
from serve_bench.core.request_spec import Draw, Headers, path_fault

# --------------------------------------------------------------------------------------------------
# The values of the flags that micro and recsys share: text in, what goes against a suite out.
#
# Rule: BadInput in one line that names the flag. Flags of one command alone are read there.

LARGEST = 1_000_000
MOST_LAUNCHES = 1_000
"""As in a suite (core/suite.py): a plan names each launch."""

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


# --------------------------------------------------------------------------------------------------
# The values of `serve-bench load`'s flags: text in, value out, or BadInput in one line.
#
# Rule: what one flag says by itself is read here. Which flags go together, and what the load then
# is, belongs to load.py, core/load_spec.py and core/request_spec.py.

#: Upper end of a file with a body or paths: each load worker holds all of it.
MOST_BYTES = 256 << 20

#: What a field of Load and Request is called on the command line.
FLAGS = {
    "unix_socket": "--unix-socket",
    "connect_timeout_s": "--connect-timeout",
    "timeout_s": "--timeout",
    "max_connections": "--max-connections",
    "expect_status": "--expect-status",
    "connections": "--connections",
    "processes": "--processes",
    "retries": "--retries",
    "arrivals": "--arrivals",
    "method": "--method",
    "header": "--header",
    "client": "--client",
    "header_sets:": "--headers:",
    "stages:": "--stages:",
    "paths:": "--paths:",
    "count": "--requests",
    "rate": "--rate",
    "ramp": "--ramp",
    "spin": "--spin",
}


def in_flags(message: str) -> str:
    """The message with the flag in place of the field that it begins with."""
    first, space, rest = message.partition(" ")
    return FLAGS.get(first, first) + space + rest


def seconds_of(text: str, flag: str, zero: bool = False) -> float:
    """A time such as 500ms, 10s, 2m or 0.5, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)?", text.strip())
    seconds = float(match[1]) * {"ms": 1e-3, "m": 60, "h": 3600}.get(match[2], 1) if match else -1
    if seconds < 0 or (seconds == 0 and not zero):
        least = "0 or more" if zero else "above 0"
        raise BadInput(
            f"{flag}: {text!r} is not allowed; it takes a time {least}, such as 500ms, 10s or 2m"
        )
    if seconds > MAX_DURATION_S:
        most = f"{MAX_DURATION_S / 3600:g}h"
        raise BadInput(f"{flag}: {text[:20]!r} is not allowed; it takes at most {most}")
    return seconds


def stages_of(text: str | None) -> tuple[Stage, ...]:
    """`RATE:DURATION,...` as stages."""
    found = []
    for part in text.split(",") if text is not None else ():
        rate, colon, duration = part.partition(":")
        try:
            number = float(rate)
        except ValueError:
            number, colon = 0.0, ""
        if not colon:
            raise BadInput(f"--stages: {part!r} is not allowed; it takes RATE:DURATION, as 100:30s")
        found.append(Stage(number, seconds_of(duration, "--stages")))
    return tuple(found)


def content_of(text: str, flag: str) -> bytes:
    """Text, or the content of @FILE, as bytes."""
    if not text.startswith("@"):
        return os.fsencode(text)
    if text == "@":
        raise BadInput(f"{flag}: '@' is not allowed; it takes text or @FILE")
    return _bytes_in(text[1:], flag)


def paths_of(file: str | None, flag: str = "--paths") -> tuple[str, ...]:
    """The paths in a file, one a line; empty lines and those that begin with # are none."""
    if file is None:
        return ()
    found = []
    for where, path in _lines_of(file, flag):
        fault = path_fault(path)
        if fault is not None:
            raise BadInput(f"{where}: {fault}")
        found.append(path)
    if not found:
        raise BadInput(f"{flag}: {file} holds no path; it takes one a line, such as /item?id=1")
    return tuple(found)


def header_sets_of(file: str | None, flag: str = "--headers") -> tuple[Headers, ...]:
    """The headers in a file: a JSON object of texts a line, each for one request of the turn."""
    if file is None:
        return ()
    like = 'it takes an object of texts a line, such as {"x-user": "7"}'
    found = []
    for where, line in _lines_of(file, flag):
        try:
            one = json.loads(line)
        except ValueError:
            one = None
        if not isinstance(one, dict) or not all(isinstance(value, str) for value in one.values()):
            raise BadInput(f"{where}: is not allowed; {like}")
        found.append(tuple(one.items()))
    if not found:
        raise BadInput(f"{flag}: {file} holds no headers; {like}")
    return tuple(found)


def _lines_of(file: str, flag: str) -> Iterator[tuple[str, str]]:
    """What stands in a file, line by line, each with its place."""
    if file in ("", "-"):
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes a file")
    # A byte that is no UTF-8 is kept, to be told with the line that it is on.
    text = _bytes_in(file, flag).decode(errors="surrogateescape")
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        if content and not content.startswith("#"):
            yield f"{flag}: {file}, line {number}", content


def _bytes_in(file: str, flag: str) -> bytes:
    path = Path(file)
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BadInput(f"{flag}: {file} is no regular file")
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise BadInput(
                f"{flag}: {file} has {path.stat().st_size:,} bytes; allowed: {MOST_BYTES:,}"
            )
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise BadInput(f"{flag}: {file} cannot be read: {reason}") from None


def header_of(text: str) -> tuple[str, str]:
    """`Name: value` as a pair."""
    name, colon, value = text.partition(":")
    if not colon:
        raise BadInput(f"--header: {text!r} is not allowed; it takes 'Name: value'")
    return name.strip(), value.strip()


def statuses_of(text: str | None) -> tuple[int, ...]:
    """Numbers with commas."""
    parts = text.split(",") if text is not None else []
    if not all(part.strip().isdigit() for part in parts):
        raise BadInput(f"--expect-status: {text!r} is not allowed; it takes numbers, as 200,204")
    return tuple(int(part) for part in parts)


def draw_of(value: str | None, flag: str = "--draw") -> Draw:
    """How requests that differ follow one another; in turn unless told otherwise."""
    if value not in (None, "cycle", "random"):
        raise BadInput(f"{flag}: {value!r} is not allowed; it takes cycle or random")
    return "random" if value == "random" else "cycle"
