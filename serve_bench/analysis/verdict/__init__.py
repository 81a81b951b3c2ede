"""What limited a trial: one cause of a fixed set, its figures, its runner-up, and how sure it is.

Rule: a pure judgement of the record of a Trial. Causes are tried in one order: a standstill to the
end, replicas that changed, refused requests, conditions that make a verdict impossible, an open
loop that the server kept up with, a used-up CPU quota, the client, CPU and GPU, connections of an
open loop, waits of traced requests, waits observed inside the replicas, other waits without CPU, a
wait that only a ladder shows, and last the offered load. Contradictory evidence gives "unclear",
never a guess. Thresholds are in limits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.connections import ON_TIME
from serve_bench.analysis.statistics import answered, read_rate
from serve_bench.analysis.verdict import limits, waits
from serve_bench.analysis.verdict.candidates import (
    BESIDE,
    HINTS,
    REFUSED,
    Candidate,
    Cause,
    concurrency_candidate,
    core_words,
    refused_candidate,
    traced_candidate,
)
from serve_bench.analysis.verdict.case import (
    WORDS,
    Case,
    Confidence,
    case_of,
    cpu_confidence,
    is_same,
    judge_host,
    latency_bound,
    placed,
)
from serve_bench.analysis.verdict.evidence import evidence_of
from serve_bench.analysis.verdict.timers import timer_words
from serve_bench.analysis.verdict.usage import figure, short_name
from serve_bench.core.facts import TrialUsage
from serve_bench.core.failed_requests import count_given_up
from serve_bench.core.figures import counted
from serve_bench.core.ladder import COLLAPSE
from serve_bench.core.own_app import rescaled, scaling_hint
from serve_bench.core.result import Launch, Trial


@dataclass(frozen=True)
class Verdict:
    """What limited a trial."""

    cause: Cause
    figures: str  # in words with numbers and units, as runner_up
    confidence: Confidence  # "none" if the cause is "unclear"
    runner_up: str | None = None
    runner_up_cause: Cause | None = None
    hint: str = ""
    deployment: str | None = None
    reasons: tuple[str, ...] = ()  # why it is unclear, what contradicts it, a timer behind it
    unseen: tuple[str, ...] = ()  # what could not be observed
    idle: float | None = None  # %, of the slots that HTTP reaches while requests waited for them

    @property
    def text(self) -> str:
        """`replica CPU 98 % (high confidence; next limit: proxy CPU 61 %)`, reasons in between."""
        if self.cause == "unclear":
            return f"unclear: {'; '.join(self.reasons)}"
        then = f"; next limit: {self.runner_up}" if self.runner_up else ""
        why = "".join(f"; {reason}" for reason in self.reasons)
        return f"{self.figures} ({self.confidence} confidence{why}{then})"


def limited_by(
    trial: Trial,
    front: str | None = None,
    beside: Sequence[Trial] = (),
    launches: Sequence[Launch] = (),
) -> Verdict:
    """Judge what limited a trial.

    `front`: the deployment that HTTP reaches; without it, it is inferred if possible. `beside`:
    other trials of the run; those of the same cell and client form a ladder. `launches`: of the
    run, whose flags of Serve may have the value of a timer."""
    case = case_of(trial, front, beside)
    verdict = next(answer for ask in list_questions(case) if (answer := ask(case)) is not None)
    # It is less sure where processes of the server came or went, or requests failed, unless it is
    # about these failures.
    doubts, failed = [*case.seen.partly], case.seen.offered.failed
    explained = case.stopped is not None or (case.seen.refused and REFUSED in verdict.figures)
    if failed >= limits.SOME_FAILED and not explained:
        doubts.insert(0, f"{100 * failed:.0f} % of the requests failed")
    if doubts and verdict.cause != "unclear":
        less = WORDS[max(1, WORDS.index(verdict.confidence) - 1)]
        verdict = replace(verdict, confidence=less, reasons=(*verdict.reasons, *doubts))
    if words := timer_words(case, verdict.cause, verdict.deployment, launches):
        verdict = replace(verdict, reasons=(words, *verdict.reasons))
    hint = scaling_hint(verdict.deployment or "", trial.limits) if trial.limits else None
    if hint is None or verdict.cause not in OF_REPLICAS:
        return verdict
    more = f"; {verdict.hint}" if verdict.cause == "router back-off" else ""
    return replace(verdict, hint=f"{hint}{more}")


OF_REPLICAS: Final = frozenset[Cause](
    {"concurrency limit", "router back-off", "replica CPU", "downstream deployment", "unclear"}
)
"""Causes that the number of replicas of a deployment decides on."""


def worth_a_look(trial: Trial, front: str | None = None) -> bool:
    """Say whether a further load, to see what requests wait in (waits.py), is worth its time.

    It is where no full CPU explains the row, and its time is not that of Serve's own code. For an
    app of the user, whose waits are not known, or too few slots, a CPU explains it only with
    confidence "high"."""
    given_up = count_given_up(trial.counts.failed, trial.client.status_codes)
    if read_rate(trial).silent_from is not None or given_up:
        return trial.usage != TrialUsage()
    if trial.usage == TrialUsage() or not answered(trial) or rescaled(trial.limits):
        return False  # of another number of replicas another state than the row's would be seen
    verdict, seen = limited_by(trial, front), evidence_of(trial, front)
    offered = seen.offered
    if verdict.cause in EXPLAINED:
        several = offered.loop == "closed" and offered.connections > 1 and verdict.cause != "client"
        may_wait = bool(trial.slots) or concurrency_candidate(seen) is not None
        return may_wait and verdict.confidence != "high" and several
    if offered.loop == "open":
        return verdict.cause != "offered load"
    return offered.connections > 1 or (offered.p50_ms or 0.0) >= limits.SLOW_MS


EXPLAINED: Final = ("client", "proxy CPU", "haproxy CPU", "replica CPU", "host CPU", "GPU")
"""Causes in which requests wait for a CPU."""


def list_questions(case: Case) -> Iterator[Callable[[Case], Verdict | None]]:
    """Yield the questions about a case in their order, those of which there is any evidence."""
    seen, offered = case.seen, case.seen.offered
    if case.stopped is not None:
        yield _silent
    if case.trial.limits:
        yield _transient
    if seen.refused >= limits.SOME_FAILED:
        yield _refused
    yield _impossible
    if offered.loop == "open" and offered.late <= ON_TIME and offered.failed < limits.SOME_FAILED:
        yield _kept_up
    if (case.trial.usage.host.throttled_percent or 0.0) >= limits.THROTTLED:
        yield _throttled
    if seen.client.bound:
        yield _client
    yield _cpu
    if offered.wait is not None and offered.wait.missed and case.slots is None:
        yield _connections
    if seen.hops_ms:
        yield _traced
    if seen.waits.replicas:
        yield _inside
    if case.slots is not None or case.batch is not None:
        yield _waits
    if seen.processing_ms:
        yield _downstream
    if case.way and case.top < limits.IDLE and not case.machine.may_limit:
        yield _hidden
    yield _offered


def _silent(case: Case) -> Verdict:
    """Judge a standstill: name what requests wait for since the last one succeeded."""
    since = f"from second {(case.stopped or 0) * case.trial.window_s:g} to the end"
    asks = waits.blocked_candidate, waits.place_candidate, waits.call_candidate
    place = next(filter(None, (ask(case.seen) for ask in asks)), None)
    if place is None:
        return _unclear(case, f"no request succeeded {since}")
    words = f"a standstill {since}: {place.figures}"
    return _of(case, replace(place, figures=words, short="standstill"), "medium")


def _transient(case: Case) -> Verdict | None:
    """Answer "unclear" if Serve started or stopped replicas while the row was measured."""
    changed = rescaled(case.trial.limits)
    return changed and replace(_unclear(case, changed[1]), deployment=changed[0])


def _impossible(case: Case) -> Verdict | None:
    """Answer "unclear" if nothing completed or was sampled, or readings contradict each other."""
    seen, trial = case.seen, case.trial
    if not answered(trial):
        return _unclear(case, "no request was completed")
    if seen.offered.failed >= limits.FAILED:
        return _unclear(case, f"{100 * seen.offered.failed:.0f} % of the requests failed")
    host = seen.host
    if host is not None and -host.others - host.steal > limits.DISAGREE * host.cores:
        used, all_used = 100 * (host.cpu - host.others), 100 * host.cpu
        words = f"processes used {used:.0f} % of a core, but the host {all_used:.0f} %"
        return _unclear(case, words)
    if trial.usage == TrialUsage() and not seen.client.bound:
        return _unclear(case, "CPU was not sampled")
    return None


def _throttled(case: Case) -> Verdict:
    """Blame the CPU quota: it stops client and server alike, wherever their requests then are."""
    stopped = case.trial.usage.host.throttled_percent or 0.0
    words = f"the CPU quota, used up in {stopped:.0f} % of its periods"
    quota = Candidate("host CPU", 1.0, words, words, hint="a larger quota", crowded=True)
    return _of(case, quota, "high" if case.way and stopped >= 100 * limits.NEAR else "medium")


def _client(case: Case) -> Verdict | None:
    """Decide whether a client that says it was the limit was, or waited for a CPU."""
    seen, client = case.seen, case.client
    if client is None:
        return None
    machine = case.machine
    worked = seen.client.busy is not None and seen.client.busy >= limits.NEAR
    waited = (seen.client.starved or 0.0) >= limits.STARVED
    unseen = machine.has_no_core and not case.way
    if (machine.is_full or unseen) and not worked:
        return None  # it is late, as all are that wait for a core
    if waited and (machine.is_full or (not worked and machine.has_no_core)):
        return None  # others fill the host and delay it
    rivals = case.busy(limits.SATURATED)
    if rivals:
        return _unclear(case, client.figures, rivals[0].figures)
    sure = worked and case.way and case.top < limits.NEAR
    return _of(case, client, "high" if sure else "medium")


def _kept_up(case: Case) -> Verdict:
    """Blame the rate of an open loop with every answer in time.

    A client that was late to send or to read only added to the latency."""
    full = max(case.top, case.host.level if case.host and case.machine.is_full else 0.0)
    confidence: Confidence = (
        "high" if full < limits.IDLE else "medium" if full < limits.SATURATED else "low"
    )
    if not case.way or (case.seen.client.bound and confidence == "high"):
        confidence = "medium"
    words = f"offered load {figure(case.seen.offered.rate)} requests/s, all answered in time"
    against = case.seen.client.reasons if case.seen.client.bound else ()
    return _of(case, Candidate("offered load", 0.0, words, words), confidence, *against)


def _cpu(case: Case) -> Verdict | None:
    """Judge the fullest of proxy, HAProxy, replicas, GPU and host.

    A GPU that is always in use comes before a replica, which may spin while it waits for it; a
    process that waits for cores comes after the host, if others use more of that."""
    host, near = case.host, case.busy(limits.NEAR)
    near.sort(key=lambda part: part.cause != "GPU" or part.level < limits.SATURATED)
    top = next(iter(near), None)
    if host is not None and (sure := judge_host(case, top)) is not None:
        verdict = _of(case, host, sure)
    elif top is not None:
        if top.level < limits.NEAR and top.sole:
            of_time = f"which ran or waited for one {100 * (top.awake or 0.0):.0f} % of the time"
            top = replace(top, figures=f"{top.figures}, {of_time}")
        verdict = _of(case, placed(case, top), cpu_confidence(case, top))
    elif host is not None and case.machine.is_full and case.server:
        where = host.figures.removeprefix("host CPU ")
        top = placed(case, case.server[0])
        top = replace(top, figures=f"{top.figures}, on a full host ({where})", crowded=True)
        verdict = _of(case, top, "medium" if case.cpu_explains else "low")
    else:
        return None
    may_wait = verdict.confidence != "high" and (case.seen.waits.replicas or case.mostly_waits)
    if may_wait and (despite := _despite_cpu(case, verdict)) is not None:
        return despite
    calls = waits.call_candidate(case.seen)
    if calls is None or not calls.hint:
        return verdict
    # Both that CPU and the time of a request go into the several calls that it makes.
    words = f"{verdict.figures}, while most requests {calls.short}"
    return replace(verdict, figures=words, hint=f"{calls.hint}; {verdict.hint}")


def _connections(case: Case) -> Verdict | None:
    """Blame the client's connections, for which requests of an open loop wait; no part is full."""
    wait = case.seen.offered.wait
    if wait is None:
        return None
    short = f"{counted(wait.connections, 'connection')} of the load"
    candidate = Candidate("connections", 1.0, f"{short}: {wait.part_text}", short)
    return _of(case, candidate, "high" if case.way and case.top < limits.RESTING else "medium")


def _despite_cpu(case: Case, verdict: Verdict) -> Verdict | None:
    """Find a wait that explains a row although a CPU is near its limit (`verdict`).

    That CPU is idle at times, and requests were observed to wait for something else: a replica that
    is slower than the others and does not compute, or a line of the app, or several calls, where
    they take no longer than one alone, or where all threads of a pool are in use; or it is known
    that requests mostly wait for no CPU."""
    seen = case.seen
    if seen.offered.loop == "closed" and seen.offered.connections == 1:
        return None
    if (slow := waits.differing_candidate(seen)) is not None:
        # One that computes is slow because of its core.
        uses = seen.deployments.get(slow.deployment or "", ())
        shares = [use.not_idle or use.level for use in uses if use.pid == slow.pid]
        idle = max(shares, default=0.0) < limits.NEAR
        return _of(case, placed(case, slow), "low") if idle else None
    place, longer = waits.place_candidate(seen), seen.waits.longer
    blocked, calls = waits.blocked_candidate(seen), waits.call_candidate(seen)
    if blocked is not None and blocked.cause == "replica CPU":
        return None
    for candidate in (place, calls if calls and calls.hint else None):
        if candidate is None or candidate.level < limits.NEAR:
            continue
        # Computing takes the threads of a pool, too, and the time of what is called.
        busy = any(
            full.cause == "GPU"
            or full.deployment == candidate.deployment
            or (candidate is not place and full.deployment is not None)
            for full in case.busy(limits.SATURATED)
        )
        if not busy and (candidate.pool or (longer is not None and longer <= limits.ALIKE)):
            return _of(case, candidate, "low", *_alone(case, more=False))
    if not case.mostly_waits or (verdict.confidence != "low" and verdict.cause != "host CPU"):
        return None
    wait = _traced(case) or _inside(case) or _waits(case)
    return None if wait is None else replace(wait, confidence="low")


def _refused(case: Case) -> Verdict | None:
    """Blame slots and queue, which were full, so that requests were refused."""
    refusal = refused_candidate(case.seen)
    return None if refusal is None else _of(case, placed(case, refusal), "medium")


def _inside(case: Case) -> Verdict | None:
    """Judge what was observed inside the replicas.

    A blocked loop, a replica slower than the others, requests that wait for slots of a deployment,
    the line of the app where requests wait."""
    seen = case.seen
    blocked = waits.blocked_candidate(seen)
    if blocked is not None and blocked.cause == "replica CPU":
        return _of(case, placed(case, blocked), "medium")
    if blocked is not None and seen.waits.replicas:
        queued = (seen.waits.longer or 0.0) >= limits.QUEUES and blocked.level >= limits.CERTAIN
        return _of(case, blocked, "high" if queued and case.top < limits.RESTING else "medium")
    if seen.offered.loop == "closed" and seen.offered.connections == 1:
        return None
    other = waits.differing_candidate(seen) or waits.called_candidate(seen)
    if other is not None:
        sure = case.top < limits.IDLE and case.outlasts_cpu(other.idle)
        return _of(case, placed(case, other), "medium" if sure else "low")
    if case.slots is not None and not waits.waits_in_turn(seen):
        return None
    place = waits.place_candidate(seen) or (waits.call_candidate(seen) if case.way else None)
    if place is None:
        return None
    likely, longer = place.level >= limits.NEAR and case.top < limits.IDLE, seen.waits.longer
    # Where each request takes about as long as one alone, nearly all at one place of which there is
    # more, more clients bring more requests.
    several = place.cause != "batch wait" and not place.pool
    alike = seen.offered.loop == "closed" and longer is not None and longer <= limits.ALIKE
    if likely and several and alike and case.growth.flat is None:
        sure = (longer or 0.0) <= limits.FULL_SLOTS
        return _of(case, latency_bound(case, place), "medium" if sure else "low", *_alone(case))
    return _of(case, place, "medium" if likely else "low", *_alone(case, more=False))


def _traced(case: Case) -> Verdict | None:
    """Blame the wait in which traced requests spend most of their time; no CPU is short."""
    wait = traced_candidate(case.seen)
    if wait is None or wait.level < limits.TRACED_MOST:
        return None
    return _of(case, wait, "high" if case.top < limits.RESTING else "medium")


def _waits(case: Case) -> Verdict | None:
    """Blame slots or batches for which requests wait; no CPU is short."""
    seen, full, batch = case.seen, case.slots, case.batch
    rests = case.top < limits.IDLE and (case.way or not case.machine.has_no_core)
    sure = rests and (full is None or case.outlasts_cpu(full.idle))
    confidence: Confidence = "medium" if sure else "low"
    if full is not None:
        against = []
        if case.trial.slots and not seen.waits.replicas and full.deployment != seen.front:
            against = ["whether requests go there was not looked at"]
        elif seen.ongoing is not None and full.idle is None:
            words = f"Serve counted {seen.ongoing:.0f} requests at its {seen.slots} slots"
            against = [words] if seen.ongoing < limits.RESTING * (seen.slots or 0) else []
        looked = full.idle is not None
        if not looked and seen.offered.rate < limits.NEAR * case.most_beside:  # some were idle
            against.append(f"the same slots served {figure(case.most_beside)} requests/s")
        if sure and looked and case.top < limits.RESTING and full.level >= limits.WELL_FULL:
            confidence = "high"  # requests may wait while slots are idle, where nobody looked
        return _of(case, placed(case, full), "low" if against else confidence, *against)
    if batch is None or batch.cause == "replica loop":
        return None if batch is None else _of(case, placed(case, batch), "low")
    if case.top < limits.RESTING and batch.level >= limits.WAIT_MOST:
        confidence = "high"
    return _of(case, batch, confidence)


def _downstream(case: Case) -> Verdict | None:
    """Blame a deployment behind the front that takes most of the latency, by Serve's metrics."""
    mean_ms, front = case.seen.offered.mean_ms, case.seen.front
    behind = {name: ms for name, ms in case.seen.processing_ms.items() if name != front}
    if front is None or not mean_ms or not behind:
        return None
    name = max(behind, key=lambda waiting: behind[waiting])
    if behind[name] < limits.WAIT_MOST * mean_ms:
        return None
    short = short_name(name)
    words = f"downstream deployment {short} takes {figure(behind[name])} of {figure(mean_ms)} ms"
    candidate = Candidate("downstream deployment", behind[name] / mean_ms, words, words, name)
    return _of(case, candidate, "low")


def _hidden(case: Case) -> Verdict | None:
    """Blame a wait inside, or full slots: nothing is full, but more clients bring no more."""
    flat, heavier = case.growth.flat, case.growth.heavier
    full = concurrency_candidate(case.seen, limits.SATURATED)
    # Slots all have a request, as far as was seen, or else by the time of one.
    slow = (case.seen.offered.p50_ms or 0.0) >= limits.SLOW_MS
    taken = slow if full is None or full.idle is None else full.idle <= 100 * (1 - limits.NEAR)
    if flat is not None:
        low, high, rate = flat
        words = f"{INSIDE}: {figure(rate)} requests/s from {low} to {high} clients, {_rest(case)}"
    elif heavier is None:
        return None
    elif full is not None and taken:
        full = replace(full, figures=f"{full.figures}, and {_no_more(*heavier)}")
        return _of(case, placed(case, full), "high" if case.top < limits.RESTING else "medium")
    elif heavier[1] < COLLAPSE * case.seen.offered.rate:
        return None  # what more clients would have brought before is not known
    else:
        words = f"{INSIDE}, {_rest(case)}: {_no_more(*heavier)}"
    candidate = Candidate("app wait", 1.0, words, words, case.seen.measured)
    return replace(_of(case, candidate, "medium"), hint=_look(case))


def _no_more(clients: int, rate: float) -> str:
    return f"{clients} clients bring no more ({figure(rate)} requests/s)"


def _offered(case: Case) -> Verdict | None:
    """Blame the offered load: nothing is full, and more load would give more requests."""
    offered = case.seen.offered
    for use in case.seen.of_role(*BESIDE):
        if use.level >= limits.SATURATED:
            role = use.role.replace("_", " ")
            words = f"{role} CPU {core_words(use)}, and nothing on the way of a request"
            return _unclear(case, words)
    if not case.way:
        known = [part.short for part in (case.client, case.host) if part is not None]
        return _unclear(case, "no process of the server was sampled", *known)
    if offered.loop == "open":
        behind = f"{100 * max(0.0, offered.late):.0f} % of the due requests were left over"
        failed = f"{100 * offered.failed:.0f} % failed"
        return _unclear(case, f"{behind}, {failed}, and nothing sampled is at its limit")
    # One connection always waits for its answer; many may wait for something unobserved.
    grows, heavier = case.growth.follows, case.growth.heavier
    full = max(case.top, case.host.level if case.host is not None else 0.0)
    confidence: Confidence = "low"
    if full < limits.IDLE and (offered.connections == 1 or grows):
        confidence = "high"
    elif full < limits.NEAR and (grows or case.apart):
        confidence = "medium"
    why = _alone(case) if heavier is None else (_no_more(*heavier),)
    likely = confidence != "low" or case.apart or (offered.p50_ms or 0.0) < limits.SLOW_MS
    if likely and heavier is None:
        places = waits.place_candidate(case.seen), waits.call_candidate(case.seen)
        place = next((place for place in places if place and place.level >= limits.NEAR), None)
        return _of(case, latency_bound(case, place), confidence, *why)
    if heavier is not None and heavier[1] < COLLAPSE * offered.rate:
        between = "a number of clients between the two (serve-bench sweep)"
        return replace(_of(case, latency_bound(case), "low", *why), hint=between)
    more = why if heavier is not None else ()
    if case.top >= limits.IDLE:
        return _unclear(case, f"nothing is at its limit, {case.server[0].figures}", *more)
    if case.host is not None and case.machine.may_limit:
        rests = "and each process on the way rests at times"
        return _unclear(case, f"{case.host.figures}, {rests}", *more)
    idle = f"{INSIDE}, {_rest(case)}"
    return replace(_of(case, Candidate("app wait", 0.0, idle, idle), "low", *why), hint=_look(case))


def _alone(case: Case, more: bool = True) -> tuple[str, ...]:
    """Say whether requests wait for one another, by the time of one alone.

    Empty for one connection: its requests are alone. `more`: more clients may bring more."""
    offered, look = case.seen.offered, case.seen.waits
    if (longer := look.longer) is None or (offered.loop == "closed" and offered.connections == 1):
        return ()
    words = f"looked at, p50 {figure(look.p50_ms or 0)} ms, alone {figure(look.alone_ms or 0)}"
    if longer >= limits.QUEUES:
        words = f"requests wait for one another: {words}"
    elif longer <= limits.ALIKE and more and case.growth.heavier is None:
        words = f"a request alone takes as long ({words}): more clients bring more requests"
    return (words,)


def _rest(case: Case) -> str:
    """Say why requests do not wait for a CPU."""
    return "whose processes rest on a full host" if case.machine.has_no_core else "CPU idle"


def _look(case: Case) -> str:
    """Say how to see where requests wait, as a hint."""
    if case.seen.waits.replicas:
        places = "they wait in many places, or in Serve and Ray; use --profile"
        return f"no line of the app holds most of the requests: {places}"
    failed = case.trial.waits.why_not
    return LOOK if failed else f"`serve-bench run` (without --no-sample), or {LOOK}"


INSIDE: Final = "a wait inside the app"

LOOK: Final = "py-spy dump --pid of a replica under load shows where they wait"


def _of(case: Case, candidate: Candidate, confidence: Confidence, *against: str) -> Verdict:
    """Return the verdict with the next limit: the fullest of all others.

    On a full host a client that waits for a core limits nothing by itself."""
    host = None if candidate.crowded else case.host
    late = case.machine.is_full and (case.seen.client.starved or 0.0) >= limits.STARVED
    others = [*case.server, host, None if late else case.client, case.slots, case.batch]
    left = [other for other in others if other is not None and not is_same(other, candidate)]
    then = max(left, key=lambda other: min(other.level, 1.0), default=None)
    at_front = case.slots is not None and case.slots.deployment == case.seen.front
    return Verdict(
        cause=candidate.cause,
        figures=candidate.figures,
        confidence=confidence,
        runner_up=None if then is None else then.short,
        runner_up_cause=None if then is None else then.cause,
        hint=candidate.hint or HINTS[candidate.cause],
        deployment=short_name(candidate.deployment) or None,
        reasons=against,
        unseen=case.seen.unseen,
        idle=case.slots.idle if case.slots is not None and at_front else None,
    )


def _unclear(case: Case, *reasons: str) -> Verdict:
    nothing = Candidate("unclear", 0.0, "unclear", "unclear")
    return _of(case, nothing, "none", *reasons)
