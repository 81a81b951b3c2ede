"""How a soak is looked at: which processes grow with requests, whether the service slows down.

A row is a variant, its blocks together. Points are its processes over all launches, and the parts
of its load. x is what the cluster answered since its launch, so a series is of one process of one
launch; the slopes of the same process in several launches are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Final

from serve_bench.analysis.drift import FEWEST, DriftWord, LevelDrift, drift_of, joined
from serve_bench.analysis.statistics import MAIN, latency_figures
from serve_bench.benchmarks.soak.condensed import condensed, sum_counts, whole_blocks
from serve_bench.core.figures import counted, number
from serve_bench.core.load_result import Counts
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result, Trial, cell_slug
from serve_bench.core.schema import built
from serve_bench.core.soak import SoakSpec
from serve_bench.core.usage import deployment_of
from serve_bench.view.blocks import MOST_LINES, sentence, statement
from serve_bench.view.charts import Chart
from serve_bench.view.document import Charts, ReportOptions, Section, Tone
from serve_bench.view.figures import Value, declare, known_values, mean_of
from serve_bench.view.frame import Field, TableSpec, ViewRow, line_chart, make_table, make_tiles
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Page

COUNTED: Final = ("threads", "descriptors")
LEVELS: Final = {"pss_mb": "MB", **{name: name for name in COUNTED}}
"""What is read of each process behind each block, with its unit."""

PARTS: Final = {
    "begin": "the first reading",
    "end": "the last reading",
    "slope": "growth with a million requests, with its 95 % interval",
    "error": "standard error of the slope",
    "df": "degrees of freedom of the slope",
    "rho": "autocorrelation of neighbouring readings",
    "warm_up": "growth beside the slope before it levelled off",
}
"""Figures of a level, the last four by the names of a LevelDrift."""

PER: Final = {"slope": "/million", "error": "/million"}

for _level, _unit in LEVELS.items():
    declare(_level, _unit, f"{_level} of a process behind a block", title="PSS")
    for _part, _meaning in PARTS.items():
        _of = "" if _part in ("df", "rho") else f"{_unit}{PER.get(_part, '')}"
        _digits = 4 if _part in ("begin", "end") else 3
        declare(f"{_level}_{_part}", _of, f"{_level}: {_meaning}", title=_part, digits=_digits)
for _name, _unit, _meaning in (
    ("million_requests", "million", "requests between the first readings and the last"),
    ("minutes", "min", "of load between the same"),
    ("mb_per_hour", "MB", "what the slope is in an hour at the rate of the soak"),
    ("hours_left", "h", "until the memory that is free is used, if nothing else takes any"),
    ("more_minutes", "min", "how much longer a verdict takes"),
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
        *(Field("mb_per_hour", "an hour"), Field("pss_mb_warm_up", "warm-up", detail=True)),
        *(Field("verdict"), Field("more_minutes", "verdict in")),
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
            Field(f"{level}_{part}", level, head=head)
            for level in COUNTED
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

    def span(self, of: str) -> float:
        """From the first reading to the last."""
        return self.readings[-1][of] - self.readings[0][of]

    def drift(self, level: str) -> LevelDrift | None:
        """The slope of a level; of PSS that of the memory that no other process shares, where it is
        known: PSS also moves when others that share its libraries come and go."""
        if level == "pss_mb" and all("private_mb" in reading for reading in self.readings):
            level = "private_mb"
        pairs = [
            (reading["requests"], reading[level]) for reading in self.readings if level in reading
        ]
        return drift_of([x for x, _ in pairs], [y for _, y in pairs])


def read_variant(
    row: ViewRow, blocks: Sequence[Trial], whole: Sequence[Trial], spec: SoakSpec
) -> tuple[ViewRow, list[ViewRow], list[ViewRow]]:
    """A variant of its blocks, of which the `whole` ones have figures; its processes and the parts
    of its load as points; and what was read of the first processes. Raises FormatError."""
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
    row = replace(
        row,
        dims={**row.dims, "ended_early": len(series) - len(shown) or None},
        values={**row.values, **values},
    )
    processes = _judge_processes(row, shown, spec, seconds / len(blocks))
    readings = [
        ViewRow(
            {"process": label, "requests": reading["requests"]},
            known_values(pss_mb=reading.get("pss_mb")),
        )
        for point in processes[:MOST_LINES]
        for launch, run in enumerate(shown[point.name], 1)
        for label in [f"{point.name}, launch {launch}" if launch > 1 else point.name]
        for reading in run.readings
    ]
    return row, [*processes, *_load_points(row, whole)], readings


def _read_series(blocks: Sequence[Trial]) -> tuple[dict[str, list[ProcessSeries]], int, float]:
    """The processes by name, in each launch; how many requests ended, and the seconds."""
    named: dict[str, list[ProcessSeries]] = {}
    answered, lasted_s = 0, 0.0
    for _, launch in groupby(blocks, key=lambda block: block.launch):
        found: dict[str, dict[int, ProcessSeries]] = {}
        requests, seconds, since = 0, 0.0, {"requests": 0.0, "minutes": 0.0}
        for block in launch:
            total = block.client.get("total")
            counts = block.counts if total is None else built(Counts, total, "trial.client.total")
            requests += counts.completed + counts.failed_total
            seconds += block.seconds.get("total", block.window_s)
            for process in block.usage.get("processes", ()):
                since = {"requests": requests / 1e6, "minutes": seconds / 60}
                role, pid = str(process["role"]).replace("_", " "), process["pid"]
                name = " ".join(filter(None, (role, deployment_of(process))))
                levels = {level: process.get(level) for level in (*LEVELS, "private_mb")}
                reading = {level: value for level, value in levels.items() if value is not None}
                series = found.setdefault(name, {}).setdefault(pid, ProcessSeries(pid))
                series.readings.append({**since, **reading})
        answered, lasted_s = answered + requests, lasted_s + seconds
        for name, several in found.items():
            for number_of, series in enumerate(several.values(), 1):
                series.lasts = series.readings[-1]["minutes"] == since["minutes"]
                label = f"{name} {number_of}" if len(several) > 1 else name
                named.setdefault(label, []).append(series)
    return named, answered, lasted_s


def _judge_processes(
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
            for level in COUNTED
            if level in drifts[name] and drifts[name][level].word(COUNT_LEAK, judged) == "grows"
        ]
        values = _process_values(variant, launches, drifts[name])
        leaks = word == "grows" or bool(growing)
        dims = {
            **{"point": "process", "variant": variant.name, "launches": len(launches)},
            **{"pids": [run.pid for run in launches], "verdict": word, "growing": growing},
            "leaks": leaks,
        }
        tones: dict[str, Tone] = {f"{level}_slope": "bad" for level in growing}
        tones["verdict"] = "bad" if leaks else TONES[word]
        values |= known_values(more_minutes=more_minutes)
        notes = tuple(f"{level} grow" for level in growing)
        points.append(ViewRow(dims, values, name, variant.group, notes=notes, tones=tones))

    def rank(row: ViewRow) -> tuple[bool, int, float]:
        slope = row.value("pss_mb_slope") or 0.0
        return not row.dims["leaks"], [*TONES].index(row.dims["verdict"]), -slope

    return sorted(points, key=rank)


def _process_values(
    variant: ViewRow, launches: Sequence[ProcessSeries], drifts: Mapping[str, LevelDrift]
) -> dict[str, Value]:
    figures: dict[str, float | None] = {
        "million_requests": sum(run.span("requests") for run in launches),
        "minutes": sum(run.span("minutes") for run in launches),
    }
    for level in LEVELS:
        read = [reading[level] for run in launches for reading in run.readings if level in reading]
        if read:
            figures |= {f"{level}_begin": float(read[0]), f"{level}_end": float(read[-1])}
    rate, free_mb = variant.value("rate_in_all") or 0.0, variant.value("free_mb")
    if "pss_mb" in drifts:
        hourly = figures["mb_per_hour"] = drifts["pss_mb"].slope * rate * 3600 / 1e6
        figures["hours_left"] = free_mb / hourly if free_mb is not None and hourly > 0 else None
    values = known_values(**figures)
    for level, drift in drifts.items():
        values[f"{level}_slope"] = Value(drift.slope, low=drift.low, high=drift.high)
        for part in ("error", "df", "rho", "warm_up"):
            values[f"{level}_{part}"] = Value(getattr(drift, part))
    return values


def judge_memory(
    drift: LevelDrift | None,
    launches: Sequence[ProcessSeries],
    leak: float,
    judged: int,
    block_s: float,
) -> tuple[DriftWord, float | None]:
    """The verdict on its memory, and about how many minutes more it takes where there is none. A
    growth that may be a warm-up is not judged: until there have been WARM_UP_MINUTES within a
    launch, or it is WARM_UP_MB."""
    if drift is None:
        read = min(len(run.readings) for run in launches)
        return TOO_SHORT, max(1, FEWEST - read) * block_s / 60
    word, longer = drift.word(leak, judged), drift.longer(leak, judged)
    if longer is not None:
        return word, (longer - 1) * sum(run.span("minutes") for run in launches)
    longest = max(launches, key=lambda run: run.span("minutes"))
    minutes, grown = longest.span("minutes"), drift.slope * longest.span("requests")
    if word != "grows" or minutes >= WARM_UP_MINUTES or grown >= WARM_UP_MB:
        return word, None
    return TOO_SHORT, min(WARM_UP_MINUTES - minutes, (WARM_UP_MB / grown - 1) * minutes)


def _load_points(variant: ViewRow, blocks: Sequence[Trial]) -> Iterator[ViewRow]:
    """The first tenth of the blocks, all, and the last tenth. Raises FormatError."""
    n = max(1, round(TENTH * len(blocks)))
    for name, part in (("first tenth", blocks[:n]), ("all", blocks), ("last tenth", blocks[-n:])):
        counts = sum_counts([block.counts for block in part])
        p50, p99 = latency_figures(part, (0.5, 0.99)) if part else (None, None)
        values = known_values(
            throughput=mean_of(
                rate for block in part for rate in block.metrics[MAIN].windows or ()
            ),
            latency_p50=p50,
            latency_p99=p99,
            completed=counts.completed,
            errors=counts.failed_total,
        )
        dims = {"point": "load", "variant": variant.name, "blocks": len(part)}
        warnings = variant.warnings if part is blocks else ()
        yield ViewRow(dims, values, name, variant.group, warnings)


# Sentences.


def describe_leaks(process: ViewRow, variant: ViewRow) -> Iterator[str]:
    """What grows of a process, and what that means."""
    if process.dims["verdict"] == "grows":
        hours = process.value("hours_left")
        lasts = "" if hours is None else f"; the free memory lasts {duration_text(3600 * hours)}"
        yield (
            f"{process.name} grows by {process.text('pss_mb_slope')} MB per million requests, "
            f"{process.text('mb_per_hour')} MB an hour at {variant.text('rate_in_all')} requests/s"
            f"{lasts}"
        )
    for level in process.dims["growing"]:
        slope = process.text(f"{level}_slope")
        yield f"{process.name}: {level} grow by {slope} per million requests"


def describe_open(processes: Sequence[ViewRow]) -> str:
    """`too short to say of proxy, raylet: another 12 min 0 s`; empty: of none."""
    rows = [row for row in processes if row.dims["verdict"] == TOO_SHORT]
    if not rows:
        return ""
    seconds = 60 * max(row.value("more_minutes") or 0.0 for row in rows)
    return f"{TOO_SHORT} of {_name_few(rows)}: another {duration_text(seconds)}"


def _name_few(rows: Sequence[ViewRow]) -> str:
    more = f" and {len(rows) - MOST_NAMES} more" if len(rows) > MOST_NAMES else ""
    return ", ".join(row.name for row in rows[:MOST_NAMES]) + more


def describe_variant(variant: ViewRow, points: Sequence[ViewRow]) -> Iterator[str]:
    """What grows, what does not or is open, and whether the service became slower."""
    *processes, first, whole, last = points
    if leaking := [row for row in processes if row.dims["leaks"]]:
        text = "; ".join(describe_leaks(leaking[0], variant))
        yield f"{text}; also {_name_few(leaking[1:])}" if leaking[1:] else text
    words = [describe_open(processes)]
    steady = [row for row in processes if row.dims["verdict"] == "does not grow"]
    if steady:
        most = max(0.0, *(row.values["pss_mb_slope"].high or 0.0 for row in steady))
        words.append(
            f"memory of {len(steady)} of {len(processes)} processes does not grow: each by less "
            f"than {number(most, 3)} MB per million requests"
        )
    if brief := variant.dims["ended_early"]:
        words.append(f"not shown: {counted(brief, 'process', 'processes')} that ended early")
    if any(words):
        yield "; ".join(filter(None, words))
    if whole.dims["blocks"] > 1 and first.value(MAIN):
        change = (last.value(MAIN) or 0.0) / (first.value(MAIN) or 1.0) - 1
        yield (
            f"{last.text(MAIN)} requests/s in the last tenth, {100 * change:+.1f} % to the first, "
            f"p99 {last.text('latency_p99')} ms after {first.text('latency_p99')} ms"
        )


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
    blocks = sorted(result.trials, key=lambda block: (block.started_at, block.row.run))
    whole = {block.key for block in whole_blocks(result)}
    shown, points, readings = [], [], {}
    findings: list[str] = []
    for row in rows:
        assert row.entry is not None
        name, cell = row.dims["variant"], cell_slug(row.entry.line.cell)
        ours = [block for block in blocks if (block.variant, cell_slug(block.cell)) == (name, cell)]
        if ours:
            row = replace(row, name=name, group=name if len(rows) > 1 else "")
            sound = [block for block in ours if block.key in whole]
            row, found, readings[name] = read_variant(row, ours, sound, spec)
            points += found
            for text in describe_variant(row, found):
                findings.append(sentence(f"{name}: {text}") if row.group else statement(text))
        shown.append(row)
    processes = [point for point in points if point.dims["point"] == "process"]
    load = [point for point in points if point.dims["point"] == "load"]
    sections = [
        Section("processes", "Processes", (make_table(PROCESSES, processes),), "headline"),
        Section("memory", "Memory over requests", (Charts(partial(draw_memory, readings)),)),
        Section("counts", "Threads and descriptors", (make_table(COUNTS, processes),)),
        Section("load", "Load", (make_table(LOAD, load),), "table"),
    ]
    return View(
        rows=shown,
        points=points,
        findings=findings,
        planned=(len(result.missing), len(result.plan), ""),
        tiles=[*make_tiles(points[0], ("pss_mb_slope", "verdict"))] if points else [],
        sections=sections if points else (),
        facts=[("threshold", f"{number(spec.leak, 3)} MB per million requests")],
    )


def draw_memory(readings: Mapping[str, Sequence[ViewRow]]) -> Iterator[Chart]:
    """Memory over requests of the first processes of the table, a chart for each variant."""
    for variant, rows in readings.items():
        yield from line_chart(
            f"PSS over requests: {variant}",
            rows,
            "requests",
            ("pss_mb",),
            "process",
            x_name="million requests since the launch",
            log_x=False,
            caption="Behind each block of the load, with nothing in flight.",
        )


LENS: Final = Lens(build, noun="block", condense=condensed)
