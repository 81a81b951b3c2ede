"""Who may look into a process: a real other user on a real process of root, and made-up kernels."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import psutil
import pytest

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.observing import profiler as rights
from tests.cases import cases, refusal, sure
from tests.places import execute

pytestmark = pytest.mark.process

#: A user without rights. All that a command needs is loaded before: it may read no file of root.
STRANGER: Final = 65534
AS_A_STRANGER: Final = """
import os, sys
from serve_bench.cli.program import run
from serve_bench.observing.profiler import explain
run(["profile", "--pid", "999999999"])
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
sys.stderr.write("\\n")
"""


def as_a_stranger(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run these lines as that user; stderr is what they write there."""
    done = execute(sys.executable, "-c", f"{AS_A_STRANGER}{code}", str(STRANGER), *words)
    done.stderr = done.stderr.partition("\n\n")[2]
    return done


@pytest.mark.root
@cases("words", ["-o", "/dev/null/x.svg"], ["--dump"], ["--native"])
def test_a_real_user_without_rights_gets_one_line(words: list[str]) -> None:
    pid = str(os.getpid())
    done = as_a_stranger("sys.exit(run(sys.argv[2:]))", "profile", "--pid", pid, *words)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr == (
        f"serve-bench: process {pid} belongs to another user: "
        f'sudo env "PATH=$PATH" serve-bench profile --pid {pid}\n'
    )


@pytest.mark.root
def test_what_py_spy_says_to_that_user_means_the_same() -> None:
    """Should rights be lost between our look and py-spy's, its own words come out as our line."""
    pid = os.getpid()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        program = shutil.copy(rights.py_spy(), folder)
        stranger: dict[str, Any] = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
        said = execute(program, "dump", "--pid", str(pid), **stranger)
    assert said.returncode != 0
    meant = as_a_stranger("print(explain(sys.argv[2], int(sys.argv[3])))", said.stderr, str(pid))
    assert meant.stdout.startswith(f"process {pid} belongs to another user: sudo env"), said.stderr
    as_root = rights.explain(said.stderr, pid)
    assert as_root.startswith("not allowed to look into process")


def test_an_own_process_unless_the_kernel_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: psutil.Process().uids().real)
    if os.geteuid() == 0:
        assert "--cap-add SYS_PTRACE" in sure(rights.why_not_allowed(os.getpid()))
    monkeypatch.setattr(rights, "why_not_allowed", lambda pid: "no, because")
    with pytest.raises(RunFailed, match=r"^no, because$"):
        rights.check_process(os.getpid())


@cases("scope", 1, 2, 3)
def test_ptrace_scope_is_named(scope: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "scope").write_text("2\n")
    assert rights.ptrace_scope(tmp_path / "scope") == 2
    assert rights.ptrace_scope(tmp_path / "none") == 0  # a kernel without it restricts nothing
    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(psutil.Process, "uids", lambda self: SimpleNamespace(real=1234))
    monkeypatch.setattr(rights, "ptrace_scope", lambda: scope)
    said = rights.why_not_allowed(os.getpid())
    assert said is not None and said.startswith(f"ptrace_scope is {scope}")
    assert scope == 3 or "sudo env" in said
    monkeypatch.setattr(rights, "ptrace_scope", lambda: 0)
    assert rights.why_not_allowed(os.getpid()) is None


def test_a_dead_pid_a_zombie_and_what_is_no_python() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    said = refusal(rights.check_process, gone.pid)
    assert said == f"no process {gone.pid}: it has ended, or never was"
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert "has ended and waits for its parent" in refusal(rights.check_process, zombie.pid)
    zombie.wait()
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        while rights.is_python(sleeper.pid) is None:  # the kernel has not mapped the program yet
            pass
        with pytest.raises(BadInput, match=rf"^process {sleeper.pid} \(sleep\) is not Python"):
            rights.check_process(sleeper.pid)
        known = [rights.is_python(pid) for pid in (os.getpid(), sleeper.pid, 999999999)]
        sleeper.kill()
    assert known == [True, False, None]
