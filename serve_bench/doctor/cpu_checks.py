"""Are the CPU and the clock fit to measure with: cores, quota, governor, load, steal, clock.

Rule: a check either reads (with a Place) or judges (numbers in, Finding out); thresholds stand at
the top with their reasons. Nothing is changed.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from serve_bench.analysis.checks import BUSY_SHARE, Finding
from serve_bench.doctor.place import Place, plural
from serve_bench.observing import host

FEW_CORES: Final = 4
"""Proxy, replica and load worker use up to a core each, Ray's other processes some of a fourth: on
2 cores the host was at 168 to 181 of 200 % in the README's own example, and was the limit."""

STEAL_LIMIT: Final = 0.02
"""Share of CPU time that the hypervisor gave to others. The noise of an A/B in slices is about 2 %
(docs/ab.md): steal above it is no longer small beside what is to be told apart. 0.5 s on 2 cores
are 100 ticks, so one tick is 1 %."""

THROTTLED_LIMIT: Final = 0.01
"""Share of a quota's periods (mostly 0.1 s) in which it stopped the processes: one in a hundred is
where p99 shows nothing else."""

READING_LIMIT_NS: Final = 500.0
"""A reading of the clock takes about 45 ns by TSC. The raw client needs 7 to 9 us of CPU a request
and reads the clock for each: half a microsecond would be over 5 % of that."""

STEP_LIMIT_NS: Final = 1_000
"""The shortest median latency of Serve seen is 0.28 ms; steps above 1 us would be 0.4 % of it."""

SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""Clock sources that Linux cannot read without entering the kernel (its vDSO has no code for them:
arch/x86/include/asm/vdso/clocksource.h lists TSC, KVM and Hyper-V), or that are coarse."""

FAST_CLOCKS: Final = frozenset({"tsc", "arch_sys_counter", "kvm-clock"})
CLOCK: Final = "sys/devices/system/clocksource/clocksource0/"


@dataclass(frozen=True)
class Ticks:
    """Running totals of /proc/stat and /proc/vmstat; None where the kernel does not tell."""

    stolen: int | None
    all: int
    swapped_pages: int | None


def ticks(place: Place) -> Ticks | None:
    """The totals now; None without /proc."""
    stat = place.text("proc/stat")
    if not stat:
        return None
    # user nice system idle iowait irq softirq steal; what comes after is counted in these
    fields = [int(field) for field in stat.splitlines()[0].split()[1:9]]
    lines = (place.text("proc/vmstat") or "").splitlines()
    swapped = [int(n) for name, n in (line.split() for line in lines) if name in _SWAPPED]
    stolen = fields[7] if len(fields) == 8 else None
    return Ticks(stolen, sum(fields), sum(swapped) if swapped else None)


_SWAPPED: Final = ("pswpin", "pswpout")


def read_cores(place: Place) -> Finding:
    """The cores that this process may use."""
    logical = psutil.cpu_count(logical=True) or os.cpu_count() or 0
    process = psutil.Process()
    usable = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else logical
    return cores(usable, logical, host.cpu_model(place.root))


def cores(usable: int, logical: int, model: str | None) -> Finding:
    """Enough for server and client?"""
    value = f"{usable} usable of {logical}" + (f", {model}" if model else "")
    detail = {"usable": usable, "logical": logical, "model": model}
    if not usable:
        return Finding("cores", "unknown", "the system does not tell", detail=detail)
    advice = ""
    if usable < FEW_CORES:
        advice = (
            "proxy, replica and load worker want a core each, and Ray one more: rows are often "
            "limited by the host here, not by Serve; load from another machine helps (--load-on)"
        )
        if usable < logical <= FEW_CORES or usable < FEW_CORES <= logical:
            advice = (
                f"this shell may use only {plural(usable, 'core')} (taskset, cpuset): allow it more"
            )
    return Finding("cores", "warning" if advice else "ok", value, advice, detail)


def read_quota(place: Place) -> Finding:
    """The CPU quota of the cgroup, of either version, and how often it stopped this one."""
    if not (place.root / "sys/fs/cgroup").is_dir():
        return Finding("CPU quota", "unknown", "no cgroups here (/sys/fs/cgroup is missing)")
    seen = ("sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu.max")
    if not any((place.root / name).exists() for name in seen):
        return Finding("CPU quota", "unknown", "/sys/fs/cgroup shows no CPU controller")
    quota = host.cpu_quota_cores(place.root)
    stats = host.cgroup_files(place.root, "", "cpu.stat") if quota is not None else []
    stats += host.cgroup_files(place.root, "cpu", "cpu.stat") if quota is not None else []
    return quota_of(quota, [_throttled(text) for text in stats], os.cpu_count() or 1)


def _throttled(stat: str) -> tuple[int, int]:
    """Periods of a cpu.stat, and those in which the quota was used up."""
    found = dict(line.split()[:2] for line in stat.splitlines() if len(line.split()) >= 2)
    return int(found.get("nr_periods", 0)), int(found.get("nr_throttled", 0))


def quota_of(quota: float | None, stats: Sequence[tuple[int, int]], logical: int) -> Finding:
    """Does a quota stop what is measured? `stats`: periods and throttled ones, by cgroup."""
    periods, throttled = max(stats, key=lambda pair: pair[1], default=(0, 0))
    share = throttled / periods if periods else 0.0
    detail = {"cores": quota, "periods": periods, "throttled": throttled}
    if quota is None:
        return Finding("CPU quota", "ok", "none set by a cgroup", detail=detail)
    value = f"{quota:g} of {logical} cores (cgroup)"
    if periods:
        value += f", used up in {100 * share:.1f} % of its periods so far"
    if quota >= logical and share <= THROTTLED_LIMIT:
        return Finding("CPU quota", "ok", value, detail=detail)
    return Finding(
        "CPU quota",
        "warning",
        value,
        "a quota that is used up stops all processes for the rest of a period, which shows as "
        "high percentiles: take it away (docker --cpus, Kubernetes limits.cpu), or use "
        "docker --cpuset-cpus in its place",
        detail,
    )


def read_governor(place: Place) -> Finding:
    """The frequency governors of all cores."""
    files = sorted((place.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    names = [place.text(f"{file.relative_to(place.root)}/scaling_governor") for file in files]
    return governor([name for name in names if name])


def governor(names: Sequence[str]) -> Finding:
    """Is the frequency held up? `performance` is what benchmark tools ask for (Google Benchmark,
    docs/reducing_variance.md; Node.js, writing-and-running-benchmarks.md)."""
    found = Counter(names)
    if not names:
        why = "no cpufreq in /sys: mostly a virtual machine, whose host sets the frequency"
        return Finding("CPU governor", "unknown", why)
    value = ", ".join(f"{name} on {n} of {len(names)} cores" for name, n in found.most_common())
    if set(names) == {"performance"}:
        return Finding("CPU governor", "ok", value, detail=dict(found))
    advice = (
        "the frequency follows the load, so low rates look slower than they are: "
        "sudo cpupower frequency-set --governor performance"
    )
    return Finding("CPU governor", "warning", value, advice, dict(found))


def read_load(place: Place) -> Finding:
    """The load averages of the host, which are of all its cores, in a container too."""
    try:
        averages = os.getloadavg()
    except OSError:
        return Finding("load", "unknown", "the system tells no load average")
    return load(averages, os.cpu_count() or 1, host.busy_cores())


def load(averages: Sequence[float], logical: int, busy: float | None = None) -> Finding:
    """Is the machine used by others? `busy`: cores in use now. The same threshold as the check
    `busy-host` of a report, which looks at what runs just before."""
    value = "" if busy is None else f"{busy:.2f} cores in use now, load average "
    value += f"{averages[0]:.2f} in the last minute on {logical} cores"
    if len(averages) == 3:
        value += f" ({averages[1]:.2f} in 5, {averages[2]:.2f} in 15)"
    detail = {"averages": list(averages), "cores": logical, "busy": busy}
    if (averages[0] if busy is None else busy) <= BUSY_SHARE * logical:
        return Finding("load", "ok", value, detail=detail)
    advice = "other work takes the cores: `top` names it; wait for it to end"
    return Finding("load", "warning", value, advice, detail)


def steal(before: Ticks | None, after: Ticks | None, watched_s: float) -> Finding:
    """What the hypervisor gave to others, while watched and since the start."""
    if before is None or after is None:
        return Finding("steal", "unknown", "no /proc/stat here: not Linux")
    if before.stolen is None or after.stolen is None:
        return Finding("steal", "unknown", "this kernel does not tell it")
    passed = after.all - before.all
    since_boot = after.stolen / after.all if after.all else 0.0
    now = (after.stolen - before.stolen) / passed if passed > 0 else 0.0
    short = f"{100 * now:.0f} % in {watched_s:g} s just now, " if passed > 0 else ""
    value = f"the hypervisor took {short}{100 * since_boot:.2f} % of CPU time since the start"
    detail = {"now": round(now, 4), "since_boot": round(since_boot, 6)}
    if max(now, since_boot) <= STEAL_LIMIT:
        return Finding("steal", "ok", value, detail=detail)
    advice = "the hypervisor gives cores to other machines: use dedicated ones, or more launches"
    return Finding("steal", "warning", value, advice, detail)


def read_clock(place: Place) -> Finding:
    """The clock source of the kernel, what a reading costs, and the smallest step."""
    source = place.text(CLOCK + "current_clocksource")
    others = (place.text(CLOCK + "available_clocksource") or "").split()
    return clock(source, others, *clock_cost(time.perf_counter_ns))


def clock_cost(now: Callable[[], int]) -> tuple[float, int]:
    """Nanoseconds of a reading (the best of five rows of 500), and the smallest step seen."""
    costs: list[float] = []
    steps: set[int] = set()
    for _ in range(5):
        read = [now() for _ in range(500)]
        costs.append((read[-1] - read[0]) / (len(read) - 1))
        steps |= {b - a for a, b in itertools.pairwise(read) if b > a}
    return min(costs), min(steps, default=0)


def clock(source: str | None, others: Sequence[str], cost_ns: float, step_ns: int) -> Finding:
    """Is it cheap and fine enough? Both are measured, so a name alone makes nothing ok."""
    value = f"{source or 'source not told'}, a reading takes {cost_ns:.0f} ns"
    value += f", smallest step {step_ns} ns" if step_ns else ", no step was seen"
    detail = {"source": source, "reading_ns": round(cost_ns, 1), "step_ns": step_ns}
    slow = source in SLOW_CLOCKS or cost_ns > READING_LIMIT_NS
    if not slow and 0 < step_ns <= STEP_LIMIT_NS:
        return Finding("clock", "ok", value, detail=detail)
    better = [name for name in others if name in FAST_CLOCKS and name != source]
    advice = "each reading of time costs the clients and Ray too much, or is too coarse: "
    if better:
        advice += f"echo {better[0]} | sudo tee /{CLOCK}current_clocksource"
    else:
        advice += "another machine, or see why the kernel gave up TSC: sudo dmesg | grep -i tsc"
    return Finding("clock", "warning", value, advice, detail)
