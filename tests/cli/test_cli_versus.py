"""`serve-bench versus --url` against servers of known speed: records, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_bench.benchmarks.versus import flags as versus_flags
from serve_bench.benchmarks.versus import measure as versus_rows
from serve_bench.cli.program import run
from serve_bench.core.load_spec import Timing
from serve_bench.store import read
from tests import servers
from tests.places import begin
from tests.servers import KnownServer, serving

pytestmark = pytest.mark.alone

SHORT = ("--quick", "--clients", "raw:2")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versus_flags, "QUICK_SIDE_S", 0.3)
    monkeypatch.setattr(versus_flags, "QUICK_STEADY_S", 0.2)
    monkeypatch.setattr(versus_rows, "WARMING", Timing(0.1, 0.3, 1, 0.05))


@pytest.fixture
def two() -> Iterator[tuple[KnownServer, KnownServer]]:
    """The second takes four times as long."""
    with serving(delay_s=0.003) as fast, serving(delay_s=0.012) as slow:
        yield fast, slow


def urls(fast: KnownServer, slow: KnownServer) -> list[str]:
    return ["versus", "--url", f"old={fast.url}", "--url", f"new={slow.url}"]


def test_a_regression_is_told_and_breaks_the_gate(
    two: tuple[KnownServer, KnownServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    line = [*urls(*two), *SHORT, "-H", "X-Key: secret", "--fail-on", "regressed", "--out", str(out)]
    assert run(line) == 3
    told = capsys.readouterr()
    assert "regressed" in told.out and "gate" in told.err
    result = read(out)
    assert result.complete and len(result.trials) == 6 and not result.launches
    assert result.run.suite["urls"] == {"old": two[0].url, "new": two[1].url}
    assert "secret" not in (out / "records.jsonl").read_text()
    assert all(b"X-Key: secret" in each.head for each in two[1].log)
    assert run(["report", str(out)]) == 0  # the same records, without a gate
    assert "regressed" in capsys.readouterr().out


def test_a_side_that_fails_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with serving() as good:
        line = ["versus", "--url", f"a={good.url}", "--url", "b=http://127.0.0.1:1/"]
        assert run([*line, *SHORT, "--out", str(out)]) == 1
    assert "nothing was measured" in capsys.readouterr().err
    result = read(out)
    assert not result.trials and len(result.failures) == 6


def test_a_side_that_answers_nothing_right_is_exit_code_1(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with serving() as good, serving(servers.always("error500")) as bad:
        line = ["versus", "--url", f"a={good.url}", "--url", f"b={bad.url}"]
        assert run([*line, *SHORT, "--rounds", "1", "--out", str(out)]) == 1
    (failure,) = read(out).failures
    assert "no request succeeded" in failure.message and failure.variant == "b"


@pytest.mark.long
def test_ctrl_c_is_exit_code_130_with_the_rounds_so_far(
    two: tuple[KnownServer, KnownServer], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = begin(sys.executable, "-m", "serve_bench", *urls(*two), *SHORT, "--out", out)
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if line.startswith("[2/6]"):
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 130
    assert "interrupted" in errors and "1 of 3" in rest
    result = read(out)
    assert [trial.round for trial in result.trials] == [1, 1]
    assert {failure.message for failure in result.failures} <= {"interrupted"}
    assert len(result.missing) == 4


def test_a_run_of_urls_is_not_gone_on_with(
    two: tuple[KnownServer, KnownServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run([*urls(*two), *SHORT, "--rounds", "1", "--out", str(out), "-f", "json"]) == 0
    json.loads(capsys.readouterr().out)
    assert run(["versus", "--resume", str(out)]) == 2
    assert "whose headers are not kept" in capsys.readouterr().err
