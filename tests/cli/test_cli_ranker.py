"""`serve-bench ranker` as a command: flags, bad input, records, reports. Small tables."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from serve_bench.benchmarks.ranker import measure as ranker_bench
from serve_bench.benchmarks.ranker.summary import ranker_lines
from serve_bench.cli.program import run
from serve_bench.store import read

SMALL = [
    *("--table-rows", "100", "--sparse-features", "4", "--width", "8", "--bottom", "16,8"),
    *("--top", "8,4", "--rows", "32,70", "--rounds", "3", "--device", "cpu"),
]


def test_without_torch_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(["ranker", *SMALL]) == 2
    err = capsys.readouterr().err
    assert err == "serve-bench: torch is not installed: pip install torch numpy\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_tables_that_do_not_fit_are_refused_with_a_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    free = type("Memory", (), {"available": 2_000_000_000})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert run(["ranker"]) == 2
    err = capsys.readouterr().err
    assert "memory: the tables take 0.67 GB for each of 2 rankers" in err
    assert "2.00 GB is free; try --table-rows or --rows with less or --ranker plain" in err
    assert err.count("\n") == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_cuda_without_cuda_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(["ranker", *SMALL[:-1], "cuda"]) == 2
    err = capsys.readouterr().err
    assert "--device cuda: torch" in err and "it takes auto or cpu here" in err
    assert err.count("\n") == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.torch
def test_a_run_is_recorded_and_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["ranker", *SMALL, "--threads", "1", "--out", "run"]) == 0
    printed = capsys.readouterr().out
    result = read(tmp_path / "run")
    assert result.complete and result.run.command == "ranker"
    cells = [(trial.variant, trial.cell["rows"]) for trial in result.trials]
    assert cells == [("plain", 32), ("tuned", 32), ("plain", 70), ("tuned", 70)]
    for trial in result.trials:
        assert len(trial.metrics["forward"].windows or ()) == 3
        assert trial.counts.completed == trial.counts.sent > 0
        assert trial.client["ranker"]["device"] == "cpu"
        assert trial.client["work"]["launches"] > 5
    lines = ranker_lines(result)
    assert [line.forward_ratio is not None for line in lines] == [False, True, False, True]
    assert all(line.floor.seconds > 0 and line.rows_per_s > 0 for line in lines)
    assert "plain/tuned forward" in printed and "The floor of one forward" in printed
    assert "on CPU" in printed and "records: run" in printed
    assert run(["report", "run"]) == 0
    assert capsys.readouterr().out == printed
    assert run(["report", "run", "--format", "json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [row["rows"] for row in page["rows"]] == [32, 32, 70, 70]
    assert page["machine"]["bytes_per_s"] > 0 and page["not_measured"] == []
    for format_ in ("markdown", "csv", "classic"):
        assert run(["report", "run", "--format", format_]) == 0
        assert "tuned" in capsys.readouterr().out


@pytest.mark.torch
def test_one_ranker_alone_has_no_ratio(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["ranker", *SMALL, "--ranker", "tuned", "--threads", "1", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert list(page["rankers"]) == ["tuned"] and page["rankers"]["tuned"]["threads"] == 1
    assert [row["forward_ratio"] for row in page["rows"]] == [None, None]


@pytest.mark.torch
def test_it_runs_where_ray_is_not_installed(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'ray':\n"
        "            raise ModuleNotFoundError('ray is blocked')\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from serve_bench.cli.program import run\n"
        f"code = run(['ranker', *{SMALL!r}, '--threads', '1'])\n"
        "assert 'ray' not in sys.modules and 'torch' in sys.modules\n"
        "sys.exit(code)\n"
    )
    root = str(Path(ranker_bench.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "plain/tuned forward" in done.stdout
