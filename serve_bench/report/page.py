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
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import quote

import jinja2

from serve_bench import __version__
from serve_bench.analysis.stacks import LayerRules, parse_raw
from serve_bench.core.errors import BadInput, visible
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.picture import load_library
from serve_bench.report.theme import PAGE, TEMPLATES, file_text, looks_of
from serve_bench.report.vega import Spec, vega
from serve_bench.view.blocks import section
from serve_bench.view.document import (
    Block,
    Chart,
    Document,
    Flamegraph,
    Folded,
    Number,
    Prose,
    Section,
    Table,
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
    """A file of a run: `href` is the URL from the page to it; `size` in bytes; `content` None where
    it is too large for a page."""

    href: str
    size: int
    content: bytes | None = None


@dataclass(frozen=True)
class Folder:
    """The folder of a run: its records, if they can be read, and its flamegraphs as SVG by the
    paths of their stacks."""

    records: RunFile | None = None
    flamegraphs: Mapping[str, str] = field(default_factory=dict)


def folder_of(
    home: Path, document: Document, base: Path, records: str, rules: LayerRules
) -> Folder:
    """The files of a run in `home`, as seen from a page in `base`. `records`: their file there;
    `rules`: what splits the stacks of flamegraphs by layer."""
    blocks = (block for part in document.sections for block in part.blocks)
    paths = {block.stacks for block in unfolded(blocks) if isinstance(block, Flamegraph)}
    drawn = ((path, _draw(home, path, rules)) for path in paths)
    flamegraphs = {path: svg for path, svg in drawn if svg is not None}
    found = _read(home, records, MOST_RECORDS)
    if found is None:
        return Folder(None, flamegraphs)
    href = quote(os.path.relpath(home / records, base))
    href = f"./{href}" if ":" in href.partition("/")[0] else href
    return Folder(RunFile(href, *found), flamegraphs)


def _draw(home: Path, path: str, rules: LayerRules) -> str | None:
    """The flamegraph of the stacks in a file as SVG; None where there are none."""
    _, content = _read(home, path) or (0, None)
    try:
        stacks = parse_raw((content or b"").decode("utf-8", "replace"), path)
    except BadInput:
        return None
    return flame_svg(stacks, "", rules) if stacks else None


def _read(home: Path, path: str, most: float = math.inf) -> tuple[int, bytes | None] | None:
    """The size of a file in the folder of a run, and what stands in it if it has fewer bytes than
    `most`. None where it cannot be read, or lies elsewhere: no other file is ever read, since
    records may come from others."""
    file = home / path
    try:
        is_within = file.resolve().is_relative_to(home.resolve()) and file.is_file()
        if not is_within:
            return None
        size = file.stat().st_size
        return size, file.read_bytes() if size < most else None
    except (OSError, RuntimeError, ValueError):  # links in a ring, a name that no file can have
        return None


def records_text(content: bytes) -> str:
    """Records as they stand in a script block: the same JSON, without a `<`, which could end it.
    In JSON that sign occurs inside strings alone, where it may be written so."""
    return content.decode("utf-8", "replace").replace("<", "\\u003c")


def size_text(size: int) -> str:
    """A size in bytes as words: 218 kB, 3.4 MB."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"


@dataclass(frozen=True)
class Bundle:
    """The library that draws the charts: Vega-Lite and Vega as one script that sets
    window.vegaEmbed, with the licences that must go with it and the names of what is in it."""

    script: str
    notices: str
    versions: str


@cache  # it takes seconds
def bundle() -> Bundle:
    """The bundle of the installed vl-convert-python. Raises BadInput where there is none."""
    library = load_library("--format html")
    vega, vega_embed = library.get_vega_version(), library.get_vega_embed_version()
    vega_lite = library.get_vegalite_versions()[-1]  # in order: the bundle has the newest
    notices = file_text("notices.txt")
    return Bundle(
        library.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite),
        notices.format(vega=vega, vega_lite=vega_lite, vega_embed=vega_embed),
        f"Vega {vega}, Vega-Lite {vega_lite}, Vega-Embed {vega_embed}",
    )


# What the templates ask.


def _figure(value: float | None) -> str:
    """A figure as `--format json` writes it; null where there is none, or no number."""
    return json.dumps(value if value is not None and math.isfinite(value) else None)


@cache
def environment() -> jinja2.Environment:
    """The templates, which escape every text, also in JSON, and write out its control
    characters."""
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
        "explained": lambda doubts: [finding for _, finding in explain(doubts)],
        "figure": _figure,
        "kind": lambda block: type(block).__name__,
        "records": records_text,
        "runs": _runs,
        "size": size_text,
        "text": as_text,
    }
    env.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    env.tests["number_cell"] = lambda cell: isinstance(cell, Number)
    env.globals |= {"file": file_text, "MADE_BY": MADE_BY, "version": __version__}
    return env


def _runs(blocks: Iterable[Block]) -> Iterator[tuple[bool, list[Block]]]:
    """Blocks that follow each other, and whether they are charts."""
    for are_charts, run in groupby(blocks, key=lambda block: isinstance(block, Chart)):
        yield are_charts, list(run)


# A document as a sheet of the page: its sections are made and in their order.


@dataclass(frozen=True)
class Sheet:
    """A document as the templates draw it. `prefix` begins the anchor of each section, `level` is
    that of its heading; `draw`: puts a chart into the page, and returns the name of its place and
    what it shows."""

    document: Document
    folder: Folder
    prefix: str
    level: int
    sections: Sequence[Section]
    draw: Callable[[Chart], tuple[str, str]]

    @property
    def about(self) -> list[Section]:
        """The request and the machine."""
        facts = self.document.run, self.document.machine
        parts = zip(("asked", "machine"), ("Request", "Machine"), facts, strict=True)
        return [Section(name, title, (about,)) for name, title, about in parts if about.pairs]


METHOD: Final = "method"
"""The section of plan, proofs and rules, the last one; folded: few readers need it."""


def _has(kind: type, section: Section) -> bool:
    return any(isinstance(block, kind) for block in section.blocks)


def _made(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The blocks that say something, with their charts in the place of `Charts`, also in what is
    folded."""
    return tuple(
        replace(block, blocks=_made(block.blocks)) if isinstance(block, Folded) else block
        for block in with_charts(blocks)
        if not (isinstance(block, Prose) and not block.paragraphs)
    )


def _order(document: Document) -> list[Section]:
    """The main chart first, then the results, behind the first table the further findings; the
    method last, and folded."""
    made = [replace(part, blocks=_made(part.blocks)) for part in document.sections]
    sections = [part for part in made if part.blocks]
    main = next((part for part in sections if _has(Chart, part)), None)
    sections.sort(key=lambda it: (it.name == METHOD, it is not main, it.detail != "headline"))
    fold = "Plan, proofs and rules of these figures"
    ordered = [
        replace(part, blocks=(Folded(fold, part.blocks),)) if part.name == METHOD else part
        for part in sections
    ]
    places = (place for place, part in enumerate(ordered) if _has(Table, part))
    first = next(places, len(ordered) - 1) + 1
    further = tuple(finding.line for finding in document.findings[len(document.lead) :])
    doubts = Prose(tuple(doubt.line for doubt in document.doubts), "doubt")
    title = "Further results" if further else "Warnings"
    ordered[first:first] = section("findings", title, _made((Prose(further), doubts)))
    return ordered


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
    ordered = [_order(document) for document in documents]
    blocks = (block for sections in ordered for part in sections for block in unfolded(part.blocks))
    drawings = [block for block in blocks if isinstance(block, Chart)]
    looks = looks_of(drawings)
    charts: dict[str, Spec] = {}

    def draw(chart: Chart) -> tuple[str, str]:
        name = f"chart-{len(charts) + 1}"
        charts[name] = vega(chart, looks=looks)
        return name, charts[name]["description"]

    beside = [*folders, *[Folder()] * (len(documents) - len(folders))]
    runs = enumerate(zip(documents, beside, ordered, strict=True), 1)
    sheets = [
        Sheet(document, folder, f"run-{number}-" if many else "", 3 if many else 2, sections, draw)
        for number, (document, folder, sections) in runs
    ]
    library = library or bundle() if drawings else None
    scripts = [file_text("page.js")]
    if library is not None:
        scripts.insert(0, f"(()=>{{{library.script}\n}})();")
    template = environment().get_template("page.html")
    text = template.render(
        title=f"serve-bench: {len(sheets)} runs" if many else documents[0].title,
        library=library,
        scripts=[_closed(script) for script in scripts],
        policy=_policy(scripts),
        config=PAGE,
        charts=charts,  # which the sheets fill
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
