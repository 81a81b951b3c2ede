from __future__ import annotations

import json
import sys

import pytest

from serve_bench import doctor
from serve_bench.analysis.checks import Finding, Section, Status
from serve_bench.cli import run
from serve_bench.doctor import Place


def machine(monkeypatch: pytest.MonkeyPatch, status: Status) -> list[Place]:
    """A machine with one finding; the places that were looked at."""
    seen: list[Place] = []

    def diagnose(place: Place, tell: object) -> tuple[Section, ...]:
        seen.append(place)
        return (Section("all", (Finding("it", status, "found", "do this"),)),)

    monkeypatch.setattr(doctor, "diagnose", diagnose)
    return seen


@pytest.mark.parametrize(
    ("status", "code"),
    [("ok", 0), ("warning", 0), ("unknown", 0), ("absent", 0), ("failure", 1)],
)
def test_the_exit_code_is_1_for_a_failure_alone(
    status: Status,
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
    assert [place.python for place in seen] == ["other/bin/python", None]


def test_an_empty_interpreter_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--python", ""]) == 2
    assert capsys.readouterr().err == "serve-bench: --python: '' is not allowed; it takes a value\n"


@pytest.mark.process
def test_what_is_no_interpreter_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--python", f"{sys.executable}-none"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("serve-bench: --python: ") and err.count("\n") == 1
