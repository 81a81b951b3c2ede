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
"""What a colour says, never alone: `good` and `bad` are verdicts, `doubt` a warning, `quiet` what
is beside the point."""


@dataclass(frozen=True)
class Finding:
    """A sentence that a run supports: a verdict, a doubt, a hint, a failure. `code`: its kind in a
    word ("few-windows"), of which the text may be empty; `hint`: what to do; `about`: the part of a
    row that it is about ("launch 2")."""

    text: str
    code: str = ""
    tone: Tone = "plain"
    hint: str = ""
    about: str = ""

    @property
    def line(self) -> str:
        """`launch 2: few-windows: the text (the hint)`."""
        named = ": ".join(filter(None, (self.about, self.code, self.text)))
        return f"{named} ({self.hint})" if self.hint else named


def sentences(texts: Iterable[str], tone: Tone = "plain") -> tuple[Finding, ...]:
    """Findings that are plain sentences, each with one full stop."""
    return tuple(Finding(f"{text.rstrip('.')}.", tone=tone) for text in texts)


def statement(text: str, names: Iterable[str] = ()) -> str:
    """The text, with a capital where it does not begin with one of the names."""
    named = any(name and text.startswith(name) for name in names)
    return text if named else f"{text[:1].upper()}{text[1:]}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def explain(table: Table) -> Iterator[tuple[str, Finding]]:
    """The warnings of rows, each code once: what it says of the first row that has it, and how many
    have it. A group of unlike lines, such as the metrics of one row, is one row, whose sides have
    warnings of their own."""
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
    """A cell in one line, with what stands below it in brackets."""
    return f"{cell.text} ({', '.join(cell.below)})" if cell.below else cell.text


@dataclass(frozen=True)
class Column:
    """Of a table. `unit` stands under the name; numbers are set to the right. A terminal shows a
    `detail` with --verbose alone."""

    name: str
    unit: str = ""
    number: bool = True
    detail: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.name} {self.unit}".strip()


@dataclass(frozen=True)
class TableRow:
    """Of a table. `doubts` are shown by their codes in the row, and explained once below the table;
    `group` begins a new part of the table with a heading where it differs from the row before."""

    cells: tuple[Cell, ...]
    doubts: tuple[Finding, ...] = ()
    group: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """`errors (launch 2, launch 3)`: its doubts where there is no room for sentences."""
        parts: dict[str, dict[str, None]] = {doubt.code: {} for doubt in self.doubts if doubt.code}
        for doubt in self.doubts:
            if doubt.code and doubt.about:
                parts[doubt.code][doubt.about] = None
        return tuple(f"{code} ({', '.join(of)})" if of else code for code, of in parts.items())


@dataclass(frozen=True)
class Table:
    """Figures by row and column. `caption` names it; `notes` say how the figures were got.
    `unlike`: figures of a column have several units, and no order."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    unlike: bool = False

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


def unfolded(blocks: Iterable[Block]) -> Iterator[Block]:
    """All blocks in their order, those within others in the place of these."""
    for block in blocks:
        yield from unfolded(block.blocks) if isinstance(block, Folded | Later) else (block,)


Detail: TypeAlias = Literal["headline", "table", "further"]
"""How deep a section lies. A terminal shows the tables (with --verbose everything), a comment the
headline and folded tables, a page everything."""


@dataclass(frozen=True)
class Section:
    """A part of a document under a heading; without a block it is not shown. `name`: its anchor,
    lower-case words with hyphens."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    detail: Detail = "further"


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows beside the run. `where`: its folder, as it is shown; `published`: figures
    of others; `exclude_connect`: of press, without the time to connect; `comparing`: of sides."""

    where: str | None = None
    published: bool = False
    exclude_connect: bool = False
    comparing: Comparing | None = None


@dataclass(frozen=True)
class Document:
    """What a run says. `findings`: about three sentences that the figures support, the headline
    first; `doubts`: warnings of the whole run. `records`: the folders of its records, each as it
    can be copied. `about`: makes the request and the machine; `tiles`: makes what is seen first, a
    group for each row."""

    title: str
    command: str
    findings: tuple[Finding, ...]
    doubts: tuple[Finding, ...]
    sections: tuple[Section, ...]
    records: tuple[str, ...] = ()
    about: Callable[[], tuple[Facts, ...]] = tuple
    tiles: Callable[[], Table] = lambda: Table("", (), ())

    @property
    def lead(self) -> tuple[Finding, ...]:
        """What went wrong, and the first sentence of what was found."""
        bad = list(takewhile(lambda finding: finding.tone == "bad", self.findings))
        return self.findings[: len(bad) + 1]

    @property
    def headline(self) -> str:
        """The lead as one text."""
        return " ".join(finding.line for finding in self.lead)
