"""Marks, reaping, sweeping: what is ours goes, what is not ours stays. Real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serve_bench import strays
from serve_bench.strays import LAUNCH_MARK, RUN_MARK

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def marked(
    run_id: str, launch: str | None = None, argv: list[str] = SLEEP
) -> subprocess.Popen[bytes]:
    owner = (strays.run_directory(run_id) / strays.OWNER_FILE).read_text()
    env = {**os.environ, **strays.marks(run_id), strays.OWNER_MARK: owner}
    if launch:
        env[LAUNCH_MARK] = f"{run_id}.{launch}"
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)


@pytest.fixture
def run_id() -> Iterator[str]:
    made = strays.new_run()
    yield made
    strays.reap(made)


def test_a_run_has_a_directory_that_names_this_process_as_its_owner(run_id: str) -> None:
    owner = (strays.run_directory(run_id) / strays.OWNER_FILE).read_text()
    assert owner.split(":")[0] == str(os.getpid())
    assert strays.owner_alive(owner)


def test_the_directory_is_short_enough_for_a_socket_of_haproxy(run_id: str) -> None:
    assert len(str(strays.run_directory(run_id) / "99" / "h")) <= 29


def test_reap_ends_the_marked_and_their_children_and_nothing_else(run_id: str) -> None:
    bystander = subprocess.Popen(SLEEP)
    parent = marked(
        run_id,
        argv=[
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            f"os.environ.pop({RUN_MARK!r})\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(60)",
        ],
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    reaped = strays.reap(run_id)
    assert parent.wait(5) == -9
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert bystander.poll() is None
    assert reaped.killed == 2 and reaped.leftovers == ()
    assert not strays.run_directory(run_id).exists()
    bystander.kill()
    bystander.wait()


def test_reaping_one_launch_leaves_the_other(run_id: str) -> None:
    one, two = marked(run_id, "1"), marked(run_id, "2")
    (strays.run_directory(run_id) / "1").mkdir()
    (strays.run_directory(run_id) / "2").mkdir()
    strays.reap(run_id, "1")
    assert one.wait(5) == -9
    assert two.poll() is None
    assert not (strays.run_directory(run_id) / "1").exists()
    assert (strays.run_directory(run_id) / "2").exists()
    strays.reap(run_id)
    assert two.wait(5) == -9


def test_a_process_without_a_mark_is_found_by_a_file_it_holds_open(run_id: str) -> None:
    log = strays.run_directory(run_id) / "agent.log"
    code = f"import time; f = open({str(log)!r}, 'w'); print('open', flush=True); time.sleep(60)"
    agent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"open\n"
    assert [process.pid for process in strays.find(run_id)] == [agent.pid]
    strays.reap(run_id)
    assert agent.wait(5) == -9


def test_sweep_spares_runs_whose_owner_lives_and_ends_the_others(run_id: str) -> None:
    mine = marked(run_id)
    maker = [sys.executable, "-c", "from serve_bench import strays; print(strays.new_run())"]
    dead_run = subprocess.run(maker, capture_output=True, text=True, check=True).stdout.strip()
    stray = marked(dead_run)
    swept = strays.sweep()
    assert dead_run in swept and run_id not in swept
    assert stray.wait(5) == -9
    assert not strays.run_directory(dead_run).exists()
    assert mine.poll() is None
    mine.kill()
    mine.wait()


def test_a_run_of_a_shell_with_another_tmpdir_is_spared_while_its_owner_lives() -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as other:
        code = (
            "import os, subprocess, sys, time\n"
            "from serve_bench import strays\n"
            "run = strays.new_run()\n"
            "env = dict(os.environ, **strays.marks(run))\n"
            "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env=env)\n"
            "print(run, p.pid, flush=True); time.sleep(60)"
        )
        owner = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": other},
        )
        assert owner.stdout is not None
        run_id, pid = owner.stdout.readline().split()
        worker = psutil.Process(int(pid))
        assert strays.known_runs()[run_id].directory.parent == Path(other)
        assert run_id not in strays.sweep()
        assert worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE
        owner.kill()
        owner.wait()
        assert strays.sweep()[run_id].killed == 1
        assert list(Path(other).iterdir()) == []


def test_a_pid_that_was_given_to_another_process_is_no_owner() -> None:
    pid, created, namespace = strays.owner_of(psutil.Process()).split(":")
    assert strays.owner_alive(f"{pid}:{created}:{namespace}")
    assert not strays.owner_alive(f"{pid}:{float(created) - 60}:{namespace}")
    assert not strays.owner_alive("")


def test_the_run_of_another_pid_namespace_is_left_alone() -> None:
    assert strays.owner_alive("999999999:1.0:1")


@pytest.mark.root  # only root can make a directory that is another user's
def test_the_run_of_another_user_is_passed_over() -> None:
    directory = strays.temp_root() / f"{strays.DIRECTORY_PREFIX}abcde0"
    directory.mkdir(mode=0o700)
    (directory / strays.OWNER_FILE).write_text("1:1.0:1")
    os.chown(directory, 12345, 12345)
    try:
        assert "abcde0" not in strays.known_runs()
    finally:
        shutil.rmtree(directory)


def test_a_directory_without_an_owner_is_spared_while_it_is_young() -> None:
    directory = strays.temp_root() / f"{strays.DIRECTORY_PREFIX}abcdef"
    directory.mkdir()
    try:
        assert "abcdef" not in strays.known_runs()
        os.utime(directory, (1, 1))
        assert "abcdef" in strays.sweep()
        assert not directory.exists()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_the_warden_ends_the_run_when_its_owner_is_killed() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "from serve_bench import strays\n"
        "run = strays.new_run(); warden = strays.start_warden(run)\n"
        "env = dict(os.environ, **strays.marks(run))\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env=env)\n"
        "print(run, p.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    run_id, pid = owner.stdout.readline().split()
    worker = psutil.Process(int(pid))
    owner.kill()
    owner.wait()
    psutil.wait_procs([worker], timeout=10)
    deadline = time.monotonic() + 10
    while strays.run_directory(run_id).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert not strays.run_directory(run_id).exists()


def test_the_warden_lets_go_when_the_run_ended_by_itself(run_id: str) -> None:
    warden = strays.start_warden(run_id)
    strays.reap(run_id)
    assert warden.stdin is not None
    warden.stdin.close()
    assert warden.wait(10) == 0
