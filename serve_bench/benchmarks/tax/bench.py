"""What `serve-bench tax` measures on: clusters as `versus` has them, and bare servers.

Rule: as there, whatever fails on a layer ends the round for all. The CPU of a layer is that of its
own requests. In slices its processes also run while others are loaded: what they use unloaded is
read before, for a second, and taken off for that time. In windows clocks are read around each
window, since layers may share a cluster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from serve_bench.benchmarks.tax.request import (
    QUIET_S,
    Layer,
    LayerRow,
    TaxRound,
    TaxSuite,
    expected_s,
)
from serve_bench.benchmarks.versus.bench import PairBench, Pairs, Up
from serve_bench.benchmarks.versus.measure import REQUEST_WAY, PairRows, Target
from serve_bench.benchmarks.versus.request import Pairing, RoundPlan
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.load_result import LoadResult, Progress, SlicedResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.plan import Cell, load_of
from serve_bench.core.result import Metric, Trial, VariantUsed
from serve_bench.load.driver import drive_load
from serve_bench.observing.host import cpu_ns
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
        self._of, self.letters = layers, ""
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
        metrics = {name: one for name, one in trial.metrics.items() if name != "server_cpu"}
        if self.whole and self.seconds:
            seconds = sum(self.seconds.values())
            metrics["server_cpu"] = Metric("s", "lower", windows=(seconds,))
        return replace(trial, metrics=metrics)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


def _clocks(processes: Iterable[Process], roles: Container[str] | None = REQUEST_WAY) -> Clocks:
    return {
        one.pid: (one.role, cpu_ns(one.pid))
        for one in processes
        if roles is None or one.role in roles
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
class LayerRows(PairRows):
    _cpu: list[LayerCpu] = field(default_factory=list)

    def measure(self, at: Pairing, targets: Sequence[Target]) -> tuple[Trial, ...]:
        """A trial of each layer. Raises as `PairRows.measure` does."""
        trials = super().measure(at, targets)
        return tuple(cpu.added_to(trial) for cpu, trial in zip(self._cpu, trials, strict=True))

    def _in_turn(
        self, at: Pairing, loads: tuple[Load, ...], targets: Sequence[Target], slicing: Slicing
    ) -> SlicedResult:
        self._cpu = [LayerCpu() for _ in targets]
        if slicing.method == "windows":
            counted = [
                replace(one, drive=partial(_metered, one, cpu))
                for one, cpu in zip(targets, self._cpu, strict=True)
            ]
            return super()._in_turn(at, loads, counted, slicing)
        self.say(at, "nothing is loaded: idle CPU", None)
        processes = [list(one.processes()) for one in targets]
        quiet = [_clocks(some, None) for some in processes]
        began = time.monotonic()
        time.sleep(QUIET_S)
        begin, quiet_s = time.monotonic(), time.monotonic() - began
        later = [_clocks(some, None) for some in processes]
        before = [_clocks(some) for some in processes]
        result = super()._in_turn(at, loads, targets, slicing)
        span_s = time.monotonic() - begin
        for side, (cpu, target) in enumerate(zip(self._cpu, targets, strict=True)):
            grown = _grown(quiet[side], later[side])
            idle = {role: one / quiet_s for role, one in grown.items() if quiet_s > 0}
            cpu.idle = {role: one for role, one in idle.items() if role in REQUEST_WAY}
            cpu.idle_all = sum(idle.values())
            cpu.add(before[side], _clocks(target.processes()))
            own_s = sum(one.length_s for one in result.slices if one.side == side)
            cpu.without_idle(max(0.0, span_s - own_s))
        return result


def _metered(target: Target, cpu: LayerCpu, load: Load, timing: Timing, **rest: Any) -> LoadResult:
    """A window of a layer, with the CPU that it takes."""
    before = _clocks(target.processes())
    result = drive_load(load, timing, **rest)
    cpu.add(before, _clocks(target.processes()))
    return result
