import io
import os
import queue
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from serve_bench.serving import strays
from tests.cases import cases, sure
from tests.places import CLUSTER, begin, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

#: The pid namespace of the owners here. What others on this machine sweep, as each start of a run
#: does, passes over our dead runs, and we pass over theirs.
NAMESPACE = 7


@pytest.fixture(autouse=True)
def _among_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "_pid_namespace", lambda pid: NAMESPACE)


def start_in(env: Mapping[str, str], *argv: str, **about: Any) -> subprocess.Popen[str]:
    process = begin(*argv, env={**os.environ, **env}, **about)
    wait_until(lambda: strays.RUN_MARK in psutil.Process(process.pid).environ())
    return process


def marked(run_id: str, launch: str = "", argv: Sequence[str] = SLEEP) -> subprocess.Popen[str]:
    owner = (strays.run_directory(run_id) / strays.OWNER_FILE).read_text()
    env = {**strays.marks(run_id), strays.OWNER_MARK: owner}
    return start_in(env | ({strays.LAUNCH_MARK: f"{run_id}.{launch}"} if launch else {}), *argv)


@pytest.fixture
def run_id() -> Iterator[str]:
    made = strays.new_run()
    yield made
    strays.reap(made)


def test_a_run_has_a_short_directory_that_names_this_process(run_id: str) -> None:
    owner = (strays.run_directory(run_id) / strays.OWNER_FILE).read_text()
    assert owner.split(":")[0] == str(os.getpid())
    assert strays.owner_alive(owner)
    assert len(str(strays.run_directory(run_id) / "99" / "h")) <= 29


def test_reap_ends_the_marked_and_their_children_and_nothing_else(run_id: str) -> None:
    bystander = subprocess.Popen(SLEEP)
    code = f"env -u {strays.RUN_MARK} sleep 60 & echo $!; wait"
    parent = marked(run_id, argv=["sh", "-c", code])
    child = psutil.Process(int(sure(parent.stdout).readline()))
    reaped = strays.reap(run_id)
    assert parent.wait(5) == -9
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert bystander.poll() is None
    assert reaped.killed == 2 and reaped.leftovers == ()
    assert not strays.run_directory(run_id).exists()
    bystander.kill()
    bystander.wait()


def test_reaping_one_launch_leaves_the_other(run_id: str) -> None:
    first, second = marked(run_id, "1"), marked(run_id, "2")
    (strays.run_directory(run_id) / "1").mkdir()
    (strays.run_directory(run_id) / "2").mkdir()
    strays.reap(run_id, "1")
    assert first.wait(5) == -9
    assert second.poll() is None
    assert not (strays.run_directory(run_id) / "1").exists()
    assert (strays.run_directory(run_id) / "2").exists()
    strays.reap(run_id)
    assert second.wait(5) == -9


def test_a_process_without_a_mark_is_found_by_a_file_it_holds_open(run_id: str) -> None:
    log = strays.run_directory(run_id) / "agent.log"
    code = f"import time; f = open({str(log)!r}, 'w'); print('open', flush=True); time.sleep(60)"
    agent = begin(sys.executable, "-c", code)
    assert agent.stdout is not None and agent.stdout.readline() == "open\n"
    assert [process.pid for process in strays.find(run_id)] == [agent.pid]
    strays.reap(run_id)
    assert agent.wait(5) == -9


def test_sweep_spares_runs_whose_owner_lives_and_ends_the_others(run_id: str) -> None:
    mine, dead_run = marked(run_id), strays.new_run()
    (strays.run_directory(dead_run) / strays.OWNER_FILE).write_text(f"999999999:1:{NAMESPACE}")
    stray = marked(dead_run)
    swept = strays.sweep()
    assert dead_run in swept and run_id not in swept
    assert stray.wait(5) == -9
    assert not strays.run_directory(dead_run).exists()
    assert mine.poll() is None
    mine.kill()
    mine.wait()


#: A run whose owner, this program, has started a worker; it tells the run and the worker's pid.
OWNER = f"""
import os, subprocess, sys, time
from serve_bench.serving import strays
strays._pid_namespace = lambda pid: {NAMESPACE}
run = strays.new_run()
warden = strays.start_warden(run) if sys.argv[1:] else None
worker = "import time; print(flush=True); time.sleep(60)"
env = dict(os.environ, **strays.marks(run))
p = subprocess.Popen([sys.executable, "-c", worker], env=env, stdout=-1)
p.stdout.readline()  # before its exec has ended a process has no environment
print(run, p.pid, flush=True)
time.sleep(60)
"""


def start_owner(*words: str, **env: str) -> tuple[subprocess.Popen[str], str, psutil.Process]:
    owner = begin(sys.executable, "-c", OWNER, *words, env={**os.environ, **env}, stderr=None)
    run_id, pid = sure(owner.stdout).readline().split()
    return owner, run_id, psutil.Process(int(pid))


def test_a_run_of_a_shell_with_another_tmpdir_is_spared_while_its_owner_lives() -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as other:
        owner, run_id, worker = start_owner(TMPDIR=other)
        assert strays.known_runs()[run_id].directory.parent == Path(other)
        assert run_id not in strays.sweep()
        assert worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE
        owner.kill()
        owner.wait()
        assert strays.sweep()[run_id].killed == 1
        assert list(Path(other).iterdir()) == []


def test_a_pid_of_another_process_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = strays.owner_of(psutil.Process())
    pid, began, namespace = owner.split(":")
    assert strays.owner_alive(owner)
    assert not strays.owner_alive(f"{pid}:{int(began) - 60}:{namespace}")
    assert not strays.owner_alive("")
    assert strays.owner_alive("999999999:1:1")  # of another pid namespace: it is left alone
    known = strays.started(os.getpid())
    real = psutil.Process.create_time  # what is told follows the clock of the day
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: real(self) + 3600.0)
    assert strays.owner_alive(owner) and strays.started(os.getpid()) == known


@pytest.mark.root  # only root can make a directory that is another user's
def test_the_run_of_another_user_is_passed_over_and_never_removed(run_id: str) -> None:
    directory = strays.run_directory(run_id)
    (directory / strays.OWNER_FILE).write_text(f"999999999:1:{NAMESPACE}")
    os.chown(directory, 12345, 12345)
    try:
        assert run_id not in strays.known_runs()
        assert strays.reap(run_id, place=directory).leftovers == (f"directory {directory}",)
        assert (directory / strays.OWNER_FILE).exists()
    finally:
        shutil.rmtree(directory)


@pytest.mark.root  # only root can start a process that is another user's
def test_marks_of_another_user_are_not_believed(tmp_path: Path) -> None:
    """Anybody can name a folder and a dead owner: as root we would remove the one for him."""
    victim = tmp_path / f"{strays.DIRECTORY_PREFIX}abcde1"
    victim.mkdir()
    (victim / "precious").write_text("not ours to remove")
    marks = {
        strays.RUN_MARK: "abcde1",
        strays.DIRECTORY_MARK: str(victim),
        strays.OWNER_MARK: f"1:1:{strays.owner_of(psutil.Process()).rpartition(':')[2]}",
    }
    code = f"f = open({str(victim / 'precious')!r}); input()"
    holder = begin(sys.executable, "-c", code, stdin=subprocess.PIPE)
    other = start_in(marks, "sleep", "60", user=65534)
    try:
        assert "abcde1" not in strays.known_runs()
        assert "abcde1" not in strays.sweep()
        assert other.pid not in [process.pid for process in strays.find("abcde1", place=victim)]
        assert (victim / "precious").exists()
        assert holder.poll() is None and other.poll() is None
    finally:
        for process in (holder, other):
            process.kill()
            process.communicate()


def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("")
    place = tmp_path / f"{strays.DIRECTORY_PREFIX}abcde3"
    place.symlink_to(target)
    strays.reap("abcde3", place=place)
    assert (target / "file").exists()


def test_a_directory_without_an_owner_is_spared_while_it_is_young(run_id: str) -> None:
    directory = strays.run_directory(run_id)
    (directory / strays.OWNER_FILE).unlink()
    assert run_id not in strays.known_runs()
    os.utime(directory, (1, 1))
    assert run_id in strays.sweep() and not directory.exists()


def test_the_warden_ends_the_run_when_its_owner_is_killed() -> None:
    owner, run_id, worker = start_owner("with a warden")
    owner.kill()
    owner.wait()
    psutil.wait_procs([worker], timeout=10)
    wait_until(lambda: not strays.run_directory(run_id).exists())
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_the_warden_ends_the_run_of_an_owner_that_is_killed_before_it_is_up(run_id: str) -> None:
    words = (sys.executable, "-m", "serve_bench.serving.strays", run_id)
    warden = begin(*words, stdin=subprocess.PIPE)
    sure(warden.stdout).close()
    sure(warden.stdin).close()
    assert warden.wait(10) == 0 and not strays.run_directory(run_id).exists()


def test_the_warden_lets_go_when_the_run_ended_by_itself(run_id: str) -> None:
    warden = strays.start_warden(run_id)
    strays.reap(run_id)
    sure(warden.stdin).close()
    assert warden.wait(10) == 0


@cases("elsewhere", False, True)
def test_a_mark_does_not_make_a_live_run_dead(
    elsewhere: bool, run_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A setuid program is ours and has the environment of its caller, who may be anybody."""
    place = strays.run_directory(run_id)
    liar = start_in(strays.marks(run_id) | {strays.OWNER_MARK: f"1:1:{NAMESPACE}"}, *SLEEP)
    try:
        if elsewhere:  # the run has another temporary directory than who looks
            monkeypatch.setattr(strays, "temp_root", lambda: tmp_path)
        known = strays.known_runs()[run_id]
        assert known.directory == place and strays.owner_alive(known.owner)
        monkeypatch.setattr(strays, "known_runs", lambda: {run_id: known})
        assert strays.sweep() == {}
        assert place.is_dir() and liar.poll() is None
    finally:
        liar.kill()
        liar.wait()


def test_a_mark_names_no_directory_but_that_of_a_run(run_id: str, tmp_path: Path) -> None:
    marks = {strays.RUN_MARK: "zz", strays.DIRECTORY_MARK: str(tmp_path / "sb-zz")}
    with start_in({**marks, strays.OWNER_MARK: "1:1:1"}, *SLEEP) as liar:
        assert "zz" not in strays.known_runs()
        liar.kill()


def test_the_last_launch_takes_the_directory_of_the_run_with_it(tmp_path: Path) -> None:
    run = tmp_path / "sb-abcdef"
    (run / "1").mkdir(parents=True)
    for name in (strays.OWNER_FILE, ".12.proxy-5.raw.txt.draft"):
        (run / name).write_text("x")
    ending = runpy.run_path(str(CLUSTER / "ending.py"))
    ending["remove"](run, "1")
    assert not run.exists()


@cases("rest", "", '{"command": "dep')
def test_the_end_of_the_parent_in_a_line(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CLUSTER))
    program = runpy.run_path(str(CLUSTER / "__main__.py"))
    ended = queue.Queue[str]()
    monkeypatch.setattr(program["ending"], "become", lambda: ended.put("became the end"))
    monkeypatch.setattr(os, "_exit", lambda code: ended.put(f"exit {code}"))
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"command": "proof"}\n' + rest))
    commands = program["read_commands"](program["Cluster"](Mock()).end)
    assert ended.get(timeout=5) == "became the end" and ended.get(timeout=5) == "exit 0"
    assert commands.get_nowait() == {"command": "proof"} and commands.empty()
