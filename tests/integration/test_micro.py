"""`serve-bench micro` on a real Ray Serve: variants, proof, counts, records, resume, failures."""

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Result
from serve_bench.core.usage import BATCH_SIZE
from serve_bench.store import read
from tests.cases import sure
from tests.integration.conftest import (
    SHORT,
    ended,
    measure,
    run_checked,
    start,
    wait_for_deploys,
    wait_for_line,
    wait_for_load_worker,
    wait_until_clean,
)

pytestmark = [pytest.mark.ray]

TWO_CELLS = """
name = "two_cells"
variant = ["default", "optimized"]
[load]
clients = ["1", "8", "raw:100"]
windows = 3
window_seconds = 0.3
warmup_seconds = 0.3
warmup_max_seconds = 0.5
[cell]
num_replicas = 2
batch_wait_timeout_s = 0.01
[[cells]]
max_batch_size = 16
max_ongoing_requests = 100
[[cells]]  # last: of 100 connections some are broken off before they had their turn
max_batch_size = 1
max_ongoing_requests = 1
"""

#: What else a request may be: large, answered by a string, and forwarded.
BODIES = ("--data-size", "large", "--body-type", "str", "--intermediate-handle")


def test_two_cells_both_variants_all_rows_with_proof_and_exact_counts(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO_CELLS)
    slo = ["--slo", "errors=0"]  # 100 connections wait 25 s for a slot: no p50 is known
    done = run_checked(["micro", "--suite", "./two.toml", *slo, "--out", "run"], tmp_path)
    assert "errors <= 0 %: met by 12 of 12 rows" in " ".join(done.stdout.split())
    result = read(tmp_path / "run")
    assert len(result.trials) == 12 and result.complete
    assert [trial.counts.failed_total for trial in result.trials] == [0] * 12
    assert all(trial.counts.balanced and trial.counts.completed > 0 for trial in result.trials)
    # Serve's tracing is off, and a record has no waterfall.
    assert not any(trial.waterfall.traced for trial in result.trials)
    assert "100 connections" in done.stdout and "Where the time goes" not in done.stdout

    owners = {launch.variant.name: launch.proof["port_owner"] for launch in result.launches}
    assert owners["default"]["role"] == "proxy"
    assert owners["default"]["name"].startswith("ray::ProxyActor")
    assert owners["optimized"]["name"] == "haproxy"
    flags = {launch.variant.name: launch.proof["flags"] for launch in result.launches}
    for role in ("proxy", "replica"):
        assert flags["default"][role]["RAY_SERVE_THROUGHPUT_OPTIMIZED"] is False
        assert flags["optimized"][role]["RAY_SERVE_THROUGHPUT_OPTIMIZED"] is True
    for launch in result.launches:
        roles = Counter(process["role"] for process in launch.proof["processes"])
        assert roles["replica"] == 2 and roles["controller"] == 1
        assert {"ray", "python", "uvicorn", "haproxy"} <= set(launch.proof["versions"])

    # The second cell is deployed in place: the same replicas, which say what they use now.
    for first, second in ((0, 1), (2, 3)):
        before, after = (result.deploys[at].proof["replicas"] for at in (first, second))
        assert [replica["pid"] for replica in before] == [replica["pid"] for replica in after]
        for replicas, ongoing, batch in ((before, 100, 16), (after, 1, 1)):
            assert {replica["max_ongoing_requests"] for replica in replicas} == {ongoing}
            assert {replica["queue_max_batch_size"] for replica in replicas} == {batch}
        assert result.deploys[second].in_place and not result.deploys[first].in_place
    assert all(teardown.clean for teardown in result.teardowns)
    check_counts(result)


def check_counts(result: Result) -> None:
    """Check what the no-op app counted: every request once, every batch at its size."""
    for trial in result.trials:
        total, served = sure(trial.client.total), sum(trial.served.values())
        sent = total.completed + total.in_flight
        metric = trial.metrics.get(BATCH_SIZE)
        assert len(trial.served) == 2
        if trial.cell["max_batch_size"] == 1:
            assert metric is None and total.completed <= served <= sent, trial.key
            continue
        # All that was sent arrived, since nothing failed: warm-up and the end included.
        assert served == sent, trial.key
        assert metric is not None and metric.histogram is not None
        batches = Histogram.decode(metric.histogram)
        assert sum(size * count for size, count in batches.occupied()) == sent, trial.key
        assert (batches.min or 0) >= 1 and (batches.max or 0) <= 16
        if trial.row.label == "single client":
            assert batches.max == 1
        else:
            assert (batches.mean or 0) > 1


MINE = """
variant = ["good", "option", "flag"]
[load]
clients = ["2", "raw:4"]
windows = 3
window_seconds = 0.3
[variants.good.http_options]
request_timeout_s = 7.5
[variants.option.http_options]
reqest_timeout_s = 7.5
[variants.flag.env]
RAY_SERVE_THROUGHPUT_OPTIMISED = 1
"""


@pytest.mark.ci
def test_options_and_flags_are_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")  # of the shell: makes no variant another
    done = run_checked(["micro", "--suite", "./mine.toml", *BODIES, "--out", "run"], tmp_path, 1)
    assert "note: RAY_SERVE_ENABLE_HA_PROXY of the shell is left out" in done.stderr
    result = read(tmp_path / "run")
    (good,) = result.launches
    assert good.proof["http_options"] == {"request_timeout_s": 7.5}
    assert good.proof["port_owner"]["role"] == "proxy"
    assert [trial.variant for trial in result.trials] == ["good", "good"]
    for trial in result.trials:
        assert trial.counts.failed_total == 0 and trial.counts.completed > 0
        assert trial.cell["intermediate_handle"] and trial.row.data_size == "large"
    assert "Serve has no option reqest_timeout_s; did you mean request_timeout_s?" in done.stderr
    assert "knows no flag RAY_SERVE_THROUGHPUT_OPTIMISED" in done.stderr
    assert "nearest: RAY_SERVE_THROUGHPUT_OPTIMIZED" in done.stderr
    assert [(failure.what, failure.variant) for failure in result.failures] == [
        *(("launch", "option"), ("launch", "flag"))
    ]
    assert "launch-2.log" in done.stderr and "not measured" in done.stdout
    assert (tmp_path / "run" / "logs" / "launch-2.log").exists()


@pytest.mark.ci
def test_ctrl_c_in_a_trial_prints_the_partial_table_and_resume_completes_it(tmp_path: Path) -> None:
    process = start(
        *("micro", *SHORT, "--max-ongoing-requests", "100", "--num-replicas", "2"),
        *("--clients", "8,raw:100,1", "--windows", "20", "--out", "run"),
        cwd=tmp_path,
    )
    wait_for_line(process, r"launch: starting Ray")
    other = run_checked(["micro", "--resume", "run"], tmp_path, 2)  # it is being written
    assert other.stderr.count("\n") == 1
    wait_for_line(process, r"\[1/3\].*8 clients.*req/s")
    wait_for_load_worker(process.pid, 3)  # of 6.5 s: it starts and is warm in 0.5 to 2 s
    process.send_signal(signal.SIGINT)
    rest = ended(process, 130, 15)
    assert wait_until_clean(1) == []
    assert "not measured" in rest and "interrupted" in rest and "--resume run" in rest
    first = read(tmp_path / "run")
    broken_off = [trial for trial in first.trials if trial.flags.interrupted]
    finished = [trial for trial in first.trials if trial not in broken_off]
    assert len(finished) == len(broken_off) == 1
    assert broken_off[0].counts.completed > 0
    assert len(broken_off[0].metrics["throughput"].windows or ()) < 20
    assert [failure.key for failure in first.failures] == [broken_off[0].key]

    second = measure("micro --resume run", tmp_path)
    assert second.complete and len(second.trials) == 3
    assert not any(trial.flags.interrupted for trial in second.trials)
    assert {t.started_at for t in finished} < {t.started_at for t in second.trials}
    assert len(measure("micro --resume run", tmp_path).launches) == len(second.launches)


@pytest.mark.ci
def test_parts_of_serve_that_die_in_trials_are_named_and_the_rows_doubted(tmp_path: Path) -> None:
    """Kill a replica, which Serve replaces, and a raylet, which costs that launch and no other."""
    folder = tmp_path / "run"
    process = start(
        *("micro", *SHORT, "--max-ongoing-requests", "50,100,200", "--num-replicas", "1"),
        *("--clients", "raw:10", "--windows", "10", "--variant", "optimized,default"),
        *("--out", "run"),
        cwd=tmp_path,
    )
    wait_for_line(process, r"deploy")
    # Once the replica is replaced, the first cell is deployed again; the second is the third.
    replica = kill_in_load(process, "replica", folder, deploys=1)
    raylet = kill_in_load(process, "raylet", folder, deploys=3)
    output = ended(process, 1)
    result = read(folder)
    for killed in (replica, raylet):
        assert f"{killed} ended" in output
        assert any(f"{killed} ended" in failure.message for failure in result.failures)
    asked = {t.cell["max_ongoing_requests"] for t in result.trials if t.variant == "optimized"}
    assert 50 in asked and 200 not in asked
    assert output.count("wait for what ended to be replaced") == 1  # for the replica alone
    assert [trial.variant for trial in result.trials if trial.launch == "2"] == ["default"] * 3
    assert len([deploy for deploy in result.deploys if deploy.launch == "2"]) == 3


def kill_in_load(process: subprocess.Popen[str], role: str, folder: Path, deploys: int) -> str:
    """Kills a process of the launch in the load that follows so many deploys; tells which."""
    (launch,) = wait_for_deploys(process, folder, deploys).launches
    wait_for_load_worker(process.pid, 1.0)
    pid = next(process["pid"] for process in launch.proof["processes"] if process["role"] == role)
    os.kill(pid, signal.SIGKILL)
    return f"{role} {pid}"
