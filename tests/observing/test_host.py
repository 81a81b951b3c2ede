from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from serve_bench.core.figures import host_line
from serve_bench.load.workers import cpu_quota_cores
from serve_bench.observing import host
from serve_bench.observing.host import busy_cores


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_fingerprint_is_plain_and_whole() -> None:
    found = host.fingerprint()
    assert json.loads(json.dumps(found)) == found
    assert found["logical_cores"] >= found["usable_cores"] >= 1
    assert found["memory_bytes"] > 1 << 20
    assert found["python"] == platform.python_version()
    assert found["load_1m"] >= 0
    assert found["busy_cores"] >= 0


def test_the_name_of_the_host_and_its_paths_stay_out() -> None:
    text = json.dumps(host.fingerprint())
    assert platform.node() not in text
    assert os.path.expanduser("~") + "/" not in text
    assert host.host_id() == host.host_id()
    assert len(host.host_id()) == 12


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({}, None),
        (
            {  # version 2: the tightest of the own cgroup and those above
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/cpu.max": "max 100000",
            },
            2.0,
        ),
        (
            {  # version 1
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n3:memory:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {  # version 1, no limit, seen from inside a container
                "proc/self/cgroup": "4:cpu,cpuacct:/hidden\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_the_cpu_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        write(tmp_path, name, text)
    assert cpu_quota_cores(tmp_path) == quota


def test_the_memory_limit(tmp_path: Path) -> None:
    assert host.memory_limit_bytes(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert host.memory_limit_bytes(tmp_path) is None
    write(tmp_path, "sys/fs/cgroup/memory.max", "1048576\n")
    assert host.memory_limit_bytes(tmp_path) == 1048576


def test_cpu_and_governor(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name\t: Fast CPU @ 3 GHz\n")
    assert host.cpu_model(tmp_path) == "Fast CPU @ 3 GHz"
    assert host.governor(tmp_path) is None
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    assert host.governor(tmp_path) == "performance"


def git(top: Path, *words: str) -> None:
    name = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "-C", str(top), *name, *words], check=True, capture_output=True)


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


def test_the_host_in_one_line() -> None:
    line = host_line({"cpu": "Fast CPU", "usable_cores": 2, "memory_bytes": 8 << 30, "ray": None})
    assert line == "Fast CPU, 2 cores, 8.0 GiB"
    assert host_line({}) == "unknown CPU, ? cores"


def test_a_program_that_runs_is_seen() -> None:
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        told = busy_cores(0.5)
    finally:
        program.kill()
        program.wait()
    assert told is not None and told > 0
