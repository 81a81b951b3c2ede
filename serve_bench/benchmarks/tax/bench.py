"""What `serve-bench tax` measures on: clusters, and bare servers beside them.

Rule: as of two sides, whatever fails on a layer ends the round for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from serve_bench.benchmarks.tax.spec import Layer, TaxSpec
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import load_of
from serve_bench.core.result import VariantUsed
from serve_bench.runner.in_turn import Target
from serve_bench.runner.runner import Fault, Journal, LaunchOver, Part
from serve_bench.runner.sides import SideRounds, SidesBench, Up
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
        super().start()

    def close(self, part: Part) -> Reaped:
        """Ends a cluster or a bare server."""
        servers = {known.number: server for known, server in self._servers.values()}
        return servers[part.number].close() if part.number in servers else super().close(part)

    def _layer(self, pairing: Pairing, side: int) -> Layer:
        return self._layers[pairing.planned[side].variant]

    def _up(self, pairing: Pairing, side: int) -> Up | None:
        return self._ups.get(self._layer(pairing, side).on)

    def _server(self, pairing: Pairing, side: int) -> tuple[Part, BareServer]:
        return self._servers[self._layer(pairing, side).name]

    def _target(self, pairing: Pairing, side: int) -> Target:
        up, row = self._up(pairing, side), pairing.planned[side].row
        cluster = up or next(iter(self._in_order), None)
        like = self._spec.sides[0] if cluster is None else cluster.side
        suite, cell = self._spec.of_side(like, pairing.cell)
        if up is None:
            part, server = self._server(pairing, side)
            load = load_of(suite, row, server.url, cell)
            ended = partial(self._ended, pairing, side)
            return Target(load, part.number, server.processes, ended=ended)
        load = load_of(suite, row, up.serving.url_of(row), cell)
        load = replace(load, environment=up.serving.environment_of(row))
        processes = partial(_processes, up, self._layer(pairing, side).way == "handle")
        return Target(load, up.part.number, processes, ended=up.serving.missing)

    def _say_row(self, pairing: Pairing, phase: str, load: Progress | None) -> None:
        count = len(pairing.planned)
        who = f"{count} layers" if count > 1 else self._layer(pairing, 0).title
        self._say(who, phase, pairing, load)

    def _ended(self, pairing: Pairing, side: int) -> list[str]:
        if self._up(pairing, side) is not None:
            return super()._ended(pairing, side)
        _, server = self._server(pairing, side)
        return [] if server.alive() else ["the bare server ended"]

    def _part(self, pairing: Pairing, side: int) -> Part | None:
        up = self._up(pairing, side)
        return self._server(pairing, side)[0] if up is None else up.part


def _processes(up: Up, by_handle: bool) -> Sequence[Process]:
    """Of a cluster; without its proxies, where requests do not come by them."""
    left_out = PROXIES if by_handle else ()
    return [process for process in up.serving.processes() if process.role not in left_out]


@dataclass
class LayerRounds(SideRounds):
    """Rounds of the layers."""

    bench = LayerBench
    spec: TaxSpec
