"""`serve-bench micro` on a real Ray Serve: both variants, proof, records, resume, failures."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from serve_bench.result import Result, Trial
from serve_bench.store import read
from tests.integration.conftest import run_to_end, start, wait_for_line, wait_until_clean

pytestmark = pytest.mark.ray

TWO_CELLS = ("--max-concurrent-queries", "1,100", "--num-replicas", "2")
SHORT = ("--windows", "3", "--window-seconds", "0.3")


def trials_by_row(result: Result) -> dict[tuple[str, str], Trial]:
    return {(trial.variant, trial.row.label): trial for trial in result.trials}


def test_two_cells_both_variants_all_rows_with_proof(tmp_path: Path) -> None:
    done = run_to_end(
        ["micro", *TWO_CELLS, *SHORT, "--variant", "default,optimized", "--out", "run"], tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = read(tmp_path / "run")
    assert len(result.trials) == 12 and result.complete
    assert [trial.counts.failed_total for trial in result.trials] == [0] * 12
    assert all(trial.counts.balanced and trial.counts.completed > 0 for trial in result.trials)

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

    # The second cell differs in concurrency alone: the same replicas, which say what they use now.
    for first, second in ((0, 1), (2, 3)):
        one, two = (result.deploys[at].proof["replicas"] for at in (first, second))
        assert [replica["pid"] for replica in one] == [replica["pid"] for replica in two]
        assert {replica["max_ongoing_requests"] for replica in one} == {1}
        assert {replica["max_ongoing_requests"] for replica in two} == {100}
        assert result.deploys[second].in_place and not result.deploys[first].in_place
    assert all(teardown.clean for teardown in result.teardowns)

    assert "100 connections" in done.stdout and "ratio" in done.stdout
    for format_ in ("classic", "json", "csv", "markdown"):
        drawn = run_to_end(["report", "run", "--format", format_], tmp_path)
        assert drawn.returncode == 0 and drawn.stdout.strip(), drawn.stderr


def test_large_bodies_strings_and_the_intermediate_handle(tmp_path: Path) -> None:
    done = run_to_end(
        [
            "micro",
            "--num-replicas",
            "1",
            *SHORT,
            "--clients",
            "2,raw:4",
            "--data-size",
            "large",
            "--body-type",
            "str",
            "--intermediate-handle",
            "--variant",
            "default,optimized",
            "--out",
            "run",
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = read(tmp_path / "run")
    assert len(result.trials) == 4
    assert all(trial.counts.failed_total == 0 for trial in result.trials)
    assert all(trial.counts.completed > 0 for trial in result.trials)


MINE = """
variant = ["good", "option", "flag"]
load.clients = ["1"]
[variants.good.http_options]
request_timeout_s = 7.5
[variants.option.http_options]
reqest_timeout_s = 7.5
[variants.flag.env]
RAY_SERVE_THROUGHPUT_OPTIMISED = 1
"""


def test_options_and_flags_are_in_force_and_unknown_ones_fail_their_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")  # of the shell: makes no variant another
    done = run_to_end(["micro", "--suite", "./mine.toml", *SHORT, "--out", "run"], tmp_path)
    assert done.returncode == 1
    assert "note: RAY_SERVE_ENABLE_HA_PROXY of the shell is left out" in done.stderr
    result = read(tmp_path / "run")
    (good,) = result.launches
    assert good.proof["http_options"] == {"request_timeout_s": 7.5}
    assert good.proof["port_owner"]["role"] == "proxy"
    assert [trial.variant for trial in result.trials] == ["good"]
    assert "Serve has no option reqest_timeout_s; did you mean request_timeout_s?" in done.stderr
    assert "knows no flag RAY_SERVE_THROUGHPUT_OPTIMISED" in done.stderr
    assert "nearest: RAY_SERVE_THROUGHPUT_OPTIMIZED" in done.stderr
    assert [(one.what, one.variant) for one in result.failures] == [
        *(("launch", "option"), ("launch", "flag")),
    ]
    assert "launch-2.log" in done.stderr and "not measured" in done.stdout
    assert (tmp_path / "run" / "logs" / "launch-2.log").exists()


@pytest.mark.long
def test_ctrl_c_in_a_trial_prints_the_partial_table_and_resume_completes_it(tmp_path: Path) -> None:
    process = start(
        *("micro", *TWO_CELLS, "--clients", "8,raw:100", "--windows", "10"),
        *("--window-seconds", "0.5", "--out", "run"),
        cwd=tmp_path,
    )
    wait_for_line(process, r"\[1/4\].*8 clients.*req/s")
    other = run_to_end(["micro", "--resume", "run"], tmp_path)  # it is being written
    assert other.returncode == 2 and other.stderr.count("\n") == 1
    time.sleep(3.5)  # into the second trial's 5 s of windows: it is warm after 0.5 to 3 s
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read() if process.stdout else ""
    assert process.wait(15) == 130
    assert wait_until_clean(1) == []
    assert "not measured" in rest and "interrupted" in rest and "--resume run" in rest
    first = read(tmp_path / "run")
    broken_off = [trial for trial in first.trials if trial.flags.get("interrupted")]
    finished = [trial for trial in first.trials if trial not in broken_off]
    assert len(finished) == len(broken_off) == 1
    assert broken_off[0].counts.completed > 0
    assert len(broken_off[0].metrics["throughput"].windows or ()) < 10
    assert [one.key for one in first.failures] == [broken_off[0].key]

    resumed = run_to_end(["micro", "--resume", "run"], tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    second = read(tmp_path / "run")
    assert second.complete and len(second.trials) == 4
    assert not any(trial.flags.get("interrupted") for trial in second.trials)
    assert {t.started_at for t in finished} < {t.started_at for t in second.trials}
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines if json.loads(line)["kind"] == "trial"]
    assert sorted(keys) == sorted([*{t.key for t in second.trials}, broken_off[0].key])
    again = run_to_end(["micro", "--resume", "run"], tmp_path)
    assert again.returncode == 0 and len(read(tmp_path / "run").launches) == len(second.launches)


@pytest.mark.parametrize("victim", ["replica", "raylet"])
def test_a_part_of_serve_that_dies_in_a_trial_is_named_and_the_row_doubted(
    victim: str, tmp_path: Path
) -> None:
    process = start(
        *("micro", "--max-concurrent-queries", "50,100", "--num-replicas", "1", "--clients"),
        *("raw:10", "--windows", "8", "--window-seconds", "0.5", "--variant", "optimized"),
        *("--out", "run"),
        cwd=tmp_path,
    )
    wait_for_line(process, r"deploy")
    deadline = time.monotonic() + 30
    while not read(tmp_path / "run").deploys:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.5)  # into the load
    (launch,) = read(tmp_path / "run").launches
    pids = [p["pid"] for p in launch.proof["processes"] if p["role"] == victim]
    os.kill(pids[0], signal.SIGKILL)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 1, output
    assert f"{victim} {pids[0]} ended" in output
    failures = read(tmp_path / "run").failures
    assert any(f"{victim} {pids[0]} ended" in failure.message for failure in failures)


def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    arguments = ("micro", "--num-replicas", "1", *SHORT, "--clients", "1", "--variant", "optimized")
    both = [start(*arguments, "--out", name, cwd=tmp_path) for name in ("a", "b")]
    for process in both:
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0, output
    ports = [read(tmp_path / name).launches[0].proof["port"] for name in ("a", "b")]
    assert ports[0] != ports[1]
