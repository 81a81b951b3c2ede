"""profile --address on a real Ray cluster: two raylets on this machine, a replica on each."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import RayNodes, ray_nodes, run_to_end, start, wait_for_line

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.ptrace, pytest.mark.timeout(150)]

PY_SPY = r"py-spy record"
OURS = r"py-spy|WatchActor|serve_bench\.load\.tied"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(2) as made:
        yield made


@pytest.fixture(scope="module")
def replicas(cluster: RayNodes) -> Iterator[dict[int, str]]:
    """Node ids by pid of the replicas of an app on the cluster."""
    app = cluster.start("profiled_app.py", cluster.address, "2", "18764", "HeadOnly")
    try:
        assert app.stdout is not None
        yield {pid: node for node, pid in json.loads(app.stdout.readline()).items()}
    finally:
        app.communicate("", timeout=40)


def test_every_node_is_listed_and_recorded(
    cluster: RayNodes, replicas: dict[int, str], tmp_path: Path
) -> None:
    at = ("profile", "--address", cluster.address)
    listed = run_to_end([*at, "--list"], tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert sorted(replicas.values()) == sorted(cluster.raylets)
    for pid, node in replicas.items():
        how = f"--address {cluster.address} --node {node[:8]} --pid {pid}"
        (line,) = [one for one in listed.stdout.splitlines() if one.startswith(f"{pid} ")]
        assert re.search(rf"replica +profiled +Busy +\d+ +\d+  {how}$", line)
    assert re.search(r"^\d+ +controller ", listed.stdout, re.MULTILINE)
    assert len(re.findall(r"^node \S+ \(", listed.stdout, re.MULTILINE)) == 2

    before = set(Path(cluster.place).iterdir())
    done = run_to_end([*at, "--target", "replica", "--duration", "2", "-o", "o/r.svg"], tmp_path)
    assert done.returncode == 0, done.stderr
    stems = [f"r-{node[:8]}-replica-{pid}" for pid, node in replicas.items()]
    files = sorted(file.name for file in (tmp_path / "o").iterdir())
    assert files == sorted(f"{stem}{end}" for stem in stems for end in (".svg", ".raw.txt"))
    for stem in stems:
        raw = (tmp_path / "o" / f"{stem}.raw.txt").read_text()
        assert "handle_busily (profiled_app.py:" in raw
        assert "handle_busily" in (tmp_path / "o" / f"{stem}.svg").read_text()
    assert "handle_busily (profiled_app.py)" in done.stdout
    assert all(f"{pid} on {node[:8]}" in done.stdout for pid, node in replicas.items())
    assert cluster.until(OURS, 0) == {}
    assert set(Path(cluster.place).iterdir()) == before  # the TMPDIR of the nodes


def test_one_process_of_one_node(
    cluster: RayNodes, replicas: dict[int, str], tmp_path: Path
) -> None:
    pid, node = next(iter(replicas.items()))
    other = next(one for one in cluster.raylets if one != node)
    at = ("profile", "--address", cluster.address, "--node", node[:10])
    words = [*at, "--pid", str(pid), "--duration", "1", "-o", "x.speedscope.json"]
    done = run_to_end(words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "handle_busily" in json.dumps(json.loads((tmp_path / "x.speedscope.json").read_text()))
    dumped = run_to_end([*at, "--pid", str(pid), "--dump"], tmp_path)
    assert dumped.stdout.startswith(f"Process {pid}: ray::ServeReplica:profiled:Busy")
    # A process of no such number, a target that this node has not, and a node without a meaning.
    gone = run_to_end([*at, "--pid", "999999999"], tmp_path)
    assert gone.returncode == 1 and "): no process 999999999: it has ended" in gone.stderr
    none = run_to_end([*at[:-1], other, "--target", "replica", "--app", "another"], tmp_path)
    assert none.returncode == 2
    assert "--target replica: no such Serve process of app another on node " in none.stderr
    unknown = run_to_end([*at[:-1], "zz", "--target", "all"], tmp_path)
    assert unknown.returncode == 2 and "--node: no node 'zz'; there are: " in unknown.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.speedscope.json"]


def test_ctrl_c_brings_what_was_sampled_and_a_kill_leaves_nothing(
    cluster: RayNodes, replicas: dict[int, str], tmp_path: Path
) -> None:
    words = ("profile", "--address", cluster.address, "--target", "replica", "--duration", "90")
    ran = start(*words, cwd=tmp_path)
    wait_for_line(ran, "recording 2 processes on 2 nodes for 90 s")
    assert len(cluster.until(PY_SPY, 2)) == 2
    time.sleep(1.5)  # some of what is recorded
    ran.send_signal(signal.SIGINT)
    out, _ = ran.communicate(timeout=45)
    assert ran.returncode == 130, out
    raws = [file.read_text() for file in tmp_path.glob("*.raw.txt")]
    assert len(raws) == 2 and all("handle_busily" in raw for raw in raws)
    assert cluster.until(OURS, 0) == {}

    again = tmp_path / "again"
    again.mkdir()
    ran = start(*words, cwd=again)
    try:
        assert len(cluster.until(PY_SPY, 2)) == 2
    finally:
        ran.kill()
        ran.communicate()
    assert cluster.until(OURS, 0) == {}
    assert list(again.iterdir()) == []
    assert all(psutil.Process(pid).status() != "stopped" for pid in replicas)


def test_a_node_that_dies_is_named_and_the_rest_is_kept(
    cluster: RayNodes, replicas: dict[int, str], tmp_path: Path
) -> None:
    """Last of all: a raylet is gone after it."""
    heads = {pid for pid in replicas if replicas[pid] == next(iter(cluster.raylets))}
    (lost,) = [node for pid, node in replicas.items() if pid not in heads]
    words = ("profile", "--address", cluster.address, "--target", "replica", "--duration", "6")
    ran = start(*words, cwd=tmp_path)
    assert len(cluster.until(PY_SPY, 2)) == 2
    time.sleep(1.0)
    raylet = psutil.Process(cluster.raylets[lost])
    (actor,) = [one for one in raylet.children() if "WatchActor" in " ".join(one.cmdline())]
    for one in (raylet, actor):  # a host that dies takes both
        one.kill()
    out, _ = ran.communicate(timeout=90)
    assert ran.returncode == 0, out
    (said,) = [one for one in out.splitlines() if "serve-bench: " in one]
    assert re.match(rf"serve-bench: node \S+ \(\S+, {lost[:8]}\): its recordings are lost: ", said)
    (raw,) = tmp_path.glob("*.raw.txt")
    assert lost[:8] not in raw.name and "handle_busily" in raw.read_text()
