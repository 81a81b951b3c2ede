"""The whole examination: on this machine, on an empty one, and where nothing can be read."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from serve_bench.analysis.checks import Check, CheckGroup
from serve_bench.doctor import Machine, diagnose, tool_checks
from tests.doctor.test_tool_checks import WHOLE

ROOT = Path(__file__).parents[2]
NOTHING = {name: None for name in WHOLE.versions}


def by_name(sections: tuple[CheckGroup, ...]) -> Mapping[str, Check]:
    return {one.name: one for section in sections for one in section.findings}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """No Ray, no torch, no py-spy, no program, and neither /proc nor /sys."""
    missing = WHOLE.__class__("python", "3.11.7", "CPython", False, NOTHING, None, None)
    monkeypatch.setattr(tool_checks, "interpreter", lambda machine: missing)
    monkeypatch.setattr(tool_checks, "where", lambda name: None)
    monkeypatch.setattr(tool_checks, "py_spy", lambda: str(tmp_path / "none"))
    return Machine(root=tmp_path, results=tmp_path / "results", temporary=tmp_path, pause_s=0.0)


def test_a_bare_machine_is_told_so_line_by_line(bare: Machine) -> None:
    told: list[str] = []
    found = by_name(diagnose(bare, told.append))
    assert told == []  # nothing was there to be asked
    expected = {
        "Ray": "failure",
        "torch": "absent",
        "GPU": "absent",
        "oha": "absent",
        "perf": "absent",
        "py-spy": "warning",
        "HAProxy": "warning",
        "RAY_SERVE_* flags": "unknown",
        "CPU governor": "unknown",
        "CPU quota": "unknown",
        "steal": "unknown",
        "shared memory": "unknown",
        "ephemeral ports": "unknown",
    }
    assert {name: found[name].status for name in expected} == expected


def test_the_page_lists_what_is_looked_at(bare: Machine) -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    table = page.partition("| check | how |")[2].partition("\n\n")[0]
    listed = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    names = [name for row in listed for name in row.split(", ")]
    assert names == [one.name for section in diagnose(bare) for one in section.findings]


def test_what_may_not_be_read_is_unknown_and_says_why(
    bare: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise psutil.AccessDenied(7)

    monkeypatch.setattr(psutil, "virtual_memory", denied)
    monkeypatch.setattr(psutil, "swap_memory", denied)
    monkeypatch.setattr(Path, "iterdir", denied)
    found = by_name(diagnose(bare))
    for name in ("memory", "swap", "earlier runs"):
        assert found[name].status == "unknown"
        assert "pid=7" in found[name].value


def test_on_macos_nothing_is_raised(bare: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    found = by_name(diagnose(bare))
    assert found["shared memory"].value.startswith("not Linux")
    assert "cores" in found and found["cores"].status in ("ok", "warning")


@pytest.mark.process
def test_this_machine_imports_neither_ray_nor_torch() -> None:
    code = (
        "import sys; from serve_bench.doctor import Machine, diagnose\n"
        "from serve_bench.report.doctor import text\n"
        "for section in diagnose(Machine(pause_s=0.05)):\n"
        "    for one in section.findings: print(one.status, one.name, one.value, sep='|')\n"
        "print(sorted({'ray', 'torch', 'numpy', 'scipy', 'vl_convert'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=110
    )
    assert done.returncode == 0, done.stderr
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]"
    found = {line.split("|")[1]: line.split("|")[::2] for line in lines}
    assert found["Python"][1].startswith(f"CPython {sys.version.split()[0]}")
    assert found["clock"][0] in ("ok", "warning") and " ns" in found["clock"][1]
    assert re.match(r"\d+ usable of \d+", found["cores"][1])
    assert len(lines) == len(found) == 30
