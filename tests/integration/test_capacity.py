"""Short searches of `serve-bench capacity` on a real Serve: broken off, resumed, and judged."""

import re
import signal
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration.conftest import ended, measure, start, wait_for_line

pytestmark = [pytest.mark.alone, pytest.mark.ray, pytest.mark.ci]

ARGUMENTS = ("capacity", "noop", "--slo", "p99=200ms", "--launches", "1", "--launch-time", "15s")


def test_a_launch_that_was_broken_off_is_searched_anew(tmp_path: Path) -> None:
    run = start(*ARGUMENTS, "--out", "run", cwd=tmp_path)
    wait_for_line(run, r"probe 2 \(raw\)")
    run.send_signal(signal.SIGINT)
    rest = ended(run, 130)
    assert re.search(r"Capacity (at least|above|below|\d)", rest), rest
    assert "interrupted; resume: serve-bench capacity --resume run" in rest
    before = read(tmp_path / "run")
    assert {trial.launch for trial in before.trials} == {"1"}

    after = measure("capacity --resume run", tmp_path)
    assert {trial.launch for trial in after.trials} >= {"2"}
    second = [trial for trial in after.trials if trial.launch == "2" and trial.row.rate_per_s]
    assert second
    for trial in second:
        counts = trial.slices.bounds["errors"]
        assert sum(counts.of) == trial.counts.sent + trial.counts.unsent
        roles = {process.role for process in trial.usage.processes}
        assert {"proxy", "replica", "load_worker"} <= roles
