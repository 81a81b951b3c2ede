"""Other programs beside a load: their names, and real ones with a known use of the CPU."""

from __future__ import annotations

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
from serve_bench.observing.others import program_name
from serve_bench.observing.sampler import Sampler, Watched

WORKS = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
held = server.accept()
while True:
    pass
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/usr/bin/python3.12 -u -X dev /srv/x.py --token s3cret", "python x.py"),
        ("python -m celery worker -A secret", "python -m celery"),
        ("python -c import_secret", "python"),
        ("/usr/bin/wrk -c 100 http://user:s3cret@host/", "wrk"),
        ("bash /home/me/build.sh s3cret", "bash build.sh"),
        ("python -m", "python -m"),
        ("", ""),
    ],
)
def test_a_program_is_named_by_its_file_and_script(line: str, name: str) -> None:
    assert program_name(line.split(" ")) == name


def test_a_title_ends_at_its_first_blank() -> None:
    assert program_name(["postgres: me secret [local] SELECT"]) == "postgres"
    assert program_name(["ray::ServeReplica:shop:Model   "]) == "ray::ServeReplica:shop:Model"


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process that is no child of ours, and its port: it computes once somebody has connected."""
    script = tmp_path / "stranger.py"
    script.write_text(WORKS)
    start = f"{sys.executable} {script} --token=s3cret & echo $! >&2"
    shell = subprocess.Popen(["sh", "-c", start], stdout=-1, stderr=-1, text=True)
    assert shell.stdout is not None and shell.stderr is not None
    pid, port = int(shell.stderr.readline()), int(shell.stdout.readline())
    shell.wait()
    yield pid, port
    os.kill(pid, signal.SIGKILL)


@pytest.mark.alone
@pytest.mark.parametrize("asks", [False, True])
def test_a_stranger_that_computes_is_named_unless_we_ask_it(
    asks: bool, stranger: tuple[int, int]
) -> None:
    pid, port = stranger
    connection = socket.create_connection(("127.0.0.1", port))
    if not asks:
        connection.close()
    with connection, Sampler([]) as sampler:
        began_ns, before_ns = time.time_ns(), cpu_ns(pid)
        time.sleep(1.3)
        seconds, after_ns = (time.time_ns() - began_ns) / 1e9, cpu_ns(pid)
    others = sampler.summary(began_ns, seconds)["others"]
    found = [program for program in others["programs"] if program["pid"] == pid]
    if asks:
        assert not found
        return
    assert before_ns is not None and after_ns is not None
    share = (after_ns - before_ns) / seconds / 1e7
    assert found[0]["program"] == "python stranger.py" and found[0]["processes"] == 1
    assert found[0]["cpu_percent"] == pytest.approx(share, abs=10)
    assert others["typical_percent"] >= 0.8 * share
    assert "s3cret" not in str(others)


@pytest.mark.alone
def test_what_a_replica_starts_is_its_child_and_no_other_program() -> None:
    code = "import subprocess, sys; sys.stdin.readline(); subprocess.Popen([*sys.argv[1:]]).wait()"
    burns = [sys.executable, "-c", "while True: pass"]
    replica = subprocess.Popen([sys.executable, "-c", code, *burns], stdin=-1, text=True)
    assert replica.stdin is not None
    with Sampler([Watched(replica.pid, "replica", "ray::ServeReplica:a:B")]) as sampler:
        began_ns = time.time_ns()
        replica.stdin.write("\n")
        replica.stdin.flush()
        time.sleep(1.5)
        seconds = (time.time_ns() - began_ns) / 1e9
    usage = sampler.summary(began_ns, seconds)
    (child,) = (process for process in usage["processes"] if process["role"] == "child_of_replica")
    assert child["title"] == "python" and child["cpu_percent"] > 0
    os.kill(child["pid"], signal.SIGKILL)
    replica.wait()
    assert child["pid"] not in [program["pid"] for program in usage["others"]["programs"]]
