"""Environments by a pip, and by an uv, that note what they were asked; worktrees of a real git."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from serve_bench.benchmarks.bisect.environments import BrokenVersion, Commits, Packages
from serve_bench.core.errors import BadInput, RunFailed

#: An interpreter whose pip has versions 1.0 to 1.3 of any package but `unknown`, and cannot install
#: 1.2; every call is a line of calls.txt. `stops.txt` beside it: installing stops there.
PROGRAM = """#!{python}
import os, subprocess, sys
from pathlib import Path
here, words = Path(__file__).parent, sys.argv[1:]
with (here / "calls.txt").open("a") as calls:
    calls.write(" ".join([Path(__file__).name, *words]) + chr(10))
if words[0] == "-c":
    sys.exit(subprocess.run([sys.executable, *words]).returncode)
if "venv" in words:
    made = Path(words[-1]) / "bin" / "python"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh" + chr(10) + f'exec {{sys.executable}} "$@"' + chr(10))
    made.chmod(0o755)
elif "index" in words:
    if words[-1] == "unknown":
        sys.exit("WARNING: experimental" + chr(10) + "ERROR: No matching distribution found")
    print(words[-1], "(1.3)" + chr(10) + "Available versions: 1.3, 1.2, 1.1, 1.0")
elif "--help" in words:
    print({help!r})
elif "compile" in words:
    print("upload-time = 2025-10-18T01:40:39Z" + chr(10) + "upload-time = 2025-10-17T01:40:39Z")
elif (here / "stops.txt").exists():
    os.kill(os.getppid(), 2)
    import time
    time.sleep(60)
elif any(word.endswith("==1.2") for word in words):
    sys.exit(chr(10).join(["  × No solution found:", "  hint: x", "no wheel for this Python"]))
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter above; no uv."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    return program(tmp_path / "python")


def program(file: Path, help: str = "") -> Path:
    file.write_text(PROGRAM.format(python=sys.executable, help=help))
    file.chmod(0o755)
    return file


def calls(base: Path) -> list[str]:
    file = base.parent / "calls.txt"
    return file.read_text().splitlines() if file.exists() else []


def packages(base: Path, good: str = "ray==1.0", bad: str = "ray==1.3", **more: object) -> Packages:
    given: dict[str, object] = {"cutoff": None, "extra": (), **more}
    return Packages.of((good, bad), str(base), cache=base.parent / "cache", **given)  # type: ignore[arg-type]


def installs(base: Path) -> list[str]:
    return [line for line in calls(base) if " install " in line and "--help" not in line]


def test_versions_between_the_ends_in_either_order(base: Path) -> None:
    names = ["ray==1.0", "ray==1.1", "ray==1.2", "ray==1.3"]
    assert [one.name for one in packages(base).points] == names
    assert [one.name for one in packages(base, "ray==1.3", "ray==1.0").points] == names[::-1]
    before = calls(base)
    known = packages(base, "ray==1.1", "ray==1.3", known=["1.1", "1.3"]).points
    assert [one.name for one in known] == ["ray==1.1", "ray==1.3"] and calls(base) == before


def test_an_environment_is_made_once_and_found_again(base: Path) -> None:
    search = packages(base)
    (note,) = search.notes
    assert note == "without uv there is no cut-off date: packages are those of today"
    python = Path(search.make(search.points[1]).python or "")
    assert python.name == "python" and python.exists()
    assert search.make(search.points[1]).python == packages(base).make(search.points[1]).python
    (line,) = installs(base)
    assert line == f"python -m pip --python {python} install --quiet ray[serve]==1.1 jinja2"
    (python.parents[1] / "serve-bench.json").unlink()  # a kill came before the mark
    search.make(search.points[1])
    assert len(installs(base)) == 2


def test_what_cannot_be_installed_is_broken_and_leaves_nothing(base: Path) -> None:
    search = packages(base)
    with pytest.raises(
        BrokenVersion, match=r"^python: No solution found: no wheel for this Python$"
    ):
        search.make(search.points[2])
    folder = base.parent / "cache" / "environments"
    assert [one for one in folder.iterdir() if one.is_dir()] == []


def test_ctrl_c_leaves_no_environment(base: Path) -> None:
    (base.parent / "stops.txt").touch()
    search = packages(base)
    with pytest.raises(KeyboardInterrupt):
        search.make(search.points[1])
    folder = base.parent / "cache" / "environments"
    assert [one for one in folder.iterdir() if one.is_dir()] == []


def test_a_new_pip_has_a_cut_off_date_where_one_is_given(base: Path) -> None:
    program(base, help="--uploaded-prior-to <datetime>")
    search = packages(base, cutoff="2025-12-31", extra=("numpy<2",))
    assert search.notes == ()
    search.make(search.points[0])
    (line,) = installs(base)
    assert line.endswith("--quiet --uploaded-prior-to 2025-12-31 ray[serve]==1.0 jinja2 numpy<2")


def test_uv_installs_packages_of_the_day_after_the_release(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = program(base.parent / "uv")
    monkeypatch.setattr("shutil.which", lambda name: str(uv))
    search = packages(base)
    made = search.make(search.points[0])
    line = installs(base)[-1]
    assert line.endswith(
        f"--python {made.python} --exclude-newer 2025-10-19 ray[serve]==1.0 jinja2"
    )
    mark = json.loads((Path(made.python or "").parents[1] / "serve-bench.json").read_text())
    assert mark == {"with": ["ray[serve]==1.0", "jinja2"], "cutoff": "2025-10-19"}


def test_of_another_package_all_others_are_kept(base: Path) -> None:
    search = packages(base, "starlette==1.0", "starlette==1.1")
    made = search.make(search.points[0])
    (line,) = installs(base)
    file = Path(line.split(" -c ")[1].split()[0])
    kept = file.read_text().splitlines()
    assert any(one.startswith("ray==") for one in kept)
    assert not any(one.startswith("starlette==") for one in kept)
    assert "starlette==1.0 ray[serve]==" in line and str(made.python) in line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"good": "ray"}, "--good: 'ray' is not allowed; it takes PACKAGE==VERSION"),
        ({"bad": "ray==9"}, "--bad: ray[serve] has no version 9 here; the newest: 1.0, 1.1, 1.2"),
        ({"bad": "ray==1.0"}, "--good, --bad: both are ray==1.0"),
        ({"bad": "numpy==1.0"}, "--good, --bad: are ray and numpy: name one package"),
        ({"good": "--x==1"}, "--good: '--x==1' is not allowed"),
        ({"cutoff": "yesterday"}, "--cutoff: 'yesterday' is not allowed; it takes a date"),
        ({"cutoff": "2999-01-01"}, "--cutoff: 2999-01-01 is yet to come"),
        ({"extra": ("--index-url=x",)}, "--with: '--index-url=x' is not allowed"),
        ({"extra": ("none.txt",)}, "--with: none.txt: there is no such file"),
    ],
)
def test_refusals(base: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as told:
        packages(base, **given)  # type: ignore[arg-type]
    assert str(told.value).startswith(words)


def test_without_an_index_it_says_why(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(base))
    with pytest.raises(RunFailed, match=r"^no versions of unknown: python: ERROR: No matching"):
        packages(base, "unknown==1.0", "unknown==1.1")


# ------------------------------------------------------------------------------- commits


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.email=a@example.com", "-c", "user.name=A")
    done = subprocess.run(
        ["git", *named, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(folder: Path, commits: int = 5, texts: Sequence[str] = ()) -> Path:
    """A repository with an app in a folder of it, its version the number of the commit, or with
    these texts."""
    texts = texts or [f"VERSION = {number}\n" for number in range(1, commits + 1)]
    (folder / "shop").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for number, text in enumerate(texts, 1):
        (folder / "shop" / "app.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"Change {number}")
    return folder / "shop" / "app.py"


@pytest.mark.git
def test_commits_between_the_ends_and_their_worktrees(tmp_path: Path) -> None:
    file = repository(tmp_path / "repo")
    search = Commits.of(("HEAD~3", "main"), file)
    assert [one.title for one in search.points] == [f"Change {number}" for number in (2, 3, 4, 5)]
    back = Commits.of(("main", "HEAD~3"), file)
    assert back.points == search.points[::-1] and search.notes == ()
    search.begin(tmp_path / "trees")
    for number, point in enumerate(search.points, 2):
        made = search.make(point)
        assert Path(made.file or "").read_text() == f"VERSION = {number}\n"
    assert len(git(file.parent, "worktree", "list").splitlines()) == 5
    search.close()
    assert len(git(file.parent, "worktree", "list").splitlines()) == 1
    assert not (tmp_path / "trees").exists() and git(file.parent, "status", "--porcelain") == ""


@pytest.mark.git
def test_a_worktree_that_a_kill_left_is_made_anew(tmp_path: Path) -> None:
    file = repository(tmp_path / "repo")
    killed = Commits.of(("HEAD~3", "main"), file)
    killed.begin(tmp_path / "trees")
    left = Path(killed.make(killed.points[0]).file or "")
    left.write_text("half\n")
    search = Commits.of(("HEAD~3", "main"), file)
    search.begin(tmp_path / "trees")
    assert Path(search.make(search.points[0]).file or "").read_text() == "VERSION = 2\n"
    search.close()
    assert len(git(file.parent, "worktree", "list").splitlines()) == 1


@pytest.mark.git
def test_merges_count_once_and_hooks_are_not_run(tmp_path: Path) -> None:
    file = repository(tmp_path / "repo", 2)
    top = file.parent.parent
    git(top, "checkout", "-q", "-b", "side", "HEAD~1")
    (top / "other.txt").write_text("x")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "Beside")
    git(top, "checkout", "-q", "main")
    git(top, "merge", "-q", "--no-ff", "-m", "Merge side", "side")
    hook = top / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'hooked'}\n")
    hook.chmod(0o755)
    search = Commits.of(("HEAD~2", "HEAD"), file)
    assert [one.title for one in search.points] == ["Change 1", "Change 2", "Merge side"]
    search.begin(tmp_path / "trees")
    search.make(search.points[0])
    search.close()
    assert not (tmp_path / "hooked").exists()


@pytest.mark.git
def test_a_commit_without_the_app_is_broken_and_changes_are_left_out(tmp_path: Path) -> None:
    file = repository(tmp_path / "repo")
    other = file.with_name("new.py")
    other.write_text("VERSION = 0\n")
    git(file.parent, "add", "-A")
    search = Commits.of(("HEAD~1", "HEAD"), other)
    assert search.notes == ("uncommitted changes are left out: commits are measured",)
    search.begin(tmp_path / "trees")
    with pytest.raises(BrokenVersion, match=r"^shop/new\.py: not in this commit$"):
        search.make(search.points[0])
    search.close()


@pytest.mark.git
@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (("none", "HEAD"), "--good: 'none' is no commit of"),
        (("HEAD", "--all"), "--bad: '--all' is no commit of"),
        (("HEAD", "main"), "--good, --bad: both are the commit"),
        (("other", "HEAD"), "--good: other is no ancestor of --bad HEAD"),
    ],
)
def test_commits_that_are_refused(tmp_path: Path, ends: tuple[str, str], words: str) -> None:
    file = repository(tmp_path / "repo")
    git(file.parent, "checkout", "-q", "--orphan", "other")
    git(file.parent, "commit", "-q", "-m", "Of another root")
    git(file.parent, "checkout", "-q", "main")
    with pytest.raises(BadInput) as told:
        Commits.of(ends, file)
    assert str(told.value).startswith(words)


def test_an_app_in_no_repository(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("VERSION = 1\n")
    with pytest.raises(BadInput, match=r"is in no repository of git: git: fatal: not a git repos"):
        Commits.of(("a", "b"), tmp_path / "app.py")
