"""What the no-op app counts on a real Ray Serve: every request once, every batch at its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.counts import BATCH_SIZE
from serve_bench.histogram import Histogram
from serve_bench.store import read
from tests.integration.conftest import run_to_end

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(240)]


def test_requests_by_replica_and_sizes_of_batches_are_exact(tmp_path: Path) -> None:
    done = run_to_end(
        [
            *("micro", "--max-batch-size", "1,16", "--num-replicas", "2"),
            *("--windows", "3", "--window-seconds", "0.4", "--clients", "1,raw:32"),
            *("--batch-wait-timeout-s", "0.01", "--variant", "default,optimized", "--out", "run"),
        ],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = read(tmp_path / "run")
    assert len(result.trials) == 8 and result.complete
    for first, second in zip(result.deploys[::2], result.deploys[1::2], strict=True):
        sizes = [
            {one["queue_max_batch_size"] for one in at.proof["replicas"]} for at in (first, second)
        ]
        assert sizes == [{1}, {16}] and second.in_place
    for trial in result.trials:
        # All that was sent arrived, since nothing failed: warm-up and the end included.
        sent = trial.client["total"]["completed"] + trial.client["total"]["in_flight"]
        assert trial.counts.failed_total == 0
        assert len(trial.served) == 2 and sum(trial.served.values()) == sent, trial.key
        metric = trial.metrics.get(BATCH_SIZE)
        if trial.cell["max_batch_size"] == 1:
            assert metric is None
            continue
        assert metric is not None and metric.histogram is not None
        batches = Histogram.decode(metric.histogram)
        assert sum(size * count for size, count in batches.occupied()) == sent, trial.key
        assert (batches.min or 0) >= 1 and (batches.max or 0) <= 16
        if trial.row.label == "single client":
            assert batches.max == 1
        else:
            assert (batches.mean or 0) > 1
    assert done.stdout.count("batches: mean size") == 4
    assert "batches: mean size 1.00 of 16" in " ".join(done.stdout.split())
