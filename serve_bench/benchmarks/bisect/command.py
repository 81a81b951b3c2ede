"""`serve-bench bisect`: the version, or the commit, at which a figure became worse."""

from __future__ import annotations

from pathlib import Path

from serve_bench.benchmarks.versus.command import VersusOptions
from serve_bench.cli.command import command, flag


class BisectOptions(VersusOptions):
    """The options of `bisect`: those of versus that hold for both sides, and what is searched."""

    command = "bisect"
    order = (
        *("good", "bad", "side", "env", "option", "rounds", "python", "cutoff", "extra", "app"),
        *("clients", "rate", "route", "method", "header", "body", "expect_status", "quick"),
        *("threshold", "gate", "budget", "slice", "seed", "suite", "out", "resume"),
        *("no_sample", "dry_run", "live", "format"),
    )

    good: str | None = flag(None, "Good end: ray==2.58.0, or a commit of the app's repository.")
    bad: str | None = flag(None, "Bad end, in the same form.")
    side: str = flag(
        "default", "What both sides serve: VARIANT, APP or VARIANT,APP [default].", "--of"
    )
    env: list[str] | None = flag(None, "Variable of the environment of both; repeatable.")
    option: list[str] | None = flag(None, "Option of both, such as num_replicas=2; repeatable.")
    rounds: str | None = flag(None, "Most rounds of a comparison [20]; +N with --resume adds N.")
    header: list[str] | None = flag(
        None, "Header of requests to own apps; repeatable.", "-H", "--header"
    )
    python: str | None = flag(None, "Python interpreter for the environments [this one].")
    cutoff: str | None = flag(
        None, "Newest release date of packages, with uv [for Ray: the day after its version's]."
    )
    extra: list[str] | None = flag(
        None, "Further package that the app needs, or FILE.txt with some; repeatable.", "--with"
    )
    resume: Path | None = flag(None, "Resume the search in this folder with its stored plan.")
    threshold: str | None = flag(None, "Size from which a loss is regressed [5%].")
    gate: str | None = flag(None, "Metrics that are gated beside throughput: p50, p99, cpu [cpu].")
    budget: str | None = flag(None, "Longest time of the search (2h).")


@command(BisectOptions, "Compare")
def bisect(options: BisectOptions) -> int:
    """Find the version or commit at which a figure became worse.

    Each version is compared with the good end in the same rounds, as in versus. Exit code 1 where
    no step is decided.

    Example: serve-bench bisect --good ray==2.58.0 --bad ray==2.60.0
    """
    from serve_bench.benchmarks.bisect.drive import run
    from serve_bench.cli.flag_values import check_texts

    spelt = {"side": "of", "extra": "with"}
    check_texts({spelt.get(name, name): getattr(options, name) for name in options.order})
    return run(options)
