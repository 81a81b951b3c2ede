from __future__ import annotations

import json
import re

import pytest

from serve_bench.analysis.checks import Finding, Section
from serve_bench.report.doctor import data, text

HOST = {"cpu": "Fast CPU", "usable_cores": 2, "kernel": "Linux 6.1", "load_1m": 0.5}
LONG = "a value that is longer than what fits on one line of a terminal of eighty columns"
SECTIONS = (
    Section("CPU", (Finding("cores", "ok", "2 usable", detail={"usable": 2}),)),
    Section(
        "room",
        (
            Finding("swap", "warning", LONG, "end what swaps, " * 8),
            Finding("shared memory", "unknown", "not told"),
            Finding("wrk", "absent", "not on PATH", "for a cross-check"),
        ),
    ),
)
FAILED = (*SECTIONS, Section("Ray", (Finding("Ray", "failure", "none", "install it"),)))


def test_each_line_says_status_name_value_and_what_to_do() -> None:
    lines = text(SECTIONS, HOST).splitlines()
    assert lines[:2] == ["CPU", "  ok       cores          2 usable"]
    assert "  absent   wrk            not on PATH" in lines
    assert " " * 26 + "-> for a cross-check" in lines
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("host: Fast CPU, 2 cores") for line in lines)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (SECTIONS[:1], "1 ok, 0 warnings, 0 failures: fit to measure on\n"),
        (SECTIONS, "1 ok, 1 warning, 0 failures, 1 unknown, 1 absent: fit to measure on, with"),
        (FAILED, "1 ok, 1 warning, 1 failure, 1 unknown, 1 absent: nothing can be measured before"),
    ],
)
def test_the_end_adds_up(sections: tuple[Section, ...], said: str) -> None:
    assert said in text(sections, HOST, width=120)


def test_colour_repeats_what_the_words_say() -> None:
    plain, coloured = text(FAILED, HOST), text(FAILED, HOST, color=True)
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured.count("\x1b[0m") == 5


def test_json_has_every_check_with_its_data() -> None:
    told = json.loads(data(FAILED, HOST))
    assert told["fit"] is False and told["host"] == HOST
    assert told["counts"] == {"ok": 1, "warning": 1, "failure": 1, "unknown": 1, "absent": 1}
    assert told["checks"][0] == {
        "section": "CPU",
        "name": "cores",
        "status": "ok",
        "value": "2 usable",
        "advice": "",
        "detail": {"usable": 2},
    }
    assert len(told["checks"]) == 5
