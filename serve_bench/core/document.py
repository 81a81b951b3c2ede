"""What a run says: sections of prose, figures, tables, charts and pictures.

Rule: a part says what it means and never how it looks. A form in report/ lays it out and escapes
every text. Each kind of run is a list of sections, and looks like the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "good", "bad", "doubt", "quiet"]
"""What a colour says, never alone: `good` and `bad` are verdicts, `doubt` a warning, `quiet` what
is beside the point."""


@dataclass(frozen=True)
class Number:
    """A measured number as it is shown, with the one that `--format json` has: `text` is what a
    person reads ("5,123 ± 41"), `value` the figure itself; None where nothing was measured."""

    text: str
    value: float | None
    tone: Tone = "plain"


@dataclass(frozen=True)
class Text:
    """Words of a table, or of a line; `below` stands under them in small print."""

    text: str
    tone: Tone = "plain"
    below: tuple[str, ...] = ()


Cell: TypeAlias = Number | Text | str


def cell_text(cell: Cell) -> str:
    """A cell in one line, with what stands below it in brackets."""
    if isinstance(cell, str):
        return cell
    below = cell.below if isinstance(cell, Text) else ()
    return f"{cell.text} ({', '.join(below)})" if below else cell.text


@dataclass(frozen=True)
class Column:
    """Of a table. `unit` stands under the name; numbers are set to the right; a `spare` column goes
    first where a table is too wide."""

    name: str
    unit: str = ""
    number: bool = True
    spare: bool = False


@dataclass(frozen=True)
class Row:
    """Of a table. `doubts` stand in a line of their own under it, beside the figures they doubt;
    `codes` name them where there is no room for sentences; `group` begins a new part of the table
    with a heading where it differs from the row before; `about` is what the doubts are about, if
    not the group or the row's first cell."""

    cells: tuple[Cell, ...]
    doubts: tuple[str, ...] = ()
    group: str = ""
    codes: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True)
class Table:
    """Figures by row and column. `caption` names it; `notes` say how the figures were got."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart. `spec`: Vega-Lite without sizes, colours of the frame, or fonts, which the page sets
    for light, dark and print; its data stand inside it (`data.values`). `words`: what it shows, for
    whoever cannot see it. `caption` stands under it."""

    title: str
    spec: Mapping[str, Any]
    words: str
    caption: str = ""


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
    """Text as it was typed or printed, in a fixed pitch: a command, a formula, lines of a log."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A file of the run, such as a flamegraph (SVG): embedded where it is small enough and there,
    otherwise linked. `path` is relative to the folder of the run."""

    title: str
    path: str
    words: str


@dataclass(frozen=True)
class Folded:
    """What few readers want, under a line that opens it."""

    title: str
    blocks: tuple[Block, ...]


Block: TypeAlias = Table | Chart | Prose | Facts | Code | Picture | Folded


Detail: TypeAlias = Literal["headline", "table", "further", "method"]
"""How deep a section lies. A form shows all down to the depth that suits it: a terminal the tables,
a comment the headline open and the tables folded, a page everything."""


@dataclass(frozen=True)
class Section:
    """A part of a document under a heading. `name` is its anchor: lower-case words with hyphens."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    detail: Detail = "further"


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows beside the run. `where`: the folder of the run, as it is shown;
    `published`: published figures beside the measured ones; `exclude_connect`: of press, figures
    without the time to connect beside."""

    where: str | None = None
    published: bool = False
    exclude_connect: bool = False


@dataclass(frozen=True)
class Document:
    """What a run says. `run`: what was asked for; `machine`: where; `findings`: about three
    sentences that the figures support, the first of which is the headline; `doubts`: warnings that
    hold for the whole run. `where`: folder of the run, as it is shown; `records`: the folders of
    all its records, each as it can be copied."""

    title: str
    command: str
    run: Facts
    machine: Facts
    findings: tuple[str, ...]
    doubts: tuple[str, ...]
    sections: tuple[Section, ...]
    where: str | None = None
    argv: tuple[str, ...] = field(default=())
    records: tuple[str, ...] = ()
