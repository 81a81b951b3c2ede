"""The rows of a page under short names, and in panels of which each is one chart.

Rule: a name says what sets a row apart from the others beside it and no more; a panel holds no more
lines than can be told apart. What is profiled is in no chart: it was slowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.page import Entry, Page, cell_title
from serve_bench.core.document import Block, Chart, Folded
from serve_bench.core.result import JsonObject, Row, cell_slug

MOST: Final = 8
"""Lines in one chart: more colours than that are not told apart."""

OPEN: Final = 2
"""So many charts of a kind stand open; with more, those that matter do, the others are folded."""


@dataclass(frozen=True)
class Names:
    """How the rows of a run are called.

    `axes`: those that vary, with their names in short, by the last part where that is enough.
    `rows`: the loads of the run by name, `places`: cells (as cell_slug has them) with their loads,
    both in the order of the page. `variants`: whether there are several. `slugs`: several axes
    vary, and all have a short word in the keys of the records (bs1, mcq10000).
    """

    axes: Mapping[str, str]
    rows: Mapping[Row, str]
    places: tuple[tuple[str, Row], ...]
    variants: bool
    slugs: bool

    @property
    def cells(self) -> bool:
        """Whether there are several."""
        return len({slug for slug, _ in self.places}) > 1

    def cell(self, cell: JsonObject) -> str:
        """What sets a cell apart, where there is little room: `bs1, mcq10000`."""
        told = {short: cell[axis] for axis, short in self.axes.items() if axis in cell}
        if self.slugs:
            return ", ".join(cell_slug({name: value}) for name, value in told.items())
        return cell_title(told)

    def full(self, cell: JsonObject) -> str:
        """The same in whole words: `max_batch_size 1, max_concurrent_queries 10000`."""
        return cell_title({axis: cell[axis] for axis in self.axes if axis in cell})

    def row(self, entry: Entry) -> str:
        """The load; with its client where that alone tells two apart."""
        return self.rows[entry.line.row]

    def beside(self, entry: Entry, cell: bool, row: bool) -> str:
        """A name beside others that differ in cell, in row, and in variant if there are several."""
        words = [self.cell(entry.line.cell)] if cell and self.cells else []
        words += [self.row(entry)] if row and len(self.rows) > 1 else []
        words += [entry.line.variant] if self.variants else []
        return ", ".join(words) or self.row(entry)

    def whole(self, entry: Entry) -> str:
        """What sets a row apart from all others of the run, in whole words."""
        words = [self.row(entry)] if len(self.rows) > 1 or not self.cells else []
        words += [self.full(entry.line.cell)] if self.cells else []
        words += [entry.line.variant] if self.variants else []
        return ", ".join(words)

    @property
    def legend(self) -> str:
        """What the short names stand for: `bs: max_batch_size`; empty if all are whole."""
        short = {
            axis: cell_slug({name: ""}) if self.slugs else name for axis, name in self.axes.items()
        }
        return ", ".join(f"{name}: {axis}" for axis, name in short.items() if name != axis)


def names_of(page: Page) -> Names:
    """The names of a page's rows, cells and variants."""
    entries = page.entries
    values = {axis: {repr(one.line.cell.get(axis)) for one in entries} for axis in page.axes}
    varied = [axis for axis, found in values.items() if len(found) > 1]
    last = [axis.rpartition(".")[2] for axis in varied]
    return Names(
        axes=dict(zip(varied, last if len(set(last)) == len(last) else varied, strict=True)),
        rows=_named(list(dict.fromkeys(one.line.row for one in entries))),
        places=tuple(dict.fromkeys(map(_place, entries))),
        variants=len(page.variants) > 1,
        slugs=len(varied) > 1 and not any(cell_slug({axis: ""}).endswith("=") for axis in varied),
    )


def _place(entry: Entry) -> tuple[str, Row]:
    return cell_slug(entry.line.cell), entry.line.row


def _named(rows: Sequence[Row]) -> dict[Row, str]:
    """Each row by its label; with client, size of the data or place where labels are alike."""
    every = [
        [row.label for row in rows],
        [f"{row.label} ({row.client})" for row in rows],
        [f"{row.label} ({row.client}, {row.data_size} data)" for row in rows],
        [f"{row.label} (row {at})" for at, row in enumerate(rows, 1)],
    ]
    return {
        row: next(names[at] for names in every if names.count(names[at]) == 1)
        for at, row in enumerate(rows)
    }


@dataclass(frozen=True)
class Panel:
    """Rows that share a chart, each with its name there. `title` says what they have in common;
    empty where that is the whole run."""

    title: str
    rows: tuple[tuple[str, Entry], ...]

    @property
    def peak(self) -> float:
        """The highest requests/s in it."""
        return max((one.rate.mean for _, one in self.rows if one.rate is not None), default=0.0)

    def of(self, what: str) -> str:
        """The title of a chart of this panel."""
        return f"{what}: {self.title}" if self.title else what


def measured(page: Page) -> list[Entry]:
    """The rows that a chart can show: measured, and not slowed by a profiler."""
    return [
        one for one in page.entries if one.line.status != "profiled" and MAIN in one.line.spreads
    ]


def by_cell(
    entries: Sequence[Entry], names: Names, weight: Callable[[Entry], int] = lambda _: 1
) -> tuple[Panel, ...]:
    """A panel for each cell, its rows under all variants beside each other; where each cell has one
    and the same row, one for all. A panel with more than MOST lines is split; `weight`: lines of a
    row."""
    apart = names.cells and len(names.rows) > 1
    out: list[Panel] = []
    for group in _grouped(entries, names, lambda one: cell_slug(one.line.cell) if apart else ""):
        title = names.full(group[0].line.cell) if apart else ""
        rows = [(names.beside(one, cell=not apart, row=True), one) for one in group]
        out += _split(title, rows, weight)
    return tuple(out)


def by_row(entries: Sequence[Entry], names: Names) -> tuple[Panel, ...]:
    """A panel for each load with all cells under it, since loads differ in rate by their nature;
    one for all loads of a single cell."""
    apart = names.cells and len(names.rows) > 1
    out = []
    for group in _grouped(entries, names, lambda one: names.row(one) if apart else ""):
        title = names.row(group[0]) if apart else ""
        rows = tuple((names.beside(one, cell=True, row=not apart), one) for one in group)
        out.append(Panel(title, rows))
    return tuple(out)


def _grouped(
    entries: Sequence[Entry], names: Names, key: Callable[[Entry], str]
) -> list[list[Entry]]:
    """The groups, variants of the same cell and row beside each other in each."""
    groups: dict[str, list[Entry]] = {}
    for one in sorted(entries, key=lambda one: names.places.index(_place(one))):
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _split(
    title: str, rows: Sequence[tuple[str, Entry]], weight: Callable[[Entry], int]
) -> list[Panel]:
    parts: list[list[tuple[str, Entry]]] = [[]]
    room = MOST
    for name, entry in rows:
        room -= weight(entry)
        if room < 0 and parts[-1]:
            parts.append([])
            room = MOST - weight(entry)
        parts[-1].append((name, entry))
    if len(parts) == 1:
        return [Panel(title, tuple(rows))]
    many = [f"part {at} of {len(parts)}" for at in range(1, len(parts) + 1)]
    return [
        Panel(f"{title}, {which}" if title else which, tuple(part))
        for which, part in zip(many, parts, strict=True)
    ]


def open_first(panels: Sequence[Panel], doubted: Callable[[Panel], bool]) -> tuple[Panel, ...]:
    """The panels that stand open: all where they are few; else the one with the highest requests/s
    and, up to OPEN, those that are doubted."""
    if len(panels) <= OPEN:
        return tuple(panels)
    fastest = max(panels, key=lambda panel: panel.peak)
    chosen = [fastest, *(one for one in panels if doubted(one) and one is not fastest)][:OPEN]
    return tuple(one for one in panels if one in chosen)


def folding(
    panels: Sequence[Panel], opened: Sequence[Panel], draw: Callable[[Panel], Chart]
) -> tuple[Block, ...]:
    """The charts of these panels, those that are not opened under one line."""
    rest = [panel for panel in panels if panel not in opened]
    blocks: list[Block] = [draw(panel) for panel in panels if panel in opened]
    if rest:
        title = f"The other {len(rest)} charts" if len(rest) > 1 else "The other chart"
        blocks.append(Folded(title, tuple(draw(one) for one in rest)))
    return tuple(blocks)
