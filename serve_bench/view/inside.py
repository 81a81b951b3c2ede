"""Looks inside a run: CPU by process, the spread over replicas, the cost of profiling."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from serve_bench.analysis.statistics import read_rate
from serve_bench.core.facts import TrialUsage
from serve_bench.core.figures import counted
from serve_bench.core.proof import CHILD_OF_REPLICA
from serve_bench.core.result import Result, Trial
from serve_bench.core.usage import RoleUse, by_role
from serve_bench.view.document import Column, Table, TableRow, Text

SHOWN_PERCENT: Final = 1.0
"""Roles below 1 % of a core in every column are added up as "the rest"."""

ALWAYS_SHOWN: Final = ("haproxy", "proxy", "replica", CHILD_OF_REPLICA)
"""Roles that are never a part of the rest."""

OTHERS: Final = "others on the host"


def usage_table(caption: str, columns: Mapping[str, Sequence[Trial]]) -> Table:
    """Make a table of CPU by process: a line for each role, a column for each name of `columns`.

    A column has the means of its trials; the memory is that of the last of them."""
    used = [mean_by_role(trials) for trials in columns.values()]
    rows: list[tuple[str, ...]] = []
    rest: list[str] = []
    for role in dict.fromkeys(chain(*used)):
        seen = [uses[role] for uses in used if role in uses]
        small = max(use.cpu_percent for use in seen) < SHOWN_PERCENT
        if small and role.partition(" ")[0] not in ALWAYS_SHOWN:
            rest.append(role)
            continue
        count = max(use.processes for use in seen)
        name = role.replace("_", " ") + (f" x{count}" if count > 1 else "")
        sizes = [f"{use.memory_mb:.0f}" for use in seen if use.memory_mb is not None]
        rows.append((name, *(_share(uses.get(role)) for uses in used), *(sizes[-1:] or [""])))
    sums = [math.fsum(uses[role].cpu_percent for role in rest if role in uses) for uses in used]
    others = [others_percent(trials) for trials in columns.values()]
    for name, shares in (("the rest", sums), (OTHERS, others)):
        rows += [(name, *(f"{share:.0f}" for share in shares), "")] if any(shares) else []
    rows.append(("host, all processes", *map(_host, columns.values()), ""))
    heads = (Column("process", number=False), *map(Column, columns), Column("memory", "MB"))
    several = any("(" in cell for row in rows for cell in row[1:])
    notes = ("in brackets: the busiest of several processes",) if several else ()
    return Table(caption, heads, tuple(TableRow(tuple(map(Text, row))) for row in rows), notes)


def _share(use: RoleUse | None) -> str:
    """Render `48 (24)`: all processes of the role, and the busiest of them."""
    if use is None:
        return "-"
    busiest = f" ({use.busiest_percent:.0f})" if use.processes > 1 else ""
    return f"{use.cpu_percent:.0f}{busiest}"


def _host(trials: Sequence[Trial]) -> str:
    host, cores = host_cpu([trial.usage for trial in trials])
    return "-" if host is None else f"{host:.0f} of {100 * (cores or 1)}"


def others_percent(trials: Sequence[Trial]) -> float:
    """Return the CPU of unsampled processes and the kernel, % of a core; 0 below SHOWN_PERCENT."""
    host, _ = host_cpu([trial.usage for trial in trials])
    used = (max(0.0, use.cpu_percent) for use in mean_by_role(trials).values())
    others = (host or 0.0) - math.fsum(used)
    return others if others >= SHOWN_PERCENT else 0.0


def mean_by_role(trials: Sequence[Trial]) -> dict[str, RoleUse]:
    """Pool launches by role: means of CPU, the highest of the busiest, the memory of the last."""
    sampled = [uses for trial in trials if (uses := by_role(trial.usage))]
    means = {}
    for role in dict.fromkeys(role for uses in sampled for role in uses):
        seen = [uses[role] for uses in sampled if role in uses]
        means[role] = RoleUse(
            role,
            max(use.processes for use in seen),
            math.fsum(use.cpu_percent for use in seen) / len(sampled),
            max(use.busiest_percent for use in seen),
            seen[-1].memory_mb,
        )
    return means


def grouped_cpu(usages: Sequence[TrialUsage], group: Callable[[str], str]) -> Mapping[str, float]:
    """Return the CPU of groups of processes, % of a core, mean over what was sampled.

    `group` names the group of a role; a group without a process is missing."""
    groups: dict[str, float] = defaultdict(float)
    sampled = [uses for usage in usages if (uses := by_role(usage))]
    for role, use in chain(*(uses.items() for uses in sampled)):
        groups[group(role)] += use.cpu_percent / len(sampled)
    return groups


def host_cpu(usages: Sequence[TrialUsage]) -> tuple[float | None, int | None]:
    """Return the CPU of all that runs on the host, % of a core, and its cores; None: no sample."""
    hosts = [usage.host for usage in usages]
    shares = [host.cpu_percent for host in hosts if host.cpu_percent is not None]
    cores = next((host.cores for host in hosts if host.cores), None)
    return statistics.fmean(shares) if shares else None, cores


def gpu_percent(trial: Trial) -> float | None:
    """Return the use of all GPUs together, %; None where none was seen."""
    seen = [gpu.use_percent for gpu in trial.usage.gpus if gpu.use_percent is not None]
    return sum(seen) if seen else None


def describe_profiled(trial: Trial, result: Result) -> Iterator[str]:
    """Yield notes for a profiled row: the cost beside the same launch, files, what failed."""
    kept = [part for part in trial.profiles if part.path and not part.failed]
    during = read_rate(trial).mean
    for plain in result.trials:
        alike = (plain.key, plain.launch) == (trial.key, trial.launch)
        if alike and (before := read_rate(plain).mean) and during is not None:
            what, share = counted(len(kept), "process", "processes"), 100 * (during / before - 1)
            rates = f"{before:,.1f} -> {during:,.1f} requests/s ({share:+.0f} %)"
            yield f"cost of profiling {what}: {rates}, same launch"
    if kept:
        place = kept[0].path.rpartition("/")[0]
        names = (f"{part.role} {part.pid} ({part.samples or '?'})" for part in kept)
        yield f"stacks (samples) in {place}: {', '.join(names)}"
    for profile in trial.profiles:
        if profile.failed:
            yield f"not recorded: {profile.role} {profile.failed}"
        yield from profile.notes


UNEVEN: Final = 1.5
"""The busiest replica is worth a line when it took this multiple of the mean of all."""

FEW: Final = 100
"""Below this many requests per replica, chance alone makes them uneven."""


def describe_trial(trial: Trial) -> Iterator[str]:
    """Yield what warnings do not say: changed execution, and uneven replicas (with warm-up)."""
    client = trial.client
    yield from filter(None, (client.stretched, client.slices.why if client.slices else ""))
    if trial.flags.cut:
        ended, planned = trial.ended_in_windows, trial.row.requests or 0
        yield f"time ended it after {ended:,} of {planned:,} requests"
    yield from client.notes
    taken = sorted(trial.served.values()) or [0]
    total, mean = sum(taken), statistics.fmean(taken)
    if mean >= FEW and taken[-1] >= UNEVEN * mean:
        least, most = (f"{100 * count / total:.0f} %" for count in (taken[0], taken[-1]))
        words = f"of {len(taken)} replicas the busiest took {most} of the requests"
        yield f"uneven: {words}, the idlest {least}"
