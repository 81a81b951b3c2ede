"""The example of a user's project under continuous integration, in a clean environment.

The environment has our wheel, as a user's would; Ray and what else is heavy it sees where it is
installed here. What is run is what the workflow says, word for word.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.cases import Patch
from tests.places import build_wheel, execute, git
from tests.test_ci_example import EXAMPLE, commands

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.wheel]

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
    """Run a workflow's shell command in a clean copy of the project that has our wheel."""
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "env" / "bin" / "python")
    put = execute(*pip, "install", "--no-index", "--no-deps", build_wheel(tmp_path))
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
        return execute("bash", "-ec", command, cwd=tmp_path / "shop", env=env, timeout_s=240)

    where = say("python -c 'import serve_bench; print(serve_bench.__file__)'")
    assert where.stdout.startswith(str(site)), where.stdout
    return say


def test_stored_rounds_pass_on_the_same_app_alone(clean: Say, tmp_path: Path) -> None:
    install, compare, store = commands("stored")
    installed = clean(install)
    assert installed.returncode == 0, installed.stderr
    assert "already satisfied: serve-bench" in installed.stdout

    stored = clean(store)
    assert stored.returncode == 0, stored.stdout
    said = stored.stdout + stored.stderr
    assert "2 passed" in stored.stdout and "Saved benchmark data in" in said

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


#: A package of which the later version is slow.
RANK = "import time\ndef rank():\n    until = time.perf_counter() + {seconds}\n"
RANK += "    while time.perf_counter() < until:\n        pass\n"


def build_tinyrank(folder: Path, version: str, seconds: float) -> None:
    """Build a wheel of the package, as an index would have it."""
    info = f"tinyrank-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: tinyrank\nVersion: {version}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {"tinyrank.py": RANK.format(seconds=seconds)}
    files |= {f"{info}/METADATA": about, f"{info}/WHEEL": wheel, f"{info}/RECORD": ""}
    with zipfile.ZipFile(folder / f"tinyrank-{version}-py3-none-any.whl", "w") as whole:
        for name, text in files.items():
            whole.writestr(name, text)


@pytest.mark.git
def test_a_raised_dependency_is_named(clean: Say, tmp_path: Path, monkeypatch: Patch) -> None:
    """The app is the same on both sides; what the pull request raises is a requirement alone."""
    shop, links = tmp_path / "shop", tmp_path / "links"
    links.mkdir()
    heads = {}
    for place, version, seconds in (("base", "1.0", 0.0), ("pr", "2.0", 0.04)):
        build_tinyrank(links, version, seconds)
        shutil.copytree(EXAMPLE, shop / place, ignore=shutil.ignore_patterns("__pycache__"))
        app = shop / place / "app.py"
        text = app.read_text().replace(HANDLER, f"{HANDLER}        tinyrank.rank()\n")
        app.write_text(text.replace("from fastapi", "import tinyrank\nfrom fastapi", 1))
        with (shop / place / "requirements.txt").open("a") as required:
            required.write(f"tinyrank=={version}\n")
        git(shop / place, "init", "-q")
        git(shop / place, "add", "-A")
        git(shop / place, "commit", "-q", "-m", place)
        heads[place] = git(shop / place, "rev-parse", "--short=7", "HEAD")
    *installs, line = commands("versus")
    heavy = sysconfig.get_paths()["purelib"]
    for install in installs:  # what is heavy counts as installed; the small package is not
        done = clean(f"export PYTHONPATH={heavy} PIP_FIND_LINKS={links}; {install}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Successfully installed tinyrank" in done.stdout
    (wheel,) = tmp_path.glob("serve_bench-*.whl")
    for name in ("base-env", "pr-env"):
        (site,) = (shop / name).glob("lib/python*/site-packages")
        (site / "heavy.pth").write_text(heavy + "\n")
        put = f"{name}/bin/python -m pip install --no-deps --ignore-installed {wheel}"
        done = clean(put)
        assert done.returncode == 0, done.stderr

    quick = line.replace("--rounds 6", "--rounds 3 --quick --clients raw:8 --out run")
    measured = clean(quick.replace('"$GITHUB_STEP_SUMMARY"', "summary"))
    assert measured.returncode == 3, measured.stdout + measured.stderr
    summary = (shop / "summary").read_text()
    assert "regressed" in summary
    assert "tinyrank 1.0 -> 2.0" in summary  # named, and what is the same is not
    assert "fastapi" not in summary
    assert f"app commit {heads['base']} -> {heads['pr']}" in summary, summary
    result = read(shop / "run")
    assert result.complete and len({trial.variant for trial in result.trials}) == 2
    deployments = [{at["deployment"] for at in done.proof["replicas"]} for done in result.deploys]
    assert deployments == [{"Ranker", "Shop"}] * 6
    for launch in result.launches:
        version = "1.0" if launch.variant.name.startswith("base") else "2.0"
        assert f"tinyrank=={version}" in launch.proof["packages"]
        assert launch.proof["app"]["changes"] == 0 and launch.proof["app"]["files"] == 1
        assert str(tmp_path) not in " ".join(launch.proof["packages"])
