"""See inside a real Ray Serve: a known hot function, `micro --profile`, and what cannot be seen."""

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from serve_bench.analysis.stacks import (
    IDLE,
    USER_CODE,
    Stacks,
    by_function,
    layer_of,
    list_changes,
    top_functions,
    total,
    without,
)
from serve_bench.core.app_spec import AppSpec
from serve_bench.core.axes import cell_defaults
from serve_bench.core.facts import TrialUsage
from serve_bench.core.result import Trial
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.observing.processes import serve_processes
from serve_bench.report.flamegraph import layer_rules
from serve_bench.runner.recording import read_stacks
from serve_bench.serving.server import Serving
from serve_bench.store import read
from tests.cases import sure
from tests.integration.conftest import SHORT, get, launched, measure, run_checked, run_to_end

pytestmark = [pytest.mark.alone, pytest.mark.ray, pytest.mark.ptrace]

#: Burns in one of two functions and reports how much of the CPU of Python's threads they have had.
#: py-spy sees no other: Ray's native threads had 3 to 13 % of this replica's CPU here, and 18 % on
#: a busy machine.
HOT = """
import os, threading, time
from ray import serve

def python_cpu():
    ticks = 0
    for thread in threading.enumerate():
        try:
            with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")

def hot_one():
    began = time.thread_time()
    while time.thread_time() - began < 0.02:
        sum(range(300))

def hot_two():
    began = time.thread_time()
    while time.thread_time() - began < 0.02:
        sum(range(300))

@serve.deployment(name="Hot")
class Hot:
    def __init__(self):
        self.spent = 0.0
    def reconfigure(self, config):
        pass
    def settings(self):
        return {
            "max_batch_size": 1,
            "queue_max_batch_size": 1,
            "batch_wait_timeout_s": 0.0,
            "event_gap_ms": 0.0,
        }
    async def __call__(self, request):
        which = request.query_params.get("hot")
        if which is not None:
            began = time.thread_time()
            {"one": hot_one, "two": hot_two}[which]()
            self.spent += time.thread_time() - began
        return {"spent": self.spent, "python": python_cpu(), "process": time.process_time()}

def build(args):
    return Hot.bind()
"""
APP = AppSpec("hot", "hot:build", "/hot", "Hot", None)


def ask(port: int, query: str) -> dict[str, float]:
    answer: dict[str, float] = get(f"http://127.0.0.1:{port}/hot{query}")[1]
    return answer


@contextmanager
def load(port: int, query: str) -> Iterator[None]:
    """Two clients that ask one after the other, until the block ends."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            ask(port, query)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.ci
def test_hot_functions_their_difference_and_what_cannot_be_seen(tmp_path: Path) -> None:
    rules = layer_rules()
    profiles: dict[str, Stacks] = {}
    with launched(BUILT_IN_VARIANTS["optimized"], tmp_path / "ray.log") as started:
        (started.spec.directory / "p" / "hot.py").write_text(HOT)
        started.deploy(APP, {**cell_defaults(), "num_replicas": 1})
        (replica,) = [process for process in started.processes() if process.role == "replica"]
        for which in ("one", "two"):
            with load(started.port, f"?hot={which}"):
                before = ask(started.port, "")
                line = f"profile --pid {replica.pid} --duration 4 -o {which}.svg"
                done = run_checked(line, tmp_path)
                after = ask(started.port, "")
            spent = after["spent"] - before["spent"]
            known = 100 * spent / (after["python"] - before["python"])
            stacks = read_stacks(tmp_path / f"{which}.raw.txt")
            profiles[which] = by_function(without(stacks, IDLE, rules))
            (first,) = top_functions(profiles[which], 1)
            assert first.name == f"hot_{which} (hot.py)"
            assert first.total_percent == pytest.approx(known, abs=10)
            assert "user code" in done.stdout and first.name in done.stdout
            svg = (tmp_path / f"{which}.svg").read_text()
            assert f"hot_{which} (hot.py)" in svg and "ray/serve/_private/replica.py" in svg
            burning = [frames for frames in stacks if any("hot_" in frame for frame in frames)]
            assert {layer_of(frames, rules) for frames in burning} == {USER_CODE}
        _whole_difference(profiles, tmp_path)
        _what_cannot_be_seen(started, replica.pid, tmp_path)


def _whole_difference(profiles: Mapping[str, Stacks], folder: Path) -> None:
    """Between the two, one function came and the other went, and no other comes near."""
    done = run_checked(["profile", "diff", "one.raw.txt", "two.raw.txt"], folder)
    assert "hot_one (hot.py)" in done.stdout and "hot_two (hot.py)" in done.stdout
    limit = by_chance(profiles.values())
    found = list_changes(profiles["one"], profiles["two"])
    for sign, hot in ((1, "hot_two"), (-1, "hot_one")):
        names = [name for name, of_a, of_b in found if sign * (of_b - of_a) > limit]
        assert names == [f"{hot} (hot.py)"]


def by_chance(profiles: Iterable[Stacks]) -> float:
    """Compute by how many points a share of 10 % may differ on a busy machine: four errors."""
    return 400.0 * math.sqrt(sum(0.1 * 0.9 / total(stacks) for stacks in profiles))


def kept_profiles(trial: Trial, run: Path) -> set[str]:
    kept = [part for part in trial.profiles if not part.failed]
    for part in kept:
        raw = run / part.path
        assert raw.stat().st_size > 0 and str(run.parent) not in raw.read_text()
    return {part.role for part in kept}


@pytest.mark.long
def test_noop_prints_its_warm_up_repeats_it_with_py_spy_and_exits(tmp_path: Path) -> None:
    """And knows what each replica took; without samples, none are kept."""
    line = "noop --num-replicas 2 --num-queries 200 --port 0 --profile replica --no-sample"
    done = run_checked(f"{line} --out run", tmp_path)
    assert re.search(r"^ +p99 +[0-9.]+ ms$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"url: http://127\.0\.0\.1:\d+/noop", done.stdout)
    result = read(tmp_path / "run")
    (trial,) = result.trials
    assert len(trial.served) == 2 and sum(trial.served.values()) == 200
    assert trial.usage == TrialUsage() and not trial.serve_metrics.status and not trial.profiles
    assert not (tmp_path / "run" / "samples.jsonl").exists()
    assert len(result.profiled) == 1
    assert len(list((tmp_path / "run" / "profiles").rglob("*.raw.txt"))) == 2


def _what_cannot_be_seen(started: Serving, replica: int, folder: Path) -> None:
    """haproxy, sleep, the dead; the list; the stacks now; a target that is not there."""
    known = {process.pid: process for process in serve_processes()}
    roles = {known[process.pid].role for process in started.processes() if process.pid in known}
    assert {"haproxy", "haproxy_manager", "fallback_proxy", "replica", "controller"} <= roles
    assert (known[replica].app, known[replica].deployment) == ("hot", "Hot")
    listed = run_to_end(["profile", "--list"], folder)
    row = rf"^{replica} +replica +hot +Hot +\d+ +\d+ +--pid {replica}$"
    assert re.search(row, listed.stdout, re.M)
    haproxy = next(process.pid for process in started.processes() if process.role == "haproxy")
    refused = run_checked(["profile", "--pid", str(haproxy)], folder, 2)
    assert f"process {haproxy} is haproxy, which is C" in refused.stderr
    assert re.search(rf"^{haproxy} +haproxy +\d+ +\d+ +it is C$", listed.stdout, re.M)
    now = run_checked(["profile", "--pid", str(replica), "--dump"], folder)
    assert "main_loop" in now.stdout
    none = run_checked(["profile", "--target", "replica", "--app", "no"], folder, 2)
    assert "no such Serve process of app no" in none.stderr
    run_checked("profile --target replica --app hot --duration 0.5 --idle -o all.svg", folder)
    assert (folder / "all.svg").exists() and (folder / "all.raw.txt").read_text()
    assert not list(folder.glob(".*.part"))


@pytest.mark.ci
def test_micro_with_profiles_samples_and_metrics_behind_haproxy(tmp_path: Path) -> None:
    """Of `default`: profiles above, samples in test_micro.py, metrics in test_press_run.py."""
    cell = "--num-replicas 1 --max-ongoing-requests 100 --clients 8 --window-seconds 0.7"
    looks = "--variant optimized --profile proxy,replica --serve-metrics"
    result = measure(["micro", *SHORT, *cell.split(), *looks.split()], tmp_path)
    assert len(result.trials) == len(result.profiled) == 1 and result.complete
    for trial in (*result.trials, *result.profiled):
        shares = {process.role: process.cpu_percent or 0.0 for process in trial.usage.processes}
        assert shares["haproxy"] > 3 and shares["replica"] > 3
        assert sum(shares.values()) < 110 * sure(trial.usage.host.cores)
        assert sure(trial.usage.own_cpu_percent) < 5
        taken = trial.serve_metrics.deployments["noop#NoOp"]
        if taken != "stale":  # the host may be so busy that no export comes in time
            assert taken["requests"] == sure(trial.client.total).completed
    assert {trial.serve_metrics.status for trial in result.trials} <= {"fresh", "stale"}

    for trial in result.profiled:
        assert "replica" in kept_profiles(trial, tmp_path / "run")
    samples = (tmp_path / "run" / "samples.jsonl").read_text()
    assert samples.count('"kind":"host"') == 2
