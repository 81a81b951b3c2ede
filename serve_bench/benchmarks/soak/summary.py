"""What a soak says: which processes grow with requests, whether the service slows down. Pure.

Rule: x is what the cluster answered since its launch, so a series is of one process of one launch;
the slopes of the same process in several launches are joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
"""Of the blocks: the first and the last are held against each other."""

TOO_SHORT: Final = "too short to say"


@dataclass(frozen=True)
class LevelReading:
    """The levels of a process behind a block, `requests` (million) and `minutes` since the launch;
    None where they could not be read."""

    requests: float
    minutes: float
    pss_mb: float | None
    threads: int | None
    descriptors: int | None
    private_mb: float | None = None


@dataclass
class ProcessSeries:
    """All readings of a process of a launch. `lasts`: it was there at the end."""

    launch: str
    pid: int
    readings: list[LevelReading] = field(default_factory=list)
    lasts: bool = False

    def drift(self, level: str) -> LevelDrift | None:
        """The slope of a level; of PSS that of the memory that no other process shares, where it is
        known: PSS also moves when others that share its libraries come and go."""
        if level == "pss_mb" and all(one.private_mb is not None for one in self.readings):
            level = "private_mb"
        pairs = [
            (one.requests, value)
            for one in self.readings
            if (value := getattr(one, level)) is not None
        ]
        return drift_of([x for x, _ in pairs], [float(y) for _, y in pairs])


@dataclass(frozen=True)
class ProcessDrift:
    """A process of the cluster, in each launch of a variant. `series`: the number of processes that
    are judged beside each other; `block_s`: seconds from one reading to the next."""

    name: str
    launches: tuple[ProcessSeries, ...]
    leak: float
    series: int
    block_s: float
    memory: LevelDrift | None
    threads: LevelDrift | None
    descriptors: LevelDrift | None

    @property
    def requests(self) -> float:
        """Million requests between its first and last readings, of all launches."""
        return sum(one.readings[-1].requests - one.readings[0].requests for one in self.launches)

    @property
    def minutes(self) -> float:
        """Of load between the same."""
        return sum(one.readings[-1].minutes - one.readings[0].minutes for one in self.launches)

    @property
    def word(self) -> DriftWord:
        """The verdict on its memory."""
        if self.memory is None:
            return TOO_SHORT
        word = self.memory.word(self.leak, self.series)
        return TOO_SHORT if word == "grows" and self._until_settled else word

    @property
    def _until_settled(self) -> float:
        """Minutes until a growth can be no warm-up: there have been WARM_UP_MINUTES within a
        launch, or it is WARM_UP_MB; 0: it is so."""
        minutes, requests = max(
            (last.minutes - first.minutes, last.requests - first.requests)
            for one in self.launches
            for first, last in ((one.readings[0], one.readings[-1]),)
        )
        grown = 0.0 if self.memory is None else self.memory.slope * requests
        if grown >= WARM_UP_MB:
            return 0.0
        left = max(0.0, WARM_UP_MINUTES - minutes)
        return min(left, (WARM_UP_MB / grown - 1) * minutes) if grown > 0 else left

    @property
    def more_minutes(self) -> float | None:
        """How many minutes more a verdict takes about; None where there is one."""
        if self.memory is None:
            read = min(len(one.readings) for one in self.launches)
            return max(1, FEWEST - read) * self.block_s / 60
        longer = self.memory.longer(self.leak, self.series)
        if longer is not None:
            return (longer - 1) * self.minutes
        return self._until_settled if self.word == TOO_SHORT else None

    @property
    def warmed(self) -> float | None:
        """MB by which it warmed up before it levelled off; None where it did not."""
        drift = self.memory
        if drift is None or drift.warm_up < LEAST_WARM_UP or self.word != "does not grow":
            return None
        return drift.warm_up

    @property
    def counts(self) -> Iterator[tuple[str, LevelDrift]]:
        """Threads and descriptors, where they grow."""
        for name, drift in (("threads", self.threads), ("descriptors", self.descriptors)):
            if drift is not None and drift.word(COUNT_LEAK, self.series) == "grows":
                yield name, drift

    @property
    def leaks(self) -> bool:
        """Whether something of it grows."""
        return self.word == "grows" or any(self.counts)

    def figure(self, level: str, at: int) -> float | None:
        """The first (0) or last (-1) reading of a level."""
        readings = self.launches[at].readings
        known = [value for one in readings if (value := getattr(one, level)) is not None]
        return known[at] if known else None


@dataclass(frozen=True)
class LoadPart:
    """The first tenth of the blocks, the last, or all: throughput, p50 and p99 in ns, requests."""

    name: str
    rate: float
    p50: float | None
    p99: float | None
    counts: Counts


@dataclass(frozen=True)
class VariantSoak:
    """A variant: its processes, and its load. `brief`: how many processes were seen too few times
    and ended; `answered`: requests; `rate`: a second, over all the time; `free_mb`: memory of the
    host at the end."""

    name: str
    processes: tuple[ProcessDrift, ...]
    brief: int
    blocks: tuple[Trial, ...]
    whole: tuple[Trial, ...]
    answered: int
    rate: float
    free_mb: float | None

    @cached_property
    def parts(self) -> tuple[LoadPart, ...]:
        """First tenth, all and last tenth. Raises FormatError."""
        n = max(1, round(TENTH * len(self.whole)))
        several = {"first tenth": self.whole[:n], "all": self.whole, "last tenth": self.whole[-n:]}
        return tuple(_part(name, blocks) for name, blocks in several.items() if blocks)

    def mb_per_hour(self, drift: LevelDrift) -> float:
        """What a slope is at the rate of the soak."""
        return drift.slope * self.rate * 3600 / 1e6

    def hours_left(self, drift: LevelDrift) -> float | None:
        """Until the memory that is free is used, if nothing else takes any."""
        speed = self.mb_per_hour(drift)
        return self.free_mb / speed if self.free_mb is not None and speed > 0 else None


@dataclass(frozen=True)
class Soak:
    """All that a run says. `rows`: with its blocks as rows."""

    spec: SoakSpec
    variants: tuple[VariantSoak, ...]
    rows: Result


def soak_of(result: Result) -> Soak:
    """The figures of the records of a run. Raises FormatError for damaged records."""
    spec = built(SoakSpec, result.run.suite.get("soak"), "suite.soak")
    whole = {one.key for one in whole_blocks(result)}
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in result.trials:
        groups.setdefault((trial.variant, cell_slug(trial.cell)), []).append(trial)
    variants = tuple(_variant(spec, blocks, whole) for blocks in groups.values())
    return Soak(spec, variants, condensed(result))


def _variant(spec: SoakSpec, blocks: Sequence[Trial], whole: set[str]) -> VariantSoak:
    launches: dict[str, list[Trial]] = {}
    for one in blocks:
        launches.setdefault(one.launch, []).append(one)
    order = sorted(launches, key=lambda name: min(one.started_at for one in launches[name]))
    named: dict[str, list[ProcessSeries]] = {}
    answered, seconds, free_mb = 0, 0.0, None
    for launch in order:
        every = sorted(launches[launch], key=lambda one: one.row.run)
        series, ended, lasted_s = _launch_series(launch, every)
        answered, seconds = answered + ended, seconds + lasted_s
        for name, own in series:
            named.setdefault(name, []).append(own)
        hosts = [one.usage.get("host") or {} for one in every]
        free_mb = next((one["free_mb"] for one in reversed(hosts) if "free_mb" in one), free_mb)
    shown = {
        name: every
        for name, every in named.items()
        if every[-1].lasts or max(len(one.readings) for one in every) >= FEWEST
    }
    drifts = [
        (name, every, [_joined(every, level) for level in ("pss_mb", "threads", "descriptors")])
        for name, every in shown.items()
    ]
    judged = sum(levels[0] is not None for _, _, levels in drifts)
    block_s = seconds / len(blocks) if blocks else spec.block_s
    processes = tuple(
        ProcessDrift(name, tuple(every), spec.leak, max(1, judged), block_s, *levels)
        for name, every, levels in drifts
    )
    in_order = sorted(blocks, key=lambda one: one.row.run)
    return VariantSoak(
        blocks[0].variant,
        processes,
        len(named) - len(shown),
        tuple(in_order),
        tuple(one for one in in_order if one.key in whole),
        answered,
        answered / seconds if seconds > 0 else 0.0,
        free_mb,
    )


def _launch_series(
    launch: str, blocks: Sequence[Trial]
) -> tuple[list[tuple[str, ProcessSeries]], int, float]:
    """The processes of a launch with their names, how many requests ended, and the seconds."""
    series: dict[tuple[str, int], ProcessSeries] = {}
    requests, seconds = 0, 0.0
    for at, block in enumerate(blocks):
        total = block.client.get("total")
        counts = block.counts if total is None else built(Counts, total, "trial.client.total")
        requests += counts.completed + counts.failed_total
        seconds += block.seconds.get("total", block.window_s)
        for one in block.usage.get("processes", ()):
            name = str(one["role"]).replace("_", " ")
            name = " ".join(filter(None, (name, deployment_of(one))))
            own = series.setdefault((name, one["pid"]), ProcessSeries(launch, one["pid"]))
            names = ("pss_mb", "threads", "descriptors", "private_mb")
            levels = (one.get(level) for level in names)
            own.readings.append(LevelReading(requests / 1e6, seconds / 60, *levels))
            own.lasts = at == len(blocks) - 1
    counts_of = Counter(name for name, _ in series)
    numbers: Counter[str] = Counter()
    named = []
    for (name, _), own in series.items():
        numbers[name] += 1
        named.append((f"{name} {numbers[name]}" if counts_of[name] > 1 else name, own))
    return named, requests, seconds


def _joined(every: Sequence[ProcessSeries], level: str) -> LevelDrift | None:
    known = [drift for one in every if (drift := one.drift(level)) is not None]
    return joined(known) if known else None


def _part(name: str, blocks: Sequence[Trial]) -> LoadPart:
    rates = [value for one in blocks for value in one.metrics[MAIN].windows or ()]
    p50, p99 = latency_figures(blocks, (0.5, 0.99))
    rate = sum(rates) / len(rates) if rates else 0.0
    return LoadPart(name, rate, p50, p99, summed([one.counts for one in blocks]))


def slope_number(value: float) -> str:
    """A slope with three digits; what is below them is 0."""
    return "0" if abs(value) < 5e-4 else number(value, 3)


def slope_text(drift: LevelDrift) -> str:
    """`1,081 MB per million requests (95 %: 1,078 to 1,084)`."""
    low, high = slope_number(drift.low), slope_number(drift.high)
    return f"{number(drift.slope, 3)} MB per million requests (95 %: {low} to {high})"


def minutes_text(minutes: float) -> str:
    """`12 minutes`, `5 hours`, `more than a week`."""
    if minutes > 7 * 24 * 60:
        return "more than a week"
    if minutes > 120:
        return f"{minutes / 60:.0f} hours"
    return counted(max(1, round(minutes)), "minute")


def leak_words(one: ProcessDrift, of: VariantSoak) -> Iterator[str]:
    """What grows of a process, and what that means."""
    if one.word == "grows" and one.memory is not None:
        text = f"{one.name} grows by {slope_text(one.memory)}"
        speed, rate = number(of.mb_per_hour(one.memory), 3), number(of.rate, 3)
        text += f": {speed} MB an hour at {rate} req/s"
        if (left := of.hours_left(one.memory)) is not None:
            lasts = f"{number(left, 2)} hours" if left < 72 else f"{number(left / 24, 2)} days"
            text += f", and the memory that is free lasts {lasts}"
        yield text
    for name, drift in one.counts:
        ends = f"95 %: {number(drift.low, 3)} to {number(drift.high, 3)}"
        yield f"{one.name}: {name} grow by {number(drift.slope, 3)} per million requests ({ends})"


def sentences_of(soak: Soak) -> Iterator[str]:
    """What grows, what does not, what is open, and whether the service became slower."""
    several = len(soak.variants) > 1
    for of in soak.variants:
        about = f"{of.name}: " if several else ""
        yield from (f"{about}{text}" for text in _sentences(of))


def _sentences(of: VariantSoak) -> Iterator[str]:
    for one in of.processes:
        yield from leak_words(one, of)
    steady = [one for one in of.processes if one.word == "does not grow" and one.memory]
    open_ = [one for one in of.processes if one.word == TOO_SHORT]
    if steady:
        most = max(steady, key=lambda one: one.memory.high if one.memory else 0.0)
        high = number(max(most.memory.high if most.memory else 0.0, 0.0), 3)
        every = len(of.processes)
        who = (
            "no process grows"
            if len(steady) == every
            else f"{len(steady)} of {every} processes does not grow"
        )
        yield f"memory of {who}: each by less than {high} MB per million requests ({most.name})"
    for one in steady:
        if one.warmed is not None:
            yield f"warm-up: {one.name} grew by {number(one.warmed, 3)} MB, then levelled off"
    if open_:
        yield f"too short to say of {open_words(open_)}"
    if len(of.whole) > 1:
        first, last = of.parts[0], of.parts[-1]
        change = f"{100 * (last.rate / first.rate - 1):+.1f} %" if first.rate > 0 else "-"
        tail = ""
        if first.p99 and last.p99:
            tail = f", p99 {last.p99 / 1e6:.3g} ms after {first.p99 / 1e6:.3g} ms"
        yield f"{number(last.rate, 3)} req/s in the last tenth, {change} to the first{tail}"


def open_words(every: Sequence[ProcessDrift]) -> str:
    """`proxy, raylet: another 12 minutes`."""
    names = ", ".join(one.name for one in every[:MOST_NAMES])
    more = f" and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    minutes = max(one.more_minutes or 0.0 for one in every)
    return f"{names}{more}: another {minutes_text(minutes)}"


MOST_NAMES: Final = 4
"""Processes that a sentence names."""


def gate(soak: Soak) -> tuple[list[str], str]:
    """What breaks the gate on leaks, and of what it is too short to say (empty: of none)."""
    broken = [text for of in soak.variants for one in of.processes for text in leak_words(one, of)]
    every = [one for of in soak.variants for one in of.processes]
    open_ = [one for one in every if one.word == TOO_SHORT]
    if not every:
        return broken, "no process could be read"
    return broken, f"too short to say of {open_words(open_)}" if open_ else ""
