"""The README is true beyond its commands, short, and `scripts/bench readme` pastes its commands.

In order they are run by that script alone, which takes half an hour; that each can be parsed, or
runs where it is planned only, is in test_docs_commands.py.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scripts.bench_readme import commands, paste
from serve_bench.core.suite import read_suite

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:^    .*\n|^\n(?=    ))+", COMMANDS, re.MULTILINE)


def test_the_suite_shown_is_a_suite() -> None:
    (block,) = [block for block in BLOCKS if "[variants.mine]" in block]
    text = "\n".join(line[4:] for line in block.splitlines())
    suite = read_suite(tomllib.loads(text), "commands.md")
    assert [variant.name for variant in suite.variants] == ["default", "mine"]


def test_make_targets_shown_exist() -> None:
    shown = set(re.findall(r"^    make (\S+)$", README, re.MULTILINE))
    targets = set(re.findall(r"^(\S+?):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert shown == {"micro", "test"} and shown <= targets


def test_it_is_short_and_begins_with_the_main_job() -> None:
    assert len(README.splitlines()) <= 130
    lines = commands(README)
    assert lines[:3] == ["make micro", ". .venv/bin/activate", "make test"]
    assert lines[3].startswith("serve-bench run examples/own_app/shop.py:app ")


def test_output_is_no_command() -> None:
    text = "text\n\n    make micro\n\n    Ranker has 3\n    . .venv/bin/activate\n    sleep 30\n"
    assert commands(text) == ["make micro", ". .venv/bin/activate", "sleep 30"]


@pytest.mark.parametrize(("line", "code"), [("true", 0), ("false", 1), ("exit-code-of-none", 127)])
def test_each_line_has_its_exit_code(line: str, code: int, tmp_path: Path) -> None:
    ((name, seconds, found),) = paste([line], tmp_path, tmp_path / "log")
    assert (name, found) == (line, code) and seconds >= 0
    assert f"$ {line}" in (tmp_path / "log").read_text()


def test_lines_share_a_shell_and_its_jobs(tmp_path: Path) -> None:
    lines = ["export WORD=kept", "sleep 60 &", "kill %1", 'echo "it is $WORD"']
    assert [code for _, _, code in paste(lines, tmp_path, tmp_path / "log")] == [0, 0, 0, 0]
    assert "it is kept" in (tmp_path / "log").read_text()
