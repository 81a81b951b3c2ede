"""The options of `serve-bench sweep` and `serve-bench recsys`."""

from __future__ import annotations

from serve_bench.cli.command import argument, flag
from serve_bench.cli.options import MATRIX, MODEL, REQUEST, RUN, LadderOptions, TargetOptions
from serve_bench.cli.panels import Command


class SweepOptions(LadderOptions, TargetOptions):
    """Add users until the throughput stops growing.

    Example: serve-bench sweep noop --variant default,optimized --quick
    """

    command = "sweep"
    order = f"""target arguments users duration quick option arg app_name {REQUEST} protocol
        grpc_servicer call events event_timeout_s timeout_s app {MATRIX} {MODEL} variant env
        launches url out resume trace {RUN} slo format perf_metrics trace_out"""

    target: str = argument(
        "micro", "module:app, file.py:app, config.yaml, suite or URL.", metavar="[TARGET]"
    )
    app: str | None = flag(None, "App: noop, ranker or recsys [noop].", launched=True)


sweep = Command(SweepOptions, "benchmarks.ladder.command:SweepRun.measure")


class RecsysOptions(LadderOptions):
    """Measure a recommender of ingress and DLRM ranker.

    A ladder of users for each variant and number of rankers.

    Without flags: default and optimized, 1, 2 and 4 ranker replicas, 2 ingress replicas for each.

    Example: serve-bench recsys --quick --published
    """

    command = "recsys"
    order = f"""ranker_replicas variant ranker device users duration threads gpu_fraction table_rows
        max_batch_size launches timeout_s env url header quick suite out resume trace {RUN} slo
        format published perf_metrics trace_out"""

    suite: str = flag("recsys")


recsys = Command(RecsysOptions, "benchmarks.ladder.command:RecsysRun.measure")
