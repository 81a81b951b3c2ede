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
    """A load for one worker, or several to be sliced, each with its address."""

    sides: tuple[tuple[Load, Address], ...]
    timing: Timing
    share: WorkerShare
    file: int | str  # the shared memory: a descriptor, or a path for a worker kept from before
    slices: Slices | None = None
    log: LogOrder | None = None
    traces: TraceOrder | None = None


@dataclass(frozen=True)
class Ready:
    """How many connections of each side are open, of those `wanted`, and why others are not."""

    opened: tuple[int, ...]
    wanted: int
    errors: tuple[str | None, ...]
    connecting: tuple[int, int]  # begin and end (perf_counter_ns)


@dataclass(frozen=True)
class Done:
    """The end of a load: each side's result without its times; none where nothing was measured."""

    results: tuple[LoadResult, ...]
    slices: tuple[Slice, ...]
    logged: int  # requests in the file of the log
    traced: int  # requests in the file of the traces


@dataclass(frozen=True)
class Messages:
    """What a worker has said so far."""

    ready: Ready | None = None
    done: Done | None = None
    kept: bool | None = None  # the load is over, and whether the worker may have another
    unreachable: tuple[str, str, int, str] | None = None  # the LoadError that ended the load
    broken: str | None = None  # the BrokenAccount that did


def line_of(message: Orders | Messages) -> bytes:
    """Encode a message as a line of JSON."""
    return msgspec.json.encode(message, enc_hook=encode_part) + b"\n"
