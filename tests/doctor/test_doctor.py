"""The whole examination, its text, its JSON and its exit code."""

import json
import re
import sys
from pathlib import Path

import psutil
import pytest

from serve_bench import doctor
from serve_bench.cli.doctor import format_json, format_text
from serve_bench.doctor import CheckFinding, Findings, diagnose, machine, software
from serve_bench.doctor.finding import Tone
from serve_bench.doctor.software import Interpreter
from tests.cases import cases
from tests.fixtures import Call, Patch
from tests.places import TOP, execute

FINDINGS: Findings = {
    "cores": CheckFinding("ok", "2 usable"),
    "memory": CheckFinding("warning", "1 GiB free", "end other programs, " * 8),
    "ports": CheckFinding("unknown", "cannot be read"),
}
BUSY: Findings = {**FINDINGS, "busy": CheckFinding("warning", "2 of 2 cores", "wait")}
FAILED: Findings = {**FINDINGS, "Ray": CheckFinding("failure", "not installed", "install it")}


@pytest.fixture
def bare(monkeypatch: Patch, tmp_path: Path) -> Path:
    """A root with neither /proc nor /sys, and no Ray, HAProxy or py-spy."""
    missing = Interpreter("python", "3.11.7", None, None, None)
    monkeypatch.setattr(software, "ask_interpreter", lambda path: missing)
    monkeypatch.setattr(machine, "STEAL_WATCHED_S", 0.0)

    def no_py_spy() -> str:
        raise FileNotFoundError(2, "no such file")

    monkeypatch.setattr(software, "py_spy", no_py_spy)
    return tmp_path


def test_a_bare_machine_is_reported_check_by_check_in_the_order_of_the_page(
    bare: Path, monkeypatch: Patch
) -> None:
    tones = {name: finding.tone for name, finding in diagnose(root=bare).items()}
    assert (tones["Ray"], tones["HAProxy"]) == ("failure", "warning")
    for name in ("py-spy", "governor", "quota", "steal", "ports"):
        assert tones[name] == "unknown", name
    page = (TOP / "docs" / "doctor.md").read_text()
    table = page.partition("| check | ")[2].partition("\n\n")[0]
    assert [row.split("|")[1].strip() for row in table.splitlines()[2:]] == [*tones]

    # What may not be read is unknown.
    def denied(*_: object, **__: object) -> None:
        raise psutil.AccessDenied(7)

    monkeypatch.setattr(psutil, "virtual_memory", denied)
    monkeypatch.setattr(software, "known_runs", denied)
    findings = diagnose(root=bare)
    for name in ("memory", "leftovers"):
        assert findings[name].tone == "unknown" and "pid=7" in findings[name].text


def test_this_machine_is_looked_at_without_an_import_of_ray() -> None:
    code = (
        "import sys; from serve_bench.cli.program import run; run(['doctor', '--json'])\n"
        "print(sorted({'ray', 'torch', 'numpy', 'scipy', 'vl_convert'} & set(sys.modules)))"
    )
    done = execute(sys.executable, "-c", code, cwd=TOP, timeout_s=110)
    assert done.returncode == 0, done.stderr
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    found = {check["check"]: check for check in json.loads("\n".join(lines))["findings"]}
    assert re.match(r"\d+ usable of \d+", found["cores"]["text"])
    assert "GiB" in found["memory"]["text"] and len(found) == 12


@cases(
    "findings, last",
    ({"cores": FINDINGS["cores"]}, "fit: 1 ok"),
    (FINDINGS, "usable with warnings: 1 ok, 1 warning, 1 unknown"),
    (BUSY, "not now: 1 ok, 2 warnings, 1 unknown"),
    (FAILED, "not now: 1 ok, 1 warning, 1 failure, 1 unknown"),
)
def test_the_end_adds_up(findings: Findings, last: str) -> None:
    assert format_text(findings, width=200).splitlines()[-1] == last
    whole = json.loads(format_json(findings))
    assert whole["verdict"] == last.partition(":")[0]
    assert whole["fit"] is ("failure" not in last)
    assert [one["check"] for one in whole["findings"]] == [*findings]


@cases("tone, code", ("ok", 0), ("warning", 0), ("unknown", 0), ("failure", 1))
def test_the_exit_code_is_1_for_a_failure_alone(
    tone: Tone, code: int, monkeypatch: Patch, call: Call
) -> None:
    asked: list[str | None] = []  # the interpreters
    hint = "do this" if tone in ("warning", "failure") else ""

    def diagnose(python: str | None) -> Findings:
        asked.append(python)
        return {"it": CheckFinding(tone, "found", hint)}

    monkeypatch.setattr(doctor, "diagnose", diagnose)
    for words in (["doctor"], ["doctor", "--python", "other/bin/python"], ["doctor", "--json"]):
        out, err = call(*words, code=code)
        assert err == "" and "\x1b" not in out
    assert json.loads(out)["findings"][0]["tone"] == tone
    assert asked == [None, "other/bin/python", None]
    with pytest.raises(ValueError, match="warning with hint ''"):
        CheckFinding("warning", "slow")


@cases("python", "", f"{sys.executable}-none")
def test_no_interpreter_is_bad_input(python: str, call: Call) -> None:
    out, err = call("doctor", "--python", python, code=2)
    assert out == "" and err.startswith("serve-bench: --python: ") and err.count("\n") == 1
