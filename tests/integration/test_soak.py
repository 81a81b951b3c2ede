"""`serve-bench soak` on a real Ray Serve: a planted leak, Ctrl-C and a resume."""

import shutil
import signal
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration import soak_app
from tests.integration.conftest import ended, measure, reported, run_checked, start, wait_for_line

pytestmark = [pytest.mark.ray]


@pytest.mark.long
def test_a_leak_is_found_in_its_replica(tmp_path: Path) -> None:
    shutil.copy(soak_app.__file__, tmp_path)
    words = ["soak", "soak_app.py:leaking", "--for", "75s", "--fail-on", "leak", "--out", "run"]
    done = run_checked(words, tmp_path, 3, timeout_s=200)
    assert "gate: replica Shop grows by" in done.stderr
    points = reported(tmp_path, "run")["points"]
    by_name = {point["name"]: point for point in points if point["dims"]["point"] == "process"}
    slope = by_name["replica Shop"]["figures"]["pss_mb_slope"]["value"]
    # The replica itself warms up by some MB, and the leak is some 40; evidence/soak.md has 1 kB for
    # a request, over 5 minutes.
    assert slope == pytest.approx(soak_app.KEPT_BYTES, rel=0.15)  # MB per million requests
    assert {"proxy", "controller", "raylet", "gcs", "replica Shop"} <= {*by_name}
    assert [name for name, point in by_name.items() if point["dims"]["leaks"]] == ["replica Shop"]
    assert not (tmp_path / "run" / "samples.jsonl").exists()


def test_ctrl_c_keeps_its_blocks_and_a_resume_resumed(resumed: bool, tmp_path: Path) -> None:
    words = ["soak", "noop", "--for", "30s", "--rate", "50", "--live", "plain", "--out", "run"]
    begun = start(*words, cwd=tmp_path)
    wait_for_line(begun, "block 3")
    begun.send_signal(signal.SIGINT)
    ended(begun, 130, 30)
    kept = read(tmp_path / "run")
    assert {"block 1", "block 2"} <= {trial.row.label for trial in kept.trials}
    if resumed:
        whole = measure("soak --resume run", tmp_path, timeout_s=120)
        assert whole.complete and len(whole.trials) == 6 and len(whole.launches) == 2
