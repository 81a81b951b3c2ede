"""The report on capacity: of each cell the highest rate at which its SLO is met.

A row is a load: the closed loops of the launches, or a probe. A point is the capacity of a cell, or
what a launch says of it. `compare` and `history` read one row, the capacity of each launch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from serve_bench.analysis.capacity.estimate import compare_capacities
from serve_bench.analysis.capacity.launch import LaunchSearch, Searches, meets
from serve_bench.analysis.capacity.model import Capacity, LaunchEstimate, Probe
from serve_bench.analysis.statistics import MAIN, latency_figures
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.facts import ClientFacts, ProbeSlices
from serve_bench.core.figures import counted, number
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Failure, Metric, Result, Trial, cell_slug
from serve_bench.core.slo import Objective, parse_slo
from serve_bench.core.traffic import Row
from serve_bench.view.charts import Chart
from serve_bench.view.csv import pick
from serve_bench.view.document import Finding, Later, Section, Tone, statement
from serve_bench.view.figures import Value, declare, known_values, mean_of
from serve_bench.view.frame import ViewRow, line_chart, make_spec, make_tiles, table_section
from serve_bench.view.lens import Lens, View, plan_row, replace_rows
from serve_bench.view.rows import Page

declare(
    ("slo_time", "ns", "what a probe has for an objective that is a time", "SLO"),
    ("slo_share", "%", "what a probe has for an objective that is a share of requests", "SLO"),
    ("capacity", "requests/s", "the highest rate at which the SLO is met"),
    ("capacity_ratio", "1", "the capacity over that of the first cell", "ratio"),
    ("capacity_spread", "1", "standard deviation of the capacities of launches, a share"),
    ("capacity_error", "%", "standard error from blocks of time within a launch", "error"),
    ("met_up_to", "requests/s", "the highest rate that met, below all that missed"),
    ("missed_from", "requests/s", "the lowest rate above that which missed"),
    ("next_capacity", "requests/s", "where the objective that would bind next is met"),
    ("safe_rate", "requests/s", "a rate with room for bursts and slower launches", "80 % of low"),
    ("boundary_slope", "1", "d ln(misses) / d ln(rate) at the capacity"),
    ("closed_loop", "requests/s", "what a closed loop serves, in which no queue grows"),
    ("closed_loop_p99", "ns", "latency p99 of that closed loop"),
    ("client_limit", "probes", "probes in which the client was the limit", "client limit"),
    ("block_s", "s", "length of the independent blocks of time of a launch"),
    ("correlation_s", "s", "autocorrelation time of what is beyond the limit"),
    ("cores_used", "cores", "cores that all processes but the load use"),
    ("per_core", "requests/s", "requests/s for each core used at the capacity", "per core"),
    shown={"requests/s": "req/s", "probes": ""},
    digits=3,
)

CAPACITIES: Final = make_spec(
    "Capacity of each cell",
    "capacity launches capacity_ratio safe_rate needed binds closed_loop client_limit",
    "cores_used per_core",
    row="cell",
)
LAUNCHES: Final = make_spec(
    "Each launch for itself", "launch capacity capacity_error met_up_to missed_from binds probes"
)

HEADROOM: Final = 0.8
"""The share of the interval's low end that a service is to run at: a fifth is kept for bursts that
a Poisson load does not have, and for the launch that is slower than these."""

WIDE: Final = 0.5
"""An interval wider than this share of the capacity does not name one: its ends are said alone."""

BESIDE: Final = 0.03
"""A probe within this share of the capacity shows what the service does at the boundary."""

NO_LIMIT: Final = ("unclear", "offered load", "client", "connections")
"""Causes of a verdict that say nothing of the service."""


def read_searches(result: Result) -> Searches:
    """Read the searches that a run has recorded. Raises BadInput for a damaged suite."""
    asked = result.run.part("capacity", CapacitySearch)
    traffic = result.plan[0].row.traffic if result.plan else None
    slo = parse_slo(asked.slo, "suite.capacity.slo")
    return Searches(asked, slo, traffic, result.run.asked.front, result)


def name_probes(result: Result) -> Result:
    """Return the run with a row for each probe, such as `probe 1.3`: the third of launch 1."""
    asked = result.run.part("capacity", CapacitySearch)
    last = max([asked.launches, *(trial.round for trial in result.trials)])

    def name(trial: Trial) -> Trial:
        row = replace(trial.row, label=f"probe {trial.round}.{trial.row.run}")
        return trial if trial.row.rate_per_s is None else replace(trial, row=row)

    plan = (planned for planned in result.plan if planned.round <= last)  # no unneeded launches
    return replace_rows(result, plan, map(name, result.trials))


@dataclass(frozen=True)
class SearchedCell:
    """A cell under a variant."""

    name: str
    ended: Sequence[LaunchSearch]  # the searches that its capacity is made of
    capacity: Capacity
    loop: ViewRow  # its closed loops
    probes: Sequence[ViewRow]  # those of all searches

    def select(self, *words: str) -> list[ViewRow]:
        """List the probes that say one of these words of the service."""
        return [row for row in self.probes if row.dims["slo"] in words]

    def distance(self, row: ViewRow) -> float:
        """Return ln(rate of a probe / capacity, or the end of it that is known)."""
        capacity = self.capacity
        reached = capacity.rate or capacity.low or capacity.high or 1.0
        return math.log(row.dims["rate_per_s"] / reached)

    @property
    def beyond(self) -> ViewRow | None:
        """The missed probe with the lowest rate at or above the capacity."""
        above = (row for row in self.select("missed") if self.distance(row) >= 0)
        return min(above, key=self.distance, default=None)


def name_figure(goal: Objective) -> str:
    """Name the figure of a probe for an objective."""
    return f"slo_{'time' if goal.timed else 'share'}.{goal.name}"


def find_cells(searches: Searches, page: Page) -> Iterator[SearchedCell]:
    """Yield the cells of a run that have a probe, in the order of their closed loops."""
    loads = {trial.key: row for row in page.rows for trial in row.trials}
    loops = [row for row in page.rows if row.trials and row.dims["rate_per_s"] is None]
    for loop in loops:
        place = (loop.line.variant, cell_slug(loop.line.cell))
        name = loop.place if len(loops) > 1 else loop.line.variant
        probes: list[ViewRow] = []
        for search in searches.of(place):
            rows = (loads[trial.key] for trial in search.trials)
            pairs = zip(rows, search.probes, strict=True)
            probes += (_describe_probe(row, probe, search, name) for row, probe in pairs)
        if probes:
            yield SearchedCell(name, searches.ended(place), searches.capacity(place), loop, probes)


def _describe_probe(row: ViewRow, probe: Probe, search: LaunchSearch, cell: str) -> ViewRow:
    """Return a probe with its value for each objective, and what it says of the service."""
    faults = {
        "broken off": not probe.whole,
        "scaled": not probe.steady,
        "client": probe.client_bound,
        "no request": any(counts.value is None for counts in probe.slices.values()),
        "missed": not meets(probe, search.bounds),
    }
    word = next((word for word, applies in faults.items() if applies), "met")
    dims = {**row.dims, "launch": search.round, "replicas": probe.replicas, "slo": word}
    tone: Tone = "good" if word == "met" else "bad" if word == "missed" else "doubt"
    values, tones = {**row.values}, {"slo": tone}
    for goal in search.slo.objectives:
        value = probe.slices[goal.name].value
        if goal.share is not None:
            value = latency_figures(row.trials, (goal.share,), goal.metric)[0]
        if value is not None:
            value = 1 - value if goal.kind == "goodput" else value
            values[name_figure(goal)] = Value(value * (1 if goal.timed else 100))
            tones[name_figure(goal)] = "plain" if goal.met_by(value) else "bad"
    return replace(row, dims=dims, values=values, group=cell, tones=tones)


def make_point(cell: SearchedCell, asked: CapacitySearch, first: Capacity, fresh: bool) -> ViewRow:
    """Make the point of a cell: its capacity, and the ratio to that of the first cell."""
    capacity, search, launches = cell.capacity, cell.ended[0], cell.capacity.launches
    binding = [launch.binds for launch in launches if launch.binds is not None]
    kinds = {launch.ceiling for launch in launches}
    ceiling = None  # of several kinds, or where more probes would have followed
    if len(kinds) == 1 and all(search.finished for search in cell.ended):
        ceiling = kinds.pop() if capacity.low is not None or kinds == {"floor"} else None
    holds = asked.need is not None and (capacity.low or 0.0) >= asked.need
    # The closed loop stands in for a probe that there is not, or whose limit is not the service.
    last = cell.beyond or cell.loop
    misses = [
        f"{goal.name} is {last.text(figure)} {'ms' if goal.timed else '%'}"
        for goal in search.slo.objectives
        if last.tones.get(figure := name_figure(goal)) == "bad"
    ]
    limits = ((row, row.limited) for row in (last, cell.loop))
    seen = next((row for row, limit in limits if limit and limit.cause not in NO_LIMIT), None)
    return ViewRow(
        {
            **{"point": "capacity", "variant": search.variant, **search.cell},
            **{"slo": search.slo.text, **pick(asked, "arrivals", "need")},
            **{"launches": len(launches), "precise": capacity.precise, "ceiling": ceiling},
            "needed": None if asked.need is None else "holds" if holds else "not proven",
            "cliff": 2 * sum(launch.cliff for launch in launches) > len(launches),
            "binds": statistics.mode(binding) if binding else None,
            "beyond": " and ".join(misses) or None,
            "limit": None if seen is None else seen.dims["limit"],
        },
        measure_cell(cell, first),
        cell.name,
        warnings=tuple(_warn_of_cell(cell, fresh)),
        gap="none" if ceiling == "floor" else describe_ends(capacity),
        **({} if seen is None else pick(seen, "line", "failures", "verdicts", "limited")),
    )


def describe_ends(bounds: Capacity | LaunchEstimate) -> str:
    """Render `at least 100 and below 200 req/s`, as far as the ends are known."""
    ends = {"at least": bounds.low, "below": bounds.high}
    words = [f"{word} {number(end, 3)}" for word, end in ends.items() if end is not None]
    return f"{' and '.join(words)} req/s" if words else "no bound known"


def measure_cell(cell: SearchedCell, first: Capacity) -> dict[str, Value]:
    """Compute the capacity or its ends, a safe rate, and the cores used near the capacity."""
    capacity, sound = cell.capacity, cell.select("met", "missed", "client")
    near = [row for row in sound if abs(cell.distance(row)) <= BESIDE]
    met = sorted(cell.select("met") or sound, key=lambda row: abs(cell.distance(row)))
    used = [row for row in near or met[:1] if row.value("cpu_service")]  # else the nearest that met
    cores = mean_of(row.values["cpu_service"].value / 100 for row in used)
    rate = mean_of(row.dims["rate_per_s"] for row in used)
    narrow = (capacity.width or 0.0) <= WIDE
    values = known_values(
        capacity_spread=capacity.spread,
        met_up_to=None if capacity.rate else capacity.low,
        missed_from=None if capacity.rate else capacity.high,
        safe_rate=HEADROOM * capacity.low if capacity.low and narrow else None,
        next_capacity=min((end.next[1] for end in capacity.launches if end.next), default=None),
        closed_loop=cell.loop.value(MAIN),
        closed_loop_p99=cell.loop.value("latency_p99"),
        cores_used=cores,
        per_core=rate / cores if rate and cores else None,
    )
    if capacity.rate is not None:
        pairs = zip(cell.ended, capacity.launches, strict=True)
        rates = {search.round: launch.rate for search, launch in pairs if launch.rate}
        low, high = capacity.low, capacity.high
        values["capacity"] = Value(capacity.rate, launches=rates, low=low, high=high)
    if first is not capacity and capacity.spread is not None and first.spread is not None:
        middle, least, most = compare_capacities(first, capacity)
        values["capacity_ratio"] = Value(middle, low=least, high=most)
    whole = len(cell.probes) - len(cell.select("broken off"))
    return {**values, "client_limit": Value(len(cell.select("client")), of=whole)}


def _warn_of_cell(cell: SearchedCell, fresh: bool) -> Iterator[Finding]:
    yield from (finding for finding in cell.loop.warnings if finding.text)
    if not fresh and cell.capacity.spread is not None:
        text = "a running service is not launched: the interval is without the spread of launches"
        yield Finding(text, "one-launch", "doubt")
    yield from (Finding(text, "launches", "doubt") for text in cell.capacity.doubts)
    if unsettled := sum(row.trials[0].flags.unsettled for row in cell.probes):
        text = f"{unsettled} of {len(cell.probes)} probes began before the service had recovered"
        yield Finding(text, "unsettled", "doubt", "it takes over a minute to recover")


def make_launch_points(cell: SearchedCell) -> Iterator[ViewRow]:
    """Yield what each launch that was searched to its end says, with its warnings."""
    for search, launch in zip(cell.ended, cell.capacity.launches, strict=True):
        binds_next, rate_next = launch.next or (None, None)
        dims = {"point": "launch", "variant": search.variant, **search.cell}
        dims |= {"launch": search.round, "next": binds_next, "probes": len(search.probes)}
        values = known_values(
            capacity=launch.rate,
            capacity_error=None if launch.error is None else 100 * launch.error,
            met_up_to=launch.low,
            missed_from=launch.high,
            next_capacity=rate_next,
            boundary_slope=launch.slope,
            block_s=launch.block_s or None,
            correlation_s=launch.correlation_s or None,
        )
        doubts = [Finding(launch.drift, "drift", "doubt")] if launch.drift else []
        doubts += [Finding(text, "search", "doubt") for text in launch.doubts]
        if changed := sum(not probe.steady for probe in search.probes):
            text = f"Serve changed replicas in {changed} of {len(search.probes)} probes: left out"
            doubts.append(Finding(text, "scaled", "doubt"))
        if (room := search.room) is not None:
            text = f"the last miss was with {room[0]} of {room[1]} replicas that Serve may start"
            hint = "--replicas fixed measures the most of them"
            doubts.append(Finding(text, "scaled", "doubt", hint))
        dims |= pick(launch, "binds", "ceiling", "cliff", "blocks")
        yield ViewRow(dims, values, f"launch {search.round}", cell.name, tuple(doubts))


def find(points: Sequence[ViewRow], fresh: bool) -> Iterator[str]:
    """Yield the findings: the capacity, of several the highest, the needed rate, what binds."""
    if not points:
        yield "Nothing was measured: there is no capacity"
        return
    best = max(points, key=lambda point: point.value("capacity") or point.value("met_up_to") or 0.0)
    dims, slo, capacity = best.dims, best.dims["slo"], best.values.get("capacity")
    noun = "launch" if fresh else "search"
    repeats = counted(dims["launches"], noun, f"{noun}es")
    if dims["ceiling"] == "floor":
        why = f"; there {dims['beyond']}" if dims["beyond"] else ""
        floor = f"no rate down to {best.text('missed_from')} req/s meets {slo}{why}"
        text = f"no capacity: {floor} ({repeats})"
    elif capacity is not None and "safe_rate" in best.values:
        ends = (capacity.value, capacity.low, capacity.high)
        rate, low, high = (number(end, 3) for end in ends)
        text = f"capacity {rate} req/s (95 %: {low} to {high}, {repeats}) at {slo}"
    else:
        by_client = dims["ceiling"] == "client"
        why = "as much as the client could send" if by_client else "not closer yet"
        text = f"capacity {best.gap}, {why} ({repeats}) at {slo}"
    yield f"{best.name}: {text}; the highest of {len(points)} cells" if points[1:] else text
    yield from (text for _, text in judge_need(points))
    if dims["binds"]:
        cliff = f", a cliff: beyond it {dims['beyond']}" if dims["cliff"] else ""
        limit, load = best.limited, best.line.row.label
        seen = f"({load}): {limit.text}" if limit else "there: not seen"
        yield f"what binds: {dims['binds']}{cliff}; limit {seen}"


def judge_need(points: Sequence[ViewRow]) -> Iterator[tuple[bool, str]]:
    """Yield whether a cell holds the rate that is needed, if there is one, and say which."""
    if points and (need := points[0].dims["need"]) is not None:
        able = [point.name for point in points if point.dims["needed"] == "holds"]
        words = f"held by {', '.join(able)}" if able else "no cell is proven to hold it"
        yield bool(able), f"{number(need, 3)} req/s: {words}"


def build(page: Page) -> View:
    """Build the view: the capacity of each cell, what each launch says, every probe."""
    result, searches = page.result, read_searches(page.result)
    asked, cells = searches.asked, [*find_cells(searches, page)]
    fresh = "urls" not in result.run.suite  # the run launched the service
    planned = [(load.variant, load.round, load.cell) for load in name_probes(result).plan]
    missing = sum(not searches.finished(*search) for search in planned)
    points = [make_point(cell, asked, cells[0].capacity, fresh) for cell in cells]
    launches = [point for cell in cells for point in make_launch_points(cell)]
    probes = [row for cell in cells for row in cell.probes]
    shown = ("rate_per_s measured_time", *map(name_figure, searches.slo.objectives), "replicas slo")
    caption, details = "Every probe; service: its CPU", f"{MAIN} latency_p50 cpu_service"
    every_probe = make_spec(caption, " ".join(shown), details, row="probe")
    charts = tuple(Later(partial(_draw, cell)) for cell in cells)
    why = "launches used up" if result.stop is None else result.stop.why
    found, faults = [*find(points, fresh)], [text for able, text in judge_need(points) if not able]
    if points and all(point.dims["ceiling"] == "floor" for point in points):
        faults = found[:1]
    return View(
        rows=[*(cell.loop for cell in cells), *probes] or page.rows,
        points=[*points, *launches],
        findings=[statement(text, [cell.name for cell in cells]) for text in found],
        faults=faults,
        planned=(missing, len(planned), "searches"),
        sections=[
            table_section("results", "Capacity", CAPACITIES, points, "headline"),
            table_section("launches", "Launches", LAUNCHES, launches, "table"),
            table_section("probes", "Probes", every_probe, probes),
        ],
        charts=[Section("rates", "What binds, over the rate", charts)],
        facts=[("ended", "broken off" if missing else why)],
        tiles=partial(make_tiles, points[:1], "capacity binds closed_loop"),
    )


def _draw(cell: SearchedCell) -> Iterator[Chart]:
    """Chart the objective that binds, else the first one, over the rate."""
    goals, capacity = {goal.name: goal for goal in cell.ended[0].slo.objectives}, cell.capacity
    binds = next((launch.binds for launch in capacity.launches if launch.binds), next(iter(goals)))
    figure, family = name_figure(goals[binds]), name_figure(goals[binds]).partition(".")[0]
    drawn = [row for row in cell.probes if figure in row.values]
    ends = {"low": capacity.low, "capacity": capacity.rate, "high": capacity.high}
    yield from line_chart(
        f"{goals[binds].text} over the rate: {cell.name}",
        [ViewRow(row.dims, {family: row.values[figure]}) for row in drawn],
        *("rate_per_s", (family,), "launch"),
        marks=[(rate, word) for word, rate in ends.items() if rate is not None],
        caption="A colour for each launch. Rules: the capacity, its 95 % interval.",
        x_name="requests/s due",
        joined=False,
    )


def condensed(result: Result) -> Result:
    """Return the run with a trial for each cell and launch that was searched to its end.

    Its row names SLO and arrivals in one spelling. A launch with bounds alone has a failure: where
    no probe met the SLO it counts as not measured, so B is worse; else as broken, which is blamed
    on no side. Raises BadInput for a damaged suite.
    """
    result = name_probes(result)
    searches, traffic = read_searches(result), result.plan[0].row.traffic
    goals = sorted(searches.slo.objectives, key=lambda goal: (goal.kind == "errors", goal.name))
    words = [*(goal.text for goal in goals), f"{searches.asked.arrivals} arrivals"]
    label = f"capacity at {', '.join(words)}{traffic.suffix}"
    row = Row(label, traffic.client, 1, loop="open", **vars(traffic))
    trials, bounded = [], []
    for search in (search for place in searches.places for search in searches.ended(place)):
        if search.finished:
            trial, estimate = _measure(search, row), search.estimate()
            trials.append(trial)
            if estimate.rate is None:
                floor = "higher ones" if trial.counts.completed else "no rate"
                why = {"client": "the client could send no more", "floor": f"{floor} met the SLO"}
                reason = why.get(estimate.ceiling or "") or "; ".join(estimate.doubts)
                message = f"only bounded: {describe_ends(estimate)} ({reason})"
                place = (trial.key, trial.launch or None, trial.variant, trial.round, trial.cell)
                bounded.append(Failure("trial", message, trial.started_at, *place, row))
    plan = [plan_row(trial, row) for trial in result.plan]
    return replace_rows(result, plan, trials, bounded, without="capacity")


def _measure(search: LaunchSearch, row: Row) -> Trial:
    """Return a trial with the capacity of a launch as throughput, and CPU of the nearest probe."""
    estimate = search.estimate()
    rate = estimate.rate or estimate.low or estimate.high or 1.0
    served = [trial for trial in search.trials if trial.completed_in_windows] or search.trials
    near = min(served, key=lambda trial: abs(math.log((trial.row.rate_per_s or 1.0) / rate)))
    met = any(meets(probe, search.bounds) for probe in search.probes if probe.whole)
    completed = near.completed_in_windows if met or estimate.ceiling != "floor" else 0
    # The SLO fixes its latency and judges its failed requests, so it has neither.
    metrics = {MAIN: Metric("requests/s", "higher", (rate,))}
    counts = Counts(completed, completed, {}, 0)
    near = replace(near, client=ClientFacts(), slices=ProbeSlices()).flagged("fitted")
    return replace(near, key=plan_row(near, row).key, row=row, metrics=metrics, counts=counts)


CPU: Final = ("cpu_service", "cpu_client", "cpu_host")
# Warnings but for errors say nothing of a load that is short.
LENS: Final = Lens(build, figures=CPU, condense=name_probes, compared=condensed, codes=("errors",))
