"""`serve-bench recsys` and `micro --app ranker` on a real Ray, with small tables."""

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from serve_bench.core.result import Result
from serve_bench.store import read
from tests.integration.conftest import (
    SHORT,
    ended,
    get,
    measure,
    run_checked,
    start,
    wait_for_deploys,
    wait_for_line,
    wait_for_load_worker,
)
from tests.sheet_parts import ladders_of

pytestmark = [pytest.mark.ray, pytest.mark.torch]

SMALL = """
name = "small"
app = "recsys"
variant = ["default"]
[load]
users = [2, 6]
windows = 3
window_seconds = 0.8
warmup_seconds = 0.3
[cell]
max_batch_size = 4
batch_wait_timeout_s = 0.01
device = "cpu"
table_rows = 500
sparse_features = 6
[[cells]]
ranker = "plain"
num_replicas = 1
[[cells]]
ranker = "plain"
num_replicas = 2
[[cells]]
ranker = "tuned"
num_replicas = 2
"""
CELLS = [("plain", 1), ("plain", 2), ("tuned", 2)]


def test_both_rankers_climb_and_a_kill_costs_its_step_alone(resumed: bool, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    run = start("recsys", "--suite", "./small.toml", "--out", "run", cwd=tmp_path)
    wait_for_line(run, r"deploy$")
    wait_for_deploys(run, tmp_path / "run", 1)
    wait_for_load_worker(run.pid, 0.8)  # the step of 2 users is warm and measured
    ours = [
        child.pid
        for child in psutil.Process(run.pid).children(recursive=True)
        if "ServeReplica:recsys:Ranker" in "".join(child.cmdline())
    ]
    os.kill(ours[0], signal.SIGKILL)
    rest = ended(run, 1)
    result = read(tmp_path / "run")
    hurt, *others = result.trials
    assert [trial.row.connections for trial in result.trials] == [2, 6] * len(CELLS)
    # Serve fails the requests that the replica had or, at times, lets all wait for the next one.
    hurt_rates, rates = (trial.metrics["throughput"].windows or () for trial in (hurt, others[0]))
    assert hurt.counts.failed_total > 0 or min(hurt_rates) < min(rates) / 10
    assert all(other.counts.failed == {} for other in others)
    # Or it came so early that no request began in the windows: then that is said too.
    assert {failure.key for failure in result.failures} == {hurt.key}
    assert f"replica {ours[0]} ended during the trial" in result.failures[0].message
    assert "failed: replica" in rest
    assert ("requests failed: " in rest) == (hurt.counts.failed_total > 0)
    assert f"replica {ours[0]}" not in others[0].served
    # Deployed again once it was replaced; from one to two replicas in place. Where Serve has
    # replaced it before the drain of the step is over, that deploy finds nothing to change.
    first, _, *later = [deploy.in_place for deploy in result.deploys]
    assert [first, *later] == [False, True, False]
    check_climbed(replace(result, trials=tuple(others)))
    if resumed:
        # What is in doubt is measured again, and nothing else.
        whole = measure("recsys --resume run", tmp_path)
        assert whole.complete and {trial.key for trial in whole.trials} == {hurt.key} | {
            other.key for other in others
        }
        assert [trial for trial in whole.trials if trial.key != hurt.key] == others
        check_climbed(whole)
        assert len(measure("recsys --resume run", tmp_path).launches) == 2


def check_climbed(result: Result) -> None:
    """Every step has what it must, and each ranker its ladder."""
    settings = [ladder.settings for ladder in ladders_of(result)]
    assert [(found["ranker"], found["num_replicas"]) for found in settings] == CELLS
    for trial in result.trials:
        assert trial.counts.failed == {} and trial.counts.completed > 10
        assert len(trial.served) == trial.cell["num_replicas"]
        sizes = {int(size): count for size, (count, _) in trial.forward.items()}
        asked = sum(size * count for size, count in sizes.items())
        assert max(sizes) <= 4 and asked == sum(trial.served.values())
        assert all(ns > 0 for _, ns in trial.forward.values())
        # Two ingress replicas for each ranker.
        titles = [process.title for process in trial.usage.processes if process.role == "replica"]
        assert {*titles} == {"ray::ServeReplica:recsys:Ranker", "ray::ServeReplica:recsys:Ingress"}
    replicas = [replica for deploy in result.deploys for replica in deploy.proof["replicas"]]
    assert {(replica["device"], replica["threads"]) for replica in replicas} == {("cpu", 1)}


def test_both_rankers_and_their_replicas_are_planned_by_flags(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    command = ["recsys", "--suite", "./small.toml", "--ranker", "both", "--ranker-replicas", "1,2"]
    done = run_checked([*command, "--dry-run"], tmp_path)
    planned = re.findall(r"num_replicas=(\d).*ranker=(\w+)", done.stdout)
    assert planned == [("1", "plain"), ("2", "plain"), ("1", "tuned"), ("2", "tuned")]


@pytest.mark.long
def test_micro_measures_a_ranker_of_one_tier(tmp_path: Path) -> None:
    command = ["micro", "--app", "ranker", "--device", "cpu", "--table-rows", "500", *SHORT]
    axes = ["--max-batch-size", "1,8", "--clients", "2,raw:4", "--ranker", "tuned"]
    run = start(*command, *axes, "--out", "r", cwd=tmp_path)
    wait_for_line(run, r"device cpu, 2 clients")
    port = read(tmp_path / "r").launches[0].proof["port"]
    url = f"http://127.0.0.1:{port}/ranker/?user_id="
    status, content = get(f"{url}7")
    assert (status, len(content["scores"])) == (200, 32)
    assert {get(url + user)[0] for user in ("x", "1.5", "")} == {422}
    ended(run, 0)
    result = read(tmp_path / "r")
    assert [(trial.cell["max_batch_size"], trial.row.label) for trial in result.trials] == [
        *((1, "2 clients"), (1, "4 connections")),
        *((8, "2 clients"), (8, "4 connections")),
    ]
    assert all(trial.counts.failed == {} for trial in result.trials)
    assert {trial.cell["device"] for trial in result.trials} == {"cpu"}
