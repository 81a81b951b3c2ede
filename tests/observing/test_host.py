import os
import platform
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from serve_bench.core.facts import HostFacts
from serve_bench.load.workers import cpu_quota_cores
from serve_bench.observing import host
from serve_bench.observing.host import busy_cores  # as it is: the fixture of all tests replaces it
from tests.cases import cases, sure
from tests.places import git


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_fingerprint_is_plain_and_whole() -> None:
    found = host.fingerprint()
    text = msgspec.json.encode(found).decode()
    assert msgspec.json.decode(text, type=HostFacts) == found
    assert sure(found.logical_cores) >= sure(found.usable_cores) >= 1
    assert sure(found.memory_bytes) > 1 << 20
    assert found.python == platform.python_version()
    assert sure(found.load_1m) >= 0
    assert sure(found.busy_cores) >= 0
    # The name of the host and its paths stay out.
    assert platform.node() not in text and os.path.expanduser("~") + "/" not in text
    assert host.host_id() == host.host_id() and len(host.host_id()) == 12


QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


@cases(
    "cgroup, files, quota",
    ("", {"cpu.max": "150000 100000\n"}, 1.5),
    ("", {"cpu.max": "max 100000\n"}, None),
    ("", {}, None),
    # Version 2: the tightest of the own cgroup and those above.
    ("0::/a/b\n", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2.0),
    ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "cpu.max": "200000 100000"}, 2.0),
    # Version 1; without a limit, and as it is seen from inside a container.
    ("4:cpu,cpuacct:/x\n3:memory:/x", {f"cpu/x/{QUOTA}": "5000", f"cpu/x/{PERIOD}": "10000"}, 0.5),
    ("4:cpu,cpuacct:/hidden\n", {f"cpu/{QUOTA}": "-1", f"cpu/{PERIOD}": "100000"}, None),
)
def test_cpu_quota(tmp_path: Path, cgroup: str, files: dict[str, str], quota: float | None) -> None:
    if cgroup:
        write(tmp_path, "proc/self/cgroup", cgroup)
    for name, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert cpu_quota_cores(tmp_path) == quota


def test_the_memory_limit(tmp_path: Path) -> None:
    assert host.memory_limit_bytes(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert host.memory_limit_bytes(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/memory.max", "1048576\n")
    assert host.memory_limit_bytes(tmp_path) == 1048576
    write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name\t: Fast CPU @ 3 GHz\n")
    assert host.cpu_model(tmp_path) == "Fast CPU @ 3 GHz"
    assert host.governor(tmp_path) is None
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    assert host.governor(tmp_path) == "performance"


@pytest.mark.git
def test_the_commit_of_the_tool(tmp_path: Path) -> None:
    assert host.git_commit(tmp_path) is None
    git(tmp_path, "init")
    assert host.git_commit(tmp_path) is None  # no commit yet
    write(tmp_path, "file", "1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    commit = host.git_commit(tmp_path)
    assert commit is not None and len(commit) == 40
    write(tmp_path, "file", "2")
    assert host.git_commit(tmp_path) == commit + "+changes"


def test_a_program_that_runs_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        busy = busy_cores(host.CpuWatch(0.5))
        program.kill()
    assert busy is not None and busy > 0


def test_readings_agree_with_what_the_process_knows_of_itself() -> None:
    before = time.process_time_ns()
    assert before <= sure(host.cpu_ns(os.getpid())) <= time.process_time_ns()
    rss = sure(host.rss_bytes(os.getpid()))
    assert rss / 1e6 < 1.3 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    assert sure(host.pss_bytes(os.getpid())) > 1_000_000
    assert threading.get_native_id() in sure(host.threads_of(os.getpid())).run_ns
    assert host.thread_name(os.getpid(), threading.get_native_id())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for read in (host.cpu_ns, host.rss_bytes, host.pss_bytes, host.threads_of):
        assert read(gone.pid) is None
    assert host.thread_name(gone.pid, gone.pid) is None


def test_children_are_those_of_every_thread() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "60"])))
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.pid in host.children_of("self")
        process.kill()
