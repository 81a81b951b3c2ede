import resource
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil

from serve_bench.doctor import CheckFinding, machine
from serve_bench.observing import host
from tests.cases import Patch, cases
from tests.observing.test_host import write

Check = Callable[[Path], CheckFinding]
CPU, CGROUP = "sys/devices/system/cpu", "sys/fs/cgroup"
WHOLE, STAT = {f"{CGROUP}/cpu.max": "400000 100000"}, f"{CGROUP}/cpu.stat"


def governors(*names: str) -> dict[str, str]:
    """Of each core its governor; beside them that of a policy, which is no core."""
    cores = {f"cpu{at}/cpufreq": name for at, name in enumerate(names)}
    found = {f"{CPU}/{core}/scaling_governor": f"{name}\n" for core, name in cores.items()}
    return found | {f"{CPU}/cpufreq/policy0/scaling_governor": "another"}


Used = Sequence[tuple[int, str]]
USED = [(40000, "01"), (40001, "06"), (8000, "0A")]
USED_6 = [(40000, "06"), (40001, "06")]  # the same ports by the other protocol


def ports(span: str, tcp: Used = (), tcp6: Used = (), reserved: str = "") -> dict[str, str]:
    """Write the range of outgoing ports, and connections with these local ports and states."""
    files = {"proc/sys/net/ipv4/ip_local_port_range": span.replace(" ", "\t")}
    files["proc/sys/net/ipv4/ip_local_reserved_ports"] = reserved
    for name, used in (("tcp", tcp), ("tcp6", tcp6)):
        rows = [f"0: 0100007F:{port:04X} 0100007F:1F90 {state} 0" for port, state in used]
        files[f"proc/net/{name}"] = "\n".join(["sl local_address rem_address st", *rows])
    return files


QUOTA, GOVERNOR, PORTS = machine.check_quota, machine.check_governor, machine.check_ports


@cases(
    "check, files, tone, text",
    (QUOTA, {}, "unknown", "/sys/fs/cgroup shows no CPU controller"),
    (QUOTA, {f"{CGROUP}/memory/x": ""}, "unknown", "/sys/fs/cgroup shows no CPU controller"),
    (QUOTA, {f"{CGROUP}/cgroup.controllers": "cpu memory"}, "ok", "none set by a cgroup"),
    (QUOTA, {f"{CGROUP}/cpu.max": "max 100000"}, "ok", "none set by a cgroup"),
    (QUOTA, {f"{CGROUP}/cpu.max": "150000 100000"}, "warning", "1.5 of 4 cores (cgroup)"),
    (QUOTA, {**WHOLE, STAT: "nr_periods 1000\nnr_throttled 3"}, "ok", "0.3 % of its periods"),
    (QUOTA, {**WHOLE, STAT: "nr_periods 1000\nnr_throttled 30"}, "warning", "3.0 % of its"),
    (GOVERNOR, governors(), "unknown", "no cpufreq in /sys"),
    (GOVERNOR, governors(*["performance"] * 3), "ok", "performance on 3 of 3 cores"),
    (GOVERNOR, governors("performance", "schedutil", "performance"), "warning", "2 of 3 cores, s"),
    (PORTS, {}, "unknown", "cannot be read"),
    (PORTS, ports("32768 60999"), "ok", "32768 to 60999: 28,232 free, 0 in use, 0 in TIME_WAIT"),
    (PORTS, ports("32768 60999", USED, USED_6), "ok", "28,230 free, 1 in use, 1 in TIME_WAIT"),
    (PORTS, ports("32768 38000"), "warning", "5,233 free"),
    (PORTS, ports("15000 60999"), "warning", "46,000 free"),  # where launches draw theirs
    (PORTS, ports("15000 60999", reserved="20000-31999"), "ok", "46,000 free"),
    (PORTS, ports("15000 60999", reserved="20000-30000,8080"), "warning", "46,000 free"),
)
def test_what_files_of_the_kernel_say(
    check: Check, files: Mapping[str, str], tone: str, text: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for name, content in files.items():
        write(tmp_path, name, content)
    finding = check(tmp_path)
    assert finding.tone == tone and text in finding.text, finding


@cases(
    "usable, logical, tone, hint",
    (8, 8, "ok", ""),
    (4, 64, "ok", ""),
    (2, 2, "warning", "limited by the host"),
    (2, 64, "warning", "taskset"),
    (1, 2, "warning", "taskset"),
)
def test_cores(
    usable: int, logical: int, tone: str, hint: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    write(tmp_path, "proc/cpuinfo", "model name : Fast CPU\n")
    monkeypatch.setattr(psutil, "cpu_count", lambda **_: logical)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: list(range(usable)))
    finding = machine.check_cores(tmp_path)
    assert (finding.tone, finding.text) == (tone, f"{usable} usable of {logical}, Fast CPU")
    assert hint in finding.hint


@cases(
    "before, after, tone, text",
    (None, None, "unknown", "/proc/stat does not show it"),
    ("cpu 10 1 2 80", "cpu 10 1 2 90", "unknown", "does not show it"),  # before Linux 2.6
    ("cpu 0 0 0 1000 0 0 0 0", "cpu 0 0 0 1098 0 0 0 2", "ok", "2 % in 0.5 s"),
    ("cpu 0 0 0 1000 0 0 0 0", "cpu 0 0 0 1097 0 0 0 3", "warning", "3 % in 0.5 s"),
    ("cpu 0 0 0 910 0 0 0 90", "cpu 0 0 0 1010 0 0 0 90", "warning", "8.18 % of CPU time"),
    ("cpu 0 0 0 1000 0 0 0 0", "cpu 0 0 0 1000 0 0 0 0", "ok", "0.00 % of CPU time since"),
    # guest time, the last two, is in user already
    ("cpu 0 0 0 1000 0 0 0 0 9 9", "cpu 0 0 0 1097 0 0 0 3 900 0", "warning", "3 % in"),
)
def test_steal(
    before: str | None, after: str | None, tone: str, text: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    def watch(seconds: float) -> None:
        assert seconds == 0.5
        if after is not None:
            write(tmp_path, "proc/stat", after)

    monkeypatch.setattr("time.sleep", watch)
    if before is not None:
        write(tmp_path, "proc/stat", before)
    finding = machine.check_steal(tmp_path)
    assert finding.tone == tone and text in finding.text


@cases("busy, tone", (0.1, "ok"), (4.0, "ok"), (4.1, "warning"), (None, "unknown"))
def test_busy(busy: float | None, tone: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(host, "busy_cores", lambda: busy)
    assert machine.check_busy().tone == tone


def cgroup(root: Path, **files: str) -> None:
    write(root, "proc/self/cgroup", "0::/a\n4:memory:/m\n")
    for name, content in files.items():
        write(root, f"sys/fs/cgroup/a/memory.{name}", content)


@cases(
    "total, available, limit, tone, text",
    (16.0, 12.0, None, "ok", "12.0 GiB free of 16.0 GiB"),
    (16.0, 1.0, None, "failure", "1.0 GiB free of 16.0 GiB"),
    (16.0, 2.5, None, "warning", "2.5 GiB free of 16.0 GiB"),
    (256.0, 13.0, None, "failure", "13.0 GiB free of 256.0 GiB"),  # Ray keeps 12.8 free
    (64.0, 60.0, (4.0, 3.5), "ok", "3.5 GiB free of 4.0 GiB (limit of the cgroup)"),
    (64.0, 60.0, (4.0, 0.5), "failure", "512 MiB free of 4.0 GiB (limit of the cgroup)"),
    (64.0, 60.0, (128.0, 9.0), "ok", "60.0 GiB free of 64.0 GiB"),  # no limit in truth
)
def test_memory(
    total: float,
    available: float,
    limit: tuple[float, float] | None,
    tone: str,
    text: str,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    memory = SimpleNamespace(total=total * machine.GIB, available=available * machine.GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    if limit is not None:
        most, free = (int(gib * machine.GIB) for gib in limit)
        cgroup(tmp_path, max=str(most), current=str(most - free), stat="anon 5")
    finding = machine.check_memory(tmp_path)
    assert (finding.tone, finding.text) == (tone, text)


def test_cached_pages_of_files_count_as_free_and_the_tighter_cgroup_holds(tmp_path: Path) -> None:
    assert machine._read_cgroup_memory(tmp_path) is None
    cgroup(tmp_path, max="1000", current="900", stat="anon 5\ninactive_file 50")
    assert machine._read_cgroup_memory(tmp_path) == (150, 1000)
    for name, content in {
        "limit_in_bytes": "2000",
        "usage_in_bytes": "1980",
        "stat": "inactive_file 1\ntotal_inactive_file 30",
    }.items():
        write(tmp_path, f"sys/fs/cgroup/memory/m/memory.{name}", content)
    assert machine._read_cgroup_memory(tmp_path) == (50, 2000)
    write(tmp_path, "sys/fs/cgroup/a/memory.max", "max")
    write(tmp_path, "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712")
    assert machine._read_cgroup_memory(tmp_path) is None


@cases(
    "soft, hard, tone",
    (1024, 1_048_576, "ok"),  # launches raise the soft one
    (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "ok"),
    (1024, 4096, "warning"),
    (64, 64, "failure"),  # no Ray starts
)
def test_files(soft: int, hard: int, tone: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    assert machine.check_files().tone == tone
