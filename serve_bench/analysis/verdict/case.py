"""A trial with all its candidates, and comparisons between them.

Rule: comparisons only; __init__.py sets the order of the questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.statistics import read_rate
from serve_bench.analysis.verdict import limits
from serve_bench.analysis.verdict.candidates import (
    Candidate,
    batch_candidate,
    client_candidate,
    concurrency_candidate,
    host_candidate,
    server_candidates,
)
from serve_bench.analysis.verdict.evidence import Evidence, evidence_of, looked_alike
from serve_bench.analysis.verdict.usage import SERVER, ProcessUse
from serve_bench.core.figures import counted
from serve_bench.core.result import Trial

Confidence: TypeAlias = Literal["high", "medium", "low", "none"]
WORDS: Final[tuple[Confidence, ...]] = ("none", "low", "medium", "high")


@dataclass(frozen=True)
class Growth:
    """Whether the server follows a load that grows, by other trials of the cell.

    `flat`: where the rate stays constant up to this trial, the clients of the lightest such load,
    those here, and the requests/s there. `follows`: the rate grew with the clients from the next
    lighter load on. `heavier`: clients and requests/s of the best load with STEP times the clients
    (of one client, on a host that is not full), if hardly more; None: more bring more, or none were
    measured."""

    flat: tuple[int, int, float] | None
    follows: bool
    heavier: tuple[int, float] | None


def compare_loads(trial: Trial, rate: float, beside: Iterable[Trial]) -> Growth:
    """Compare a trial of a closed loop with those of its launch, cell, client and kind of requests.

    `rate`: requests/s of the trial."""
    place = attrgetter("launch", "variant", "cell", "row.client", "row.traffic", "row.loop")
    closed = (other for other in beside if other.row.loop == "closed" and not other.flags.profiled)
    alike = [other for other in closed if place(other) == place(trial) and other.key != trial.key]
    clients = trial.row.connections
    ladder = sorted([*alike, trial], key=attrgetter("row.connections"))
    lighter = [
        (load.row.connections, read_rate(load).per_s)
        for load in ladder
        if 0 < load.row.connections * limits.STEP <= clients
    ]
    flat = (load for load in lighter if load[1] > 0 and abs(rate / load[1] - 1.0) <= limits.FLAT)
    lightest = next(flat, None)
    fewer, before = lighter[-1] if lighter else (clients, 0.0)
    sound = []
    for load in (load for load in ladder if load.row.connections >= limits.STEP * clients):
        failed, more, host = load.counts.failed_total, read_rate(load).per_s, load.usage.host
        few = failed < limits.SOME_FAILED * (load.counts.completed + failed) or not failed
        is_full = (host.cpu_percent or 0.0) >= limits.NEAR * 100 * (host.cores or math.inf)
        if few and more and not load.flags.cut and not (is_full and clients == 1):
            sound.append((load.row.connections, more))
    most = max(sound, key=itemgetter(1), default=None)
    return Growth(
        flat=None if lightest is None else (lightest[0], clients, lightest[1]),
        follows=before > 0 and rate / before >= limits.FOLLOWS * (clients / fewer),
        heavier=None if most is None or most[1] > (1.0 + limits.FLAT) * rate else most,
    )


@dataclass(frozen=True)
class HostState:
    """The host as the processes of the server meet it.

    `is_full` is false if all processes are idle at times: then others fill the host and limit
    nothing. `may_limit` is true though each process is idle at times: a request passes them in
    turn, and together they ran or waited for a CPU all the time."""

    starved: float  # the share of their demand for CPU that processes waited
    busiest: float  # the most that one on the way, or the client, ran or waited for a CPU
    has_no_core: bool  # none is free
    is_full: bool  # no core is free, processes wait for one as far as known, and never rest
    others_most: bool  # others and the hypervisor use more than the server's fullest part
    may_limit: bool


def read_host(seen: Evidence, way: Sequence[ProcessUse], top: float) -> HostState:
    """Return the state of the host. `top`: the level of the fullest part of the server."""
    host, known = seen.host, [share for use in way if (share := use.not_idle) is not None]
    # Where the server was sampled, and no wait for a CPU is known, it may never rest.
    busiest = 1.0 if way and not known else max([*known, seen.client.busy or 0.0])
    has_no_core = host is not None and host.level >= limits.SATURATED
    waited = [(use.level, held_up) for use in way if (held_up := use.held_up) is not None]
    held_up = math.fsum(held_up for _, held_up in waited)
    demand = math.fsum(level for level, _ in waited) + held_up
    starved = held_up / demand if demand > 0 else None
    delayed = busiest >= limits.RESTLESS and (starved is None or starved >= limits.UNHINDERED)
    roles: dict[str, float] = {}
    for use in way:
        roles[use.role] = max(roles.get(use.role, 0.0), use.not_idle or use.level)
    return HostState(
        starved=starved or 0.0,
        busiest=busiest,
        has_no_core=has_no_core,
        is_full=has_no_core and delayed,
        others_most=host is not None and host.others + host.steal >= top,
        may_limit=has_no_core and sum(roles.values()) >= 1.0,
    )


@dataclass(frozen=True)
class Case:
    """A trial with its evidence and all its candidates."""

    trial: Trial
    seen: Evidence
    way: Sequence[ProcessUse]  # the sampled processes on the way of a request
    top: float  # the level of the fullest part of the server
    growth: Growth
    most_beside: float  # requests/s of any load of its cell
    server: Sequence[Candidate]  # the fullest first
    host: Candidate | None
    machine: HostState
    client: Candidate | None
    slots: Candidate | None
    batch: Candidate | None
    stopped: int | None  # the window from which on no request succeeded
    mostly_waits: bool  # the larger part of a request is known to be no CPU
    cpu_explains: bool  # CPU is most of its latency

    def busy(self, least: float) -> list[Candidate]:
        """List the parts of the server at this level; one that is never idle is near its limit."""
        never_idle = least <= limits.NEAR
        return [
            part
            for part in self.server
            if part.level >= least or (never_idle and (part.restless or part.sole))
        ]

    def outlasts_cpu(self, idle: float | None) -> bool:
        """Tell whether slots idle for so long (%) wait for no CPU; true if in use, or not seen."""
        return idle is None or not 100 * (1 - limits.NEAR) < idle <= 100 * self.machine.busiest

    @property
    def apart(self) -> bool:
        """Whether so few connections hardly wait for one another.

        One; or two that are answered quickly, keep a CPU busy, take no longer than one alone, or
        give twice its requests."""
        offered, longer = self.seen.offered, self.seen.waits.longer
        is_quick = (offered.p50_ms or 0.0) < limits.SLOW_MS or self.top >= limits.RESTING
        is_alone = offered.connections == 1 or (longer or math.inf) <= limits.ALIKE
        is_few = offered.connections <= limits.FEW_CONNECTIONS
        return is_few and (is_alone or is_quick or self.growth.follows)


def weigh_cpu(seen: Evidence, way: Sequence[ProcessUse]) -> tuple[bool, bool]:
    """Decide whether a request mostly waits, and whether CPU explains most of its latency.

    It mostly waits if, alone, most of it is neither run nor a wait for a CPU. CPU explains the
    latency if requests run or wait for a CPU for half of it or, alone, for half of their time; or
    if they queue behind a thread that is never idle, and else wait for less than half."""
    rate, alone_ms, mean_ms = seen.offered.rate, seen.waits.alone_ms, seen.offered.mean_ms or 0.0
    spent = math.fsum(use.cpu + (use.wait or 0.0) for use in way)  # by all threads
    cpu_ms = 1e3 * spent / rate if rate else None
    wait_ms = None if alone_ms is None or cpu_ms is None else max(0.0, alone_ms - cpu_ms)
    mostly_waits = wait_ms is not None and wait_ms > limits.WAIT_SHARE * (alone_ms or 0.0)
    computes = (cpu_ms or 0.0) >= limits.WAIT_SHARE * mean_ms
    if computes or (wait_ms is not None and not mostly_waits):
        return mostly_waits, True
    # The sum of threads that wait in turn would look like one that is never idle.
    ways = [use.not_idle if use.awake is None else use.awake for use in way]
    queue = max([*(share or 0.0 for share in ways), seen.client.busy or 0.0])
    is_queue = queue >= limits.CERTAIN and (wait_ms or 0.0) < limits.WAIT_SHARE * mean_ms
    return mostly_waits, is_queue


def case_of(trial: Trial, front: str | None, beside: Sequence[Trial]) -> Case:
    """Gather evidence and candidates of a trial; `beside`: other trials, perhaps of its cell."""
    trial = looked_alike(trial) if trial.limits else trial
    seen = evidence_of(trial, front)
    server, slots, way = server_candidates(seen), concurrency_candidate(seen), seen.of_role(*SERVER)
    top, rate = server[0].level if server else 0.0, seen.offered.rate
    mostly_waits, cpu_explains = weigh_cpu(seen, way)
    others = (read_rate(load).per_s for load in beside if load.cell == trial.cell)
    return Case(
        trial=trial,
        seen=seen,
        way=way,
        top=top,
        growth=compare_loads(trial, rate, beside),
        most_beside=max([rate, *others]),
        server=server,
        host=host_candidate(seen),
        machine=read_host(seen, way, top),
        client=client_candidate(seen),
        slots=slots,
        batch=batch_candidate(seen) if seen.batches else None,
        stopped=read_rate(trial).silent_from,
        mostly_waits=mostly_waits,
        cpu_explains=cpu_explains,
    )


def judge_host(case: Case, top: Candidate | None) -> Confidence | None:
    """Say how sure the host is the limit; None: it is not, or a part of the server comes first.

    The host is not before a part that is busy and uses more of it than others do, or fills its
    core, which more cores would not help, and with a little left not before one near it. It is sure
    if no core was free, most of it for others, the server's processes are known to have waited, and
    CPU explains most of the latency."""
    host, machine = case.host, case.machine
    if host is None:
        return None
    is_starved = machine.starved >= limits.STARVED
    delayed = is_starved and machine.busiest >= limits.RESTLESS
    if machine.is_full:
        full = top is not None and (host.level < limits.CERTAIN or top.level >= limits.SATURATED)
        if full or not (machine.others_most or case.top < limits.IDLE):
            return None
    elif top is not None or host.level < limits.NEAR or not delayed:
        return None
    if host.level < limits.SATURATED:
        return "low"
    sure = is_starved and host.level >= limits.CERTAIN and machine.others_most
    return "high" if sure and case.cpu_explains else "medium"


def cpu_confidence(case: Case, top: Candidate) -> Confidence:
    """Say how sure it is that a full CPU is the limit.

    It is sure if never idle, nothing else of the server is full, and cores are free. A child
    process of a replica may work for no request at all."""
    if top.level < limits.SATURATED:
        return "low"
    if top.cause == "replica CPU" and top.deployment is None:
        return "medium"
    rivals = [part for part in case.busy(limits.SATURATED) if not is_same(part, top)]
    crowded = case.machine.is_full and case.host is not None and case.host.level >= limits.CERTAIN
    return "high" if top.level >= limits.CERTAIN and not rivals and not crowded else "medium"


def latency_bound(case: Case, place: Candidate | None = None) -> Candidate:
    """Return the candidate of a closed loop that only waits for answers, at `place` if known."""
    words = f"offered load, {counted(case.seen.offered.connections, 'connection')}"
    words += "" if place is None else f", whose requests {place.short}"
    bound = Candidate("offered load", 0.0, words, words)
    return bound if place is None else replace(bound, deployment=place.deployment, hint=place.hint)


def placed(case: Case, candidate: Candidate) -> Candidate:
    """Rename a candidate "downstream deployment" if it is full behind a front that is not."""
    front, behind = case.seen.front, candidate.deployment
    full = {part.deployment for part in case.server if part.level >= limits.SATURATED}
    if front is None or behind in (None, front) or front in full:
        return candidate
    words = f"downstream {candidate.figures}"
    return replace(candidate, cause="downstream deployment", figures=words)


def is_same(candidate: Candidate, other: Candidate) -> bool:
    """Return whether both are about the same resource, also if one is called downstream."""
    if {candidate.cause, other.cause} <= {"concurrency limit", "router back-off"}:
        return True
    of_replicas = candidate.cause.startswith("replica") and other.cause.startswith("replica")
    in_one_place = candidate.deployment == other.deployment is not None
    return candidate.short == other.short or (of_replicas and in_one_place)
