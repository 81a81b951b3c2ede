"""How a soak is looked at: which processes grow with requests, whether the service slows down.

A row is a variant, its blocks together. Points are its processes over all launches, and the parts
of its load. x is what the cluster answered since its launch, so a series is of one process of one
launch; the slopes of the same process in several launches are joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from serve_bench.analysis.drift import FEWEST, DriftWord, LevelDrift, drift_of, joined
from serve_bench.analysis.statistics import MAIN, latency_figures
from serve_bench.benchmarks.soak.condensed import condensed, summed, whole_blocks
from serve_bench.core.figures import counted, number
from serve_bench.core.load_result import Counts
from serve_bench.core.result import Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.soak import SoakSpec
from serve_bench.core.usage import deployment_of
from serve_bench.view.blocks import in_parts, statement
from serve_bench.view.charts import Chart
from serve_bench.view.document import Charts, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare, known_values, mean_of, shorten
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_table
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Page

LEVELS: Final = {"pss_mb": "MB", "threads": "threads", "descriptors": "descriptors"}
"""What is read of each process behind each block, with its unit."""

DRIFT: Final = ("error", "df", "rho", "warm_up")
"""Attributes of a LevelDrift that are figures."""

for _level, _unit in LEVELS.items():
    declare(_level, _unit, f"{_level} of a process behind a block", title="PSS")
    for _part, _meaning, _per in (
        ("begin", "the first reading", ""),
        ("end", "the last reading", ""),
        ("slope", "growth with requests, with its 95 % interval", "/million"),
        ("error", "standard error of the slope", "/million"),
        ("df", "degrees of freedom of the slope", ""),
        ("rho", "autocorrelation of neighbouring readings", ""),
        ("warm_up", "growth beside the slope before it levelled off", ""),
    ):
        _of = "" if _part in ("df", "rho") else f"{_unit}{_per}"
        _digits = 4 if _part in ("begin", "end") else 3
        declare(f"{_level}_{_part}", _of, f"{_level}: {_meaning}", title=_part, digits=_digits)
for _name, _unit, _meaning in (
    ("million_requests", "million", "requests between the first readings and the last"),
    ("minutes", "min", "of load between the same"),
    ("mb_per_hour", "MB", "what the slope is in an hour at the rate of the soak"),
    ("hours_left", "h", "until the memory that is free is used, if nothing else takes any"),
    ("more_minutes", "min", "how much longer a verdict takes"),
    ("warmed", "MB", "by how much it grew before it levelled off"),
    ("rate_in_all", "requests/s", "requests that ended in a second, over all the time"),
    ("answered_in_all", "requests", "requests that ended since the launches, warm-ups too"),
    ("free_mb", "MB", "memory of the host that was free at the end"),
):
    declare(_name, _unit, _meaning, digits=3)

PROCESSES: Final = TableSpec(
    "Memory",
    (
        Field("name", "process"),
        Field("million_requests", "requests", detail=True),
        Field("minutes", "time", detail=True),
        *(Field("pss_mb_begin"), Field("pss_mb_end"), Field("pss_mb_slope", "slope (95 %)")),
        Field("mb_per_hour", "an hour", detail=True),
        Field("verdict"),
    ),
    (
        "begin, end: PSS (a page that n processes share counts 1/n); slope: of what no other "
        "process shares, without the warm-up",
    ),
)
COUNTS: Final = TableSpec(
    "Behind the first block and the last",
    (
        Field("name", "process"),
        *(
            Field(f"{level}_{part}", level, head=head, detail=part == "begin")
            for level in ("threads", "descriptors")
            for part, head in (("begin", "begin"), ("end", "end"), ("slope", "per million"))
        ),
    ),
)
LOAD: Final = TableSpec(
    "Blocks together",
    (
        *(Field("name", "blocks"), Field(MAIN, "throughput", head="req/s")),
        *(Field("latency_p50"), Field("latency_p99")),
        *(Field("completed", head="requests"), Field("errors", "failed", head="requests")),
    ),
    ("latencies of blocks are kept to 0.8 %",),
)
COUNT_LEAK: Final = 100.0
"""Threads or descriptors for each million requests from which on they count as a leak: at 100
requests/s 860 a day, beyond the usual limit of 1,024 descriptors on the second."""

LEAST_WARM_UP: Final = 1.0
"""MB that are worth a word."""

WARM_UP_MB: Final = 15.0
WARM_UP_MINUTES: Final = 10.0
"""What processes of Serve take, and for how long, until they level off: a proxy 12.3 MB, a replica
4 MB in 10 minutes (Ray 2.60, docs/soak.md). Less growth in less time may be that."""

TENTH: Final = 0.1
"""Of the blocks: the first and the last are compared."""

MOST_NAMES: Final = 4
"""Processes that a sentence names."""

TOO_SHORT: Final = "too short to say"
TONES: Final[Mapping[DriftWord, Tone]] = {
    "grows": "bad",
    TOO_SHORT: "doubt",
    "does not grow": "good",
}
"""In the order of the table."""


# Processes.


@dataclass
class ProcessSeries:
    """What was read of a process of a launch behind each block: LEVELS, and the `minutes` and
    `requests` (million) since the launch. `lasts`: it was there at the end."""

    pid: int
    readings: list[dict[str, float]] = field(default_factory=list)
    lasts: bool = False

    def known(self, level: str) -> list[float]:
        """The readings of a level, as far as it could be read."""
        return [float(reading[level]) for reading in self.readings if level in reading]

    def drift(self, level: str) -> LevelDrift | None:
        """The slope of a level; of PSS that of the memory that no other process shares, where it is
        known: PSS also moves when others that share its libraries come and go."""
        if level == "pss_mb" and all("private_mb" in reading for reading in self.readings):
            level = "private_mb"
        xs = [reading["requests"] for reading in self.readings if level in reading]
        return drift_of(xs, self.known(level))


@dataclass(frozen=True)
class SoakedVariant:
    """A variant: its processes and the parts of its load as points. `series`: of each process in
    each launch; `brief`: how many more ended early and were seen too few times."""

    row: ViewRow
    series: Mapping[str, Sequence[ProcessSeries]]
    brief: int
    processes: Sequence[ViewRow]
    load: Sequence[ViewRow]


def read_variants(
    result: Result, rows: Sequence[ViewRow], spec: SoakSpec
) -> Iterator[SoakedVariant]:
    """The variants of which a block was measured. Raises FormatError."""
    whole = {block.key for block in whole_blocks(result)}
    for row in rows:
        assert row.entry is not None
        place = (row.entry.line.variant, cell_slug(row.entry.line.cell))
        group = place[0] if len(rows) > 1 else ""
        blocks = [block for block in result.trials if _place(block) == place]
        blocks.sort(key=lambda block: block.row.run)
        if not blocks:
            continue
        series, answered, seconds = _read_series(blocks)
        shown = {
            name: launches
            for name, launches in series.items()
            if launches[-1].lasts or max(len(run.readings) for run in launches) >= FEWEST
        }
        hosts = [block.usage.get("host") or {} for block in reversed(blocks)]
        values = known_values(
            answered_in_all=answered,
            rate_in_all=answered / seconds if seconds > 0 else 0.0,
            free_mb=next((host["free_mb"] for host in hosts if "free_mb" in host), None),
        )
        seen = replace(row, name=place[0], group=group, values={**row.values, **values})
        points = _process_points(seen, shown, spec, seconds / len(blocks))
        parts = _load_points(seen, [block for block in blocks if block.key in whole])
        yield SoakedVariant(seen, shown, len(series) - len(shown), points, [*parts])


def _place(block: Trial) -> tuple[str, str]:
    return block.variant, cell_slug(block.cell)


def _read_series(blocks: Sequence[Trial]) -> tuple[dict[str, list[ProcessSeries]], int, float]:
    """The processes by name, in each launch; how many requests ended, and the seconds."""
    launches: dict[str, list[Trial]] = {}
    for block in sorted(blocks, key=lambda block: block.started_at):
        launches.setdefault(block.launch, []).append(block)
    named: dict[str, list[ProcessSeries]] = {}
    answered, lasted_s = 0, 0.0
    for of_launch in launches.values():
        of_launch.sort(key=lambda block: block.row.run)
        found: dict[tuple[str, int], ProcessSeries] = {}
        requests, seconds = 0, 0.0
        for block in of_launch:
            total = block.client.get("total")
            counts = block.counts if total is None else built(Counts, total, "trial.client.total")
            requests += counts.completed + counts.failed_total
            seconds += block.seconds.get("total", block.window_s)
            for process in block.usage.get("processes", ()):
                role = str(process["role"]).replace("_", " ")
                name = " ".join(filter(None, (role, deployment_of(process))))
                series = found.setdefault((name, process["pid"]), ProcessSeries(process["pid"]))
                levels = {level: process.get(level) for level in (*LEVELS, "private_mb")}
                reading = {level: value for level, value in levels.items() if value is not None}
                since = {"requests": requests / 1e6, "minutes": seconds / 60}
                series.readings.append({**since, **reading})
                series.lasts = block is of_launch[-1]
        answered, lasted_s = answered + requests, lasted_s + seconds
        several = Counter(name for name, _ in found)
        numbers: Counter[str] = Counter()
        for (name, _), series in found.items():
            numbers[name] += 1
            name = f"{name} {numbers[name]}" if several[name] > 1 else name
            named.setdefault(name, []).append(series)
    return named, answered, lasted_s


def _process_points(
    variant: ViewRow, series: Mapping[str, Sequence[ProcessSeries]], spec: SoakSpec, block_s: float
) -> list[ViewRow]:
    """The processes with their verdicts: what grows, then what is open; the fastest first."""
    drifts: dict[str, dict[str, LevelDrift]] = {name: {} for name in series}
    for name, launches in series.items():
        for level in LEVELS:
            if found := [drift for run in launches if (drift := run.drift(level)) is not None]:
                drifts[name][level] = joined(found)
    judged = max(1, sum("pss_mb" in levels for levels in drifts.values()))
    points = []
    for name, launches in series.items():
        memory = drifts[name].get("pss_mb")
        word, more_minutes = judge_memory(memory, launches, spec.leak, judged, block_s)
        growing = [
            level
            for level in ("threads", "descriptors")
            if level in drifts[name] and drifts[name][level].word(COUNT_LEAK, judged) == "grows"
        ]
        values = _process_values(variant, launches, drifts[name])
        values |= known_values(more_minutes=more_minutes)
        notes = [f"{level} grow" for level in growing]
        if more_minutes is not None:
            notes.append(f"another {minutes_text(more_minutes)}")
        if memory is not None and memory.warm_up >= LEAST_WARM_UP and word == "does not grow":
            values["warmed"] = Value(memory.warm_up)
            notes.append(f"warm-up {number(memory.warm_up, 3)} MB")
        leaks = word == "grows" or bool(growing)
        dims = {
            **{"point": "process", "variant": variant.name, "launches": len(launches)},
            **{"pids": [run.pid for run in launches], "verdict": word, "growing": growing},
            "leaks": leaks,
        }
        tones: dict[str, Tone] = {f"{level}_slope": "bad" for level in growing}
        tones["verdict"] = "bad" if leaks else TONES[word]
        points.append(ViewRow(dims, values, name, variant.group, (), tuple(notes), tones=tones))
    order = [*TONES]

    def rank(row: ViewRow) -> tuple[bool, int, float]:
        slope = row.value("pss_mb_slope") or 0.0
        return not row.dims["leaks"], order.index(row.dims["verdict"]), -slope

    return sorted(points, key=rank)


def _process_values(
    variant: ViewRow, launches: Sequence[ProcessSeries], drifts: Mapping[str, LevelDrift]
) -> dict[str, Value]:
    figures: dict[str, float | None] = {
        "million_requests": _span(launches, "requests"),
        "minutes": _span(launches, "minutes"),
    }
    for level in LEVELS:
        figures[f"{level}_begin"] = next(iter(launches[0].known(level)), None)
        figures[f"{level}_end"] = next(reversed(launches[-1].known(level)), None)
    rate, free_mb = variant.value("rate_in_all") or 0.0, variant.value("free_mb")
    if "pss_mb" in drifts:
        hourly = figures["mb_per_hour"] = drifts["pss_mb"].slope * rate * 3600 / 1e6
        figures["hours_left"] = free_mb / hourly if free_mb is not None and hourly > 0 else None
    values = known_values(**figures)
    for level, drift in drifts.items():
        values[f"{level}_slope"] = Value(drift.slope, low=drift.low, high=drift.high)
        values |= known_values(**{f"{level}_{part}": getattr(drift, part) for part in DRIFT})
    return values


def _span(launches: Sequence[ProcessSeries], of: str) -> float:
    """From the first readings to the last, of all launches."""
    return sum(series.readings[-1][of] - series.readings[0][of] for series in launches)


def judge_memory(
    drift: LevelDrift | None,
    launches: Sequence[ProcessSeries],
    leak: float,
    judged: int,
    block_s: float,
) -> tuple[DriftWord, float | None]:
    """The verdict on its memory, and about how many minutes more it takes where there is none. A
    growth that may be a warm-up is not judged."""
    if drift is None:
        read = min(len(series.readings) for series in launches)
        return TOO_SHORT, max(1, FEWEST - read) * block_s / 60
    word, longer = drift.word(leak, judged), drift.longer(leak, judged)
    if longer is not None:
        return word, (longer - 1) * _span(launches, "minutes")
    settles = _minutes_until_settled(drift, launches)
    return (TOO_SHORT, settles) if word == "grows" and settles else (word, None)


def _minutes_until_settled(drift: LevelDrift, launches: Sequence[ProcessSeries]) -> float:
    """Until a growth can be no warm-up: there have been WARM_UP_MINUTES within a launch, or it is
    WARM_UP_MB; 0: it is so."""
    spans = [(_span([series], "minutes"), _span([series], "requests")) for series in launches]
    minutes, requests = max(spans)
    grown = drift.slope * requests
    if grown >= WARM_UP_MB:
        return 0.0
    left = max(0.0, WARM_UP_MINUTES - minutes)
    return min(left, (WARM_UP_MB / grown - 1) * minutes) if grown > 0 else left


def _load_points(variant: ViewRow, blocks: Sequence[Trial]) -> Iterator[ViewRow]:
    """The first tenth of the blocks, all, and the last tenth. Raises FormatError."""
    n = max(1, round(TENTH * len(blocks)))
    for name, part in (("first tenth", blocks[:n]), ("all", blocks), ("last tenth", blocks[-n:])):
        counts = summed([block.counts for block in part])
        p50, p99 = latency_figures(part, (0.5, 0.99)) if part else (None, None)
        rates = (rate for block in part for rate in block.metrics[MAIN].windows or ())
        values = known_values(
            throughput=mean_of(rates),
            latency_p50=p50,
            latency_p99=p99,
            completed=counts.completed,
            errors=counts.failed_total,
        )
        dims = {"point": "load", "variant": variant.name, "blocks": len(part)}
        warnings = variant.warnings if part is blocks else ()
        yield ViewRow(dims, values, name, variant.group, warnings)


# Sentences.


def minutes_text(minutes: float) -> str:
    """`12 minutes`, `5 hours`, `more than a week`."""
    if minutes > 7 * 24 * 60:
        return "more than a week"
    if minutes > 120:
        return f"{minutes / 60:.0f} hours"
    return counted(max(1, round(minutes)), "minute")


def describe_leaks(process: ViewRow, variant: ViewRow) -> Iterator[str]:
    """What grows of a process, and what that means."""
    if process.dims["verdict"] == "grows":
        yield (
            f"{process.name} grows by {_slope_words(process, 'pss_mb', 'MB ')}: "
            f"{process.text('mb_per_hour')} MB an hour at {variant.text('rate_in_all')} req/s"
            f"{_left_words(process.value('hours_left'))}"
        )
    for level in process.dims["growing"]:
        yield f"{process.name}: {level} grow by {_slope_words(process, level)}"


def _slope_words(process: ViewRow, level: str, unit: str = "") -> str:
    """`1,081 MB per million requests (95 %: 1,078 to 1,084)`."""
    slope = process.values[f"{level}_slope"]
    low, high = shorten(slope.low or 0.0), shorten(slope.high or 0.0)
    return f"{shorten(slope.value)} {unit}per million requests (95 %: {low} to {high})"


def _left_words(hours: float | None) -> str:
    if hours is None:
        return ""
    lasts = f"{number(hours, 2)} hours" if hours < 72 else f"{number(hours / 24, 2)} days"
    return f", and the memory that is free lasts {lasts}"


def describe_variant(variant: SoakedVariant) -> Iterator[str]:
    """What grows, what does not, what is open, and whether the service became slower."""
    processes = variant.processes
    for process in processes:
        yield from describe_leaks(process, variant.row)
    steady = [row for row in processes if row.dims["verdict"] == "does not grow"]
    if steady:
        highs = {row.name: row.values["pss_mb_slope"].high or 0.0 for row in steady}
        most = max(highs, key=lambda name: highs[name])
        who = f"{len(steady)} of {len(processes)} processes does not grow"
        who = "no process grows" if len(steady) == len(processes) else who
        high = number(max(highs[most], 0.0), 3)
        yield f"memory of {who}: each by less than {high} MB per million requests ({most})"
    for row in steady:
        if "warmed" in row.values:
            warmed = number(row.values["warmed"].value, 3)
            yield f"warm-up: {row.name} grew by {warmed} MB, then levelled off"
    if words := describe_open(processes):
        yield words
    first, whole, last = variant.load
    if whole.dims["blocks"] > 1 and first.value(MAIN):
        change = (last.value(MAIN) or 0.0) / (first.value(MAIN) or 1.0) - 1
        tail = ""
        if first.value("latency_p99") and last.value("latency_p99"):
            tail = f", p99 {last.text('latency_p99')} ms after {first.text('latency_p99')} ms"
        rate_text = number(last.value(MAIN), 3)
        yield f"{rate_text} req/s in the last tenth, {100 * change:+.1f} % to the first{tail}"


def describe_open(processes: Sequence[ViewRow]) -> str:
    """`too short to say of proxy, raylet: another 12 minutes`; empty: of none."""
    rows = [row for row in processes if row.dims["verdict"] == TOO_SHORT]
    if not rows:
        return ""
    names = ", ".join(row.name for row in rows[:MOST_NAMES])
    more = f" and {len(rows) - MOST_NAMES} more" if len(rows) > MOST_NAMES else ""
    minutes = max(row.value("more_minutes") or 0.0 for row in rows)
    return f"{TOO_SHORT} of {names}{more}: another {minutes_text(minutes)}"


def gate(result: Result) -> tuple[list[str], str]:
    """What breaks the gate on leaks, and of what it is too short to say (empty: of none)."""
    view = look(result, ReportOptions(), LENS).view
    variants = {row.name: row for row in view.rows}
    processes = [row for row in view.points if row.dims["point"] == "process"]
    broken = [
        text for row in processes for text in describe_leaks(row, variants[row.dims["variant"]])
    ]
    return broken, describe_open(processes) if processes else "no process could be read"


# The whole.


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The variants of a soak with their processes and their load."""
    spec = built(SoakSpec, result.run.suite.get("soak"), "suite.soak")
    variants = [*read_variants(result, rows, spec)]
    names = [variant.row.name for variant in variants]
    texts = [
        statement(f"{variant.row.group}: {text}" if variant.row.group else text, names)
        for variant in variants
        for text in describe_variant(variant)
    ]
    processes = [row for variant in variants for row in variant.processes]
    load = [row for variant in variants for row in variant.load]
    brief = sum(variant.brief for variant in variants)
    ended = (
        [f"not shown: {counted(brief, 'process', 'processes')} that ended early"] if brief else []
    )
    memory = replace(PROCESSES, notes=(*PROCESSES.notes, *ended))
    charts = Charts(partial(draw_memory, variants))
    counts = make_table(COUNTS, processes, bare=True)
    sections = [
        Section("processes", "Processes", (make_table(memory, processes),), "headline"),
        Section("memory", "Memory over requests", (charts,)),
        Section("counts", "Threads and descriptors", (counts,), "table"),
        Section("load", "Load", (make_table(LOAD, load),), "table"),
    ]
    return View(
        rows=[
            *(variant.row for variant in variants),
            *(row for row in rows if row.dims["variant"] not in names),
        ],
        points=[*processes, *load],
        findings=texts,
        planned=(len(result.missing), len(result.plan), ""),
        sections=sections if variants else (),
        facts=tuple(_describe_plan(result, page, spec)),
    )


def _describe_plan(result: Result, page: Page, spec: SoakSpec) -> Iterator[tuple[str, str]]:
    for entry in page.entries[:1]:
        load = entry.line.row
        yield "load", f"{load.label}, client {load.client}, {load.loop} loop"
    planned, measured = counted(len(result.plan), "block"), len(result.trials)
    yield "planned", f"{planned} of {number(spec.block_s, 3)} s, {measured:,} measured"
    yield "threshold", f"{number(spec.leak, 3)} MB per million requests"


def draw_memory(variants: Sequence[SoakedVariant]) -> Iterator[Chart]:
    """Memory of each process over requests, in the order of the table."""
    for variant in variants:
        lines = {
            f"{process.name}, launch {launch}" if len(series) > 1 else process.name: run.readings
            for process in variant.processes
            for series in [variant.series[process.name]]
            for launch, run in enumerate(series, 1)
        }
        about = f": {variant.row.group}" if variant.row.group else ""
        for part, shown in in_parts(lines):
            rows = [
                ViewRow({"process": name, "requests": reading["requests"]}, known_values(**reading))
                for name, readings in shown.items()
                for reading in readings
            ]
            yield from line_chart(
                f"PSS over requests{about}{part}",
                rows,
                "requests",
                ("pss_mb",),
                "process",
                x_name="million requests since the launch",
                log_x=False,
                caption="Behind each block of the load, with nothing in flight.",
            )


LENS: Final = Lens(
    build, noun="block", silent=("requests/s:", "ratio:", "incomplete:"), condense=condensed
)
