"""The commands that README and docs show for apps of one's own and for A against B are understood.

Those that measure are run with `--dry-run`: every flag is read, and the app is imported. What they
do for real is in tests/integration (test_run, test_versus, test_ci_example).
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from serve_bench.cli import run

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/own-app.md", "docs/ab.md", "docs/ci.md")


def commands(page: str) -> list[str]:
    """Those that are shown on lines of their own, without remarks and redirections."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    found = re.findall(r"^    (serve-bench (?:run|versus|compare) .*?)(?: +#.*)?$", text, re.M)
    return [line.partition(">>")[0] for line in found]


SHOWN = list(dict.fromkeys(line for page in PAGES for line in commands(page)))
MEASURING = [line for line in SHOWN if not line.startswith("serve-bench compare")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands name."""
    example = ROOT / "examples" / "own_app"
    shutil.copytree(example, tmp_path / "examples" / "own_app")
    for name in ("shop.py", "my/package.py", "base/app.py", "pr/app.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(example / "shop.py", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_page_shows_some() -> None:
    assert all(commands(page) for page in PAGES)
    assert len(MEASURING) >= 8 and len(SHOWN) > len(MEASURING)


@pytest.mark.ray
@pytest.mark.parametrize("line", MEASURING)
def test_what_measures_is_planned(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*.*"))
    code = run([*shlex.split(line)[1:], "--dry-run"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert re.search(r"about \d", captured.out)
    assert [one for one in sorted(folder.rglob("*.*")) if "__pycache__" not in str(one)] == before


@pytest.mark.parametrize("line", [line for line in SHOWN if line not in MEASURING])
def test_what_compares_compares(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in shlex.split(line)[2:4]:
        (folder / name).mkdir(parents=True)
        stored = (ROOT / "tests/formats/format-1.jsonl").read_text()
        own = stored.replace('"id":"r1"', f'"id":"{Path(name).name}"', 1)
        (folder / name / "records.jsonl").write_text(own)
    assert run(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert "inconclusive" in capsys.readouterr().out  # of fewer than three launches a side
