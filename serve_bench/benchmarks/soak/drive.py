"""What `serve-bench soak` says of its runs: a load in blocks, and whether a process grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from serve_bench.benchmarks.own_app.flags import target_suite
from serve_bench.benchmarks.soak.bench import SoakBench
from serve_bench.benchmarks.soak.command import SoakOptions
from serve_bench.benchmarks.soak.lens import gate
from serve_bench.cli import FAILED
from serve_bench.cli.experiment import RowsRequest, SuiteExperiment, list_launches
from serve_bench.cli.flag_values import names, seconds_of
from serve_bench.cli.gate import close_gate
from serve_bench.cli.rows import add_flags
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite, duration_text, parse_row, rows_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import Result, Row, Traffic
from serve_bench.core.soak import CONNECTIONS, LEAK, SoakSpec, block_length_s, soak_row
from serve_bench.observing.processes import behind
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.served_bench import ServedClusters

USUAL_S: Final = 3600.0
QUICK_S: Final = 60.0
LEAST_S: Final = 30.0
MOST_S: Final = 7 * 24 * 3600.0

FAIL_ON: Final = ("leak", "slo")


class SoakRun(SuiteExperiment[SoakOptions]):
    """A load in blocks. Levels are read behind each, and nothing beside it: a look is a load."""

    part = "soak"

    def __init__(self, options: SoakOptions) -> None:
        super().__init__(options)
        self._fail_on = _fail_on(options)

    def read_suite(self) -> Suite:
        options = self.options
        spec = read_spec(options)
        _row(options, Traffic())  # refused before an app is imported
        suite = target_suite(options, partial(add_flags, options=options), alone=True)
        if len(suite.cells) > 1:
            count = len(suite.cells)
            raise BadInput(f"--option: a soak has one value of each, and this has {count}")
        return replace(
            suite,
            rows=(_row(options, rows_of(suite)[0].traffic),),
            places=None,
            ladder=None,
            requests_per_client=None,
            requests=None,
            launches=1,
            windows=1,
            window_s=spec.block_s,
            warmup_min_s=0.0,
            warmup_max_s=0.0,
            soak=spec,
        )

    def plan_lines(self, agenda: Agenda) -> Iterator[str]:
        suite = agenda.suite
        (row,) = suite.rows
        load, length = f"{row.label} ({row.client})", f"blocks of {suite.window_s:g} s"
        yield from list_launches(
            agenda.launches, lambda blocks: [f"{load}: {len(blocks)} {length}"]
        )
        yield f"about {duration_text(agenda.expected_s())} in all"

    def check_targets(self, agenda: Agenda) -> None:
        for request in agenda.suite.services.values():
            if not behind(request.url):
                url = hide_in_text(request.url)
                raise BadInput(f"--url: no Serve of this host answers at {url}")

    def clusters(self, request: RowsRequest) -> Callable[..., ServedClusters]:
        # What is observed beside a block would be in each record.
        return lambda *about, inside, **more: ServedClusters(*about, bench=SoakBench, **more)

    def show(self, result: Result, folder: Path) -> int:
        """FAILED where the gate cannot be judged."""
        self.report.close(result, folder)
        if "leak" not in self._fail_on or not result.trials:
            return 0
        broken, open_ = gate(result)
        code = close_gate(broken)
        if open_ and not code:
            close_gate([f"not judged: {open_}"])
            return FAILED
        return code


def _fail_on(options: SoakOptions) -> tuple[str, ...]:
    words = [word for text in options.fail_on or () for word in names(text)]
    for word in words:
        if word not in FAIL_ON:
            raise BadInput(f"--fail-on: {word!r} is not allowed; it takes {', '.join(FAIL_ON)}")
    if "slo" in words and options.slo is None and options.resume is None:
        raise BadInput("--fail-on: slo goes with --slo")
    return tuple(words)


def read_spec(options: SoakOptions) -> SoakSpec:
    """How long the load lasts, and the growth that matters. Raises BadInput."""
    for_s = QUICK_S if options.quick else USUAL_S
    if options.soak_time is not None:
        if options.quick:
            raise BadInput("--quick: stands for --for")
        for_s = seconds_of(options.soak_time, "--for")
        if not LEAST_S <= for_s <= MOST_S:
            raise BadInput(f"--for: {options.soak_time!r} is not allowed; it takes 30s to 7d")
    if options.rate is None and options.arrivals != "constant":
        raise BadInput("--arrivals: give --rate")
    return SoakSpec(
        for_s,
        block_length_s(for_s),
        "poisson" if options.arrivals == "poisson" else "constant",
        LEAK if options.leak is None else options.leak,
    )


def _row(options: SoakOptions, traffic: Traffic) -> Row:
    if options.clients is None:
        return soak_row(CONNECTIONS, options.rate, traffic)
    if options.rate is not None:
        raise BadInput("--rate: an open loop has no --clients: give one of them")
    row = parse_row(options.clients, traffic, "--clients")
    if row.client == "aiohttp":
        raise BadInput(f"--clients: {options.clients!r} is not allowed; it takes raw:N")
    return soak_row(row.connections, None, traffic)
