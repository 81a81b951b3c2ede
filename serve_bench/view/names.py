"""How the rows of a run are called: what tells a row from the others, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serve_bench.analysis.statistics import Line
from serve_bench.core.result import JsonObject, Row, cell_slug
from serve_bench.view.rows import Entry, Page
from serve_bench.view.texts import cell_title


@dataclass(frozen=True)
class Names:
    """How the rows of a run are called.

    `axes`: those that vary, with their names in short, by the last part where that is enough.
    `rows`: the loads of the run by name, `places`: cells (as cell_slug has them) with their loads,
    both in the order of the run. `variants`: whether there are several. `slugs`: several axes
    vary, and all have a short word in the keys of the records (bs1, ongoing10000).
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

    @property
    def grouped(self) -> bool:
        """Whether cells are headings above rows; where each has one and the same row, they are
        rows themselves."""
        return not self.cells or len(self.rows) > 1

    def cell(self, cell: JsonObject) -> str:
        """What sets a cell apart, where there is little room: `bs1, ongoing10000`."""
        short = {short: cell[axis] for axis, short in self.axes.items() if axis in cell}
        if self.slugs:
            return ", ".join(cell_slug({name: value}) for name, value in short.items())
        return cell_title(short)

    def full(self, cell: JsonObject) -> str:
        """The same in whole words: `max_batch_size 1, max_ongoing_requests 10000`."""
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
        return self.name(entry.line)

    def name(self, line: Line) -> str:
        """The same of a line: `8 clients, num_replicas 2, optimized`."""
        words = [self.rows[line.row]] if len(self.rows) > 1 or not self.cells else []
        words += [self.full(line.cell)] if self.cells else []
        words += [line.variant] if self.variants else []
        return f"{', '.join(words)}{' (profiled)' if line.status == 'profiled' else ''}"

    def in_order(self, entries: Sequence[Entry]) -> list[Entry]:
        """The rows, those of the same cell and load under all variants beside each other."""
        return sorted(entries, key=lambda entry: self.places.index(place_of(entry)))

    @property
    def legend(self) -> str:
        """What the short names stand for: `bs: max_batch_size`; empty if all are whole."""
        short = {
            axis: cell_slug({name: ""}) if self.slugs else name for axis, name in self.axes.items()
        }
        return ", ".join(f"{name}: {axis}" for axis, name in short.items() if name != axis)


def names_of(page: Page) -> Names:
    """The names of a run's rows, cells and variants."""
    return names_of_lines([entry.line for entry in page.entries])


def names_of_lines(lines: Sequence[Line]) -> Names:
    """The same of lines."""
    axes = dict.fromkeys(name for line in lines for name in line.cell)
    varied = [axis for axis in axes if len({repr(line.cell.get(axis)) for line in lines}) > 1]
    last = [axis.rpartition(".")[2] for axis in varied]
    return Names(
        axes=dict(zip(varied, last if len(set(last)) == len(last) else varied, strict=True)),
        rows=_row_names(list(dict.fromkeys(line.row for line in lines))),
        places=tuple(dict.fromkeys((cell_slug(line.cell), line.row) for line in lines)),
        variants=len({line.variant for line in lines}) > 1,
        slugs=len(varied) > 1 and not any(cell_slug({axis: ""}).endswith("=") for axis in varied),
    )


def place_of(entry: Entry) -> tuple[str, Row]:
    return cell_slug(entry.line.cell), entry.line.row


def _row_names(rows: Sequence[Row]) -> dict[Row, str]:
    """Each row by its label; with client, size of the data or place where labels are alike."""
    choices = [
        [row.label for row in rows],
        [f"{row.label} ({row.client})" for row in rows],
        [f"{row.label} ({row.client}, {row.data_size} data)" for row in rows],
        [f"{row.label} (row {number})" for number, row in enumerate(rows, 1)],
    ]
    return {
        row: next(names[place] for names in choices if names.count(names[place]) == 1)
        for place, row in enumerate(rows)
    }
