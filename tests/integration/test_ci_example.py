"""The example of a user's project under continuous integration, in a clean environment.

The environment has our wheel, as a user's would; Ray and what else is heavy it sees where it is
installed here. What is run is what the workflow says, word for word.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_ci_example import EXAMPLE, commands

TOP = Path(__file__).parents[2]

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.wheel, pytest.mark.timeout(300)]

Say = Callable[[str], subprocess.CompletedProcess[str]]

#: The planted regression: the ingress computes 40 ms more, one request after the other.
HANDLER = "    async def best(self, user: int = 0) -> dict:\n"
SPIN = """\
        import time
        until = time.perf_counter() + 0.04
        while time.perf_counter() < until:
            pass
"""


@pytest.fixture
def clean(tmp_path: Path) -> Say:
    """Says a command of the workflow to a shell, in a copy of the project, in an environment that
    has our wheel."""
    wheel = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert wheel.returncode == 0, wheel.stderr
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    (built,) = tmp_path.glob("serve_bench-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "env" / "bin" / "python")]
    put = subprocess.run(
        [*pip, "install", "--no-index", "--no-deps", str(built)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert put.returncode == 0, put.stderr
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "heavy.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    shutil.copytree(EXAMPLE, tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    env |= {
        "PATH": f"{tmp_path}/env/bin:{env['PATH']}",
        "PIP_NO_INDEX": "1",
        "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
    }

    def say(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", command],
            cwd=tmp_path / "shop",
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    where = say("python -c 'import serve_bench; print(serve_bench.__file__)'")
    assert where.stdout.startswith(str(site)), where.stdout
    return say


def test_the_stored_rounds_pass_on_the_same_app_and_fail_on_a_slow_one(
    clean: Say, tmp_path: Path
) -> None:
    install, compare, store = commands("stored")
    installed = clean(install)
    assert installed.returncode == 0, installed.stderr
    assert "already satisfied: serve-bench" in installed.stdout

    stored = clean(store)
    assert stored.returncode == 0, stored.stdout
    assert (
        "2 passed" in stored.stdout and "Saved benchmark data in" in stored.stdout + stored.stderr
    )

    same = clean(compare)
    assert same.returncode == 0, same.stdout + same.stderr
    assert "0001_main" in same.stdout and "Ranker 1, Shop 1" in same.stdout

    app = tmp_path / "shop" / "app.py"
    assert HANDLER in app.read_text()
    app.write_text(app.read_text().replace(HANDLER, HANDLER + SPIN))
    slow = clean(compare)
    assert slow.returncode != 0, slow.stdout
    assert "errors: none" in slow.stdout  # it still answers
    assert "Performance has regressed" in slow.stdout + slow.stderr
