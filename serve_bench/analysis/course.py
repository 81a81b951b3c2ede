"""A load over time: what its record keeps of each second, and the figures of a transient. Pure.

Rule: a request counts in the second in which it was due, whenever it ends, so that a service that
stalls has no empty seconds. A second in which nothing was due is not judged. Times are seconds
since the begin of the first stage.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from statistics import fmean, median
from typing import Any, Final, NamedTuple, TypeAlias

from serve_bench.analysis.capacity.launch import Requests
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import CourseFacts, ProbeSlices, SliceCounts
from serve_bench.core.histogram import Histogram
from serve_bench.core.slo import Slo
from serve_bench.core.timeline import REPLICA
from serve_bench.core.usage import Track, cpu_percent

STEP_S: Final = 0.1
"""Slices in which the bounds of the SLO are counted: the precision of times of a transient."""

HOLD_S: Final = 3
"""Seconds, each for itself, for which the SLO must hold until it holds again; at the end of a stage
what remains of it, a second at least."""

MOST_LOST: Final = 10_000  # lost requests that a record keeps one by one

COARSE_BITS: Final = 5
"""Slots (as a power of two) that are one in histograms of single seconds: at most 1.6 % off."""

NO_END: Final = frozenset({"cut", "unsent"})


def seconds_of_requests(requests: Requests, count: int, broken_off: bool = False) -> dict[str, Any]:
    """Return what a record keeps of the requests of a load of `count` seconds.

    By the second in which they were due: `due`, `answered`, `failed` by class, `latency` (a
    histogram of what was answered). By the second in which it happened: `sent`, `ended` (answers).
    `waiting`: due and without an end when the second was over. `lost`: what failed or had no end,
    each with its due time, its end (None: none) and its class.

    Of a load that was `broken_off` nobody waited for the remaining answers: they are not lost."""
    due, sent, answered, ended = ([0] * count for _ in range(4))
    change = [0] * (count + 1)
    failed: dict[str, list[int]] = {}
    lost: list[tuple[float, float | None, str]] = []
    latencies: list[list[int]] = [[] for _ in range(count)]
    for _, start_ns, latency_ns, _, error, _, sent_ns in requests:
        second = min(count - 1, max(0, start_ns // 10**9))
        due[second] += 1
        if sent_ns is not None and sent_ns < count * 10**9:
            sent[max(0, sent_ns // 10**9)] += 1
        end_ns = None if latency_ns is None else start_ns + latency_ns
        change[second] += 1
        if end_ns is not None:
            change[min(count, max(second, end_ns // 10**9))] -= 1
        if broken_off and error in NO_END:
            continue
        if error is not None:
            failed.setdefault(error, [0] * count)[second] += 1
            end_s = None if end_ns is None else round(end_ns / 1e9, 3)
            lost.append((round(start_ns / 1e9, 3), end_s, error))
            continue
        assert latency_ns is not None and end_ns is not None, "what is answered has an end"
        answered[second] += 1
        if end_ns < count * 10**9:
            ended[end_ns // 10**9] += 1
        latencies[second].append(latency_ns)
    return {
        "due": due,
        "sent": sent,
        "answered": answered,
        "ended": ended,
        "failed": failed,
        "waiting": list(accumulate(change[:count])),
        "latency": [
            Histogram.of(values).coarser(COARSE_BITS).encode() if values else None
            for values in latencies
        ],
        "lost": sorted(lost, key=lambda loss: (loss[0], loss[2]))[:MOST_LOST],
        "losses": len(lost),
    }


def processes_of(
    tracks: Sequence[Track], begin_ns: int, seconds: int, at_once_ns: int = 50_000_000
) -> dict[str, Any]:
    """Return the CPU of each second by role, and when processes came and went.

    CPU is in % of a core, None where no reading covers the second. `from_s` is None for a process
    that was there at the first reading, `to_s` for one that was there at the last. `begin_ns`: of
    the first stage, on the clock of the readings."""
    sampled = [track for track in tracks if track.cpu_ns]
    first = min((track.cpu_ns[0][0] for track in sampled), default=0) + at_once_ns
    last = max((track.cpu_ns[-1][0] for track in sampled), default=0) - at_once_ns
    cpu: dict[str, list[float | None]] = {}
    lives = []
    for track in sampled:
        line = cpu.setdefault(track.role, [None] * seconds)
        for second in range(seconds):
            begun_ns = begin_ns + second * 10**9
            share, seen_ns = cpu_percent(track.cpu_ns, begun_ns, begun_ns + 10**9)
            if share is not None:
                line[second] = round((line[second] or 0.0) + share * seen_ns / 1e9, 1)
        born, died = track.cpu_ns[0][0], track.cpu_ns[-1][0]
        from_s = None if born <= first else round((born - begin_ns) / 1e9, 3)
        to_s = None if died >= last else round((died - begin_ns) / 1e9, 3)
        life = {"pid": track.pid, "role": track.role, "title": track.title}
        lives.append({**life, "from_s": from_s, "to_s": to_s})
    return {"cpu": cpu, "lives": lives}


def changes_of(readings: Iterable[Mapping[str, Any]], begin_ns: int) -> list[dict[str, Any]]:
    """Return what Serve said of its replicas (serving/cluster/course.py), on the load's clock."""
    times = ((reading, (int(reading["at_ns"]) - begin_ns) / 1e9) for reading in readings)
    return [{**reading, "at_s": round(at_s, 3)} for reading, at_s in times]


REPLICA_STATES: Final = ("wanted", "starting", "running", "draining")


@dataclass(frozen=True)
class ReplicaCount:
    """Replicas from a moment on: wanted (None: not known), starting, running, draining."""

    at_s: float
    wanted: int | None
    starting: int
    running: int
    draining: int

    @property
    def all(self) -> int:
        """All that take resources."""
        return self.starting + self.running + self.draining


@dataclass(frozen=True)
class ReplicaLine:
    """The replicas of a deployment, or of all, over time: each change, oldest first."""

    name: str
    counts: tuple[ReplicaCount, ...]

    def at(self, moment_s: float) -> ReplicaCount | None:
        """Return the state at a moment: that before it, or the first one known."""
        if not self.counts:
            return None
        place = bisect_right(self.counts, moment_s, key=lambda count: count.at_s)
        return self.counts[max(0, place - 1)]

    def between(self, begin_s: float, end_s: float) -> list[ReplicaCount]:
        """List the states within a span, that at its begin first."""
        first = self.at(begin_s)
        within = [count for count in self.counts if begin_s < count.at_s < end_s]
        return within if first is None else [first, *within]

    def seconds(self, begin_s: float, end_s: float) -> float:
        """Return the replica-seconds within a span."""
        states = self.between(begin_s, end_s)
        edges = [begin_s, *(state.at_s for state in states[1:]), end_s]
        spans = zip(states, pairwise(edges), strict=False)
        return sum(state.all * max(0.0, end - begin) for state, (begin, end) in spans)

    def turns(self, begin_s: float, end_s: float) -> int:
        """Count how often the number of wanted replicas changed its direction within a span.

        From more to fewer, or back; of all replicas where the wanted number is not known."""
        states = self.between(begin_s, end_s)
        levels = [state.all if state.wanted is None else state.wanted for state in states]
        ups = [after > before for before, after in pairwise(levels) if after != before]
        return sum(before != after for before, after in pairwise(ups))


def read_replicas(course: CourseFacts) -> tuple[ReplicaLine, ...]:
    """Return the replicas of each deployment, by Serve's word, else by the processes seen."""
    lines: dict[str, list[ReplicaCount]] = {}
    for change in course.changes:
        states = change.wanted, change.starting, change.running, change.draining
        lines.setdefault(change.deployment, []).append(ReplicaCount(change.at_s, *states))
    if not lines:
        lines = _by_processes(course)
    return tuple(ReplicaLine(name, tuple(counts)) for name, counts in lines.items())


def _by_processes(course: CourseFacts) -> dict[str, list[ReplicaCount]]:
    steps: dict[str, list[tuple[float, int]]] = {}
    for life in course.lives:
        if life.role == REPLICA:
            name = life.title.removeprefix("ray::ServeReplica:")
            born = -math.inf if life.from_s is None else life.from_s
            steps.setdefault(name, []).append((born, 1))
            if life.to_s is not None:
                steps[name].append((life.to_s, -1))
    lines: dict[str, list[ReplicaCount]] = {}
    for name, changes in steps.items():
        running, start = 0, min([0.0, *(begun for begun, _ in changes if begun > -math.inf)])
        for begun, step in sorted(changes):
            running += step
            moment = start if begun == -math.inf else begun
            lines.setdefault(name, []).append(ReplicaCount(moment, None, 0, running, 0))
    return lines


def add_replicas(lines: Sequence[ReplicaLine]) -> ReplicaLine:
    """Add up the replicas of the deployments."""
    moments = sorted({count.at_s for line in lines for count in line.counts})
    counts = []
    for moment in moments:
        states = [state for line in lines if (state := line.at(moment)) is not None]
        parts = ([getattr(state, name) for state in states] for name in REPLICA_STATES)
        sums: list[Any] = [None if None in numbers else sum(numbers) for numbers in parts]
        counts.append(ReplicaCount(moment, *sums))
    return ReplicaLine("all", tuple(counts))


@dataclass(frozen=True)
class Bounds:
    """The objectives of an SLO, made by `bounds_of`, which checks the record."""

    step_s: float
    parts: tuple[tuple[float, SliceCounts], ...]  # allowed share or mean, and counts by slice

    def holds(self, begin: int, end: int) -> bool | None:
        """Return whether the SLO holds over the slices [begin, end); None: nothing was due."""
        span = slice(begin, end)
        sums = ((most, sum(part.of[span]), sum(part.bad[span])) for most, part in self.parts)
        due = [(most, bad / count) for most, count, bad in sums if count]
        return all(value <= most + 1e-12 for most, value in due) if due else None

    def held_from(self, begin_s: float, end_s: float) -> float | None:
        """Return the first moment of a span from which the SLO holds; None: there is none.

        It holds for HOLD_S seconds, each for itself, or to the end of the span, for a second at
        least. Seconds without a request do not matter."""
        # The slices that begin at these moments, or next after them.
        begin, end = (max(0, math.ceil(at_s / self.step_s - 1e-9)) for at_s in (begin_s, end_s))
        steps, last = round(1 / self.step_s), min(len(self.parts[0][1].of), end)
        for start in range(begin, max(begin + (begin < last), last - steps + 1)):
            until = min(last, start + HOLD_S * steps)
            seconds = [self.holds(k, min(k + steps, until)) for k in range(start, until, steps)]
            if False not in seconds and True in seconds:
                return max(begin_s, start * self.step_s)
        return None


def bounds_of(slices: ProbeSlices, slo: Slo) -> Bounds:
    """Return the counts of a trial. Raises FormatError where they are not those of the SLO."""
    parts = []
    for objective in slo.objectives:
        if (counts := slices.bounds.get(objective.name)) is None:
            raise FormatError(f"slices.bounds: {objective.name} is missing")
        parts.append((objective.limit if objective.allowed is None else objective.allowed, counts))
    if len({len(shares) for _, counts in parts for shares in (counts.of, counts.bad)}) != 1:
        raise FormatError("slices.bounds: the objectives have not the same slices")
    step_s = slices.slice_s or 0.0
    if not 0.001 <= step_s <= 1.0:
        raise FormatError(f"slices.slice_s: {step_s:g} is no part of a second")
    return Bounds(step_s, tuple(parts))


Figures: TypeAlias = dict[str, float | None]
"""Of a launch, a stage or a fault, by their names (benchmarks/timeline/lens.py); None: it did not
happen, or is not known."""


@dataclass(frozen=True)
class Transient:
    """The figures of a launch; a fault that was not done has none but its `at_s`."""

    out: tuple[bool | None, ...]  # by second, whether the SLO is missed; None: nothing was due
    replicas: ReplicaLine
    whole: Figures
    stages: tuple[Figures, ...]  # times count from the begin of each stage
    faults: tuple[Figures, ...]  # times count from `at_s`
    events: tuple[CourseEvent, ...]  # in order


def transient_of(
    course: CourseFacts,
    bounds: Bounds,
    stages: Sequence[tuple[float, float]],
    hard_stop_s: float | None = None,
) -> Transient:
    """Compute the figures of a trial.

    `stages`: begin and end of each; `hard_stop_s`: see `list_events`."""
    lines = read_replicas(course)
    replicas = add_replicas(lines)
    events = tuple(list_events(course, replicas, hard_stop_s))
    steps = round(1 / bounds.step_s)
    held = (bounds.holds(steps * n, steps * n + steps) for n in range(len(course.due)))
    out = tuple(None if holds is None else not holds for holds in held)
    made = tuple(_stage(course, bounds, lines, replicas, out, *stage) for stage in stages)
    whole_s = stages[-1][1] if stages else 0.0
    least = [stage["least_s"] for stage in made]
    least_s = None if None in least or not replicas.counts else sum(part or 0.0 for part in least)
    replica_s = replicas.seconds(0.0, whole_s) if replicas.counts else None
    turns = sum(stage["turns"] or 0 for stage in made)
    seconds = sum(end - begin for begin, end in stages)
    whole: Figures = {
        "due": sum(course.due),
        "answered": sum(course.answered),
        **lost_figures({name: sum(counts) for name, counts in course.failed.items()}),
        "out_s": out.count(True),
        "replica_s": replica_s,
        "least_s": least_s,
        "cost": (replica_s or 0.0) / least_s if least_s else None,
        "turns_per_minute": 60 * turns / seconds if replicas.counts and seconds else None,
        "down_s": _down_s(replicas, whole_s, course.after_s),
        **count_near(course, events),
    }
    faults = tuple(_faults(course, bounds, replicas, out, whole_s))
    return Transient(out, replicas, whole, made, faults, events)


def lost_figures(classes: Mapping[str, int]) -> Figures:
    """Return the number of lost requests, in all and by class."""
    by_class = {f"lost.{name}": count for name, count in classes.items() if count}
    return {"lost": sum(classes.values()), **by_class}


def _stage(
    course: CourseFacts,
    bounds: Bounds,
    lines: Sequence[ReplicaLine],
    replicas: ReplicaLine,
    out: Sequence[bool | None],
    begin: float,
    end: float,
) -> Figures:
    """Compute the figures of the stage from `begin` to `end` (s)."""
    span = slice(round(begin), max(round(begin) + 1, round(end)))
    held_at = bounds.held_from(begin, end)
    states = replicas.between(begin, end)
    first = states[0].running if states else None
    further = next((later.at_s for later in states[1:] if later.running > (first or 0)), None)
    needed, needed_at = _needed(states, begin, held_at)
    most = max((state.starting + state.running for state in states), default=None)
    return {
        "end_s": end,
        "due": sum(course.due[span]),
        "answered": sum(course.answered[span]),
        **lost_figures({name: sum(counts[span]) for name, counts in course.failed.items()}),
        "out_s": out[span].count(True),
        "held_s": None if held_at is None else round(held_at - begin, 3),
        "further_s": None if further is None else further - begin,
        "needed": needed,
        "needed_s": None if needed_at is None else max(0.0, needed_at - begin),
        "most_replicas": most,
        "overshoot": None if needed is None or most is None else max(0, most - needed),
        "turns": sum(line.turns(begin, end) for line in lines),
        "least_s": None if needed is None else needed * (end - begin),
    }


def _needed(
    states: Sequence[ReplicaCount], begin: float, held_at: float | None
) -> tuple[int | None, float | None]:
    """Return the running replicas that held the SLO, and since when there were as many."""
    if held_at is None or not states:
        return None, None
    if held_at <= begin:
        return min(state.running for state in states), begin
    before = [state for state in states if state.at_s <= held_at] or list(states[:1])
    needed = before[-1].running
    since = [*takewhile(lambda state: state.running >= needed, reversed(before))][-1]
    return needed, max(begin, since.at_s)


def _down_s(replicas: ReplicaLine, end_s: float, after_s: float) -> float | None:
    """Return the time (s) after the load until no more replicas are there than at its begin."""
    first = replicas.at(0.0)
    if first is None or after_s <= 0:
        return None
    few = (state for state in replicas.between(end_s, end_s + after_s) if state.all <= first.all)
    return next((max(0.0, state.at_s - end_s) for state in few), None)


def _faults(
    course: CourseFacts,
    bounds: Bounds,
    replicas: ReplicaLine,
    out: Sequence[bool | None],
    whole_s: float,
) -> Iterator[Figures]:
    """Yield the figures of each fault until the next one.

    Lost are requests that failed then, or whose end never came."""
    for place, fault in enumerate(course.faults):
        if (fault_s := fault.at_s) is None:
            yield {"at_s": None}
            continue
        later = [next_.at_s for next_ in course.faults[place + 1 :] if next_.at_s is not None]
        until = min([*later, whole_s])
        last = place == len(course.faults) - 1  # what ends later than the load is the last one's
        ends = ((error, due_s if end_s is None else end_s) for due_s, end_s, error in course.lost)
        lost = Counter(error for error, end in ends if fault_s <= end and (end < until or last))
        held_at = bounds.held_from(fault_s, until)
        begin, end = math.floor(fault_s), math.ceil(until)
        missed = [second for second in range(begin, min(end, len(out))) if out[second]]
        last_out = max(0.0, missed[-1] + 1 - fault_s) if missed else None
        meanwhile = fault_s + max(1.0, last_out or 0.0)
        stopped = fault.fault.startswith(f"stop:{REPLICA}")
        yield {
            "at_s": fault_s,
            "until_s": until,
            **lost_figures(lost),
            "out_s": len(missed),
            "last_out_s": None if last_out is None else round(last_out, 3),
            "held_s": None if held_at is None else round(held_at - fault_s, 3),
            "fewest": _fewest(course, replicas, fault_s, meanwhile, stopped),
            "answered": sum(course.ended[begin : max(begin + 1, math.ceil(meanwhile))]),
            "lasted_s": None if fault.done_s is None else fault.done_s - fault_s,
        }


def _fewest(
    course: CourseFacts, replicas: ReplicaLine, begin: float, until: float, stopped: bool
) -> int | None:
    """Return the fewest replicas that ran in a span, by Serve and by the processes there.

    Serve may not know yet that one has died. `stopped`: one of them stands still."""
    by_serve = [state.running for state in replicas.between(begin, until)]
    lives = [life for life in course.lives if life.role == REPLICA]
    died = [life.to_s for life in lives if life.to_s is not None]
    begins = (-math.inf if life.from_s is None else life.from_s for life in lives)
    ends = (math.inf if life.to_s is None else life.to_s for life in lives)
    spans = [*zip(begins, ends, strict=True)]
    moments = (AFTER_S + t for t in (begin, *(t for t in died if begin <= t < until)))
    alive = [sum(born <= moment < ended for born, ended in spans) - stopped for moment in moments]
    numbers = [*by_serve, *(alive if lives else ())]
    return min(numbers) if by_serve else None


class Drop(NamedTuple):
    """Few answers though requests wait."""

    first: int  # a second of the load
    seconds: int  # how many from there on
    rate: float  # answers/s, the median
    running: int  # replicas at most
    before: float  # answers in a second by no more replicas


AROUND_S: Final = 2
"""Answers of an overloaded proxy come in bursts, 2 s apart (Ray 2.60)."""

DROP_S: Final = 5
"""Fewer seconds of a load may be a pause of the host, or the start of replicas."""


def find_drop(course: CourseFacts, transient: Transient) -> Drop | None:
    """Find the seconds in which requests wait and answers are fewer than half of those before.

    Before: by no more replicas. None for fewer than DROP_S. Answers in bursts are no drop: a second
    stands for AROUND_S before and after it too, as far as no more and no fewer ran."""
    ended, waiting = course.ended, course.waiting
    states = [transient.replicas.at(second + 0.5) for second in range(len(ended))]
    counts = [0 if state is None else state.running for state in states]
    most: dict[int, float] = {}
    drop: dict[int, float] = {}
    for second, out in enumerate(transient.out):
        around = range(max(0, second - AROUND_S), min(len(ended), second + AROUND_S + 1))
        rate = fmean(ended[near] for near in around if counts[near] == counts[second])
        peak = max((value for few, value in most.items() if few <= counts[second]), default=0.0)
        if out and waiting[second] >= peak > 0 and rate < peak / 2:
            drop[second] = peak
        most[counts[second]] = max(most.get(counts[second], 0.0), rate)
    if len(drop) < DROP_S:
        return None
    rate, running = median(ended[second] for second in drop), max(counts[second] for second in drop)
    return Drop(min(drop), len(drop), rate, running, max(drop.values()))


AFTER_S: Final = 0.2
"""A process is read five times a second: so late its end may be seen."""


class CourseEvent(NamedTuple):
    """What happened, and when: `replica started`, `replica ready`, `HAProxy reloaded`..."""

    at_s: float
    what: str
    who: str = ""


NEAR_S: Final = 1.0
"""A lost request whose end is so near to an event is counted with it. A process that ends may lose
requests before it is gone: HAProxy did so 1 s before (Ray 2.60), also at its hard stop."""


def count_near(course: CourseFacts, events: Iterable[CourseEvent]) -> Figures:
    """Count lost requests by the kind of the event nearest to their end, within NEAR_S.

    And AFTER_S, since the end of a process is known no better. Without an event the name is ""."""
    near: Counter[str] = Counter()
    events = [event for event in events if not event.what.endswith("ready")]
    for due_s, end_s, _ in course.lost:
        moment = due_s if end_s is None else end_s
        distances = [(abs(moment - event.at_s), event.what) for event in events]
        distance, name = min(distances, default=(math.inf, ""))
        near[f"lost_near.{name if distance <= NEAR_S + AFTER_S else ''}"] += 1
    return {**near}


def list_events(
    course: CourseFacts, replicas: ReplicaLine, hard_stop_s: float | None
) -> list[CourseEvent]:
    """List what happened while the load ran, in order.

    Faults, replicas that came, were ready and went, proxies that did, reloads of HAProxy.
    `hard_stop_s`: so long after a reload the former HAProxy continues; then it cuts the rest."""
    events: list[tuple[float | None, str, str]] = []
    killed = set()
    for fault in course.faults:
        if fault.at_s is None:
            continue
        pid, what = fault.pid, fault.fault.partition("@")[0].replace(":", " ")
        done, who = ("deploy in force", "") if pid is None else ("goes on", str(pid))
        events += [(fault.at_s, what, who), (fault.done_s, done, who)]
        killed |= {pid} if what.startswith("kill") else set()
    ready: set[int] = set()
    for number, change in enumerate(course.changes):
        pids = set(change.pids)
        name = change.deployment.partition(":")[2]
        if number and change.at_s > 0:
            came = sorted(pids - ready)
            events += [(change.at_s, "replica ready", f"{name} {pid}") for pid in came]
        ready |= pids
    reloads = [life.from_s or 0.0 for life in course.lives if life.role == "haproxy"]
    for life in course.lives:
        role, died, who = life.role, life.to_s, str(life.pid)
        begun, ended = f"{role} started", f"{role} ended"
        if role == "haproxy":
            role, begun, ended = "HAProxy", "HAProxy reloaded", "HAProxy before a reload ended"
            later = [reload_s for reload_s in reloads if reload_s > (life.from_s or 0.0)]
            cut_s = min(later, default=math.inf) + (hard_stop_s or math.inf)
            if died is not None and abs(died - cut_s) <= NEAR_S + AFTER_S:
                died, ended = cut_s, f"HAProxy cut, {hard_stop_s:g} s after a reload"
        elif role == REPLICA:
            who = f"{life.title.rpartition(':')[2]} {who}"
            # Serve was about to have fewer replicas, or others, when it ended.
            states = [] if died is None else replicas.between(died - 1.0, died + 1.0)
            wanted = [state.wanted for state in states if state.wanted is not None]
            if any(state.draining for state in states) or wanted != sorted(wanted):
                ended = "replica stopped"
        elif role not in ("proxy", "controller"):
            continue
        ended = f"{role} killed" if life.pid in killed else ended
        events += [(life.from_s, begun, who), (died, ended, who)]
    return sorted(CourseEvent(float(at_s), *words) for at_s, *words in events if at_s is not None)
