"""Charts as SVG, the same for a page and for a picture, without a library or a script.

Rule: pure. What lies across a plot is a share of its width in %: a drawing is as wide as its place,
from 110 pixels on. All else is in pixels, and labels stand in margins around the plot. Every chart
is read without colour too (shapes, labels, figures), and a mark says what it is under the pointer.
Every point was measured and is drawn; lines only join those that belong together. The marks of a
series are a group, which the script of a page hides; of a chart over time it shows a part.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from serve_bench.core.figures import bound_sign, number, ratio_text
from serve_bench.report.theme import (
    BAND,
    GRID,
    GROUND,
    QUIET,
    TEXT,
    SeriesLook,
    element,
    rule,
    say,
    write,
)
from serve_bench.view.charts import Chart, Point

WIDE: Final = 100.0
"""Values that differ by this factor are drawn on a log axis: on a linear one all but the largest
would lie on its zero."""

CHARACTER: Final = 6.7
"""Pixels of a character, about the mean at the size of labels (12 pixels)."""

SLANT: Final = 4.4
"""Pixels of a character of a slanted label, from top to bottom."""

LINE, GAP, BELOW = 18, 5, 40
"""Pixels: of a line of a chart with a row for each thing (an interval, a bar), between such rows,
and of the labels of an axis. So few rows make a small chart and many a long one."""

FITS: Final = 28
"""Characters of a line of a label: they take half of a phone's width."""

NARROW: Final = 400
"""Pixels of a plot in which the names of columns stand beside each other; longer ones slant."""

HEIGHT, MARK_LINE = 220, 14
"""Pixels of a chart of lines, and of the words of a mark."""

FEW: Final = 30
"""Points of a line that are drawn large; more are small, so that they do not hide the line."""

HEAT: Final = ((222, 235, 247), (8, 64, 129))
"""The smallest and the largest figure of a heat map: on light and dark grounds and on paper alike,
since its figures stand on them, from WHITE_FROM on in white (contrast of 4.5 or more)."""
WHITE_FROM: Final = 0.67

INK: Final = "currentColor"  # that of a series


class Drawing(NamedTuple):
    """The plot of a chart as SVG, and its size in pixels."""

    plot: str
    height: float
    margin: tuple[float, float, float, float]  # of labels: above, right, below, left
    least: float = 0.0  # width of all, below which a page scrolls


def draw(chart: Chart, series: Sequence[SeriesLook]) -> Drawing:
    """Draw a chart, whose series look so."""
    kinds = {"dots": _draw_dots, "bars": _draw_bars, "heat map": _draw_map, "lines": _draw_lines}
    return kinds[chart.kind](chart, series)


def _describe(chart: Chart, point: Point) -> str:
    where = point.x if isinstance(point.x, str) else f"{point.x:,.4g}"
    where = f"{chart.x_name} {where}".strip()
    if chart.x_scale == "share":
        where = _percent(float(point.x))
    low, high = _show(chart, point.low), _show(chart, point.high)
    ends = "" if None in (point.low, point.high) else f" ({low} to {high})"
    return f"{point.series}, {where}: {_show(chart, point.value)} {chart.unit}{ends}"


def _show(chart: Chart, value: float | None) -> str:
    """Render a figure as tables do: times with three digits, others with four."""
    if chart.threshold is not None:
        return ratio_text(value)
    return bound_sign(value) + number(value, 3 if chart.unit in ("ms", "us", "s") else 4)


def _percent(of_nines: float) -> str:
    return f"{100 - 100 / of_nines:.7g} %"


def _across(share: float) -> str:
    return f"{100 * share:.2f}%"


@dataclass(frozen=True)
class AxisScale:
    """A figure from end to end, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], log: bool) -> AxisScale:
        """Return an axis with room beyond the values; a linear one has zero."""
        low, high = min(values), max(values)
        if log:
            beyond = max((high / low) ** 0.06, 1.1)
            return cls(low / beyond, high * beyond, True)
        low, high = min(low, 0.0), max(high, 0.0)
        beyond = 0.06 * (high - low) or 1.0
        return cls(low - beyond if low < 0 else 0.0, high + beyond if high or not low else 0.0)

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 to 1; what is beyond the axis is at its end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def at(self, value: float) -> str:
        """Return where it lies across a plot."""
        return _across(self.share(value))

    def down(self, value: float) -> float:
        """Return where it lies in a chart of lines."""
        return HEIGHT * (1 - self.share(value))

    def title(self, name: str) -> str:
        return f"{name} (log)" if self.log else name

    @property
    def labels(self) -> dict[float, str]:
        """Ticks at round numbers; a log axis whose ends are near has those of a linear one."""
        ticks = []
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
            digits = (1, 2, 5) if len(powers) <= 3 else (1,)  # of many decades the powers
            ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
        if len(ticks) <= 2:
            least = (self.high - self.low) / 6
            power = 10.0 ** math.floor(math.log10(least))
            step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
            turns = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
            ticks = [turn * step for turn in turns]
        return {tick: f"{tick:,.9f}".rstrip("0").rstrip(".") for tick in ticks}


def _draw_below(
    title: str, height: float, labels: Mapping[str, str], slant: float = 0.0
) -> list[str]:
    """Draw the labels below a plot by their places across, with their lines, and the title of all.

    Where a plot is narrow, style.css leaves labels out. `slant`: pixels of labels that would touch
    each other; each ends below its place."""
    lines = (rule(x, 0, x, height + 4, GRID) for x in labels)
    texts = [write(label, x, height + 18) for x, label in labels.items()]
    if slant:
        turned = {"transform": "rotate(-40)", "text_anchor": "end"}
        words = ((x, write(label, 0, 14, **turned)) for x, label in labels.items())
        texts = [element("svg", text, x=x, y=height, overflow="visible") for x, text in words]
    ticks = element("g", *lines, *texts, class_="ticks", fill=QUIET, text_anchor="middle")
    return [ticks, write(title, "50%", height + 36 + slant, fill=QUIET, text_anchor="middle")]


def _ticks(chart: Chart, x: AxisScale) -> dict[float, str]:
    """Return ticks of lines: loads that were chosen, if there is room, else numbers or shares."""
    if chart.x_scale == "share":
        nines = (2.0, *(10.0**power for power in range(1, 8)))
        return {tick: _percent(tick) for tick in nines if x.low <= tick <= x.high}
    places, ticks = sorted({float(point.x) for point in chart.points}), list[float]()
    if chart.x_scale == "time" or len(places) > FEW or any(place % 1 for place in places):
        return x.labels
    for place in places:
        if not ticks or x.share(place) - x.share(ticks[-1]) >= 0.08:  # of the width: a label
            ticks.append(place)
    return {tick: f"{tick:,.0f}" for tick in ticks}


def _draw_axis(axis: AxisScale, title: str, height: float) -> list[str]:
    labels = {axis.at(tick): label for tick, label in axis.labels.items()}
    return _draw_below(axis.title(title), height, labels)


class Rows:
    """Rows named left of the plot, as high as the longest name needs; at least `lines` lines."""

    def __init__(self, names: Sequence[str], lines: int) -> None:
        self.names = {name: textwrap.wrap(name, FITS) or [""] for name in names}
        self.lines = max(lines, *map(len, self.names.values()))
        self.step = LINE * self.lines + GAP
        self.height = self.step * len(self.names)
        longest = max(len(line) for wrapped in self.names.values() for line in wrapped)
        self.width = CHARACTER * longest + 10

    def middle(self, name: str, turn: int = 0, turns: int = 1) -> float:
        """Return the middle of a row, or of one of several parts of it."""
        top = [*self.names].index(name) * self.step + GAP / 2
        return top + LINE * self.lines * (turn + 0.5) / turns

    def draw_names(self) -> Iterator[str]:
        """Yield the names, to the left."""
        for name, lines in self.names.items():
            top = self.middle(name) + 4 - 8 * (len(lines) - 1)
            for turn, line in enumerate(lines):
                yield write(line, -8, top + 16 * turn, fill=QUIET, text_anchor="end")


Drawer: TypeAlias = Callable[[SeriesLook, list[Point]], Iterator[str]]
"""What draws the points of a series."""


def _draw_series(chart: Chart, series: Sequence[SeriesLook], draw: Drawer) -> Iterator[str]:
    """Yield the marks of each series as a group."""
    for look in series:
        marks = draw(look, [point for point in chart.points if point.series == look.name])
        yield element("g", *marks, class_="series", color=look.colour, fill=INK)


def _draw_dot(
    chart: Chart, point: Point, shape: str, places: Sequence[tuple[str, float]]
) -> Iterator[str]:
    """Yield a point at the second of its places, over its interval from the first to the third."""
    (x1, y1), (x, y), (x2, y2) = places
    if (x1, y1) != (x2, y2):
        yield rule(x1, y1, x2, y2, INK, stroke_width=2, opacity=0.7)
    yield element("use", say(_describe(chart, point)), href=f"#mark-{shape}", x=x, y=y)


def _draw_box(
    chart: Chart, point: Point, x: float, width: float, y: float, height: float, fill: str
) -> str:
    """Draw a part of a bar, or a cell of a heat map."""
    looks = {"x": _across(x), "width": _across(width), "fill": fill, "stroke": GROUND}
    return element("rect", say(_describe(chart, point)), y=y - height / 2, height=height, **looks)


def _ends(point: Point) -> tuple[float, float, float]:
    """Return the low end of a point, its figure, the high end; thrice the figure without ends."""
    if point.low is None or point.high is None:
        return point.value, point.value, point.value
    return point.low, point.value, point.high


def _known(chart: Chart) -> list[float]:
    """List the figures of a chart, and the ends of their intervals."""
    return [end for point in chart.points for end in _ends(point) if math.isfinite(end)]


def is_wide(values: Sequence[float]) -> bool:
    """Return whether the values need a log axis; zero and less have no place on one."""
    return min(values) > 0 and max(values) / min(values) >= WIDE


def _draw_dots(chart: Chart, series: Sequence[SeriesLook]) -> Drawing:
    """Draw figures of rows by group, or ratios of A and B by verdict, over a band around 1."""
    known, parts, beside = _known(chart), list[str](), dict[str, list[str]]()
    axis = AxisScale.over(known, is_wide(known))
    if chart.threshold is not None:
        low, high = 1 - chart.threshold, 1 + chart.threshold
        axis = AxisScale.over([low, high, *(end for end in known if end > 0)], log=True)
        width = _across(axis.share(high) - axis.share(low))
        parts = [element("rect", x=axis.at(low), width=width, height="100%", fill=BAND)]
        parts += [rule(axis.at(1), 0, axis.at(1), "100%", QUIET)]
    for point in chart.points:
        beside.setdefault(str(point.x), []).append(point.series)
    rows = Rows([*beside], max(map(len, beside.values())))
    parts += [*_draw_axis(axis, chart.unit, rows.height), *rows.draw_names()]
    room = CHARACTER * max(len(_show(chart, point.value)) for point in chart.points) + 10

    def draw_points(look: SeriesLook, points: list[Point]) -> Iterator[str]:
        for point in points:
            row = beside[str(point.x)]
            y = rows.middle(str(point.x), row.index(look.name), len(row))
            places = [(axis.at(end), y) for end in _ends(point)]
            yield from _draw_dot(chart, point, look.shape, places)
            yield write(_show(chart, point.value), places[-1][0], y + 4, dx=9, fill=TEXT)

    parts += _draw_series(chart, series, draw_points)
    return Drawing("\n".join(parts), rows.height, (0, room, BELOW, rows.width))


def _draw_bars(chart: Chart, series: Sequence[SeriesLook]) -> Drawing:
    """Draw bars made of parts, which the ground separates without colour; behind each its sum."""
    begun = {str(point.x): 0.0 for point in chart.points}
    sums = {name: sum(point.value for point in chart.points if point.x == name) for name in begun}
    axis, rows = AxisScale(0.0, 1.16 * max(sums.values()) or 1.0), Rows([*sums], 1)
    parts = [*_draw_axis(axis, chart.unit, rows.height), *rows.draw_names()]

    def draw_parts(_: SeriesLook, points: list[Point]) -> Iterator[str]:
        for point in points:
            name, width = str(point.x), axis.share(point.value)
            x, y = axis.share(begun[name]), rows.middle(name)
            begun[name] += point.value
            yield _draw_box(chart, point, x, width, y, LINE - 4, INK)
            if width >= 0.12:  # of the plot: there is room for its figure
                place, figure = _across(x + width / 2), number(point.value, 3)
                yield write(figure, place, y + 4, fill=GROUND, text_anchor="middle")

    parts += _draw_series(chart, series, draw_parts)
    for name, total in sums.items():
        parts.append(write(number(total, 3), axis.at(total), rows.middle(name) + 4, dx=5))
    return Drawing("\n".join(parts), rows.height, (0, 12, BELOW, rows.width))


def _draw_map(chart: Chart, series: Sequence[SeriesLook]) -> Drawing:
    """Draw a figure over two dimensions: each cell has it in words, on a colour of its size."""
    rows, figures = Rows(chart.series, 2), [point.value for point in chart.points]
    sizes = AxisScale(min(figures), max(figures), is_wide(figures))
    columns = list(dict.fromkeys(str(point.x) for point in chart.points))
    width = 1 / len(columns)
    middles = {_across(width * (place + 0.5)): name for place, name in enumerate(columns)}
    longest = max(map(len, columns))
    slant = SLANT * longest if CHARACTER * longest > NARROW * width else 0.0
    parts = [*_draw_below(chart.x_name, rows.height, middles, slant), *rows.draw_names()]
    for point in chart.points:
        size, y = sizes.share(point.value), rows.middle(point.series)
        x = width * columns.index(str(point.x))
        mixed = (round(low + size * (high - low)) for low, high in zip(*HEAT, strict=True))
        fill = f"rgb({','.join(map(str, mixed))})"
        parts.append(_draw_box(chart, point, x, width, y, rows.step, fill))
        ink = {"fill": "#ffffff" if size >= WHITE_FROM else "#000000", "text_anchor": "middle"}
        parts.append(write(_show(chart, point.value), _across(x + width / 2), y + 4, **ink))
    margin = (0.0, 12.0, BELOW + slant, max(1.2 * slant, rows.width))
    room = CHARACTER * max(len(_show(chart, figure)) for figure in figures) + 6
    return Drawing("\n".join(parts), rows.height, margin, room / width + sum(margin[1::2]))


def _draw_lines(chart: Chart, series: Sequence[SeriesLook]) -> Drawing:
    """Draw lines, intervals of points, the points, arrows over mere lower bounds, and marks."""
    places = [*(float(point.x) for point in chart.points), *(place for place, _ in chart.marks)]
    known, x = _known(chart), AxisScale.over(places, chart.x_scale in ("log", "share"))
    log = is_wide(known) if chart.log_y is None else chart.log_y
    y = AxisScale.over([end for end in known if end > 0 or not log], log)
    above = 24 + MARK_LINE * len(chart.marks)
    beside = CHARACTER * max(map(len, y.labels.values())) + 12
    parts = [write(y.title(chart.unit), -beside, 12 - above, fill=QUIET)]
    for tick, label in y.labels.items():
        parts.append(rule(0, y.down(tick), "100%", y.down(tick), GRID))
        parts.append(write(label, -8, y.down(tick) + 4, fill=QUIET, text_anchor="end"))
    title = chart.x_name if chart.x_scale == "share" else x.title(chart.x_name)
    labels = {x.at(place): label for place, label in _ticks(chart, x).items()}
    parts += _draw_below(title, HEIGHT, labels)
    small, course = len(chart.points) > FEW * len(series), [*_draw_marks(chart.marks, x)]

    def draw_points(look: SeriesLook, points: list[Point]) -> Iterator[str]:
        places = sorted((x.share(float(point.x)), y.down(point.value)) for point in points)
        if look.dash:
            yield _draw_curve(places, look)
        for point in points:
            across, down = x.at(float(point.x)), y.down(point.value)
            ends = [(across, y.down(end)) for end in _ends(point)]
            yield from _draw_dot(chart, point, "dot" if small else look.shape, ends)
            if bound_sign(point.value):
                yield write("\u2191", across, down - 6, text_anchor="middle", font_size=18)

    course += _draw_series(chart, series, draw_points)
    # Of a chart over time a part may be shown alone, with what stands above it.
    inner = element("g", *course, transform=f"translate(0 {above})")
    about = {"data_time": f"{x.low} {x.high}"} if chart.x_scale == "time" else {}
    about |= {"y": f"{-above}", "height": f"{HEIGHT + above}", "overflow": "visible"}
    parts.append(element("svg", inner, class_="course", **about))
    return Drawing("\n".join(parts), HEIGHT, (above, 12, BELOW, beside))


def _draw_curve(places: Sequence[tuple[float, float]], look: SeriesLook) -> str:
    """Draw a line, stretched to the width of the plot."""
    path = " ".join(f"{1000 * x:.1f},{y:.1f}" for x, y in places)
    looks = {"stroke": INK, "stroke_width": "2", "stroke_dasharray": look.dash, "fill": "none"}
    line = element("polyline", points=path, vector_effect="non-scaling-stroke", **looks)
    size = {"viewBox": f"0 0 1000 {HEIGHT}", "preserveAspectRatio": "none", "height": f"{HEIGHT}"}
    return element("svg", line, overflow="visible", **size)


def _draw_marks(marks: Sequence[tuple[float, str]], x: AxisScale) -> Iterator[str]:
    """Yield rules with their words, over the plot, on the side where there is room.

    The farther a rule is from the middle, the higher its words: no rule goes through others."""
    ranked = sorted(marks, key=lambda mark: abs(x.share(mark[0]) - 0.5))
    for turn, (place, words) in enumerate(ranked):
        side = {"dx": "-4", "text_anchor": "end"} if x.share(place) > 0.5 else {"dx": "4"}
        across, up = x.at(place), -8 - MARK_LINE * turn
        yield rule(across, up - 5, across, HEIGHT, QUIET, stroke_dasharray="4 3")
        yield write(words, across, up + 4, fill=QUIET, **side)
