"""The wheel holds what a checkout holds beside the package, and finds it there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built wheel, unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("serve_bench-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.mark.wheel
@pytest.mark.parametrize("name", ["scenarios", "profiles", "reference", "report/templates"])
def test_data_is_shipped_whole(unpacked: Path, name: str) -> None:
    source = TOP / name if (TOP / name).is_dir() else TOP / "serve_bench" / name
    there = {file.name for file in source.rglob("*") if file.is_file()}
    shipped = {file.name for file in (unpacked / "serve_bench" / name).rglob("*") if file.is_file()}
    assert there
    assert shipped == there


@pytest.mark.wheel
def test_the_shipped_data_is_found_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import serve_bench.store.files as s, serve_bench.benchmarks.parts.published as p\n"
        "from serve_bench.report.page import environment\n"
        "environment().get_template('page.html')\n"
        "print(s.shipped('scenarios'), s.shipped('profiles'), len(p.published_notes()), sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    scenarios, profiles, notes = done.stdout.strip().split("|")
    assert Path(scenarios) == unpacked / "serve_bench" / "scenarios"
    assert Path(profiles) == unpacked / "serve_bench" / "profiles"
    assert notes == "3"


@pytest.mark.wheel
def test_the_cluster_child_starts_from_the_wheel_alone(unpacked: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-u", str(unpacked / "serve_bench" / "serving" / "cluster")],
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # stdin ended: so it does


@pytest.mark.wheel
def test_no_tests_and_no_caches_are_in_the_wheel(unpacked: Path) -> None:
    names = [str(file.relative_to(unpacked)) for file in unpacked.rglob("*")]
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]
    assert (unpacked / "serve_bench" / "cli").is_dir()
