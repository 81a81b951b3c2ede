"""`serve-bench noop`: real wrk and ab against it, and it ends cleanly.

Its warm-up figures, and how it ends when its cluster dies, are seen beside profiles in
test_profile.py: there it is started all the same."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.integration.conftest import start, wait_for_line, wait_until_clean

pytestmark = pytest.mark.ray


@pytest.mark.external
@pytest.mark.parametrize(
    ("variant", "end"), [("default", signal.SIGINT), ("optimized", signal.SIGTERM)]
)
def test_wrk_and_ab_find_no_fault_and_it_ends_with_0(
    variant: str, end: signal.Signals, tmp_path: Path
) -> None:
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
