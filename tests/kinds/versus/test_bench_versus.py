"""The benchmark of `versus` itself: a run that was cut off is resumed; what holds the truth."""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts import bench_versus
from serve_bench.core.result import Result
from tests.records import ROWS
from tests.versus_records import rates, versus_result


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_was_cut_off_is_named_again(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record names the apps by their path, so that `--resume` alone is refused."""
    whole = versus_result({ROWS[2]: rates(580.0, 580.0)})
    cut: Result | None = replace(whole, trials=whole.trials[:-1]) if there else None
    found = [cut, whole]
    lines: list[list[str]] = []

    def run(line: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        lines.append(line)
        return subprocess.CompletedProcess(line, 0, "", "")

    monkeypatch.setattr(bench_versus, "stored_in", lambda folder: found.pop(0))
    monkeypatch.setattr(subprocess, "run", run)
    asked = argparse.Namespace(variant="default", more="--quick --rounds 5", out=tmp_path)
    told = bench_versus.coverage("cpu-5", 1, asked)
    assert told["throughput"]["interval"][0] == pytest.approx(1.0003, abs=1e-4)
    (line,) = lines
    given = [one for one in line[line.index("versus") + 1 :] if one != "--quick"]
    named = dict(zip(given[::2], given[1::2], strict=True))
    folder = str(tmp_path / "versus-default-cpu-5-1-quick-rounds-5")
    assert named == {
        "--a": f"default,{tmp_path}/same.py:app",
        "--b": f"default,{tmp_path}/cpu_5.py:app",
        "--seed": "101",
        "--rounds": "5",
        "--resume" if there else "--out": folder,
    }


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
