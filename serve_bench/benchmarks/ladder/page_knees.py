"""The charts of ladders at one step: percentiles and windows at the knee, CPU by process.

Rule: what was seen in a step is shown as it was measured, over its launches; what is drawn over the
steps is in page_charts.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.analysis.verdict import Verdict
from serve_bench.benchmarks.ladder.page_charts import Curve, legend_of
from serve_bench.benchmarks.parts import charts
from serve_bench.benchmarks.parts.pieces import (
    busiest_words,
    by_launch,
    cpu_shares,
    curve_words,
    in_parts,
    latency_curve,
    limit_note,
    span_words,
)
from serve_bench.core.document import Chart
from serve_bench.core.result import Trial


def knee_curves(curves: Sequence[Curve], of: str = "") -> Iterator[Chart]:
    """Percentile curves of all requests at each knee; `of`: what the title adds."""
    series = {
        f"{one.name}, {one.ladder.knee.row.label}": points
        for one in curves
        if one.ladder.knee is not None
        if (points := latency_curve(one.ladder.knee.trials))
    }
    for part, own in in_parts(series):
        said = (curve_words(name, points) for name, points in own.items())
        caption = "Each curve ends at the last percentile that one request lies beyond."
        yield charts.percentile_curves(
            f"Latency at the knee{of}{part}",
            own,
            words=f"Percentiles of the latency at the knee. {'; '.join(said)}.",
            caption=" ".join([caption, *legend_of(curves)]),
        )


def knee_windows(curves: Sequence[Curve], of: str = "") -> Iterator[Chart]:
    """Requests/s of the windows at each knee; none where a row is one window."""
    series: dict[str, list[tuple[float, float]]] = {}
    for one in curves:
        knee = one.ladder.knee
        if knee is not None:
            series |= by_launch(f"{one.name}, {knee.row.label}", knee.trials)
    for part, own in in_parts(series):
        said = (span_words(key, points) for key, points in own.items())
        caption = "Seconds since the first window, each point at the middle of its window."
        yield charts.over_time(
            f"Requests/s at the knee, window by window{of}{part}",
            own,
            unit="requests/s",
            words=f"Requests/s of each window at the knee. {'; '.join(said)}.",
            caption=" ".join([caption, *legend_of(curves)]),
        )


def cpu_chart(
    title: str, rows: Sequence[tuple[str, Sequence[Trial], Verdict | None]]
) -> Iterator[Chart]:
    """CPU by process of rows given as (label, trials, what limited them); none where nothing was
    sampled."""
    shares = cpu_shares([(label, trials, limit_note(limit)) for label, trials, limit in rows])
    if shares:
        yield charts.stacked(
            title,
            shares,
            unit="% of a core",
            words=busiest_words(shares),
            caption="All processes of a role together, mean over launches; 100 % is one core.",
        )
