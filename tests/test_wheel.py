import os
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.cases import cases
from tests.places import TOP, build_wheel, execute


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    zipfile.ZipFile(build_wheel(folder)).extractall(folder / "site")
    return folder / "site"


@pytest.mark.wheel
@cases("name", "scenarios", "profiles", "reference", "report/templates")
def test_data_is_shipped_whole(unpacked: Path, name: str) -> None:
    source = TOP / name if (TOP / name).is_dir() else TOP / "serve_bench" / name
    there = {file.name for file in source.rglob("*") if file.is_file()}
    shipped = {file.name for file in (unpacked / "serve_bench" / name).rglob("*") if file.is_file()}
    assert there
    assert shipped == there


@pytest.mark.wheel
def test_the_shipped_data_is_found_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import serve_bench.store.files as s, serve_bench.view.published as p\n"
        "from serve_bench.report.page import environment\n"
        "environment().get_template('page.html'); n = p.reference(p.MICRO)['notes']\n"
        "print(s.shipped('scenarios'), s.shipped('profiles'), len(n), sep='|')"
    )
    env = {"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    done = execute(sys.executable, "-c", code, env=env, cwd=tmp_path, check=True)
    scenarios, profiles, notes = done.stdout.strip().split("|")
    assert Path(scenarios) == unpacked / "serve_bench" / "scenarios"
    assert Path(profiles) == unpacked / "serve_bench" / "profiles"
    assert notes == "3"
    names = [str(file.relative_to(unpacked)) for file in unpacked.rglob("*")]
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]
    assert (unpacked / "serve_bench" / "cli").is_dir()


@pytest.mark.wheel
def test_the_cluster_child_starts_from_the_wheel_alone(unpacked: Path, tmp_path: Path) -> None:
    child = unpacked / "serve_bench" / "serving" / "cluster"
    done = execute(sys.executable, "-I", "-B", "-u", child, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")  # stdin ended: so it does


@pytest.mark.wheel
@pytest.mark.long
@pytest.mark.timeout(600)
def test_pipx_installs_the_wheel_as_a_tool(unpacked: Path, tmp_path: Path) -> None:
    """In an environment of its own, with its command on PATH; `uv tool install` does the same."""
    (wheel,) = unpacked.parent.glob("serve_bench-*.whl")
    pins = tmp_path / "pins.txt"
    lines = (TOP / "requirements.lock").read_text().splitlines()
    pins.write_text("".join(f"{line.split()[0]}\n" for line in lines if "==" in line))
    places = {"PIPX_HOME": tmp_path / "home", "PIPX_BIN_DIR": tmp_path / "bin"}
    environment = {**os.environ, **{name: str(place) for name, place in places.items()}}
    pip = f"--pip-args=--constraint {pins} --no-cache-dir"
    pipx = (sys.executable, "-m", "pipx", "install", "--python", sys.executable, pip, wheel)
    done = execute(*pipx, env=environment, timeout_s=500)
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "bin" / "serve-bench", "micro", "--quick", "--dry-run")
    shown = execute(*words, env=environment, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "\n18 trials" in shown.stdout


def test_the_dockerfile_copies_all_that_is_built() -> None:
    lines = (TOP / "Dockerfile").read_text().splitlines()
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    built = tomllib.loads((TOP / "pyproject.toml").read_text())
    wheel = built["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], *built["project"]["license-files"]}
    assert copied == needed | {"requirements.lock", "pyproject.toml", built["project"]["readme"]}
    assert all((TOP / name).exists() for name in copied)
    assert 'ENTRYPOINT ["serve-bench"]' in lines and "serve-bench" in built["project"]["scripts"]
