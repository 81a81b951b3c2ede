"""`serve-bench noop`: warm-up figures, then real wrk and ab against it; ends cleanly."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from serve_bench.store import read
from tests.integration.conftest import run_to_end, start, wait_for_line, wait_until_clean

pytestmark = pytest.mark.ray


def test_without_blocking_it_prints_the_warm_up_and_exits(tmp_path: Path) -> None:
    """And knows what each replica took; without samples, none are kept."""
    done = run_to_end(
        [
            *("noop", "--num-replicas", "2", "--num-queries", "50", "--port", "0"),
            *("--no-sample", "--out", "run"),
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"count 50\b", done.stdout)
    for name in ("mean", "std", "min", "p50", "p90", "p95", "p99", "max"):
        assert re.search(rf"^ +{name} +[0-9.]+ ms$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"url: http://127\.0\.0\.1:\d+/noop", done.stdout)
    (trial,) = read(tmp_path / "run").trials
    assert len(trial.served) == 2 and sum(trial.served.values()) == 50
    assert not trial.usage and not trial.serve_metrics and not trial.profiles
    assert not (tmp_path / "run" / "samples.jsonl").exists()


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
        ["wrk", "-c", "100", "-t", "2", "-d", "3s", "--latency", url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in wrk and "Socket errors" not in wrk
    assert float(re.search(r"Requests/sec: +([\d.]+)", wrk).group(1)) > 0  # type: ignore[union-attr]
    ab = subprocess.run(
        ["ab", "-k", "-q", "-c", "100", "-n", "2000", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert re.search(r"Complete requests: +2000$", ab, re.MULTILINE)
    assert re.search(r"Failed requests: +0$", ab, re.MULTILINE)
    assert "Non-2xx" not in ab
    assert re.search(r"HTML transferred: +4000 bytes", ab)  # "ok" 2,000 times: no framing in it
    began = time.monotonic()
    process.send_signal(end)
    assert process.wait(10) == 0
    assert time.monotonic() - began < 5
    assert wait_until_clean(1) == []


def test_a_cluster_that_dies_by_itself_is_a_failure(tmp_path: Path) -> None:
    process = start(
        "noop", "--blocking", "--num-replicas", "1", "--num-queries", "10", "--port", "0",
        cwd=tmp_path,
    )  # fmt: skip
    wait_for_line(process, r"serving until")
    child = next(
        child
        for child in psutil.Process(process.pid).children()
        if "serve_bench/cluster" in " ".join(child.cmdline())
    )
    child.kill()
    output, _ = process.communicate(timeout=15)
    assert process.returncode == 1
    assert "the cluster process ended" in output
