"""The README is true beyond its commands, and short; test_docs_commands.py tries its commands."""

import re
import tomllib
from pathlib import Path

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
