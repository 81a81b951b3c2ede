"""deploy/ for real: `serve run` of its config, and the commands of its Dockerfile without Docker.

The commands run in a clean virtual environment with no network: the packages they ask for are
empty ones, made here, and hatchling, which builds, is repacked from where it is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pytest

from serve_bench.serving.apps.dlrm_features import FORMS, features
from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.serving.launch_spec import free_block
from serve_bench.serving.strays import _mark_of
from tests.integration.conftest import remains
from tests.places import execute

ROOT: Final = Path(__file__).parent.parent.parent
DEPLOY: Final = ROOT / "deploy"

SHAPE: Final = Shape(table_rows=500)
SEED: Final = 3
UP_S: Final = 120.0

#: `serve.shutdown()` waits up to 30 s for the controller (Ray 2.60).
DOWN_S: Final = 60.0


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def config_on(port: int, folder: Path) -> Path:
    """The config with a port of its own, on loopback; nothing else is changed."""
    text, ports = re.subn(
        r"^  port: 8000$", f"  port: {port}", (DEPLOY / "serve_config.yaml").read_text(), flags=re.M
    )
    text, hosts = re.subn(r"^  host: 0\.0\.0\.0$", "  host: 127.0.0.1", text, flags=re.M)
    assert (ports, hosts) == (1, 1)
    file = folder / "serve_config.yaml"
    file.write_text(text)
    return file


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """The address of a running service; what it printed is told when it does not come up."""
    port, log = free_block(1)[0], tmp_path / "log"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RECSYS_"))}
    environment |= {
        "RECSYS_DEVICE": "cpu",
        "RECSYS_THREADS": "1",
        "RECSYS_SEED": str(SEED),
        "RECSYS_TABLE_ROWS": str(SHAPE.table_rows),
        # One CPU for each replica, on a machine with fewer too; or one would never be started.
        "RAY_OVERRIDE_RESOURCES": '{"CPU": 4}',
        "PYTHONPATH": str(ROOT),
    }
    # `serve` by its module: the script is not on PATH where the environment is not activated.
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "--address", "local"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, str(config_on(port, tmp_path))],
            cwd=DEPLOY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/?user_id=0", process, log)
        wait_for_replicas({"Ingress": 2, "Ranker": 1})
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            for pid in processes_left():
                os.kill(pid, signal.SIGKILL)
            raise
    deadline = time.monotonic() + 10.0
    while processes_left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_left() == []
    for session in Path(os.environ["TMPDIR"]).iterdir():  # Ray keeps its logs; nothing else is ours
        shutil.rmtree(session)


def processes_left() -> list[int]:
    """The pids of what this test started, Ray's agents too."""
    return [int(line.split()[1]) for line in remains() if line.startswith("process ")]


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + UP_S
    answer: object = "nothing"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = get(url)[0]
        except (OSError, ValueError) as error:  # not listening yet, or an answer of the proxy alone
            answer = error
        if answer == 200:
            return
        time.sleep(0.2)
    tail = "\n".join(log.read_text().splitlines()[-30:])
    raise AssertionError(f"{url} answered {answer}; exit code {process.poll()}:\n{tail}")


def wait_for_replicas(wanted: Mapping[str, int]) -> None:
    """Until as many processes serve as the config says: the first answers come before."""
    deadline = time.monotonic() + UP_S
    found: Counter[str] = Counter()
    while found != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
        found = Counter(replicas())
    assert found == wanted


def replicas() -> Iterator[str]:
    """The deployment of each replica that was started under this test's TMPDIR."""
    for process in psutil.process_iter():
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue  # ended between the listing and now
        match = re.match(r"ray::ServeReplica:recsys:(\w+)", title)
        if match and _mark_of(process, "TMPDIR") == os.environ["TMPDIR"]:
            yield match.group(1)


@pytest.mark.ray
@pytest.mark.torch
def test_serve_run_serves_the_scores_of_the_model(service: str) -> None:
    from serve_bench.serving.apps import dlrm

    model: Any = dlrm.build("plain", SHAPE, "cpu", SEED)
    users = (7, 8, 123_456_789)
    alone = model.score([FORMS["plain"](*features(user, SHAPE, SEED)) for user in users])
    for user, expected in zip(users, alone, strict=True):
        status, answer = get(f"{service}?user_id={user}")
        assert (status, list(answer)) == (200, ["scores"])
        assert len(answer["scores"]) == 32
        assert np.abs(np.array(answer["scores"]) - np.array(expected)).max() < 1e-5
    assert np.abs(np.array(alone[0]) - np.array(alone[1])).max() > 1e-4  # users differ at all
    for bad in ("?user_id=x", "?user_id=1.5", ""):
        status, answer = get(service + bad)
        assert status == 422 and answer["detail"][0]["loc"] == ["query", "user_id"]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, with their lines joined and its comments left out."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, rest in parts]


def values(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def test_every_instruction_is_one_that_these_tests_know() -> None:
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "EXPOSE", "CMD"}
    assert {name for name, _ in instructions()} == known
    (workdir,) = values("WORKDIR")
    assert values("ENV") == [f"PYTHONPATH={workdir}"]
    assert values("EXPOSE") == ["8000"]
    (command,) = values("CMD")
    assert json.loads(command) == ["serve", "run", "serve_config.yaml"]


def copied(folder: Path, stop: str = "") -> None:
    """What COPY puts into WORKDIR, up to the first instruction named `stop`."""
    for name, rest in instructions():
        if name == stop:
            return
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = folder / target / ("" if (ROOT / source).is_dir() else Path(source).name)
                if (ROOT / source).is_dir():
                    shutil.copytree(
                        ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(ROOT / source, place)


@pytest.mark.ray
def test_the_app_is_imported_as_in_the_image(tmp_path: Path) -> None:
    """From another folder, since Ray starts its workers where it likes: ENV must do."""
    workdir, elsewhere = tmp_path / "recsys", tmp_path / "elsewhere"
    workdir.mkdir()
    elsewhere.mkdir()
    copied(workdir)
    assert (workdir / "serve_config.yaml").is_file()
    code = "import app, serve_bench; print(app.__file__, serve_bench.__file__, app.recsys_app)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(workdir), "PYTHONDONTWRITEBYTECODE": "1"}
    done = execute(sys.executable, "-c", code, cwd=elsewhere, env=env)
    assert done.returncode == 0, done.stderr
    app, package, service = done.stdout.split(maxsplit=2)
    assert (app, package) == (str(workdir / "app.py"), str(workdir / "serve_bench/__init__.py"))
    assert "Application" in service


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """A wheel with these files; with none, a package that is there and does nothing."""
    stem = f"{re.sub('[-.]+', '_', name)}-{version}"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    extras = "Provides-Extra: serve\nProvides-Extra: torch\n"
    content = {
        f"{stem}.dist-info/METADATA": (about + extras).encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\n"
        b"Root-Is-Purelib: true\nTag: py3-none-any\n",
        **{path.replace("*", f"{stem}.dist-info"): data for path, data in files.items()},
    }
    record = f"{stem}.dist-info/RECORD"
    content[record] = "".join(f"{path},,\n" for path in (*content, record)).encode()
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return wheel


def repack(folder: Path, name: str) -> None:
    """An installed pure package as a wheel again."""
    installed = metadata.distribution(name)
    files = {}
    for path in installed.files or []:
        if path.parts[0] == ".." or path.suffix == ".pyc":
            continue
        if not path.parts[0].endswith(".dist-info"):
            files[str(path)] = path.read_binary()
        elif path.name in ("METADATA", "entry_points.txt"):
            files[f"*/{path.name}"] = path.read_binary()
    assert files, name
    write_wheel(folder, name, installed.version, files)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the image installs, as empty packages of version 99, and a real hatchling."""
    folder = tmp_path_factory.mktemp("index")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in (*project["dependencies"], *project["optional-dependencies"]["torch"]):
        write_wheel(folder, name_in(text), "99.0", {})
    needed = [text for text in metadata.requires("hatchling") or [] if ";" not in text]
    for name in ("hatchling", *map(name_in, needed)):
        repack(folder, name)
    return folder


def name_in(requirement: str) -> str:
    """The package that a requirement such as `ray[serve]>=2.9` asks for."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return found.group()


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "base"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=100)
    return folder


def build(base_ray: str, venv: Path, index: Path, tmp_path: Path) -> tuple[Any, dict[str, str]]:
    """Runs the Dockerfile's RUN, as Docker does, on a base with that Ray. Returns how it ended,
    and the versions installed then."""
    python = str(venv / "bin" / "python")
    wheel = write_wheel(tmp_path, "ray", base_ray, {})
    install = [python, "-m", "pip", "install", "-q", "--no-index", "--force-reinstall", str(wheel)]
    subprocess.run(install, check=True, timeout=60)
    workdir, home = tmp_path / "recsys", tmp_path / "home"
    workdir.mkdir()
    home.mkdir()
    copied(workdir, stop="RUN")
    workdir.chmod(0o555)
    (command,) = values("RUN")
    env = {
        "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": os.environ["TMPDIR"],
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = execute("/bin/sh", "-c", command, cwd=workdir, env=env, timeout_s=100)
    pip = (python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    listing = execute(*pip, check=True)
    return done, {one["name"]: one["version"] for one in json.loads(listing.stdout)}


@pytest.mark.wheel
@pytest.mark.long
def test_the_image_keeps_the_ray_of_its_base(
    empty_environment: Path, index: Path, tmp_path: Path
) -> None:
    too_old, fine = tmp_path / "too-old", tmp_path / "fine"
    too_old.mkdir()
    fine.mkdir()
    # This one is too old for us, and version 99 can be had: it is refused, not replaced.
    done, installed = build("1.13.0", empty_environment, index, too_old)
    assert done.returncode != 0
    if "conflicting dependencies" not in done.stderr:  # which is all that pip 25 says
        assert "requirement ray[serve]" in done.stderr and "(from versions: 99.0)" in done.stderr
    assert installed["ray"] == "1.13.0" and "serve-bench" not in installed
    done, installed = build("2.60.0+vendor.7", empty_environment, index, fine)
    assert done.returncode == 0, done.stderr
    assert installed["ray"] == "2.60.0+vendor.7"
    assert {installed[name] for name in ("torch", "numpy", "aiohttp")} == {"99.0"}
    assert (fine / "home" / "base.txt").read_text() == "ray==2.60.0+vendor.7\n"
    # Installed whole: the suites are there, where an installed serve-bench looks for them.
    # msgspec is an empty wheel there: the one of this environment stands in for it.
    code = (
        f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); "
        "from serve_bench.store.files import shipped; "
        "print(shipped('scenarios'), shipped('profiles'))"
    )
    python = str(empty_environment / "bin" / "python")
    told = execute(python, "-c", code, check=True, cwd=tmp_path).stdout.split()
    for place in told:
        assert Path(place).is_relative_to(empty_environment) and any(Path(place).iterdir())
