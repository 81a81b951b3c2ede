"""What a row is loaded with: its protocol, its bodies, its connections. Pure.

Rule: commands read this for their `--help`, so nothing of a record is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from serve_bench.core.numbers import Amount, Connections, Count, whole_number

Protocol: TypeAlias = Literal["http", "stream", "grpc", "grpc-stream", "handle", "handle-stream"]
PROTOCOLS: Final[tuple[str, ...]] = get_args(Protocol)
STREAMS: Final = frozenset({"stream", "grpc-stream", "handle-stream"})
"""Protocols whose responses are streams."""

GRPC: Final = frozenset({"grpc", "grpc-stream"})
HANDLES: Final = frozenset({"handle", "handle-stream"})
"""Calls of a DeploymentHandle, within the cluster."""


DATA_SIZES: Final = {"small": 0, "large": 1024 * 1024}
"""Bytes of a body: the published benchmark sends none ("small") or 1 MiB ("large")."""

ECHO: Final = "echo"
"""The response size of an app that answers the body of the request, in each event of a stream."""


def body_bytes(data_size: str) -> int:
    """Return the bytes of a body that a data size stands for."""
    size = DATA_SIZES.get(data_size)
    return (whole_number(data_size) or 0) if size is None else size


def size_text(size: int) -> str:
    """Format bytes in the largest unit that leaves a whole number: `1 MB`, `1 MiB`, `10 kB`."""
    units = {"MiB": 1 << 20, "kiB": 1 << 10} if size % 1000 else {"MB": 10**6, "kB": 1000}
    for unit, unit_bytes in units.items():
        if size >= unit_bytes and size % unit_bytes == 0:
            return f"{size // unit_bytes} {unit}"
    return f"{size} B"


@dataclass(frozen=True)
class Traffic:
    """What each request of a row is, whatever the load."""

    data_size: str = "small"  # "small", "large" (1 MiB) or bytes
    protocol: Protocol = "http"
    stream_events: Count | None = None  # of each stream, if the request says so
    response_size: str = "small"  # as data_size, or "echo"

    @property
    def suffix(self) -> str:
        """The end of a row's name: `, stream of 10`, `, response of 1 MB`; "" for plain HTTP."""
        size = body_bytes(self.response_size)
        text = "" if self.protocol == "http" else f", {self.protocol}"
        text += f" of {self.stream_events}" if self.stream_events is not None else ""
        if self.echoes:
            return f"{text}, echo of {size_text(body_bytes(self.data_size))}"
        return text + (f", response of {size_text(size)}" if size else "")

    @property
    def echoes(self) -> bool:
        """Whether the app answers with the body of the request."""
        return self.response_size == ECHO

    @property
    def streams(self) -> bool:
        """Whether responses are streams."""
        return self.protocol in STREAMS

    @property
    def client(self) -> str:
        """The client that speaks the protocol, at the least cost."""
        if self.protocol in GRPC:
            return "grpc"
        return "handle" if self.protocol in HANDLES else "raw"


@dataclass(frozen=True)
class Row:
    """The load of one row of a cell. `processes` is None where the engine chose the number."""

    label: str  # "single client", "8 clients", "100 connections"
    client: str  # "aiohttp", "raw", "grpc", "handle"
    connections: Connections
    processes: Count | None = None
    loop: str = "closed"  # "closed" or "open"
    rate_per_s: Amount | None = None  # open loop only
    data_size: str = "small"  # "small", "large" (1 MiB) or a number of bytes
    requests_each: Count | None = None  # of each connection; None: as long as the windows last
    run: Count = 1  # a step that is measured again counts from 2
    protocol: Protocol = "http"
    stream_events: Count | None = None  # of each stream, if the request says so
    response_size: str = "small"  # as data_size, or "echo"

    @property
    def traffic(self) -> Traffic:
        """The traffic of each of its requests."""
        return Traffic(self.data_size, self.protocol, self.stream_events, self.response_size)

    @property
    def requests(self) -> int | None:
        """Requests of all connections; None where time ends the row."""
        return None if self.requests_each is None else self.connections * self.requests_each
