"""The benchmark of `versus` itself: which intervals hold the truth."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import bench_versus
from tests.records import ROWS
from tests.versus_records import rates, versus_result


def test_intervals_are_held_against_the_truth(tmp_path: Path) -> None:
    known = {"part": "truth", "case": "cpu-5", "variant": "default", "cpu": 0.0}
    lines = [json.dumps(known | {"launch": at, "rate": 0.001 * at}) for at in (-1, 1)]
    for launch, rate in enumerate((581.0, 690.0), 1):
        run = {"part": "coverage", "case": "cpu-5", "variant": "default", "launch": launch}
        told = bench_versus.summary(versus_result({ROWS[2]: rates(580.0, rate)}))
        lines.append(json.dumps(run | {"with": ""} | told))
    file = tmp_path / "figures.jsonl"
    file.write_text("\n".join(lines))
    shown = list(bench_versus.coverage_lines(file))
    assert "throughput: holds the truth in 1 of 2, agrees with it in 1" in shown
