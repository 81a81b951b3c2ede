"""How a row is measured on layers: as `versus` measures sides, with CPU by process.

Rule: the CPU of a layer is that of its own requests. In slices its processes also run while others
are loaded: what they use unloaded is read before, for a second, and taken off for that time. In
windows clocks are read around each window, since layers may share a cluster.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from serve_bench.benchmarks.tax.request import QUIET_S
from serve_bench.benchmarks.versus.measure import REQUEST_WAY, PairRows, Target
from serve_bench.benchmarks.versus.request import Pairing
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.load_result import LoadResult, SlicedResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.result import Metric, Trial
from serve_bench.load.driver import drive_load
from serve_bench.observing.host import cpu_ns
from serve_bench.serving.server import Process

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
        slices = {**trial.client["slices"], "cpu_s": _rounded(self.seconds)}
        slices |= {"idle_cores": _rounded(self.idle)} if self.idle else {}
        if self.idle_all is not None:
            slices["idle_all_cores"] = round(self.idle_all, 6)
        trial = replace(trial, client={**trial.client, "slices": slices})
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
