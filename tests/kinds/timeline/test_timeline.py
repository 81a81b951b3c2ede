"""The command on a server without Serve: what it plans, refuses, keeps, and says in each form."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.benchmarks.timeline.condensed import condensed
from serve_bench.cli.program import run
from serve_bench.store import read
from tests.stepped_server import SteppedServer

pytestmark = pytest.mark.process

STAGES = "20:2s,40:2s"

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line: exit code, stdout, stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(one) for one in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run: 20/s, then 40/s, of a server that resets the connection of request 50."""
    out = tmp_path_factory.mktemp("timeline") / "run"
    server = SteppedServer([(0.0, 20)], 0.02, drops=[50])
    with server:
        server.begin(0)  # requests of the warm-up count: 20 of at least 1 s
        words = ["timeline", "--url", server.url, "--stages", STAGES, "--slo", "p99=500ms"]
        assert run([*words, "--launches", "2", "--out", str(out), "--live", "plain"]) == 0
    return out


def test_a_run_of_a_url(folder: Path) -> None:
    """Two launches with each second of the load, and what was lost."""
    result = read(folder)
    first, second = result.trials
    assert first.course["due"] == second.course["due"] == [20, 20, 40, 40]
    lost = [len(one.course["lost"]) for one in (first, second)]
    assert sum(lost) == 1 and not result.failures


def test_forms(folder: Path, command: Command, tmp_path: Path) -> None:
    """CSV has each second of JSON; a table says the headline; a page has the lanes."""
    code, text, _ = command("report", folder, "--format", "json")
    data = json.loads(text)
    (cell,) = data["rows"]
    assert code == 0 and cell["dims"]["launches"] == 2
    assert sum(cell["figures"]["lost.reset"]["launches"].values()) == 1
    assert len(cell["figures"]["out_s"]["launches"]) == 2
    _, text, _ = command("report", folder, "--format", "csv")
    rows = list(csv.DictReader(text.splitlines()))
    cells = [one for one in rows if one["section"] == "seconds"]
    assert [int(one["text"]) for one in cells if one["column"] == "due"] == [20, 20, 40, 40] * 2
    seconds = [row["figures"] for row in data["points"] if row["dims"]["point"] == "second"]
    p99_ms = [float(one["value"]) for one in cells if one["column"] == "p99 ms"]
    assert p99_ms == pytest.approx([row["latency_p99"]["value"] / 1e6 for row in seconds])
    assert {one["text"] for one in cells if one["column"] == "slo"} == {"in", "out"}
    _, text, _ = command("report", folder, "--verbose")
    assert "1 of 240 requests was lost: 1 reset" in " ".join(text.split())
    page = tmp_path / "page.html"
    assert command("report", folder, "--format", "html", "--output", page)[0] == 0
    assert "Course: url, launch 1" in page.read_text()


def test_the_gate(folder: Path, command: Command) -> None:
    """A run of which a second was out breaks it, and one that holds does not."""
    server = SteppedServer([(0.0, 20)], 0.02)
    with server:
        words = ["timeline", "--url", server.url, "--stages", "20:1s", "--out", folder / "good"]
        code, _, err = command(*words, "--fail-on", "slo", "--slo", "p99=2s")
        assert (code, "gate" in err) == (0, False)
        words[-1] = folder / "bad"
        code, _, err = command(*words, "--fail-on", "slo", "--slo", "p50=1ms")
    assert code == 3 and "gate: url: 1 s out of the SLO in 1 launch (p50 <= 1 ms" in err


def test_what_compare_reads(folder: Path) -> None:
    """A launch has the answers of the seconds within the SLO, a second of the whole load; the row
    names load and SLO."""
    result = condensed(read(folder))
    rates: list[float] = []
    for trial in result.trials:
        assert trial.row.label == f"answered within the SLO, {STAGES}, p99 <= 500 ms, errors <= 1 %"
        rates += trial.metrics["throughput"].windows or ()
    assert sorted(rates) == [(20 + 40 + 40) / 4, 120 / 4]
    assert {one.key for one in result.plan} == {one.key for one in result.trials}


@pytest.mark.parametrize(
    "suite", ["autoscale_step", "autoscale_spike", "rolling_update", "replica_death"]
)
def test_the_shipped_suites(suite: str, command: Command) -> None:
    """Each takes less than two minutes."""
    code, out, _ = command("timeline", suite, "--dry-run")
    assert code == 0 and "SLO of each second: p99 <= 300 ms" in out
    assert "about 1 min" in out.splitlines()[-1]


def test_a_suite_of_timeline_is_none_of_run(command: Command) -> None:
    """It is refused with the command that takes it."""
    code, _, err = command("run", "scenarios/rolling_update.toml", "--dry-run")
    assert code == 2 and "is a suite of serve-bench timeline" in err
