"""What does not run is counted and reported, and refused where nothing may be deselected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import cases
from tests.places import TOP, execute

TWO_TESTS = """
import pytest

def test_plain():
    pass

@pytest.mark.torch
def test_special():
    pass
"""


def run_pytest(folder: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on TWO_TESTS under our conftest, in a process of its own without torch."""
    conftest = (TOP / "tests" / "conftest.py").read_text()
    (folder / "conftest.py").write_text(conftest.replace('_module("torch")', '_module("no_torch")'))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    torch: needs torch\n")
    (folder / "test_two.py").write_text(TWO_TESTS)
    inherited = {name: value for name, value in os.environ.items() if "SERVE_BENCH" not in name}
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    env = {**inherited, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env}
    return execute(*words, cwd=folder, env=env)


MISSING = "deselected: torch: no_torch is not installed"


def test_what_a_larger_set_has_is_counted_and_no_failure(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    env = {"SERVE_BENCH_DESELECTED": str(counted), "SERVE_BENCH_NO_DESELECT": "1"}
    done = run_pytest(tmp_path, "--set", "test", **env)
    assert done.returncode == 0 and "1 passed, 1 deselected" in done.stdout
    assert "left for make test-ci: 1\n" in done.stdout
    assert counted.read_text() == "left for make test-ci\n"
    done = run_pytest(tmp_path, "-m", "not torch", SERVE_BENCH_NO_DESELECT="1")
    assert done.returncode == 0  # a choice of stages is no deselection of ours


@cases("workers", (), ("-p", "xdist", "-n", "2"))
def test_what_is_missing_is_counted_once(tmp_path: Path, workers: tuple[str, ...]) -> None:
    counted = tmp_path / "counted"
    done = run_pytest(tmp_path, *workers, SERVE_BENCH_DESELECTED=str(counted))
    assert done.returncode == 0
    assert f"{MISSING}: 1\n" in done.stdout
    assert counted.read_text() == f"{MISSING}\n"
    done = run_pytest(tmp_path, *workers, SERVE_BENCH_NO_DESELECT="1")
    assert done.returncode == int(pytest.ExitCode.TESTS_FAILED)
    assert "nothing may be deselected here" in done.stdout
