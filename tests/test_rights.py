"""Who may look into a process: a real other user on a real process of root, and made-up kernels."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serve_bench import cli, rights
from serve_bench.errors import BadInput, RunFailed
from serve_bench.rights import check_process, is_python, ptrace_scope, why_not_allowed

NOBODY = 65534


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def as_nobody(code: str) -> str:
    """Runs code in a copy of this process that has become a user without rights."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(write, str(eval(code, {**globals()})).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.root
def test_a_process_of_another_user_is_one_line_with_the_command() -> None:
    said = as_nobody(f"why_not_allowed({os.getpid()})")
    assert said == (
        f"process {os.getpid()} belongs to another user: "
        f'sudo env "PATH=$PATH" serve-bench profile --pid {os.getpid()}'
    )


@pytest.mark.root
def test_the_command_says_it_too_and_exits_with_1() -> None:
    import serve_bench.processes
    import serve_bench.recipes
    import serve_bench.recording  # noqa: F401 - another user may not read these files

    said = as_nobody(f"command('profile', '--pid', '{os.getpid()}', '-o', '/dev/null/x.svg')")
    code, _, line = said.partition(" ")
    assert code == "1"
    assert line.startswith(f"serve-bench: process {os.getpid()} belongs to another user: sudo env")
    assert line.count("\n") == 1


def command(*words: str) -> str:
    """The exit code of serve-bench, and what it wrote to stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = cli.run(words)
    return f"{code} {stderr.getvalue()}"


def test_an_own_process_may_be_looked_into_unless_the_kernel_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: psutil.Process().uids().real)
    if os.geteuid() == 0:
        said = why_not_allowed(os.getpid())
        assert said is not None and "--cap-add SYS_PTRACE" in said
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(rights, "ptrace_scope", lambda: 1)
    said = why_not_allowed(os.getpid())
    assert said is not None and "sudo env" in said


@pytest.mark.parametrize("scope", [1, 2, 3])
def test_ptrace_scope_is_named(scope: int, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = 1234

    class Mine:
        real = uid

    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(psutil.Process, "uids", lambda self: Mine)
    monkeypatch.setattr(rights, "ptrace_scope", lambda: scope)
    said = why_not_allowed(os.getpid())
    assert said is not None and said.startswith(f"ptrace_scope is {scope}")
    monkeypatch.setattr(rights, "ptrace_scope", lambda: 0)
    assert why_not_allowed(os.getpid()) is None


def test_ptrace_scope_is_read_and_a_kernel_without_it_restricts_nothing(tmp_path: Path) -> None:
    (tmp_path / "scope").write_text("2\n")
    assert ptrace_scope(tmp_path / "scope") == 2
    assert ptrace_scope(tmp_path / "none") == 0


def test_a_dead_pid_a_zombie_and_what_is_no_python(sleeper: subprocess.Popen[bytes]) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(BadInput, match=f"^no process {gone.pid}: it has ended, or never was$"):
        check_process(gone.pid)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    with pytest.raises(BadInput, match="has ended and waits for its parent"):
        check_process(zombie.pid)
    zombie.wait()
    with pytest.raises(BadInput, match=rf"^process {sleeper.pid} \(sleep\) is not Python"):
        check_process(sleeper.pid)


def test_python_is_told_by_what_is_mapped(sleeper: subprocess.Popen[bytes]) -> None:
    assert is_python(os.getpid()) is True
    assert is_python(sleeper.pid) is False
    assert is_python(999999999) is None


def test_a_process_that_may_not_be_looked_into_fails_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "why_not_allowed", lambda pid: "no, because")
    with pytest.raises(RunFailed, match=r"^no, because$"):
        check_process(os.getpid())
