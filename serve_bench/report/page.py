"""A document, or several, as one HTML page that needs nothing else.

Rule: the page knows no kind of run and decides nothing about figures. templates/page.html and
blocks.html lay it out, style.css and page.js are its style and script. jinja2 escapes every text.
The page asks the network for nothing, and its policy forbids it; only the script whose hash the
policy names can run, whatever a text of a run holds.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from itertools import zip_longest
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serve_bench import __version__
from serve_bench.analysis.stacks import parse_raw
from serve_bench.core.errors import BadInput, visible
from serve_bench.report.drawing import draw
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.theme import DEFINED, list_looks, list_series
from serve_bench.view.document import (
    Block,
    Chart,
    Document,
    Flamegraph,
    Folded,
    Later,
    Prose,
    Section,
    explain,
    unfold,
)

if TYPE_CHECKING:
    import jinja2

MADE_BY: Final = '<meta name="generator" content="serve-bench '
"""Stands near the beginning of every page: what has it may be replaced by a newer page."""

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"

# Files of a run in its page: its flamegraphs, and its records where they are not too large.

MOST_RECORDS: Final = 2_000_000
"""Bytes of records that a page holds: people mail it, and attach it to issues."""


@dataclass(frozen=True)
class Folder:
    """The files of a run that a page holds."""

    records: bytes | None = None  # None where they are too large for a page or cannot be read
    size: int = 0  # bytes of the records
    flamegraphs: Mapping[str, str] = field(default_factory=dict)  # SVG by the paths of their stacks


def folder_of(home: Path, document: Document, records: str) -> Folder:
    """Read the files of a run in `home`. `records`: their file there."""
    drawn: dict[str, str] = {}
    for block in unfold(block for part in document.sections for block in part.blocks):
        if isinstance(block, Flamegraph):
            _, content = _read(home, block.stacks)
            with suppress(BadInput):
                stacks = parse_raw((content or b"").decode("utf-8", "replace"), block.stacks)
                drawn |= {block.stacks: flame_svg(stacks, "")} if stacks else {}
    size, content = _read(home, records, MOST_RECORDS)
    return Folder(content, size, drawn)


def _read(home: Path, path: str, most: float = inf) -> tuple[int, bytes | None]:
    """Return the size of a file in the folder of a run, and its content if below `most` bytes.

    Nothing where it cannot be read, or lies elsewhere: no other file is ever read, since records
    may come from others."""
    file = home / path
    with suppress(OSError, RuntimeError, ValueError):  # links in a ring, a name of no file
        if file.resolve().is_relative_to(home.resolve()) and file.is_file():
            size = file.stat().st_size
            return size, file.read_bytes() if size < most else None
    return 0, None


def _file_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8").strip()


@cache
def environment() -> jinja2.Environment:
    """Load the templates, which escape every text, and write out its control characters."""
    import jinja2  # slow: other forms do without

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    env.filters |= {
        "explained": lambda table: [finding for _, finding in explain(table)],
        # As `--format json` writes it; null where there is none, or no number.
        "figure": lambda value: json.dumps(None if value is None or not isfinite(value) else value),
        "kind": lambda block: type(block).__name__,
        # The same JSON without a `<`, which could end a script block. It occurs in strings alone.
        "records": lambda text: text.decode("utf-8", "replace").replace("<", "\\u003c"),
    }
    env.globals |= {
        **{"draw": draw, "list_series": list_series, "shapes": DEFINED},
        **{"style": _file_text("style.css"), "MADE_BY": MADE_BY, "version": __version__},
    }
    return env


BESIDE: Final = 2
"""Charts that stand first, beside each other: with more the results would be off the screen."""


def make_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks that say something, with what was to be made later in its place."""
    for block in blocks:
        if isinstance(block, Later):
            yield from make_blocks(block.blocks)
        elif isinstance(block, Folded):
            yield replace(block, blocks=tuple(make_blocks(block.blocks)))
        elif not isinstance(block, Prose) or block.paragraphs:
            yield block


def _order(document: Document) -> list[Section]:
    """List the sections: main charts, results, further findings, the remaining ones, the method."""
    further = tuple(finding.line for finding in document.findings[len(document.lead) :])
    doubts = tuple(doubt.line for doubt in document.doubts)
    title = "Further results" if further else "Warnings"
    findings = Section("findings", title, (Prose(further), Prose(doubts, "doubt")))
    parts = (*document.sections, findings)
    made = [replace(part, blocks=tuple(make_blocks(part.blocks))) for part in parts]
    main = next((part for part in made if any(isinstance(of, Chart) for of in part.blocks)), None)
    first: list[Section] = []
    if main is not None:
        charts = tuple(block for block in main.blocks if isinstance(block, Chart))[:BESIDE]
        first = [replace(main, blocks=charts)]
        rest = tuple(block for block in main.blocks if block not in charts)
        name, title = f"{main.name}-more", f"{main.title}, continued"
        made[made.index(main)] = Section(name, title, rest, main.detail)

    def rank(part: Section) -> int:
        return {"findings": 2, "method": 4}.get(part.name, 1 if part.detail == "headline" else 3)

    return [*first, *sorted((part for part in made if part.blocks), key=rank)]


def html_text(documents: Sequence[Document], folders: Sequence[Folder] = ()) -> str:
    """Render the whole page, for one document or several, one after the other.

    `folders`: the folder of each run, if it has one."""
    many = len(documents) > 1
    ordered = [_order(document) for document in documents]
    blocks = unfold(block for parts in ordered for part in parts for block in part.blocks)
    looks = list_looks(block for block in blocks if isinstance(block, Chart))
    # `prefix` begins the anchor of each section, `level` is that of its heading.
    sheets = [
        {
            **{"document": document, "folder": folder or Folder(), "sections": parts},
            **{"prefix": f"run-{number}-" if many else "", "level": 3 if many else 2},
            "looks": looks,
        }
        for number, (document, folder, parts) in enumerate(
            zip_longest(documents, folders, ordered), 1
        )
    ]
    script = _file_text("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    title = f"serve-bench: {len(sheets)} runs" if many else documents[0].title
    template = environment().get_template("page.html")
    text = template.render(title=title, digest=digest, script=script, sheets=sheets)
    return text.encode("utf-8", "replace").decode("utf-8")  # half a pair of surrogates, in a name
