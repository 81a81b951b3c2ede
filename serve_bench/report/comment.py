"""A run as a comment on a pull request: a line of verdict, one table, all else folded away.

Rule: pure layout. A document is put in order, made harmless to Markdown, and kept below what a
comment holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.core.document import Block, Cell, Document, Facts, Folded, Prose, Table, cell_text
from serve_bench.report.columns import inline, markdown_table

MOST_CHARACTERS: Final = 65_536
"""Of a comment on GitHub, which answers a longer one with "body is too long (maximum is 65536
characters)" (quoted in github.com/danger/danger/issues/424)."""

MOST_COLUMNS: Final = 9
"""Of the table that stands open: a comment is about 100 characters wide."""

SUMMARY: Final = "How, and what doubts it"

LEFT_OUT_FIRST: Final = ("CPU by process", "remarks", "further tables", "formulas")
"""Kinds of a CommentPart that are left out of what is too long, in this order."""


@dataclass(frozen=True)
class CommentPart:
    """Lines of Markdown under the fold. `kind`: one of LEFT_OUT_FIRST, or empty for what stays."""

    lines: tuple[str, ...]
    kind: str = ""


def comment(
    found: Sequence[str],
    table: Sequence[str],
    parts: Sequence[CommentPart],
    where: str | None = None,
) -> str:
    """The comment as text that ends with a newline. `found`: the sentences that stand first, in
    bold; `table`: lines of Markdown, none where nothing was planned; `where`: the folder of the
    run, which is named where something had to be left out."""
    whole = _text(found, table, parts)
    gone: list[str] = []
    for kind in LEFT_OUT_FIRST:
        if len(whole) <= MOST_CHARACTERS:
            break
        if any(part.kind == kind for part in parts):
            gone.append(kind)
            kept = [part for part in parts if part.kind not in gone]
            whole = _text(found, table, (_gone(gone, where), *kept))
    return whole


def _text(found: Sequence[str], table: Sequence[str], parts: Sequence[CommentPart]) -> str:
    lines = [f"**{marked(' '.join(found))}**", "", *table, *([""] if table else [])]
    lines += [f"<details><summary>{SUMMARY}</summary>", ""]
    for part in parts:
        # A list ends with an empty line only where something else than a list follows.
        if part.lines and not part.lines[0].startswith("- ") and lines[-1]:
            lines.append("")
        lines += part.lines
    return "\n".join([*lines, *([""] if lines[-1] else []), "</details>"]) + "\n"


def _gone(kinds: Sequence[str], where: str | None) -> CommentPart:
    told = " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
    text = (
        f"left out here, since a comment holds {MOST_CHARACTERS:,} characters: {told}; `serve-bench"
        f" report {where or 'RUN'} --format html` shows them, and so does `--format json`"
    )
    return CommentPart((f"- {text}",))


# ------------------------------------------------------------------------------- of a document


def document_comment(document: Document) -> str:
    """A document as a comment: its headline open, its tables and remarks folded."""
    open_ = [one for one in document.sections if one.detail == "headline"]
    tables = [block for one in open_ for block in one.blocks if isinstance(block, Table)]
    lines = [line for table in tables for line in _table_lines(table, MOST_COLUMNS)]
    findings = [one.line for one in document.findings]
    parts = [bullets(findings[1:]), bullets(one.line for one in document.doubts)]
    parts += [part for table in tables for part in _remarks_of(table)]
    for section in open_:
        parts += _parts([one for one in section.blocks if not isinstance(one, Table)])
    for section in document.sections:
        if section.detail == "table":
            parts += _parts(section.blocks)
    both = (document.run.pairs, document.machine.pairs)
    parts.append(bullets("; ".join(map(": ".join, pairs)) for pairs in both if pairs))
    parts += map(records, document.records)
    return comment(findings[:1], lines, parts, document.where)


def _parts(blocks: Iterable[Block]) -> Iterator[CommentPart]:
    for block in blocks:
        match block:
            case Table():
                yield folded(block.caption, _table_lines(block)[2:])
                yield from _remarks_of(block)
            case Prose():
                yield bullets(block.paragraphs)
            case Facts():
                yield bullets(f"{name}: {text}" for name, text in block.pairs)
            case Folded():
                yield from _parts(block.blocks)


def _table_lines(table: Table, most: int | None = None) -> list[str]:
    """A table of Markdown. Several groups have a column, one stands above; the codes of doubts are
    the last column; of more columns than `most` those that can be spared go."""
    groups = list(dict.fromkeys(row.group for row in table.rows))
    named = len(groups) > 1
    codes = any(row.codes for row in table.rows)
    more = len(table.columns) + named + codes - (most or len(table.columns) + 2)
    spare = [at for at, column in enumerate(table.columns) if column.spare]
    gone = sorted(spare, key=lambda at: -table.columns[at].spare)[: max(0, more)]
    kept = [at for at in range(len(table.columns)) if at not in gone]
    heads = [f"{one.name} {one.unit}".strip() for one in (table.columns[at] for at in kept)]
    rows = [[_marked_cell(row.cells[at]) for at in kept] for row in table.rows]
    left = [at for at, old in enumerate(kept) if not table.columns[old].number]
    if codes:
        left.append(len(heads))
        heads.append("doubts")
        rows = [[*texts, "; ".join(row.codes)] for texts, row in zip(rows, table.rows, strict=True)]
    if named:
        left = [0, *(at + 1 for at in left)]
        heads.insert(0, "row")
        rows = [[row.group, *texts] for texts, row in zip(rows, table.rows, strict=True)]
    whole = table.caption if named or not any(groups) else f"{table.caption}; {groups[0]}"
    return [marked(whole), "", *markdown_table(heads, rows, left)]


def _marked_cell(cell: Cell) -> str:
    """A cell; what is a verdict against the run is bold."""
    bad = not isinstance(cell, str) and cell.tone == "bad"
    return f"**{cell_text(cell)}**" if bad else cell_text(cell)


def _remarks_of(table: Table) -> Iterator[CommentPart]:
    """What is doubted of its rows, under the name of each, then its notes."""
    alike = len({(row.group, cell_text(row.cells[0])) for row in table.rows}) < len(table.rows)
    named = [
        (row.about or row.group or ", ".join(map(cell_text, row.cells[: 1 + alike])), doubt.line)
        for row in table.rows
        for doubt in row.doubts
    ]
    yield remarks(named)
    yield bullets(table.notes)


# --------------------------------------------------------------------------------- its parts


def marked(text: str) -> str:
    """Running text in which nothing is taken for Markdown or HTML; one line."""
    return inline(text).replace("*", "\\*")


def bullets(texts: Iterable[str], kind: str = "") -> CommentPart:
    """A list, a line for each text."""
    return CommentPart(tuple(f"- {marked(text)}" for text in texts), kind)


def remarks(told: Iterable[tuple[str, str]]) -> CommentPart:
    """What is said of each row, as name and text: under the name, once."""
    by_name: dict[str, list[str]] = {}
    for name, text in told:
        by_name.setdefault(name, []).append(text)
    lines: list[str] = []
    for name, texts in by_name.items():
        lines += [f"- {marked(name)}", *(f"  - {marked(text)}" for text in texts)]
    return CommentPart(tuple(lines), "remarks")


def records(where: str | None) -> CommentPart:
    """Where the records are, if that is known."""
    return CommentPart(() if where is None else (f"- records: `{where}`",))


def folded(title: str, lines: Iterable[str], kind: str = "further tables") -> CommentPart:
    """A fold of its own; none where it would be empty. GitHub takes what is in it for Markdown only
    after an empty line."""
    every = tuple(lines)
    if not every:
        return CommentPart((), kind)
    opened = f"<details><summary>{inline(title)}</summary>"
    return CommentPart((opened, "", *every, "", "</details>", ""), kind)
