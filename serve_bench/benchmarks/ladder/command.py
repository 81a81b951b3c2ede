"""`serve-bench sweep`: a ladder of users against any suite or URL: throughput, knee, collapse.
`serve-bench recsys`: ingress and ranker, a ladder of users for each number of rankers.
"""

from __future__ import annotations

from serve_bench.cli.command import command, flag
from serve_bench.cli.experiment import measure
from serve_bench.cli.options import MATRIX, MODEL, RUN, LadderOptions
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


class SweepOptions(LadderOptions):
    command = "sweep"
    order = f"""app {MATRIX} {MODEL} variant env users duration launches url header quick suite
        out resume trace {RUN} slo format perf_metrics trace_out"""

    suite: str = flag("micro")
    app: str | None = flag(None, "App: noop, ranker or recsys [as in the suite: noop].")


@command(SweepOptions)
def sweep(options: SweepOptions) -> int:
    """Add users until the throughput stops growing.

    Gives throughput, knee and collapse of any suite.

    Example: serve-bench sweep --num-replicas 2 --variant default,optimized --quick
    """

    def ladder() -> Ladder:
        return ladder_of(options.users or "auto", options.quick, start=1, runs=COLLAPSE_RUNS)

    def suite() -> Suite:
        ours = ("load.clients", "load.windows", "load.window_seconds")
        content = read_content(options.suite).without(*ours)
        content = content.set("app", options.app, "--app").set("load.users", "auto", "sweep")
        return suite_of(add_climb_flags(content, options), Around(climb=ladder()))

    return measure(options, choose_suite(options, suite, lambda: url_suite(options, ladder())))


class RecsysOptions(LadderOptions):
    command = "recsys"
    order = f"""ranker_replicas variant ranker device users duration threads gpu_fraction
        table_rows max_batch_size launches env url header quick suite out resume trace {RUN} slo
        format published perf_metrics trace_out"""

    suite: str = flag("recsys")


@command(RecsysOptions)
def recsys(options: RecsysOptions) -> int:
    """Measure a recommender of ingress and DLRM ranker.

    A ladder of users for each variant and number of rankers.

    Without flags: default and optimized, 1, 2 and 4 ranker replicas, 2 ingress replicas for each.

    Example: serve-bench recsys --quick --published
    """
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
