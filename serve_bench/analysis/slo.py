"""Service level objectives and the trials of a row: met, missed or not judged. Pure.

Rule: figures are those of the row: of all its launches, requests without an answer counted. What
the trials cannot decide is not judged, with the reason; it is never met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.statistics import LowerBound, merged
from serve_bench.core.figures import decimals
from serve_bench.core.histogram import Histogram, bounded, slot_middle
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.result import Trial
from serve_bench.core.slo import LATENCY, Objective, Slo, share_text, time_text

SloWord: TypeAlias = Literal["met", "missed", "not judged"]

NOISE: Final = 1e-12
"""Shares this close are equal: they are ratios of whole numbers."""


@dataclass(frozen=True)
class Judgement:
    """One objective and a row."""

    objective: Objective
    value: float | None  # ns, or a share of 1; a LowerBound if no more is known
    met: bool | None  # None where it is not judged, for the reason `why_not`
    # Share of the limit that is left, below 0 what is missing; of goodput in shares of all
    # requests. None: not known, or the limit is 0.
    margin: float | None = None
    why_not: str = ""

    @property
    def word(self) -> SloWord:
        """`met`, `missed` or `not judged`."""
        return "not judged" if self.met is None else "met" if self.met else "missed"

    @property
    def value_text(self) -> str:
        """`61.2 ms`, `> 61.2 ms`, `0.12 %`; `-` where it is not known."""
        if self.value is None:
            return "-"
        tell = time_text if self.objective.timed else share_text
        sign = "> " if isinstance(self.value, LowerBound) else ""
        limit, digits = tell(self.objective.limit), 3
        text = tell(float(f"{self.value:.3g}"))
        while text == limit and self.value != self.objective.limit and digits < 9:
            digits += 1  # 50.02 ms is not 50 ms
            text = tell(float(f"{self.value:.{digits}g}"))
        return f"{sign}{text}"

    @property
    def margin_text(self) -> str:
        """`+18.0 %` of the limit, `-22.4 %`; of goodput `-4.10 points`; `-` if not known."""
        if self.margin is None:
            return "-"
        unit = "points" if self.objective.kind == "goodput" else "%"
        percent = 100 * self.margin
        return f"{percent:+,.{decimals(percent, 3)}f} {unit}"

    @property
    def text(self) -> str:
        """`p99 61.2 ms is above 50 ms (-22.4 %)`; that it is within, or why it is not judged."""
        objective = self.objective
        if self.met is None:
            return self.why_not
        bad, good = ("below", "not below") if objective.kind == "goodput" else ("above", "within")
        tell = time_text if objective.timed else share_text
        margin = f" ({self.margin_text})" if self.margin is not None else ""
        where = good if self.met else bad
        return f"{objective.name} {self.value_text} is {where} {tell(objective.limit)}{margin}"


@dataclass(frozen=True)
class RowSlo:
    """A row and its judgements, in the order of the objectives."""

    name: str
    judgements: tuple[Judgement, ...]

    @property
    def worst(self) -> Judgement:
        """The judgement that decides.

        It is of the objective that is missed by most, else of one that is not judged, else of the
        one with the least margin."""
        for met in (False, None, True):
            those = [judgement for judgement in self.judgements if judgement.met is met]
            if those:
                with_margin = [judgement for judgement in those if judgement.margin is not None]
                return min(with_margin or those, key=lambda judgement: judgement.margin or 0.0)
        raise ValueError("an SLO has an objective")

    @property
    def word(self) -> SloWord:
        """`met` where all objectives are, `missed` where one is."""
        return self.worst.word


def judge(slo: Slo, trials: Sequence[Trial]) -> tuple[Judgement, ...]:
    """Judge each objective over the trials of a row. Raises FormatError for a damaged histogram."""
    names = {objective.metric for objective in slo.objectives}
    names |= {CENSORED_BY[name] for name in names}
    histograms = {name: merged(trials, name) for name in names}
    return tuple(_judged(objective, trials, histograms) for objective in slo.objectives)


def _judged(
    objective: Objective, trials: Sequence[Trial], histograms: Mapping[str, Histogram]
) -> Judgement:
    if not trials:
        return _open(objective, "not measured")
    completed = sum(trial.counts.completed for trial in trials)
    failed = sum(trial.counts.failed_total + trial.unanswered for trial in trials)
    answered = histograms[objective.metric]
    if objective.kind in ("errors", "goodput"):
        if not completed + failed:
            return _open(objective, "no request was measured")
        if objective.kind == "errors":
            of_class = (trial.counts.failed.get(objective.error or "", 0) for trial in trials)
            wrong = failed if objective.error is None else sum(of_class)
            return _at_most(objective, wrong / (completed + failed))
        share = _within(answered, objective.within_ns or 0.0) / (completed + failed)
        margin = share - objective.limit
        return Judgement(objective, share, margin >= -NOISE, margin)
    given_up = histograms[CENSORED_BY[objective.metric]]
    if answered.count + given_up.count:
        return _timed(objective, answered, given_up)
    none = f"no {objective.metric} was measured"
    return _open(objective, none if completed else "no request was answered")


def _timed(objective: Objective, answered: Histogram, given_up: Histogram) -> Judgement:
    """Judge a percentile or a mean.

    One that depends on requests without an answer is between that with each at the time that it was
    waited for, and that with each at infinity."""
    count = answered.count + given_up.count
    waits, end = _OF.get(objective.metric, _OF[LATENCY])
    if count < objective.fewest:
        needs = f"{objective.name} needs {objective.fewest:,} {waits}"
        return _open(objective, f"{needs}, {count:,} were measured")
    low: float | None
    if objective.share is None:
        low, open_ = answered.joined(given_up).mean, given_up.count > 0
        surely = False
    else:
        ((low, open_),) = bounded(answered, given_up, (objective.share,))
        surely = _within(answered, objective.limit) >= math.ceil((objective.share - 1e-9) * count)
    assert low is not None, "there are requests"
    if not open_:
        return _at_most(objective, float(low))
    value = LowerBound(low)
    if low > objective.limit:
        return _at_most(objective, value)
    if surely:
        return Judgement(objective, value, True)
    why = f"{objective.name} depends on {given_up.count:,} {waits} without an {end}"
    return Judgement(objective, value, None, why_not=why)


def _at_most(objective: Objective, value: float) -> Judgement:
    margin = (objective.limit - value) / objective.limit if objective.limit else None
    return Judgement(objective, value, value <= objective.limit + NOISE, margin)


_OF: Final = {
    LATENCY: ("requests", "answer"),
    "ttft": ("requests", "event"),
    "itl": ("gaps between events", "end"),
}
"""What a metric is of, and what it waits for."""


def _open(objective: Objective, why: str) -> Judgement:
    return Judgement(objective, None, None, why_not=why)


def _within(histogram: Histogram, limit_ns: float) -> int:
    """Count the values up to the limit, each at the middle of its slot, as in percentiles."""
    most = histogram.max or 0
    return sum(n for index, n in histogram.occupied() if min(slot_middle(index), most) <= limit_ns)
