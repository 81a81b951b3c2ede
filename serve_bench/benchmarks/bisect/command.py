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
        *("no_sample", "dry_run", "format"),
    )

    good: str | None = flag(None, "The good end: ray==2.58.0, or a commit of the app's repository.")
    bad: str | None = flag(None, "The bad end, as the good one.")
    side: str = flag("default", "On both sides: VARIANT, APP or VARIANT,APP [default].", "--of")
    env: list[str] | None = flag(None, "NAME=VALUE for both; repeatable.")
    option: list[str] | None = flag(None, "num_replicas=2 for both; repeatable.")
    rounds: str | None = flag(None, "The most rounds of a comparison [20]; +N with --resume.")
    header: list[str] | None = flag(None, "Of own apps: 'Name: value'.", "-H", "--header")
    python: str | None = flag(None, "Interpreter that environments are made of [this one].")
    cutoff: str | None = flag(
        None, "Packages up to this date, with uv [of Ray: the day after the version's release]."
    )
    extra: list[str] | None = flag(
        None, "A package that the app needs beside, or FILE.txt with some; repeatable.", "--with"
    )
    resume: Path | None = flag(
        None, "Go on with the search in this folder: the command line again."
    )
    threshold: str | None = flag(None, "Ends that differ by less may end the search as same [5%].")
    gate: str | None = flag(None, "Beside throughput: p50, p99, cpu [cpu].")
    budget: str | None = flag(None, "The search lasts at most so long (2h).")


@command(BisectOptions, "Compare")
def bisect(options: BisectOptions) -> int:
    """Find the version or commit at which a figure became worse.

    Each version is held against the good end in the same rounds, as versus does. Exit code 1 where
    no step is decided.

    Example: serve-bench bisect --good ray==2.58.0 --bad ray==2.60.0
    """
    from serve_bench.benchmarks.bisect.drive import run
    from serve_bench.cli.flag_values import check_texts

    spelt = {"side": "of", "extra": "with"}
    check_texts({spelt.get(name, name): getattr(options, name) for name in options.order})
    return run(options)
