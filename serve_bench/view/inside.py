"""What was seen inside of a run: CPU by process, batches and replicas, what profiling cost.

Rule: records in, a table or lines of text out; figures come from core/usage.py and
analysis/statistics.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.analysis.statistics import mean_rate, merged
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


def usage_table(
    caption: str,
    columns: Sequence[tuple[str, Sequence[Trial]]],
    memory: bool = True,
    least: float = SHOWN_PERCENT,
) -> Table:
    """CPU by process: a line for each role, a column for each name with the trials that it stands
    for, and the memory of the last of them. `least`: roles below so many % of a core in every
    column are added up as "the rest", but for those on the way of a request, and what replicas
    started."""
    shares = [(name, mean_by_role(trials)) for name, trials in columns]
    roles = list(dict.fromkeys(role for _, uses in shares for role in uses))
    shown = [
        role
        for role in roles
        if role.partition(" ")[0] in ALWAYS_SHOWN
        or any(role in uses and uses[role].cpu_percent >= least for _, uses in shares)
    ]
    rows: list[tuple[str, ...]] = []
    for role in shown:
        known = [uses[role] for _, uses in shares if role in uses]
        cells = (_share(uses.get(role)) for _, uses in shares)
        rows.append((_named(role, known), *cells, _memory(known)))
    if len(shown) < len(roles):
        rest = [sum(u.cpu_percent for r, u in uses.items() if r not in shown) for _, uses in shares]
        rows.append((REST, *(f"{share:.0f}" for share in rest), ""))
    rows.append(("host, all processes", *(_host(trials) for _, trials in columns), ""))
    heads = [Column(name) for name, _ in columns]
    heads += [Column("memory", "MB")] if memory else []
    kept = 1 + len(heads)
    table_rows = tuple(TableRow(row[:kept]) for row in rows)
    several = any("(" in cell for row in rows for cell in row[1:])
    notes = ("in brackets: the busiest of several processes",) if several else ()
    return Table(caption, (Column("process", number=False), *heads), table_rows, notes)


def mean_by_role(trials: Sequence[Trial]) -> dict[str, RoleUse]:
    """Over launches: means of CPU, the highest of the busiest, the memory of the last."""
    return mean_of_usages([trial.usage for trial in trials])


def mean_of_usages(usages: Sequence[Mapping[str, Any]]) -> dict[str, RoleUse]:
    """The same of the usage of some trials, or of some nodes."""
    sampled = [uses for usage in usages if (uses := by_role(usage))]
    out = {}
    for role in dict.fromkeys(role for uses in sampled for role in uses):
        every = [uses[role] for uses in sampled if role in uses]
        out[role] = RoleUse(
            role,
            max(one.processes for one in every),
            sum(one.cpu_percent for one in every) / len(sampled),
            max(one.busiest_percent for one in every),
            every[-1].memory_mb,
        )
    return out


@dataclass(frozen=True)
class GroupedCpu:
    """CPU of groups of processes, % of a core, mean over what was sampled; `busiest`: the most that
    one process of a group took. `host`: all that runs there, on `cores` cores. A group without a
    process is missing; None: not sampled."""

    groups: Mapping[str, float]
    busiest: Mapping[str, float]
    host: float | None
    cores: int | None


def grouped_cpu(usages: Sequence[Mapping[str, Any]], group: Callable[[str], str]) -> GroupedCpu:
    """The CPU of these usages. `group` names the group of a role."""
    groups: dict[str, float] = {}
    busiest: dict[str, float] = {}
    for role, use in mean_of_usages(usages).items():
        name = group(role)
        groups[name] = groups.get(name, 0.0) + use.cpu_percent
        busiest[name] = max(busiest.get(name, 0.0), use.busiest_percent)
    hosts = [usage["host"] for usage in usages if usage.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    return GroupedCpu(
        groups,
        busiest,
        host=statistics.fmean(shares) if shares else None,
        cores=int(hosts[0]["cores"]) if hosts and hosts[0].get("cores") else None,
    )


def gpu_percent(trial: Trial) -> float | None:
    """Use of all GPUs together; None where none was seen."""
    used = [one.get("use_percent") for one in trial.usage.get("gpus", ()) if isinstance(one, dict)]
    known = [float(share) for share in used if share is not None]
    return sum(known) if known else None


def _named(role: str, uses: Sequence[RoleUse]) -> str:
    count = max(one.processes for one in uses)
    word = role.replace("_", " ")
    return f"{word} x{count}" if count > 1 else word


def _share(use: RoleUse | None) -> str:
    """`48 (24)`: all processes of the role, and the busiest of them."""
    if use is None:
        return "-"
    busiest = f" ({use.busiest_percent:.0f})" if use.processes > 1 else ""
    return f"{use.cpu_percent:.0f}{busiest}"


def _memory(uses: Sequence[RoleUse]) -> str:
    known = [one.memory_mb for one in uses if one.memory_mb is not None]
    return f"{known[-1]:.0f}" if known else ""


def _host(trials: Sequence[Trial]) -> str:
    hosts = [trial.usage.get("host", {}) for trial in trials if trial.usage]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    if not shares:
        return "-"
    return f"{statistics.fmean(shares):.0f} of {100 * int(hosts[0].get('cores', 1))}"


def profiling_costs(result: Result) -> dict[str, str]:
    """For each profiled trial by its key: what profiling cost, in words."""
    plain = {trial.key: trial for trial in result.trials}
    out = {}
    for trial in result.profiled:
        mate = plain.get(trial.key)
        if mate is None or mate.launch != trial.launch:
            continue
        before, during = mean_rate(mate), mean_rate(trial)
        if not before or during is None:
            continue
        count = sum(1 for one in trial.profiles if "failed" not in one)
        change = 100.0 * (during / before - 1.0)
        out[trial.key] = (
            f"cost of profiling {count} process{'es' if count != 1 else ''}: "
            f"{before:,.1f} -> {during:,.1f} requests/s ({change:+.0f} %), same launch"
        )
    return out


def facts(trial: Trial, costs: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be said under a profiled row: its cost, its files, what could not be recorded."""
    texts = [costs[trial.key]] if trial.key in costs else []
    kept = [one for one in trial.profiles if "failed" not in one and "path" in one]
    if kept:
        place = str(kept[0]["path"]).rpartition("/")[0]
        roles = ", ".join(
            f"{one['role']} {one['pid']} ({one.get('samples', 'not counted')})" for one in kept
        )
        texts.append(f"stacks (samples) in {place}: {roles}")
    texts += [
        f"not recorded: {one['role']} {one['failed']}" for one in trial.profiles if "failed" in one
    ]
    texts += [str(note) for one in kept for note in one.get("notes", ())]
    return tuple(texts)


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
    """`batches: mean size 7.90 of 16, 12,345 in all: 3 % of 1, 40 % of 2 to 15, 57 % of 16`.

    Between single and full ones, up to the largest that there was.
    """
    full = int(str(most))
    largest = max((size for size, _ in sizes.occupied() if size < full), default=1)
    between = "2" if largest == 2 else f"2 to {largest}"
    bands: dict[str, int] = {}
    for size, count in sizes.occupied():
        band = str(size) if size in (1, full) else between
        bands[band] = bands.get(band, 0) + count
    shares = ", ".join(f"{100.0 * n / sizes.count:.0f} % of {band}" for band, n in bands.items())
    return f"batches: mean size {sizes.mean:.2f} of {full}, {sizes.count:,} in all: {shares}"


def metrics_note(result: Result) -> str | None:
    """One line when Serve's own metrics were absent in some trial."""
    why = [
        str(trial.serve_metrics.get("why"))
        for trial in result.trials
        if trial.serve_metrics.get("status") == "absent"
    ]
    return f"Serve's own metrics are absent in {len(why)} trials: {why[0]}" if why else None
