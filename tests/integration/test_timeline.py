"""`serve-bench timeline` on a real Ray Serve: autoscaling, and faults and deploys under load."""

from pathlib import Path

import pytest

from tests.cases import sure
from tests.integration.conftest import measure, reported, wait_until_clean

pytestmark = [pytest.mark.ray]


@pytest.mark.ci
def test_faults_on_the_clock(tmp_path: Path) -> None:
    """A killed replica is replaced, a stopped one resumes; deploys keep or replace the replicas."""
    faults = ("deploy:in-place@1s", "kill:replica:Elastic@4s", "stop:replica@9s+1s", "deploy@12s")
    words = [word for fault in faults for word in ("--fault", fault)]
    words += ["--stages", "20:24s", "--launches", "1"]
    result = measure(["timeline", "rolling_update", *words], tmp_path, timeout_s=220)
    (trial,) = result.trials
    course = trial.course
    assert course.due == (20,) * 24 and not result.failures
    kept, killed, stopped, deployed = course.faults
    assert sure(kept.done_s) > sure(kept.at_s) and sure(deployed.done_s) > sure(deployed.at_s)
    assert killed.pid != stopped.pid and sure(stopped.done_s) - sure(stopped.at_s) >= 1.0
    ends = {life.pid: life.to_s for life in course.lives if life.role == "replica"}
    assert sure(ends[sure(killed.pid)]) >= sure(killed.at_s) - 0.5 >= 3.5
    known = [change.pids for change in course.changes if len(change.pids) == 3]
    assert killed.pid in known[0], "Serve said that it ran"
    assert not set(known[0]) & set(known[-1]), "all replicas are new at the end"
    events = {point["dims"].get("what") for point in reported(tmp_path, "run")["points"]}
    assert {"kill replica Elastic", "replica killed", "replica ready", "stop replica"} <= events
    assert all(teardown.clean for teardown in result.teardowns) and wait_until_clean(1) == []


@pytest.mark.long
def test_replicas_that_serve_adds_and_takes_away(tmp_path: Path) -> None:
    """Replicas come when the load rises, by Serve's word and by the processes that are there."""
    option = "Elastic.autoscaling_config.max_replicas=3"
    stages = ["--stages", "10:2s,80:12s", "--after", "1s", "--option", option]
    (trial,) = measure(["timeline", "autoscale_step", *stages], tmp_path, timeout_s=220).trials
    changes = trial.course.changes
    assert changes[0].running == 1 and max(sure(change.wanted) for change in changes) == 3
    born = [life for life in trial.course.lives if life.role == "replica" and life.from_s]
    assert len(born) == 2
    ready = min(change.at_s for change in changes if change.running > 1)
    # A process is known by its title, which is looked for each 0.25 s.
    assert min(sure(life.from_s) for life in born) <= ready + 2 and ready < 15
