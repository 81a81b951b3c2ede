"""What a run says: sections of prose, figures, tables, charts and flamegraphs.

Rule: a part says what it means and never how it looks. A form in report/ lays it out and escapes
every text. Each kind of run is a list of sections, and looks like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, takewhile
from typing import ClassVar, Literal, TypeAlias

from serve_bench.analysis.comparing.model import Comparing
from serve_bench.view.charts import Chart as Chart

Tone: TypeAlias = Literal["plain", "good", "bad", "doubt", "quiet"]
"""What a colour means, never by itself: `good` and `bad` are verdicts, `doubt` a warning, `quiet`
what matters less."""


@dataclass(frozen=True)
class Finding:
    """A sentence that a run supports: a verdict, a doubt, a hint, a failure."""

    text: str
    code: str = ""  # its kind in a word ("few-windows"), of which the text may be empty
    tone: Tone = "plain"
    hint: str = ""  # what to do
    about: str = ""  # the part of a row that it is about ("launch 2")

    @property
    def line(self) -> str:
        """`launch 2: few-windows: the text (the hint)`."""
        named = ": ".join(filter(None, (self.about, self.code, self.text)))
        return f"{named} ({self.hint})" if self.hint else named


def sentences(texts: Iterable[str], tone: Tone = "plain") -> tuple[Finding, ...]:
    """Return findings that are plain sentences, each with one full stop."""
    return tuple(Finding(f"{text.rstrip('.')}.", tone=tone) for text in texts)


def statement(text: str, names: Iterable[str] = ()) -> str:
    """Begin the text with a capital, unless it begins with one of the names."""
    named = any(name and text.startswith(name) for name in names)
    return text if named else f"{text[:1].upper()}{text[1:]}"


def join_words(words: Sequence[str]) -> str:
    """Join words as `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def explain(table: Table) -> Iterator[tuple[str, Finding]]:
    """Yield the warnings of rows, each code once, as the first row has it, with a count of rows.

    A group of unlike lines, such as metrics of a row, is one row, with warnings of both sides."""
    rows: dict[tuple[str, str], list[Finding]] = {}
    parts = [part for _, part in table.groups()] if table.unlike else [[row] for row in table.rows]
    for part in parts:
        seen = (finding for row in part for finding in row.doubts)
        about = {(doubt.code or doubt.text, doubt.about * table.unlike): doubt for doubt in seen}
        for kind, finding in about.items():
            rows.setdefault(kind, []).append(finding)
    for first, *others in rows.values():
        count = 1 + len(others)
        if first.text or count == len(parts):
            several = f" ({count} of {len(parts)} rows)" if others and first.code else ""
            yield first.code, replace(first, code=f"{first.code}{several}")


@dataclass(frozen=True)
class Number:
    """A measured number as a person reads it ("5,123 ± 41"), and its value, if there is one."""

    text: str
    value: float | None
    tone: Tone = "plain"
    interval: bool = False  # whether its 95 % interval is in the text
    below: ClassVar[tuple[str, ...]] = ()
    link: ClassVar[str] = ""


@dataclass(frozen=True)
class Text:
    """Words of a table; `below` are in small print under them; `link`: a URL that a page opens."""

    text: str
    tone: Tone = "plain"
    below: tuple[str, ...] = ()
    link: str = ""


Cell: TypeAlias = Number | Text


def cell_text(cell: Cell) -> str:
    """Render a cell in one line, with what stands below it in brackets."""
    return f"{cell.text} ({', '.join(cell.below)})" if cell.below else cell.text


@dataclass(frozen=True)
class Column:
    """A column of a table; its unit stands under the name."""

    name: str
    unit: str = ""
    number: bool = True  # flush right
    detail: bool = False  # a terminal shows it only with --verbose

    @property
    def full_name(self) -> str:
        return f"{self.name} {self.unit}".strip()


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    cells: tuple[Cell, ...]
    doubts: tuple[Finding, ...] = ()  # codes in the row, explained once below the table
    group: str = ""  # begins a new part with a heading where it differs from the row before

    @property
    def codes(self) -> tuple[str, ...]:
        """`errors (launch 2, launch 3)`: its doubts where there is no room for sentences."""
        parts: dict[str, dict[str, None]] = {doubt.code: {} for doubt in self.doubts if doubt.code}
        for doubt in self.doubts:
            if doubt.code and doubt.about:
                parts[doubt.code][doubt.about] = None
        return tuple(
            f"{code} ({', '.join(seen)})" if seen else code for code, seen in parts.items()
        )


@dataclass(frozen=True)
class Table:
    """Figures by row and column."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()  # how the figures were measured
    unlike: bool = False  # figures of a column have several units, and no order

    def groups(self) -> Iterator[tuple[str, list[TableRow]]]:
        for group, rows in groupby(self.rows, key=lambda row: row.group):
            yield group, list(rows)


@dataclass(frozen=True)
class Prose:
    """Paragraphs; of `listed` ones each is an item of a list."""

    paragraphs: tuple[str, ...]
    tone: Tone = "plain"
    listed: bool = False


@dataclass(frozen=True)
class Facts:
    """Names with what they stand for: a definition list."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Text as it was printed, in a fixed pitch: lines of a log."""

    text: str


@dataclass(frozen=True)
class Flamegraph:
    """A flamegraph of raw `stacks`, a file in the folder of the run."""

    title: str
    stacks: str


@dataclass(frozen=True)
class Folded:
    """What few readers want, under a line that opens it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Later:
    """Blocks that are made when a form shows them: charts, and what few readers need."""

    make: Callable[[], Iterable[Block]]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(self.make())


Block: TypeAlias = Table | Chart | Later | Prose | Facts | Code | Flamegraph | Folded


def unfold(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield all blocks in their order, those within others in the place of these."""
    for block in blocks:
        yield from unfold(block.blocks) if isinstance(block, Folded | Later) else (block,)


Detail: TypeAlias = Literal["headline", "table", "further"]
"""How deep a section lies. A terminal shows the tables (with --verbose everything), a comment the
headline and folded tables, a page everything."""


@dataclass(frozen=True)
class Section:
    """A part of a document under a heading; without a block it is not shown."""

    name: str  # its anchor, lower-case words with hyphens
    title: str
    blocks: tuple[Block, ...]
    detail: Detail = "further"


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows beside the run."""

    where: str | None = None  # its folder, as it is shown
    published: bool = False  # with figures of others
    exclude_connect: bool = False  # of press, without the time to connect
    comparing: Comparing | None = None  # of sides


@dataclass(frozen=True)
class Document:
    """What a run says."""

    title: str
    command: str
    findings: tuple[Finding, ...]  # sentences that figures support, the headline first
    doubts: tuple[Finding, ...]  # warnings of the whole run
    sections: tuple[Section, ...]
    records: tuple[str, ...] = ()  # the folders of its records, each as it can be copied
    about: Callable[[], tuple[Facts, ...]] = tuple  # makes the request and the machine
    tiles: Callable[[], Table] = lambda: Table("", (), ())  # seen first, a group for each row

    @property
    def lead(self) -> tuple[Finding, ...]:
        """What went wrong, and the first sentence of the results."""
        bad = list(takewhile(lambda finding: finding.tone == "bad", self.findings))
        return self.findings[: len(bad) + 1]

    @property
    def headline(self) -> str:
        """The lead as one text."""
        return " ".join(finding.line for finding in self.lead)
