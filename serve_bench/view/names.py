"""How the rows of a run are called: what tells a row from the others, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.statistics import Line
from serve_bench.core.axes import AXES
from serve_bench.core.result import JsonObject, Row, cell_slug

BRIEFS: Final = {axis.name: axis.brief for axis in AXES.values() if axis.brief}
"""Axes by the names that they have where rows are told apart."""


def cell_title(cell: JsonObject) -> str:
    """A cell in words: `max_batch_size 1, max_ongoing_requests 10000, num_replicas 8`."""
    return ", ".join(f"{name} {value}" for name, value in cell.items()) or "app as it is"


@dataclass(frozen=True)
class RowNames:
    """How the rows of a run are called. `axes`: those that vary among its cells; `cells`: how many
    there are; `rows`: its loads by name, in their order; `variants`: whether there are several."""

    axes: tuple[str, ...]
    cells: int
    rows: Mapping[Row, str]
    variants: bool

    @property
    def by_load(self) -> bool:
        """Whether a row of a table is called by its load, below its cell; else by its cell, below
        its load. Headings are those of which there are fewer; a matrix is always of a load."""
        return len(self.rows) >= self.cells and len(self.axes) < 2

    def cell(self, cell: JsonObject) -> str:
        """What sets a cell apart: `batch 1, ongoing 10000`."""
        shown = (axis for axis in self.axes if axis in cell)
        return cell_title({BRIEFS.get(axis, axis): cell[axis] for axis in shown})

    def name(self, line: Line, load: bool = True, cell: bool = True) -> str:
        """`8 clients, num_replicas 2, optimized`: what sets a row apart from all others of the run;
        without its `load` or its `cell`, from those that differ in the rest. One that is alone has
        the name of its load, or of its variant."""
        words = [self.rows[line.row]] if load and (len(self.rows) > 1 or not self.axes) else []
        words += [self.cell(line.cell)] if cell and self.axes else []
        words += [line.variant] if self.variants else []
        mark = " (profiled)" if line.status == "profiled" else ""
        return f"{', '.join(words) or (self.rows[line.row] if load else line.variant)}{mark}"


def names_of_lines(lines: Sequence[Line]) -> RowNames:
    """The names of a run's rows: by their labels; with client, size of the data or place where
    labels are alike."""
    axes = dict.fromkeys(axis for line in lines for axis in line.cell)
    rows = list(dict.fromkeys(line.row for line in lines))
    choices = [
        [row.label for row in rows],
        [f"{row.label} ({row.client})" for row in rows],
        [f"{row.label} ({row.client}, {row.data_size} data)" for row in rows],
        [f"{row.label} (row {number})" for number, row in enumerate(rows, 1)],
    ]
    return RowNames(
        tuple(axis for axis in axes if len({repr(line.cell.get(axis)) for line in lines}) > 1),
        len({cell_slug(line.cell) for line in lines}),
        {
            row: next(names[place] for names in choices if names.count(names[place]) == 1)
            for place, row in enumerate(rows)
        },
        len({line.variant for line in lines}) > 1,
    )
