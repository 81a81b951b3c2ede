"""`noop --blocking`, measured by wrk and ab, by loads with traces and profiles; and its ends."""

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from serve_bench.store import read
from tests.integration.conftest import (
    cluster_child,
    measure,
    own_place,
    run_checked,
    start,
    wait_for_line,
    wait_until_clean,
)

pytestmark = [pytest.mark.ray, pytest.mark.ci]


#: What is open to other machines, two replicas being up: the README says the same.
OPEN = {"default": {"ray::ServeReplica": 2}, "optimized": {"ray::ServeReplica": 2, "haproxy": 2}}


@dataclass(frozen=True)
class Noop:
    """A no-op app that is up: the process of serve-bench, what it printed, and its TMPDIR."""

    process: subprocess.Popen[str]
    url: str
    replicas: list[int]
    place: Path


def start_noop(variant: str, place: Path, cwd: Path, *more: str) -> Noop:
    process = start(
        *("noop", "--blocking", "--num-replicas", "2", "--num-queries", "100"),
        *("--port", "0", "--variant", variant, *more),
        cwd=cwd,
    )
    url = wait_for_line(process, r"url: (\S+)").group(1)
    replicas = wait_for_line(process, r"replica +([\d ]+)$").group(1).split()
    wait_for_line(process, r"serving until")
    return Noop(process, url, [int(pid) for pid in replicas], place)


@contextmanager
def private_home(folder: Path) -> Iterator[Path]:
    home = folder / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home
    assert list(home.iterdir()) == []  # Ray's own place for a token is there


@pytest.fixture(scope="module")
def noop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Noop]:
    """Behind HAProxy, with requests that can be traced. SIGTERM ends it well, and whole."""
    folder = tmp_path_factory.mktemp("noop")
    with own_place() as place:
        with private_home(folder):
            up = start_noop("optimized", place, folder, "--trace")
        yield up
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(10) == 0
        assert wait_until_clean(1, place) == []


def open_ports(pid: int) -> Counter[str]:
    """List ports below a process that listen beyond loopback, with their owners, as `ss` does."""
    tree = {child.pid: child.name() for child in psutil.Process(pid).children(recursive=True)}
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for line in listening.splitlines():
        address, owner = line.split()[3], re.search(r"pid=(\d+)", line)
        if owner is None or int(owner.group(1)) not in tree:
            continue
        if not re.match(r"127\.|\[::1\]|\[::ffff:127\.", address):
            found[tree[int(owner.group(1))].partition(":noop")[0]] += 1
    return found


@pytest.mark.external
def test_two_replicas_are_up_and_little_is_open(noop: Noop) -> None:
    assert len(noop.replicas) == 2
    title = psutil.Process(noop.replicas[0]).cmdline()[0]
    assert title.startswith("ray::ServeReplica:noop:NoOp")
    assert open_ports(noop.process.pid) == OPEN["optimized"]
    (token,) = noop.place.glob("sb-*/1/token")
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parents[1].stat().st_mode & 0o777 == 0o700


def say(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.external
def test_wrk_and_ab_find_no_fault(noop: Noop) -> None:
    wrk = say("wrk", "-c", "100", "-t", "2", "-d", "1s", "--latency", noop.url)
    assert "Non-2xx" not in wrk and "Socket errors" not in wrk
    (rate,) = re.findall(r"Requests/sec: +([\d.]+)", wrk)
    assert float(rate) > 0
    ab = say("ab", "-k", "-q", "-c", "100", "-n", "500", noop.url)
    assert re.search(r"Complete requests: +500$", ab, re.MULTILINE)
    assert re.search(r"Failed requests: +0$", ab, re.MULTILINE)
    assert "Non-2xx" not in ab
    assert re.search(r"HTML transferred: +1000 bytes", ab)  # "ok" 500 times: no framing in it


def test_requests_of_a_load_are_traced(noop: Noop, tmp_path: Path) -> None:
    load = ["load", noop.url, "-c", "4", "-d", "2s", "--trace", "5%", "--out", "out"]
    done = run_checked(load, tmp_path)
    (trial,) = read(tmp_path / "out").trials
    assert trial.waterfall.traced >= 50 and not trial.waterfall.unseen
    assert "HAProxy to replica" in trial.waterfall.hops and "Where the time goes" in done.stdout


@pytest.mark.ptrace
def test_a_load_is_repeated_with_py_spy(noop: Noop, tmp_path: Path) -> None:
    load = ["load", noop.url, "-c", "20", "-d", "1s", "--warmup", "0.2s"]
    result = measure([*load, "--profile", "proxy,replica"], tmp_path)
    (trial,), (profiled,) = result.trials, result.profiled
    replicas = [part for part in profiled.profiles if part.role == "replica"]
    # The Serve behind the URL was sampled, so that the verdict is about it and not the host alone.
    sampled = [process.pid for process in trial.usage.processes if process.role == "replica"]
    assert sorted(sampled) == sorted(part.pid for part in replicas) == sorted(noop.replicas)
    assert all((tmp_path / "run" / part.path).stat().st_size for part in replicas)
    as_json = run_checked([*load, "--profile", "replica", "-f", "json", "--out", "j"], tmp_path)
    assert json.loads(as_json.stdout)
    elsewhere = run_checked(["load", "http://127.0.0.1:9/", "--profile", "replica"], tmp_path, 2)
    assert elsewhere.stderr.count("\n") == 1
    assert "no Serve of this machine listens on port 9" in elsewhere.stderr


@pytest.mark.external
def test_it_fails_when_its_cluster_dies(tmp_path: Path) -> None:
    with own_place() as place, private_home(tmp_path):
        up = start_noop("default", place, tmp_path)
        assert open_ports(up.process.pid) == OPEN["default"]
        below = cluster_child(up.process).children(recursive=True)
        next(child for child in below if child.name() == "raylet").kill()
        output, _ = up.process.communicate(timeout=15)
        assert up.process.returncode == 1
        assert re.search(r"(raylet \d+|the cluster process) ended.*nothing is served", output)
    done = run_checked(["load", up.url, "-c", "4", "-d", "2s", "--trace", "5%"], tmp_path, 2)
    assert "no Serve of this machine answers" in done.stderr
