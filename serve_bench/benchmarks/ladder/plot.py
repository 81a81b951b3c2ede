"""Requests/s and latency over the number of clients, a line for each setting, as PNG or SVG.

Rule: a pure function from a Result to bytes, for any run with ladders; every point was measured,
lines only join them. Of a step with several runs the line takes the median, each run is a dot.
matplotlib is needed here alone (extra `plot`) and imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from serve_bench.analysis.statistics import MAIN, Line
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines, services_of
from serve_bench.benchmarks.parts.page import page_of
from serve_bench.benchmarks.parts.published import PRESS, press_table, reference
from serve_bench.benchmarks.parts.texts import host_line
from serve_bench.benchmarks.press.summary import settings_of
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.report.plot_file import AT_LEAST, check_kind, figure_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


#: Okabe and Ito's colours, told apart by people of any colour vision; black is for marks.
_COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#56B4E9", "#E69F00", "#6A3D9A", "#8C6D1F"),
)
_POINTS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
_GREY: Final = "#9a9a9a"


@dataclass(frozen=True)
class _Curve:
    """What is drawn of one setting. Latency in ms; `table`: the published one that is like it."""

    name: str
    ladder: LadderLine
    table: Any = None


def plot_ladders(result: Result, kind: str = "png", *, published: bool = False) -> bytes:
    """The figure as the bytes of a file; `kind` is png or svg.

    `published` adds the published curves of the same device and log level to a press run, in grey.
    Raises BadInput where matplotlib is missing, the kind is another, or nothing was measured.
    """
    check_kind(kind)
    curves = [one for one in _curves(result, published) if one.ladder.rates]
    if not curves:
        raise BadInput("plot: the run holds no ladder with a measured step")
    return figure_bytes(kind, (8.0, 7.6), lambda figure: _draw(figure, curves, result))


def _curves(result: Result, published: bool) -> list[_Curve]:
    if result.run.command == "press":
        return [
            _Curve(
                one.name,
                one.ladder,
                press_table(one.device, one.log_level) if published else None,
            )
            for one in settings_of(result)
        ]
    return [
        _Curve(one.name, one.ladder) for one in services_of(page_of(result), ladder_lines(result))
    ]


def _draw(figure: Figure, curves: Sequence[_Curve], result: Result) -> None:
    word = "users" if "user" in curves[0].ladder.steps[0].row.label else "clients"
    handles = _marks(curves)
    rows = (len(curves) + len(handles) + 1) // 2
    top, upper, lower = figure.subplots(3, 1, height_ratios=(0.24 * rows, 3.1, 3.1))
    lower.sharex(upper)
    upper.tick_params(labelbottom=False)
    named = []
    for at, curve in enumerate(curves):
        colour, point = _COLOURS[at % len(_COLOURS)], _POINTS[at % len(_POINTS)]
        named.append((_rates(upper, curve, colour, point), curve.name))
        _latencies(lower, curve, colour, point)
    for table in {id(one.table): one.table for one in curves if one.table}.values():
        _published(upper, lower, table)
    _axes(upper, lower, curves, word)
    top.axis("off")
    shown = [*named, *handles]
    lines, texts = [line for line, _ in shown], [text for _, text in shown]
    top.legend(lines, texts, loc="upper left", ncols=2, fontsize=8, frameon=False)
    launches = max(len(one.ladder.rounds) for one in curves)
    several = f", mean of {launches} launches" if launches > 1 else ""
    title = f"serve-bench {result.run.command}: requests/s and latency{several}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    row = curves[0].ladder.steps[0].row
    each = "" if row.requests_each is None else f" and sends {row.requests_each} requests"
    foot = (
        f"client: {row.client}, closed loop; each of the {word} is a connection{each}\n"
        f"run {result.run.id}, {result.run.started_at}\nhost: {host_line(result.run.host)}"
    )
    figure.supxlabel(foot, fontsize=7, color="#555555", x=0.01, ha="left")


def _rates(axes: Axes, curve: _Curve, colour: str, point: str) -> Line2D:
    """The median of each step; each run of a step with several; knee, collapse, errors. Returns the
    line that names the setting."""
    ladder, rates = curve.ladder, curve.ladder.rates
    (named,) = axes.plot(
        list(rates), list(rates.values()), color=colour, marker=point, ms=4.5, lw=1.6
    )
    for line in ladder.steps:
        if MAIN in line.spreads and ladder.several(line):
            axes.plot(_users(line), line.spreads[MAIN].mean, ".", color=colour, ms=5, alpha=0.6)
        if MAIN in line.spreads and (line.errors or _cut(line)):
            axes.plot(_users(line), line.spreads[MAIN].mean, **_FAULT)
    if ladder.knee is not None:
        axes.plot(_users(ladder.knee), ladder.rate(ladder.knee), **_KNEE)
    for line in ladder.collapses:
        axes.plot(_users(line), ladder.rate(line), **_COLLAPSE, mfc=colour)
    return named


def _latencies(axes: Axes, curve: _Curve, colour: str, point: str) -> None:
    """p50 and p99 of the run that stands for each step."""
    ladder = curve.ladder
    lines = [line for line in _shown(ladder) if "latency" in line.distributions]
    users = [_users(line) for line in lines]
    p50 = [line.distributions["latency"].p50 / 1e6 for line in lines]
    p99 = [line.distributions["latency"].p99 / 1e6 for line in lines]
    axes.plot(users, p50, color=colour, marker=point, ms=4.5, lw=1.6)
    axes.plot(users, p99, color=colour, lw=1.1, ls=_DASHES)
    for line in lines:
        for share in _open_figures(line):
            value = getattr(line.distributions["latency"], share) / 1e6
            axes.plot(_users(line), value, color=colour, **AT_LEAST)
    for line, value in zip(lines, p50, strict=True):
        if line is ladder.knee:
            axes.plot(_users(line), value, **_KNEE)
        if line in ladder.collapses:
            axes.plot(_users(line), value, **_COLLAPSE, mfc=colour)


def _shown(ladder: LadderLine) -> list[Line]:
    """One line for each sound step: of several runs the one nearest to their median."""
    return [ladder.nearest(users) for users in ladder.rates]


def _published(upper: Axes, lower: Axes, table: Any) -> None:
    """A published table: thin, grey, named at its end. Its latency is the mean: the only one."""
    users = [row["clients"] for row in table["rows"]]
    named = f"{table['device']}, level {table['log_level']}"
    for axes, values in (
        (upper, [row["qps"] for row in table["rows"]]),
        (lower, [row["ave_us"] / 1e3 for row in table["rows"]]),
    ):
        axes.plot(users, values, color=_GREY, lw=0.9, zorder=1)
        axes.annotate(
            named,
            (users[-1], values[-1]),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=6.5,
            color="#777777",
            va="center",
        )


def _axes(upper: Axes, lower: Axes, curves: Sequence[_Curve], word: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    steps = sorted({users for one in curves for users in one.ladder.rates})
    steps = sorted({*steps, *(row["clients"] for one in curves for row in _rows(one.table))})
    lower.set_xscale("log")
    lower.set_yscale("log")
    lower.set_xticks(_ticks(steps))
    lower.xaxis.set_minor_locator(NullLocator())
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    lower.xaxis.set_major_formatter(plain)
    lower.yaxis.set_major_formatter(plain)
    upper.yaxis.set_major_formatter(plain)
    if any(one.table for one in curves):  # another machine: its figures are far from these
        upper.set_yscale("log")
        upper.yaxis.set_major_formatter(plain)
        upper.yaxis.set_minor_formatter(NullFormatter())
    else:
        upper.set_ylim(bottom=0)
    lower.set_xlabel(f"{word} at once (log)")
    upper.set_ylabel("requests/s" + (" (log)" if upper.get_yscale() == "log" else ""))
    lower.set_ylabel("latency in ms (log)")
    for axes in (upper, lower):
        axes.grid(True, which="major", color="#e4e4e4", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    pair: list[Any] = [
        Line2D([], [], color="#444444", lw=1.6),
        Line2D([], [], color="#444444", lw=1.1, ls=_DASHES),
    ]
    words = ["p50", "p99"]
    if any(one.table for one in curves):
        pair.append(Line2D([], [], color=_GREY, lw=0.9))
        words.append("published: mean")
    lower.legend(pair, words, loc="upper left", fontsize=8, frameon=False)


def _marks(curves: Sequence[_Curve]) -> list[tuple[Line2D, str]]:
    """What the marks mean, as far as they occur."""
    from matplotlib.lines import Line2D

    lines = [(one.ladder, line) for one in curves for line in one.ladder.steps]
    marks = [(Line2D([], [], **_KNEE), "knee: fewest with 95 % of the best")]
    if any(one.ladder.collapses for one in curves):
        shown = Line2D([], [], **_COLLAPSE, mfc="#888888")
        marks.append((shown, "collapse: below 80 % of the best"))
    if any(line.errors or _cut(line) for _, line in lines):
        marks.append((Line2D([], [], **_FAULT), "some requests failed or were cut"))
    if any(_open_figures(line) for one in curves for line in _shown(one.ladder)):
        arrow = Line2D([], [], color="#555555", **AT_LEAST)
        marks.append((arrow, "latency is at least this: some had no answer"))
    if any(ladder.several(line) for ladder, line in lines):
        dot = Line2D([], [], color="#555555", marker=".", ls="", ms=5, alpha=0.6)
        marks.append((dot, "one run of a step measured again"))
    if any(one.table for one in curves):
        told = f"PUBLISHED, not measured here: {reference(PRESS)['hardware']}"
        marks.append((Line2D([], [], color=_GREY, lw=0.9), told))
    return marks


def _ticks(steps: Sequence[int]) -> list[int]:
    """The steps that were measured, but for those whose numbers would touch: one takes about a
    fourteenth of the axis."""
    kept: list[int] = []
    apart = (steps[-1] / steps[0]) ** (1 / 14)
    for step in steps:
        if not kept or step >= apart * kept[-1]:
            kept.append(step)
    if kept[-1] != steps[-1]:  # the last is always named
        kept = [step for step in kept if steps[-1] >= apart * step] + [steps[-1]]
    return kept


def _rows(table: Any) -> Any:
    return [] if table is None else table["rows"]


def _users(line: Line) -> int:
    return line.row.connections


def _cut(line: Line) -> bool:
    return any(trial.flags.get("cut") for trial in line.trials)


def _open_figures(line: Line) -> list[str]:
    """Which of the latencies that are drawn are only lower bounds."""
    latency = line.distributions.get("latency")
    return [] if latency is None else [n for n in ("p50", "p99") if n in latency.lower_bounds]


_DASHES: Final = (0, (4, 2))
_KNEE: Final[Mapping[str, Any]] = {
    **{"marker": "D", "ms": 9, "mfc": "none", "mec": "black", "mew": 1.2, "ls": ""},
    "zorder": 5,
}
_COLLAPSE: Final[Mapping[str, Any]] = {
    **{"marker": "X", "ms": 9, "mec": "black", "mew": 1.0, "ls": ""},
    "zorder": 6,
}
_FAULT: Final[Mapping[str, Any]] = {
    **{"marker": "s", "ms": 11, "mfc": "none", "mec": "#B00020", "mew": 1.0, "ls": ""},
    "zorder": 4,
}
