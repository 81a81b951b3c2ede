"""`serve-bench flags`: which of the flags that a variant sets makes the difference."""

from __future__ import annotations

from serve_bench.benchmarks.versus.command import VersusOptions
from serve_bench.cli.command import command, flag


class FlagsOptions(VersusOptions):
    """The options of `flags`: those of versus that hold for both sides, and what is told apart."""

    command = "flags"
    order = (
        *("side", "env", "rounds", "no_pairs", "option", "python", "app", "clients", "rate"),
        *("route", "method", "header", "body", "expect_status", "quick", "threshold", "gate"),
        *(
            "budget",
            "slice",
            "seed",
            "suite",
            "out",
            "resume",
            "no_sample",
            "dry_run",
            "live",
            "format",
        ),
    )

    side: str = flag(
        "optimized", "What sets the flags: VARIANT, APP or VARIANT,APP [optimized].", "--of"
    )
    env: list[str] | None = flag(None, "Further flag: a variable of the environment; repeatable.")
    rounds: str | None = flag(
        None, "Rounds of two launches [effects + 12]; +N with --resume adds N."
    )
    no_pairs: bool = flag(False, "Measure no pairs of flags: fewer rounds.")
    option: list[str] | None = flag(
        None, "Option in all launches, such as num_replicas=2; repeatable."
    )
    python: str | None = flag(None, "Python interpreter of all launches, with a Ray of its own.")
    header: list[str] | None = flag(
        None, "Header of requests to own apps; repeatable.", "-H", "--header"
    )
    threshold: str | None = flag(None, "Smallest change that is improved or regressed [5%].")
    gate: str | None = flag(None, "Metrics that are judged beside throughput: p50, p99, cpu [cpu].")
    quick: bool = flag(False, "Measure 4 s on each side in each round.")
    budget: str | None = flag(None, "Longest time of the run, such as 30m [none].")


@command(FlagsOptions, "Compare")
def flags(options: FlagsOptions) -> int:
    """Find the flags of a variant that make the difference.

    Each round launches two combinations of the flags and compares them as versus does; a fractional
    factorial design chooses the combinations.

    Example: serve-bench flags --of optimized --quick
    """
    from serve_bench.benchmarks.flags.drive import run
    from serve_bench.cli.flag_values import check_texts

    check_texts({{"side": "of"}.get(one, one): getattr(options, one) for one in options.order})
    return run(options)
