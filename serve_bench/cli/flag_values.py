"""What the client of a load needs, and the place that a refusal of its fields names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load


def check_client(load: Load) -> None:
    """Raise BadInput without the library of the client."""
    if load.client == "grpc" and find_spec("grpc") is None:
        raise BadInput("--protocol grpc: grpcio is not installed: pip install grpcio")


def name_place(message: str, places: Mapping[str, str]) -> str:
    """Replace the field that a message begins with by its place, such as a flag."""
    first, space, rest = message.partition(" ")
    field = first.removesuffix(":")
    return places.get(field, field) + first.removeprefix(field) + space + rest
