"""The options of `serve-bench versus`."""

from __future__ import annotations

from typing import Literal

from serve_bench.cli.command import flag
from serve_bench.cli.options import REQUEST, SidesOptions
from serve_bench.cli.panels import Command
from serve_bench.core.forms import Duration


class VersusOptions(SidesOptions):
    """Compare sides with A: ratios, their intervals, verdicts.

    Each round launches the sides again and loads them in turn. It stops when the verdicts are
    final, after 3 rounds or more.

    Example: serve-bench versus --a default --b haproxy --b optimized --quick
    """

    command = "versus"
    order = f"""a b rounds all_rounds app clients rate {REQUEST} protocol grpc_servicer call events
        event_timeout_s timeout_s aa each_flag audit quick threshold gate fail_on noise budget_s
        a_env b_env a_python b_python a_option b_option slice_s seed suite out resume trace
        no_sample strict_host dry_run live format"""

    a: str | None = flag(None, "First side: VARIANT, APP, VARIANT,APP or [NAME=]http://HOST:PORT.")
    b: list[str] | None = flag(None, "Side that is compared with A; repeatable.")
    all_rounds: bool = flag(False, "Measure all rounds, even after a final verdict.")
    aa: bool = flag(False, "Compare A (default) with itself: the noise floor.")
    each_flag: bool = flag(False, "Compare A with itself without each of its flags in turn.")
    audit: Literal["cache"] | None = flag(None, "Compare one request (A) with many (B): cache.")
    budget_s: Duration | None = flag(
        None, "Longest time of the run, such as 10m [none].", "--budget"
    )
    a_env: list[str] | None = flag(None, "Variable of the environment of A; repeatable.")
    b_env: list[str] | None = flag(None, "Variable of the environment of each B; repeatable.")
    a_python: str | None = flag(None, "Python interpreter of A, with a Ray of its own.")
    b_python: str | None = flag(None, "Python interpreter of each B.")
    a_option: list[str] | None = flag(None, "Option of A, such as num_replicas=2; repeatable.")
    b_option: list[str] | None = flag(None, "Option of each B; repeatable.")


versus = Command(VersusOptions, "benchmarks.versus.command:VersusRun.measure")
