"""SIGKILL of the CLI, and of the cluster child, at every stage: nothing stays, nothing is lost.

`scripts/bench kills` repeats this 20 times with drawn moments; here is one of each.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from serve_bench.store import read
from tests.integration.conftest import run_to_end, start, wait_for_line, wait_until_clean

pytestmark = pytest.mark.ray

ARGUMENTS = (
    *("micro", "--max-concurrent-queries", "1,100", "--num-replicas", "1", "--clients", "1"),
    *("--windows", "3", "--window-seconds", "0.5", "--out", "run"),
)


def cluster_child(process: subprocess.Popen[str]) -> psutil.Process:
    for child in psutil.Process(process.pid).children():
        if "serve_bench/cluster" in " ".join(child.cmdline()):
            return child
    raise AssertionError("no cluster child")


def readable_records(folder: Path) -> int:
    """Every line but perhaps the last is whole; returns the number of finished trials."""
    lines = (folder / "records.jsonl").read_bytes().split(b"\n")
    for line in lines[:-1]:
        json.loads(line)
    return len(read(folder).trials)


LAUNCH, DEPLOY, TRIAL = (
    r"launch: starting Ray",
    r"launch: Serve is up",
    r"\[1/2\].*single client.*req/s",
)


@pytest.mark.parametrize(
    ("victim", "moment", "resume"),
    [
        # Where nothing was measured yet, to go on is the same whenever that was: once for each.
        pytest.param("cli", LAUNCH, False, id="cli-launch"),
        pytest.param("child", LAUNCH, True, id="child-launch"),
        pytest.param("cli", DEPLOY, True, id="cli-deploy"),
        pytest.param("child", DEPLOY, False, id="child-deploy"),
        pytest.param("cli", TRIAL, True, id="cli-trial"),
        pytest.param("child", TRIAL, True, id="child-trial"),
    ],
)
def test_sigkill_leaves_nothing_and_resume_completes(
    victim: str, moment: str, resume: bool, tmp_path: Path
) -> None:
    process = start(*ARGUMENTS, cwd=tmp_path)
    wait_for_line(process, moment)
    time.sleep(0.4)
    if victim == "cli":
        process.kill()
    else:
        cluster_child(process).kill()
    output, _ = process.communicate(timeout=30)
    assert wait_until_clean(10) == []
    assert process.returncode == (-9 if victim == "cli" else 1), output
    if victim == "child":
        assert "the cluster process ended" in output
    finished = readable_records(tmp_path / "run")
    assert finished == (1 if moment == TRIAL else 0)
    if not resume:
        return
    resumed = run_to_end(["micro", "--resume", "run"], tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert read(tmp_path / "run").complete
    assert readable_records(tmp_path / "run") == 2


def test_what_outlives_even_the_warden_is_swept_by_clean(tmp_path: Path) -> None:
    process = start(*ARGUMENTS, cwd=tmp_path)
    wait_for_line(process, r"launch: Serve is up")
    wardens = [
        child
        for child in psutil.Process(process.pid).children()
        if "serve_bench.strays" in " ".join(child.cmdline())
    ]
    assert len(wardens) == 1
    for victim in (wardens[0], cluster_child(process), psutil.Process(process.pid)):
        victim.kill()
    process.communicate(timeout=30)
    cleaned = run_to_end(["clean"], tmp_path)
    assert cleaned.returncode == 0
    assert wait_until_clean(2) == []
    assert run_to_end(["clean"], tmp_path).stdout == "nothing to clean\n"
