"""`serve-bench versus`: A against B, with fresh launches of both in every round."""

from __future__ import annotations

from typing import NamedTuple

from serve_bench.cli.command import MOST, command, flag
from serve_bench.cli.gate import GateOptions
from serve_bench.cli.options import (
    REQUEST,
    WITH_RESUME,
    OwnAppOptions,
    RunOptions,
    StreamOptions,
    TraceOptions,
)
from serve_bench.core.load_spec import MAX_RATE

#: Flags of clusters that are started, and looked into: none with --url.
OF_LAUNCHES = frozenset(
    """a b app a_env b_env a_python b_python a_option b_option budget route request_timeout_s
    grpc_servicer call no_sample trace""".split()
)


class SideFlags(NamedTuple):
    """The flags of A or B."""

    word: str | None
    env: list[str]
    python: str | None
    options: list[str]


class VersusOptions(TraceOptions, RunOptions, OwnAppOptions, StreamOptions, GateOptions):
    """The options of `versus`."""

    command = "versus"
    with_resume = WITH_RESUME - {"no_sample"} | {"rounds"}
    order = f"""a b rounds all_rounds app clients rate url {REQUEST} protocol grpc_servicer call
        events event_timeout aa quick threshold gate fail_on noise budget a_env b_env a_python
        b_python a_option b_option slice seed suite out resume trace no_sample strict_host dry_run
        live format"""

    suite: str = flag("versus")
    a: str | None = flag(None, "First side: VARIANT, APP or VARIANT,APP.")
    b: str | None = flag(None, "Second side, compared with the first.")
    rounds: str | None = flag(
        None, "Most rounds, each a fresh launch of both sides [20]; +N with --resume adds N."
    )
    all_rounds: bool = flag(False, "Measure all rounds, even after a final verdict.")
    app: str | None = flag(None, "Built-in app of both sides [noop].")
    clients: str | None = flag(
        None, "Rows: N aiohttp clients, raw:N connections [raw:100].", metavar="ROW[,ROW...]"
    )
    rate: float | None = flag(
        None, "Open loop at this rate; in windows, which are noisier.", takes=(0.1, MAX_RATE)
    )
    url: list[str] | None = flag(None, "Measure a service that is up already; repeatable.")
    aa: bool = flag(False, "Compare A (default) with itself: the noise floor.")
    quick: bool = flag(False, "Measure at most 3 rounds of 4 s on each side.")
    budget: str | None = flag(None, "Longest time of the run, such as 10m [none].")
    a_env: list[str] | None = flag(None, "Variable of the environment of A; repeatable.")
    b_env: list[str] | None = flag(None, "Variable of the environment of B; repeatable.")
    a_python: str | None = flag(None, "Python interpreter of A, with a Ray of its own.")
    b_python: str | None = flag(None, "Python interpreter of B.")
    a_option: list[str] | None = flag(None, "Option of A, such as num_replicas=2; repeatable.")
    b_option: list[str] | None = flag(None, "Option of B; repeatable.")
    slice: str | None = flag(None, "Length of a slice, 10ms to 2s [7 drains].")
    seed: int = flag(1, "Seed of the orders of sides and requests.", takes=(0, MOST))

    @property
    def sides(self) -> tuple[SideFlags, SideFlags]:
        """The flags of A and of B."""
        return (
            SideFlags(self.a, self.a_env or [], self.a_python, self.a_option or []),
            SideFlags(self.b, self.b_env or [], self.b_python, self.b_option or []),
        )


@command(VersusOptions)
def versus(options: VersusOptions) -> int:
    """Compare two sides: their ratio, its interval, a verdict.

    Each round launches both sides again and loads them in turn. It stops when the verdict is final,
    after 3 rounds or more.

    Example: serve-bench versus --a default --b optimized --quick
    """
    from serve_bench.cli.gate import read_flags
    from serve_bench.cli.show import check_format
    from serve_bench.report import COMPARED

    check_format(options.format, COMPARED)
    gate = read_flags(options)
    from serve_bench.benchmarks.versus.drive import request, run
    from serve_bench.benchmarks.versus.flags import planned, with_urls

    if options.resume is not None:
        suite, earlier = request(options, lambda: planned(options, gate))
        return run(suite, options, gate, earlier=earlier)
    if options.url:
        options.check_url(options.parameters().keys() - OF_LAUNCHES)
        suite, services = with_urls(options, gate)
        return run(suite, options, gate, services=services)
    return run(planned(options, gate), options, gate)
