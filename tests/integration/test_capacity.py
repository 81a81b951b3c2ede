"""`serve-bench capacity` on a real Serve: a launch that is broken off, its resumption, CPU and
verdict at the capacity. The searches are as short as they can be."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.capacity_runs import StoredCapacity
from tests.integration.conftest import run_checked, run_to_end, start, wait_for_line

pytestmark = [pytest.mark.alone, pytest.mark.ray]

ARGUMENTS = ("capacity", "noop", "--slo", "p99=200ms", "--launches", "1", "--launch-time", "15s")


@pytest.mark.ci
def test_a_launch_that_was_broken_off_is_searched_anew(tmp_path: Path) -> None:
    run = start(*ARGUMENTS, "--out", "r", cwd=tmp_path)
    wait_for_line(run, r"probe 2 \(raw\)")
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=90)
    assert run.returncode == 130, rest
    assert re.search(r"Capacity (at least|above|below|\d)", rest), rest
    assert "interrupted; resume: serve-bench capacity --resume r" in rest
    before = read(tmp_path / "r")
    assert {one.launch for one in before.trials} == {"1"}

    done = run_checked(["capacity", "--resume", "r", "--format", "json"], tmp_path)
    after = read(tmp_path / "r")
    assert {one.launch for one in after.trials} >= {"2"}
    found = StoredCapacity(done.stdout)
    second = [each for each in after.trials if each.launch == "2" and each.row.rate_per_s]
    rates = [probe["dims"]["rate_per_s"] for probe in found.probes]
    assert rates == [trial.row.rate_per_s for trial in second]
    assert found.figures["cores_used"]["value"] > 0
    assert found.loop["figures"]["throughput"]["value"] > 10
    assert found.launches[0]["figures"].keys() & {"met_up_to", "missed_from"}
    for trial in second:
        counts = trial.slices["bounds"]["errors"]
        assert sum(counts["of"]) == trial.counts.sent + trial.counts.unsent
        roles = {process["role"] for process in trial.usage["processes"]}
        assert {"proxy", "replica", "load_worker"} <= roles
    table = run_to_end(["report", "r"], tmp_path).stdout
    run_to_end(["report", "r", "--format", "html"], tmp_path)
    assert "What binds, over the rate" in (tmp_path / "r" / "report.html").read_text()
    assert re.search(r"^\s*capacity ", table, re.MULTILINE), table


@pytest.mark.long
def test_streams_of_grpc_have_a_capacity_at_first_events_and_gaps(tmp_path: Path) -> None:
    """The log of the gRPC client has every call, and the events of each. No rate is known here, so
    what is held is the account."""
    words = ("--protocol", "grpc-stream", "--launches", "1", "--launch-time", "10s")
    slo = "ttft_p90=500ms,itl_p90=500ms"
    run = run_checked(
        ["capacity", "noop", "--slo", slo, *words, "--out", "r", "--format", "json"], tmp_path
    )
    found = StoredCapacity(run.stdout)
    assert found.dims.get("binds") in ("ttft_p90", "itl_p90", "errors", None) and found.probes
    for trial in read(tmp_path / "r").trials:
        assert trial.row.client == "grpc" and trial.row.stream_events == 10
        if trial.row.rate_per_s is None:
            continue
        bounds, counts = trial.slices["bounds"], trial.counts
        assert sum(bounds["errors"]["of"]) == counts.sent + counts.unsent
        assert sum(bounds["ttft_p90"]["of"]) >= counts.completed
        assert sum(bounds["itl_p90"]["of"]) >= 9 * counts.completed > 0
