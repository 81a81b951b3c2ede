"""A document as a comment on a pull request: a line of verdict, its tables, all else folded away.

Rule: pure layout. No text is taken for Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from serve_bench.view.document import (
    Block,
    Cell,
    Document,
    Facts,
    Folded,
    Prose,
    Table,
    as_text,
    cell_text,
    explain,
)

SUMMARY: Final = "Method and warnings"


def comment(document: Document) -> str:
    """The comment as text that ends with a newline: the headline in bold, its tables, and under the
    fold the rest."""
    headlines = [one for one in document.sections if one.detail == "headline"]
    tables = [block for one in headlines for block in one.blocks if isinstance(block, Table)]
    lines = [f"**{escaped(document.headline)}**", ""]
    for table in tables:
        lines += [*_table_lines(table), ""]  # a line right behind a table would be a row of it
    lines += [f"<details><summary>{SUMMARY}</summary>", ""]
    lines += _items(finding.line for finding in (*document.findings[1:], *document.doubts))
    for table in tables:
        lines += _remarks(table)
    for section in headlines:
        lines += _folded_lines(one for one in section.blocks if not isinstance(one, Table))
    for section in document.sections:
        if section.detail == "table":
            lines += _folded_lines(section.blocks)
    about = [one.pairs for one in (document.run, document.machine) if one.pairs]
    lines += _items("; ".join(map(": ".join, pairs)) for pairs in about)
    lines += [f"- records: `{folder}`" for folder in document.records]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _folded_lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Table():
                # A list ends at an empty line. GitHub takes what is in a fold for Markdown only
                # after an empty line.
                yield from ("", f"<details><summary>{inline(block.caption)}</summary>", "")
                yield from (*_table_lines(block)[2:], "", "</details>", "")
                yield from _remarks(block)
            case Prose():
                yield from _items(block.paragraphs)
            case Facts():
                yield from _items(f"{name}: {text}" for name, text in block.pairs)
            case Folded():
                yield from _folded_lines(block.blocks)


def _table_lines(table: Table) -> list[str]:
    """A table of Markdown. Several groups have a column, one stands above; the codes of doubts are
    the last column."""
    groups = list(dict.fromkeys(row.group for row in table.rows))
    named = len(groups) > 1
    codes = any(row.codes for row in table.rows)
    heads = [
        *(["row"] if named else []),
        *(column.full_name for column in table.columns),
        *(["doubts"] if codes else []),
    ]
    words = [
        *([True] if named else []),
        *(not column.number for column in table.columns),
        *([True] if codes else []),
    ]
    rows = [
        [
            *([row.group] if named else []),
            *map(_cell, row.cells),
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


def _remarks(table: Table) -> Iterator[str]:
    """The warnings of its rows, each kind once, then its notes."""
    doubts = explain([row.doubts for row in table.rows])
    yield from _items((*(doubt.line for _, doubt in doubts), *table.notes))


def _items(texts: Iterable[str]) -> Iterator[str]:
    return (f"- {escaped(text)}" for text in texts)


def escaped(text: str) -> str:
    """Running text in which nothing is taken for Markdown or HTML; one line."""
    return inline(text).replace("*", "\\*")


def inline(text: str) -> str:
    """One line of Markdown in which no text is taken for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")


def _markdown_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]
) -> list[str]:
    marks = [":--" if at in left else "--:" for at in range(len(names))]
    lines = [[inline(text).replace("|", "\\|") for text in row] for row in (names, marks, *rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
