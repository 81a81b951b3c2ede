"""What `serve-bench tax` measures on: clusters as `versus` has them, and bare servers.

Rule: as there, whatever fails on a layer ends the round for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from serve_bench.benchmarks.tax.measure import LayerRows
from serve_bench.benchmarks.tax.request import Layer, LayerRow, TaxRound, TaxSuite, expected_s
from serve_bench.benchmarks.versus.bench import PairBench, Pairs, Up
from serve_bench.benchmarks.versus.measure import Target
from serve_bench.benchmarks.versus.request import Pairing, RoundPlan
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import Cell, load_of
from serve_bench.core.result import Trial, VariantUsed
from serve_bench.runner.agenda import Listed
from serve_bench.runner.runner import (
    Bench,
    Fault,
    Journal,
    LaunchOver,
    Loaded,
    Part,
    Plan,
    PlannedLaunch,
)
from serve_bench.serving.bare import BareServer
from serve_bench.serving.server import LaunchFailed, Process
from serve_bench.serving.strays import Reaped

PROXIES: Final = ("proxy", "fallback_proxy", "haproxy")


@dataclass
class TaxRun:
    """A sitting: the rounds that are to be measured. `chosen`: how rows were sliced before."""

    suite: TaxSuite
    rounds: tuple[TaxRound, ...]
    folder: Path
    run_id: str
    chosen: dict[str, Slicing]

    def plan(self) -> Plan[Cell, LayerRow]:
        """The rounds; each step says of which layer."""
        versus = self.suite.versus
        pairs = Pairs(versus, (), self.folder, self.run_id, chosen=self.chosen)
        pairs.rows = LayerRows(versus, self.folder, self.run_id, chosen=self.chosen)

        def launch(one: TaxRound) -> PlannedLaunch[Cell, LayerRow]:
            def bench(number: int, journal: Journal) -> Bench[Cell, LayerRow]:
                return LayerBench(self.suite, pairs, one, number, journal)

            rows = [(versus.cells[0], lambda: Listed(one.rows))]
            return PlannedLaunch(f"round {one.round}", one.round, rows, bench)

        return Plan(
            [launch(one) for one in self.rounds],
            lambda place, at: (
                None if at is not None else expected_s(self.suite, self.rounds[place:])
            ),
            about=False,
            width=len(self.suite.layers),
        )


class LayerBench(Bench[Cell, LayerRow]):
    """The layers of a round. Its clusters are those of the bench of versus."""

    def __init__(
        self, suite: TaxSuite, pairs: Pairs, launch: TaxRound, number: int, journal: Journal
    ) -> None:
        self._suite, self._pairs, self._journal = suite, pairs, journal
        self._layers = {one.name: one for one in suite.layers}
        self._clusters = _Clusters(self, pairs, launch.as_pairs(suite), number, journal)
        count = len(suite.clusters)
        self._servers: dict[str, tuple[Part, BareServer]] = {}
        for at, layer in enumerate(suite.servers, number + count):
            who = f"round {launch.round}, {layer.title}"
            part = Part(str(at), VariantUsed(layer.name), launch.round, who)
            log = pairs.folder / part.log
            app = suite.versus.sides[0].app
            server = BareServer(layer.way, app, pairs.run_id, part.number, log)
            self._servers[layer.name] = part, server
        self.parts = [*self._clusters.parts, *(part for part, _ in self._servers.values())]

    def start(self) -> None:
        """Starts the bare servers, then the clusters at once."""
        self.begun = True
        for part, server in self._servers.values():
            self._journal.say("launch: bare server", who=part.who)
            try:
                server.start()
            except LaunchFailed as error:
                self._journal.fail(Fault("launch", error, part))
                raise LaunchOver(str(error)) from None
            self._journal.append(part.record(server.seconds, server.proof))
        if self._suite.clusters:
            self._clusters.start()

    def put(self, cell: Cell) -> None:
        """Deploys the app on all clusters."""
        if self._suite.clusters:
            self._clusters.put(cell)

    def load(self, row: LayerRow) -> Loaded:
        """A row on all layers, part by part; what is measured before a part that fails is kept."""
        trials: list[Trial] = []
        for part in row.parts:
            loaded = self._clusters.load(part)
            trials += loaded.trials
            if loaded.faults or loaded.ended is not None:
                return replace(loaded, trials=tuple(trials))
        return Loaded(tuple(trials))

    def close(self, part: Part) -> Reaped:
        """Ends a cluster or a bare server."""
        for own, server in self._servers.values():
            if own == part:
                return server.close()
        return self._clusters.close(part)

    def layer(self, at: Pairing, side: int) -> Layer:
        return self._layers[at.planned[side].variant]

    def server(self, layer: Layer) -> tuple[Part, BareServer]:
        return self._servers[layer.name]


class _Clusters(PairBench):
    """The bench of versus, whose sides are layers: some on one cluster, some on none."""

    def __init__(
        self, layers: LayerBench, pairs: Pairs, launch: RoundPlan, number: int, journal: Journal
    ) -> None:
        self._of = layers
        super().__init__(pairs, launch, number, journal)

    def _up_of(self, at: Pairing, side: int) -> Up | None:
        on = self._of.layer(at, side).on
        return next((one for one in self._both if one.side.label == on), None)

    def _target(self, at: Pairing, side: int) -> Target:
        up, layer = self._up_of(at, side), self._of.layer(at, side)
        own = self._both[0].side if up is None and self._both else self._suite.sides[0]
        suite, cell = self._suite.of_side(own if up is None else up.side, at.cell)
        row = at.planned[side].row
        if up is None:
            part, server = self._of.server(layer)
            load = load_of(suite, row, server.url, cell)
            ended = partial(self._ended, at, side)
            return Target(load, part.number, server.processes, ended=ended)
        load = load_of(suite, row, up.serving.url_of(row), cell)
        load = replace(load, environment=up.serving.environment_of(row))
        processes = partial(_processes, up, layer.way == "handle")
        return Target(load, up.part.number, processes, ended=up.serving.missing)

    def _say_row(self, at: Pairing, phase: str, load: Progress | None) -> None:
        who = f"{len(at.planned)} layers"
        self._say(who if len(at.planned) > 1 else self._of.layer(at, 0).title, phase, at, load)

    def _casualties(self, at: Pairing, side: int) -> list[str]:
        up = self._up_of(at, side)
        if up is None:
            return self._ended(at, side)
        alive = up.serving.alive()
        return self._ended(at, side) + ([] if alive else ["the cluster process ended"])

    def _ended(self, at: Pairing, side: int) -> list[str]:
        up = self._up_of(at, side)
        if up is not None:
            return up.serving.casualties()
        _, server = self._of.server(self._of.layer(at, side))
        return [] if server.alive() else ["the bare server ended"]

    def _part(self, at: Pairing, side: int) -> Part | None:
        up = self._up_of(at, side)
        return self._of.server(self._of.layer(at, side))[0] if up is None else up.part


def _processes(up: Up, by_handle: bool) -> Sequence[Process]:
    """Of a cluster; without its proxies, where requests do not come by them."""
    every = up.serving.processes()
    return [one for one in every if one.role not in PROXIES] if by_handle else every
