"""The CPU, the clock and the room of made-up machines."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from serve_bench.doctor import machine_checks
from serve_bench.doctor.machine import GIB, Machine, listed, plural, size
from serve_bench.doctor.machine_checks import Room, Ticks
from tests.observing.test_host import write


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
    found = machine_checks.cores(usable, logical, "Fast CPU")
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
    found = machine_checks.read_quota(Machine(root=tmp_path))
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
    found = machine_checks.read_governor(Machine(root=tmp_path))
    assert (found.status, found.value) == (status, value)
    assert ("cpupower" in found.advice) == (status == "warning")


@pytest.mark.parametrize(("one", "status"), [(0.1, "ok"), (4.0, "ok"), (4.1, "warning")])
def test_load(one: float, status: str) -> None:
    assert machine_checks.load((one, 2.0, 1.0), 8).status == status


def test_a_system_without_load_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr("os.getloadavg", refuse)
    assert machine_checks.read_load(Machine()).status == "unknown"


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
    found = machine_checks.steal(before, after, 0.5)
    assert found.status == status and said in found.value


def test_ticks_are_read(tmp_path: Path) -> None:
    machine = Machine(root=tmp_path)
    assert machine_checks.ticks(machine) is None
    write(tmp_path, "proc/stat", "cpu  10 1 2 80 3 0 1 3 7 7\ncpu0 5 1 1 40 1 0 1 1\n")
    assert machine_checks.ticks(machine) == Ticks(3, 100, None)  # guest time is in user already
    write(tmp_path, "proc/vmstat", "nr_free_pages 9\npswpin 4\npswpout 5\n")
    assert machine_checks.ticks(machine) == Ticks(3, 100, 9)
    write(tmp_path, "proc/stat", "cpu  10 1 2 80\n")  # a kernel before 2.6
    assert machine_checks.ticks(machine) == Ticks(None, 93, 9)


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
    found = machine_checks.clock(source, others, cost_ns, step_ns)
    assert found.status == status and said in found.advice
    assert found.value.startswith(source or "source unknown")


def test_cost_and_step_of_a_clock_with_known_ones() -> None:
    def every(step: int, reads: int) -> Iterator[int]:
        return (step * (n // reads) for n in count())

    fine, coarse = every(50, 1), every(1000, 10)
    assert machine_checks.clock_cost(lambda: next(fine)) == (50.0, 50)
    cost_ns, step_ns = machine_checks.clock_cost(lambda: next(coarse))
    assert step_ns == 1000 and 98 <= cost_ns <= 102
    assert machine_checks.clock_cost(lambda: 7) == (0.0, 0)


def test_sizes_and_lists_in_words() -> None:
    assert size(3 << 29) == "1.5 GiB" and size(5 << 20) == "5 MiB"
    assert plural(1, "run") == "1 run" and plural(1200, "run") == "1,200 runs"
    assert listed("abcd") == "a, b, c, d" and listed("abcdef") == "a, b, c, d, 2 more"


@pytest.mark.parametrize(
    ("total", "available", "room", "status", "value"),
    [
        (16.0, 12.0, None, "ok", "12.0 GiB free of 16.0 GiB"),
        (16.0, 1.0, None, "failure", "1.0 GiB free of 16.0 GiB"),
        (16.0, 2.5, None, "warning", "2.5 GiB free of 16.0 GiB"),
        (256.0, 13.0, None, "failure", "13.0 GiB free of 256.0 GiB"),  # Ray keeps 12.8 free
        (64.0, 60.0, (4.0, 3.5), "ok", "3.5 GiB free of 4.0 GiB (limit of the cgroup)"),
        (64.0, 60.0, (4.0, 0.5), "failure", "512 MiB free of 4.0 GiB (limit of the cgroup)"),
        (64.0, 60.0, (128.0, 9.0), "ok", "60.0 GiB free of 64.0 GiB"),  # no limit in truth
    ],
)
def test_memory(
    total: float, available: float, room: tuple[float, float] | None, status: str, value: str
) -> None:
    limited = None if room is None else Room(int(room[0] * GIB), int(room[1] * GIB))
    found = machine_checks.memory_of(int(total * GIB), int(available * GIB), limited)
    assert (found.status, found.value) == (status, value)


def test_what_is_left_of_a_cgroup(tmp_path: Path) -> None:
    machine = Machine(root=tmp_path)
    assert machine_checks.cgroup_room(machine) is None
    write(tmp_path, "proc/self/cgroup", "0::/a\n4:memory:/m\n")
    for name, text in {"max": "1000", "current": "900", "stat": "anon 5\ninactive_file 50"}.items():
        write(tmp_path, f"sys/fs/cgroup/a/memory.{name}", text)
    assert machine_checks.cgroup_room(machine) == Room(1000, 150)
    for name, text in {
        "limit_in_bytes": "2000",
        "usage_in_bytes": "1980",
        "stat": "inactive_file 1\ntotal_inactive_file 30",
    }.items():
        write(tmp_path, f"sys/fs/cgroup/memory/m/memory.{name}", text)
    assert machine_checks.cgroup_room(machine) == Room(2000, 50)  # the tighter one
    write(tmp_path, "sys/fs/cgroup/a/memory.max", "max")
    write(tmp_path, "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712")
    assert machine_checks.cgroup_room(machine) is None


@pytest.mark.parametrize(
    ("total", "used", "pages", "status", "value"),
    [
        (0, 0, None, "ok", "none"),
        (2 * GIB, 0, 0, "ok", "0 MiB used of 2.0 GiB, no page moved in 0.5 s"),
        (2 * GIB, GIB, 0, "ok", "1.0 GiB used of 2.0 GiB, no page moved in 0.5 s"),
        (2 * GIB, GIB, 7, "warning", "1.0 GiB used of 2.0 GiB, 7 pages moved in 0.5 s"),
        (2 * GIB, 0, None, "unknown", "0 MiB used of 2.0 GiB; whether pages move is unknown"),
    ],
)
def test_swap(total: int, used: int, pages: int | None, status: str, value: str) -> None:
    found = machine_checks.swap(total, used, pages, 0.5)
    assert (found.status, found.value) == (status, value)


def test_swapping_is_seen_between_two_readings() -> None:
    found = machine_checks.read_swap(Machine(), Ticks(0, 1, 10), Ticks(0, 2, 14))
    assert found.detail["pages_moved"] == 4
    assert machine_checks.read_swap(Machine(), None, None).detail["pages_moved"] is None


@pytest.mark.parametrize(
    ("total", "free", "available", "status", "said"),
    [
        (8.0, 8.0, 16.0, "ok", "Ray takes up to about 4.8 GiB"),
        (0.0625, 0.0625, 16.0, "warning", "--shm-size=6g"),  # docker's default
        (8.0, 1.0, 16.0, "warning", "delete what fills it"),
        (50.0, 50.0, 4000.0, "ok", "about 47.5 GiB"),  # Ray takes no more than 95 % of it
        (None, None, 16.0, "failure", "mount a tmpfs"),
    ],
)
def test_shared_memory(
    total: float | None, free: float | None, available: float, status: str, said: str
) -> None:
    found = machine_checks.shared_memory(
        None if total is None else int(total * GIB),
        None if free is None else int(free * GIB),
        int(available * GIB),
    )
    assert found.status == status and said in found.value + found.advice


def test_shared_memory_is_read_where_there_is_linux(tmp_path: Path) -> None:
    assert machine_checks.read_shared_memory(Machine(root=tmp_path)).status == "unknown"
    write(tmp_path, "proc/stat", "cpu 1 2 3 4\n")
    assert machine_checks.read_shared_memory(Machine(root=tmp_path)).status == "failure"
    (tmp_path / "dev/shm").mkdir(parents=True)
    found = machine_checks.read_shared_memory(Machine(root=tmp_path))
    assert (
        found.detail["free_bytes"] == os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    )


@pytest.mark.parametrize(
    ("free", "full", "writable", "few", "needed", "status"),
    [
        (9 * GIB, 0.2, True, False, True, "ok"),
        (9 * GIB, 0.96, True, False, True, "warning"),  # Ray's own threshold
        (9 * GIB, 0.96, True, False, False, "ok"),
        (GIB // 2, 0.2, True, False, True, "warning"),
        (GIB // 2, 0.2, True, False, False, "warning"),
        (9 * GIB, 0.2, True, True, True, "warning"),
        (50 << 20, 0.2, True, False, True, "failure"),
        (50 << 20, 0.2, True, False, False, "warning"),
        (9 * GIB, 0.2, False, False, True, "failure"),
        (9 * GIB, 0.2, False, False, False, "warning"),
    ],
)
def test_disk(free: int, full: float, writable: bool, few: bool, needed: bool, status: str) -> None:
    found = machine_checks.disk(
        "disk", "here", free, full, writable=writable, few=few, flag="go there", needed=needed
    )
    assert found.status == status
    assert status == "ok" or "go there" in found.advice


def test_the_folder_need_not_be_there_but_must_be_one(tmp_path: Path) -> None:
    found = machine_checks.read_disk("disk", tmp_path / "a" / "b", "flag", needed=False)
    assert found.detail["writable"] is True
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    found = machine_checks.read_disk("disk", tmp_path / "file", "flag", needed=False)
    assert (found.status, found.advice) == ("warning", "flag")


@pytest.mark.parametrize(
    ("soft", "hard", "status"),
    [
        (1024, 1_048_576, "ok"),  # launches raise the soft one
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "ok"),
        (1024, 4096, "warning"),
        (64, 64, "failure"),  # no Ray starts
    ],
)
def test_open_files(soft: int, hard: int, status: str) -> None:
    assert machine_checks.open_files(soft, hard).status == status


TCP = """  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:8001 0100007F:1F90 06 00000000:00000000
   1: 0100007F:8001 0100007F:1F91 01 00000000:00000000
   2: 0100007F:8002 0100007F:1F90 06 00000000:00000000
   3: 00000000:1F90 00000000:0000 0A 00000000:00000000
"""
TCP6 = """  sl  local_address
   0: 00000000000000000000000001000000:8003 00000000000000000000000001000000:1F90 01 0 0
"""


def test_ports_are_read(tmp_path: Path) -> None:
    machine = Machine(root=tmp_path)
    assert machine_checks.read_ports(machine).status == "unknown"
    write(tmp_path, "proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    assert machine_checks.read_ports(machine).value == "/proc/net/tcp cannot be read"
    write(tmp_path, "proc/net/tcp", TCP)
    write(tmp_path, "proc/net/tcp6", TCP6)
    found = machine_checks.read_ports(machine)
    assert found.value == "32768 to 60999: 28,229 free, 1 in use, 2 in TIME_WAIT"
    assert found.status == "ok"


@pytest.mark.parametrize(
    ("span", "taken", "reserved", "status", "said"),
    [
        (range(32768, 61000), 0, "", "ok", ""),
        (range(32768, 61000), 23_000, "", "warning", "wait 60 s for TIME_WAIT"),
        (range(32768, 36000), 0, "", "warning", "widen the range"),
        (range(1024, 65536), 0, "", "warning", "launches take their ports from 20000 to 31999"),
        (range(1024, 65536), 0, "8000,20000-31999", "ok", ""),
        (range(1024, 65536), 0, "20001-31999", "warning", "launches take"),
    ],
)
def test_ports(
    span: range, taken: int, reserved: str, status: str, said: str, tmp_path: Path
) -> None:
    rows = [f" {n}: 0100007F:{port:04X} 0:0 06" for n, port in enumerate(span[:taken])]
    write(tmp_path, "proc/net/tcp", "\n".join(["  sl  local_address", *rows]))
    folder = "proc/sys/net/ipv4/"
    write(tmp_path, folder + "ip_local_port_range", f"{span.start} {span.stop - 1}")
    write(tmp_path, folder + "ip_local_reserved_ports", reserved)
    found = machine_checks.read_ports(Machine(root=tmp_path))
    assert found.status == status and said in found.advice
    assert found.detail["time_wait"] == taken
