"""`serve-bench noop`: real wrk and ab against it, and it ends cleanly.

Its warm-up figures, and how it ends when its cluster dies, are seen beside profiles in
test_profile.py: there it is started all the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import start, wait_for_line, wait_until_clean

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


#: What is open to other machines, two replicas being up: the README says the same.
OPEN = {
    "default": {"ray::ServeReplica": 2},
    "optimized": {"ray::ServeReplica": 2, "haproxy": 2},
}


def open_ports(pid: int) -> Counter[str]:
    """Ports of a process and all below it that listen beyond loopback, by the name of who does, as
    `ss` sees them."""
    tree = {one.pid: one.name() for one in psutil.Process(pid).children(recursive=True)}
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
@pytest.mark.parametrize(
    ("variant", "end"),
    [
        pytest.param("default", signal.SIGINT, marks=pytest.mark.long),
        ("optimized", signal.SIGTERM),
    ],
)
def test_wrk_and_ab_find_no_fault_and_it_ends_with_0(
    variant: str, end: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    process = start(
        *("noop", "--blocking", "--num-replicas", "2", "--num-queries", "100"),
        *("--port", "0", "--variant", variant),
        cwd=tmp_path,
    )
    url = wait_for_line(process, r"url: (\S+)").group(1)
    replicas = wait_for_line(process, r"replica +([\d ]+)$").group(1).split()
    assert len(replicas) == 2
    assert psutil.Process(int(replicas[0])).cmdline()[0].startswith("ray::ServeReplica:noop:NoOp")
    wait_for_line(process, r"serving until")
    assert open_ports(process.pid) == OPEN[variant]
    (token,) = Path(os.environ["TMPDIR"]).glob("sb-*/1/token")
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parents[1].stat().st_mode & 0o777 == 0o700
    assert list(home.iterdir()) == []  # Ray's own place for a token is there
    wrk = subprocess.run(
        ["wrk", "-c", "100", "-t", "2", "-d", "1s", "--latency", url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in wrk and "Socket errors" not in wrk
    assert float(re.search(r"Requests/sec: +([\d.]+)", wrk).group(1)) > 0  # type: ignore[union-attr]
    ab = subprocess.run(
        ["ab", "-k", "-q", "-c", "100", "-n", "500", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert re.search(r"Complete requests: +500$", ab, re.MULTILINE)
    assert re.search(r"Failed requests: +0$", ab, re.MULTILINE)
    assert "Non-2xx" not in ab
    assert re.search(r"HTML transferred: +1000 bytes", ab)  # "ok" 500 times: no framing in it
    process.send_signal(end)
    assert process.wait(10) == 0
    assert wait_until_clean(1) == []
