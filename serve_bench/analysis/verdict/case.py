"""A trial with all its candidates, and comparisons between them.

Rule: comparisons only; __init__.py sets the order of the questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.verdict import limits
from serve_bench.analysis.verdict.candidates import (
    Candidate,
    batch_candidate,
    client_candidate,
    concurrency_candidate,
    host_candidate,
    server_candidates,
)
from serve_bench.analysis.verdict.evidence import Evidence, evidence_of, looked_alike, rate_of
from serve_bench.analysis.verdict.usage import SERVER, ProcessUse
from serve_bench.core.figures import counted
from serve_bench.core.result import Trial

# Several trials of one cell: does the server follow a growing load?


def comparable(trial: Trial, others: Iterable[Trial]) -> list[Trial]:
    """The trials of the same launch, variant, cell, client and kind of requests in a closed loop,
    with this one, by the number of clients."""

    def place(trial: Trial) -> tuple[object, ...]:
        row = trial.row
        return trial.launch, trial.variant, trial.cell, row.client, row.traffic, row.loop

    closed = (other for other in others if other.row.loop == "closed" and not other.profiled)
    alike = (other for other in closed if place(other) == place(trial))
    similar = [other for other in alike if other.key != trial.key]
    return sorted([*similar, trial], key=lambda one: one.row.connections)


def constant(trial: Trial, ladder: Sequence[Trial]) -> tuple[int, int, float] | None:
    """A rate that stays constant up to this trial, from the lightest such load on: the clients
    there and here, and the requests/s there."""
    top = rate_of(trial)
    for low in _lighter(trial, ladder):
        if (before := rate_of(low)) > 0 and abs(top / before - 1.0) <= limits.FLAT:
            return low.row.connections, trial.row.connections, before
    return None


def follows(trial: Trial, ladder: Sequence[Trial]) -> bool:
    """Whether the rate grew with the clients from the next lighter load to this trial."""
    lighter = _lighter(trial, ladder)
    if not lighter or not rate_of(lighter[-1]):
        return False
    grown = trial.row.connections / lighter[-1].row.connections
    return rate_of(trial) / rate_of(lighter[-1]) >= limits.FOLLOWS * grown


def no_gain(trial: Trial, ladder: Sequence[Trial]) -> Trial | None:
    """The load with the most requests/s of those with STEP times the clients, where it has hardly
    more than this trial; None: more clients bring more requests, or none were measured."""
    sound = []
    for load in ladder:
        failed, least = load.counts.failed_total, limits.STEP * trial.row.connections
        few = failed < limits.SOME_FAILED * (load.counts.completed + failed) or not failed
        if load.row.connections >= least and few and rate_of(load) and not load.flags.get("cut"):
            sound.append(load)
    most = max(sound, key=rate_of, default=None)
    return None if most is None or rate_of(most) > (1.0 + limits.FLAT) * rate_of(trial) else most


def _lighter(trial: Trial, ladder: Sequence[Trial]) -> list[Trial]:
    return [
        load for load in ladder if 0 < load.row.connections * limits.STEP <= trial.row.connections
    ]


Confidence: TypeAlias = Literal["high", "medium", "low", "none"]
WORDS: Final[tuple[Confidence, ...]] = ("none", "low", "medium", "high")


@dataclass(frozen=True)
class Case:
    """A trial with its evidence and all its candidates; those of `server` the fullest first. `way`:
    the processes on the way of a request; `most_beside`: requests/s of any load of its cell."""

    trial: Trial
    seen: Evidence
    way: Sequence[ProcessUse]
    ladder: tuple[Trial, ...]
    most_beside: float
    server: tuple[Candidate, ...]
    host: Candidate | None
    client: Candidate | None
    slots: Candidate | None
    batch: Candidate | None

    @property
    def top(self) -> float:
        """The level of the fullest part of the server."""
        return self.server[0].level if self.server else 0.0

    @property
    def watched(self) -> bool:
        """Whether any process of the server was sampled."""
        return bool(self.way)

    def busy(self, least: float) -> list[Candidate]:
        """Parts of the server at this level; one that is never idle counts as near its limit."""

        def is_busy(part: Candidate) -> bool:
            never_idle = part.restless or part is self.sole
            return part.level >= least or (least <= limits.NEAR and never_idle)

        return [*filter(is_busy, self.server)]

    @property
    def sole(self) -> Candidate | None:
        """The only part of the server that has no time left, though it waits for a core at times,
        while the host has one free at times and all other parts rest: they wait for it, and a whole
        core would give it no more than the time that it waited."""
        if self.host is None or self.host_has_no_core:
            return None
        ways = [1.0 if one.awake is None else one.awake for one in self.server]
        full = [part for part in self.server if (part.awake or 0.0) >= limits.SATURATED]
        return full[0] if len(full) == 1 and sum(map(limits.RESTLESS.__le__, ways)) == 1 else None

    @property
    def others_take_most(self) -> bool:
        """Whether other programs and the hypervisor use more of the host than the fullest part of
        the server does."""
        host = self.seen.host
        return host is not None and host.others + host.steal >= self.top

    @property
    def cpu_ms(self) -> float | None:
        """The time that the processes on the way of a request run for it or wait for a CPU, all
        threads of them; None if no request was completed."""
        spent = sum(use.cpu + (use.wait or 0.0) for use in self.way)
        return 1e3 * spent / self.seen.offered.rate if self.seen.offered.rate else None

    @property
    def wait_ms(self) -> float | None:
        """The time of a request alone that it neither runs nor waits for a CPU; None without a
        look."""
        alone_ms, cpu_ms = self.seen.waits.alone_ms, self.cpu_ms
        return None if alone_ms is None or cpu_ms is None else max(0.0, alone_ms - cpu_ms)

    @property
    def mostly_waits(self) -> bool:
        """Whether the larger part of a request is known to be no CPU: of one alone, or since it
        waits for a slot that is left idle."""
        wait_ms, most_ms = self.wait_ms, limits.WAIT_SHARE * (self.seen.waits.alone_ms or 0.0)
        left_idle = self.slots is not None and self.slots.cause == "router back-off"
        return left_idle or (wait_ms is not None and wait_ms > most_ms)

    @property
    def cpu_explains(self) -> bool:
        """Whether CPU explains most of the latency: requests run or wait for a CPU for half of it
        or, alone, for half of their time; or they queue behind a thread that is never idle, and
        what else one alone waits for is less than half."""
        mean_ms, cpu_ms = self.seen.offered.mean_ms or 0.0, self.cpu_ms or 0.0
        if cpu_ms >= limits.WAIT_SHARE * mean_ms or (
            self.wait_ms is not None and not self.mostly_waits
        ):
            return True
        # The sum of threads that wait in turn would look like one that is never idle.
        ways = [use.not_idle if use.awake is None else use.awake for use in self.way]
        queue = max([*(share or 0.0 for share in ways), self.seen.client.busy or 0.0])
        return queue >= limits.CERTAIN and (self.wait_ms or 0.0) < limits.WAIT_SHARE * mean_ms

    @property
    def apart(self) -> bool:
        """Whether so few connections hardly wait for one another: one; or two that are answered
        quickly, keep a CPU busy, take no longer than one alone, or give twice its requests."""
        offered, longer = self.seen.offered, self.seen.waits.longer
        if offered.connections > limits.FEW_CONNECTIONS:
            return False
        if (
            offered.connections == 1
            or (offered.p50_ms or 0.0) < limits.SLOW_MS
            or self.top >= limits.RESTING
        ):
            return True
        return (longer or math.inf) <= limits.ALIKE or follows(self.trial, self.ladder)

    @property
    def host_is_full(self) -> bool:
        """No core is free, the server's processes wait for one as far as is known, and one on the
        way of a request is hardly ever idle. If all of them are idle at times, others fill the host
        and limit nothing."""
        if self.host is None or not self.host_has_no_core:
            return False
        starved = self.seen.starved
        return self.never_rests and (starved is None or starved >= limits.UNHINDERED)

    @property
    def host_has_no_core(self) -> bool:
        """No core is free."""
        return self.host is not None and self.host.level >= limits.SATURATED

    @property
    def may_want_cpu(self) -> bool:
        """Whether a full host may be the limit though each process on the way is idle at times: a
        request passes them in turn, and together they ran or waited for a CPU all the time."""
        ways: dict[str, float] = {}
        for use in self.way:
            ways[use.role] = max(ways.get(use.role, 0.0), use.not_idle or use.level)
        return self.host_has_no_core and sum(ways.values()) >= 1.0

    @property
    def never_rests(self) -> bool:
        """Whether a process on the way of a request, or the client, was hardly ever idle; True if
        the processes of the server were sampled, and no wait for a CPU is known."""
        known = [share for use in self.way if (share := use.not_idle) is not None]
        if self.watched and not known:
            return True
        return max([*known, self.seen.client.busy or 0.0]) >= limits.RESTLESS


def case_of(trial: Trial, front: str | None, beside: Sequence[Trial]) -> Case:
    """The case of a trial; `beside` may have its ladder."""
    seen = evidence_of(trial := looked_alike(trial), front)
    return Case(
        trial=trial,
        seen=seen,
        way=seen.of_role(*SERVER),
        ladder=tuple(comparable(trial, beside)),
        most_beside=max(rate_of(load) for load in (trial, *beside) if load.cell == trial.cell),
        server=tuple(server_candidates(seen)),
        host=host_candidate(seen),
        client=client_candidate(seen),
        slots=concurrency_candidate(seen),
        batch=batch_candidate(seen),
    )


def host_first(case: Case, top: Candidate | None) -> bool:
    """Whether the host comes before the fullest part of the server: not before one that is
    busy and uses more of it than others do, or fills its core, which more cores would not help, and
    with a little left not before one near it."""
    host = case.host
    if host is None:
        return False
    if case.host_is_full:
        full = top is not None and (host.level < limits.CERTAIN or top.level >= limits.SATURATED)
        return (case.others_take_most or case.top < limits.IDLE) and not full
    starved = (case.seen.starved or 0.0) >= limits.STARVED and case.never_rests
    return top is None and host.level >= limits.NEAR and starved


def host_confidence(case: Case) -> Confidence:
    """Sure if no core was free, most of it for others, the server's processes are known to have
    waited, and CPU explains most of the latency."""
    host = case.host
    if host is None or host.level < limits.SATURATED:
        return "low"
    known = (case.seen.starved or 0.0) >= limits.STARVED
    sure = known and host.level >= limits.CERTAIN and case.others_take_most and case.cpu_explains
    return "high" if sure else "medium"


def cpu_confidence(case: Case, top: Candidate) -> Confidence:
    """Sure if it is never idle, nothing else of the server is full, and cores are free. A child
    process of a replica may work for no request at all."""
    if top.level < limits.SATURATED:
        return "low"
    if top.cause == "replica CPU" and top.deployment is None:
        return "medium"
    rivals = [one for one in case.busy(limits.SATURATED) if not _same(one, top)]
    crowded = case.host_is_full and case.host is not None and case.host.level >= limits.CERTAIN
    return "high" if top.level >= limits.CERTAIN and not rivals and not crowded else "medium"


def offered_confidence(case: Case) -> Confidence:
    """One connection always waits for its answer; many may wait for something unobserved."""
    grows = follows(case.trial, case.ladder)
    host = case.host.level if case.host is not None else 0.0
    if max(case.top, host) >= limits.NEAR:
        return "low"
    if max(case.top, host) < limits.IDLE and (case.seen.offered.connections == 1 or grows):
        return "high"
    return "medium" if grows or case.apart else "low"


def latency_bound(case: Case, place: Candidate | None = None) -> Candidate:
    """A closed loop whose connections wait for their answers alone, and where these are."""
    words = f"offered load, {counted(case.seen.offered.connections, 'connection')}"
    words += "" if place is None else f", whose requests {place.short}"
    bound = Candidate("offered load", 0.0, words, words)
    return bound if place is None else replace(bound, deployment=place.deployment, hint=place.hint)


def placed(case: Case, candidate: Candidate) -> Candidate:
    """The candidate, as "downstream deployment" if its deployment is full behind a front that is
    not."""
    front, behind = case.seen.front, candidate.deployment
    if front is None or behind in (None, front):
        return candidate
    at_front = [one for one in case.server if one.deployment == front]
    if any(one.level >= limits.SATURATED for one in at_front):
        return candidate
    return replace(
        candidate, cause="downstream deployment", figures=f"downstream {candidate.figures}"
    )


def runner_up(case: Case, candidate: Candidate) -> Candidate | None:
    """The next limit: the fullest of all others. On a full host a client that waits for a core
    limits nothing by itself."""
    host = None if candidate.crowded else case.host
    late = case.host_is_full and (case.seen.client.starved or 0.0) >= limits.STARVED
    client = None if late else case.client
    others = [*case.server, host, client, case.slots, case.batch]
    left = [one for one in others if one is not None and not _same(one, candidate)]
    return max(left, key=lambda one: min(one.level, 1.0), default=None)


def _same(one: Candidate, other: Candidate) -> bool:
    """Whether both are about the same resource, also if one is called downstream."""
    if {one.cause, other.cause} <= {"concurrency limit", "router back-off"}:
        return True
    of_replicas = one.cause.startswith("replica") and other.cause.startswith("replica")
    in_one_place = one.deployment == other.deployment is not None
    return one.short == other.short or (of_replicas and in_one_place)
