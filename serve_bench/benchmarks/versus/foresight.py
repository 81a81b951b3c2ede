"""What a plan of versus will see, by how far rounds of earlier runs here differed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.comparing.match import unlike_hosts
from serve_bench.analysis.ratios import CHANCE, FEWEST, sight
from serve_bench.benchmarks.versus.request import VersusSuite
from serve_bench.core.errors import BadInput
from serve_bench.core.redaction import kept_suite
from serve_bench.core.result import Result
from serve_bench.observing.host import fingerprint
from serve_bench.store.search import beside

NEWEST: Final = 10
"""Runs that are read at most: the newest ones, with those that turn out to be others."""

#: What has to be equal of two suites, so that a round of one spreads as a round of the other; and
#: the app of A.
ALIKE: Final = ("cells", "rows", "side_s", "pairing", "cores_each", "urls")


def foresight(suite: VersusSuite, folder: Path, fail_on: str | None) -> Iterator[str]:
    """What the planned rounds see of each gated metric; that it is not known, without earlier runs
    of the same rows in this folder; that a gate cannot decide."""
    if suite.rounds < FEWEST:
        return
    spreads, runs = spreads_of(suite, folder)
    if not spreads:
        yield "detectable change unknown: no earlier run of these rows in this folder"
        return
    planned = suite.rounds if suite.looks else None
    family = len(suite.gate) * len(suite.cells) * len(suite.rows)
    blind = []
    for metric, sd in spreads.items():
        sees = sight(sd, suite.rounds, suite.threshold, planned, family)
        yield (
            f"{metric}: in {suite.rounds} rounds a loss of {100 * sees.proven:.2g} % is proven "
            f"with a chance of {100 * CHANCE:.0f} %, one of {100 * sees.regressed:.2g} % called "
            f"regressed (rounds spread by {100 * sd:.2g} %, of {runs} run{'s' * (runs > 1)} here)"
        )
        if not sees.same:
            blind.append(metric)
    if blind and fail_on == "inconclusive":
        yield (
            f"this gate will often be inconclusive: these rounds cannot show that "
            f"{' and '.join(blind)} {'is' if len(blind) == 1 else 'are'} the same within "
            f"{100 * suite.threshold:.3g} %: more --rounds, or a larger --threshold"
        )


def spreads_of(suite: VersusSuite, folder: Path) -> tuple[Mapping[str, float], int]:
    """The standard deviation of a round's log ratio by gated metric, from the newest runs in this
    folder that measured the same rows on such a host; and how many runs those are."""
    squares: dict[str, list[tuple[float, float]]] = {}
    runs = 0
    for result in _alike(suite, folder):
        runs += 1
        for line in of_versus(result).lines:
            interval = line.judged.interval
            if line.metric in suite.gate and interval is not None and interval.fewest >= FEWEST:
                squares.setdefault(line.metric, []).append(
                    (interval.df, interval.n_a * interval.se**2)
                )
    return {
        metric: math.sqrt(sum(df * square for df, square in each) / sum(df for df, _ in each))
        for metric, each in squares.items()
    }, runs


def _alike(suite: VersusSuite, folder: Path) -> Iterator[Result]:
    """The newest runs of the same rows on a host of this kind."""
    for result in beside(folder, NEWEST).values():
        if result.run.two_sided and result.trials:
            with suppress(BadInput):  # a damaged suite is none to learn from
                same = _kind(VersusSuite.from_json(result.run.suite)) == _kind(suite)
                if same and not [*unlike_hosts(result.run.host, fingerprint())]:
                    yield result


def _kind(suite: VersusSuite) -> list[Any]:
    whole = kept_suite(suite.to_json())
    return [*(whole[name] for name in ALIKE), whole["sides"][0]["app"]]
