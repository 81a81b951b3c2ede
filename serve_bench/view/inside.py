"""What was seen inside of a run: CPU by process, batches and replicas, what profiling cost.

Rule: records in, a table or lines of text out; figures come from core/usage.py and
analysis/statistics.py.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import mean_rate, merged
from serve_bench.core.figures import counted
from serve_bench.core.histogram import Histogram
from serve_bench.core.proof import CHILD_OF_REPLICA
from serve_bench.core.result import Result, Trial
from serve_bench.core.usage import BATCH_SIZE, RoleUse, by_role, mean_forward_ns
from serve_bench.view.document import Column, Table, TableRow

SHOWN_PERCENT: Final = 1.0
"""Roles below 1 % of a core in every row are added up as "the rest"."""

ALWAYS_SHOWN: Final = ("haproxy", "proxy", "replica", CHILD_OF_REPLICA)
"""Roles that are never a part of the rest."""

REST: Final = "the rest"

OTHERS: Final = "others on the host"


def usage_table(caption: str, columns: Sequence[tuple[str, Sequence[Trial]]]) -> Table:
    """CPU by process: a line for each role, a column for each name with the trials that it stands
    for, and the memory of the last of them."""
    used = [mean_by_role(trials) for _, trials in columns]
    rows: list[tuple[str, ...]] = []
    rest: list[str] = []
    for role in dict.fromkeys(role for uses in used for role in uses):
        seen = [uses[role] for uses in used if role in uses]
        small = max(use.cpu_percent for use in seen) < SHOWN_PERCENT
        if small and role.partition(" ")[0] not in ALWAYS_SHOWN:
            rest.append(role)
            continue
        processes = max(use.processes for use in seen)
        name = role.replace("_", " ") + (f" x{processes}" if processes > 1 else "")
        sizes = [f"{use.memory_mb:.0f}" for use in seen if use.memory_mb is not None]
        rows.append((name, *(_share(uses.get(role)) for uses in used), *(sizes[-1:] or [""])))
    if rest:
        sums = (sum(uses[role].cpu_percent for role in rest if role in uses) for uses in used)
        rows.append((REST, *(f"{percent:.0f}" for percent in sums), ""))
    rows.append(("host, all processes", *(_host(trials) for _, trials in columns), ""))
    names = (Column(name) for name, _ in columns)
    heads = (Column("process", number=False), *names, Column("memory", "MB"))
    several = any("(" in cell for row in rows for cell in row[1:])
    notes = ("in brackets: the busiest of several processes",) if several else ()
    return Table(caption, heads, tuple(map(TableRow, rows)), notes)


def _share(use: RoleUse | None) -> str:
    """`48 (24)`: all processes of the role, and the busiest of them."""
    if use is None:
        return "-"
    busiest = f" ({use.busiest_percent:.0f})" if use.processes > 1 else ""
    return f"{use.cpu_percent:.0f}{busiest}"


def _host(trials: Sequence[Trial]) -> str:
    host, cores = host_cpu([trial.usage for trial in trials])
    return "-" if host is None else f"{host:.0f} of {100 * (cores or 1)}"


def mean_by_role(trials: Sequence[Trial]) -> dict[str, RoleUse]:
    """Over launches: means of CPU, the highest of the busiest, the memory of the last."""
    return mean_of_usages([trial.usage for trial in trials])


def mean_of_usages(usages: Sequence[Mapping[str, Any]]) -> dict[str, RoleUse]:
    """The same of the usage of some trials, or of some nodes."""
    sampled = [uses for usage in usages if (uses := by_role(usage))]
    means = {}
    for role in dict.fromkeys(role for uses in sampled for role in uses):
        seen = [uses[role] for uses in sampled if role in uses]
        means[role] = RoleUse(
            role,
            max(use.processes for use in seen),
            sum(use.cpu_percent for use in seen) / len(sampled),
            max(use.busiest_percent for use in seen),
            seen[-1].memory_mb,
        )
    return means


def grouped_cpu(
    usages: Sequence[Mapping[str, Any]], group: Callable[[str], str]
) -> Mapping[str, float]:
    """CPU of groups of processes, % of a core, mean over what was sampled; a group without a
    process is missing. `group` names the group of a role."""
    groups: dict[str, float] = defaultdict(float)
    for role, use in mean_of_usages(usages).items():
        groups[group(role)] += use.cpu_percent
    return groups


def host_cpu(usages: Sequence[Mapping[str, Any]]) -> tuple[float | None, int | None]:
    """CPU of all that runs on the host, % of a core, and its cores; None: not sampled."""
    hosts = [usage["host"] for usage in usages if usage.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    cores = hosts[0].get("cores") if hosts else None
    return statistics.fmean(shares) if shares else None, int(cores) if cores else None


def others_percent(usages: Sequence[Mapping[str, Any]]) -> float:
    """What the host used beyond the sampled processes, such as the kernel and other programs, % of
    a core; 0 below SHOWN_PERCENT."""
    sampled = [usage for usage in usages if usage.get("host")]
    uses = mean_of_usages(sampled).values()
    others = (host_cpu(sampled)[0] or 0.0) - sum(max(0.0, use.cpu_percent) for use in uses)
    return others if others >= SHOWN_PERCENT else 0.0


def gpu_percent(trial: Trial) -> float | None:
    """Use of all GPUs together; None where none was seen."""
    gpus = [gpu for gpu in trial.usage.get("gpus", ()) if isinstance(gpu, dict)]
    known = [float(gpu["use_percent"]) for gpu in gpus if gpu.get("use_percent") is not None]
    return sum(known) if known else None


def describe_profiled(trial: Trial, result: Result) -> Iterator[str]:
    """What is to be said under a profiled row: what profiling cost beside the same launch without,
    its files, what could not be recorded."""
    kept = [profile for profile in trial.profiles if "failed" not in profile]
    during = mean_rate(trial)
    for plain in result.trials:
        alike = (plain.key, plain.launch) == (trial.key, trial.launch)
        if alike and (before := mean_rate(plain)) and during is not None:
            yield (
                f"cost of profiling {counted(len(kept), 'process', 'processes')}: {before:,.1f} -> "
                f"{during:,.1f} requests/s ({100 * (during / before - 1):+.0f} %), same launch"
            )
    if kept := [profile for profile in kept if "path" in profile]:
        place = str(kept[0]["path"]).rpartition("/")[0]
        names = (f"{part['role']} {part['pid']} ({part.get('samples', '?')})" for part in kept)
        yield f"stacks (samples) in {place}: {', '.join(names)}"
    for profile in trial.profiles:
        if "failed" in profile:
            yield f"not recorded: {profile['role']} {profile['failed']}"
    yield from (str(note) for profile in kept for note in profile.get("notes", ()))


UNEVEN: Final = 1.5
"""The busiest replica is worth a line when it took so many times the mean of all."""

FEW: Final = 100
"""Below so many requests a replica, chance alone makes them uneven."""


def served_facts(trials: Sequence[Trial], most: object) -> tuple[str, ...]:
    """What the app counted of a row, where it says something: batches, and an uneven spread.

    `most` is the cell's max_batch_size. Warm-up is counted too.
    """
    sizes = merged(trials, BATCH_SIZE)
    texts = [_batches(sizes, most)] if sizes.count else []
    forward_ns = mean_forward_ns(trial.forward for trial in trials)
    if forward_ns is not None:
        texts.append(f"in the model: {forward_ns / 1e6:.3g} ms a batch")
    for trial in trials:
        taken = trial.served.values()
        mean = statistics.fmean(taken) if taken else 0.0
        if mean >= FEW and max(taken) >= UNEVEN * mean:
            most_percent, least_percent = (100.0 * f(taken) / sum(taken) for f in (max, min))
            texts.append(
                f"uneven: of {len(taken)} replicas the busiest took {most_percent:.0f} % of the "
                f"requests, the idlest {least_percent:.0f} %"
            )
    return tuple(texts)


def _batches(sizes: Histogram, most: object) -> str:
    """`batches: mean size 7.90 of 16, 12,345 in all, 3 % of 1, 57 % of 16`."""
    full = int(str(most))
    counts = {size: count for size, count in sizes.occupied() if size in (1, full)}
    shares = [f"{100 * count / sizes.count:.0f} % of {size}" for size, count in counts.items()]
    whole = f"batches: mean size {sizes.mean:.2f} of {full}, {sizes.count:,} in all"
    return ", ".join((whole, *shares))
