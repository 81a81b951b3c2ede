"""`serve-bench versus` on a real Ray Serve: two clusters at once, the verdict, and their end."""

from __future__ import annotations

import shlex
import shutil
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from serve_bench.report import render
from serve_bench.store import read
from tests.integration.conftest import run_to_end, start, wait_for_line, wait_until_clean
from tests.integration.test_ci_example import HANDLER, SPIN
from tests.test_ci_example import EXAMPLE, commands

pytestmark = pytest.mark.ray


@pytest.mark.long
@pytest.mark.timeout(300)  # six launches
def test_optimized_is_improved_over_default(tmp_path: Path) -> None:
    line = ["versus", "--a", "default", "--b", "optimized", "--quick", "--out", "run"]
    done = run_to_end(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "improved" in done.stdout
    result = read(tmp_path / "run")
    assert result.complete and all(one.clean for one in result.teardowns)
    assert [(one.variant.name, one.round) for one in result.launches] == [
        *[("default", 1), ("optimized", 1), ("default", 2), ("optimized", 2)],
        *[("default", 3), ("optimized", 3)],
    ]
    # Both of a round were up at once, on ports of their own.
    ids = [(one.id, one.proof["port"]) for one in result.launches]
    assert sorted(int(number) for number, _ in ids) == [1, 2, 3, 4, 5, 6]
    assert [int(ids[2][0]), int(ids[3][0])] == [4, 3]  # the second round swapped them
    assert all(first[1] != second[1] for first, second in pairwise(ids))
    owners = {one.variant.name: one.proof["port_owner"]["role"] for one in result.launches}
    assert owners == {"default": "proxy", "optimized": "haproxy"}
    rates: dict[str, float] = {}
    for trial in result.trials:
        told = trial.client["slices"]
        assert told["method"] == "slices" and trial.counts.failed_total == 0
        assert len(told["completed"]) == len(told["begun_s"]) == len(told["length_s"])
        (cpu_s,) = trial.metrics["server_cpu"].windows or ()
        assert 0.1 < cpu_s < 2 * 30
        roles = {one["role"] for one in trial.usage["processes"]}
        assert "replica" in roles and ("haproxy" in roles) is (trial.variant == "optimized")
        rates[trial.variant] = sum(told["completed"]) / sum(told["length_s"])
    assert rates["optimized"] > 2 * rates["default"]
    told = [trial.client["slices"] for trial in result.trials]
    chosen = {(one["slice_s"], one["connections"], one["chosen_drain_s"]) for one in told}
    assert len(chosen) == 1  # what the first round chose held
    for format_ in ("json", "csv", "markdown"):
        assert render(result, format_).strip()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_against_itself_broken_off_and_gone_on_with(tmp_path: Path) -> None:
    line = ["versus", "--a", "optimized", "--aa", "--quick", "--rounds", "2", "--no-sample"]
    process = start(*line, "--clients", "raw:8", "--out", "run", cwd=tmp_path)
    wait_for_line(process, r"\[2/4\]")
    wait_for_line(process, r"round 2, .*deploy")
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read() if process.stdout else ""
    assert process.wait(30) == 130, rest
    assert wait_until_clean(1) == []
    assert "interrupted" in rest and "--resume run" in rest
    first = read(tmp_path / "run")
    assert [trial.round for trial in first.trials] == [1, 1]
    assert len(first.teardowns) == 4 and all(one.clean for one in first.teardowns)

    done = run_to_end(["versus", "--resume", "run"], tmp_path)
    assert done.returncode == 0, done.stderr
    result = read(tmp_path / "run")
    assert result.complete and sorted(one.round for one in result.trials) == [1, 1, 2, 2]
    assert {one.variant for one in result.trials} == {"optimized (A)", "optimized (B)"}
    chosen = {one.client["slices"]["chosen_drain_s"] for one in result.trials}
    assert len(chosen) == 1  # by the first sitting
    assert len({one.id for one in result.launches}) == len(result.launches)


@pytest.mark.long
def test_a_kill_leaves_neither_side(tmp_path: Path) -> None:
    line = ["versus", "--a", "optimized", "--aa", "--quick", "--out", "run"]
    process = start(*line, cwd=tmp_path)
    wait_for_line(process, r"optimized \(B\) \| deploy")
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert wait_until_clean(15) == []


BROKEN = """
[variants.broken.env]
RAY_SERVE_THROUGHPUT_OPTIMISED = 1
"""


def test_a_side_that_does_not_start_ends_its_rounds(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(BROKEN)
    line = ["versus", "--a", "default", "--b", "broken", "--suite", "./mine.toml", "--rounds", "1"]
    done = run_to_end(line, tmp_path)
    assert done.returncode == 1
    assert "knows no flag RAY_SERVE_THROUGHPUT_OPTIMISED" in done.stderr
    assert "go on with: serve-bench versus --resume" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_pull_request_that_is_slower_breaks_the_gate(tmp_path: Path) -> None:
    """The command of the example workflow is understood as it stands; a quicker one fails."""
    for place in ("base", "pr"):
        shutil.copytree(EXAMPLE, tmp_path / place)
    app = tmp_path / "pr" / "app.py"
    app.write_text(app.read_text().replace(HANDLER, HANDLER + SPIN))
    (line,) = [one for one in commands("versus") if one.startswith("serve-bench ")]
    words = shlex.split(line.partition(" >> ")[0])[1:]
    plan = run_to_end([*words, "--dry-run"], tmp_path)
    assert plan.returncode == 0 and "6 rounds" in plan.stdout, plan.stderr

    quick = [word if word != "6" else "3" for word in words]
    done = run_to_end([*quick, "--quick", "--clients", "raw:8", "--out", "run"], tmp_path)
    assert done.returncode == 3, done.stderr
    assert "regressed" in done.stdout and "| " in done.stdout
    result = read(tmp_path / "run")
    assert result.complete
    assert {one.variant for one in result.trials} == {"base/app.py:app", "pr/app.py:app"}
    deployments = [{at["deployment"] for at in one.proof["replicas"]} for one in result.deploys]
    assert deployments == [{"Ranker", "Shop"}] * 6
