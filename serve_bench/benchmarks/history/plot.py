"""Runs over time, a panel for each row of each cell, with its levels and steps, as PNG or SVG.

Rule: a pure function from a History to bytes. A dot is a run, at its place in the order of time,
since nights are not evenly apart; a line is the level that it belongs to, and ends where the level
does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from serve_bench.analysis.history.parts import Group, History, Series
from serve_bench.benchmarks.history.json_form import level_of
from serve_bench.benchmarks.history.words import (
    group_title,
    host_text,
    mark_text,
    moments,
    part_title,
    value_text,
)
from serve_bench.benchmarks.versus.words import UNITS
from serve_bench.core.errors import BadInput
from serve_bench.report.plot_file import check_kind, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Okabe and Ito's colours, told apart by people of any colour vision; each has a shape too.
_RUN, _WORSE, _BETTER, _GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
_DPI: Final = 120
_COLUMNS: Final = 3
_WIDTH: Final = 3.6
_HEIGHT: Final = 2.1
MOST: Final = 60
"""Panels of a figure: more would be no figure, and as a PNG beyond what programs open."""

MADE_BY: Final = "serve-bench history"
"""Stands in the file: by this an earlier plot is known, which a new one may replace."""

NARROW: Final = 1.25
"""An axis whose values lie within this factor is widened to it, or noise would look like much."""


def plot_history(history: History, kind: str = "png") -> bytes:
    """The figure as the bytes of a file; `kind` is png or svg.

    Raises BadInput where matplotlib is missing, the kind is another, or there are too many rows.
    """
    check_kind(kind, "--plot")
    panels = [(group, series) for group in history.groups for series in group.series]
    if len(panels) > MOST:
        raise BadInput(
            f"--plot: {len(panels)} rows; a figure holds up to {MOST}: choose by --variant, --cell "
            "or --row"
        )
    wide = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / wide)

    def draw(sheet: Figure) -> None:
        grid = sheet.subplots(rows, wide, squeeze=False).flatten()
        for axes, (group, series) in zip(grid, panels, strict=False):
            _panel(axes, group, series)
        for axes in grid[len(panels) :]:
            axes.axis("off")
        heads = [f"serve-bench history: {group_title(group)}" for group in history.groups]
        sheet.suptitle("\n".join(heads), x=0.01, ha="left", fontsize=10)
        sheet.supxlabel(_foot(history), x=0.01, ha="left", fontsize=7, color="#555555")

    size = (max(6.0, _WIDTH * wide), 1.0 + _HEIGHT * rows)
    return figure_bytes(kind, size, draw, _DPI, made_by=MADE_BY)


def _panel(axes: Axes, group: Group, series: Series) -> None:
    for at, point in enumerate(series.points):
        if point.value is None:
            continue
        alone = level_of(series, at) is None
        axes.plot(
            [at + 1],
            [point.value],
            "x" if alone else "o",
            color=_GREY if point.invalid else _RUN,
            ms=6 if alone else 4.5,
            zorder=3,
        )
        if point.interval is not None and math.isfinite(point.interval.high):
            ends = [point.interval.low, point.interval.high]
            axes.plot([at + 1, at + 1], ends, "-", color=_RUN, lw=1, alpha=0.6)
    for level in series.found.levels:
        first, last = level.runs[0] + 0.6, level.runs[-1] + 1.4
        axes.plot([first, last], [level.value] * 2, "-", color=_GREY, lw=1.6, zorder=1)
    for mark in series.marks:
        colour = _WORSE if series.word(mark) == "regressed" else _BETTER
        where = mark.at + 0.5 if series.is_step(mark) else mark.at + 1
        axes.axvline(where, color=colour, lw=1.2, ls="--" if series.is_step(mark) else ":")
    _axes(axes, group, series)


def _axes(axes: Axes, group: Group, series: Series) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    values = [point.value for point in series.points if point.value is not None]
    intervals = [one.interval for one in series.points if one.interval is not None]
    least = min([*values, *(one.low for one in intervals)])
    most = max([*values, *(one.high for one in intervals if math.isfinite(one.high))])
    room = max(1.05, math.sqrt(NARROW * least / most) if most / least < NARROW else 0.0)
    axes.set_ylim(least / room, most * room)
    axes.set_xlim(0.5, len(group.nights) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: value_text(series, value)))
    axes.set_title(_title(group, series), fontsize=7.5, loc="left")
    axes.set_ylabel(UNITS[series.metric], fontsize=8)
    said = ", ".join(f"{mark_text(series, one)} (run {one.at + 1})" for one in series.marks)
    axes.set_xlabel(said or "no step", fontsize=7.5, color="#333333")
    axes.tick_params(labelsize=7.5)
    axes.grid(True, axis="y", color="#e4e4e4", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _title(group: Group, series: Series) -> str:
    """The row, under its cell in short words."""
    words = part_title(group, series).split(", ")
    lines = [", ".join(words[at : at + 2]) for at in range(0, len(words), 2)]
    return "\n".join([*lines, f"{series.row} ({series.client})"])


def _foot(history: History) -> str:
    lines = [
        "runs in order of time; dot: a run (cross: in no level), grey line: its level; dashed: "
        "a step, dotted: an outlier"
    ]
    for group in history.groups:
        times = moments(group.nights)
        lines.append(f"run 1: {times[0]}, run {len(times)}: {times[-1]}; {host_text(group)}")
    return "\n".join(lines)
