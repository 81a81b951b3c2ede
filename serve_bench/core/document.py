"""What an HTML page is made of: sections of prose, figures, tables, charts and pictures.

Rule: whoever fills a part says what it means and never how it looks; report/html/frame.py lays it
out and escapes every text, report/html/charts.py knows the charts. So each kind of run is a list of
sections, and looks like the others.
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


@dataclass(frozen=True)
class Column:
    """Of a table. `unit` stands under the name; numbers are set to the right."""

    name: str
    unit: str = ""
    number: bool = True


@dataclass(frozen=True)
class Row:
    """Of a table. `doubts` stand in a line of their own under it, beside the figures they doubt;
    `group` begins a new part of the table with a heading where it differs from the row before."""

    cells: tuple[Cell, ...]
    doubts: tuple[str, ...] = ()
    group: str = ""


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


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading. `name` is its anchor: lower-case words with hyphens."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """The page of a run. `asked`: what was asked for; `machine`: where; `found`: about three
    sentences that the figures support, the first of which is the headline; `doubts`: warnings that
    hold for the whole run. `where`: folder of the run, as it is shown."""

    title: str
    command: str
    run: Facts
    machine: Facts
    findings: tuple[str, ...]
    doubts: tuple[str, ...]
    sections: tuple[Section, ...]
    where: str | None = None
    argv: tuple[str, ...] = field(default=())
