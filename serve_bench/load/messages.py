"""What the parent and a worker say to each other, one line of JSON each."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from serve_bench.core.load_result import LoadResult, Slice
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.core.schema import encode_part
from serve_bench.load.connection import Address
from serve_bench.load.pacing import WorkerShare
from serve_bench.load.request_log import LogOrder
from serve_bench.load.traces import TraceOrder


@dataclass(frozen=True)
class Orders:
    """A load for one worker, or several to be sliced, each with its address. `file`: the shared
    memory, by its descriptor, or by its path for a worker that had another load before; it has so
    many `boards`."""

    sides: tuple[tuple[Load, Address], ...]
    timing: Timing
    share: WorkerShare
    file: int | str
    boards: int
    slices: Slices | None = None
    log: LogOrder | None = None
    traces: TraceOrder | None = None


@dataclass(frozen=True)
class Ready:
    """Of each side: how many connections are open, of so many `wanted`, and why others are not."""

    opened: tuple[int, ...]
    wanted: int
    errors: tuple[str | None, ...]
    connecting: tuple[int, int]  # begin and end (perf_counter_ns)


@dataclass(frozen=True)
class Done:
    """The load has ended: the result of each side, none where nothing was measured. `logged`,
    `traced`: requests in the files of those."""

    results: tuple[LoadResult, ...]
    slices: tuple[Slice, ...]
    logged: int
    traced: int


@dataclass(frozen=True)
class Messages:
    """What a worker has said so far. `kept`: its load is over, and whether it may have another;
    `unreachable`: the LoadError that ends it; `broken`: the BrokenAccount that does."""

    ready: Ready | None = None
    done: Done | None = None
    kept: bool | None = None
    unreachable: tuple[str, str, int, str] | None = None
    broken: str | None = None


def line_of(message: Orders | Messages) -> bytes:
    """The line of JSON of a message."""
    return msgspec.json.encode(message, enc_hook=encode_part) + b"\n"
