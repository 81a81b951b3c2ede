"""The four metrics of a rpc report over its x axis, a colour for each backend, as PNG or SVG.

Rule: a pure function from a report (forms.py, or a file of PyTorch's own launcher) to bytes.
Lines only join what was measured, and only where the x axis has numbers; else a point is a mark
at p50 with a whisker up to p95.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from serve_bench.benchmarks.parts.texts import number
from serve_bench.benchmarks.rpc.charts import LOG_X, LOG_Y, PUBLISHED, example_curve
from serve_bench.benchmarks.rpc.stored import StoredReport, read_report, report_document
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, Curve
from serve_bench.report.plot_file import check_kind, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page


#: Okabe and Ito's colours, told apart by people of any colour vision.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_POINTS: Final = ("o", "s", "^", "D", "v", "P")
_GREY: Final = "#8a8a8a"

MOST_LABELS: Final = 6
"""Marks of a panel that can have their p50 beside them without touching."""


@dataclass(frozen=True)
class _Style:
    """How a curve is drawn; `shift` moves it along an axis of words, so that marks stand apart."""

    colour: str
    point: str
    shift: float = 0.0


def plot_rpc(
    report: Mapping[str, Any], kind: str = "png", published: bool = False, name: str = "plot"
) -> bytes:
    """The figure as the bytes of a file; `kind` is png or svg.

    `published` adds the source's example in grey where the x axis is world_size and batch True.
    Raises BadInput where matplotlib is missing, the kind is another, or it is no such report, whose
    `name` (a file, say) the message begins with.
    """
    check_kind(kind)
    document = report_document(report, published, name)
    stored = read_report(report)
    batched = frozenset({stored.arguments.get("batch") is True})
    example = example_curve(stored.x_axis, batched) if published else None
    foot = "\n".join(f"{key}: {text}" for key, text in document.run.pairs)
    title = document.title
    return figure_bytes(kind, (8.6, 7.4), lambda page: _draw(page, stored, example, (title, foot)))


def _draw(page: Page, stored: StoredReport, example: Curve | None, said: tuple[str, str]) -> None:
    styled = [
        (curve, _Style(_COLOURS[at % len(_COLOURS)], _POINTS[at % len(_POINTS)]))
        for at, curve in enumerate(stored.curves)
    ]
    if example is not None:  # first, so that what was measured lies above it
        styled.insert(0, (example, _Style(_GREY, "x")))
    own = list(dict.fromkeys(x for curve in stored.curves for x in curve.points))
    every = list(dict.fromkeys([*own, *(example.points if example is not None else ())]))
    # A single world beside the example's two: marks, which stand apart, and no lines.
    xs = _places(every) if _places(own) is not None else None
    lined = xs is not None
    if xs is None:
        xs = {x: float(at) for at, x in enumerate(every)}
        styled = _apart(styled)
    names = {"top": 0.2 if example is None else 0.4, "upper": 3.0, "lower": 3.0}
    rows: list[Any] = [["top", "top"], [NAMES[0], NAMES[1]], [NAMES[2], NAMES[3]]]
    panels = page.subplot_mosaic(rows, height_ratios=list(names.values()))
    for name in NAMES:
        axes = panels[name]
        for curve, style in styled:
            _curve(axes, curve, name, style, xs, lined)
        if not lined and len(styled) * len(xs) <= MOST_LABELS:
            _labels(axes, styled, name, xs)
        _axes(axes, name, styled, xs, lined, stored.x_axis)
    _legend(panels["top"], styled, lined)
    page.suptitle(said[0], x=0.01, ha="left", fontsize=12)
    page.supxlabel(said[1], fontsize=7, color="#555555", x=0.01, ha="left")


def _places(xs: Sequence[str]) -> dict[str, float] | None:
    """Where each point stands on an axis of numbers, least first; None where one is no number, or
    there is only one."""
    places = {x: float(x) for x in xs if x.isascii() and x.isdigit()}
    if len(places) < len(set(xs)) or len(places) < 2:
        return None
    return dict(sorted(places.items(), key=lambda pair: pair[1]))


def _apart(styled: Sequence[tuple[Curve, _Style]]) -> list[tuple[Curve, _Style]]:
    count, step = len(styled), min(0.22, 0.7 / len(styled))
    return [
        (curve, _Style(style.colour, style.point, step * (at - (count - 1) / 2)))
        for at, (curve, style) in enumerate(styled)
    ]


def _values(curve: Curve, name: str, x: str) -> Mapping[int, float]:
    """In the units of the plot: ms, requests/s."""
    per = 1e3 if "latency" in name else 1.0
    return {share: per * value for share, value in curve.points[x][name].items()}


def _curve(
    axes: Axes,
    curve: Curve,
    name: str,
    style: _Style,
    places: Mapping[str, float],
    lined: bool,
) -> None:
    own = [x for x in places if x in curve.points]
    at = [places[x] + style.shift for x in own]
    found = [_values(curve, name, x) for x in own]
    by_share = {share: [one[share] for one in found] for share in PERCENTILES}
    if lined and len(own) > 1:
        axes.plot(at, by_share[50], color=style.colour, marker=style.point, ms=5, lw=1.7)
        axes.fill_between(at, by_share[50], by_share[95], color=style.colour, alpha=0.12, lw=0)
        for share in (75, 90):
            axes.plot(at, by_share[share], color=style.colour, lw=0.6, alpha=0.7)
        axes.plot(at, by_share[95], color=style.colour, lw=1.1, ls=_DASHES)
        return
    axes.vlines(at, by_share[50], by_share[95], color=style.colour, lw=1.3)
    for share, size in ((75, 5.0), (90, 7.0), (95, 10.0)):
        axes.plot(at, by_share[share], "_", color=style.colour, ms=size, mew=1.3)
    axes.plot(at, by_share[50], style.point, color=style.colour, ms=6)


def _labels(
    axes: Axes, styled: Sequence[tuple[Curve, _Style]], name: str, places: Mapping[str, float]
) -> None:
    """The p50 beside its mark."""
    for curve, style in styled:
        for x in (x for x in places if x in curve.points):
            p50 = _values(curve, name, x)[50]
            axes.annotate(
                number(p50, 3),
                (places[x] + style.shift, p50),
                xytext=(7, 0),
                textcoords="offset points",
                fontsize=7.5,
                color="#333333",
                va="center",
            )


def _axes(
    axes: Axes,
    name: str,
    styled: Sequence[tuple[Curve, _Style]],
    places: Mapping[str, float],
    lined: bool,
    x_axis: str,
) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    every = [
        value
        for curve, _ in styled
        for x in curve.points
        for value in _values(curve, name, x).values()
    ]
    unit = "ms" if "latency" in name else "requests/s"
    least, most = min(every), max(every)
    plain = FuncFormatter(lambda value, _: f"{value:,.6g}")
    if least > 0 and most / least >= LOG_Y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
        if most / least < 100:  # a decade or two: its powers of ten alone would be too few marks
            from matplotlib.ticker import LogLocator

            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        unit += " (log)"
    else:
        axes.set_ylim(0, 1.1 * most if most else 1.0)
    axes.yaxis.set_major_formatter(plain)
    at = list(places.values())
    if lined and at[-1] >= LOG_X * at[0] > 0:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        x_axis += " (log)"
    if not lined:
        axes.set_xlim(-0.6, len(at) - 0.4)
    ticks = _ticks(list(places), lined, axes.get_xscale() == "log", places)
    axes.set_xticks([places[x] for x in ticks], ticks)
    axes.set_title(name.removesuffix(" (seconds)"), fontsize=10, loc="left")
    axes.set_ylabel(unit, fontsize=9)
    axes.set_xlabel(x_axis, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(True, which="major", axis="both" if lined else "y", color="#e4e4e4", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(xs: Sequence[str], lined: bool, log: bool, places: Mapping[str, float]) -> list[str]:
    """The points that are named: all words; of numbers those that are apart enough."""
    if not lined:
        return list(xs)
    kept = [xs[0]]
    for x in (*xs[1:-1], xs[-1]):
        apart = _share(places, kept[-1], x, log)
        if x == xs[-1]:  # the last is always named
            while len(kept) > 1 and _share(places, kept[-1], x, log) < 1 / 14:
                kept.pop()
            kept.append(x)
        elif apart >= 1 / 14:
            kept.append(x)
    return kept


def _share(places: Mapping[str, float], left: str, right: str, log: bool) -> float:
    """How much of the axis lies between two points."""
    values = list(places.values())
    low, high, one, other = values[0], values[-1], places[left], places[right]
    if log:
        low, high, one, other = (math.log(value) for value in (low, high, one, other))
    return (other - one) / (high - low)


def _legend(axes: Axes, styled: Sequence[tuple[Curve, _Style]], lined: bool) -> None:
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

    axes.axis("off")
    shown: list[tuple[Any, str]] = [
        (
            Line2D([], [], color=one.colour, marker=one.point, lw=1.7 if lined else 0, ms=5),
            curve.name,
        )
        for curve, one in styled
    ]
    published = [shown.pop(0)] if shown[0][1] == PUBLISHED else []
    grey = "#555555"
    if lined:
        shown += [
            (Line2D([], [], color=grey, lw=1.7), "p50"),
            (Line2D([], [], color=grey, lw=0.6), "p75, p90"),
            (Line2D([], [], color=grey, lw=1.1, ls=_DASHES), "p95"),
        ]
    else:
        mark = Line2D([], [], color=grey, marker="o", lw=0, ms=5)
        shown.append((mark, "p50; bars across at p75, p90, p95, each wider"))
    # In a row of its own; the room for both is set by the caller, or they would narrow the panels.
    for height, own in ((1.0, shown), (0.5, published)):
        legend = Legend(
            axes,
            [one for one, _ in own],
            [text for _, text in own],
            loc="upper left",
            bbox_to_anchor=(0.0, height),
            ncols=6,
            fontsize=8,
            frameon=False,
            borderaxespad=0.0,
            columnspacing=1.4,
        )
        legend.set_in_layout(False)
        axes.add_artist(legend)


_DASHES: Final = (0, (4, 2))
