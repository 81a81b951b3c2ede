"""The bench of `serve-bench tax`: clusters and bare servers.

Rule: as with two sides, whatever fails on a layer ends the round for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from serve_bench.benchmarks.tax.spec import TaxSpec
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import load_of
from serve_bench.core.result import VariantUsed
from serve_bench.runner.in_turn import Target
from serve_bench.runner.runner import Fault, Journal, LaunchOver, Part
from serve_bench.runner.sides import SideRounds, SidesBench
from serve_bench.serving.bare import BareServer
from serve_bench.serving.server import LaunchFailed, Process
from serve_bench.serving.strays import Reaped
from serve_bench.spec.sides import Pairing, RoundPlan

PROXIES: Final = ("proxy", "fallback_proxy", "haproxy")


class LayerBench(SidesBench):
    """The layers of a round: some on one cluster, some on a bare server."""

    _spec: TaxSpec

    def __init__(
        self, rounds: LayerRounds, planned: RoundPlan, number: int, journal: Journal
    ) -> None:
        super().__init__(rounds, planned, number, journal)
        self._layers = {layer.name: layer for layer in rounds.spec.layers}
        self._servers: dict[str, tuple[Part, BareServer]] = {}
        app = rounds.spec.sides[0].app
        for place, layer in enumerate(rounds.spec.servers, number + len(self.parts)):
            who = f"round {planned.round}, {layer.title}"
            part = Part(str(place), VariantUsed(layer.name), planned.round, who)
            log = rounds.folder / part.log
            server = BareServer(layer.way, app, rounds.run_id, part.number, log)
            self._servers[layer.name] = part, server
        self.parts = [*self.parts, *(part for part, _ in self._servers.values())]

    def start(self) -> None:
        """Start the bare servers, then the clusters at once."""
        self.begun = True
        for part, server in self._servers.values():
            self._journal.say("launch: bare server", who=part.who)
            try:
                server.start()
            except LaunchFailed as error:
                self._journal.fail(Fault("launch", error, part))
                raise LaunchOver(str(error)) from None
            self._journal.append(part.record(server.seconds, server.proof))
        super().start()

    def close(self, part: Part) -> Reaped:
        """End a cluster or a bare server."""
        servers = {known.number: server for known, server in self._servers.values()}
        return servers[part.number].close() if part.number in servers else super().close(part)

    def _target(self, pairing: Pairing, side: int) -> Target:
        layer, row = self._layers[pairing.planned[side].variant], pairing.planned[side].row
        if layer.on:
            target = self._target_on(self._ups[layer.on], pairing.cell, row)
            if layer.way == "handle":
                return replace(target, processes=partial(_drop_proxies, target))
            return target
        part, server = self._servers[layer.name]
        suite, cell = self._spec.of_side(self._spec.sides[0], pairing.cell)
        load, ended = load_of(suite, row, server.url, cell), partial(_describe_end, server)
        return Target(load, part, server.processes, missing=ended, casualties=ended)

    def _say_row(self, pairing: Pairing, phase: str, load: Progress | None) -> None:
        count = len(pairing.planned)
        title = self._layers[pairing.planned[0].variant].title
        self._say(f"{count} layers" if count > 1 else title, phase, pairing, load)


def _describe_end(server: BareServer) -> list[str]:
    return [] if server.alive() else ["the bare server ended"]


def _drop_proxies(target: Target) -> Sequence[Process]:
    """List the processes of a cluster on the way of requests by a handle."""
    return [process for process in target.processes() if process.role not in PROXIES]


@dataclass
class LayerRounds(SideRounds):
    """Rounds of the layers."""

    bench = LayerBench
    spec: TaxSpec
