"""What `serve-bench tax` measures on: clusters, and bare servers beside them.

Rule: as of all sides, whatever fails on a layer ends the round for all. The CPU of a layer is that
of its own requests. In slices its processes also run while others are loaded: what they use
unloaded is read before, for a second, and taken off for that time. In windows clocks are read
around each window, since layers may share a cluster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from msgspec import structs

from serve_bench.benchmarks.tax.spec import QUIET_S, Layer, TaxSpec
from serve_bench.core.load_result import LoadResult, Progress, SlicedResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import load_of
from serve_bench.core.result import Metric, Trial, VariantUsed
from serve_bench.load.driver import drive_load
from serve_bench.observing.host import cpu_ns
from serve_bench.runner.in_turn import REQUEST_WAY, SideRows, Target
from serve_bench.runner.runner import Fault, Journal, LaunchOver, Part
from serve_bench.runner.sides import SideRounds, SidesBench, Up
from serve_bench.serving.bare import BareServer
from serve_bench.serving.server import LaunchFailed, Process
from serve_bench.serving.strays import Reaped
from serve_bench.spec.sides import Pairing, RoundPlan
from serve_bench.spec.slicing import Slicing

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
        on = self._layer(pairing, side).on
        return next((up for up in self._in_order if up.side.label == on), None)

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


Clocks = Mapping[int, tuple[str, int | None]]
"""CPU so far by pid, with the role of the process."""


@dataclass
class LayerCpu:
    """CPU of a layer for its own requests, seconds by role; `idle`: what its processes use without
    any load, cores by role, `idle_all` with those off the way (controller, raylet, agents).
    `whole`: no process came or ended meanwhile."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle: dict[str, float] = field(default_factory=dict)
    idle_all: float | None = None
    whole: bool = True

    def add(self, before: Clocks, after: Clocks) -> None:
        """What was used between two readings."""
        self.whole = self.whole and before.keys() == after.keys()
        for role, seconds in _grown(before, after).items():
            self.seconds[role] += seconds

    def without_idle(self, span_s: float) -> None:
        """Takes off what was used in a time without requests."""
        for role, cores in self.idle.items():
            self.seconds[role] = max(0.0, self.seconds[role] - cores * span_s)

    def added_to(self, trial: Trial) -> Trial:
        """The trial with this in the place of what it has."""
        assert trial.client.slices is not None, "layers are loaded in slices"
        slices = structs.replace(
            trial.client.slices,
            cpu_s=_rounded(self.seconds),
            idle_cores=_rounded(self.idle),
            idle_all_cores=None if self.idle_all is None else round(self.idle_all, 6),
        )
        trial = replace(trial, client=structs.replace(trial.client, slices=slices))
        metrics = {name: kept for name, kept in trial.metrics.items() if name != "server_cpu"}
        if self.whole and self.seconds:
            seconds = sum(self.seconds.values())
            metrics["server_cpu"] = Metric("s", "lower", windows=(seconds,))
        return replace(trial, metrics=metrics)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def _clocks(processes: Iterable[Process], roles: Container[str] | None = REQUEST_WAY) -> Clocks:
    return {
        process.pid: (process.role, cpu_ns(process.pid))
        for process in processes
        if roles is None or process.role in roles
    }


def _grown(before: Clocks, after: Clocks) -> dict[str, float]:
    """Seconds by role between two readings."""
    grown: dict[str, float] = defaultdict(float)
    for pid, (role, early) in before.items():
        late = after.get(pid, (role, None))[1]
        if early is not None and late is not None:
            grown[role] += (late - early) / 1e9
    return grown


@dataclass
class LayerRows(SideRows):
    _cpu: list[LayerCpu] = field(default_factory=list)

    def measure(self, pairing: Pairing, targets: Sequence[Target]) -> tuple[Trial, ...]:
        """A trial of each layer. Raises as `SideRows.measure` does."""
        trials = super().measure(pairing, targets)
        return tuple(cpu.added_to(trial) for cpu, trial in zip(self._cpu, trials, strict=True))

    def _in_turn(
        self, pairing: Pairing, loads: tuple[Load, ...], targets: Sequence[Target], slicing: Slicing
    ) -> SlicedResult:
        self._cpu = [LayerCpu() for _ in targets]
        if slicing.method == "windows":
            counted = [
                replace(target, drive=partial(_metered, target, cpu))
                for target, cpu in zip(targets, self._cpu, strict=True)
            ]
            return super()._in_turn(pairing, loads, counted, slicing)
        self.say(pairing, "nothing is loaded: idle CPU", None)
        processes = [list(target.processes()) for target in targets]
        quiet = [_clocks(listed, None) for listed in processes]
        began = time.monotonic()
        time.sleep(QUIET_S)
        begin, quiet_s = time.monotonic(), time.monotonic() - began
        later = [_clocks(listed, None) for listed in processes]
        before = [_clocks(listed) for listed in processes]
        result = super()._in_turn(pairing, loads, targets, slicing)
        span_s = time.monotonic() - begin
        for side, (cpu, target) in enumerate(zip(self._cpu, targets, strict=True)):
            grown = _grown(quiet[side], later[side])
            idle = {role: used / quiet_s for role, used in grown.items() if quiet_s > 0}
            cpu.idle = {role: cores for role, cores in idle.items() if role in REQUEST_WAY}
            cpu.idle_all = sum(idle.values())
            cpu.add(before[side], _clocks(target.processes()))
            loaded_s = sum(part.length_s for part in result.slices if part.side == side)
            cpu.without_idle(max(0.0, span_s - loaded_s))
        return result


def _metered(target: Target, cpu: LayerCpu, load: Load, timing: Timing, **rest: Any) -> LoadResult:
    """A window of a layer, with the CPU that it takes."""
    before = _clocks(target.processes())
    result = drive_load(load, timing, **rest)
    cpu.add(before, _clocks(target.processes()))
    return result


@dataclass
class LayerRounds(SideRounds):
    """Rounds of the layers."""

    bench = LayerBench
    measure = LayerRows
    spec: TaxSpec
