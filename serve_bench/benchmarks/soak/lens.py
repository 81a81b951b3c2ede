"""The report on a soak: which processes grow with requests, whether the service slows down.

A row is a variant, its blocks together. Points are its processes over all launches, and the parts
of its load. x is what the cluster answered since its launch, so a slope is of one process of one
launch; those of the same process in several launches are joined.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from serve_bench.analysis.drift import FEWEST, DriftWord, LevelDrift, drift_of, pool_drifts
from serve_bench.analysis.statistics import MAIN, merged, summarize
from serve_bench.core.facts import ClientFacts, ProcessUsage, TrialSeconds
from serve_bench.core.figures import counted, number
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial
from serve_bench.core.soak import SoakSpec, soak_row
from serve_bench.core.usage import deployment_of
from serve_bench.view.charts import MOST_LINES, Chart, Point, split_lines
from serve_bench.view.document import Later, ReportOptions, Section, Tone, join_words, statement
from serve_bench.view.figures import (
    FIGURES,
    ROW_FIGURES,
    Value,
    compute_values,
    declare,
    known_values,
    mean_of,
)
from serve_bench.view.frame import ViewRow, make_spec, make_tiles, table_section
from serve_bench.view.lens import Lens, View, plan_row, replace_rows
from serve_bench.view.rows import Page

LEVELS: Final = {"pss_mb": "MB", "threads": "threads", "descriptors": "descriptors"}
"""What is read of each process after each block, with its unit."""

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
        _name, _digits = f"{_level}_{_part}", 4 if _part in ("begin", "end") else 3
        declare((_name, _of, f"{_level}: {_meaning}", _part.replace("_", "-")), digits=_digits)
declare(
    ("million_requests", "million", "requests between the first readings and the last", "requests"),
    ("minutes", "min", "of load between the same", "time"),
    ("mb_per_hour", "MB", "what the slope is in an hour at the rate of the soak", "an hour"),
    ("hours_left", "h", "until free memory is used, if nothing else takes any"),
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
    notes=("begin, end: PSS; slope (95 %): of what no other process shares, without warm-up",),
)
_shown = f"{MAIN} latency_p50 latency_p99 completed errors"
LOAD: Final = make_spec("Blocks together, their latencies to 0.8 %", _shown, row="blocks")
COUNT_LEAK: Final = 100.0
"""Threads or descriptors for each million requests from which on they count as a leak: at 100
requests/s 860 a day, beyond the usual limit of 1,024 descriptors on the second."""

WARM_UP_MB: Final = 15.0
WARM_UP_MINUTES: Final = 10.0
"""What processes of Serve take, and for how long, until they level off: a proxy 12.3 MB, a replica
4 MB in 10 minutes (Ray 2.60, docs/soak.md). Less growth in less time may be that."""

TOO_SHORT: Final = "too short to say"
TONES: Final[dict[DriftWord, Tone]] = {"grows": "bad", TOO_SHORT: "doubt", "does not grow": "good"}


@dataclass(frozen=True)
class Reading:
    """A process after a block."""

    process: ProcessUsage
    block: int
    requests: float  # million, answered since the launch
    minutes: float  # since the launch


Readings: TypeAlias = list[Reading]
"""The readings of a process in a launch, in the order of time."""
Launches: TypeAlias = list[Readings]


# The blocks of a variant as one trial whose windows are the blocks, which `compare`, `history`, the
# SLO and the checks read too.


def condensed(result: Result) -> Result:
    """Return the run with a trial for each variant. Raises FormatError for damaged records."""
    blocks: dict[str, list[Trial]] = defaultdict(list)
    for block in whole_blocks(result):
        blocks[block.variant].append(block)
    plan = [*map(_plan_variant, (*result.plan, *result.trials))]
    return replace_rows(result, plan, map(_join_blocks, blocks.values()))


def whole_blocks(result: Result) -> list[Trial]:
    """List the blocks with figures: measured to the end, of a whole cluster, with an answer."""
    broken = result.broken
    trials = (trial for trial in result.trials if trial.key not in broken)
    return [trial for trial in trials if MAIN in trial.metrics and trial.counts.completed]


def _plan_variant(block: PlannedTrial) -> PlannedTrial:
    """Return the trial that all blocks of the variant of this one become."""
    return plan_row(block, soak_row(block.row.connections, block.row.rate_per_s, block.row.traffic))


def _join_blocks(blocks: Sequence[Trial]) -> Trial:
    """Join blocks (at least one) to a trial. Raises FormatError."""
    first, names = blocks[0], dict.fromkeys(name for block in blocks for name in block.metrics)
    bound = [seen for block in blocks if (seen := block.client.verdict) and seen.client_bound]
    return Trial(
        **vars(_plan_variant(first)),
        **{name: getattr(first, name) for name in ("launch", "started_at", "window_s")},
        warmup=Warmup(0.0, True, 0, True),
        metrics={name: _join_metric(blocks, name) for name in names},
        counts=_sum_counts([block.counts for block in blocks]),
        seconds=TrialSeconds(measured=sum(block.seconds.measured for block in blocks)),
        client=ClientFacts(
            in_windows=_sum_counts([block.client.in_windows or block.counts for block in blocks]),
            mean_in_flight=mean_of(block.client.mean_in_flight for block in blocks),
            verdict=bound[0] if 2 * len(bound) > len(blocks) else None,
        ),
    )


def _join_metric(blocks: Sequence[Trial], name: str) -> Metric:
    metrics = [block.metrics[name] for block in blocks if name in block.metrics]
    windows = tuple(value for metric in metrics for value in metric.windows or ())
    histogram = None if windows else merged(blocks, name).encode()
    return replace(metrics[0], windows=windows or None, histogram=histogram)


def _sum_counts(parts: Sequence[Counts]) -> Counts:
    failed = sum((Counter(part.failed) for part in parts), Counter[str]())
    names = ("sent", "completed", "in_flight", "carried_in", "unsent")
    numbers = {name: sum(getattr(part, name) for part in parts) for name in names}
    return Counts(failed=failed, **numbers)


def count_ended(block: Trial) -> int:
    """Count the requests of a block that ended, its warm-up too."""
    total = block.client.total or block.counts
    return total.completed + total.failed_total


def read_processes(blocks: Sequence[Trial]) -> dict[str, Launches]:
    """Return the readings of a variant by process, in the order of time. Raises FormatError."""
    named: dict[str, Launches] = defaultdict(list)
    for _, launch in groupby(enumerate(blocks), key=lambda pair: pair[1].launch):
        found: dict[str, dict[int, Readings]] = defaultdict(lambda: defaultdict(list))
        requests, minutes = 0.0, 0.0
        for index, block in launch:
            requests += count_ended(block) / 1e6
            minutes += block.seconds.total / 60
            for process in block.usage.processes:
                words = (process.role.replace("_", " "), deployment_of(process))
                reading = Reading(process, index, requests, minutes)
                found[" ".join(filter(None, words))][process.pid].append(reading)
        for name, several in found.items():
            for place, readings in enumerate(several.values(), 1):
                named[f"{name} {place}" if len(several) > 1 else name].append(readings)
    return named


def read_level(readings: Readings, level: str) -> tuple[list[float], list[float]]:
    """Return the requests (million) after which a level was read, and the level."""
    levels = [(reading.requests, getattr(reading.process, level)) for reading in readings]
    known = [(requests, float(value)) for requests, value in levels if value is not None]
    return [requests for requests, _ in known], [value for _, value in known]


def fit_level(launches: Launches, level: str) -> LevelDrift | None:
    """Fit the slope of a level; None without enough readings."""
    drifts = []
    for readings in launches:
        # PSS also moves when others that share its libraries come and go: memory that no other
        # process shares is fitted, where it is known.
        private = level == "pss_mb" and readings[0].process.private_mb is not None
        drifts.append(drift_of(*read_level(readings, "private_mb" if private else level)))
    found = [*filter(None, drifts)]
    return pool_drifts(found) if found else None


def judge_memory(
    launches: Launches, drift: LevelDrift | None, spec: SoakSpec, judged: int
) -> tuple[DriftWord, float | None]:
    """Judge a memory, and estimate the further minutes of load that a verdict takes, if none yet.

    A growth that may be a warm-up is not judged: until there have been WARM_UP_MINUTES within a
    launch, or it is WARM_UP_MB.
    """
    if drift is None:
        return TOO_SHORT, max(1, FEWEST - min(map(len, launches))) * spec.block_s / 60
    word, longer = drift.word(spec.leak, judged), drift.longer(spec.leak, judged)
    if longer is not None:
        return word, (longer - 1) * sum(spans(launches, "minutes"))
    pairs = zip(spans(launches, "minutes"), spans(launches, "requests"), strict=True)
    minutes, requests = max(pairs)
    grown = drift.slope * requests
    if word != "grows" or minutes >= WARM_UP_MINUTES or grown >= WARM_UP_MB:
        return word, None
    return TOO_SHORT, min(WARM_UP_MINUTES - minutes, (WARM_UP_MB / grown - 1) * minutes)


def spans(launches: Launches, name: str) -> list[float]:
    """Return the span of each launch, from its first reading to its last."""
    return [getattr(readings[-1], name) - getattr(readings[0], name) for readings in launches]


def make_process(
    name: str, launches: Launches, variant: ViewRow, spec: SoakSpec, judged: int
) -> ViewRow:
    """Make the point of a process with its verdict, one of `judged` processes."""
    drifts = {level: fit_level(launches, level) for level in LEVELS}
    word, more_minutes = judge_memory(launches, drifts["pss_mb"], spec, judged)
    values: dict[str, Value] = {}
    notes, tones = dict[str, str](), dict[str, Tone](verdict=TONES[word])
    for level, drift in drifts.items():
        if read := [value for readings in launches for value in read_level(readings, level)[1]]:
            values |= {f"{level}_begin": Value(read[0]), f"{level}_end": Value(read[-1])}
        if drift is None:
            continue
        figure = FIGURES[f"{level}_slope"]
        slope = values[figure.name] = Value(drift.slope, low=drift.low, high=drift.high)
        for part in ("error", "df", "rho", "warm_up"):
            values[f"{level}_{part}"] = Value(getattr(drift, part))
        said = word if level == "pss_mb" else drift.word(COUNT_LEAK, judged)
        if said == "grows":
            notes[level] = f"grows by {figure.show(slope)} {figure.shown} requests"
            tones |= {figure.name: "bad", "verdict": "bad"}
    rate, free_mb = (variant.value(name) or 0.0 for name in ("rate_in_all", "free_mb"))
    memory = drifts["pss_mb"]
    hourly = None if memory is None else memory.slope * rate * 3600 / 1e6
    values |= known_values(
        million_requests=sum(spans(launches, "requests")),
        minutes=sum(spans(launches, "minutes")),
        mb_per_hour=hourly,
        hours_left=free_mb / hourly if free_mb and hourly and hourly > 0 else None,
        more_minutes=more_minutes,
    )
    if "pss_mb" in notes and (left := values.get("hours_left")):
        notes["pss_mb"] += f"; the free memory lasts {duration_text(3600 * left.value)}"
    dims = {"point": "process", "variant": variant.name, "launches": len(launches)}
    dims |= {"pids": [readings[0].process.pid for readings in launches], "verdict": word}
    dims |= {"growing": [*notes], "leaks": bool(notes)}
    return ViewRow(dims, values, name, variant.group, notes=(*notes.values(),), tones=tones)


def read_variant(row: ViewRow, blocks: Sequence[Trial], spec: SoakSpec) -> list[ViewRow]:
    """Return a variant with its totals, then its processes, leaks first. Raises FormatError."""
    named = read_processes(blocks)
    end = max((launches[-1][-1].block for launches in named.values()), default=0)
    fitted = {name for name, launches in named.items() if max(map(len, launches)) >= FEWEST}
    seen = [name for name in named if name in fitted or named[name][-1][-1].block == end]
    answered = sum(map(count_ended, blocks))
    spent_s = sum(block.seconds.total for block in blocks)
    free = (block.usage.host.free_mb for block in reversed(blocks))
    values = known_values(
        answered_in_all=answered,
        rate_in_all=answered / spent_s if spent_s else None,
        free_mb=next((size for size in free if size is not None), None),
    )
    dims = {**row.dims, "ended_early": len(named) - len(seen) or None}  # not judged
    row = replace(row, dims=dims, values={**row.values, **values})
    processes = (make_process(name, named[name], row, spec, len(fitted) or 1) for name in seen)
    # Those that leak, then the others, the fastest first.
    fastest = sorted(processes, key=lambda row: row.value("pss_mb_slope") or 0.0, reverse=True)
    return [row, *sorted(fastest, key=lambda row: not row.dims["leaks"])]


def make_load(result: Result, variant: ViewRow, blocks: Sequence[Trial]) -> Iterator[ViewRow]:
    """Yield the first tenth of the whole blocks, all, and the last tenth. Raises FormatError."""
    blocks = whole_blocks(replace(result, trials=tuple(blocks)))
    n = max(1, len(blocks) // 10)
    for name, part in (("first tenth", blocks[:n]), ("all", blocks), ("last tenth", blocks[-n:])):
        lines = summarize(condensed(replace(result, trials=tuple(part))))
        values = dict(pair for line in lines for pair in compute_values(line, ROW_FIGURES))
        dims = {"point": "load", "variant": variant.name, "blocks": len(part)}
        warnings = variant.warnings if part is blocks else ()
        yield ViewRow(dims, values, name, variant.group, warnings)


def describe_leaks(processes: Sequence[ViewRow]) -> list[str]:
    return [f"{row.name} {text}" for row in processes for text in row.notes]


def describe_open(processes: Sequence[ViewRow]) -> str:
    """Render `too short to say of proxy and replica Shop: another 12 min 0 s`; empty: of none."""
    rows = [row for row in processes if row.dims["verdict"] == TOO_SHORT]
    seconds = 60 * max((row.value("more_minutes") or 0.0 for row in rows), default=0.0)
    names = join_words([row.name for row in rows])
    return f"{TOO_SHORT} of {names}: another {duration_text(seconds)}" if rows else ""


def describe_rest(variant: ViewRow, processes: Sequence[ViewRow]) -> str:
    """Say what is open, and what does not grow; empty where all grows."""
    words = [describe_open(processes)]
    if steady := sum(row.dims["verdict"] == "does not grow" for row in processes):
        words.append(f"memory of {steady} of {len(processes)} processes does not grow")
    if brief := variant.dims["ended_early"]:
        words.append(f"not shown: {counted(brief, 'process', 'processes')} that ended early")
    return "; ".join(filter(None, words))


def gate(result: Result) -> tuple[list[str], str]:
    """Return what breaks the gate on leaks, and what it is too early to judge (empty: nothing)."""
    view = LENS.look(result, ReportOptions()).view
    processes = [row for row in view.points if row.dims["point"] == "process"]
    unjudged = describe_open(processes) if processes else "no process could be read"
    return describe_leaks(processes), unjudged


def build(page: Page) -> View:
    """Build the view of the variants of a soak with their processes and their load."""
    result, rows = page.result, page.rows
    spec = result.run.part("soak", SoakSpec)
    blocks = sorted(result.trials, key=lambda block: (block.started_at, block.row.run))
    shown, processes, load = list[ViewRow](), list[ViewRow](), list[ViewRow]()
    findings, charts = list[str](), list[Later]()
    for row in rows:
        name = row.dims["variant"]
        row = replace(row, name=name, group=name if len(rows) > 1 else "")
        if ours := [block for block in blocks if block.variant == name]:
            row, *found = read_variant(row, ours, spec)
            texts = filter(None, [*describe_leaks(found), describe_rest(row, found)])
            before = f"{name}: " if row.group else ""
            findings += [statement(f"{before}{text}", [before]) for text in texts]
            charts.append(Later(partial(draw_memory, found, ours)))
            processes += found
            load += make_load(result, row, ours)
        shown.append(row)
    return View(
        rows=shown,
        points=[*processes, *load],
        findings=findings,
        planned=(len(result.missing), len(result.plan), "blocks"),
        tiles=partial(make_tiles, processes[:1], "pss_mb_slope verdict"),
        sections=[
            table_section("processes", "Processes", PROCESSES, processes, "headline"),
            Section("memory", "Memory over requests", tuple(charts)),
            table_section("load", "Load", LOAD, load, "table"),
        ],
        facts=[("threshold", f"{number(spec.leak, 3)} MB per million requests")],
    )


def draw_memory(processes: Sequence[ViewRow], blocks: Sequence[Trial]) -> Iterator[Chart]:
    """Chart memory over requests, for the first processes of the table."""
    named = read_processes(blocks)
    points = [
        Point(x, level, f"{row.name}{f', launch {launch}' if launch > 1 else ''}")
        for row in processes[:MOST_LINES]
        for launch, readings in enumerate(named[row.name], 1)
        for x, level in zip(*read_level(readings, "pss_mb"), strict=True)
    ]
    title, x_name = f"PSS over requests: {blocks[0].variant}", "million requests since the launch"
    return split_lines(Chart(title, "lines", points, "MB", x_name))


LENS: Final = Lens(build, condense=condensed, compared=condensed)
