"""The README is true: its commands are understood as they stand, and its output is the tool's.

Commands are run as far as they cost seconds: those that measure are run with `--dry-run`, which
reads every flag. `make micro` and the tests of tests/integration run them for real.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from serve_bench import scale_needs
from serve_bench.cli import run
from serve_bench.jsonl import to_line
from serve_bench.load_place import read_load_on
from serve_bench.result import Run
from serve_bench.shipped import read_toml, suite_file
from serve_bench.suite import read_suite
from tests.servers import serving

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"(?:^    .*\n|^\n(?=    ))+", README, re.MULTILINE)
_SHOWN = r"^    (serve-bench [a-z]+(?: .*?)?)(?: +#.*)?$"
COMMANDS = re.findall(_SHOWN, README, re.MULTILINE)
RECSYS = re.findall(_SHOWN, (ROOT / "docs" / "recsys.md").read_text(), re.MULTILINE)


SCALE = re.findall(
    r"^    (serve-bench scale .*?)(?: +#.*)?$",
    (ROOT / "docs" / "scale.md").read_text(),
    re.MULTILINE,
)


def planned(lines: list[str]) -> list[object]:
    """Commands that measure; those on a model ask torch for its device before they plan."""
    return [
        pytest.param(line, marks=pytest.mark.torch if "--app" in line or "recsys" in line else ())
        for line in lines
        if line.startswith(("serve-bench micro", "serve-bench recsys", "serve-bench sweep"))
        and "--url" not in line
    ]


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("line", planned(COMMANDS + RECSYS))
def test_micro_and_recsys_commands_are_understood(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    if "--resume" in words:
        folder = Path(words[words.index("--resume") + 1])
        folder.mkdir(parents=True)
        suite = read_suite(read_toml(suite_file("micro")), "micro.toml")
        stored = Run("id", (), "micro", "2026-01-02T03:04:05+00:00", "0", suite=suite.to_json())
        (folder / "records.jsonl").write_text(to_line(stored))
    code = run([*words, "--dry-run"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "trials of" in captured.out


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("serve-bench scale")] + SCALE)
def test_scale_commands_are_understood(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale_needs, "reachable", lambda address: address)
    monkeypatch.setattr(scale_needs, "free_bytes", lambda: 1 << 40)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    code = run([*shlex.split(line)[1:], "--dry-run"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "launch " in captured.out and "about " in captured.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("serve-bench report")])
def test_report_commands_work(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    folder = Path(words[1])
    folder.mkdir(parents=True)
    fixture = (ROOT / "tests" / "formats" / "format-1.jsonl").read_text()
    (folder / "records.jsonl").write_text(fixture)
    assert run(words) == 0, capsys.readouterr().err
    page = folder / "report.html"  # of --format html
    shown = page.read_text() if "html" in words else capsys.readouterr().out
    assert "requests/s" in shown


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("serve-bench load")])
def test_load_commands_work(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--load-on" in line:  # needs a Ray cluster: tests/integration/test_nodes.py
        assert read_load_on(line.split("--load-on ")[1], None) is not None
        return
    with serving() as server:
        words = shlex.split(line.replace("http://127.0.0.1:8000/noop", server.url))[1:]
        words = words[: words.index("-d")] if "-d" in words else words
        assert run([*words, "-d", "200ms", "--timeout", "5s"]) == 0, capsys.readouterr().err
    assert " completed + 0 failed" in capsys.readouterr().out


def test_the_suite_shown_is_a_suite() -> None:
    (block,) = [block for block in BLOCKS if "[variants.mine]" in block]
    text = "\n".join(line[4:] for line in block.splitlines())
    suite = read_suite(tomllib.loads(text), "README")
    assert [variant.name for variant in suite.variants] == ["default", "mine"]


def test_make_targets_shown_exist() -> None:
    shown = set(re.findall(r"^    make (\S+)$", README, re.MULTILINE))
    targets = set(re.findall(r"^(\S+?):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert shown == {"micro", "test"} and shown <= targets


def test_every_command_is_shown() -> None:
    help_lines = {
        "micro",
        "noop",
        "load",
        "profile",
        "ranker",
        "recsys",
        "sweep",
        "report",
        "rpc",
        "scale",
        "clean",
        "compare",
        "history",
        "doctor",
        "run",
        "versus",
    }
    assert {shlex.split(line)[1] for line in COMMANDS} >= help_lines


@pytest.mark.parametrize(
    "line",
    [
        command
        for command in COMMANDS + RECSYS
        if command.startswith(("serve-bench profile", "serve-bench ranker")) or "--url" in command
    ],
)
def test_commands_with_targets_of_their_own_are_understood(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)[1:]
    assert run([*words[:2], "--help"] if "diff" in words else [words[0], "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("-"))
