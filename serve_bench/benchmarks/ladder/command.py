"""`serve-bench sweep`: a ladder of users against any target: throughput, knee, collapse.
`serve-bench recsys`: ingress and ranker, a ladder of users for each number of rankers.
"""

from __future__ import annotations

from serve_bench.benchmarks.ladder.options import RecsysOptions, SweepOptions
from serve_bench.cli.experiment import measure
from serve_bench.cli.rows import add_climb, add_flags, ladder_of, read_content, suite_of, url_suite
from serve_bench.cli.targets import target_suite
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS
from serve_bench.core.plan import Suite
from serve_bench.spec.suite import Around


def sweep(options: SweepOptions) -> int:
    """Measures a ladder of users for each cell. Returns the exit code."""

    def suite() -> Suite:
        ladder = ladder_of(options.users or "auto", options.quick, start=1, runs=COLLAPSE_RUNS)
        suite = target_suite(options, climb=ladder)
        return add_climb(suite, options, ladder) if suite.services else suite

    return measure(options, suite)


def recsys(options: RecsysOptions) -> int:
    """Measures a ladder of users for each number of rankers. Returns the exit code."""
    users, quick = options.users, options.quick

    def suite() -> Suite:
        content = read_content(options.suite)
        if quick:
            content = content.set("load.users", "auto", "--quick")
        around = Around(climb=ladder_of("auto", quick) if users is not None or quick else None)
        return suite_of(add_flags(content, options), around)

    def check(suite: Suite) -> None:
        if suite.app.name != "recsys" or suite.ladder is None:
            needs = 'needs app = "recsys", and users in its [load]'
            raise BadInput(f"--suite: {options.suite} {needs}")

    def services() -> Suite:
        return url_suite(options, ladder_of(users or "auto", quick), users=True)

    return measure(options, services if options.url else suite, check)
