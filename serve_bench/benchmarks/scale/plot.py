"""A curve of scale: each quantity over the number of replicas, both axes logarithmic, PNG or SVG.

Rule: a pure function from a Result to bytes. A point is the figure of one size in one launch, the
line is the fit whose exponent the panel's title tells, over the sizes that were measured and not
beyond. What was not measured has no point. matplotlib is imported where it is needed (extra
`plot`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from serve_bench.analysis.statistics import LowerBound
from serve_bench.benchmarks.parts.texts import host_line
from serve_bench.benchmarks.scale.growth import Grown, Growth
from serve_bench.benchmarks.scale.summary import BROKEN, ScaleSummary, scale_summary
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.report.plot_file import AT_LEAST, check_kind, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet


#: Okabe and Ito's colours, told apart by people of any colour vision.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_POINTS: Final = ("o", "s", "^", "D", "v", "P")
_COLUMNS: Final = 2

NARROW: Final = 2.0
"""An axis whose values lie within a factor of two is widened to it: on a closer one the scatter of
a quantity that does not change would look like growth."""

#: Quantities that share a panel: title, and what each is called in it with its line and filling.
_PANELS: Final[Mapping[str, Mapping[str, tuple[str, str, bool]]]] = {
    "throughput": {"throughput": ("", "-", True)},
    "latency": {"latency_p50": ("p50", "-", True), "latency_p99": ("p99", "--", False)},
    "deploy time": {"deploy_time": ("", "-", True)},
    "teardown time": {"teardown_time": ("", "-", True)},
    "memory per replica": {"memory_per_replica": ("", "-", True)},
    "CPU per request": {"cpu_per_request": ("", "-", True)},
    "controller loop": {"controller_loop": ("", "-", True)},
}


@dataclass(frozen=True)
class _Drawn:
    """A quantity of one variant in a panel."""

    variant: str
    grown: Grown
    colour: str
    point: str
    word: str
    line: str
    filled: bool


def plot_scale(result: Result, kind: str = "png") -> bytes:
    """The figure as the bytes of a file; `kind` is png or svg.

    Raises BadInput where matplotlib is missing, the kind is another, or the run holds no curve with
    a measured size.
    """
    check_kind(kind)
    page = scale_summary(result)
    panels = _panels(page)
    if not panels:
        raise BadInput("plot: the run holds no curve with a measured size")
    rows = math.ceil((len(panels) + 1) / _COLUMNS)
    size = (8.6, 1.1 + 2.35 * rows)
    return figure_bytes(kind, size, lambda sheet: _draw(sheet, page, panels, rows))


def _panels(page: ScaleSummary) -> dict[str, list[_Drawn]]:
    """What is drawn in each panel; a quantity without a positive value has none."""
    out: dict[str, list[_Drawn]] = {}
    for title, shared in _PANELS.items():
        for at, part in enumerate(page.variants):
            colour, point = _COLOURS[at % len(_COLOURS)], _POINTS[at % len(_POINTS)]
            for grown in part.grown:
                if grown.quantity.name in shared and _points(grown):
                    word, line, filled = shared[grown.quantity.name]
                    drawn = _Drawn(part.name, grown, colour, point, word, line, filled)
                    out.setdefault(title, []).append(drawn)
    return out


def _points(grown: Grown) -> list[tuple[int, float]]:
    """Every launch of every size, as far as a logarithm can be had."""
    return [
        (replicas, value)
        for replicas, figure in grown.points
        for value in figure.known
        if value > 0 and replicas > 0
    ]


def _draw(
    sheet: Sheet, page: ScaleSummary, panels: Mapping[str, Sequence[_Drawn]], rows: int
) -> None:
    every = [drawn for own in panels.values() for drawn in own]
    sizes = sorted({replicas for one in every for replicas, _ in _points(one.grown)})
    grid = sheet.subplots(rows, _COLUMNS, squeeze=False).flatten()
    for axes, (title, own) in zip(grid, panels.items(), strict=False):
        for one in own:
            _quantity(axes, one)
        _axes(axes, title, own, sizes)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    _legend(grid[len(panels)], every)
    head = "serve-bench scale curve: cost over the number of replicas"
    if page.invalid:
        head += " (INVALID: see below)"
    sheet.suptitle(head, x=0.01, ha="left", fontsize=12)
    sheet.supxlabel(_foot(page), fontsize=7, color="#555555", x=0.01, ha="left")


def _quantity(axes: Axes, one: _Drawn) -> None:
    points = _points(one.grown)
    face = one.colour if one.filled else "white"
    at, values = [x for x, _ in points], [y for _, y in points]
    axes.plot(at, values, one.point, color=one.colour, mfc=face, ms=5, mew=1.1, zorder=3)
    for x, y in points:
        if isinstance(y, LowerBound):
            axes.plot(x, y, color=one.colour, **AT_LEAST)
    fit = one.grown.fit
    if fit is not None:
        ends = [min(at), max(at)]
        axes.plot(ends, [fit.at(x) for x in ends], one.line, color=one.colour, lw=1.4, alpha=0.75)


def _exponent(fit: Growth | None) -> str:
    return "no fit" if fit is None else f"n^{fit.text}"


def _axes(axes: Axes, title: str, own: Sequence[_Drawn], sizes: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axes.set_xscale("log", base=2)
    values = [value for one in own for _, value in _points(one.grown)]
    least, most = min(values), max(values)
    room = max(1.25, math.sqrt(NARROW * least / most) if most / least < NARROW else 0.0)
    axes.set_ylim(least / room, most * room)  # before the scale, which would look for its own
    axes.set_yscale("log")
    if most / least < 100:  # its powers of ten alone would be too few marks
        few = most / least < 8
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if few else (1.0, 2.0, 5.0))
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    shown = _ticks(sizes)
    axes.set_xticks(shown, [f"{one:,}" for one in shown])
    if len(sizes) > 1:
        axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    # The exponents in the title, a variant each, in its colour where there are several.
    axes.set_title(title, fontsize=10, loc="left")
    several = len({one.variant for one in own}) > 1
    lines = [f"{one.word} {_exponent(one.grown.fit)}".strip() for one in own]
    for at, (one, line) in enumerate(zip(own, lines, strict=True)):
        axes.annotate(
            line,
            (1.0, 1.0),
            xytext=(0, 4 + 10 * (len(own) - 1 - at)),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color=one.colour if several else "#333333",
        )
    axes.set_ylabel(f"{own[0].grown.quantity.unit} (log)", fontsize=9)
    axes.set_xlabel("replicas (log)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", color="#e4e4e4", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """The sizes that are named: the first, the last, and those between that are apart enough."""
    kept = [sizes[0]]
    whole = math.log(sizes[-1] / sizes[0]) or 1.0
    for one in sizes[1:]:
        if math.log(one / kept[-1]) / whole >= 1 / 11:
            kept.append(one)
        elif one == sizes[-1]:
            kept[-1 if len(kept) > 1 else len(kept) :] = [one]
    return kept


def _legend(axes: Axes, every: Sequence[_Drawn]) -> None:
    from matplotlib.lines import Line2D

    variants = {one.variant: one for one in every}
    shown: list[tuple[Any, str]] = [
        (Line2D([], [], color=one.colour, marker=one.point, lw=1.4, ms=5), f"variant {name}")
        for name, one in variants.items()
    ]
    grey, first = "#555555", every[0].point
    if any(not one.filled for one in every):
        shown.append(
            (
                Line2D([], [], color=grey, marker=first, mfc="white", lw=1.4, ls="--", ms=5),
                "latency p99 (p50: filled)",
            )
        )
    shown.append((Line2D([], [], color=grey, marker=first, lw=0, ms=5), "one launch of one size"))
    if any(isinstance(y, LowerBound) for one in every for _, y in _points(one.grown)):
        shown.append((Line2D([], [], color=grey, **AT_LEAST), "at least this: some had no answer"))
    shown.append((Line2D([], [], color=grey, lw=1.4), "fit a n^b, n: replicas; b ± its std error"))
    axes.legend(
        [one for one, _ in shown],
        [text for _, text in shown],
        loc="center left",
        fontsize=8.5,
        frameon=False,
    )


def _foot(page: ScaleSummary) -> str:
    suite = page.run.suite
    launches = int(suite.get("launches") or 1)
    load = (
        f"{suite.get('connections')} connections a node ({suite.get('client')}), "
        f"{suite.get('windows')} windows of {suite.get('window_s')} s, {launches} "
        f"launch{'' if launches == 1 else 'es'}"
    )
    lines = [page.invalid[0].removesuffix(f": {BROKEN}")] if page.invalid else []
    if len(page.invalid) > 1:
        lines[0] += f" (and {len(page.invalid) - 1} more)"
    lines += [
        load,
        f"run {page.run.id}, {page.run.started_at}",
        f"host: {host_line(page.run.host)}",
    ]
    return "\n".join(lines)
