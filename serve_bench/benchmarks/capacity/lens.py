"""How a run of capacity is looked at: of each cell the highest rate at which its SLO is met.

A row is a load: the closed loops of the launches, or a probe. A point is the capacity of a cell, or
what a launch says of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from serve_bench.analysis.capacity.estimate import ratio
from serve_bench.analysis.capacity.launch import LaunchSearch, Searches, meets
from serve_bench.analysis.capacity.model import Capacity, LaunchEstimate, Probe
from serve_bench.analysis.statistics import MAIN, latency_figures
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.result import Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.slo import Objective, Slo, parse_slo
from serve_bench.view.blocks import section, statement
from serve_bench.view.charts import Chart
from serve_bench.view.csv import pick
from serve_bench.view.document import Charts, Finding, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare_all, find_figure, known_values, mean_of
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_table, make_tiles
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Entry, Page, front_of

declare_all(
    ("due_rate", "requests/s", "requests that were due in a second of a probe", "rate"),
    ("probe_s", "s", "measured seconds of a probe", "s"),
    ("slo_time", "ns", "what a probe has for an objective that is a time"),
    ("slo_share", "%", "what a probe has for an objective that is a share of requests"),
    ("capacity", "requests/s", "the highest rate at which the SLO is met"),
    ("capacity_ratio", "1", "the capacity over that of the first cell", "ratio"),
    ("capacity_spread", "1", "standard deviation of the capacities of launches, a share"),
    ("capacity_error", "%", "standard error from blocks of time within a launch", "error"),
    ("met_up_to", "requests/s", "the highest rate that met, below all that missed"),
    ("missed_from", "requests/s", "the lowest rate above that which missed"),
    ("next_capacity", "requests/s", "where the objective that would bind next is met"),
    ("safe_rate", "requests/s", "a rate with room for bursts and slower launches", "to run at"),
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

CAPACITIES: Final = TableSpec(
    "Capacity of each cell",
    (
        *(Field("name", "cell"), Field("capacity", head="req/s (95 %)")),
        *map(Field, ("launches", "capacity_ratio")),
        *(Field("safe_rate", head="80 % of low"), Field("needed"), Field("binds")),
        *(Field("closed_loop"), Field("client_limit", "client", head="limit")),
        *(Field("cores_used", head="without load", detail=True), Field("per_core", detail=True)),
    ),
)
LAUNCHES: Final = TableSpec(
    "Each launch for itself",
    tuple(map(Field, "launch capacity capacity_error met_up_to missed_from binds probes".split())),
    ("error: standard error from blocks of time within the launch",),
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

TONES: Final[Mapping[str, Tone]] = {
    **{"met": "good", "missed": "bad", "client": "doubt"},
    **{"holds": "good", "not proven": "bad"},
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


# Probes.


@dataclass(frozen=True)
class SearchedCell:
    """A cell under a variant with its searches. `name`: what sets it apart from the others of the
    run, empty where there is one. `ended`: the searches that the capacity is made of; `loop`: the
    closed loops, `probes`: those of all searches."""

    name: str
    ended: Sequence[LaunchSearch]
    capacity: Capacity
    loop: ViewRow
    probes: Sequence[ViewRow]

    def select(self, *words: str) -> list[ViewRow]:
        """The probes that say this of the service, by their rate."""
        return sorted((row for row in self.probes if row.dims["slo"] in words), key=read_rate)

    @property
    def middle(self) -> float:
        """The capacity, or the end of it that is known; 0 where none is."""
        return self.capacity.rate or self.capacity.low or self.capacity.high or 0.0

    @property
    def beyond(self) -> ViewRow | None:
        """The missed probe with the lowest rate at or above the capacity."""
        return next((row for row in self.select("missed") if read_rate(row) >= self.middle), None)


def read_rate(row: ViewRow) -> float:
    """The rate of a probe, requests/s."""
    return float(row.dims["rate_per_s"])


def name_figure(goal: Objective) -> str:
    """The name of the figure that a probe has for an objective."""
    return f"slo_{'time' if goal.timed else 'share'}.{goal.name}"


def find_cells(searches: Searches, page: Page, rows: Sequence[ViewRow]) -> Iterator[SearchedCell]:
    """The cells of a run that have a probe, in the order of their closed loops."""
    loads = {trial.key: row for row in rows for trial in row.trials}
    loops = [row for row in rows if row.trials and row.dims["rate_per_s"] is None]
    for loop in loops:
        assert loop.entry is not None
        line = loop.entry.line
        place = (line.variant, cell_slug(line.cell))
        probes = [
            _describe_probe(loads[trial.key], probe, search)
            for search in searches.of(place)
            for trial, probe in zip(search.trials, search.probes, strict=True)
        ]
        if probes:
            name = page.names.name(line, load=False) if len(loops) > 1 else ""
            ended, loop = searches.ended(place), _strip(loop, "failed", "errors")
            yield SearchedCell(name, ended, searches.capacity(place), loop, probes)


def _strip(row: ViewRow, *codes: str) -> ViewRow:
    """A load with these warnings alone: others say nothing of one that is short."""
    kept = tuple(warning for warning in row.warnings if warning.code in codes)
    return replace(row, warnings=kept, notes=(), gap="")


def _describe_probe(row: ViewRow, probe: Probe, search: LaunchSearch) -> ViewRow:
    """A probe with what it has for each objective, and what it says of the service."""
    values = {"due_rate": Value(probe.rate), "probe_s": Value(probe.seconds)}
    tones: dict[str, Tone] = {}
    for goal in search.slo.objectives:
        value = probe.slices[goal.name].value
        if goal.share is not None:
            value = latency_figures(row.trials, (goal.share,), goal.metric)[0]
        elif goal.kind == "goodput" and value is not None:
            value = 1 - value
        if value is not None:
            values[name_figure(goal)] = Value(value * (1 if goal.timed else 100))
            tones[name_figure(goal)] = "plain" if goal.met_by(value) else "bad"
    faults = {
        "broken off": not probe.whole,
        "scaled": not probe.steady,
        "client": probe.client_bound,
        "no request": any(counts.value is None for counts in probe.slices.values()),
        "missed": not meets(probe, search.bounds),
    }
    word = next((word for word, is_so in faults.items() if is_so), "met")
    tones["slo"] = TONES.get(word, "plain")
    dims = {**row.dims, "launch": search.round, "replicas": probe.replicas, "slo": word}
    return replace(_strip(row, "failed"), dims=dims, values={**row.values, **values}, tones=tones)


# Points: the capacity of each cell, and what each launch says.


def make_point(cell: SearchedCell, asked: CapacitySearch, first: Capacity, fresh: bool) -> ViewRow:
    """The capacity of a cell with what stands beside it, and its ratio to that of the first.
    `fresh`: the run launched the service."""
    has, search, launches = cell.capacity, cell.ended[0], cell.capacity.launches
    binding = [launch.binds for launch in launches if launch.binds is not None]
    kinds = {launch.ceiling for launch in launches}
    ceiling = None  # of several kinds, or where more probes would have followed
    if len(kinds) == 1 and all(search.finished for search in cell.ended):
        ceiling = kinds.pop() if has.low is not None or kinds == {"floor"} else None
    needed = None
    if asked.need is not None:
        needed = "holds" if (has.low or 0.0) >= asked.need else "not proven"
    (limit, entry), beyond = _find_limit(cell), cell.beyond
    nouns = ("launch", "launches") if fresh else ("search", "searches")
    return ViewRow(
        {
            **{"point": "capacity", "variant": search.variant, **search.cell},
            **{"slo": search.slo.text, **pick(asked, "arrivals", "need")},
            **{"launches": len(launches), "searched": counted(len(launches), *nouns)},
            **{"precise": has.precise, "needed": needed, "ceiling": ceiling},
            "cliff": 2 * sum(launch.cliff for launch in launches) > len(launches),
            "limit": limit,
            "binds": statistics.mode(binding) if binding else None,
            "beyond": beyond and _describe_misses(search.slo, beyond),
        },
        measure_cell(cell, first),
        cell.name or search.variant,
        warnings=tuple(_warn_of_cell(cell, fresh)),
        gap="none" if ceiling == "floor" else describe_ends(has, "above"),
        tones={"needed": TONES.get(needed or "", "plain")},
        entry=entry,
    )


def describe_ends(bounds: Capacity | LaunchEstimate, above: str) -> str:
    """`above 100 and below 200 req/s`, as far as they are known. `above`: the first word."""
    ends = {above: bounds.low, "below": bounds.high}
    words = [f"{word} {number(end, 3)}" for word, end in ends.items() if end is not None]
    return f"{' and '.join(words)} req/s" if words else "no bound known"


def measure_cell(cell: SearchedCell, first: Capacity) -> dict[str, Value]:
    """The capacity, or its ends, and what stands beside: a rate to run at, the closed loop, the
    client, and the cores used by the probes within BESIDE of it, else by the nearest that met."""
    has = cell.capacity
    sound = cell.select("met", "missed", "client", "no request") if cell.middle else []
    apart = {row.name: abs(math.log(read_rate(row) / cell.middle)) for row in sound}
    nearest = sorted(cell.select("met") or sound, key=lambda row: apart.get(row.name, 0.0))[:1]
    near = [row for row in sound if apart[row.name] <= BESIDE] or nearest
    used = [row for row in near if row.value("cpu_service")]
    cores = mean_of(row.values["cpu_service"].value / 100 for row in used)
    rate = mean_of(map(read_rate, used))
    values = known_values(
        capacity_spread=has.spread,
        met_up_to=None if has.rate else has.low,
        missed_from=None if has.rate else has.high,
        safe_rate=HEADROOM * has.low if has.low and (has.width or 0.0) <= WIDE else None,
        next_capacity=min((end.next[1] for end in has.launches if end.next), default=None),
        closed_loop=cell.loop.value(MAIN),
        closed_loop_p99=cell.loop.value("latency_p99"),
        cores_used=cores,
        per_core=rate / cores if rate and cores else None,
    )
    if has.rate is not None:
        pairs = zip(cell.ended, has.launches, strict=True)
        rates = {search.round: launch.rate for search, launch in pairs if launch.rate}
        values["capacity"] = Value(has.rate, launches=rates, low=has.low, high=has.high)
    if first is not has and has.spread is not None and first.spread is not None:
        middle, low, high = ratio(first, has)
        values["capacity_ratio"] = Value(middle, low=low, high=high)
    whole = len(cell.probes) - len(cell.select("broken off"))
    return {**values, "client_limit": Value(len(cell.select("client")), of=whole)}


def _find_limit(cell: SearchedCell) -> tuple[str | None, Entry | None]:
    """What keeps the service from more, and the load that shows it: the probe beyond the capacity;
    where its verdict names nothing of the service, the closed loop."""
    for row in filter(None, (cell.beyond, cell.loop)):
        limit = None if row.entry is None else row.entry.limited
        if limit is not None and limit.cause not in NO_LIMIT:
            probed = row is cell.beyond
            place = f"at {number(read_rate(row), 3)} req/s" if probed else f"of the {row.name}"
            return f"{place}: {limit.text}", row.entry
    return None, None


def _describe_misses(slo: Slo, row: ViewRow) -> str:
    """`p99 is 34.8 ms and errors is 2 %`: what a probe has for the objectives that it misses."""
    words = []
    for goal in slo.objectives:
        name = name_figure(goal)
        if row.tones.get(name) == "bad" and (figure := find_figure(name)):
            words.append(f"{goal.name} is {figure.show(row.values[name])} {figure.shown}")
    return " and ".join(words)


def _warn_of_cell(cell: SearchedCell, fresh: bool) -> Iterator[Finding]:
    yield from cell.loop.warnings
    if not fresh and cell.capacity.spread is not None:
        text = "a running service is not launched: the interval is without the spread of launches"
        yield Finding(text, "one-launch", "doubt")
    yield from (Finding(text, "launches", "doubt") for text in cell.capacity.doubts)
    if unsettled := sum(bool(row.trials[0].flags.get("unsettled")) for row in cell.probes):
        text = f"{unsettled} of {len(cell.probes)} probes began before the service had recovered"
        yield Finding(text, "unsettled", "doubt", "it takes over a minute to recover")


def make_launch_points(cell: SearchedCell) -> Iterator[ViewRow]:
    """What each launch that was searched to its end says."""
    for search, launch in zip(cell.ended, cell.capacity.launches, strict=True):
        name, rate = launch.next or (None, None)
        yield ViewRow(
            {
                **{"point": "launch", "variant": search.variant, **search.cell},
                **{"launch": search.round, "next": name, "probes": len(search.probes)},
                **pick(launch, "binds", "ceiling", "cliff", "blocks"),
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


# Sentences.


def write_headline(point: ViewRow, several: bool) -> str:
    """`capacity 1,240 req/s (95 %: 1,180 to 1,290, 3 launches) at p99 <= 50 ms`. `several`: the
    cell is named."""
    dims, repeats = point.dims, point.dims["searched"]
    words = f"{point.gap}, not closer yet ({repeats})"
    if dims["ceiling"] == "client":
        words = f"at least {point.text('met_up_to')} req/s, as much as the client could send"
        words += f" ({repeats})"
    elif "capacity" in point.values and "safe_rate" in point.values:
        has = point.values["capacity"]
        rate, low, high = (number(value, 3) for value in (has.value, has.low, has.high))
        words = f"{rate} req/s (95 %: {low} to {high}, {repeats})"
    text = f"capacity {words} at {dims['slo']}"
    if dims["ceiling"] == "floor":
        why = f"; there {dims['beyond']}" if dims["beyond"] else ""
        lowest = f"no rate down to {point.text('missed_from')} req/s meets {dims['slo']}"
        text = f"no capacity: {lowest}{why} ({repeats})"
    return f"{point.name}: {text}" if several else text


def find(points: Sequence[ViewRow]) -> Iterator[str]:
    """What the run supports: the capacity, of several cells the highest; whether the rate that is
    needed is held; what binds and limits there; what a closed loop says."""
    if not points:
        yield "Nothing was measured: there is no capacity"
        return
    best, several = max(points, key=_rank), len(points) > 1
    highest = f"; the highest of {len(points)} cells" if several else ""
    yield f"{write_headline(best, several)}{highest}"
    if need := judge_need(points):
        yield need[1]
    if binds := best.dims["binds"]:
        cliff = f", a cliff: beyond it {best.dims['beyond']}" if best.dims["cliff"] else ""
        yield f"what binds: {binds}{cliff}; limit {best.dims['limit'] or 'there: not seen'}"
    if "closed_loop" in best.values:
        rate, p99 = best.text("closed_loop"), best.text("closed_loop_p99")
        waits = "since it waits for each answer, as users do not"
        yield f"a closed loop serves {rate} req/s at p99 {p99} ms, {waits}"


def _rank(point: ViewRow) -> tuple[bool, float]:
    """By the capacity, or what is known of it; one that no rate meets is last."""
    known = [point.value(name) for name in ("capacity", "met_up_to", "missed_from")]
    return point.dims["ceiling"] != "floor", next(filter(None, known), 0.0)


def judge_need(points: Sequence[ViewRow]) -> tuple[bool, str] | None:
    """Whether a cell holds the rate that is needed; None where no rate is needed."""
    if not points or (need := points[0].dims["need"]) is None:
        return None
    able = [point.name for point in points if point.dims["needed"] == "holds"]
    words = f"held by {', '.join(able)}" if able else "no cell is proven to hold it"
    return bool(able), f"{number(need, 3)} req/s: {words}"


def gate(result: Result) -> list[str]:
    """Why the run breaks its gate: no rate meets the SLO, or no cell is proven to hold the needed
    one."""
    view = look(result, ReportOptions(), LENS).view
    points = [point for point in view.points if point.dims["point"] == "capacity"]
    floors = [point for point in points if point.dims["ceiling"] == "floor"]
    if floors and floors == points:
        return [write_headline(point, len(points) > 1) for point in points]
    need = judge_need(points)
    return [] if need is None or need[0] else [need[1]]


# The whole.


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The capacity of each cell, what each launch says, every probe."""
    searches, fresh = read_searches(result), "urls" not in result.run.suite
    asked, cells = searches.asked, [*find_cells(searches, page, rows)]
    # Later launches are made only if they are needed.
    last = max([asked.launches, *(trial.round for trial in result.trials)])
    planned = [(load.variant, load.round, load.cell) for load in result.plan if load.round <= last]
    missing = sum(not searches.finished(*search) for search in planned)
    points = [make_point(cell, asked, cells[0].capacity, fresh) for cell in cells]
    launches = [point for cell in cells for point in make_launch_points(cell)]
    probes = [replace(row, group=cell.name) for cell in cells for row in cell.probes]
    charts = [Charts(partial(_draw, *pair)) for pair in zip(cells, points, strict=True)]
    sections = [
        Section("results", "Capacity", (make_table(CAPACITIES, points),), "headline"),
        Section("launches", "Launches", (make_table(LAUNCHES, launches),), "table"),
        Section("probes", "Probes", (make_table(_probe_spec(searches.slo), probes),)),
    ]
    until = f"until the interval is {100 * asked.precision:g} % wide"
    why = "launches used up" if result.stop is None else result.stop.why
    until = f"{counted(asked.launches, 'launch', 'launches')} or more, {until}"
    return View(
        rows=[*(cell.loop for cell in cells), *probes] or rows,
        points=[*points, *launches],
        findings=[statement(text, [cell.name for cell in cells]) for text in find(points)],
        planned=(missing, len(planned), "searches"),
        sections=sections if cells else (),
        charts=[*section("rates", "What binds, over the rate", charts)],
        facts=[("planned", until), ("ended", "broken off" if missing else why)],
        tiles=[*make_tiles(points[0], ("capacity", "binds", "closed_loop"))] if points else [],
    )


def _probe_spec(slo: Slo) -> TableSpec:
    """The table of probes, with a column for each objective."""
    goals = ((goal, name_figure(goal)) for goal in slo.objectives)
    fields = (
        *(Field("name", "probe"), Field("due_rate"), Field("probe_s")),
        Field(MAIN, "answered", detail=True),
        *(Field(figure, goal.name, head="" if goal.timed else "%") for goal, figure in goals),
        *(Field("latency_p50", detail=True), Field("replicas")),
        *(Field("cpu_service", "CPU", head="%", detail=True), Field("slo", "SLO")),
    )
    return TableSpec("Every probe", fields, ("probe: launch and number; s: measured seconds",))


def _draw(cell: SearchedCell, point: ViewRow) -> Iterator[Chart]:
    """The objective that binds over the rate."""
    goals, has = cell.ended[0].slo.objectives, cell.capacity
    goal = next((goal for goal in goals if goal.name == point.dims["binds"]), goals[0])
    figure, family = name_figure(goal), name_figure(goal).partition(".")[0]
    rows = [
        ViewRow({**row.dims, "launch": f"launch {row.dims['launch']}"}, {family: value})
        for row in sorted(cell.probes, key=read_rate)
        if (value := row.values.get(figure)) is not None
    ]
    ends = {"low": has.low, "capacity": has.rate, "high": has.high}
    yield from line_chart(
        f"{goal.name} over the rate{f': {cell.name}' if cell.name else ''}",
        rows,
        *("rate_per_s", (family,), "launch"),
        marks=[(rate, word) for word, rate in ends.items() if rate is not None],
        caption=f"SLO: {goal.text}. Points: probes. Rules: the capacity, its 95 % interval.",
        x_name="requests/s due",
        joined=False,
    )


LENS: Final = Lens(
    build, ("cpu_service", "cpu_client", "cpu_host"), noun="search", condense=name_probes
)
