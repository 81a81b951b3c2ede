"""A document as a comment on a pull request: a line of verdict, its tables, all else folded away.

Rule: pure layout. No text is taken for Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from serve_bench.view.document import (
    Block,
    Cell,
    Document,
    Facts,
    Folded,
    Prose,
    Table,
    cell_text,
    explain,
)


def comment(document: Document) -> str:
    """Render a document as a comment: the headline in bold, its tables, and folded all else."""
    open_ = [part for part in document.sections if part.detail == "headline"]
    tables = [block for part in open_ for block in part.blocks if isinstance(block, Table)]
    lines = [f"**{escape(document.headline)}**", ""]
    for table in tables:
        lines += _table_lines(table)
    lines += ["<details><summary>Method and warnings</summary>", ""]
    lines += _items(finding.line for finding in (*document.findings[1:], *document.doubts))
    for table in tables:
        lines += _remarks(table)
    folded = [*open_, *(part for part in document.sections if part.detail == "table")]
    lines += _folded_lines(block for part in folded for block in part.blocks if block not in tables)
    lines += _items("; ".join(map(": ".join, facts.pairs)) for facts in document.about())
    lines += [f"- records: `{folder}`" for folder in document.records]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _folded_lines(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Table():
                yield from ("", *_table_lines(block), *_remarks(block))
            case Prose():
                yield from _items(block.paragraphs)
            case Facts():
                yield from _items(f"{name}: {text}" for name, text in block.pairs)
            case Folded():
                yield from _folded_lines(block.blocks)


def _table_lines(table: Table) -> list[str]:
    """Render a table as Markdown between empty lines: its caption, heads, marks, rows.

    One group is above, several have a column; codes of doubts come last. Words are flush left."""
    rows, groups = table.rows, list(dict.fromkeys(row.group for row in table.rows))
    columns: list[tuple[str, ...]] = []
    for index, column in enumerate(table.columns):
        cells = (_cell(row.cells[index]) for row in rows)
        columns.append((column.full_name, "--:" if column.number else ":--", *cells))
    if len(groups) > 1:
        columns.insert(0, ("row", ":--", *(row.group for row in rows)))
    if any(row.codes for row in rows):
        columns.append(("doubts", ":--", *("; ".join(row.codes) for row in rows)))
    caption = "; ".join(filter(None, [table.caption, *(groups if len(groups) == 1 else ())]))
    texts = ([inline(text).replace("|", "\\|") for text in column] for column in columns)
    lines = (f"| {' | '.join(line)} |" for line in zip(*texts, strict=True))
    return [escape(caption), "", *lines, ""]


def _cell(cell: Cell) -> str:
    """Render a cell; what is a verdict against the run is bold."""
    return f"**{cell_text(cell)}**" if cell.tone == "bad" else cell_text(cell)


def _remarks(table: Table) -> Iterator[str]:
    """Yield the warnings of a table's rows, each kind once, then its notes."""
    yield from _items((*(doubt.line for _, doubt in explain(table)), *table.notes))


def _items(texts: Iterable[str]) -> Iterator[str]:
    return (f"- {escape(text)}" for text in texts)


def escape(text: str) -> str:
    """Return running text in one line, in which nothing is taken for Markdown or HTML."""
    return inline(text).replace("*", "\\*")


def inline(text: str) -> str:
    """Return one line of Markdown in which no text is taken for HTML."""
    return " ".join(text.split()).replace("<", "&lt;")
