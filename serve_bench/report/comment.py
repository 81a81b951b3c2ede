"""A document as a comment on a pull request: a line of verdict, one table, all else folded away.

Rule: pure layout. No text is taken for Markdown or HTML, and the whole stays below what a comment
holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from serve_bench.core.document import (
    Block,
    Cell,
    Document,
    Facts,
    Folded,
    Prose,
    Table,
    as_text,
    cell_text,
)

MOST_CHARACTERS: Final = 65_536
"""Of a comment on GitHub, which answers a longer one with "body is too long (maximum is 65536
characters)" (quoted in github.com/danger/danger/issues/424)."""

MOST_COLUMNS: Final = 9
"""Of the table that stands open: a comment is about 100 characters wide."""

SUMMARY: Final = "Method and warnings"

PartKind: TypeAlias = Literal["", "remarks", "further tables"]

LEFT_OUT_FIRST: Final[tuple[PartKind, ...]] = ("remarks", "further tables")
"""Kinds of parts that are left out of what is too long, in this order."""


@dataclass(frozen=True)
class CommentPart:
    """Lines of Markdown under the fold. `kind`: empty for what always stays."""

    lines: Sequence[str]
    kind: PartKind = ""


def comment(document: Document, most: int = MOST_CHARACTERS) -> str:
    """The comment as text that ends with a newline: the headline in bold, its tables, and under the
    fold the rest. What is longer than `most` characters is left out, and a line names it."""
    open_ = [one for one in document.sections if one.detail == "headline"]
    tables = [block for one in open_ for block in one.blocks if isinstance(block, Table)]
    head = [f"**{escaped(' '.join(one.line for one in document.findings[:1]))}**", ""]
    for table in tables:  # a line right behind a table would be a row of it
        head += [*([""] if head[-1] else []), *_table_lines(table, MOST_COLUMNS)]
    parts = [
        _list(one.line for one in document.findings[1:]),
        _list(one.line for one in document.doubts),
        *(part for table in tables for part in _remarks(table)),
    ]
    for section in open_:
        parts += _parts(one for one in section.blocks if not isinstance(one, Table))
    for section in document.sections:
        if section.detail == "table":
            parts += _parts(section.blocks)
    about = [one.pairs for one in (document.run, document.machine) if one.pairs]
    parts.append(_list("; ".join(map(": ".join, pairs)) for pairs in about))
    parts.append(CommentPart([f"- records: `{folder}`" for folder in document.records]))
    whole = _text(head, parts)
    gone: list[PartKind] = []
    for kind in LEFT_OUT_FIRST:
        if len(whole) > most and any(part.kind == kind for part in parts):
            gone.append(kind)
            parts = [part for part in parts if part.kind != kind]
            whole = _text(head, [_left_out(gone), *parts])
    return whole


def _text(head: Sequence[str], parts: Iterable[CommentPart]) -> str:
    lines = [*head, *([""] if head[-1] else [])]
    lines += [f"<details><summary>{SUMMARY}</summary>", ""]
    for part in parts:
        # A list ends with an empty line only where something else than a list follows.
        if part.lines and not part.lines[0].startswith("- ") and lines[-1]:
            lines.append("")
        lines += part.lines
    return "\n".join([*lines, *([""] if lines[-1] else []), "</details>"]) + "\n"


def _left_out(kinds: Sequence[str]) -> CommentPart:
    text = (
        f"left out here, since a comment holds {MOST_CHARACTERS:,} characters: "
        f"{' and '.join(kinds)}; `--format html` shows them, and so does `--format json`"
    )
    return CommentPart([f"- {text}"])


def _parts(blocks: Iterable[Block]) -> Iterator[CommentPart]:
    for block in blocks:
        match block:
            case Table():
                yield _fold(block)
                yield from _remarks(block)
            case Prose():
                yield _list(block.paragraphs)
            case Facts():
                yield _list(f"{name}: {text}" for name, text in block.pairs)
            case Folded():
                yield from _parts(block.blocks)


def _table_lines(table: Table, most: int | None = None) -> list[str]:
    """A table of Markdown. Several groups have a column, one stands above; the codes of doubts are
    the last column; of more columns than `most` those that can be spared go."""
    groups = list(dict.fromkeys(row.group for row in table.rows))
    named = len(groups) > 1
    codes = any(row.codes for row in table.rows)
    more = len(table.columns) + named + codes - (most or len(table.columns) + 2)
    gone = table.spare[: max(0, more)]
    columns = [
        (at, one) for at, one in enumerate(table.columns) if at not in gone and not one.drawn
    ]
    heads = [
        *(["row"] if named else []),
        *(column.full_name for _, column in columns),
        *(["doubts"] if codes else []),
    ]
    words = [
        *([True] if named else []),
        *(not column.number for _, column in columns),
        *([True] if codes else []),
    ]
    rows = [
        [
            *([row.group] if named else []),
            *(_cell(row.cells[at]) for at, _ in columns),
            *(["; ".join(row.codes)] if codes else []),
        ]
        for row in table.rows
    ]
    whole = table.caption if named or not any(groups) else f"{table.caption}; {groups[0]}"
    left = [at for at, flush_left in enumerate(words) if flush_left]
    return [escaped(whole), "", *_markdown_table(heads, rows, left)]


def _cell(cell: Cell) -> str:
    """A cell; what is a verdict against the run is bold."""
    return f"**{cell_text(cell)}**" if as_text(cell).tone == "bad" else cell_text(cell)


def _fold(table: Table) -> CommentPart:
    """A table in a fold of its own. GitHub takes what is in it for Markdown only after an empty
    line."""
    opened = f"<details><summary>{inline(table.caption)}</summary>"
    lines = [opened, "", *_table_lines(table)[2:], "", "</details>", ""]
    return CommentPart(lines, "further tables")


def _remarks(table: Table) -> Iterator[CommentPart]:
    """What is doubted of its rows, under the name of each, then its notes."""
    alike = len({(row.group, cell_text(row.cells[0])) for row in table.rows}) < len(table.rows)
    remarks: dict[str, list[str]] = {}
    for row in table.rows:
        name = row.about or row.group or ", ".join(map(cell_text, row.cells[: 1 + alike]))
        if row.doubts:
            remarks.setdefault(name, []).extend(doubt.line for doubt in row.doubts)
    lines: list[str] = []
    for name, texts in remarks.items():
        lines += [f"- {escaped(name)}", *(f"  - {escaped(text)}" for text in texts)]
    yield CommentPart(lines, "remarks")
    yield _list(table.notes)


def _list(texts: Iterable[str]) -> CommentPart:
    return CommentPart([f"- {escaped(text)}" for text in texts])


def escaped(text: str) -> str:
    """Running text in which nothing is taken for Markdown or HTML; one line."""
    return inline(text).replace("*", "\\*")


def inline(text: str) -> str:
    """One line of Markdown in which no text is taken for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


def _markdown_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]
) -> list[str]:
    """A table of Markdown; columns in `left` are flush left, others right."""
    marks = [":--" if at in left else "--:" for at in range(len(names))]
    lines = [[inline(text).replace("|", "\\|") for text in row] for row in (names, marks, *rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
