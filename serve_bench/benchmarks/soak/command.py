"""`serve-bench soak TARGET`: a long load, and whether a process of the cluster grows with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from serve_bench.benchmarks.soak.bench import SoakBench
from serve_bench.benchmarks.soak.lens import gate
from serve_bench.benchmarks.soak.options import SoakOptions
from serve_bench.cli import FAILED
from serve_bench.cli.exits import close_gate
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.sitting import list_launches
from serve_bench.cli.targets import target_suite
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite, duration_text, parse_row, rows_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import Result
from serve_bench.core.soak import CONNECTIONS, SoakSpec, block_length_s, soak_row
from serve_bench.core.traffic import Row, Traffic
from serve_bench.observing.processes import behind
from serve_bench.runner.served_bench import ServedClusters

USUAL_S: Final = 3600.0
QUICK_S: Final = 60.0


class SoakExperiment(SuiteExperiment[SoakOptions]):
    """A load in blocks. Levels are read after each, and nothing during it: a look is a load."""

    part = "soak"

    def clusters(self, **fields: Any) -> ServedClusters:
        """Make the clusters without an observation, which would be in the record of each block."""
        return ServedClusters(**{**fields, "inside": None}, bench=SoakBench)

    def suite(self) -> Suite:
        options = self.options
        if "slo" in options.fail_on and options.slo is None:
            raise BadInput("--fail-on: slo goes with --slo")
        spec = read_spec(options)
        _read_row(options, Traffic())  # refused before an app is imported
        suite = target_suite(options, alone=True)
        if len(suite.cells) > 1:
            count = len(suite.cells)
            raise BadInput(f"--option: a soak has one value of each, and this has {count}")
        return replace(
            suite,
            rows=(_read_row(options, rows_of(suite)[0].traffic),),
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

    def plan_lines(self) -> Iterator[str]:
        agenda, suite = self.agenda, self.asked
        (row,) = suite.rows
        load, length = f"{row.label} ({row.client})", f"blocks of {suite.window_s:g} s"
        yield from list_launches(
            agenda.launches, lambda blocks: [f"{load}: {len(blocks)} {length}"]
        )
        yield f"about {duration_text(agenda.expected_s())} in all"

    def begin(self) -> None:
        for request in self.asked.services.values():
            if not behind(request.url):
                url = hide_in_text(request.url)
                raise BadInput(f"--url: no Serve of this host answers at {url}")

    def show(self, result: Result, folder: Path) -> int:
        """Show the report and close the gate; FAILED where the gate cannot be judged."""
        self.report.close(result, folder)
        if "leak" not in self.options.fail_on or not result.trials:
            return 0
        broken, unjudged = gate(result)
        code = close_gate(broken)
        if unjudged and not code:
            close_gate([f"not judged: {unjudged}"])
            return FAILED
        return code


def read_spec(options: SoakOptions) -> SoakSpec:
    """Read how long the load lasts, and the growth that matters. Raises BadInput."""
    if options.quick and options.duration is not None:
        raise BadInput("--quick: stands for --for")
    if options.rate is None and options.arrivals != "constant":
        raise BadInput("--arrivals: give --rate")
    for_s = options.duration or (QUICK_S if options.quick else USUAL_S)
    return SoakSpec(for_s, block_length_s(for_s), options.arrivals, options.leak)


def _read_row(options: SoakOptions, traffic: Traffic) -> Row:
    if options.clients is None:
        return soak_row(CONNECTIONS, options.rate, traffic)
    if options.rate is not None:
        raise BadInput("--rate: an open loop has no --clients: give one of them")
    row = parse_row(options.clients, traffic, "--clients")
    if row.client == "aiohttp":
        raise BadInput(f"--clients: {options.clients!r} is not allowed; it takes raw:N")
    return soak_row(row.connections, None, traffic)
