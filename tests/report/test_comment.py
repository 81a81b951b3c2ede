"""Runs of all kinds as a comment on a pull request: one line of verdict, one table, one fold."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from serve_bench.cli.show import render
from serve_bench.core.result import Failure, Result, result_of
from serve_bench.report.comment import escaped
from serve_bench.store import read
from tests import places
from tests.records import AT, ROWS, planned, run, trial
from tests.sheet_parts import as_lines, is_sound
from tests.sheet_parts import sheet as sheet_of

#: Kinds whose comment has another layout.
APART: Final = ("versus", "tax", "soak", "timeline")
STORED: Final = [
    file.stem.removeprefix("2-")
    for file in sorted(places.FORMATS.glob("2-*.jsonl"))
    if not file.stem.removeprefix("2-").startswith(APART)
]


def stored(name: str) -> Result:
    return read(places.FORMATS / f"2-{name}.jsonl")


def cells(line: str) -> int:
    return len(re.split(r"(?<!\\)\|", line.strip().strip("|")))


@pytest.mark.parametrize("name", STORED)
def test_what_was_found_is_said_as_on_the_page_and_gaps_come_first(name: str) -> None:
    result = stored(name)
    text = render(result, "markdown")
    page = sheet_of(result, None)
    is_sound(page)
    sentences = as_lines(page.findings)
    assert all(escaped(one) in text for one in sentences)
    first, missing = text.split("\n")[0], result.missing or result.failures
    assert escaped(sentences[0]) in first
    assert not missing or "incomplete" in first or "failed" in first


def test_names_and_messages_break_neither_table_nor_fold() -> None:
    odd = "a|b\nc"
    at = planned(odd, replace(ROWS[0], label="<b>"))
    other = planned("plain", replace(ROWS[0], label="<b>"))
    struck = Failure("trial", "</details>\n* **no**", AT, key=other.key)
    made = result_of([run(at, other), trial(at), struck])
    text = render(made, "markdown")
    table = [line for line in text.partition("<details>")[0].split("\n") if line.startswith("| ")]
    assert len(table) == 4 and len({cells(line) for line in table}) == 1
    assert "a\\|b c" in table[2]
    assert "&lt;/details> \\* \\*\\*no\\*\\*" in text
    assert text.count("</details>") == text.count("<details>")
