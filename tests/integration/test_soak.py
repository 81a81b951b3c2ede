"""`serve-bench soak` on a real Ray Serve: a planted leak, Ctrl-C and a resume."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration import soak_app
from tests.integration.conftest import run_checked, run_to_end, start, wait_for_line

pytestmark = [pytest.mark.ray]

PER_MILLION: float = soak_app.kept_bytes(4 * soak_app.LEAK)
"""MB per million requests."""


@pytest.fixture(autouse=True)
def _app(tmp_path: Path) -> None:
    shutil.copy(Path(soak_app.__file__), tmp_path / "soak_app.py")


@pytest.mark.long
def test_a_leak_is_found_in_its_replica(tmp_path: Path) -> None:
    words = ["soak", "soak_app.py:leaking_4k", "--for", "75s", "--fail-on", "leak", "--out", "run"]
    done = run_checked(words, tmp_path, 3, timeout_s=200)
    assert "gate: replica Shop grows by" in done.stderr
    shown = run_to_end(["report", "run", "--format", "json"], tmp_path)
    points = json.loads(shown.stdout)["points"]
    by_name = {point["name"]: point for point in points if point["dims"]["point"] == "process"}
    slope = by_name["replica Shop"]["figures"]["pss_mb_slope"]["value"]
    # The replica itself warms up by some MB, and the leak is some 40; docs/soak.md has 1 kB for a
    # request, over 5 minutes.
    assert slope == pytest.approx(PER_MILLION, rel=0.15)
    assert {"proxy", "controller", "raylet", "gcs", "replica Shop"} <= {*by_name}
    assert [name for name, point in by_name.items() if point["dims"]["leaks"]] == ["replica Shop"]
    assert not (tmp_path / "run" / "samples.jsonl").exists()


@pytest.mark.ci
def test_ctrl_c_keeps_its_blocks_and_a_resume_goes_on(tmp_path: Path) -> None:
    words = ["soak", "noop", "--for", "30s", "--rate", "50", "--live", "plain", "--out", "run"]
    begun = start(*words, cwd=tmp_path)
    wait_for_line(begun, "block 3")
    begun.send_signal(signal.SIGINT)
    begun.communicate(timeout=30)
    assert begun.returncode == 130
    kept = read(tmp_path / "run")
    assert {"block 1", "block 2"} <= {one.row.label for one in kept.trials}
    run_checked(["soak", "--resume", "run"], tmp_path, timeout_s=120)
    whole = read(tmp_path / "run")
    assert whole.complete and len(whole.trials) == 6 and len(whole.launches) == 2
