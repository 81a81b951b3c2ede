"""What a launch tells of the code that it measures: commit, sources, packages; without Ray."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.places import git
from tests.serving.test_cluster import CLUSTER


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the program that holds a cluster."""
    monkeypatch.syspath_prepend(str(CLUSTER))
    return importlib.import_module("measured")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with an app in a folder below its top, committed."""
    folder = tmp_path / "repository" / "service"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("import helper\n")
    (folder / "helper.py").write_text("one = 1\n")
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", "-A")
    git(folder.parent, "commit", "-q", "-m", "first")
    return folder


NAMES = ["app.py", "helper.py"]


@pytest.mark.git
def test_the_commit(
    measured: Any, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # of a hook, say: of another repository
    assert measured.commit(str(checkout), NAMES) == {"commit": head, "changes": 0}
    (checkout / "results").mkdir()
    (checkout / "results" / "records.jsonl").write_text("{}")  # no source, and not in git
    assert measured.commit(str(checkout), NAMES)["changes"] == 0
    (checkout / "helper.py").write_text("one = 2\n")
    (checkout / "more.py").write_text("")  # a source that git does not know
    told = measured.commit(str(checkout), [*NAMES, "more.py"])
    assert told == {"commit": head, "changes": 2}
    other = checkout.parent / "copied"  # sources that git does not know have none
    other.mkdir()
    (other / "app.py").write_text("")
    assert measured.commit(str(other), ["app.py"]) == {}  # the commit around it says nothing of it
    (tmp_path / "app.py").write_text("")  # outside of git
    assert measured.commit(str(tmp_path), ["app.py"]) == {}
    assert measured.commit(str(tmp_path / "gone"), ["app.py"]) == {}


def test_the_hash(measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    for place, text in (("a", "one = 1\n"), ("b", "one = 1\n"), ("c", "one = 2\n")):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "app.py").write_text("import helper\n")
        (folder / "helper.py").write_text(text)
        told = measured.digest({str(folder): NAMES})
        assert told["files"] == 2 and len(told["sources"]) == 64
        hashes.append(told["sources"])
    assert hashes[0] == hashes[1] != hashes[2]
    assert measured.digest({str(tmp_path / "a"): ["app.py", "gone.py"]}) == {}
    monkeypatch.setattr(measured, "MOST_BYTES", 10)
    assert measured.digest({str(tmp_path / "a"): NAMES}) == {}


def test_every_package_once(measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, version in (("second", "1.0"), ("first", "2.0")):
        info = tmp_path / place / f"Tiny_Rank-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: Tiny_Rank\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    (tmp_path / "first" / "left-3.0.dist-info").mkdir()  # of one that was removed
    told = measured.measured({})
    assert "app" not in told
    assert [one for one in told["packages"] if one.startswith("tiny")] == ["tiny-rank==2.0"]
    assert not any(one.startswith("left") for one in told["packages"])
    assert any(one.startswith("pytest==") for one in told["packages"])
    assert told["packages"] == sorted(told["packages"])
