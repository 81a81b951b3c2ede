import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_bench.observing.host import cpu_ns
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler, program_name
from serve_bench.serving.server import Process
from tests.cases import cases, sure
from tests.places import begin

pytestmark = pytest.mark.alone

#: Works and sleeps by its own CPU clock, so that its share is known on a busy host too: it says
#: how much CPU it used and how long it lived.
BURN = """
import sys, time
share, seconds = float(sys.argv[1]), float(sys.argv[2])
print("ready", flush=True); sys.stdin.readline()
began, used = time.perf_counter(), time.process_time()
while (now := time.perf_counter()) < began + seconds:
    if time.process_time() - used < share * (now - began):
        sum(range(1000))
    else:
        time.sleep(0.002)
print(time.process_time() - used, time.perf_counter() - began, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def burner() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def burn(share: float, seconds: float, into: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = begin(sys.executable, "-c", BURN, str(share), str(seconds), stdin=subprocess.PIPE)
    into.append(process)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def press_enter(process: subprocess.Popen[str]) -> None:
    print(file=process.stdin, flush=True)


def go(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Lets it burn; returns the CPU seconds and the wall seconds that it counted itself."""
    press_enter(process)
    used_s, lived_s = map(float, sure(process.stdout).readline().split())
    return used_s, lived_s


@cases("share", 0.1, 0.4)
def test_a_known_use_is_seen(share: float, burner: list[subprocess.Popen[str]]) -> None:
    process = burn(share, 1.5, burner)
    with Sampler([Process(process.pid, "replica", "burner")]) as sampler:
        began_ns = time.time_ns()
        used_s, lived_s = go(process)
    summary = sampler.summary(began_ns, lived_s)
    (seen,) = [used for used in summary.processes if used.pid == process.pid]
    assert seen.cpu_percent == pytest.approx(100 * used_s / lived_s, abs=3)
    assert seen.busiest_thread_percent == pytest.approx(100 * used_s / lived_s, abs=5)
    assert seen.threads == 1 and seen.role == "replica"
    assert 1 < sure(seen.pss_mb) <= sure(seen.rss_mb) < 100
    assert sure(seen.turns_per_s) > 0 and sure(summary.interval_s) >= 0.1
    assert 0 < sure(summary.own_cpu_percent) < 100  # the cost of sampling
    assert 0 < sure(summary.host.cpu_percent) <= 110 * sure(summary.host.cores)


def test_children_that_come_later_are_seen_and_may_end(burner: list[subprocess.Popen[str]]) -> None:
    with Sampler([]) as sampler:
        began_ns = time.time_ns()
        process = burn(0.5, 3.0, burner)  # new ones are looked for each second
        used_s, _ = go(process)
        process.kill()
        process.wait()
        time.sleep(0.3)
        seconds = (time.time_ns() - began_ns) / 1e9
    processes = sampler.summary(began_ns, seconds).processes
    (worker,) = [process for process in processes if process.role == "load_worker"]
    assert worker.pid == process.pid
    seen_s = sure(worker.seen_s)
    assert 0 < seen_s < seconds
    assert sure(worker.cpu_percent) * seen_s / 100 == pytest.approx(used_s, rel=0.5)
    assert any(process.pid == os.getpid() for process in processes)


def test_new_children_are_seen_in_their_role_and_of_a_raylet_those_that_become_replicas() -> None:
    """A reload of HAProxy, and a replica that Serve adds while the load is on."""
    code = """read line; sleep 30 & child=$!
    bash -c 'exec -a ray::ServeReplica:app:Shop.handle_request sleep 30' &
    echo $child $!; read line; kill -9 $child $!"""
    parent = begin("bash", "-c", code, stdin=subprocess.PIPE)
    haproxy = Sampler([Process(parent.pid, "haproxy_manager", "manager")])
    raylet = Sampler([Process(parent.pid, "raylet", "raylet")])
    with haproxy, raylet:
        began_ns = time.time_ns()
        press_enter(parent)
        reloaded, added = map(int, sure(parent.stdout).readline().split())
        time.sleep(1.5)
        seconds = (time.time_ns() - began_ns) / 1e9
    parent.communicate("\n")
    seen = {process.pid: process.role for process in haproxy.summary(began_ns, seconds).processes}
    assert seen[reloaded] == "haproxy"
    late = raylet.summary(began_ns, seconds).processes
    (replica,) = (process for process in late if process.role == "replica")
    assert replica.pid == added and replica.title.startswith("ray::ServeReplica:app:Shop")


def test_dear_ticks_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    def dear(self: Sampler, budget_s: float = 0.0) -> int:
        self._own_ns.append((time.perf_counter_ns(), 0))
        return 6_000_000  # 6 ms at 1 % is a tick each 0.6 s

    monkeypatch.setattr(Sampler, "_tick", dear)
    monkeypatch.setattr(Sampler, "_read_threads", lambda self, track: None)
    with Sampler([]) as sampler:
        time.sleep(1.0)
    assert sampler._own_ns[2][0] - sampler._own_ns[1][0] >= 0.59e9
    assert sure(sampler.summary(time.time_ns(), 1.0).interval_s) > 0.25


def test_samples_are_lines_of_json_beside_the_records(tmp_path: Path) -> None:
    with Sampler([Process(os.getpid(), "self", "self")]) as sampler:
        time.sleep(0.3)
    keep_samples(tmp_path, sampler.samples("v/r1/c/row"))
    keep_samples(tmp_path, sampler.samples("v/r1/c/other"))
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"process", "host"}
    assert {line["trial"] for line in lines} == {"v/r1/c/row", "v/r1/c/other"}
    mine = next(line for line in lines if line.get("pid") == os.getpid())
    totals = [cpu for _, cpu in mine["cpu_ms"]]
    assert len(totals) >= 2 and totals == sorted(totals)


WORKS = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
held = server.accept()
while True:
    pass
"""


@cases(
    "words, name",
    ("/usr/bin/python3.12 -u -X dev /srv/x.py --token s3cret".split(" "), "python x.py"),
    ("python -m celery worker -A secret".split(" "), "python -m celery"),
    ("python -c import_secret".split(" "), "python"),
    (["perl", "-we", "if (x) {\n}"], "perl"),
    (["perl", "-E", "say"], "perl"),
    (["node", "--eval", "x", "a.js"], "node"),
    (["node", "-p", "x"], "node"),
    ("bash -e /home/me/build.sh".split(" "), "bash build.sh"),
    ("/usr/bin/wrk -c 100 http://user:s3cret@host/".split(" "), "wrk"),
    ("bash /home/me/build.sh s3cret".split(" "), "bash build.sh"),
    (["python", "-m"], "python -m"),
    ([""], ""),
    (["postgres: me secret [local] SELECT"], "postgres"),  # a title ends at its first blank
    (["ray::ServeReplica:shop:Model   "], "ray::ServeReplica:shop:Model"),
)
def test_a_program_is_named_by_its_file_and_script(words: list[str], name: str) -> None:
    assert program_name(words) == name


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Start a process that is no child of ours, and its port: it computes once connected to."""
    script = tmp_path / "stranger.py"
    script.write_text(WORKS)
    start = f"{sys.executable} {script} --token=s3cret & echo $! >&2"
    shell = begin("sh", "-c", start)
    pid, port = int(sure(shell.stderr).readline()), int(sure(shell.stdout).readline())
    shell.wait()
    yield pid, port
    os.kill(pid, signal.SIGKILL)


@cases("asks", False, True)
def test_a_stranger_is_named_unless_we_ask_it(asks: bool, stranger: tuple[int, int]) -> None:
    pid, port = stranger
    connection = socket.create_connection(("127.0.0.1", port))
    if not asks:
        connection.close()
    with connection, Sampler([]) as sampler:
        began_ns, before_ns = time.time_ns(), cpu_ns(pid)
        time.sleep(1.3)
        seconds, after_ns = (time.time_ns() - began_ns) / 1e9, cpu_ns(pid)
    others = sure(sampler.summary(began_ns, seconds).others)
    found = [program for program in others.programs if program.pid == pid]
    if asks:
        assert not found
        return
    share = (sure(after_ns) - sure(before_ns)) / seconds / 1e7
    assert found[0].program == "python stranger.py" and found[0].processes == 1
    assert found[0].cpu_percent == pytest.approx(share, abs=10)
    assert sure(others.typical_percent) >= 0.8 * share
    assert "s3cret" not in str(others)


def test_what_a_replica_starts_is_its_child_and_no_other_program() -> None:
    code = f"read line; {sys.executable} -c 'while True: pass' & wait"
    replica = begin("sh", "-c", code, stdin=subprocess.PIPE)
    with Sampler([Process(replica.pid, "replica", "ray::ServeReplica:a:B")]) as sampler:
        began_ns = time.time_ns()
        press_enter(replica)
        time.sleep(1.5)
        seconds = (time.time_ns() - began_ns) / 1e9
    usage = sampler.summary(began_ns, seconds)
    (child,) = (process for process in usage.processes if process.role == "child_of_replica")
    assert child.title == "python" and sure(child.cpu_percent) > 0
    os.kill(child.pid, signal.SIGKILL)
    replica.wait()
    assert child.pid not in [program.pid for program in sure(usage.others).programs]
