"""The bench of `serve-bench versus`: A and others up at once, or services; and when it ends."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.comparing import of_versus
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import ServeMetricsFacts
from serve_bench.core.numbers import MOST_LAUNCHES
from serve_bench.core.result import RunStop, Trial
from serve_bench.core.schema import built
from serve_bench.observing.inside import MetricsAbsent, MetricSeries, MetricsGrowth, scrape
from serve_bench.runner.model_needs import BASE_BYTES, needed_bytes
from serve_bench.runner.runner import Loaded, Part
from serve_bench.runner.sides import SideRounds, SidesBench
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.spec.sides import Pairing, RoundPlan, Side
from serve_bench.store import now_iso, read

#: A budget does not shorten a side of a round further: these are 20 of the shortest slices.
SHORTEST_SIDE_S: Final = 1.0
#: Time until Ray has exported what it counted.
EXPORTED_S: Final = 1.5


class VersusBench(SidesBench):
    """The sides of a round, with what their apps did as Serve counts it."""

    def _launch(self, planned: RoundPlan, side: Side, number: int) -> tuple[Part, LaunchSpec]:
        part, spec = super()._launch(planned, side, number)
        return part, replace(spec, metrics=side.app.own_app is not None)

    def _load_part(self, pairing: Pairing) -> Loaded:
        """Measure a part, with what your own app did on each side, as Serve counts it."""
        before: dict[str, MetricSeries] = {}
        for planned in pairing.planned:
            with suppress(MetricsAbsent):  # then it says so after the load
                before[planned.variant] = self._scrape(planned.variant)
        loaded = super()._load_part(pairing)
        time.sleep(EXPORTED_S if any(before.values()) else 0.0)
        trials = (self._with_work(trial, before.get(trial.variant, {})) for trial in loaded.trials)
        return replace(loaded, trials=tuple(trials))

    def _with_work(self, trial: Trial, before: MetricSeries) -> Trial:
        try:
            grown = MetricsGrowth(before, self._scrape(trial.variant), 0, sys.maxsize).groups(False)
            facts = built(ServeMetricsFacts, grown, "serve_metrics")
        except (MetricsAbsent, FormatError) as error:  # the row is kept without it
            facts = ServeMetricsFacts(status="absent", why=str(error))
        return replace(trial, serve_metrics=facts)

    def _scrape(self, variant: str) -> MetricSeries:
        up = self._ups.get(variant)
        asked = up is not None and up.serving.spec.metrics
        return scrape(up.serving.metrics_url or "") if up is not None and asked else {}


@dataclass
class VersusRounds(SideRounds):
    """Rounds of the sides."""

    bench = VersusBench
    spec: VersusSpec
    budget_s: float | None = None  # no round begins that would probably end later; None: no limit
    _began_s: float | None = None
    _begun: int = 0  # the place of the round that began last
    _planned_s: float = 0.0  # that the rounds of this sitting were to take
    _measured: bool = False  # a row on both sides
    _failed: frozenset[str] = frozenset()
    _alike: bool = False

    def expected_s(self, place: int, cell: int | None) -> float | None:
        """Return how long these rounds take, s, at the pace of those before; None within one."""
        if cell is not None:
            return None
        self._begun = place
        return self._takes_s(place, self.rounds[place:])

    def _takes_s(self, place: int, rounds: Sequence[RoundPlan]) -> float:
        """Return how long further rounds take, s, at the pace of the `place` rounds before."""
        # On a busy host each is as much longer than planned as those were.
        late_s = max(0.0, self._lasted_s - self._planned_s) / max(1, place)
        return self.spec.expected_s(rounds) + late_s * len(rounds)

    @property
    def _lasted_s(self) -> float:
        now_s = time.monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        return now_s - self._began_s

    def stop_early(self) -> RunStop | None:
        """Return why no further round begins: enough is measured, all fails, or the budget ends."""
        measured, after, of = self._begun + 1, self.rounds[self._begun].round, self.spec.rounds
        self._planned_s += self.spec.expected_s(self.rounds[self._begun : measured])
        if self._alike:
            return RunStop(after, of, "failure", now_iso())
        if self.spec.looks and of_versus(read(self.folder)).settled:
            return RunStop(after, of, "settled", now_iso())
        if self.budget_s is not None:
            left_s, later = self.budget_s - self._lasted_s, self.rounds[measured:]
            fewest = self.spec.fewest
            needed = [planned for planned in later if planned.round <= fewest] or later[:1]
            short_s = self._takes_s(measured, needed) - left_s
            if short_s > 0 and needed[0].round <= fewest:
                rows = (row for planned in needed for row in planned.rows)
                self._shorten(short_s / sum(len(row.keys) for row in rows))
            if self._takes_s(measured, needed[:1]) > left_s:
                return RunStop(after, of, "budget", now_iso())
        return None

    def _shorten(self, by_s: float) -> None:
        """Load each side and row for less time in the remaining rounds, so that enough fit."""
        # A verdict takes a number of rounds: a short round says less, and two say nothing.
        side_s = max(SHORTEST_SIDE_S, math.floor(10 * (self.spec.side_s - by_s)) / 10)
        self.spec = replace(self.spec, side_s=side_s)

    def note_failures(self, messages: Sequence[str]) -> None:
        """Note why sides failed, and whether further rounds would fail alike."""
        # Where several failed alike, or one as before, and nothing is measured, the rest would too.
        words = frozenset(re.sub(r"\d+", "N", message) for message in messages)
        alike = len(words) == 1 and (len(messages) > 1 or words == self._failed)
        self._failed = words
        self._alike = self._alike or (alike and not self._measured)

    def note_measured(self) -> None:
        self._measured, self._alike = True, False


def fit_sides(spec: VersusSpec, cores: int, free_bytes: int) -> VersusSpec:
    """Limit the sides that are up at once to what memory and cores allow, and add rounds for it.

    Two always are. A cluster that waits takes a few percent of a core, so that as many wait as
    there are cores.
    """
    needs = (needed_bytes(side.app, side.cell(cell)) for side in spec.sides for cell in spec.cells)
    together = max(2, min(1 + cores, free_bytes // (BASE_BYTES + max(needs))))
    if together >= len(spec.sides):
        return spec
    spec = replace(spec, together=together)
    return replace(spec, rounds=min(spec.rounds * len(spec.turns), MOST_LAUNCHES))
