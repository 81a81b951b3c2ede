import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from serve_bench.view.figures import COMMON, FIGURES
from tests.places import TOP
from tests.suites import suite_with

DOCS = TOP / "docs"
PAGES = [TOP / "README.md", *sorted(DOCS.rglob("*.md"))]
EVIDENCE = sorted((TOP / "evidence").glob("*.md"))
OTHERS = "GLOSSARY CHANGELOG CONTRIBUTING SECURITY deploy/README profiles/README examples/ci/README"
TEXTS = [*PAGES, *(TOP / f"{name}.md" for name in OTHERS.split())]


def test_the_index_has_every_page() -> None:
    """That links lead somewhere is checked by scripts/docs."""
    linked = {*re.findall(r"\]\(([^)\s]+)\)", (DOCS / "README.md").read_text())}
    assert {str(page.relative_to(DOCS)) for page in PAGES[1:]} - {"README.md"} <= linked


def sentences(page: Path) -> list[str]:
    """Those of paragraphs, lists and cells; what is code counts as one word."""
    text = re.sub(r"(?s:```.*?```)|^ {4}.*$|^[|: -]+$|^#.*$", "", page.read_text(), flags=re.M)
    text = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", text))
    blocks = re.split(r"\n\n|\n *[-\d]+\.? |\|", text)
    return [part for block in blocks for part in re.split(r"[.!?][*)]*\s", block)]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_a_page_is_short_and_so_are_its_sentences(page: Path) -> None:
    assert len(re.findall(r"\S*\w\S*", page.read_text())) <= 900
    assert [part for part in sentences(page) if len(part.split()) > 30] == []


def test_scripts_that_docs_name_are_there() -> None:
    text = "".join(page.read_text() for page in [*PAGES, *EVIDENCE])
    named = {TOP / f"scripts/bench_{name}.py" for name in re.findall(r"scripts/bench (\w+)", text)}
    assert named and all(map(Path.exists, named))


def test_the_table_of_figures_is_the_one_of_the_code() -> None:
    rows: dict[str, str] = {}
    for name in COMMON:
        member, _, meaning = FIGURES[name].meaning.rpartition(": ")
        family = re.sub(r"_(mean|std|p[\d_]+|max|count)$", "_*", name) if member else name
        rows.setdefault(family, f"| `{family}` | {FIGURES[name].unit} | {meaning} |")
    table = re.findall(r"^\| `.*", (TOP / "evidence/figures.md").read_text(), re.MULTILINE)
    assert [*rows.values()] == table


@pytest.mark.parametrize("text", sorted({*TEXTS} - {DOCS / "style.md"}), ids=lambda text: text.name)
def test_no_text_has_a_form_that_the_style_replaces(text: Path) -> None:
    """That is: of more than one word."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (DOCS / "style.md").read_text(), re.MULTILINE)
    forms = [form for row in rows for form in re.split("[;,] ", row) if " " in form]
    assert len(forms) > 10 and "held against" in forms
    words = " ".join(text.read_text().split()).casefold()
    assert [form for form in forms if re.search(rf"\b{re.escape(form.casefold())}\b", words)] == []


def test_the_workflow_to_copy_is_that_of_the_example() -> None:
    workflow = (TOP / "examples/ci/.github/workflows/benchmark.yml").read_text()
    job = workflow[workflow.index("  versus:") : workflow.index("\n\n  # The gate for accidents")]
    assert textwrap.indent(job, "    ") in (DOCS / "ci.md").read_text()


def test_the_suite_and_the_targets_of_make_that_are_shown_are_there() -> None:
    page = (DOCS / "commands.md").read_text()
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    (block,) = (textwrap.dedent(block) for block in blocks if "[variants.mine]" in block)
    suite = suite_with(tomllib.loads(block), "commands.md")
    assert [variant.name for variant in suite.variants] == ["default", "mine"]
    targets = set(re.findall(r"^(\S+?):", (TOP / "Makefile").read_text(), re.MULTILINE))
    named = {*re.findall(r"^    make (\S+)$", (TOP / "README.md").read_text(), re.MULTILINE)}
    assert named == {"micro", "test"} <= targets
