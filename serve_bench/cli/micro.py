"""`serve-bench micro`: the matrix of batch size, concurrency and replicas, on the no-op app or on
a DLRM ranker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serve_bench.cli.command import command, flag
from serve_bench.cli.options import MATRIX, MODEL, RUN, RowOptions

if TYPE_CHECKING:
    from serve_bench.core.plan import Suite


class MicroOptions(RowOptions):
    """The options of `micro`."""

    command = "micro"
    order = (
        *("app", *MATRIX, *MODEL, "body_type", "intermediate_handle", "data_size"),
        *("clients", "windows", "window_seconds", "launches", "quick", "variant", "env", "suite"),
        *("out", "resume", "profile", *RUN, "format", "published", "perf_metrics"),
    )

    suite: str = flag("micro")
    app: str | None = flag(None, "noop, ranker (a DLRM) or recsys (an ingress before it) [noop].")
    clients: str | None = flag(None, "Rows: N aiohttp clients, raw:N connections [1,8,raw:100].")


@command(MicroOptions)
def micro(options: MicroOptions) -> int:
    """Measure an app over max_batch_size x max_concurrent_queries x num_replicas.

    Without axes: the six published cells. Every row says its client.

    Example: serve-bench micro --variant default,optimized --quick
    """
    from dataclasses import replace

    from serve_bench.cli.rows import measure, row_overrides, suite_of

    def suite() -> Suite:
        return suite_of(options.suite, replace(row_overrides(options), app=options.app))

    return measure(options, options.shown(), suite)
