"""The charts of a run of rpc: rates and latencies over the x axis, percentiles, episodes, CPU.

Rule: lines join worlds only where the x axis has numbers, as in plot.py; else each world has a
row. Bars of rates are ± the std over episodes, those of latencies reach from p50 to p95.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from serve_bench.analysis.statistics import MAIN, merged
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.charts import Point, Share, Step
from serve_bench.benchmarks.parts.pieces import (
    MOST_LINES,
    busiest_words,
    by_launch,
    curve_of,
    curve_words,
    in_parts,
    span_words,
)
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage
from serve_bench.benchmarks.rpc.summary import AGENT_LATENCY as AGENT_TIMES
from serve_bench.benchmarks.rpc.summary import AGENT_THROUGHPUT, OBSERVER_THROUGHPUT
from serve_bench.benchmarks.rpc.summary import OBSERVER_LATENCY as OBSERVER_TIMES
from serve_bench.benchmarks.rpc.tables import AGENT_LATENCY, OBSERVER_LATENCY
from serve_bench.core.document import Chart

LOG_X: Final = 20.0
LOG_Y: Final = 12.0
"""An axis whose largest value is so many times its smallest is logarithmic: on a linear one the
small half could not be read."""


Value = tuple[float, float | None, float | None]
"""A figure with the ends of its bar."""

EPISODES = "Bars: ± the std over episodes (ddof 0)."


def rate_charts(page: RpcPage) -> Iterator[Chart]:
    """Requests/s of all observers, of the agent and of an observer, by their mean over episodes."""
    for title, name in (
        ("Calls of all observers", MAIN),
        ("Agent throughput", AGENT_THROUGHPUT),
        ("Observer throughput", OBSERVER_THROUGHPUT),
    ):
        values = {
            id(one): (spread.mean, max(0.0, spread.mean - spread.std), spread.mean + spread.std)
            for one in page.entries
            if (spread := one.point.line.spreads.get(name)) is not None
        }
        mean = "" if name == MAIN else " The mean over the batches or calls of an episode."
        yield from _over_x(page, title, values, "requests/s", EPISODES + mean)


def latency_charts(page: RpcPage) -> Iterator[Chart]:
    """Latency of agent and observer: the median, with a bar up to p95."""
    for title, name in (("Agent latency", AGENT_LATENCY), ("Observer latency", OBSERVER_LATENCY)):
        values = {}
        for one in page.entries:
            if name in one.point.figures:
                shares = one.point.figures[name].percentiles
                values[id(one)] = (1e3 * shares[50], 1e3 * shares[50], 1e3 * shares[95])
        yield from _over_x(page, title, values, "ms", "The median; bars reach up to p95.")


def _over_x(
    page: RpcPage, title: str, values: Mapping[int, Value], unit: str, caption: str
) -> Iterator[Chart]:
    """A chart of one figure of the entries, by their id: lines over numbers, else rows."""
    own = [one for one in page.entries if id(one) in values]
    if not own:
        return
    words = f"{title} over {page.x_axis}, {unit}. " + "; ".join(
        f"{one.title}: {_text(values[id(one)][0], unit)}" for one in own
    )
    places = _places(page.xs)
    if places is not None:
        series = {
            backend: [
                Step(places[one.point.x], *values[id(one)])
                for one in own
                if one.point.backend == backend
            ]
            for backend in dict.fromkeys(one.point.backend for one in own)
        }
        every = [values[id(one)][0] for one in own]
        yield charts.ladder(
            title,
            series,
            x_name=page.x_axis,
            unit=unit,
            words=f"{words}.",
            log_x=_far(list(places.values()), LOG_X),
            log_y=_far(every, LOG_Y),
            caption=caption,
        )
        return
    ordered = [one for x in page.xs for one in own if one.point.x == x]
    points = [
        Point(f"{page.x_axis} {one.point.x}", one.point.backend, *values[id(one)])
        for one in ordered
    ]
    yield charts.intervals(title, points, unit=unit, words=f"{words}.", caption=caption)


def _text(value: float, unit: str) -> str:
    return latency(value) if unit == "ms" else number(value)


def _places(xs: Sequence[str]) -> dict[str, float] | None:
    """Where each point stands on an axis of numbers; None where one is no number above 0, or there
    is only one."""
    places = {x: float(x) for x in xs if x.isascii() and x.isdigit() and int(x) > 0}
    return places if len(places) == len(xs) > 1 else None


def _far(values: Sequence[float], factor: float) -> bool:
    """Whether an axis of these values is logarithmic."""
    return min(values) > 0 and max(values) >= factor * min(values)


# ------------------------------------------------------------------------ percentiles, episodes


def percentile_charts(page: RpcPage) -> Iterator[Chart]:
    """All calls and all batches of each world, a chart for each point of the x axis."""
    for title, name in (("Observer latency", OBSERVER_TIMES), ("Agent latency", AGENT_TIMES)):
        for x in page.xs:
            curves = {
                one.point.backend: points
                for one in page.at(x)
                if (points := curve_of(merged(one.point.trials, name)))
            }
            if not curves:
                continue
            said = (curve_words(*pair) for pair in curves.items())
            where = f"{page.x_axis} {x}"
            yield charts.percentile_curves(
                f"{title}, {where}",
                curves,
                words=f"Percentiles of the {title.lower()} with {where}. {'; '.join(said)}.",
            )


def window_charts(page: RpcPage) -> Iterator[Chart]:
    """Calls/s of each episode, a chart for each point of the x axis; for each backend too where
    that would be more lines than are told apart."""
    for x in page.xs:
        found = {
            one.point.backend: by_launch(one.point.backend, one.point.trials) for one in page.at(x)
        }
        where = f"{page.x_axis} {x}"
        together = {name: points for own in found.values() for name, points in own.items()}
        if len(together) <= MOST_LINES:
            yield from _episodes(where, together)
            continue
        for backend, own in found.items():
            yield from _episodes(f"{backend}, {where}", own)


def _episodes(where: str, series: dict[str, list[tuple[float, float]]]) -> Iterator[Chart]:
    for part, own in in_parts(series):
        said = (span_words(*pair) for pair in own.items())
        yield charts.over_time(
            f"Calls of all observers by episode, {where}{part}",
            own,
            unit="requests/s",
            words=f"Requests/s of each episode with {where}. {'; '.join(said)}.",
            caption="A point is an episode, at the mean length of an episode from the last.",
        )


# ----------------------------------------------------------------------------------------- CPU


def cpu_chart(page: RpcPage) -> Iterator[Chart]:
    """CPU of agent, observers and all others, with what was full."""
    shares = [share for x in page.xs for one in page.at(x) for share in _shares(page, one)]
    if shares:
        yield charts.stacked(
            "CPU by process",
            shares,
            unit="% of a core",
            words=busiest_words(shares),
            caption="100 % is one core; others: raylet, controller, the tool. Mean over launches.",
        )


def _shares(page: RpcPage, entry: RpcEntry) -> Iterator[Share]:
    note = f"limited by {entry.use.limited}" if entry.use.limited else ""
    label = entry.title if len(page.backends) > 1 else f"{entry.x_axis} {entry.point.x}"
    for part in ("agent", "observers", "others"):
        value = getattr(entry.use, part)
        if value is not None:
            yield Share(label, part, value, note)
