import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from serve_bench.view.figures import COMMON, FIGURES
from tests.places import TOP
from tests.suites import suite_with

DOCS = TOP / "docs"
PAGES = [TOP / "README.md", *sorted(DOCS.glob("*.md"))]
EVIDENCE = sorted((TOP / "evidence").glob("*.md"))

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on GitHub."""
    titles = re.findall(r"^#+ +(.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def missing_links(page: Path) -> list[str]:
    wrong = []
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page if not file else (page.parent / file).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", [*PAGES, *EVIDENCE], ids=lambda page: page.stem)
def test_links_of_a_page_resolve(page: Path) -> None:
    assert missing_links(page) == []


def test_the_index_has_every_page() -> None:
    linked = set(_LINK.findall((DOCS / "README.md").read_text()))
    assert {page.name for page in PAGES} - {"README.md"} <= linked


TEXTS = [
    *(page for page in PAGES if page.name != "style.md"),
    *(TOP / name for name in ("GLOSSARY.md", "CHANGELOG.md", "deploy/README.md")),
    *(TOP / name for name in ("profiles/README.md", "examples/ci/README.md")),
]


def test_scripts_that_docs_name_are_there() -> None:
    pages = [*PAGES, *EVIDENCE, TOP / "GLOSSARY.md"]
    named = {
        name for page in pages for name in re.findall(r"scripts/bench (\w+)", page.read_text())
    }
    assert named
    assert [name for name in named if not (TOP / f"scripts/bench_{name}.py").exists()] == []
    glossary, meanings = pages[-1].read_text(), [FIGURES[name].meaning for name in COMMON]
    assert all(f"| {words.rpartition(': ')[2]} |" in glossary for words in meanings)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.name)
def test_no_text_has_a_form_that_the_style_replaces(text: Path) -> None:
    """That is: of more than one word."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (DOCS / "style.md").read_text(), re.MULTILINE)
    every = [form.strip() for row in rows for form in re.split("[;,]", row)]
    forms = [form for form in every if " " in form]
    assert len(forms) > 10 and "held against" in forms
    words = " ".join(text.read_text().split()).casefold()
    assert [one for one in forms if re.search(rf"\b{re.escape(one.casefold())}\b", words)] == []


def test_the_suite_and_the_targets_of_make_that_are_shown_are_there() -> None:
    shown = (DOCS / "commands.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", shown, re.MULTILINE)
    (block,) = (textwrap.dedent(block) for block in blocks if "[variants.mine]" in block)
    suite = suite_with(tomllib.loads(block), "commands.md")
    assert [variant.name for variant in suite.variants] == ["default", "mine"]
    targets = set(re.findall(r"^(\S+?):", (TOP / "Makefile").read_text(), re.MULTILINE))
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^    make (\S+)$", readme, re.MULTILINE))
    assert named == {"micro", "test"} <= targets
