"""The values of flags that are no axes: text in, value out.

Rule: BadInput in one line that names the flag. What one flag says by itself is read here; which
flags go together belongs to their command, core/load_spec.py and core/request_spec.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load


def names(text: object) -> tuple[str, ...]:
    """Words with commas; none of None."""
    return tuple(part.strip() for part in str(text).split(",")) if text is not None else ()


def check_client(load: Load) -> None:
    """BadInput without the library of the client."""
    if load.client == "grpc" and find_spec("grpc") is None:
        raise BadInput("--protocol grpc: grpcio is not installed: pip install grpcio")


#: Fields of a load and its request with the flag of each that is called otherwise.
FLAGS: Final[Mapping[str, str]] = {
    "streaming": "--protocol stream",
    "count": "--requests",
    **{
        name: f"--{name.removesuffix('_s').replace('_', '-')}"
        for name in """unix_socket events max_connections expect_status expect_body connections
        processes retries honor_retry_after client stages rate ramp spin connect_timeout_s
        event_timeout_s timeout_s""".split()
    },
}


def name_place(message: str, places: Mapping[str, str] = FLAGS) -> str:
    """The message with a place, such as a flag, instead of the field that it begins with."""
    first, space, rest = message.partition(" ")
    field = first.removesuffix(":")
    return places.get(field, field) + first.removeprefix(field) + space + rest
