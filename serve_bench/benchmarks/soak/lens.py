"""How a soak is looked at: which processes grow with requests, whether the service slows down.

A row is a variant, its blocks together. Points are its processes over all launches, and the parts
of its load. x is what the cluster answered since its launch, so a slope is of one process of one
launch; those of the same process in several launches are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Final, TypeAlias

from serve_bench.analysis.drift import FEWEST, DriftWord, LevelDrift, drift_of, joined
from serve_bench.analysis.statistics import MAIN, summarize
from serve_bench.benchmarks.soak.condensed import condensed, whole_blocks
from serve_bench.core.figures import counted, number
from serve_bench.core.load_result import Counts
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result, Trial
from serve_bench.core.schema import built
from serve_bench.core.soak import SoakSpec
from serve_bench.core.usage import deployment_of
from serve_bench.view.blocks import sentence, statement
from serve_bench.view.charts import MOST_LINES, Chart
from serve_bench.view.document import Charts, ReportOptions, Section, Tone
from serve_bench.view.figures import (
    ROW_FIGURES,
    Value,
    compute_values,
    declare,
    declare_all,
    known_values,
)
from serve_bench.view.frame import ViewRow, line_chart, make_spec, make_table, make_tiles
from serve_bench.view.lens import Lens, View, look
from serve_bench.view.rows import Page

COUNTED: Final = ("threads", "descriptors")
LEVELS: Final = {"pss_mb": "MB", **{name: name for name in COUNTED}}
"""What is read of each process behind each block, with its unit."""

FITTED: Final = ("error", "df", "rho", "warm_up")
"""Figures of a level by the names of a LevelDrift."""

for _level, _unit in LEVELS.items():
    for _part, _of, _meaning in (
        ("begin", _unit, "the first reading"),
        ("end", _unit, "the last reading"),
        ("slope", f"{_unit}/million", "growth with a million requests, with its 95 % interval"),
        ("error", f"{_unit}/million", "standard error of the slope"),
        ("df", "", "degrees of freedom of the slope"),
        ("rho", "", "autocorrelation of neighbouring readings"),
        ("warm_up", _unit, "growth beside the slope before it levelled off"),
    ):
        _title = (_part if _level == "pss_mb" else f"{_level} {_part}").replace("_", "-")
        _digits = 4 if _part in ("begin", "end") else 3
        declare(
            *(f"{_level}_{_part}", _of, f"{_level}: {_meaning}"),
            title=_title,
            shown="" if _of == _level else None,  # it stands in the title
            digits=_digits,
        )
declare_all(
    ("million_requests", "million", "requests between the first readings and the last", "requests"),
    ("minutes", "min", "of load between the same", "time"),
    ("mb_per_hour", "MB", "what the slope is in an hour at the rate of the soak", "an hour"),
    ("hours_left", "h", "until the memory that is free is used, if nothing else takes any"),
    ("more_minutes", "min", "how much longer a verdict takes", "verdict in"),
    ("rate_in_all", "requests/s", "requests that ended in a second, over all the time"),
    ("answered_in_all", "requests", "requests that ended since the launches, warm-ups too"),
    ("free_mb", "MB", "memory of the host that was free at the end"),
    digits=3,
)

PROCESSES: Final = make_spec(
    "Memory",
    "pss_mb_begin pss_mb_end pss_mb_slope mb_per_hour verdict more_minutes",
    "million_requests minutes pss_mb_warm_up",
    row="process",
    notes=(
        "begin, end: PSS (a page that n processes share counts 1/n); slope: 95 % in brackets, "
        "of what no other process shares, without the warm-up",
    ),
)
COUNTS: Final = make_spec(
    "Behind the first block and the last",
    " ".join(f"{level}_{part}" for level in COUNTED for part in ("begin", "end", "slope")),
    row="process",
)
LOAD: Final = make_spec(
    "Blocks together, their latencies to 0.8 %",
    f"{MAIN} latency_p50 latency_p99 completed errors",
    row="blocks",
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

TOO_SHORT: Final = "too short to say"
TONES: Final[Mapping[DriftWord, Tone]] = {
    "grows": "bad",
    TOO_SHORT: "doubt",
    "does not grow": "good",
}
"""In the order of the table."""

Readings: TypeAlias = list[dict[str, float]]
"""Of a process of a launch, behind each block: LEVELS, `private_mb`, and the `minutes` and
`requests` (million) since the launch."""


# Processes.


@dataclass
class Consumer:
    """What was read of a process of a variant in each launch, by its pid there. `lasts`: it was
    there at the end."""

    name: str
    pids: list[int] = field(default_factory=list)
    launches: list[Readings] = field(default_factory=list)
    lasts: bool = False

    def spans(self, of: str) -> list[float]:
        """From the first reading of each launch to its last."""
        return [readings[-1][of] - readings[0][of] for readings in self.launches]

    @cached_property
    def drifts(self) -> dict[str, LevelDrift]:
        """The slopes of the levels that have any."""
        found = {
            level: [*filter(None, (fit_level(readings, level) for readings in self.launches))]
            for level in LEVELS
        }
        return {level: joined(drifts) for level, drifts in found.items() if drifts}


def fit_level(readings: Readings, level: str) -> LevelDrift | None:
    """The slope of a level; of PSS that of the memory that no other process shares, where it is
    known: PSS also moves when others that share its libraries come and go."""
    if level == "pss_mb" and all("private_mb" in reading for reading in readings):
        level = "private_mb"
    known = [reading for reading in readings if level in reading]
    requests = [reading["requests"] for reading in known]
    return drift_of(requests, [reading[level] for reading in known])


def read_processes(blocks: Sequence[Trial]) -> tuple[list[Consumer], int, float]:
    """The processes of a variant in the order of time, several of a launch with the same name
    numbered; how many requests ended in its blocks, and their seconds. Raises FormatError."""
    named: dict[str, Consumer] = {}
    answered, lasted_s = 0, 0.0
    for _, launch in groupby(blocks, key=lambda block: block.launch):
        found: dict[str, dict[int, Readings]] = {}
        requests, seconds, last_s = 0, 0.0, 0.0
        for block in launch:
            total = block.client.get("total")
            counts = block.counts if total is None else built(Counts, total, "trial.client.total")
            requests += counts.completed + counts.failed_total
            seconds += block.seconds.get("total", block.window_s)
            for facts in block.usage.get("processes", ()):
                last_s = seconds
                words = (str(facts["role"]).replace("_", " "), deployment_of(facts))
                several = found.setdefault(" ".join(filter(None, words)), {})
                levels = {level: facts.get(level) for level in (*LEVELS, "private_mb")}
                reading = {level: value for level, value in levels.items() if value is not None}
                reading |= {"requests": requests / 1e6, "minutes": seconds / 60}
                several.setdefault(facts["pid"], []).append(reading)
        for name, several in found.items():
            for place, (pid, readings) in enumerate(several.items(), 1):
                label = f"{name} {place}" if len(several) > 1 else name
                process = named.setdefault(label, Consumer(label))
                process.pids.append(pid)
                process.launches.append(readings)
                process.lasts = readings[-1]["minutes"] == last_s / 60
        answered, lasted_s = answered + requests, lasted_s + seconds
    return [*named.values()], answered, lasted_s


def make_process(process: Consumer, variant: ViewRow, spec: SoakSpec, judged: int) -> ViewRow:
    """A process with its verdict, one of so many that are `judged`."""
    word, more_minutes = judge_memory(process, spec, judged)
    values = known_values(
        million_requests=sum(process.spans("requests")),
        minutes=sum(process.spans("minutes")),
        more_minutes=more_minutes,
    )
    growing = []
    for level in LEVELS:
        readings = [reading for launch in process.launches for reading in launch]
        if read := [float(reading[level]) for reading in readings if level in reading]:
            values |= {f"{level}_begin": Value(read[0]), f"{level}_end": Value(read[-1])}
        if (drift := process.drifts.get(level)) is not None:
            values |= {f"{level}_{part}": Value(getattr(drift, part)) for part in FITTED}
            values[f"{level}_slope"] = Value(drift.slope, low=drift.low, high=drift.high)
            if level in COUNTED and drift.word(COUNT_LEAK, judged) == "grows":
                growing.append(level)
    if "pss_mb_slope" in values:
        rate, free_mb = (variant.value(name) or 0.0 for name in ("rate_in_all", "free_mb"))
        hourly = values["pss_mb_slope"].value * rate * 3600 / 1e6
        left = free_mb / hourly if free_mb and hourly > 0 else None
        values |= known_values(mb_per_hour=hourly, hours_left=left)
    leaks = word == "grows" or bool(growing)
    dims = {"point": "process", "variant": variant.name, "launches": len(process.launches)}
    dims |= {"pids": process.pids, "verdict": word, "growing": growing, "leaks": leaks}
    tones: dict[str, Tone] = {f"{level}_slope": "bad" for level in growing}
    tones["verdict"] = "bad" if leaks else TONES[word]
    notes = tuple(f"{level} grow" for level in growing)
    return ViewRow(dims, values, process.name, variant.group, notes=notes, tones=tones)


def judge_memory(process: Consumer, spec: SoakSpec, judged: int) -> tuple[DriftWord, float | None]:
    """The verdict on its memory, and about how many minutes more it takes where there is none. A
    growth that may be a warm-up is not judged: until there have been WARM_UP_MINUTES within a
    launch, or it is WARM_UP_MB."""
    drift = process.drifts.get("pss_mb")
    if drift is None:
        read = min(map(len, process.launches))
        return TOO_SHORT, max(1, FEWEST - read) * spec.block_s / 60
    word, longer = drift.word(spec.leak, judged), drift.longer(spec.leak, judged)
    spans = [*zip(process.spans("minutes"), process.spans("requests"), strict=True)]
    if longer is not None:
        return word, (longer - 1) * sum(minutes for minutes, _ in spans)
    minutes, requests = max(spans)
    grown = drift.slope * requests
    if word != "grows" or minutes >= WARM_UP_MINUTES or grown >= WARM_UP_MB:
        return word, None
    return TOO_SHORT, min(WARM_UP_MINUTES - minutes, (WARM_UP_MB / grown - 1) * minutes)


def read_variant(
    row: ViewRow, blocks: Sequence[Trial], spec: SoakSpec
) -> tuple[ViewRow, list[tuple[ViewRow, Consumer]]]:
    """A variant of its blocks, and its processes: what grows, then what is open, the fastest first.
    One that ended early is counted and not judged. Raises FormatError."""
    every, answered, seconds = read_processes(blocks)
    seen = [run for run in every if run.lasts or max(map(len, run.launches)) >= FEWEST]
    hosts = [block.usage.get("host") or {} for block in reversed(blocks)]
    values = known_values(
        answered_in_all=answered,
        rate_in_all=answered / seconds if seconds > 0 else 0.0,
        free_mb=next((host["free_mb"] for host in hosts if "free_mb" in host), None),
    )
    dims = {**row.dims, "ended_early": len(every) - len(seen) or None}
    row = replace(row, dims=dims, values={**row.values, **values})
    judged = max(1, sum("pss_mb" in process.drifts for process in seen))
    pairs = [(make_process(process, row, spec, judged), process) for process in seen]
    return row, sorted(pairs, key=lambda pair: _rank(pair[0]))


def _rank(row: ViewRow) -> tuple[bool, int, float]:
    slope = row.value("pss_mb_slope") or 0.0
    return not row.dims["leaks"], [*TONES].index(row.dims["verdict"]), -slope


def make_load(result: Result, variant: ViewRow, blocks: Sequence[Trial]) -> Iterator[ViewRow]:
    """The first tenth of the whole blocks, all, and the last tenth. Raises FormatError."""
    blocks = whole_blocks(replace(result, trials=tuple(blocks)))
    n = max(1, round(TENTH * len(blocks)))
    for name, part in (("first tenth", blocks[:n]), ("all", blocks), ("last tenth", blocks[-n:])):
        lines = summarize(condensed(replace(result, trials=tuple(part))))
        values = dict(pair for line in lines for pair in compute_values(line, ROW_FIGURES))
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
    """`too short to say of proxy and 2 more: another 12 min 0 s`; empty: of none."""
    rows = [row for row in processes if row.dims["verdict"] == TOO_SHORT]
    if not rows:
        return ""
    seconds = 60 * max(row.value("more_minutes") or 0.0 for row in rows)
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{TOO_SHORT} of {rows[0].name}{more}: another {duration_text(seconds)}"


def describe_variant(variant: ViewRow, processes: Sequence[ViewRow]) -> Iterator[str]:
    """What grows, and what does not or is open."""
    if leaking := [row for row in processes if row.dims["leaks"]]:
        text = "; ".join(describe_leaks(leaking[0], variant))
        more = counted(len(leaking) - 1, "more process", "more processes")
        yield (
            f"{text}; {more} {'leaks' if len(leaking) == 2 else 'leak'} too"
            if leaking[1:]
            else text
        )
    words = [describe_open(processes)]
    if steady := sum(row.dims["verdict"] == "does not grow" for row in processes):
        words.append(f"memory of {steady} of {len(processes)} processes does not grow")
    if brief := variant.dims["ended_early"]:
        words.append(f"not shown: {counted(brief, 'process', 'processes')} that ended early")
    if any(words):
        yield "; ".join(filter(None, words))


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
    """The variants of a soak, which has one cell, with their processes and their load."""
    spec = built(SoakSpec, result.run.suite.get("soak"), "suite.soak")
    blocks = sorted(result.trials, key=lambda block: (block.started_at, block.row.run))
    shown: list[ViewRow] = []
    processes: list[ViewRow] = []
    load: list[ViewRow] = []
    findings: list[str] = []
    drawn: dict[str, Sequence[Consumer]] = {}
    for row in rows:
        name = row.dims["variant"]
        row = replace(row, name=name, group=name if len(rows) > 1 else "")
        if ours := [block for block in blocks if block.variant == name]:
            row, pairs = read_variant(row, ours, spec)
            found = [point for point, _ in pairs]
            for text in describe_variant(row, found):
                findings.append(sentence(f"{name}: {text}") if row.group else statement(text))
            drawn[name] = [process for _, process in pairs[:MOST_LINES]]
            processes += found
            load += make_load(result, row, ours)
        shown.append(row)
    points = [*processes, *load]
    sections = [
        Section("processes", "Processes", (make_table(PROCESSES, processes),), "headline"),
        Section("memory", "Memory over requests", (Charts(partial(draw_memory, drawn)),)),
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


def draw_memory(variants: Mapping[str, Sequence[Consumer]]) -> Iterator[Chart]:
    """Memory over requests of the first processes of the table, a chart for each variant."""
    for variant, processes in variants.items():
        rows = [
            ViewRow(
                {
                    "x": reading["requests"],
                    "process": process.name + (f", launch {launch}" if launch > 1 else ""),
                },
                known_values(pss_mb_end=reading.get("pss_mb")),
            )
            for process in processes
            for launch, readings in enumerate(process.launches, 1)
            for reading in readings
        ]
        x_name = "million requests since the launch, with nothing in flight"
        title = f"PSS over requests: {variant}"
        yield from line_chart(
            title, rows, "x", ("pss_mb_end",), "process", x_name=x_name, log_x=False
        )


LENS: Final = Lens(build, noun="block", condense=condensed)
