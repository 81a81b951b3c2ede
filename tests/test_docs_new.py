"""The pages in docs/ hang together: links lead somewhere, commands shown are understood.

Commands are parsed against the flags of the command line; those with `--dry-run` are run as they
stand, loads against a server with a known answer. Nothing here starts Ray.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from serve_bench.cli import app, run
from serve_bench.jsonl import to_line
from serve_bench.result import Run
from serve_bench.shipped import read_toml, suite_file
from serve_bench.suite import read_suite
from tests.servers import serving

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
NEW = ("reading", "methodology", "load", "faq", "compared")

_SHOWN = r"^ {4,6}(serve-bench [a-z]+(?: .*?)?)(?: +#.*)?$"
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")

COMMANDS = sorted(
    {
        line
        for name in NEW
        for line in re.findall(_SHOWN, (DOCS / f"{name}.md").read_text(), re.MULTILINE)
    }
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on GitHub."""
    titles = re.findall(r"^#+ +(.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def missing_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    wrong = []
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page if not file else (page.parent / file).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_resolve(page: Path) -> None:
    assert missing_links(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, of two\n[a](#a-title-of-two) [b](#none) [c](gone.md)\n")
    assert missing_links(page) == ["#none", "gone.md"]


def test_every_page_is_in_the_index() -> None:
    linked = set(_LINK.findall((DOCS / "README.md").read_text()))
    assert {page.name for page in PAGES} - {"README.md"} <= linked


def test_the_new_pages_show_commands() -> None:
    assert len(COMMANDS) >= 20


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line: str) -> None:
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    context = command.make_context("serve-bench", list(words))
    name, sub, rest = command.resolve_command(context, words)
    assert sub.make_context(name, rest, parent=context).params


@pytest.mark.parametrize("line", [one for one in COMMANDS if "--dry-run" in one])
def test_plans_are_printed(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    if "--resume" in words:
        folder = Path(words[words.index("--resume") + 1])
        folder.mkdir(parents=True)
        suite = read_suite(read_toml(suite_file("micro")), "micro.toml")
        stored = Run("id", (), "micro", "2026-01-02T03:04:05+00:00", "0", suite=suite.to_json())
        (folder / "records.jsonl").write_text(to_line(stored))
    code = run(words)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert "about " in captured.out


@pytest.mark.process
@pytest.mark.parametrize(
    "line", [one for one in COMMANDS if one.startswith("serve-bench load") and " wrk" not in one]
)
def test_loads_work(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paths.txt").write_text("/a\n/b?id=2\n")
    with serving() as server:
        text = re.sub(r"http://127\.0\.0\.1:8000/[a-z]*", server.url, line)
        text = re.sub(r":\d+s", ":100ms", re.sub(r" -d \d+s", " -d 200ms", text))
        words = shlex.split(text)[1:]
        if "-d" not in words and "--stages" not in words:
            words += ["-d", "200ms"]
        assert run([*words, "--timeout", "5s"]) == 0, capsys.readouterr().err
    assert " completed + 0 failed" in capsys.readouterr().out
