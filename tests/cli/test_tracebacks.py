"""What ended 0.1.0 with a traceback, or printed nothing: each a test of the whole command."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.cli.program import run
from serve_bench.cli.sitting import next_launch
from tests.places import FORMATS

ARRAYS = f"x = {'[' * 20_000}{']' * 20_000}\n"
TABLES = f"x = {'{a = ' * 5_000}1{'}' * 5_000}\n"
SUITES = {
    "arrays nested 20,000 deep": (ARRAYS, "not valid TOML: it is nested too deeply"),
    "inline tables nested 5,000 deep": (TABLES, "not valid TOML: it is nested too deeply"),
    "an integer of 6,000 digits": (f"launches = {'9' * 6_000}\n", "not valid TOML: a number has"),
    "a time of 400 digits": (f"[cell]\nbatch_wait_timeout_s = {'9' * 400}\n", "cell.batch_wait"),
    "base is an array": ("[variants.mine]\nbase = []\n", "variants.mine.base is [], not a text"),
}
COMMANDS = ("micro", "sweep", "recsys", "press", "versus --a default --b mine", "scale curve")


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_that_is_hostile_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, says = SUITES[name]
    suite = tmp_path / "mine.toml"
    suite.write_text(content)
    for command in COMMANDS:
        assert run([*command.split(), "--suite", str(suite), "--dry-run"]) == 2, command
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and len(err) < 2_000, command
        assert err.startswith("serve-bench: "), command
        if not command.startswith("scale"):  # whose suites have no variants and no such cells
            assert f"mine.toml: {says}" in err, command


def test_a_log_of_another_name_is_no_log_of_a_launch(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("1.old", "", "x", "²³", "1e3"):
        (tmp_path / "logs" / f"launch-{name}.log").write_text("")
    assert next_launch(tmp_path) == 1
    (tmp_path / "logs" / "launch-12.log").write_text("")
    assert next_launch(tmp_path) == 13


@pytest.mark.parametrize("columns", ["0", "-1", "x", "", "1", "9" * 400])
def test_a_report_is_printed_whatever_columns_says(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for format in ("table", "markdown"):
        assert run(["report", str(FORMATS / "2-micro.jsonl"), "--format", format]) == 0
        out, err = capsys.readouterr()
        words = " ".join(out.split())
        assert "requests/s" in words and "optimized" in words and err == ""
