"""Who may look into a process: a real other user on a real process of root, and made-up kernels."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.observing import profiler as rights
from serve_bench.observing.profiler import (
    check_process,
    explain,
    is_python,
    ptrace_scope,
    py_spy,
    why_not_allowed,
)

pytestmark = pytest.mark.process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


#: Prints the top-level packages that the command needs, and where they are.
NEEDED = """
import sys
from serve_bench.cli.program import run
run(["profile", "--pid", "999999999"])
for name in sorted({module.partition(".")[0] for module in sys.modules}):
    place = getattr(sys.modules.get(name), "__file__", None) or ""
    if "site-packages" in place or name == "serve_bench":
        print(place)
"""


@dataclass(frozen=True)
class Stranger:
    """A user made for the test, and a place where all that serve-bench needs can be read by it."""

    uid: int
    gid: int
    place: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program as that user."""
        return subprocess.run(
            words,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            cwd=self.place,
            env={"PATH": f"{self.place}:/usr/bin:/bin", **self.python_environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def python_environment(self) -> dict[str, str]:
        """An interpreter of a home that only root may enter works from its copy."""
        return {
            "PYTHONHOME": str(self.place / "python"),
            "PYTHONPATH": str(self.place / "packages"),
            "LD_LIBRARY_PATH": str(self.place / "python" / "lib"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    name = f"sb-test-{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)
    try:
        found = pwd.getpwnam(name)
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            place = Path(folder)
            place.chmod(0o755)
            _copy_interpreter(place / "python")
            (place / "packages").mkdir()
            for package in _needed():
                _copy(package, place / "packages")
            _copy(Path(py_spy()), place)
            yield Stranger(found.pw_uid, found.pw_gid, place)
    finally:
        subprocess.run(["userdel", name], check=True)


def _needed() -> list[Path]:
    told = subprocess.run(
        [sys.executable, "-c", NEEDED],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    files = [Path(line) for line in told.stdout.splitlines()]
    return [file.parent if file.name == "__init__.py" else file for file in files]


def _copy(source: Path, folder: Path) -> None:
    if source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, folder / source.name, ignore=ignore)
    else:
        shutil.copy(source, folder / source.name)


def _copy_interpreter(folder: Path) -> None:
    """The interpreter and its standard library, without its tests and what was installed."""
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    skip = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "idlelib", "*.a")
    shutil.copytree(library, folder / "lib" / library.name, ignore=skip)
    for shared in (Path(sys.base_prefix) / "lib").glob("libpython3*.so*"):
        shutil.copy(shared, folder / "lib" / shared.name)
    (folder / "bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), folder / "bin" / "python3")


def serve_bench_as(user: Stranger, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return user.run(str(user.place / "python" / "bin" / "python3"), "-m", "serve_bench", *words)


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [["-o", "/dev/null/x.svg"], ["--dump"], ["--native"]],
    ids=["record", "dump", "native"],
)
def test_a_real_user_without_rights_gets_one_line(words: list[str], stranger: Stranger) -> None:
    pid = os.getpid()
    done = serve_bench_as(stranger, ["profile", "--pid", str(pid), *words])
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        f"serve-bench: process {pid} belongs to another user: "
        f'sudo env "PATH=$PATH" serve-bench profile --pid {pid}\n'
    )


@pytest.mark.root
def test_what_py_spy_says_to_that_user_means_the_same(stranger: Stranger) -> None:
    """Should rights be lost between our look and py-spy's, its own words come out as our line."""
    pid = os.getpid()
    said = stranger.run(str(stranger.place / "py-spy"), "dump", "--pid", str(pid))
    assert said.returncode != 0
    script = (
        "from serve_bench.observing.profiler import explain; "
        f"print(explain({said.stderr!r}, {pid}))"
    )
    told = stranger.run(str(stranger.place / "python" / "bin" / "python3"), "-c", script)
    assert told.stdout.startswith(f"process {pid} belongs to another user: sudo env"), said.stderr
    assert explain(said.stderr, pid).startswith("not allowed to look into process")  # as root


def test_an_own_process_may_be_looked_into_unless_the_kernel_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: psutil.Process().uids().real)
    if os.geteuid() == 0:
        said = why_not_allowed(os.getpid())
        assert said is not None and "--cap-add SYS_PTRACE" in said


@pytest.mark.parametrize("scope", [1, 2, 3])
def test_ptrace_scope_is_named(scope: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "_has_ptrace", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(psutil.Process, "uids", lambda self: SimpleNamespace(real=1234))
    monkeypatch.setattr(rights, "ptrace_scope", lambda: scope)
    said = why_not_allowed(os.getpid())
    assert said is not None and said.startswith(f"ptrace_scope is {scope}")
    assert scope == 3 or "sudo env" in said
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
