"""What the reports of the stored runs say: sentences, of which no two contradict each other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from scripts.corpus import list_runs, report
from serve_bench.benchmarks.parts.rows import page_of
from serve_bench.core.ladder import COLLAPSE
from serve_bench.core.result import PlannedTrial
from serve_bench.store import read

CONTRADICTORY: Final = (
    (r"the SLO holds all along", r"[1-9][\d.]* of \d+ s are out of the SLO"),
    (r"[Ss]omething failed: no request succeeded", r"(?<!\d)[1-9][\d,.]*( ± [\d,.]+)? requests/s"),
    (r"(?i)client: (not|never) the limit", r"(all|both) \d* ?connections were busy"),
    (r"more clients (would )?bring more", r"collapses? with"),
)
"""Pairs that stood in one output."""

BROKEN: Final = (
    r"\bis limited by \d+ of \d+ requests wait",
    r"\b([a-z]+) \1\b",
    r"\.\.(?!\.)|[,;:]\.| ,|\(\)",
)
"""What is no sentence: two verbs, a word twice, signs that nothing stands between."""


def contradictions(text: str) -> list[str]:
    """The pairs of which both stand in a text."""
    return [f"{a} / {b}" for a, b in CONTRADICTORY if re.search(a, text) and re.search(b, text)]


def faults(sentence: str, names: set[str]) -> Iterator[str]:
    """Why a finding is no sentence. `names`: with which it may begin."""
    if not re.match(r"[A-Z0-9]", sentence) and not sentence.startswith(tuple(names)):
        yield "begins with no capital, figure or name"
    if not sentence.endswith("."):
        yield "has no full stop"
    yield from (pattern for pattern in BROKEN if re.search(pattern, sentence))


def words_of(part: PlannedTrial) -> Iterator[str]:
    """With what a finding may begin: names of a variant, a row, an axis and its value."""
    yield from (part.variant, part.row.label, *part.cell, *map(str, part.cell.values()))


@pytest.mark.parametrize("name", list_runs())
def test_a_stored_run_is_said_in_sentences_that_agree(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    shutil.copy(list_runs()[name], tmp_path / "records.jsonl")
    text, result = report(str(tmp_path)), read(tmp_path)
    findings = [line for line in text.split("\n\n")[0].splitlines() if line[:2] not in ("! ", "x ")]
    names = {one.partition(" (")[0] for part in result.plan for one in words_of(part)}
    assert findings and not contradictions(text)
    assert {line: found for line in findings if (found := list(faults(line, names)))} == {}


@pytest.mark.parametrize(
    "name", [name for name in list_runs() if name.startswith(("micro", "run"))]
)
def test_no_row_is_offered_load_that_others_refute(name: str, tmp_path: Path) -> None:
    """Where more of the same clients get fewer answers, they were not too few."""
    shutil.copy(list_runs()[name], tmp_path / "records.jsonl")
    ladders: dict[str, list[tuple[int, float, str]]] = {}
    for entry in page_of(read(tmp_path)).entries:
        line, cause = entry.line, "" if entry.limited is None else entry.limited.cause
        if entry.rate is not None and line.row.loop == "closed":
            place = f"{line.variant} {line.cell} {line.row.client}"
            ladders.setdefault(place, []).append((line.row.connections, entry.rate.mean, cause))
    for rows in ladders.values():
        for clients, rate, limit in rows:
            more = [other for other in rows if other[0] > clients]
            assert limit != "offered load" or all(one[1] >= COLLAPSE * rate for one in more)


def test_what_was_seen_is_found() -> None:
    assert contradictions(
        "3 of 22 s are out of the SLO (p99 <= 1 s). At 4 s: the SLO holds all along."
    )
    assert contradictions("Something failed: no request succeeded (9 rejected). 1.333 requests/s")
    assert not contradictions("none of 240 requests was lost; 0 of 22 s are out of the SLO.")
    assert list(faults("It is limited by 4 of 4 requests wait in Queue.get.", set())) == [BROKEN[0]]
    assert len(list(faults("the largest step is is the handle", {"a"}))) == 3
    assert not list(faults("b is 14 % slower than a (4 to 23 %): regressed, 3 rounds.", {"b"}))
