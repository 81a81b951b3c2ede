"""serve-bench run: the user's own app on a real Ray, its options swept and proven."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration.conftest import run_to_end

pytestmark = [pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(240)]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_app"


def test_an_app_is_swept_and_each_option_proven(tmp_path: Path) -> None:
    """The example's suite file, from a folder of the user's, then the same run gone on with."""
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    out = tmp_path / "out"
    done = run_to_end(["run", "mine/shop.toml", "--quick", "--out", str(out)], tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    result = read(out)
    assert len(result.trials) == 4 and not result.failures
    assert all(one.counts.completed > 0 and not one.counts.failed for one in result.trials)
    (launch,) = result.launches
    assert launch.proof["http_options"]["request_timeout_s"] == 10
    assert launch.variant.env == {"OMP_NUM_THREADS": "1"}
    for deploy in result.deploys:
        replicas = deploy.proof["replicas"]
        rankers = [one for one in replicas if one["deployment"] == "Ranker"]
        assert len(rankers) == deploy.cell["Ranker.num_replicas"]
        asked = deploy.cell["Ranker.max_ongoing_requests"]
        assert {one["max_ongoing_requests"] for one in rankers} == {asked}
        assert {one["ray_actor_options.num_cpus"] for one in rankers} == {0.5}
        assert [one["deployment"] for one in replicas].count("Shop") == 1
    assert [one.in_place for one in result.deploys][1:] == [True] * 3
    assert "best: Ranker.num_replicas " in done.stdout and "limited by" in done.stdout
    again = run_to_end(["run", "--resume", str(out)], tmp_path)
    assert again.returncode == 0 and "best: " in again.stdout
    assert len(read(out).trials) == 4  # nothing was left to be measured


@pytest.mark.long
def test_an_answer_that_is_no_success_is_told_before_any_load(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    arguments = ["run", "mine/shop.py:app", "--route", "/rank", "--body", "{}", "--quick"]
    done = run_to_end([*arguments, "--out", "out"], tmp_path)
    assert done.returncode == 1
    assert "POST /rank on port" in done.stdout and "answered 422" in done.stdout
    assert not read(tmp_path / "out").trials
