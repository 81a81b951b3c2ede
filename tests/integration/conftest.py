"""Real Ray, real programs. Every test here must leave no process and no directory behind.

Each test has a TMPDIR of its own, by which all that it starts is known; other runs on the machine
do not meet it.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import pytest

from serve_bench.core.result import Result, VariantUsed
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.serving.launch_spec import LaunchSpec, free_block
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import _holds_file_under, _mark_of, new_run, reap
from serve_bench.store import read
from tests.places import begin, execute

Found = TypeVar("Found")
Cluster = TypeVar("Cluster", bound=Serving)

SERVE_BENCH = (sys.executable, "-m", "serve_bench")

#: Flags of a matrix command: rows as short as they can be, with no long wait for a steady rate.
SHORT = ("--suite", str(Path(__file__).with_name("short.toml")))


def remains(place: Path | None = None) -> list[str]:
    """List processes and folders of the runs of a place, or of this test; zombies excepted."""
    place = place or Path(os.environ["TMPDIR"])
    found = [str(path) for path in place.iterdir()]
    for process in psutil.process_iter(["pid", "name", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if _mark_of(process, "TMPDIR") == str(place) or _holds_file_under(process, str(place)):
            found.append(f"process {process.pid} {process.info['name']}")
    return found


def until(ready: Callable[[], Found], seconds: float, every_s: float = 0.1) -> Found:
    """Wait until `ready` gives what is true, or the time is over; return what it gave."""
    deadline = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return found


def wait_until_clean(seconds: float = 10.0, place: Path | None = None) -> list[str]:
    """List what remains after at most so many seconds; empty when all is gone."""
    return [] if until(lambda: not remains(place), seconds) else remains(place)


@contextlib.contextmanager
def own_place() -> Iterator[Path]:
    """Set a TMPDIR, by which all that is started meanwhile is known; nothing may be left there."""
    # Short: HAProxy's socket paths are limited.
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(place))
        yield place
    left = wait_until_clean(place=place)
    shutil.rmtree(place)
    assert left == []


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    with own_place():
        yield


@pytest.fixture(
    params=[pytest.param(True, marks=pytest.mark.long), pytest.param(False, marks=pytest.mark.ci)]
)
def resumed(request: pytest.FixtureRequest) -> bool:
    """In continuous integration test_micro.py, test_kill.py and test_rpc.py resume their runs."""
    return bool(request.param)


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return begin(*SERVE_BENCH, *arguments, cwd=cwd, env=env, stderr=subprocess.STDOUT)


def run_to_end(
    arguments: Sequence[str], cwd: Path, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run serve-bench on a terminal of 80 columns; stdout and stderr apart."""
    env = {**os.environ, "COLUMNS": "80"}
    return execute(*SERVE_BENCH, *arguments, cwd=cwd, env=env, timeout_s=timeout_s)


def run_checked(
    line: str | Sequence[str], cwd: Path, code: int = 0, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run it from a line or its words, where the exit code is known."""
    done = run_to_end(line.split() if isinstance(line, str) else line, cwd, timeout_s)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def measure(
    line: str | Sequence[str], folder: Path, code: int = 0, timeout_s: float = 300
) -> Result:
    """Measure, or resume, a run in `run` below this folder; return it."""
    words = line.split() if isinstance(line, str) else [*line]
    out = [] if "--resume" in words else ["--out", "run"]
    run_checked([*words, *out], folder, code, timeout_s)
    return read(folder / "run")


def ended(process: subprocess.Popen[str], code: int, timeout_s: float = 120) -> str:
    """Read what it writes until it ends with this exit code."""
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == code, output
    return output


def reported(folder: Path, run: str) -> Any:
    """Read what a report of this run says in JSON."""
    return json.loads(run_to_end(["report", run, "--format", "json"], folder).stdout)


def get(url: str, body: bytes | None = None) -> tuple[int, Any]:
    """Get, or post a body; return the status and the content: JSON is read."""
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        body, kind = response.read(), response.headers["content-type"]
    return response.status, json.loads(body) if kind == "application/json" else body


def wait_for_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read the output until a line matches; fail with all that was read if none does."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError(f"no line like {pattern!r} in:\n{''.join(seen)}")


def wait_for_deploys(process: subprocess.Popen[str], folder: Path, count: int) -> Result:
    """Wait until so many deploys are in force; the records must be begun."""
    deadline = time.monotonic() + 240
    while len((found := read(folder)).deploys) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, f"{len(found.deploys)} deploys, not {count}"
        time.sleep(0.1)
    return found


def child_of(process: subprocess.Popen[str], words: str) -> psutil.Process:
    """Find the first child of serve-bench whose command line has these words."""
    children = psutil.Process(process.pid).children()
    return next(child for child in children if words in " ".join(child.cmdline()))


def cluster_child(process: subprocess.Popen[str]) -> psutil.Process:
    """Find the process of serve-bench that holds its cluster."""
    return child_of(process, "serve_bench/serving/cluster")


def warden_of(process: subprocess.Popen[str]) -> psutil.Process:
    """Find the process of serve-bench that ends the run when the CLI has died."""
    return child_of(process, "serve_bench.serving.strays")


def launched(variant: VariantUsed, log: Path) -> contextlib.AbstractContextManager[Serving]:
    """Launch a cluster of a variant; nothing of it stays."""
    return launched_as(Serving, variant, log)


@contextlib.contextmanager
def launched_as(
    kind: Callable[[LaunchSpec], Cluster], variant: VariantUsed, log: Path, **about: Any
) -> Iterator[Cluster]:
    """Launch a kind of cluster, with other fields of its LaunchSpec."""
    run_id = new_run()
    try:
        with kind(LaunchSpec(variant, run_id, "1", log, **about)) as serving:
            serving.start()
            yield serving
        assert serving.close().leftovers == ()
    finally:
        reap(run_id)


@pytest.fixture(scope="session")
def shared_serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Serving]]:
    """Share a built-in variant's cluster with tests that deploy on Serve and end replicas alone."""
    folder = tmp_path_factory.mktemp("shared")
    with own_place() as place, contextlib.ExitStack() as stack:

        @functools.cache
        def start_shared(variant: str) -> Serving:
            log = folder / f"{variant}.log"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(place))  # not that of the test that asks first
                return stack.enter_context(launched(BUILT_IN_VARIANTS[variant], log))

        yield start_shared


def put_on_path(serving: Serving, *files: Path) -> None:
    """Put copies of files where the Python of a cluster looks for modules."""
    for file in files:
        shutil.copy(file, serving.spec.directory / "p")


def wait_for_load_worker(owner: int, then_s: float) -> None:
    """Wait until a load worker has its connections, with which the warm-up begins, and `then_s`."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        for child in psutil.Process(owner).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "load.worker" in " ".join(child.cmdline()) and child.net_connections("tcp"):
                    time.sleep(then_s)
                    return
        time.sleep(0.1)
    pytest.fail("no load came")


#: What lets a program into the clusters of Ray that tests start.
AUTH: Final = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}


@dataclass
class RayNodes:
    """A Ray cluster of several raylets on this machine.

    `raylets`: pids by node id; `place`: the TMPDIR of all that runs on it; `port`: that of a Serve
    which is started on it.
    """

    place: str
    program: subprocess.Popen[str] = field(init=False)
    port: int = field(default_factory=lambda: free_block(1)[0])
    address: str = ""
    raylets: Mapping[str, int] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """For a program that joins the cluster."""
        return {**os.environ, **AUTH}

    def running(self, words: str) -> dict[int, str]:
        """Command lines by pid of the processes of this cluster that match these words."""
        found = {}
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or [])
            if process.info["status"] == psutil.STATUS_ZOMBIE or not re.search(words, line):
                continue
            if _mark_of(process, "TMPDIR") == self.place or _holds_file_under(process, self.place):
                found[process.pid] = line
        return found

    def until(self, words: str, count: int, seconds: float = 20.0) -> dict[int, str]:
        """Those processes, once there are so many, or when the time is over."""
        until(lambda: len(self.running(words)) == count, seconds)
        return self.running(words)

    def start(self, *words: str) -> None:
        streams = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        env = {**self.env, "TMPDIR": self.place}
        program = Path(__file__).with_name("ray_nodes.py")
        self.program = begin(sys.executable, program, *words, cwd=self.place, env=env, **streams)

    def ask(self, command: str = "") -> Any:
        """Send the program a command, if there is one, and read its answer."""
        assert self.program.stdin is not None and self.program.stdout is not None
        if command:
            self.program.stdin.write(f"{command}\n")
            self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())


@contextlib.contextmanager
def ray_nodes(count: int, cpus: int = 1) -> Iterator[RayNodes]:
    """Start a cluster of so many raylets, which wants a token."""
    place = tempfile.mkdtemp(prefix="n", dir="/tmp")  # short: Ray's socket paths are limited
    (Path(place) / "ray").mkdir()
    cluster = RayNodes(place)
    cluster.start(str(count), str(cpus), f"{place}/ray")
    try:
        said = cluster.ask()
        cluster.address, cluster.raylets = said["address"], said["raylets"]
        yield cluster
    finally:
        cluster.program.communicate("", timeout=40)
        for process in psutil.process_iter():
            if _mark_of(process, "TMPDIR") == place or _holds_file_under(process, place):
                process.kill()  # Ray's agents outlive a raylet that was killed
        shutil.rmtree(place)
