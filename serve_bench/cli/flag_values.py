"""The values of flags that are no axes: text in, value out.

Rule: BadInput in one line that names the flag. What one flag says by itself is read here; which
flags go together belongs to their command, core/load_spec.py and core/request_spec.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load


def names(text: object) -> tuple[str, ...]:
    """Words with commas; none of None."""
    return tuple(part.strip() for part in str(text).split(",")) if text is not None else ()


def check_client(load: Load) -> None:
    """BadInput without the library of the client."""
    if load.client == "grpc" and find_spec("grpc") is None:
        raise BadInput("--protocol grpc: grpcio is not installed: pip install grpcio")


def name_place(message: str, places: Mapping[str, str]) -> str:
    """The message with a place, such as a flag, instead of the field that it begins with."""
    first, space, rest = message.partition(" ")
    field = first.removesuffix(":")
    return places.get(field, field) + first.removeprefix(field) + space + rest
