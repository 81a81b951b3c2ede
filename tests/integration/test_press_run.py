"""`serve-bench press` on a real Ray: every row accounted, cut rows, log levels, the model."""

from pathlib import Path

import pytest

from tests.cases import sure
from tests.integration.conftest import measure, run_checked

pytestmark = pytest.mark.ray

ROWS = ["--clients", "1,4,30", "--requests-per-client", "40", "--max-row-seconds", "1"]


@pytest.mark.ci
def test_two_log_levels_in_one_cluster_with_every_row_accounted(tmp_path: Path) -> None:
    command = ["press", "--app", "noop", "--log-level", "DEBUG,ERROR", *ROWS]
    result = measure(command, tmp_path)
    assert len(result.launches) == 1 and result.failures == ()
    first, second = result.deploys
    assert first.proof["first_request"]["status"] == 200
    for deploy, level in ((first, "DEBUG"), (second, "ERROR")):
        assert deploy.proof["log_level"]["proxy"] == level
        assert set(deploy.proof["log_level"]["replicas"]) == {level}
        assert deploy.settled.completed > 10 and sure(deploy.settled.p50_ns) > 0
    assert {(trial.cell["log_level"], trial.row.connections) for trial in result.trials} == {
        (level, clients) for level in ("DEBUG", "ERROR") for clients in (1, 4, 30)
    }
    for trial in result.trials:
        counts, asked = trial.counts, trial.row.connections * 40
        assert trial.row.requests == asked and trial.flags.cut == (trial.ended_in_windows < asked)
        assert counts.completed > 0 == counts.failed_total
        assert trial.usage.processes and sum(trial.served.values()) >= counts.completed
    assert all(trial.flags.cut for trial in result.trials if trial.row.connections == 30)
    classic = run_checked(["report", "run", "--format", "classic"], tmp_path).stdout
    assert "json_1_200000_1_40" in classic
    assert len(measure("press --resume run", tmp_path).launches) == 1
