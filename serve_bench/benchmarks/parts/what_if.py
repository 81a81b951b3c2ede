"""What-if of a run, in words and as JSON: by the scalability law, and by operational bounds.

Rule: a prediction begins with that word, and what predicts nothing says why. The laws are in
analysis/usl.py and analysis/operational.py. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.operational import RateBound, WhatIf
from serve_bench.analysis.statistics import Spread
from serve_bench.analysis.usl import Range, UslFit, UslPoint
from serve_bench.benchmarks.parts.about_run import Formula
from serve_bench.core.charts import LinePoint
from serve_bench.core.document import Block, Detail, Facts, Prose, Section

PREDICTED: Final = "USL, predicted"
"""The series of a chart."""

FORMULAS: Final[tuple[Formula, Formula]] = (
    (
        "prediction (USL)",
        "X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1)), weighted least squares, peak at "
        "sqrt((1 - sigma) / kappa); 95 %: parametric bootstrap; none where a point is off by 5 % "
        "and three times its error",
        "Gunther 1993, 2007; serve_bench/analysis/usl.py",
    ),
    (
        "prediction",
        "X <= c / D with D = CPU seconds per request; c: from the level at which a core (or all of "
        "the host) is full, 90 % or where it limits here, to 100 %",
        "Denning and Buzen 1978; serve_bench/analysis/operational.py",
    ),
)


def what_if_section(
    rows: Sequence[tuple[str, Sequence[WhatIf]]], fits: Sequence[tuple[str, UslFit]] = ()
) -> Iterator[Section]:
    """The section: the fits, then the bounds of rows, each by its name (empty for the only one). It
    lies with the tables if anything is predicted, else further down."""
    texts = [(name, fit.text, fit.holds) for name, fit in fits]
    texts += [(name, one.text, not one.why_not) for name, own in rows for one in own]
    if texts:
        named = any(name for name, _, _ in texts)
        block: Block = Prose(tuple(f"{text}." for _, text, _ in texts), listed=True)
        block = Facts(tuple((name, text) for name, text, _ in texts)) if named else block
        detail: Detail = "table" if any(known for _, _, known in texts) else "further"
        yield Section("what-if", "What if", (block,), detail)


def point_of(n: int, rates: Sequence[float], spread: Spread | None) -> UslPoint:
    """A point of a fit: the rates of launches at N. Of a single launch the std of its windows
    stands for the error of their mean, as launches and steps differ more than windows."""
    mean = statistics.fmean(rates)
    if len(rates) > 1 and mean > 0:
        error = statistics.stdev(rates) / math.sqrt(len(rates))
        return UslPoint(n, mean, error / mean, len(rates) - 1)
    if spread is None or spread.windows < 2 or not spread.std or not spread.mean:
        return UslPoint(n, mean)
    return UslPoint(n, mean, spread.std / spread.mean, 1)


def predicted(fit: UslFit) -> list[LinePoint]:
    """The curve for a chart, at the measured N and at the end of its reach; empty without one."""
    if not fit.holds:
        return []
    at = [*(one.n for one in fit.points), fit.reach]
    return [LinePoint(n, rate.value, rate.low, rate.high) for n in at for rate in [fit.at(n)]]


def usl_json(fit: UslFit) -> dict[str, Any]:
    """A fit for programs; null: not known, or infinite."""
    made = fit.curve is not None
    return {
        "holds": fit.holds,
        "why_not": fit.why_not,
        "lambda": _range(fit.one) if made else None,
        "sigma": _range(fit.sigma) if made else None,
        "kappa": _range(fit.kappa) if made else None,
        "peak": _range(fit.peak) if fit.holds else None,
        "peak_requests_per_s": _range(fit.peak_rate) if fit.holds else None,
        "reach": fit.reach,
        "requests_per_s_at_reach": _range(fit.at(fit.reach)) if fit.holds else None,
        "farthest": fit.farthest and {"n": fit.farthest[0], "off": fit.farthest[1]},
        "text": fit.text,
    }


def _range(one: Range) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(one).items()}


def what_if_json(every: Sequence[WhatIf]) -> list[dict[str, Any]]:
    """Predictions for programs; no rates where `why_not` says why there is none."""
    return [
        {
            "change": asdict(one.change),
            "words": one.words,
            "measured_requests_per_s": None if one.why_not else one.measured,
            **_ends(None if one.why_not else one),
            "limits": list(one.limits),
            "next": one.then and {"name": one.then.name, **_ends(one.then)},
            "doubts": list(one.doubts),
            "ground": one.ground,
            "why_not": one.why_not,
            "text": one.text,
        }
        for one in every
    ]


def _ends(one: WhatIf | RateBound | None) -> dict[str, float | None]:
    low, high = (None, None) if one is None else (one.low, one.high)
    return {"low_requests_per_s": low, "high_requests_per_s": high}
