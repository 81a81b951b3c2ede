"""`serve-bench sweep`: a ladder of users against any suite or URL: throughput, knee, collapse.
`serve-bench recsys`: ingress and ranker, a ladder of users for each number of rankers.
"""

from __future__ import annotations

from serve_bench.benchmarks.ladder.options import RecsysOptions, SweepOptions
from serve_bench.cli.experiment import measure
from serve_bench.cli.rows import (
    add_climb_flags,
    choose_suite,
    ladder_of,
    read_content,
    suite_of,
    url_suite,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS, Ladder
from serve_bench.core.plan import Suite
from serve_bench.spec.suite import Around


def sweep(options: SweepOptions) -> int:
    """Measures a ladder of users for each cell. Returns the exit code."""

    def ladder() -> Ladder:
        return ladder_of(options.users or "auto", options.quick, start=1, runs=COLLAPSE_RUNS)

    def suite() -> Suite:
        ours = ("load.clients", "load.windows", "load.window_seconds")
        content = read_content(options.suite).without(*ours)
        content = content.set("app", options.app, "--app").set("load.users", "auto", "sweep")
        return suite_of(add_climb_flags(content, options), Around(climb=ladder()))

    return measure(options, choose_suite(options, suite, lambda: url_suite(options, ladder())))


def recsys(options: RecsysOptions) -> int:
    """Measures a ladder of users for each number of rankers. Returns the exit code."""
    users, quick = options.users, options.quick

    def suite() -> Suite:
        content = read_content(options.suite)
        if quick:
            content = content.set("load.users", "auto", "--quick")
        around = Around(climb=ladder_of("auto", quick) if users is not None or quick else None)
        return suite_of(add_climb_flags(content, options), around)

    def check(suite: Suite) -> None:
        if suite.app.name != "recsys" or suite.ladder is None:
            needs = 'needs app = "recsys", and users in its [load]'
            raise BadInput(f"--suite: {options.suite} {needs}")

    def services() -> Suite:
        return url_suite(options, ladder_of(users or "auto", quick), users=True)

    return measure(options, choose_suite(options, suite, services), check)
