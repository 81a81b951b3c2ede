"""The load engine: sends requests to a URL from worker processes and accounts for each of them.

It knows HTTP and sockets, and nothing of Ray. Workers import this package too and must start fast,
so the driver is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serve_bench.load.failures import LoadError, LoadInterrupted

if TYPE_CHECKING:
    from serve_bench.load.driver import drive_load as drive_load

__all__ = ["LoadError", "LoadInterrupted", "drive_load"]


def __getattr__(name: str) -> Any:
    if name == "drive_load":
        from serve_bench.load.driver import drive_load

        return drive_load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
