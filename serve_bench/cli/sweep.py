"""`serve-bench sweep`: a ladder of users against any suite or URL: throughput, knee, collapse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serve_bench.cli.command import command, flag
from serve_bench.cli.options import MATRIX, MODEL, RUN, LadderOptions

if TYPE_CHECKING:
    from serve_bench.core.ladder import Ladder
    from serve_bench.core.plan import Suite


class SweepOptions(LadderOptions):
    """The options of `sweep`."""

    command = "sweep"
    order = (
        *("app", *MATRIX, *MODEL, "variant", "env", "users", "duration", "launches", "url"),
        *("header", "quick", "suite", "out", "resume", *RUN, "format", "perf_metrics"),
    )

    suite: str = flag("micro")
    app: str | None = flag(None, "noop, ranker or recsys [as in the suite: noop].")


@command(SweepOptions)
def sweep(options: SweepOptions) -> int:
    """Grow a closed-loop load until it gains no more: throughput, knee and collapse of any suite.

    Example: serve-bench sweep --num-replicas 2 --variant default,optimized --quick
    """
    from dataclasses import replace

    from serve_bench.cli.ladders import (
        check_url_flags,
        ladder_of,
        measure_urls,
        timing_of,
        url_request,
    )
    from serve_bench.cli.rows import measure, overrides, suite_of
    from serve_bench.core.ladder import COLLAPSE_RUNS

    shown = options.shown()
    check_url_flags(options)

    def ladder() -> Ladder:
        return ladder_of(options.users or "auto", options.quick, start=1, runs=COLLAPSE_RUNS)

    def suite() -> Suite:
        timing = timing_of(options.duration, options.quick)
        flags = replace(
            overrides(options),
            app=options.app,
            ladder=ladder(),
            windows=timing.windows,
            window_s=timing.window_s,
        )
        return suite_of(options.suite, flags)

    if options.url:
        return measure_urls(options, shown, url_request(options, ladder()))
    return measure(options, shown, suite)
