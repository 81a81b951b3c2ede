"""The text and the JSON of doctor, and the command."""

from __future__ import annotations

import json
import re
import sys

import pytest

from serve_bench import doctor
from serve_bench.analysis.checks import Check, CheckGroup, CheckStatus
from serve_bench.cli.program import run
from serve_bench.doctor import Machine
from serve_bench.doctor.machine_checks import load
from serve_bench.report.doctor import data, text

HOST = {"cpu": "Fast CPU", "usable_cores": 2, "kernel": "Linux 6.1", "load_1m": 0.5}
LONG = "a value that is longer than what fits on one line of a terminal of eighty columns"
SECTIONS = (
    CheckGroup("CPU", (Check("cores", "ok", "2 usable", detail={"usable": 2}),)),
    CheckGroup(
        "room",
        (
            Check("swap", "warning", LONG, "end what swaps, " * 8),
            Check("shared memory", "unknown", "not told"),
            Check("oha", "absent", "not on PATH", "for loads of your own"),
        ),
    ),
)
BUSY = (SECTIONS[0], CheckGroup("now", (load([3.0, 1.0, 1.0], 2, 1.5),)))
FAILED = (*SECTIONS, CheckGroup("Ray", (Check("Ray", "failure", "none", "install it"),)))


def test_each_line_says_status_name_value_and_what_to_do() -> None:
    lines = text(SECTIONS, HOST).splitlines()
    assert lines[0] == "Warnings" and lines[1].startswith("  warning  swap           a value that")
    at = lines.index("CPU")
    assert lines[at : at + 2] == ["CPU", "  ok       cores          2 usable"]
    assert sum("swap  " in line for line in lines) == 1 and lines.index("room") > at
    assert "  absent   oha            not on PATH" in lines
    assert " " * 26 + "-> for loads of your own" in lines
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("host: Fast CPU, 2 cores") for line in lines)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (SECTIONS[:1], "fit: 1 ok, 0 warnings, 0 failures"),
        (SECTIONS, "usable with doubts: 1 ok, 1 warning, 0 failures, 1 unknown, 1 absent"),
        (BUSY, "not now: 1 ok, 1 warning, 0 failures"),
        (
            FAILED,
            "not now: 1 ok, 1 warning, 1 failure, 1 unknown, 1 absent; fix the failures before a "
            "measurement",
        ),
    ],
)
def test_the_end_adds_up(sections: tuple[CheckGroup, ...], said: str) -> None:
    assert text(sections, HOST, width=200).splitlines()[-1] == said
    assert json.loads(data(sections, HOST))["verdict"] == said.partition(":")[0]


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


def machine(monkeypatch: pytest.MonkeyPatch, status: CheckStatus) -> list[Machine]:
    """A machine with one finding; the places that were looked at."""
    seen: list[Machine] = []

    def diagnose(machine: Machine, tell: object) -> tuple[CheckGroup, ...]:
        seen.append(machine)
        return (CheckGroup("all", (Check("it", status, "found", "do this"),)),)

    monkeypatch.setattr(doctor, "diagnose", diagnose)
    return seen


@pytest.mark.parametrize(
    ("status", "code"),
    [("ok", 0), ("warning", 0), ("unknown", 0), ("absent", 0), ("failure", 1)],
)
def test_the_exit_code_is_1_for_a_failure_alone(
    status: CheckStatus,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine(monkeypatch, status)
    for words in (["doctor"], ["doctor", "--json"]):
        assert run(words) == code
        out, err = capsys.readouterr()
        assert err == "" and "\x1b" not in out
    assert json.loads(out)["checks"][0]["status"] == status


def test_the_interpreter_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = machine(monkeypatch, "ok")
    assert run(["doctor", "--python", "other/bin/python"]) == 0
    assert run(["doctor"]) == 0
    assert [machine.python for machine in seen] == ["other/bin/python", None]


def test_an_empty_interpreter_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--python", ""]) == 2
    assert capsys.readouterr().err == "serve-bench: --python: '' is not allowed; it takes a value\n"


@pytest.mark.process
def test_what_is_no_interpreter_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--python", f"{sys.executable}-none"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("serve-bench: --python: ") and err.count("\n") == 1
