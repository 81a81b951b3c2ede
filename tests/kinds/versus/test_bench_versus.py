"""The benchmark of `versus` itself: a run that was cut off is gone on with, designs are apart."""

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
    asked = argparse.Namespace(variant="default", more="--pairing duet", out=tmp_path)
    told = bench_versus.coverage("cpu-5", 1, asked)
    assert told["pairing"] == "slices" and told["throughput"]["interval"][0] == pytest.approx(
        1.0003, abs=1e-4
    )
    (line,) = lines
    given = line[line.index("versus") + 1 :]
    named = dict(zip(given[::2], given[1::2], strict=True))
    folder = str(tmp_path / "versus-default-cpu-5-1-pairing-duet")
    assert named == {
        "--a": f"default,{tmp_path}/same.py:app",
        "--b": f"default,{tmp_path}/cpu_5.py:app",
        "--seed": "101",
        "--pairing": "duet",
        "--resume" if there else "--out": folder,
    }


def test_each_design_is_held_against_the_truth_by_itself(
    tmp_path: Path,
) -> None:
    known = {"part": "truth", "case": "cpu-5", "variant": "default", "cpu": 0.0}
    lines = [json.dumps(known | {"launch": at, "rate": 0.001 * at}) for at in (-1, 1)]
    near, far = (versus_result({ROWS[2]: rates(580.0, b)}) for b in (581.0, 690.0))
    far = replace(far, run=replace(far.run, suite={**far.run.suite, "pairing": "duet"}))
    for result, more in ((near, ""), (far, "--pairing duet")):
        run = {"part": "coverage", "case": "cpu-5", "variant": "default", "launch": 1, "with": more}
        lines.append(json.dumps(run | bench_versus.summary(result)))
    file = tmp_path / "figures.jsonl"
    file.write_text("\n".join(lines))
    told = list(bench_versus.coverage_lines(file))
    assert "slices, throughput: holds the truth in 1 of 1, agrees with it in 1" in told
    assert "duet, throughput: holds the truth in 0 of 1, agrees with it in 0" in told
