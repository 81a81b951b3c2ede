"""deploy/ for real: `serve run` of its config, and what its Dockerfile copies, without Docker."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest

from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.serving.launch_spec import free_block
from serve_bench.serving.strays import _mark_of
from tests.integration.conftest import get, remains, until
from tests.places import execute
from tests.serving.test_dlrm import scores_of

ROOT: Final = Path(__file__).parent.parent.parent
DEPLOY: Final = ROOT / "deploy"

SHAPE: Final = Shape(table_rows=500)
SEED: Final = 3
UP_S: Final = 120.0

#: `serve.shutdown()` waits up to 30 s for the controller (Ray 2.60).
DOWN_S: Final = 60.0


def config_on(port: int, folder: Path) -> Path:
    """Give the config a port on loopback; nothing else is changed."""
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
    """Run a service; give its address. What it printed is shown when it does not come up."""
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
    assert until(lambda: not processes_left(), 10.0), processes_left()
    for session in Path(os.environ["TMPDIR"]).iterdir():  # Ray keeps its logs; nothing else is ours
        shutil.rmtree(session)


def processes_left() -> list[int]:
    """List the pids of what this test started, Ray's agents too."""
    return [int(line.split()[1]) for line in remains() if line.startswith("process ")]


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError, ValueError):  # not listening yet, or the proxy alone
            return get(url)[0] == 200
        return False

    until(lambda: process.poll() is not None or answers(), UP_S, 0.2)
    assert answers(), "\n".join([str(process.poll()), *log.read_text().splitlines()[-30:]])


def wait_for_replicas(wanted: Mapping[str, int]) -> None:
    """Until as many processes serve as the config says: the first answers come before."""
    assert until(lambda: Counter(replicas()) == wanted, UP_S), Counter(replicas())


def replicas() -> Iterator[str]:
    """Name the deployment of each replica that was started under this test's TMPDIR."""
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or [])
        match = re.match(r"ray::ServeReplica:recsys:(\w+)", title)
        if match and _mark_of(process, "TMPDIR") == os.environ["TMPDIR"]:
            yield match.group(1)


@pytest.mark.ray
@pytest.mark.torch
def test_serve_run_serves_the_scores_of_the_model(service: str) -> None:
    users = (7, 8, 123_456_789)
    alone = scores_of("plain", SHAPE, users, SEED)
    for user, expected in zip(users, alone, strict=True):
        status, answer = get(f"{service}?user_id={user}")
        assert (status, list(answer)) == (200, ["scores"])
        assert len(answer["scores"]) == 32
        assert np.abs(np.array(answer["scores"]) - expected).max() < 1e-5
    assert np.abs(alone[0] - alone[1]).max() > 1e-4  # users differ at all
    for bad in ("?user_id=x", "?user_id=1.5", ""):
        status, answer = get(service + bad)
        assert status == 422 and answer["detail"][0]["loc"] == ["query", "user_id"]


def instructions() -> list[tuple[str, str]]:
    """Read the Dockerfile's instructions, with their lines joined and its comments left out."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, rest in parts]


def values(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def test_the_image_keeps_the_ray_of_its_base() -> None:
    (workdir,) = values("WORKDIR")
    assert values("ENV") == [f"PYTHONPATH={workdir}"]
    (install,) = values("RUN")  # the Ray of the base is kept
    assert "'ray==' + version('ray'))\" > ~/base.txt" in install and " -c ~/base.txt " in install


def copied(folder: Path) -> None:
    """List what COPY puts into WORKDIR."""
    for name, rest in instructions():
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    leave = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / source, folder / target, ignore=leave)
                else:
                    shutil.copy(ROOT / source, folder / target / Path(source).name)


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
