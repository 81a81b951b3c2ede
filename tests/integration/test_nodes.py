"""Load from the nodes of a real Ray cluster: four raylets on this machine, with a token.

What a node counts is held against what the server counted; nodes die, hang and are called off.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import msgspec
import psutil
import pytest

from serve_bench.core.facts import NodeFacts
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, LoadOn, Timing
from serve_bench.core.request_spec import Request
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.load.merge import combine
from serve_bench.nodes.crew import NodeCrew, NodesFailed
from serve_bench.runner.load_source import NodeLoads
from serve_bench.store import read
from tests.cases import Patch, sure
from tests.integration.conftest import RayNodes, ray_nodes, until
from tests.places import execute, program
from tests.servers import serving

pytestmark = [pytest.mark.ray, pytest.mark.ci]

ROOT = Path(__file__).parents[2]
SHORT = Timing(0.3, 1.0, windows=3, window_s=0.3, drain_s=2.0)


#: Load actors and load workers that nodes run.
OURS = r"ray::LoadActor|serve_bench\.load\."
WORKERS = r"serve_bench\.load\.worker"


def left(cluster: RayNodes, known: Mapping[int, str]) -> dict[int, str]:
    """List what remains of those after at most 15 s, but for the ones known before."""

    def found() -> dict[int, str]:
        return {pid: line for pid, line in cluster.running(OURS).items() if pid not in known}

    until(lambda: not found(), 15, 0.2)
    return found()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(4) as made:
        yield made


@pytest.fixture(scope="module")
def crew(cluster: RayNodes) -> Iterator[NodeCrew]:
    log = Path(cluster.place, "nodes.log")
    with closing(NodeCrew(cluster.address, "ab12cd", log, env=cluster.env)) as crew:
        crew.start()
        yield crew
    assert left(cluster, {}) == {}


def actor_on(cluster: RayNodes, node: str) -> psutil.Process:
    """Find the load actor of a node. Ray rewrites its title at each call: a look may find none."""

    def found() -> list[psutil.Process]:
        children = psutil.Process(cluster.raylets[node]).children()
        return [child for child in children if "ray::LoadActor" in " ".join(child.cmdline())]

    (actor,) = until(found, 5)
    return actor


def at(phase: str, act: Callable[[], None], completed: int = 1) -> Callable[[Progress], None]:
    """Acts once, when this phase has completed so many requests on all nodes together."""
    done: list[bool] = []

    def look(progress: Progress) -> None:
        if progress.phase == phase and progress.completed >= completed and not done:
            done.append(True)
            act()

    return look


def lost_of(result: LoadResult) -> dict[str, NodeFacts]:
    return {node.node: node for node in result.nodes if node.lost is not None}


def test_nodes_add_up_to_the_server(crew: NodeCrew, cluster: RayNodes, monkeypatch: Patch) -> None:
    monkeypatch.setattr("serve_bench.nodes.crew.combine", kept := Mock(wraps=combine))
    assert {node.node_id for node in crew.nodes} == set(cluster.raylets)
    assert all(node.node_ip and node.hostname for node in crew.nodes)
    seen: list[Progress] = []
    paths: list[str] = []

    def look(progress: Progress) -> None:
        seen.append(progress)
        if progress.phase == "measure" and not paths:
            workers = map(psutil.Process, cluster.running(WORKERS))
            paths.extend(worker.environ()["PYTHONPATH"] for worker in workers)

    with serving(delay_s=0.002) as server:
        request = Request(server.url, expect_body=b"ok")
        load = Load(request, connections=2, connection_rates=True)
        loads = {node: load for node in cluster.raylets}
        total = crew.drive(loads, SHORT, on_progress=look, sample=True)
    _, parts = kept.call_args.args
    assert lost_of(total) == {}
    assert total.total.sent == len(server.log) == total.total.completed
    assert total.measured.completed == sum(part.measured.completed for part in parts)
    assert total.windows == tuple(map(sum, zip(*(part.windows for part in parts), strict=True)))
    assert len(parts) == 4 and all(part.measured.completed for part in parts)
    # On one machine the clocks are one: the bound holds for the starts as they were.
    starts = [part.started_at_ns for part in parts]
    assert max(starts) - min(starts) <= sure(total.skew_s) * 1e9
    assert {"measure"} <= {progress.phase for progress in seen}
    assert [fact.node for fact in total.nodes] == [node.node_id for node in crew.nodes]
    for fact in total.nodes:  # the workers of a node were sampled there
        assert sure(fact.connection_rate_max) >= sure(fact.connection_rate_mean) > 0
        roles = {process.role for process in sure(fact.usage).processes}
        assert {"load_worker", "serve_bench"} <= roles
    msgspec.json.encode(total.nodes)
    # The package came to the nodes with the crew: it need not be installed there.
    assert len(paths) == 4 and all("py_modules_files" in path for path in paths)
    # And a target that nobody can reach is said as a local load says it.
    gone = {node: Load(Request(server.url)) for node in loads}
    with pytest.raises(LoadError, match=r"^connect: 127\.0\.0\.1:\d+: connection refused$"):
        crew.drive(gone, SHORT)


def test_ctrl_c_keeps_the_measured(crew: NodeCrew, cluster: RayNodes, monkeypatch: Patch) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    with serving(delay_s=0.002) as server:
        load = Load(Request(server.url), connections=2)
        loads = dict.fromkeys(list(cluster.raylets)[:2], load)
        timing = Timing(0.3, 0.5, windows=100, window_s=0.2)
        with pytest.raises(LoadInterrupted) as caught:
            crew.drive(loads, timing, on_progress=at("measure", press))
        total = caught.value.result
        assert lost_of(total) == {}
        assert 1 <= len(total.windows) < 100
        assert sum(total.windows) <= total.measured.completed == total.latency.count
        # Before anything is measured it is Ctrl-C alone; and the crew can go on after both.
        with pytest.raises(KeyboardInterrupt) as plain:
            crew.drive(loads, Timing(30, 60), on_progress=at("warmup", press))
        assert not isinstance(plain.value, LoadInterrupted)
        assert lost_of(crew.drive(loads, SHORT)) == {}
        # Just after the nodes have answered, the row is whole.
        monkeypatch.setattr(crew, "_combine", once := Mock(wraps=crew._combine))
        once.side_effect = [KeyboardInterrupt, DEFAULT]
        with pytest.raises(LoadInterrupted) as late:
            crew.drive(loads, SHORT)
        assert len(late.value.result.windows) == SHORT.windows


PARENT = """
import sys
from pathlib import Path
from serve_bench.core.load_spec import Load, Timing
from serve_bench.nodes.crew import NodeCrew
from serve_bench.core.request_spec import Request
address, log, url = sys.argv[1:]
crew = NodeCrew(address, "ab12cf", Path(log))
crew.start()
load = Load(Request(url), connections=1)
loads = {node.node_id: load for node in crew.nodes}
crew.drive(loads, Timing(0.2, 0.3, windows=60), on_progress=lambda p: None)
"""


def test_a_killed_parent_leaves_nothing(cluster: RayNodes, tmp_path: Path) -> None:
    known, before = cluster.running(OURS), len(cluster.running(WORKERS))
    with serving(delay_s=0.002) as server:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, cluster.address, str(tmp_path / "log"), server.url],
            env={**cluster.env, "PYTHONPATH": str(ROOT)},
        )
        try:
            assert len(cluster.until(WORKERS, 4 + before, 30)) == 4 + before
        finally:
            parent.kill()
            parent.wait()
        assert left(cluster, known) == {}


OTHER_RAY = """\
exec {python} -c "import ray, runpy
ray.__version__ = '2.0.0'
runpy.run_module('serve_bench.nodes', run_name='__main__')"
"""


def test_what_cannot_be_joined_is_one_line(cluster: RayNodes, tmp_path: Path) -> None:
    def refusal(address: str, python: str | None = None, **env: str) -> str:
        began = time.monotonic()
        crew = NodeCrew(address, "ab12d0", tmp_path / "log", {**cluster.env, **env}, python)
        with pytest.raises(NodesFailed) as caught:
            crew.start()
        crew.close()
        assert time.monotonic() - began < 25
        assert "\n" not in str(caught.value)
        return str(caught.value)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = refusal(f"127.0.0.1:{port}")
        assert found == f"Ray's GCS at 127.0.0.1:{port} gave no answer in 10 s"
    assert refusal(f"127.0.0.1:{port}") == f"no Ray cluster at 127.0.0.1:{port}: connection refused"
    assert "does not let us in" in refusal(cluster.address, RAY_AUTH_TOKEN="b" * 64)
    other = program(tmp_path / "python", OTHER_RAY.format(python=sys.executable))
    assert re.fullmatch(
        r"cluster \S+ runs Ray \S+ on Python \S+, and here are Ray 2\.0\.0 and Python \S+: "
        r"use an interpreter with the cluster's",
        refusal(cluster.address, str(other)),
    )


def test_any_load_is_dealt_out(crew: NodeCrew, cluster: RayNodes, tmp_path: Path) -> None:
    before, load = cluster.running(OURS), (sys.executable, "-m", "serve_bench", "load")
    env = {**cluster.env, "PYTHONPATH": str(ROOT)}
    with serving() as server:
        words = f"{server.url} -c 5 -d 0.6s -f json --load-nodes 3 --out r".split()
        where = ("--load-on", cluster.address)
        ran = execute(*load, *words, *where, cwd=tmp_path, env=env, timeout_s=90)
        assert ran.returncode == 0, ran.stderr
        (trial,) = read(tmp_path / "r").trials
        assert len(server.log) == sure(trial.client.total).sent
    nodes = trial.client.nodes
    assert sorted(node.connections for node in nodes) == [1, 2, 2]
    answered = sure(trial.client.in_windows).completed  # whenever they were sent
    assert sum(node.completed for node in nodes) == answered > 0
    assert any("load from 3 nodes of a Ray cluster" in note for note in trial.client.notes)
    loads = NodeLoads(LoadOn(cluster.address, 9), "ab12ce", tmp_path / "log", crew)
    with pytest.raises(NodesFailed, match="--load-nodes 9: the cluster has 4 nodes alive"):
        loads.drive()(Load(Request("http://127.0.0.1:9/")), SHORT)
    assert left(cluster, before) == {}


def test_nodes_that_die_or_hang_are_lost(crew: NodeCrew, cluster: RayNodes) -> None:
    """Last of all: a raylet is gone after it."""
    idle, killed, stopped, without_raylet = cluster.raylets  # the head is the first
    hung: list[psutil.Process] = []

    def strike() -> None:
        actor_on(cluster, killed).kill()
        hung.append(actor_on(cluster, stopped))
        hung[0].send_signal(signal.SIGSTOP)
        os.kill(cluster.raylets[without_raylet], signal.SIGKILL)

    with serving(delay_s=0.002) as server:
        load = Load(Request(server.url), connections=2)
        timing = Timing(0.3, 1.0, windows=12, window_s=1.0)
        look = at("measure", strike, completed=2000)  # by then each node has reported some
        result = crew.drive(dict.fromkeys(cluster.raylets, load), timing, on_progress=look)
    with suppress(psutil.NoSuchProcess):  # its raylet has ended it already
        hung[0].send_signal(signal.SIGCONT)  # it was told to end, and does
    lost = lost_of(result)
    assert set(lost) == {killed, stopped, without_raylet}
    heard = {node: sure(fact.last_heard) for node, fact in lost.items()}
    assert all(last.completed > 0 for last in heard.values())
    assert all("\n" not in sure(fact.lost) for fact in lost.values())
    assert lost[stopped].lost == "it has not answered for 10 s"
    assert heard[stopped].age_s >= 9
    assert len(result.windows) == 12
    known = sum(last.completed for last in heard.values())
    assert result.total.completed + known <= len(server.log)
    # The crew goes on: with a new actor where one was lost, or died between two loads.
    died = actor_on(cluster, idle)
    died.kill()
    died.wait(10)
    with serving(delay_s=0.002) as server:
        load = Load(Request(server.url), connections=2)
        both = crew.drive({killed: load, idle: load}, SHORT)
    assert lost_of(both) == {} and both.total.sent == len(server.log)
