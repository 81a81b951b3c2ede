"""The capacities of a run: of each cell its rate with an interval, what binds it, what it costs.

Pure; derived from records each time. Rule: the first figure is the capacity; all others stand
beside it and say what it rests on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from serve_bench.analysis.capacity.estimate import ratio
from serve_bench.analysis.capacity.launch import LaunchSearch, Searches, meets
from serve_bench.analysis.capacity.model import Capacity, Probe
from serve_bench.analysis.statistics import latency_figures, merged
from serve_bench.analysis.verdict import Verdict, limited_by
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.result import JsonObject, Result, Traffic, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.slo import LATENCY, Objective, Slo, parse_slo, share_text, time_text
from serve_bench.view.rows import front_of
from serve_bench.view.texts import LOAD_ROLES, cell_title

HEADROOM: Final = 0.8
"""The share of the interval's low end that a service is to run at: a fifth is kept for bursts that
a Poisson load does not have, and for the launch that is slower than these."""

AROUND: Final = (0.7, 1.15)
"""Shares of the capacity between which probes say how steep the boundary is."""

FAR: Final = 3.0
"""Multiples of the limit beyond which a probe says how a service breaks, not how steep it is."""

WIDE: Final = 0.5
"""An interval wider than this share of the capacity is shown without it, as its ends."""

BESIDE: Final = 0.03
"""A probe within this share of the capacity shows what the service does at the boundary."""

NO_LIMIT: Final = ("unclear", "offered load", "client", "connections")
"""Causes of a verdict that say nothing of the service."""

MANY: Final = 200.0
"""From this capacity on, steepness is per 100 requests/s; below, per 1 request/s."""


def searches_of(result: Result) -> Searches:
    """The searches of the records of a run. Raises FormatError for a damaged suite."""
    asked = built(CapacitySearch, result.run.suite.get("capacity"), "suite.capacity")
    try:
        slo = parse_slo(asked.slo, "suite.capacity.slo")
    except BadInput as error:
        raise FormatError(str(error)) from None
    rows = result.run.plan
    traffic = rows[0].row.traffic if rows else None
    return Searches(asked, slo, traffic, front_of(result.run.suite), result)


@dataclass(frozen=True)
class ProbeLine:
    """A probe as it is shown. `values`: of each objective, in its own unit, None where it cannot be
    told; `number` counts the probes of its launch."""

    round: int
    number: int
    trial: Trial
    probe: Probe
    values: tuple[float | None, ...]
    meets: bool

    @property
    def word(self) -> str:
        """What it says of the service."""
        if not self.probe.whole:
            return "broken off"
        if not self.probe.steady:
            return "scaled"
        if self.meets:
            return "met"
        if any(one.value is None for one in self.probe.slices.values()):
            return "no request"
        return "client" if self.probe.client_bound else "missed"


@dataclass(frozen=True)
class CellCapacity:
    """The capacity of a cell under a variant, over its launches.

    `name`: what sets it apart from the others of the run, empty where there is one. `searches`: all
    that measured a probe; `ended`: those that the capacity is made of, in the order of its
    launches. `ratio`: to the first of the run with its 95 % interval, None for the first and where
    either has no interval over launches.
    """

    name: str
    variant: str
    cell: JsonObject
    asked: CapacitySearch
    slo: Slo
    searches: tuple[LaunchSearch, ...]
    ended: tuple[LaunchSearch, ...]
    capacity: Capacity
    fresh: bool
    ratio: tuple[float, float, float] | None = None

    @cached_property
    def probes(self) -> tuple[ProbeLine, ...]:
        """All of them, launch by launch in the order in which they were measured."""
        return tuple(
            ProbeLine(
                one.round,
                number_of,
                trial,
                probe,
                tuple(value_of(objective, probe, trial) for objective in self.slo.objectives),
                meets(probe, one.bounds),
            )
            for one in self.searches
            for number_of, (trial, probe) in enumerate(zip(one.trials, one.probes, strict=True), 1)
        )

    @property
    def traffic(self) -> Traffic:
        """What each request is."""
        return self.searches[0].traffic or Traffic()

    @property
    def boundary(self) -> tuple[ProbeLine, ...]:
        """The probes at the capacity: those within BESIDE of it, else the nearest that met."""
        rate = self.capacity.rate or self.capacity.low or self.capacity.high
        whole = [probe for probe in self.probes if probe.probe.whole and probe.probe.steady]
        if rate is None or not whole:
            return ()
        near = [one for one in whole if abs(math.log(one.probe.rate / rate)) <= BESIDE]
        met = [one for one in whole if one.meets] or whole
        return tuple(near) or (min(met, key=lambda one: abs(math.log(one.probe.rate / rate))),)

    @property
    def beyond(self) -> ProbeLine | None:
        """The missed probe with the lowest rate above the capacity."""
        rate = self.capacity.rate or self.capacity.low or 0.0
        above = [one for one in self.probes if one.word == "missed" and one.probe.rate >= rate]
        return min(above, key=lambda one: one.probe.rate, default=None)

    @cached_property
    def limit(self) -> Verdict | None:
        """What keeps the service from more: the verdict of the probe beyond; where that names none,
        of the closed loops. None where none of them does."""
        trials = [] if self.beyond is None else [self.beyond.trial]
        trials += [one.closed for one in self.searches if one.closed is not None]
        front = self.searches[0].front if self.searches else None
        verdicts = [limited_by(one, front) for one in trials if one.usage]
        return next((one for one in verdicts if one.cause not in NO_LIMIT), None)

    @property
    def binds(self) -> str | None:
        """The objective that sets the capacity, in most of the launches."""
        names = [one.binds for one in self.capacity.launches if one.binds is not None]
        return statistics.mode(names) if names else None

    @property
    def binding(self) -> Objective | None:
        """The same as an objective."""
        return next((one for one in self.slo.objectives if one.name == self.binds), None)

    @property
    def next_bound(self) -> tuple[str, float] | None:
        """The objective that would bind next, and its rate."""
        every = [one.next for one in self.capacity.launches if one.next is not None]
        others = (one for one in every if one[0] != self.binds)
        return min(others, key=lambda one: one[1], default=None)

    @property
    def bracket(self) -> tuple[float | None, float | None]:
        """The highest rate that met below every one that missed, and the lowest that missed."""
        whole = [one for one in self.probes if one.word in ("met", "missed")]
        high = min((one.probe.rate for one in whole if one.word == "missed"), default=math.inf)
        met = (one.probe.rate for one in whole if one.word == "met" and one.probe.rate < high)
        return max(met, default=None), high if high < math.inf else None

    @property
    def cliff(self) -> bool:
        """Whether it breaks instead of slowing down, in most of the launches."""
        cliffs = [one.cliff for one in self.capacity.launches]
        return bool(cliffs) and statistics.fmean(cliffs) > 0.5

    @property
    def ceiling(self) -> str | None:
        """Where it is a lower bound alone "client", where no rate met the SLO "floor"."""
        kinds = {one.ceiling for one in self.capacity.launches}
        ended = all(one.finished for one in self.ended)  # else more probes would have followed
        kind = kinds.pop() if ended and len(kinds) == 1 else None
        return None if kind == "client" and self.capacity.low is None else kind

    @property
    def steepness(self) -> float | None:
        """How fast the time that binds rises at the boundary, ms for each request/s more: least
        squares over the probes AROUND the capacity; None where too few tell."""
        one, rate = self.binding, self.capacity.rate
        if one is None or rate is None or not one.timed:
            return None
        at = self.slo.objectives.index(one)
        points = [
            (line.probe.rate, value)
            for line in self.probes
            if AROUND[0] * rate <= line.probe.rate <= AROUND[1] * rate
            and (value := line.values[at]) is not None
            and value <= FAR * one.limit
            and line.probe.whole
        ]
        if len({x for x, _ in points}) < 3:
            return None
        return statistics.linear_regression(*zip(*points, strict=True)).slope / 1e6

    @property
    def closed(self) -> tuple[float, dict[str, float | None]] | None:
        """Requests/s of the closed loops before the search, mean over launches, and their p99 in
        ns by name: of latency, and of each metric of the SLO."""
        trials = [one.closed for one in self.searches if one.closed is not None]
        rates = [one.closed_rate for one in self.searches if one.closed_rate is not None]
        if not rates:
            return None
        metrics = dict.fromkeys((LATENCY, *(one.metric for one in self.slo.objectives)))
        p99s = {p99_of(name): latency_figures(trials, (0.99,), name)[0] for name in metrics}
        return statistics.fmean(rates), p99s

    @property
    def cores(self) -> float | None:
        """Cores that all but the load used at the boundary; None where CPU was not sampled."""
        used = [cores_of(one.trial) for one in self.boundary]
        known = [one for one in used if one is not None]
        return statistics.fmean(known) if known else None

    @property
    def per_core(self) -> float | None:
        """Requests/s for each core that is used at the boundary."""
        rates = [one.probe.rate for one in self.boundary if cores_of(one.trial)]
        return statistics.fmean(rates) / self.cores if rates and self.cores else None

    @property
    def wide(self) -> bool:
        """Whether the interval is too wide for a capacity to be named."""
        width = self.capacity.width
        return width is not None and width > WIDE

    @property
    def safe_rate(self) -> float | None:
        """A rate to run at: HEADROOM of the low end of the interval; None where it is WIDE."""
        low = self.capacity.low
        return None if low is None or self.wide else HEADROOM * low

    def holds(self, rate: float) -> bool | None:
        """Whether the rate is held with 95 %; None where the interval does not tell."""
        low, high = self.capacity.low, self.capacity.high
        if low is not None and low >= rate:
            return True
        return False if high is not None and high < rate else None


def p99_of(metric: str) -> str:
    """`p99`, `ttft_p99`."""
    return "p99" if metric == LATENCY else f"{metric}_p99"


def value_of(one: Objective, probe: Probe, trial: Trial) -> float | None:
    """What a probe has for an objective: ns of a percentile or mean, else a share."""
    if one.share is not None:
        return latency_figures([trial], (one.share,), one.metric)[0]
    value = probe.slices[one.name].value
    return 1 - value if one.kind == "goodput" and value is not None else value


def cores_of(trial: Trial) -> float | None:
    """Cores that the processes of the server used; None where none was sampled."""
    used = [
        float(one.get("cpu_percent") or 0.0)
        for one in trial.usage.get("processes", ())
        if one.get("role") not in LOAD_ROLES
    ]
    return sum(used) / 100 if used else None


def cells_of(result: Result) -> tuple[CellCapacity, ...]:
    """The capacities of a run, in the order of its plan. Raises FormatError."""
    searches = searches_of(result)
    cells: dict[str, JsonObject] = {cell_slug(one.cell): one.cell for one in result.run.plan}
    planned = dict.fromkeys((one.variant, cell_slug(one.cell)) for one in result.run.plan)
    places = [place for place in planned if searches.of(place)]
    variants = len({variant for variant, _ in places}) > 1
    several = len({slug for _, slug in places}) > 1
    every: list[CellCapacity] = []
    for variant, slug in places:
        words = [variant] if variants else []
        words += [cell_title(cells[slug])] if several else []
        of = CellCapacity(
            ", ".join(words),
            variant,
            cells[slug],
            searches.asked,
            searches.slo,
            tuple(searches.of((variant, slug))),
            tuple(searches.ended((variant, slug))),
            searches.capacity((variant, slug)),
            fresh="urls" not in result.run.suite,
        )
        if every and all(one.capacity.spread is not None for one in (every[0], of)):
            of = replace(of, ratio=ratio(every[0].capacity, of.capacity))
        every.append(of)
    return tuple(every)


# In words.


def rate_text(rate: float | None) -> str:
    """`1,240` of a capacity: three digits, as its interval supports."""
    return "-" if rate is None else number(rate, 3) if rate < 1000 else f"{rate:,.0f}"


def headline(one: CellCapacity) -> str:
    """`capacity 1,240 req/s (95 %: 1,180 to 1,290, 3 launches) at p99 <= 50 ms`."""
    has, name = one.capacity, f"{one.name}: " if one.name else ""
    launches = len(has.launches)
    noun = (
        counted(launches, "launch", "launches")
        if one.fresh
        else counted(launches, "search", "searches")
    )
    at = f"at {one.slo.text}"
    if one.ceiling == "floor":
        return f"{name}no capacity: {_floor(one)} ({noun})"
    if one.ceiling == "client":
        could = f"{rate_text(has.low)} req/s, as much as the client could send"
        return f"{name}capacity at least {could} ({noun}) {at}"
    if has.rate is None or one.wide:
        low, high = one.bracket if has.rate is None else (has.low, has.high)
        ends = [] if low is None else [f"above {rate_text(low)}"]
        ends += [] if high is None else [f"below {rate_text(high)}"]
        between = " and ".join(ends) or "not known in"
        return f"{name}capacity {between} req/s, not closer yet ({noun}) {at}"
    inside = f"95 %: {rate_text(has.low)} to {rate_text(has.high)}, {noun}"
    return f"{name}capacity {rate_text(has.rate)} req/s ({inside}) {at}"


def _floor(one: CellCapacity) -> str:
    """That no rate met the SLO down to the lowest probe, and why that one missed."""
    judged = [line for line in one.probes if line.word == "missed"] or list(one.probes)
    lowest = min(judged, key=lambda line: line.probe.rate)
    misses = [
        f"{objective.name} is {figure_text(objective, value)}"
        for objective, value in zip(one.slo.objectives, lowest.values, strict=True)
        if value is not None and not objective.met_by(value)
    ]
    rate, why = rate_text(lowest.probe.rate), " and ".join(misses)
    return f"no rate down to {rate} req/s meets {one.slo.text}{f'; there {why}' if why else ''}"


def figure_text(one: Objective, value: float | None) -> str:
    """A value of an objective with its unit."""
    if value is None:
        return "-"
    return (time_text if one.timed else share_text)(_digits(value))


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def sentences_of(cells: Sequence[CellCapacity]) -> Iterator[str]:
    """What the run supports: the headline of each cell, then what binds, the boundary, the closed
    loop, the client, a rate to run at; of several cells the best and the cheapest."""
    for one in cells:
        yield headline(one)
    if len(cells) == 1:
        yield from about(cells[0])
    elif cells:
        yield from _across(cells)


def about(one: CellCapacity) -> Iterator[str]:
    """What stands beside a capacity."""
    yield from binding_words(one)
    yield from boundary_words(one)
    yield from closed_words(one)
    yield from client_words(one)
    if one.safe_rate is not None and one.ceiling != "floor":
        yield (
            f"to run at: {rate_text(one.safe_rate)} req/s, "
            f"{100 * (1 - HEADROOM):.0f} % below the low end of the interval"
        )


def binding_words(one: CellCapacity) -> Iterator[str]:
    """What binds, what would bind next, and what limits the service there."""
    if one.binds is None:
        return
    objective = one.binding
    text = f"what binds: {objective.text if objective is not None else one.binds}"
    if (then := one.next_bound) is not None:
        text += f"; {then[0]} would be next, at {rate_text(then[1])} req/s"
    yield text
    if one.limit is None:
        yield "what limits the service there was not seen"
    else:
        where = (
            "in the closed loop"
            if one.beyond is None
            else f"at {rate_text(one.beyond.probe.rate)} req/s"
        )
        yield f"limit {where}: {one.limit.text}"


def boundary_words(one: CellCapacity) -> Iterator[str]:
    """How steep it is, or that it is a cliff and what fails beyond."""
    has = one.capacity
    if one.cliff:
        lows = [at.low for at in has.launches if at.low is not None]
        highs = [at.high for at in has.launches if at.high is not None]
        text = "a cliff"
        if lows and highs:
            text += f" between {rate_text(min(lows))} and {rate_text(max(highs))} req/s"
        yield f"{text}{_beyond_words(one)}"
    elif (slope := one.steepness) is not None and one.binding is not None and has.rate is not None:
        step = 100 if has.rate >= MANY else 1
        yield (
            f"boundary: {one.binding.name} rises by {number(slope * step, 3)} ms for each "
            f"{'100 requests/s' if step > 1 else 'request/s'} more"
        )


def _beyond_words(one: CellCapacity) -> str:
    if one.beyond is None:
        return ""
    counts = one.beyond.trial.counts
    asked = max(1, counts.completed + counts.failed_total + counts.in_flight + counts.unsent)
    failed = [f"{100 * n / asked:.2g} % {name}" for name, n in counts.failed.items() if n]
    late = counts.in_flight + counts.unsent
    failed += [f"{100 * late / asked:.2g} % without an answer"] if late else []
    words = ", ".join(failed) or ", ".join(
        f"{objective.name} {figure_text(objective, value)}"
        for objective, value in zip(one.slo.objectives, one.beyond.values, strict=True)
        if value is not None and not objective.met_by(value)
    )
    return f"; beyond it, at {rate_text(one.beyond.probe.rate)} req/s: {words}"


def closed_words(one: CellCapacity) -> Iterator[str]:
    """What a closed loop says, and why that is no capacity."""
    if (closed := one.closed) is None:
        return
    rate, p99s = closed
    name = p99_of(LATENCY if one.binding is None else one.binding.metric)
    p99 = p99s[name]
    waits = "" if p99 is None else f" at {name} {time_text(_digits(p99))}"
    trials = [each.closed for each in one.searches if each.closed is not None]
    failed = sum(trial.counts.failed_total for trial in trials)
    every = failed + sum(trial.counts.completed for trial in trials)
    waits += f" (and {100 * failed / every:.2g} % of its requests failed)" if failed else ""
    yield (
        f"a closed loop of {counted(one.asked.connections, 'connection')} says "
        f"{rate_text(rate)} req/s{waits}: it waits for each answer before it sends, so no queue "
        "grows; users do not wait for each other"
    )


def client_words(one: CellCapacity) -> Iterator[str]:
    """What the client proved: how late it sent, and whether it was ever the limit."""
    whole = [line for line in one.probes if line.probe.whole]
    if not whole:
        return
    bound = sum(line.word == "client" for line in whole)
    lag = merged([line.trial for line in whole if line.meets], "send_lag").percentile(0.99)
    late = "" if lag is None else f", sent at most {time_text(float(f'{lag:.2g}'))} late (p99)"
    if bound:
        yield f"client: the limit in {bound} of {counted(len(whole), 'probe')}{late}"
    else:
        yield f"client: never the limit in {counted(len(whole), 'probe')}{late}"


def _across(cells: Sequence[CellCapacity]) -> Iterator[str]:
    """Of several cells: the highest, and the cheapest that holds what is needed."""
    known = [one for one in cells if one.capacity.rate is not None]
    if not known:
        return
    best = max(known, key=lambda one: one.capacity.rate or 0.0)
    text = f"highest: {best.name}"
    if best.ratio is not None:
        middle, low, high = best.ratio
        text += f", {middle:.2f} x {cells[0].name} (95 %: {low:.2f} to {high:.2f})"
    yield text
    cheap = max(
        (one for one in known if one.per_core), key=lambda one: one.per_core or 0, default=None
    )
    if cheap is not None:
        yield f"most for a core: {cheap.name}, {rate_text(cheap.per_core)} req/s per core used"


def needed(cells: Sequence[CellCapacity]) -> CellCapacity | None:
    """The cell that holds the needed rate with the fewest cores used; None if none does, or no
    rate is needed."""
    if not cells or (rate := cells[0].asked.need) is None:
        return None
    able = [one for one in cells if one.holds(rate)]
    return min(able, key=lambda one: (one.cores is None, one.cores or 0.0), default=None)


def need_words(cells: Sequence[CellCapacity]) -> Iterator[str]:
    """Which cell holds the needed rate."""
    if not cells or (rate := cells[0].asked.need) is None:
        return
    best = needed(cells)
    if best is None:
        open_ = [one for one in cells if one.holds(rate) is None and one.ceiling is None]
        why = "; not known closely enough" if open_ else ""
        yield f"{rate_text(rate)} req/s: no cell is proven to hold it{why}"
        return
    which = f"the cheapest cell that holds it is {best.name}" if len(cells) > 1 else "held"
    cores = "" if best.cores is None else f", with {best.cores:.2f} cores used at its capacity"
    yield f"{rate_text(rate)} req/s: {which}{cores}"


def gate(result: Result) -> list[str]:
    """Why the run breaks its gate: no rate meets the SLO, or no cell is proven to hold the needed
    one."""
    cells = cells_of(result)
    if cells and all(one.ceiling == "floor" for one in cells):
        return [headline(one) for one in cells]
    if cells and cells[0].asked.need is not None and needed(cells) is None:
        return list(need_words(cells))
    return []


def latency_of(line: ProbeLine, share: float) -> float | None:
    """A percentile of a probe, ns."""
    return latency_figures([line.trial], (share,))[0]
