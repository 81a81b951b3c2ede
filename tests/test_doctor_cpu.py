"""CPU and clock: each check in each of its states, on made-up /proc and /sys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from serve_bench.doctor import cpu_checks
from serve_bench.doctor.cpu_checks import Ticks
from serve_bench.doctor.place import Place, listed, plural, size
from tests.test_host import write


@pytest.mark.parametrize(
    ("usable", "logical", "status", "said"),
    [
        (8, 8, "ok", ""),
        (4, 64, "ok", ""),
        (2, 2, "warning", "limited by the host"),
        (2, 64, "warning", "taskset"),
        (1, 2, "warning", "taskset"),
        (0, 0, "unknown", ""),
    ],
)
def test_cores(usable: int, logical: int, status: str, said: str) -> None:
    found = cpu_checks.cores(usable, logical, "Fast CPU")
    assert found.status == status and said in found.advice
    assert status == "unknown" or found.value == f"{usable} usable of {logical}, Fast CPU"


@pytest.mark.parametrize(
    ("files", "status", "value"),
    [
        ({}, "unknown", "no cgroups here (/sys/fs/cgroup is missing)"),
        ({"memory/x": ""}, "unknown", "/sys/fs/cgroup shows no CPU controller"),
        ({"cgroup.controllers": "cpu memory"}, "ok", "none set by a cgroup"),  # top of version 2
        ({"cpu.max": "max 100000"}, "ok", "none set by a cgroup"),
        (
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            "ok",
            "none set by a cgroup",
        ),
        ({"cpu.max": "150000 100000"}, "warning", "1.5 of 4 cores (cgroup)"),
        (
            {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
            "warning",
            "0.5 of 4 cores (cgroup)",
        ),
        (
            {
                "cpu.max": "400000 100000",
                "cpu.stat": "usage_usec 1\nnr_periods 1000\nnr_throttled 3",
            },
            "ok",
            "4 of 4 cores (cgroup), used up in 0.3 % of its periods so far",
        ),
        (
            {"cpu.max": "400000 100000", "cpu.stat": "nr_periods 1000\nnr_throttled 30"},
            "warning",
            "4 of 4 cores (cgroup), used up in 3.0 % of its periods so far",
        ),
    ],
)
def test_quota(
    files: dict[str, str], status: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for name, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{name}", text)
    found = cpu_checks.read_quota(Place(root=tmp_path))
    assert (found.status, found.value) == (status, value)


@pytest.mark.parametrize(
    ("names", "status", "value"),
    [
        (
            [],
            "unknown",
            "no cpufreq in /sys: mostly a virtual machine, whose host sets the frequency",
        ),
        (["performance"] * 3, "ok", "performance on 3 of 3 cores"),
        (["powersave"] * 2, "warning", "powersave on 2 of 2 cores"),
        (
            ["performance", "schedutil", "performance"],
            "warning",
            "performance on 2 of 3 cores, schedutil on 1 of 3 cores",
        ),
    ],
)
def test_governor(names: Sequence[str], status: str, value: str, tmp_path: Path) -> None:
    for number, name in enumerate(names):
        write(tmp_path, f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor", f"{name}\n")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "another")
    found = cpu_checks.read_governor(Place(root=tmp_path))
    assert (found.status, found.value) == (status, value)
    assert ("cpupower" in found.advice) == (status == "warning")


@pytest.mark.parametrize(("one", "status"), [(0.1, "ok"), (4.0, "ok"), (4.1, "warning")])
def test_load(one: float, status: str) -> None:
    assert cpu_checks.load((one, 2.0, 1.0), 8).status == status


def test_a_system_without_load_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr("os.getloadavg", refuse)
    assert cpu_checks.read_load(Place()).status == "unknown"


@pytest.mark.parametrize(
    ("before", "after", "status", "said"),
    [
        (None, None, "unknown", "not Linux"),
        (Ticks(None, 100, None), Ticks(None, 200, None), "unknown", "does not tell"),
        (Ticks(0, 1000, 0), Ticks(0, 1100, 0), "ok", "took 0 % in 0.5 s just now, 0.00 % of"),
        (Ticks(0, 1000, 0), Ticks(2, 1100, 0), "ok", "took 2 % in 0.5 s"),
        (Ticks(0, 1000, 0), Ticks(3, 1100, 0), "warning", "took 3 % in 0.5 s"),
        (Ticks(90, 1000, 0), Ticks(90, 1100, 0), "warning", "8.18 % of CPU time since the start"),
        (Ticks(0, 1000, 0), Ticks(0, 1000, 0), "ok", "took 0.00 % of CPU time since the start"),
    ],
)
def test_steal(before: Ticks | None, after: Ticks | None, status: str, said: str) -> None:
    found = cpu_checks.steal(before, after, 0.5)
    assert found.status == status and said in found.value


def test_ticks_are_read(tmp_path: Path) -> None:
    place = Place(root=tmp_path)
    assert cpu_checks.ticks(place) is None
    write(tmp_path, "proc/stat", "cpu  10 1 2 80 3 0 1 3 7 7\ncpu0 5 1 1 40 1 0 1 1\n")
    assert cpu_checks.ticks(place) == Ticks(3, 100, None)  # guest time is in user already
    write(tmp_path, "proc/vmstat", "nr_free_pages 9\npswpin 4\npswpout 5\n")
    assert cpu_checks.ticks(place) == Ticks(3, 100, 9)
    write(tmp_path, "proc/stat", "cpu  10 1 2 80\n")  # a kernel before 2.6
    assert cpu_checks.ticks(place) == Ticks(None, 93, 9)


@pytest.mark.parametrize(
    ("source", "others", "cost_ns", "step_ns", "status", "said"),
    [
        ("tsc", [], 45.0, 20, "ok", ""),
        ("arch_sys_counter", [], 45.0, 40, "ok", ""),
        (None, [], 45.0, 41, "ok", ""),  # macOS: what is measured is enough
        ("tsc", [], 900.0, 20, "warning", "dmesg"),
        ("hpet", ["tsc", "hpet"], 45.0, 20, "warning", "echo tsc | sudo tee /sys/"),
        ("xen", ["xen"], 800.0, 20, "warning", "dmesg"),
        ("tsc", [], 45.0, 4_000_000, "warning", ""),
        ("tsc", [], 45.0, 0, "warning", ""),  # it never moved
    ],
)
def test_clock(
    source: str | None, others: list[str], cost_ns: float, step_ns: int, status: str, said: str
) -> None:
    found = cpu_checks.clock(source, others, cost_ns, step_ns)
    assert found.status == status and said in found.advice
    assert found.value.startswith(source or "source not told")


def test_cost_and_step_of_a_clock_with_known_ones() -> None:
    def every(step: int, reads: int) -> Iterator[int]:
        return (step * (n // reads) for n in count())

    fine, coarse = every(50, 1), every(1000, 10)
    assert cpu_checks.clock_cost(lambda: next(fine)) == (50.0, 50)
    cost_ns, step_ns = cpu_checks.clock_cost(lambda: next(coarse))
    assert step_ns == 1000 and 98 <= cost_ns <= 102
    assert cpu_checks.clock_cost(lambda: 7) == (0.0, 0)


def test_sizes_and_lists_in_words() -> None:
    assert size(3 << 29) == "1.5 GiB" and size(5 << 20) == "5 MiB"
    assert plural(1, "run") == "1 run" and plural(1200, "run") == "1,200 runs"
    assert listed("abcd") == "a, b, c, d" and listed("abcdef") == "a, b, c, d, 2 more"
