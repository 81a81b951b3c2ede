"""What a report of rpc shows, joined once: each world on each backend with what doubts it.

Rule: nothing is left out: what was planned and not measured has its entry, a failure stands with
the world it struck, or else with the run. Figures come from benchmarks/rpc/summary.py; no layout
here.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.checks import Warning, checks
from serve_bench.benchmarks.parts.inside import mean_by_role
from serve_bench.benchmarks.parts.texts import host_line, remark
from serve_bench.benchmarks.rpc.printed_form import x_axis_of
from serve_bench.benchmarks.rpc.summary import RpcPoint, rpc_points
from serve_bench.core.result import Failure, Result, Run, Trial

HOST_FULL: Final = 0.90
"""Of all cores of the host: what is left then goes to work in the kernel and to switching."""

AGENT_FULL: Final = 85.0
"""% of a core. The agent also waits for its requests, so that it does not reach 100."""


@dataclass(frozen=True)
class Use:
    """CPU of a world, % of a core, mean over its launches. None: not sampled."""

    agent: float | None = None
    agent_busiest: float | None = None
    observers: float | None = None
    others: float | None = None  # raylet, controller, the tool ...
    host: float | None = None  # all that runs on the machine
    cores: int | None = None

    @property
    def limited(self) -> str | None:
        """What was full, where the figures say so."""
        if self.host is not None and self.cores and self.host >= HOST_FULL * 100 * self.cores:
            return "host CPU"
        if self.agent_busiest is not None and self.agent_busiest >= AGENT_FULL:
            return "agent CPU"
        return None


def use_of(trials: Sequence[Trial]) -> Use:
    """What the processes of a world used in these trials."""
    roles = mean_by_role(trials)
    agent, observers = roles.get("agent"), roles.get("observer")
    others = [one.cpu_percent for role, one in roles.items() if role not in ("agent", "observer")]
    hosts = [trial.usage["host"] for trial in trials if trial.usage.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    return Use(
        agent=None if agent is None else agent.cpu_percent,
        agent_busiest=None if agent is None else agent.busiest_percent,
        observers=None if observers is None else observers.cpu_percent,
        others=sum(others) if roles else None,
        host=statistics.fmean(shares) if shares else None,
        cores=int(hosts[0]["cores"]) if hosts and hosts[0].get("cores") else None,
    )


@dataclass(frozen=True)
class RpcEntry:
    """One world on one backend, with the doubts and failures that are about it alone."""

    point: RpcPoint
    x_axis: str
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    use: Use

    @property
    def title(self) -> str:
        """`torch, world_size 10`."""
        return f"{self.point.backend}, {self.x_axis} {self.point.x}"

    @property
    def gap(self) -> str | None:
        """What is missing, in words; None if nothing is."""
        line = self.point.line
        if line.status == "partly measured":
            return f"{len(line.trials)} of {len(line.keys)} launches measured"
        return None if self.point.figures else "not measured"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is missing, what failed and what is doubted, one line each."""
        rounds = {trial.key: trial.round for trial in self.point.trials}
        several = len(self.point.line.keys) > 1
        broken = [one for one in self.point.trials if one.flags.get("interrupted")]
        said = [self.gap] if self.gap else []
        said += [f"broken off: {_episodes(one)} kept" for one in broken]
        said += [f"failed: {one.message}" for one in self.failures]
        for one in self.warnings:
            launch = f"launch {rounds[one.key]}: " if several and one.key in rounds else ""
            said.append(launch + remark(one))
        return tuple(said)

    @property
    def processes(self) -> int | None:
        """Processes of the world, where it was counted."""
        known = [
            one.client["processes"] for one in self.point.trials if one.client.get("processes")
        ]
        return int(known[-1]) if known else None


def _episodes(trial: Trial) -> str:
    metric = trial.metrics.get("throughput")
    count = len(metric.windows or ()) if metric is not None else 0
    return f"{count} whole episode{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class RpcPage:
    """A whole run. `entries`: by backend in the order of the plan, then by the x axis."""

    run: Run
    x_axis: str
    backends: tuple[str, ...]
    entries: tuple[RpcEntry, ...]
    warnings: tuple[Warning, ...]
    failures: tuple[Failure, ...]
    host: str
    where: str | None

    @property
    def title(self) -> str:
        """One line that names the run."""
        return f"serve-bench {self.run.command}, {self.run.started_at}, run {self.run.id}"

    @property
    def xs(self) -> tuple[str, ...]:
        """The points of the x axis."""
        return tuple(dict.fromkeys(one.point.x for one in self.entries))

    @property
    def several_launches(self) -> bool:
        """Whether any world was measured in more than one launch."""
        return any(len(one.point.trials) > 1 for one in self.entries)

    @property
    def batched(self) -> frozenset[bool]:
        """Whether worlds take their requests in batches: yes, no, or some of each."""
        return frozenset(bool(one.point.cell["batch"]) for one in self.entries)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Those of all entries with the worlds they are about; what is said alike is said once."""
        said: dict[str, list[str]] = {}
        for entry in self.entries:
            for text in entry.remarks:
                said.setdefault(text, []).append(entry.title)
        return tuple(f"{_listed(titles)}: {text}" for text, titles in said.items())

    def at(self, x: str) -> list[RpcEntry]:
        """The entries of one point of the x axis, a backend each."""
        return [one for one in self.entries if one.point.x == x]

    def of(self, backend: str) -> list[RpcEntry]:
        """The entries of one backend."""
        return [one for one in self.entries if one.point.backend == backend]


MOST_NAMED: Final = 4


def _listed(titles: Sequence[str]) -> str:
    more = len(titles) - MOST_NAMED
    named = "; ".join(titles[:MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def rpc_page(result: Result, where: str | None = None) -> RpcPage:
    """Join figures, doubts and failures of a run."""
    doubts, x_axis = checks(result), x_axis_of(result)
    points = [one for one in rpc_points(result) if one.line.status != "profiled"]
    keys = {key for one in points for key in one.line.keys}
    return RpcPage(
        run=result.run,
        x_axis=x_axis,
        backends=tuple(dict.fromkeys(one.backend for one in points)),
        entries=tuple(_entry(one, x_axis, doubts, result.failures) for one in points),
        warnings=tuple(one for one in doubts if one.key is None),
        failures=tuple(one for one in result.failures if one.key not in keys),
        host=host_line(result.run.host),
        where=where,
    )


def _entry(
    point: RpcPoint, x_axis: str, doubts: Sequence[Warning], failures: Sequence[Failure]
) -> RpcEntry:
    keys = point.line.keys
    return RpcEntry(
        point,
        x_axis,
        tuple(one for one in doubts if one.key in keys and not one.profiled),
        # What a worker lost is among the doubts.
        tuple(one for one in failures if one.key in keys and one.what != "worker"),
        use_of(point.trials),
    )
