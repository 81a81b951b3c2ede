"""Runs of all kinds as a comment on a pull request: one line of verdict, one table, one fold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from serve_bench.benchmarks.registry import BENCHMARKS as SHEETS
from serve_bench.cli.show import render
from serve_bench.core.result import Failure, Result, result_of
from serve_bench.report.comment import escaped
from serve_bench.store import read
from tests import places
from tests.capacity_runs import Service, capacity_result
from tests.kinds.climbs import test_html_ladder as ladders
from tests.kinds.press import test_report_press as press
from tests.kinds.rows import test_report_load as loads
from tests.kinds.rows import test_report_rows as rows
from tests.kinds.rpc import test_report_rpc as rpc
from tests.kinds.scale import test_report_scale as scale
from tests.records import AT, ROWS, launch, planned, run, trial
from tests.sheet_parts import as_lines
from tests.sheet_parts import sheet as sheet_of

GOLDEN: Final = places.GOLDEN / "records.jsonl"


def micro() -> Result:
    return read(GOLDEN)


def noop() -> Result:
    return result_of([replace(run(planned()), command="noop"), launch(), trial(planned())])


def sweep() -> Result:
    struck = Failure("trial", "the client ended", AT, key=ladders.steps()[-1].key)
    return ladders.result(
        *ladders.steps()[:-1], *ladders.steps("optimized", replicas=2), others=[struck]
    )


KINDS: Final[dict[str, Callable[[], Result]]] = {
    "micro": micro,
    "noop": noop,
    "run": lambda: rows.OWN,
    "trace": lambda: replace(rows.OWN, run=replace(rows.OWN.run, command="trace")),
    "load": lambda: loads.result(loads.open_loop()),
    "sweep": sweep,
    "recsys": lambda: replace(sweep(), run=replace(sweep().run, command="recsys")),
    "press": press.golden,
    "rpc": rpc.golden,
    "scale": scale.golden,
    "scale curve": scale.curve,
    "scale ensemble": scale.ensemble,
    "capacity": lambda: capacity_result("c", {"default": [Service(400.0)] * 3}),
    "capacity of two variants": lambda: capacity_result(
        "c", {"default": [Service(400.0)] * 3, "optimized": [Service(600.0)] * 3}
    ),
}


def test_every_kind_that_has_a_page_is_here() -> None:
    apart = {"versus", "tax", "soak", "timeline"}
    assert {name.split()[0] for name in KINDS} | apart == {*SHEETS, "noop"}


def cells(line: str) -> int:
    return len(re.split(r"(?<!\\)\|", line.strip().strip("|")))


@pytest.mark.parametrize("published", [False, True], ids=["", "published"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_one_verdict_and_one_table_with_the_rest_folded(kind: str, published: bool) -> None:
    text = render(KINDS[kind](), "markdown", published=published, where="results/x")
    before, fold, after = text.partition("<details>")
    first, empty, *table = before.rstrip("\n").split("\n")
    table = table[2:]  # its caption stands above it
    assert re.fullmatch(r"\*\*[^*]+\.\*\*", first.replace("\\*", "")) and empty == ""
    assert all(line.startswith("| ") for line in table) and len(table) > 2
    assert {cells(line) for line in table} == {cells(table[0])}
    assert text.count("<details>") == text.count("</details>") and fold
    assert text.endswith("</details>\n") and "records: `results/x`" in after
    lines = text.split("\n")
    opened = [at for at, line in enumerate(lines) if line.startswith("<details>")]
    assert all(lines[at + 1] == "" and lines[at - 1] == "" for at in opened)
    closed = [at for at, line in enumerate(lines) if line == "</details>"]
    assert all(lines[at - 1] == "" for at in closed)
    starts = [at for at, line in enumerate(lines) if line.startswith("| ")]
    assert all(lines[at - 1] == "" or lines[at - 1].startswith("| ") for at in starts)


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "noop"])
def test_what_was_found_is_said_as_on_the_page_and_gaps_come_first(kind: str) -> None:
    result = KINDS[kind]()
    text = render(result, "markdown")
    sentences = as_lines(sheet_of(result, None).findings)
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
