"""How a run of capacity is looked at: of each cell the highest rate at which its SLO is met.

A row is a load: the closed loops of the launches, or a probe. A point is the capacity of a cell, or
what a launch says of it. Rule: the first figure is the capacity; all others stand beside it and say
what it rests on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from serve_bench.analysis.capacity.estimate import ratio
from serve_bench.analysis.capacity.launch import LaunchSearch, Searches, meets
from serve_bench.analysis.capacity.model import Capacity, LaunchEstimate, Probe
from serve_bench.analysis.statistics import MAIN, latency_figures, merged
from serve_bench.analysis.verdict import Verdict
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.result import JsonObject, Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.slo import LATENCY, Objective, Slo, parse_slo, time_text
from serve_bench.view.blocks import cpu_of_rows, statement
from serve_bench.view.charts import Chart, Mark
from serve_bench.view.csv import pick
from serve_bench.view.document import Charts, Finding, Folded, Prose, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_rows, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.names import names_of
from serve_bench.view.rows import Page, front_of, page_of

for _name, _unit, _title, _meaning in (
    ("due_rate", "requests/s", "rate", "requests that were due in a second of a probe"),
    ("probe_s", "s", "s", "measured seconds of a probe"),
    ("slo_time", "ns", "", "what a probe has for an objective that is a time"),
    ("slo_share", "%", "", "what a probe has for an objective that is a share of requests"),
    ("beyond_limit", "%", "", "requests beyond the limit of the objective that binds"),
    ("capacity", "requests/s", "", "the highest rate at which the SLO is met"),
    ("capacity_ratio", "1", "ratio", "the capacity over that of the first cell"),
    ("capacity_spread", "1", "", "standard deviation of the capacities of launches, a share"),
    ("capacity_error", "%", "error", "standard error from blocks of time within a launch"),
    ("met_up_to", "requests/s", "", "the highest rate that met, below all that missed"),
    ("missed_from", "requests/s", "", "the lowest rate above that which missed"),
    ("next_capacity", "requests/s", "", "where the objective that would bind next is met"),
    ("safe_rate", "requests/s", "to run at", "a rate with room for bursts and slower launches"),
    ("boundary_slope", "1", "", "d ln(misses) / d ln(rate) at the capacity"),
    ("steepness", "ms/(req/s)", "", "how fast the time that binds rises at the capacity"),
    ("block_s", "s", "block", "length of the independent blocks of time of a launch"),
    ("correlation_s", "s", "autocorrelation", "autocorrelation time of what is beyond the limit"),
    ("cores_used", "cores", "cores", "cores that all processes but the load use"),
    ("per_core", "requests/s", "per core", "requests/s for each core used at the capacity"),
):
    _shown = {"requests/s": "req/s", "%": "% of requests"}.get(_unit)
    declare(_name, _unit, _meaning, title=_title, shown=_shown, digits=3)

CAPACITIES: Final = TableSpec(
    "Capacity of each cell",
    (
        Field("name", "cell"),
        Field("capacity", head="req/s (95 %)"),
        Field("launches"),
        Field("capacity_ratio", head="(95 %)"),
        Field("cores_used", head="used", detail=True),
        Field("per_core"),
        *(Field("binds", detail=True), Field("nearest", "nearest probes", detail=True)),
        Field("needed"),
    ),
    ("Cores: of all processes but the load.",),
)
LAUNCHES: Final = TableSpec(
    "Each launch for itself",
    (
        *(Field("launch"), Field("capacity"), Field("capacity_error", head="%")),
        *(Field("met_up_to"), Field("missed_from"), Field("binds"), Field("probes")),
        *(Field("blocks", detail=True), Field("block_s", detail=True)),
        Field("correlation_s", detail=True),
    ),
    ("error: standard error from blocks of time within the launch",),
)

HEADROOM: Final = 0.8
"""The share of the interval's low end that a service is to run at: a fifth is kept for bursts that
a Poisson load does not have, and for the launch that is slower than these."""

AROUND: Final = (0.7, 1.15)
"""Shares of the capacity between which probes say how steep the boundary is."""

FAR: Final = 3.0
"""Multiples of the limit beyond which a probe says how a service breaks, not how steep it is."""

WIDE: Final = 0.5
"""An interval wider than this share of the capacity does not name one: its ends are said alone."""

BESIDE: Final = 0.03
"""A probe within this share of the capacity shows what the service does at the boundary."""

NO_LIMIT: Final = ("unclear", "offered load", "client", "connections")
"""Causes of a verdict that say nothing of the service."""

MANY: Final = 200.0
"""From this capacity on, steepness is per 100 requests/s; below, per 1 request/s."""

ENDED: Final = {
    "settled": "the interval is narrow enough, or more launches would not say more",
    "budget": "the budget was used up",
}
TONES: Final[Mapping[str, Tone]] = {
    **{"met": "good", "missed": "bad", "client": "doubt"},
    **{"holds": "good", "does not": "bad", "open": "doubt"},
}


def read_searches(result: Result) -> Searches:
    """The searches of the records of a run. Raises FormatError for a damaged suite."""
    asked = built(CapacitySearch, result.run.suite.get("capacity"), "suite.capacity")
    try:
        slo = parse_slo(asked.slo, "suite.capacity.slo")
    except BadInput as error:
        raise FormatError(str(error)) from None
    traffic = result.run.plan[0].row.traffic if result.run.plan else None
    return Searches(asked, slo, traffic, front_of(result.run.suite), result)


def name_probes(result: Result) -> Result:
    """The run with a row for each probe of each launch: `probe 1.3` is the third of the first."""

    def name(trial: Trial) -> Trial:
        row = replace(trial.row, label=f"probe {trial.round}.{trial.row.run}")
        return trial if trial.row.rate_per_s is None else replace(trial, row=row)

    return replace(result, trials=tuple(map(name, result.trials)))


@dataclass(frozen=True)
class CellCapacity:
    """The capacity of a cell under a variant, over its launches.

    `name`: what sets it apart from the others of the run, empty where there is one. `ended`: the
    searches that the capacity is made of. `loop`: the closed loops, `probes`: those of all
    searches. `ratio`: to the first cell with its 95 % interval, None for that, and where either has
    no interval over launches. `fresh`: the run launched the service.
    """

    name: str
    variant: str
    cell: JsonObject
    asked: CapacitySearch
    slo: Slo
    ended: Sequence[LaunchSearch]
    capacity: Capacity
    loop: ViewRow | None
    probes: Sequence[ViewRow]
    fresh: bool
    ratio: tuple[float, float, float] | None = None

    def select(self, *words: str) -> list[ViewRow]:
        """The probes that say this of the service."""
        return [row for row in self.probes if row.dims["slo"] in words]

    @cached_property
    def boundary(self) -> Sequence[ViewRow]:
        """The probes at the capacity: those within BESIDE of it, else the nearest that met."""
        sound = self.select("met", "missed", "client", "no request")
        rate = self.capacity.rate or self.capacity.low or self.capacity.high
        if rate is None or not sound:
            return ()
        apart = {row.name: abs(math.log(read_rate(row) / rate)) for row in sound}
        near = [row for row in sound if apart[row.name] <= BESIDE]
        return near or [min(self.select("met") or sound, key=lambda row: apart[row.name])]

    @property
    def beyond(self) -> ViewRow | None:
        """The missed probe with the lowest rate above the capacity."""
        rate = self.capacity.rate or self.capacity.low or 0.0
        above = [row for row in self.select("missed") if read_rate(row) >= rate]
        return min(above, key=read_rate, default=None)

    @property
    def limit(self) -> tuple[ViewRow, Verdict] | None:
        """The load that shows what keeps the service from more: the probe beyond; where its verdict
        names nothing of the service, the closed loop."""
        for row in (self.beyond, self.loop):
            verdict = row.entry.limited if row is not None and row.entry is not None else None
            if row is not None and verdict is not None and verdict.cause not in NO_LIMIT:
                return row, verdict
        return None

    @cached_property
    def binding(self) -> Objective | None:
        """The objective that sets the capacity, in most of the launches."""
        names = [launch.binds for launch in self.capacity.launches if launch.binds is not None]
        most = statistics.mode(names) if names else None
        return next((goal for goal in self.slo.objectives if goal.name == most), None)

    @property
    def next_bound(self) -> tuple[str | None, float | None]:
        """The objective that would bind next, and its rate."""
        bounds = [launch.next for launch in self.capacity.launches if launch.next is not None]
        others = [bound for bound in bounds if bound[0] != (self.binding and self.binding.name)]
        return min(others, key=lambda bound: bound[1], default=(None, None))

    @property
    def cliff(self) -> bool:
        """Whether it breaks instead of slowing down, in most of the launches."""
        return statistics.fmean([launch.cliff for launch in self.capacity.launches] or [0]) > 0.5

    @property
    def ceiling(self) -> str | None:
        """Where it is a lower bound alone "client", where no rate met the SLO "floor"."""
        kinds = {launch.ceiling for launch in self.capacity.launches}
        if len(kinds) > 1 or not all(search.finished for search in self.ended):
            return None  # more probes would have followed
        return None if kinds == {"client"} and self.capacity.low is None else [*kinds, None][0]

    @property
    def steepness(self) -> float | None:
        """How fast the time that binds rises at the boundary, ms for each request/s more: least
        squares over the probes AROUND the capacity; None where they are too few."""
        binding, middle = self.binding, self.capacity.rate
        if binding is None or middle is None or not binding.timed:
            return None
        points = [
            (read_rate(row), value)
            for row in self.probes
            if AROUND[0] <= read_rate(row) / middle <= AROUND[1] and row.dims["slo"] != "broken off"
            if (value := row.value(name_figure(binding))) is not None
            and value <= FAR * binding.limit
        ]
        if len({rate for rate, _ in points}) < 3:
            return None
        return statistics.linear_regression(*zip(*points, strict=True)).slope / 1e6

    @property
    def cores(self) -> float | None:
        """Cores that all but the load used at the boundary; None where CPU was not sampled."""
        used = [row.value("cpu_service") for row in self.boundary]
        percents = [percent for percent in used if percent is not None]
        return statistics.fmean(percents) / 100 if percents else None

    @property
    def per_core(self) -> float | None:
        """Requests/s for each core that is used at the boundary."""
        rates = [read_rate(row) for row in self.boundary if row.value("cpu_service")]
        return statistics.fmean(rates) / self.cores if rates and self.cores else None

    @property
    def wide(self) -> bool:
        """Whether the interval is too wide for a capacity to be named."""
        return (self.capacity.width or 0.0) > WIDE

    @property
    def safe_rate(self) -> float | None:
        """A rate to run at: HEADROOM of the low end of the interval; None where it is WIDE."""
        low = self.capacity.low
        return None if low is None or self.wide or self.ceiling == "floor" else HEADROOM * low

    def holds(self, rate: float | None) -> bool | None:
        """Whether the rate is held with 95 %; None where the interval does not say."""
        low, high = self.capacity.low, self.capacity.high
        if rate is not None and low is not None and low >= rate:
            return True
        return False if rate is not None and high is not None and high < rate else None


def read_rate(row: ViewRow) -> float:
    """The rate of a probe, requests/s."""
    return float(row.dims["rate_per_s"])


def name_figure(objective: Objective) -> str:
    """The name of the figure that a probe has for an objective."""
    return f"slo_{'time' if objective.timed else 'share'}.{objective.name}"


def find_cells(result: Result, page: Page, rows: Sequence[ViewRow]) -> list[CellCapacity]:
    """The capacities of a run, in the order of its plan. Raises FormatError."""
    searches, names = read_searches(result), names_of(page)
    loads = {trial.key: _strip(row) for row in rows for trial in row.trials}
    planned = dict.fromkeys((trial.variant, cell_slug(trial.cell)) for trial in result.run.plan)
    places = [place for place in planned if searches.of(place)]
    cells: list[CellCapacity] = []
    for place in places:
        measured, capacity = searches.of(place), searches.capacity(place)
        closed = [search.closed for search in measured if search.closed is not None]
        probes = [
            _describe_probe(loads[trial.key], probe, search)
            for search in measured
            for trial, probe in zip(search.trials, search.probes, strict=True)
        ]
        entry = probes[0].entry
        name = names.beside(entry, True, False) if entry is not None and len(places) > 1 else ""
        first = cells[0].capacity if cells else capacity
        several = cells and first.spread is not None and capacity.spread is not None
        cells.append(
            CellCapacity(
                *(name, place[0], measured[0].cell, searches.asked, searches.slo),
                ended=searches.ended(place),
                capacity=capacity,
                loop=loads[closed[0].key] if closed else None,
                probes=probes,
                fresh="urls" not in result.run.suite,
                ratio=ratio(first, capacity) if several else None,
            )
        )
    return cells


def _strip(row: ViewRow) -> ViewRow:
    """A load without warnings that say nothing of a probe, which is short: what failed is left."""
    failed = tuple(warning for warning in row.warnings if warning.code == "failed")
    return replace(row, warnings=failed, notes=(), gap="")


def _describe_probe(row: ViewRow, probe: Probe, search: LaunchSearch) -> ViewRow:
    """A probe with what it has for each objective, and what it says of the service."""
    values: dict[str, Value] = {}
    tones: dict[str, Tone] = {}
    for objective in search.slo.objectives:
        value = probe.slices[objective.name].value
        if objective.share is not None:
            value = latency_figures(row.trials, (objective.share,), objective.metric)[0]
        elif objective.kind == "goodput" and value is not None:
            value = 1 - value
        if value is not None:
            factor = 1 if objective.timed else 100
            values[name_figure(objective)] = Value(value * factor)
            tones[name_figure(objective)] = "plain" if objective.met_by(value) else "bad"
    word = "client" if probe.client_bound else "missed"
    if any(counts.value is None for counts in probe.slices.values()):
        word = "no request"
    if meets(probe, search.bounds):
        word = "met"
    word = word if probe.steady else "scaled"
    word = word if probe.whole else "broken off"
    measured = {"due_rate": Value(probe.rate), "probe_s": Value(probe.seconds)}
    return replace(
        row,
        dims={**row.dims, "launch": search.round, "replicas": probe.replicas, "slo": word},
        values={**row.values, **measured, **values},
        tones={**tones, "slo": TONES.get(word, "plain")},
    )


# Points: the capacity of each cell, and what each launch says.


def make_point(cell: CellCapacity, ended: str) -> ViewRow:
    """The capacity of a cell, with what stands beside it. `ended`: why the run did."""
    has, asked = cell.capacity, cell.asked
    values = known_values(
        capacity_spread=has.spread,
        met_up_to=has.low if has.rate is None else None,
        missed_from=has.high if has.rate is None else None,
        next_capacity=cell.next_bound[1],
        **pick(cell, "safe_rate", "steepness", "per_core"),
        cores_used=cell.cores,
    )
    unknown = None
    if has.rate is None or cell.wide:
        unknown = "none" if cell.ceiling == "floor" else describe_bounds(has) or "not known"
    if has.rate is not None:
        pairs = zip(cell.ended, has.launches, strict=True)
        launches = {search.round: launch.rate for search, launch in pairs if launch.rate}
        values["capacity"] = Value(has.rate, launches=launches, low=has.low, high=has.high)
    if cell.ratio is not None:
        values["capacity_ratio"] = Value(cell.ratio[0], low=cell.ratio[1], high=cell.ratio[2])
    words = {True: "holds", False: "does not", None: "open"}
    needed = words[cell.holds(asked.need)] if asked.need is not None else None
    return ViewRow(
        {
            **{"point": "capacity", "variant": cell.variant, **cell.cell},
            **{"capacity": unknown, "slo": cell.slo.text, "needed": needed, "ended": ended},
            **{**pick(asked, "arrivals", "need"), **pick(cell, "ceiling", "cliff")},
            **{"precise": has.precise, "launches": len(has.launches), "next": cell.next_bound[0]},
            "binds": None if cell.binding is None else cell.binding.name,
            "nearest": ", ".join(row.name.removeprefix("probe ") for row in cell.boundary),
        },
        values,
        cell.name or cell.variant,
        warnings=tuple(_warn_of_cell(cell)),
        tones={"needed": TONES.get(needed or "", "plain")},
        entry=None if cell.limit is None else cell.limit[0].entry,
    )


def _hide(point: ViewRow) -> ViewRow:
    """The point without a capacity that is not known closely: words stand in its place."""
    hidden = "capacity" if point.dims["capacity"] else ""
    values = {name: value for name, value in point.values.items() if name != hidden}
    return replace(point, values=values)


def describe_bounds(has: Capacity) -> str:
    """`above 17.3 and below 508`."""
    ends = {"above": has.low, "below": has.high}
    return " and ".join(f"{word} {number(end, 3)}" for word, end in ends.items() if end is not None)


def _warn_of_cell(cell: CellCapacity) -> Iterator[Finding]:
    yield from () if cell.loop is None else cell.loop.warnings
    if not cell.fresh and cell.capacity.spread is not None:
        text = "a running service is not launched: the interval is without the spread of launches"
        yield Finding(text, "one-launch", "doubt")
    yield from (Finding(text, "launches", "doubt") for text in cell.capacity.doubts)
    if unsettled := sum(bool(row.trials[0].flags.get("unsettled")) for row in cell.probes):
        text = f"{unsettled} of {len(cell.probes)} probes began before the service had recovered"
        yield Finding(text, "unsettled", "doubt", "it takes over a minute to recover")


def make_launch_points(cell: CellCapacity) -> Iterator[ViewRow]:
    """What each launch that was searched to its end says."""
    for search, launch in zip(cell.ended, cell.capacity.launches, strict=True):
        name, rate = launch.next or (None, None)
        yield ViewRow(
            {
                **{"point": "launch", "variant": cell.variant, **cell.cell},
                **{"launch": search.round, "next": name},
                **{**pick(launch, "binds", "ceiling", "cliff", "blocks")},
                "probes": len(search.probes),
            },
            known_values(
                capacity=launch.rate,
                capacity_error=None if launch.error is None else 100 * launch.error,
                met_up_to=launch.low,
                missed_from=launch.high,
                next_capacity=rate,
                boundary_slope=launch.slope,
                block_s=launch.block_s or None,
                correlation_s=launch.correlation_s or None,
            ),
            f"launch {search.round}",
            cell.name,
            tuple(_warn_of_launch(search, launch)),
        )


def _warn_of_launch(search: LaunchSearch, launch: LaunchEstimate) -> Iterator[Finding]:
    """What is doubted of a search, and what Serve did to the replicas meanwhile."""
    yield from [Finding(launch.drift, "drift", "doubt")] if launch.drift else []
    yield from (Finding(text, "search", "doubt") for text in launch.doubts)
    if changed := sum(not probe.steady for probe in search.probes):
        text = f"{changed} of {len(search.probes)} probes are left out: Serve changed the replicas"
        yield Finding(text, "scaled", "doubt")
    if (room := search.room) is not None:
        text = f"the last miss was with {room[0]} of {room[1]} replicas that Serve may start"
        yield Finding(text, "scaled", "doubt", "--replicas fixed measures the most of them")


# In words.


def write_headline(cell: CellCapacity) -> str:
    """`capacity 1,240 req/s (95 %: 1,180 to 1,290, 3 launches) at p99 <= 50 ms`."""
    has, name = cell.capacity, f"{cell.name}: " if cell.name else ""
    nouns = ("launch", "launches") if cell.fresh else ("search", "searches")
    noun, slo = counted(len(has.launches), *nouns), f"at {cell.slo.text}"
    low, rate, high = (number(value, 3) for value in (has.low, has.rate, has.high))
    if cell.ceiling == "floor":
        lowest = min(cell.select("missed") or cell.probes, key=read_rate)
        why = " and ".join(
            f"{objective} is {text}" for objective, text in _list_misses(cell, lowest)
        )
        floor = f"no rate down to {number(read_rate(lowest), 3)} req/s meets {cell.slo.text}"
        return f"{name}no capacity: {floor}{f'; there {why}' if why else ''} ({noun})"
    if cell.ceiling == "client":
        could = f"{low} req/s, as much as the client could send"
        return f"{name}capacity at least {could} ({noun}) {slo}"
    if has.rate is None or cell.wide:
        between = describe_bounds(has) or "not known in"
        return f"{name}capacity {between} req/s, not closer yet ({noun}) {slo}"
    return f"{name}capacity {rate} req/s (95 %: {low} to {high}, {noun}) {slo}"


def _list_misses(cell: CellCapacity, row: ViewRow) -> Iterator[tuple[str, str]]:
    """The objectives that a probe misses, with what it has for them."""
    for objective in cell.slo.objectives:
        if row.tones.get(name_figure(objective)) == "bad":
            digits = float(f"{row.values[name_figure(objective)].value:.3g}")
            yield objective.name, time_text(digits) if objective.timed else f"{digits:g} %"


def find(cells: Sequence[CellCapacity]) -> Iterator[str]:
    """What the run supports: the headline of each cell; of a single one what stands beside it, of
    several the best and the cheapest; whether the rate that is needed is held."""
    yield from map(write_headline, cells)
    if len(cells) == 1:
        yield from describe(cells[0])
    elif measured := [cell for cell in cells if cell.capacity.rate is not None]:
        best = max(measured, key=lambda cell: cell.capacity.rate or 0.0)
        middle, low, high = (f"{value:.2f}" for value in best.ratio or (1.0, 1.0, 1.0))
        times = f", {middle} x {cells[0].name} (95 %: {low} to {high})" if best.ratio else ""
        yield f"highest: {best.name}{times}"
        cheap = max(measured, key=lambda cell: cell.per_core or 0.0)
        if cheap.per_core:
            per_core = number(cheap.per_core, 3)
            yield f"most for a core: {cheap.name}, {per_core} req/s per core used"
    if need := judge_need(cells):
        yield need[1]


def describe(cell: CellCapacity) -> Iterator[str]:
    """What stands beside a capacity: what binds and what limits the service there, the boundary,
    the closed loop, the client, a rate to run at."""
    if cell.binding is not None:
        name, rate = cell.next_bound
        then = f"; {name} would be next, at {number(rate, 3)} req/s" if name else ""
        yield f"what binds: {cell.binding.text}{then}"
        if cell.limit is None:
            yield "what limits the service there was not seen"
        else:
            row, verdict = cell.limit
            at_rate = f"at {row.text('due_rate')} req/s"
            yield f"limit {'in the closed loop' if row is cell.loop else at_rate}: {verdict.text}"
    yield from _describe_boundary(cell)
    yield from _describe_loop(cell)
    yield from _describe_client(cell)
    if cell.safe_rate is not None:
        room = f"{100 * (1 - HEADROOM):.0f} % below the low end of the interval"
        yield f"to run at: {number(cell.safe_rate, 3)} req/s, {room}"


def _describe_boundary(cell: CellCapacity) -> Iterator[str]:
    """How steep it is, or that it is a cliff and what fails beyond."""
    launches, rate, slope = cell.capacity.launches, cell.capacity.rate, cell.steepness
    if cell.cliff:
        lows = [launch.low for launch in launches if launch.low is not None]
        highs = [launch.high for launch in launches if launch.high is not None]
        ends = f"{number(min(lows), 3)} and {number(max(highs), 3)}" if lows and highs else ""
        yield f"a cliff{f' between {ends} req/s' if ends else ''}{_describe_beyond(cell)}"
    elif slope is not None and cell.binding is not None and rate is not None:
        step, more = (100, "100 requests/s") if rate >= MANY else (1, "request/s")
        rise = f"rises by {number(slope * step, 3)} ms for each {more} more"
        yield f"boundary: {cell.binding.name} {rise}"


def _describe_beyond(cell: CellCapacity) -> str:
    if (row := cell.beyond) is None:
        return ""
    counts = row.trials[0].counts
    late = counts.in_flight + counts.unsent
    asked = max(1, counts.completed + counts.failed_total + late)
    shares = {**counts.failed, "without an answer": late}
    failed = [f"{100 * n / asked:.2g} % {name}" for name, n in shares.items() if n]
    words = failed or [" ".join(pair) for pair in _list_misses(cell, row)]
    return f"; beyond it, at {number(read_rate(row), 3)} req/s: {', '.join(words)}"


def _describe_loop(cell: CellCapacity) -> Iterator[str]:
    """What a closed loop says, and why that is no capacity."""
    if cell.loop is None or not (rate := cell.loop.value(MAIN)):
        return
    metric = LATENCY if cell.binding is None else cell.binding.metric
    name, p99 = "p99" if metric == LATENCY else f"{metric}_p99", cell.loop.value(f"{metric}_p99")
    waits = "" if p99 is None else f" at {name} {time_text(float(f'{p99:.3g}'))}"
    failed, served = cell.loop.value("errors") or 0.0, cell.loop.value("completed") or 0.0
    share = f"{100 * failed / (failed + served):.2g} %" if failed else ""
    waits += f" (and {share} of its requests failed)" if failed else ""
    yield (
        f"a closed loop of {counted(cell.asked.connections, 'connection')} says "
        f"{number(rate, 3)} req/s{waits}: it waits for each answer before it sends, so no queue "
        "grows; users do not wait for each other"
    )


def _describe_client(cell: CellCapacity) -> Iterator[str]:
    """What the client proved: how late it sent, and whether it was ever the limit."""
    if whole := [row for row in cell.probes if row.dims["slo"] != "broken off"]:
        bound, met = len(cell.select("client")), cell.select("met")
        lag = merged([row.trials[0] for row in met], "send_lag").percentile(0.99)
        late = "" if lag is None else f", sent at most {time_text(float(f'{lag:.2g}'))} late (p99)"
        often = f"the limit in {bound} of" if bound else "never the limit in"
        yield f"client: {often} {counted(len(whole), 'probe')}{late}"


def judge_need(cells: Sequence[CellCapacity]) -> tuple[bool, str] | None:
    """Whether a cell holds the rate that is needed, and which is the cheapest; None where no rate
    is needed."""
    if not cells or (rate := cells[0].asked.need) is None:
        return None
    able, words = [cell for cell in cells if cell.holds(rate)], f"{number(rate, 3)} req/s:"
    if not able:
        unclear = any(cell.holds(rate) is None and cell.ceiling is None for cell in cells)
        why = "; not known closely enough" if unclear else ""
        return False, f"{words} no cell is proven to hold it{why}"
    best = min(able, key=lambda cell: (cell.cores is None, cell.cores or 0.0))
    which = f"the cheapest cell that holds it is {best.name}" if len(cells) > 1 else "held"
    cores = "" if best.cores is None else f", with {best.cores:.2f} cores used at its capacity"
    return True, f"{words} {which}{cores}"


def gate(result: Result) -> list[str]:
    """Why the run breaks its gate: no rate meets the SLO, or no cell is proven to hold the needed
    one."""
    named = name_probes(result)
    page = page_of(named)
    cells = find_cells(named, page, make_rows(page, ()))
    if cells and all(cell.ceiling == "floor" for cell in cells):
        return [write_headline(cell) for cell in cells]
    need = judge_need(cells)
    return [] if need is None or need[0] else [need[1]]


# The whole.


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The capacity of each cell, what each launch says, every probe."""
    searches = read_searches(result)
    cells = find_cells(result, page, rows)
    # Later launches are made only if they are needed.
    last = max([searches.asked.launches, *(trial.round for trial in result.trials)])
    planned = [(load.variant, load.round, load.cell) for load in result.plan if load.round <= last]
    missing = sum(not searches.finished(*search) for search in planned)
    if not cells:
        table = make_table(TableSpec("Loads", (Field("row"), Field(MAIN))), rows)
        return View(
            rows,
            findings=("Nothing was measured: there is no capacity.",),
            planned=(missing, len(planned), "searches"),
            sections=[Section("results", "Results", (table,), "headline")],
        )
    asked, load = searches.asked, cells[0].probes[0].trials[0].row
    client = f"{load.client}{load.traffic.suffix}"
    least = "1 launch" if asked.launches == 1 else f"{asked.launches} launches or more"
    ended = "it was broken off" if missing else "the launches were used up"
    ended = ENDED.get(result.stop.why, ended) if result.stop is not None else ended
    points = [make_point(cell, ended) for cell in cells]
    launches = [point for cell in cells for point in make_launch_points(cell)]
    names, several = [cell.name for cell in cells], len(cells) > 1
    tables = [make_table(_probe_spec(searches.slo.objectives), cell.probes) for cell in cells]
    folded = [Folded(name, (table,)) for name, table in zip(names, tables, strict=True)]
    about = [f"{cell.name}: {' '.join(map(statement, describe(cell)))}" for cell in cells]
    prose = Section("cells", "Each cell", (Prose(tuple(about), listed=True),), "table")
    notes = (f"At {searches.slo.text}.{f' Ratio: to {names[0]}.' if several else ''}",)
    capacities = replace(CAPACITIES, notes=notes + CAPACITIES.notes)
    bars = [
        (cell.name or cell.variant, trials, cell.limit and cell.limit[1])
        for cell in cells
        for trials in ([row.trials[0] for row in cell.boundary],)
        if any(trial.usage for trial in trials)
    ]
    drawn = tuple(Charts(partial(_draw, cell)) for cell in cells)
    return View(
        rows=[row for cell in cells for row in (cell.loop, *cell.probes) if row is not None],
        points=[*points, *launches],
        findings=[statement(text, names) for text in find(cells)],
        planned=(missing, len(planned), "searches"),
        sections=[
            Section(
                "results", "Capacity", (make_table(capacities, [*map(_hide, points)]),), "headline"
            ),
            *([prose] if several else []),
            Section("launches", "Launches", (make_table(LAUNCHES, launches),), "table"),
            Section("probes", "Probes", tuple(folded if several else tables), "table"),
        ],
        charts=[Section("rates", "What binds, over the rate", drawn)],
        cpu=[Charts(partial(cpu_of_rows, "CPU by process at the capacity", bars))] if bars else [],
        facts=(
            ("load", f"client {client}, open loop, {asked.arrivals} arrivals"),
            ("planned", f"{least}, until the interval is {100 * asked.precision:g} % wide"),
            ("ended", ended),
        ),
    )


def _probe_spec(goals: Sequence[Objective]) -> TableSpec:
    """The table of probes, with a column for each objective."""
    fields = (
        *(Field("name", "probe"), Field("due_rate"), Field("probe_s")),
        Field(MAIN, "answered", detail=True),
        *(Field(name_figure(goal), goal.name, head="" if goal.timed else "%") for goal in goals),
        *(Field("latency_p50", detail=True), Field("replicas")),
        *(Field("cpu_service", "CPU", head="%", detail=True), Field("slo", "SLO")),
    )
    return TableSpec("Every probe", fields, ("probe: launch and number; s: measured seconds",))


def _draw(cell: CellCapacity) -> Iterator[Chart]:
    """The objective that binds over the rate."""
    shown, has = cell.binding or cell.slo.objectives[0], cell.capacity
    figure = name_figure(shown)
    family = figure.partition(".")[0]
    rows = [
        replace(
            row,
            dims={**row.dims, "launch": f"launch {row.dims['launch']}"},
            values={family: row.values[figure]},
        )
        for row in sorted(cell.probes, key=read_rate)
        if figure in row.values
    ]
    ends = {"low": has.low, "capacity": has.rate, "high": has.high}
    yield from line_chart(
        f"{shown.name} over the rate{f': {cell.name}' if cell.name else ''}",
        rows,
        *("rate_per_s", (family,), "launch"),
        marks=[Mark(rate, word) for word, rate in ends.items() if rate is not None],
        caption=f"SLO: {shown.text}. Points: probes. Rules: the capacity, its 95 % interval.",
        x_name="requests/s due",
        joined=False,
    )


LENS: Final = Lens(
    build,
    ("cpu_service", "cpu_client", "cpu_host"),
    noun="search",
    ignored=lambda row, warning: True,
    silent=("requests/s:", "ratio:", "hint,", "incomplete:"),
    condense=name_probes,
)
