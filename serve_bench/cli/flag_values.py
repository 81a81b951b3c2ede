"""The values of flags that are no axes: text in, value out.

Rule: BadInput in one line that names the flag. What one flag says by itself is read here; which
flags go together belongs to their command, core/load_spec.py and core/request_spec.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.numbers import whole_number
from serve_bench.core.request_spec import DRAWS, Draw, Headers, path_fault
from serve_bench.core.secrets import MOST, hash_value
from serve_bench.core.timeline import seconds_of as seconds_of
from serve_bench.core.timeline import stages_of as stages_of


def names(text: object) -> tuple[str, ...]:
    """Words with commas; none of None."""
    return tuple(part.strip() for part in str(text).split(",")) if text is not None else ()


def share_of(trace: str | None, out: Path | None = None) -> float | None:
    """The share of requests of `--trace`. Raises BadInput."""
    if trace is None:
        if out is not None:
            raise BadInput("--trace-out: goes with --trace")
        return None
    try:
        share = float(trace.removesuffix("%")) / (100 if trace.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadInput(f"--trace: {trace!r} is not allowed; it takes a share as 0.01, or as 1%")
    return share


def check_client(load: Load) -> None:
    """BadInput without the library of the client."""
    if load.client == "grpc" and find_spec("grpc") is None:
        raise BadInput("--protocol grpc: grpcio is not installed: pip install grpcio")


#: Upper end of a file with a body or paths: each load worker holds all of it.
MOST_BYTES = 256 << 20

#: Fields of Load and Request that are called as their flags are, and those that are not.
SAME = """unix_socket events openai: max_connections expect_status expect_body connections processes
    retries method header client stages: paths: rate ramp spin""".split()
FLAGS = {
    "connect_timeout_s": "--connect-timeout",
    "event_timeout_s": "--event-timeout",
    "streaming": "--protocol stream",
    "streaming:": "--protocol stream:",
    "timeout_s": "--timeout",
    "header_sets:": "--headers:",
    "count": "--requests",
    **{name: f"--{name.replace('_', '-')}" for name in SAME},
}


def in_flags(message: str) -> str:
    """The message with the flag in place of the field that it begins with."""
    first, space, rest = message.partition(" ")
    return FLAGS.get(first, first) + space + rest


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
    paths = []
    for where, path in _lines_of(file, flag):
        fault = path_fault(path)
        if fault is not None:
            raise BadInput(f"{where}: {fault}")
        paths.append(path)
    if not paths:
        raise BadInput(f"{flag}: {file} holds no path; it takes one a line, such as /item?id=1")
    return tuple(paths)


def bodies_of(file: str | None, flag: str = "--bodies") -> tuple[bytes, ...]:
    """The bodies in a file, one a line; empty lines and those that begin with # are none."""
    if file is None:
        return ()
    bodies = tuple(line.encode(errors="surrogateescape") for _, line in _lines_of(file, flag))
    if not bodies:
        raise BadInput(f"{flag}: {file} holds no body; it takes one a line")
    return bodies


def header_sets_of(file: str | None, flag: str = "--headers") -> tuple[Headers, ...]:
    """The headers in a file: a JSON object of texts a line, each for one request of the turn."""
    if file is None:
        return ()
    like = 'it takes an object of texts a line, such as {"x-user": "7"}'
    sets = []
    for where, line in _lines_of(file, flag):
        try:
            one = json.loads(line)
        except ValueError:
            one = None
        if not isinstance(one, dict) or not all(isinstance(value, str) for value in one.values()):
            raise BadInput(f"{where}: is not allowed; {like}")
        sets.append(tuple(one.items()))
    if not sets:
        raise BadInput(f"{flag}: {file} holds no headers; {like}")
    return tuple(sets)


def _lines_of(file: str, flag: str) -> Iterator[tuple[str, str]]:
    if file in ("", "-"):
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes a file")
    # A byte that is no UTF-8 is kept, so that the refusal names its line.
    text = _bytes_in(file, flag).decode(errors="surrogateescape")
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        if content and not content.startswith("#"):
            yield f"{flag}: {file}, line {number}", content


def _bytes_in(file: str, flag: str) -> bytes:
    if "\0" in file:
        raise BadInput(f"{flag}: {file!r} is not allowed; it takes the name of a file")
    path = Path(file)
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BadInput(f"{flag}: {file} is no regular file")
        if path.is_file() and path.stat().st_size > MOST_BYTES:
            raise BadInput(
                f"{flag}: {file} has {path.stat().st_size:,} bytes; allowed: {MOST_BYTES:,}"
            )
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "error").lower()
        raise BadInput(f"{flag}: {file} cannot be read: {reason}") from None
    for value in (content, *content.splitlines()[:MOST]):
        hash_value(value)
    return content


def header_of(text: str) -> tuple[str, str]:
    """`Name: value` as a pair."""
    name, colon, value = text.partition(":")
    if not colon:
        raise BadInput(f"--header: {hash_value(text)!r} is not allowed; it takes 'Name: value'")
    return name.strip(), value.strip()


def statuses_of(text: str | None) -> tuple[int, ...]:
    """Numbers with commas."""
    parts = text.split(",") if text is not None else []
    numbers = tuple(whole_number(part.strip()) for part in parts)
    if None in numbers:
        raise BadInput(f"--expect-status: {text!r} is not allowed; it takes numbers, as 200,204")
    return tuple(number for number in numbers if number is not None)


def draw_of(value: str | None, flag: str = "--draw") -> Draw:
    """How requests that differ follow one another; in turn by default."""
    if value not in (None, *DRAWS):
        raise BadInput(f"{flag}: {value!r} is not allowed; it takes {', '.join(DRAWS)}")
    return "random" if value == "random" else "cycle"
