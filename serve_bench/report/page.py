"""A document, or several, as one HTML page that needs nothing else.

Rule: the page knows no kind of run and decides nothing about figures. templates/page.html and
blocks.html lay it out, style.css and page.js are its style and script. jinja2 escapes every text.
The page asks the network for nothing, and its policy forbids it; only the scripts whose hashes the
policy names can run, whatever a text of a run holds.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from serve_bench import __version__
from serve_bench.analysis.stacks import LayerRules, parse_raw
from serve_bench.core.errors import BadInput, visible
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.theme import PAGE, TEMPLATES, Looks, file_text, looks_of
from serve_bench.report.vega import vega
from serve_bench.view.document import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Finding,
    Flamegraph,
    Folded,
    Number,
    Prose,
    Section,
    Table,
    Tone,
    as_text,
    explain,
    unfolded,
    with_charts,
)

MADE_BY: Final = '<meta name="generator" content="serve-bench '
"""Stands near the beginning of every page: what has it may be replaced by a newer page."""

# Files of a run in its page: its flamegraphs, and its records where they are not too large.

MOST_RECORDS: Final = 2_000_000
"""Bytes of records that a page holds: it is to be mailed, and attached to issues."""


@dataclass(frozen=True)
class RunFile:
    """A file of a run: `href` is the URL from the page to it; `size` in bytes, None where it does
    not exist; `content` None where it is too large for a page, or lies outside of the run."""

    href: str
    size: int | None
    content: bytes | None = None


@dataclass(frozen=True)
class Folder:
    """The folder of a run: its records, and its flamegraphs as SVG by the paths of their stacks."""

    records: RunFile | None = None
    flamegraphs: Mapping[str, str] = field(default_factory=dict)


def folder_of(
    home: Path, document: Document, base: Path, records: str, rules: LayerRules
) -> Folder:
    """The files of a run in `home`, as seen from a page in `base`. `records`: their file there;
    `rules`: what splits the stacks of flamegraphs by layer."""
    blocks = (block for section in document.sections for block in section.blocks)
    flamegraphs = (block for block in unfolded(blocks) if isinstance(block, Flamegraph))
    drawn = ((graph.stacks, _draw(home, graph, rules)) for graph in flamegraphs)
    return Folder(
        records=_records_file(home, records, base),
        flamegraphs={path: svg for path, svg in drawn if svg is not None},
    )


def _draw(home: Path, flamegraph: Flamegraph, rules: LayerRules) -> str | None:
    """A flamegraph as SVG; None where there are no stacks that can be read."""
    file = home / flamegraph.stacks
    try:
        if not _is_within(file, home):
            return None
        stacks = parse_raw(file.read_text(encoding="utf-8", errors="replace"), flamegraph.stacks)
    except (OSError, RuntimeError, ValueError, BadInput):  # no such file, links in a ring
        return None
    return flame_svg(stacks, "", rules) if stacks else None


def _records_file(home: Path, path: str, base: Path) -> RunFile:
    file = home / path
    href = quote(os.path.relpath(file, base))
    if ":" in href.partition("/")[0]:
        href = f"./{href}"
    try:
        if not _is_within(file, home):
            return RunFile(href, None)
        size = file.stat().st_size
        return RunFile(href, size, file.read_bytes() if size < MOST_RECORDS else None)
    except (OSError, RuntimeError, ValueError):  # cannot be read; a name that no file can have
        return RunFile(href, None)


def _is_within(file: Path, home: Path) -> bool:
    """Whether a file is in the folder of its run. No other file is ever read: records may come from
    elsewhere."""
    return file.resolve().is_relative_to(home.resolve()) and file.is_file()


def records_text(content: bytes) -> str:
    """Records as they stand in a script block: the same JSON, without a `<`, which could end it.
    In JSON that sign occurs inside strings alone, where it may be written so."""
    return content.decode("utf-8", "replace").replace("<", "\\u003c")


def size_text(size: int) -> str:
    """A size in bytes as words: 218 kB, 3.4 MB."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


# The library that draws the charts: Vega-Lite and Vega as one script, with its notices.
#
# Rule: vl_convert (extra `plot`) is imported where it is needed: it is large.


@dataclass(frozen=True)
class Bundle:
    """`script` sets window.vegaEmbed; `notices` are the licences that must go with it; `versions`
    names what is in it."""

    script: str
    notices: str
    versions: str


@cache  # it takes seconds
def bundle() -> Bundle:
    """The bundle of the installed vl-convert-python. Raises BadInput where there is none."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput(
            "--format html: needs vl-convert-python: pip install vl-convert-python"
        ) from None
    vega, vega_embed = vl_convert.get_vega_version(), vl_convert.get_vega_embed_version()
    vega_lite = vl_convert.get_vegalite_versions()[-1]  # in order: the bundle has the newest
    return Bundle(
        script=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite),
        notices=file_text("notices.txt").format(
            vega=vega, vega_lite=vega_lite, vega_embed=vega_embed
        ),
        versions=f"Vega {vega}, Vega-Lite {vega_lite}, Vega-Embed {vega_embed}",
    )


# What the templates ask: texts as HTML, and how a block is to be laid out.

SIGNS: Final[Mapping[Tone, tuple[str, str]]] = {
    "good": ("✓", "good"),
    "bad": ("✗", "bad"),
    "doubt": ("!", "warning"),
}
"""What a tone is without its colour: a sign, and the word that is read aloud."""

UNBROKEN: Final = re.compile(
    r"(?<![^\s(])--[A-Za-z][\w-]*|-&gt;|[\d.,]*\d(?: %| ± [\d.,]*\d)(?!\w)"
)
"""A flag, an arrow, a share, or a figure with its spread in escaped words: no line may end within
it."""

PART: Final = re.compile(r"(?<=[/,:])(?=\w)")
PART_OF_NAME: Final = re.compile(r"(?<=[_./,:])(?=\w)")
LONG_WORD: Final = re.compile(r"\S{18,}")
"""Where a line may end in a word without a gap: a path, or in a narrow column a name."""

SHORT: Final = 28
SHORT_FIGURE: Final = 18
"""Characters of a cell, and of a figure, that stay on one line where there is room."""

SHORT_UNIT: Final = 14
"""Characters of a unit that stays on one line."""

FEW_COLUMNS: Final = 4
"""So many columns, none of them with a long cell, need not be as wide as the page."""

LONG: Final = 6000
MANY_LINES: Final = 40
"""Characters of HTML, and lines of text, from which what is folded stays so on paper."""


def words(text: str, part: re.Pattern[str] = PART) -> Markup:
    """A text whose lines end where a reader does not stumble: within nothing that is UNBROKEN, and
    in a long word where it has a `part`."""
    escaped = LONG_WORD.sub(lambda word: part.sub("<wbr>", word[0]), escape(visible(text)))
    return Markup(UNBROKEN.sub(r'<span class="flag">\g<0></span>', escaped))


def script_json(value: object) -> str:
    """JSON as it may stand in a script block: no text in it can end the block."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _figure(value: float | None) -> str:
    """A figure as `--format json` writes it; null where there is none, or no number."""
    return json.dumps(value if value is not None and math.isfinite(value) else None)


def _sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _classes(*names: str | bool) -> Markup:
    """The attribute with those that are names; none for a plain tone alone."""
    some = [name for name in names if isinstance(name, str) and name not in ("", "plain")]
    return Markup(f' class="{" ".join(some)}"' if some else "")


def _is_long_cell(cell: Cell, column: Column) -> bool:
    about = as_text(cell)
    most = SHORT_FIGURE if column.number else SHORT
    return max(map(len, (about.text, *about.below))) > most


def _explained(table: Table) -> list[Finding]:
    return [finding for _, finding in explain([row.doubts for row in table.rows])]


def _is_few(table: Table) -> bool:
    cells = (zip(row.cells[1:], table.columns[1:], strict=True) for row in table.rows)
    return len(table.columns) <= FEW_COLUMNS and not any(
        _is_long_cell(*pair) for pairs in cells for pair in pairs
    )


@cache
def environment() -> jinja2.Environment:
    """The templates, which escape every text and write out its control characters."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    env.filters |= {
        "beside": lambda cells, columns: zip(cells, columns, strict=True),
        "explained": _explained,
        "figure": _figure,
        "kind": lambda block: type(block).__name__,
        "long": _is_long_cell,
        "records": records_text,
        "sentence": _sentence,
        "size": size_text,
        "text": as_text,
        "words": words,
    }
    env.tests |= {
        "few": _is_few,
        "much": lambda html: len(html) > LONG or html.count("\n") > MANY_LINES,
        "number_cell": lambda cell: isinstance(cell, Number),
    }
    env.globals |= {
        "classes": _classes,
        "file": file_text,
        "MADE_BY": MADE_BY,
        "PART": PART,
        "PART_OF_NAME": PART_OF_NAME,
        "SHORT_UNIT": SHORT_UNIT,
        "SIGNS": SIGNS,
        "version": __version__,
    }
    return env


# A document as a sheet of the page: its charts get names, and sections without a block go.

BESIDE: Final = 3
"""So many charts in a row stand beside each other where there is room."""


@dataclass(frozen=True)
class PlacedChart:
    """A chart with the name of its place in the page."""

    name: str
    chart: Chart


@dataclass(frozen=True)
class ChartGroup:
    """Charts that stand beside each other where there is room."""

    charts: tuple[PlacedChart, ...]


@dataclass(frozen=True)
class SheetSection:
    """A section with its blocks as they are drawn."""

    name: str
    title: str
    blocks: Sequence[Block | PlacedChart | ChartGroup]


@dataclass(frozen=True)
class Sheet:
    """A document as the templates draw it. `prefix` begins the anchor of each section, `level` is
    that of its heading; `titles` are those of the sections that every page has; `charts`: the
    specifications of charts by name; `typed`: the command, where the facts do not have it."""

    document: Document
    folder: Folder
    anchor: str
    prefix: str
    level: int
    titles: Mapping[str, str]
    sections: Sequence[SheetSection]
    charts: Mapping[str, Mapping[str, Any]]
    typed: str

    @property
    def first(self) -> int:
        """Before which section further results stand: behind the first table."""
        places = (at for at, part in enumerate(self.sections) if _has(Table, part.blocks))
        return next(places, len(self.sections) - 1) + 1

    @property
    def contents(self) -> list[tuple[str, str]]:
        """The name and the title of each section, in their order."""
        names = [(section.name, section.title) for section in self.sections]
        names.insert(self.first, ("findings", self.titles["findings"]))
        names += [(name, self.titles[name]) for name in ("asked", "machine", "records")]
        return [(name, title) for name, title in names if title]


def _has(kind: type, blocks: Iterable[object]) -> bool:
    return any(isinstance(block, kind) for block in blocks)


def _placed(
    blocks: Iterable[Block], prefix: str, charts: dict[str, Mapping[str, Any]], looks: Looks
) -> Iterator[Block | PlacedChart | ChartGroup]:
    """Blocks as they are drawn, without those that say nothing. Puts the specifications of charts
    into `charts`, by name."""
    row: list[PlacedChart] = []
    for block in (*blocks, None):
        if isinstance(block, Chart):
            row.append(PlacedChart(f"{prefix}chart-{len(charts) + len(row) + 1}", block))
            continue
        charts |= {placed.name: vega(placed.chart, looks=looks) for placed in row}
        yield from [ChartGroup(tuple(row))] if len(row) >= BESIDE else row
        row = []
        if isinstance(block, Folded):
            inside = cast("tuple[Block, ...]", tuple(_placed(block.blocks, prefix, charts, looks)))
            yield replace(block, blocks=inside)
        elif block is not None and not (isinstance(block, Prose) and not block.paragraphs):
            yield block


METHOD: Final = "method"
"""The section of plan, proofs and rules, the last one; folded: few readers need it."""


def _made(document: Document) -> list[Section]:
    """The sections with their charts in the place of `Charts`, also in what is folded."""

    def made(blocks: Iterable[Block]) -> tuple[Block, ...]:
        return tuple(
            replace(one, blocks=made(one.blocks)) if isinstance(one, Folded) else one
            for one in with_charts(blocks)
        )

    return [replace(part, content=made(part.blocks)) for part in document.sections]


def _in_order(sections: Sequence[Section]) -> list[Section]:
    """The main chart first, then the results; the method last, and folded."""
    main = next((part for part in sections if _has(Chart, part.blocks)), None)
    ordered = sorted(
        sections,
        key=lambda part: (part.name == METHOD, part is not main, part.detail != "headline"),
    )
    return [
        replace(part, content=(Folded("Plan, proofs and rules of these figures", part.blocks),))
        if part.name == METHOD
        else part
        for part in ordered
    ]


def _sheet(document: Document, folder: Folder, at: int, many: bool, looks: Looks) -> Sheet:
    """The sheet of a document, the one `at` this place of the page; its sections are made and in
    their order."""
    prefix = f"run-{at + 1}-" if many else ""
    charts: dict[str, Mapping[str, Any]] = {}
    drawn = [
        (one.name, one.title, tuple(_placed(_titled(one), prefix, charts, looks)))
        for one in document.sections
    ]
    command = shlex.join(document.argv)
    records = folder.records
    more = len(document.findings) > len(document.lead)
    findings = "Further results" if more else "Warnings"
    return Sheet(
        document,
        folder,
        f"run-{at + 1}",
        prefix,
        3 if many else 2,
        {
            "asked": "Request" if document.run.pairs or document.argv else "",
            "machine": "Machine" if document.machine.pairs else "",
            "findings": findings if more or document.doubts else "",
            "records": "" if records is None or records.size is None else "Records",
        },
        [SheetSection(*one) for one in drawn if one[-1]],
        charts,
        "" if any(command in text for _, text in document.run.pairs) else command,
    )


def _titled(section: Section) -> list[Block]:
    """The blocks of a section. Its only chart has no title where the section's says as much."""
    blocks = list(section.blocks)
    charts = [one for one in blocks if isinstance(one, Chart)]
    if len(charts) == 1 and charts[0].title.casefold() in section.title.casefold():
        blocks = [replace(one, title="") if isinstance(one, Chart) else one for one in blocks]
    return blocks


def html_text(
    documents: Sequence[Document], *, library: Bundle | None = None, folders: Sequence[Folder] = ()
) -> str:
    """The whole page, for one document or several, one after the other.

    `folders`: the folder of each run, if it has one. `library`: draws the charts, if not
    `bundle()`. Raises ValueError without a document, BadInput where there are charts and no
    library.
    """
    if not documents:
        raise ValueError("a page without a document")
    many = len(documents) > 1
    beside = [*folders, *[Folder()] * (len(documents) - len(folders))]
    made = [replace(one, sections=tuple(_in_order(_made(one)))) for one in documents]
    blocks = (block for page in made for part in page.sections for block in unfolded(part.blocks))
    looks = looks_of(block.drawing for block in blocks if isinstance(block, Chart))
    sheets = [
        _sheet(document, folder, at, many, looks)
        for at, (document, folder) in enumerate(zip(made, beside, strict=True))
    ]
    charts = {name: spec for sheet in sheets for name, spec in sheet.charts.items()}
    library = library or bundle() if charts else None
    scripts = [file_text("page.js")]
    if library is not None:
        scripts.insert(0, f"(()=>{{{library.script}\n}})();")
    template = environment().get_template("page.html")
    text = template.render(
        title=f"serve-bench: {len(sheets)} runs" if many else documents[0].title,
        library=library,
        scripts=[_closed(script) for script in scripts],
        policy=_policy(scripts),
        charts=script_json({"config": PAGE, "charts": charts}),
        sheets=sheets,
    )
    return text.encode("utf-8", "replace").decode("utf-8")  # half a pair of surrogates, in a name


def _policy(scripts: Sequence[str]) -> str:
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


def _closed(script: str) -> str:
    """The script. Raises ValueError where it would end its own block, or change by being read: it
    is the text of a library, not of a run."""
    if "</script" in script.lower() or "<!--" in script or "\r" in script:
        raise ValueError("a script of the page holds what cannot stand in a page")
    return script
