"""The end of a launch, for the records of every kind of run."""

from __future__ import annotations

from collections.abc import Callable

from serve_bench.core.result import Failure, Teardown
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder
from serve_bench.store.clock import now_iso


def record_teardown(
    folder: RunFolder, launch: str, reaped: Reaped, fail: Callable[[Failure], None]
) -> None:
    """Appends what came of ending a launch; what is left of it is a failure. Raises StoreError."""
    folder.append(
        Teardown(
            launch=launch,
            seconds=round(reaped.seconds, 4),
            killed=reaped.killed,
            clean=not reaped.leftovers,
            leftovers=reaped.leftovers,
        )
    )
    if reaped.leftovers:
        message = f"something of the launch is left: {', '.join(reaped.leftovers)}"
        fail(Failure("teardown", message, now_iso(), launch=launch))
