"""SIGKILL of the CLI, and of the cluster child, at every stage: nothing stays, nothing is lost.

`scripts/bench kills` repeats this 20 times with drawn moments; here is one of each.
"""

import contextlib
import json
import re
import time
from pathlib import Path

import psutil
import pytest

from serve_bench.store import read
from tests.cases import cases
from tests.integration.conftest import (
    SHORT,
    cluster_child,
    ended,
    run_checked,
    run_to_end,
    start,
    wait_for_line,
    wait_until_clean,
    warden_of,
)

pytestmark = [pytest.mark.ray]

ARGUMENTS = (
    *("micro", *SHORT, "--max-ongoing-requests", "1,10,100", "--num-replicas", "1"),
    *("--clients", "1", "--out", "run"),
)


def readable_records(folder: Path) -> int:
    """Every line but perhaps the last is whole; returns the number of finished trials."""
    lines = (folder / "records.jsonl").read_bytes().split(b"\n")
    for line in lines[:-1]:
        json.loads(line)
    return len(read(folder).trials)


LAUNCH, DEPLOY = r"launch: starting Ray", r"launch: Serve is up"
TRIAL, LOADED = r"\[1/\d\].*single client.*req/s", r"\| (connect|warmup)|req/s"

#: At which lines the sittings of one run are killed, and the trials finished by then.
KILLS = ((LAUNCH, 0), (DEPLOY, 0), (TRIAL, 1))


@cases(
    "victims",
    pytest.param("cli child cli", marks=pytest.mark.ci),
    pytest.param("child cli child", marks=pytest.mark.long),
)
def test_sigkill_leaves_nothing_and_resume_completes(victims: str, tmp_path: Path) -> None:
    """Each sitting goes on where the one before was killed; the last may end."""
    arguments: tuple[str, ...] = ARGUMENTS
    for victim, (line, finished) in zip(victims.split(), KILLS, strict=True):
        process = start(*arguments, cwd=tmp_path)
        wait_for_line(process, line)
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
        assert readable_records(tmp_path / "run") == finished, (victim, line)
        arguments = ("micro", "--resume", "run")
    run_checked(arguments, tmp_path)
    assert read(tmp_path / "run").complete
    assert readable_records(tmp_path / "run") == 3


@cases(
    "command, line",
    pytest.param("tax --layers uvicorn,default", r"launch: starting Serve", marks=pytest.mark.ci),
    pytest.param("versus --a optimized --aa", r"B \| deploy", marks=pytest.mark.ci),
    pytest.param("scale single --replicas 1 --duration 60s", LOADED, marks=pytest.mark.long),
)
def test_a_killed_command_leaves_nothing(command: str, line: str, tmp_path: Path) -> None:
    """Neither the bare server of a layer, nor one of two clusters, nor other nodes."""
    process = start(*command.split(), "--quick", "--out", "run", cwd=tmp_path)
    wait_for_line(process, line)
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -9 and wait_until_clean(15) == []


def test_where_the_warden_dies_too_the_cluster_ends_itself(tmp_path: Path) -> None:
    """With HAProxy and Ray's agents, which outlive a driver that just exits."""
    process = start(*ARGUMENTS, "--variant", "optimized", cwd=tmp_path)
    wait_for_line(process, LOADED)
    warden_of(process).kill()
    process.kill()
    process.communicate(timeout=30)
    assert wait_until_clean(15) == []


@pytest.mark.ci
def test_what_outlives_even_the_warden_is_swept_by_clean(tmp_path: Path) -> None:
    for folder in ("run1", "run2", "run3"):  # what other tests start just then may sweep it before
        process = start(*ARGUMENTS[:-1], folder, cwd=tmp_path)
        wait_for_line(process, DEPLOY)
        warden = warden_of(process)
        run = f"run {warden.cmdline()[-1]}:"  # runs that other tests kill meanwhile are swept too
        for victim in (warden, cluster_child(process), psutil.Process(process.pid)):
            victim.kill()
        process.communicate(timeout=30)
        if run in (swept := run_checked(["clean"], tmp_path).stdout):
            break
    assert run in swept
    assert wait_until_clean(2) == []
    assert run not in run_to_end(["clean"], tmp_path).stdout


def kill_all(parent: psutil.Process, name: str) -> None:
    """Also what a reload under way starts anew: until none was there for half a second."""
    last: float | None = None
    while last is None or time.monotonic() - last < 0.5:
        for child in parent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name() == name:
                    child.kill()
                    last = time.monotonic()
        time.sleep(0.02)


@pytest.mark.ci
def test_haproxy_that_ends_in_a_deploy_is_told_at_once(tmp_path: Path) -> None:
    """Serve itself would start it again only after half a minute; a poll sees no more than 404."""
    process = start(*ARGUMENTS, "--variant", "haproxy", cwd=tmp_path)
    wait_for_line(process, r"\| deploy")
    kill_all(cluster_child(process), "haproxy")
    output = ended(process, 1)
    assert re.search(r"haproxy \d+ ended during deploy", output), output
    assert "404" not in output and " answered " not in output
    (failure,) = {failure.message for failure in read(tmp_path / "run").failures}
    assert re.fullmatch(r"haproxy \d+ ended during deploy", failure)
    assert wait_until_clean(10) == []
