"""How often the 95 % interval of `capacity` holds the truth: complete runs on simulated servers.

    scripts/bench capacity [--runs 100] [--seed 1] [--server NAME ...] [--pairs 40] [--most 40]

Each run adds launches, each with its own search, until the interval is narrow enough or --most
launches are used. Width, launches and seconds are medians; seconds are measured ones, of all
launches of a run. "Narrow" are the runs whose interval is at most 5 % wide. The last two servers
are beyond what a launch of 120 s can show. The last line compares a server with itself: pairs whose
ratio has an interval without 1. Nothing is timed: the clock is simulated.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.capacity import estimate
from serve_bench.analysis.capacity.model import PRECISION, Capacity, LaunchEstimate
from serve_bench.analysis.capacity.search import RateSearch
from tests.capacity_servers import HARD, SERVERS, Server

SAME: Final = "M/M/1"
PLANNED: Final = 3
EVERY: Final = (*SERVERS, *HARD)


@dataclass(frozen=True)
class Run:
    """A complete run: its capacity and measured seconds."""

    capacity: Capacity
    seconds: float

    def holds(self, truth: float) -> bool:
        """Return whether the interval of the capacity holds the truth."""
        low, high = self.capacity.low, self.capacity.high
        return low is not None and high is not None and low <= truth <= high


def launch(server: Server, seed: int, start: float | None) -> tuple[LaunchEstimate, float]:
    """Search one launch to its end; return its estimate and seconds."""
    live = server.launch(seed)
    search = RateSearch(server.bounds, start=start)
    while (step := search.next()) is not None:
        search.add(live.probe(step.rate, step.seconds))
    seconds = sum(probe.seconds for probe in search.probes)
    return estimate.estimate_launch(search.probes, server.bounds), seconds


def run(server: Server, seed: int, most: int) -> Run:
    """Add launches until they are enough, at most `most`."""
    estimates: list[LaunchEstimate] = []
    seconds = 0.0
    while len(estimates) < most and not estimate.is_enough(estimates, PRECISION, PLANNED):
        # Half of what a closed loop may serve, which is taken as 1.3 of the truth.
        found, took = launch(server, 1000 * seed + len(estimates), 0.65 * server.truth)
        estimates.append(found)
        seconds += took
    return Run(estimate.pool_launches(estimates), seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", action="append", choices=[known.name for known in EVERY])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--most", type=int, default=40)
    args = parser.parse_args()
    print("| server | truth | runs | held | bias | width | narrow | launches | seconds |")
    print("|" + "---|" * 9)
    for server in EVERY:
        if not args.server or server.name in args.server:
            runs = [run(server, args.seed + number, args.most) for number in range(args.runs)]
            print(format_row(server, runs), flush=True)
    if args.pairs:
        server = next(known for known in EVERY if known.name == SAME)
        print(count_differing(server, args.pairs, args.seed + args.runs, args.most))


def format_row(server: Server, runs: list[Run]) -> str:
    """Format a row of the table. Bias: the mean of the runs' rates over the truth, less 1."""
    rates = [run.capacity.rate for run in runs if run.capacity.rate is not None]
    widths = [run.capacity.width for run in runs if run.capacity.width is not None]
    figures = [
        server.name,
        f"{server.truth:.1f}",
        str(len(runs)),
        str(sum(run.holds(server.truth) for run in runs)),
        f"{100 * (statistics.fmean(rates) / server.truth - 1):+.2f} %" if rates else "",
        f"{100 * statistics.median(widths):.1f} %" if widths else "",
        str(sum(run.capacity.precise for run in runs)),
        f"{statistics.median(len(run.capacity.launches) for run in runs):g}",
        f"{statistics.median(run.seconds for run in runs):.0f}",
    ]
    return f"| {' | '.join(figures)} |"


def count_differing(server: Server, pairs: int, seed: int, most: int) -> str:
    """Count the pairs of runs of one server that are said to differ."""
    differ = 0
    for pair in range(pairs):
        a, b = (run(server, seed + 2 * pair + side, most).capacity for side in (0, 1))
        _, low, high = estimate.compare_capacities(a, b)
        differ += not low <= 1 <= high
    return f"\n{server.name} compared with itself: {differ} of {pairs} pairs differ"


if __name__ == "__main__":
    main()
