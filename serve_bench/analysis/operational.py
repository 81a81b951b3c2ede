"""What-if by operational laws: a bound on the throughput if one demand or a number changes. Pure.

Utilization law: U = X D, so the demand of a request is D = U / X, here CPU seconds of processes
over answered requests. Each resource k bounds the rate, X <= c_k / D_k, and the least bound holds.
Sources: P. J. Denning, J. P. Buzen, "The operational analysis of queueing network models", ACM
Computing Surveys 10 (3), 1978; E. D. Lazowska et al., "Quantitative System Performance",
Prentice-Hall 1984, ch. 5.

Rule: only a row that a CPU limits, by its verdict, is the ground for a prediction. A process has
one core, as the verdict counts it. A bound is an "at most": what else requests would wait for then
(slots, locks, connections, each other) has no demand in CPU seconds.

By Little's law the tasks of Serve's router, N = X W, give X = N / W requests/s once each of them
waits for W before it gives one to a replica: less than the replicas can, however many are idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.verdict import Verdict, limited_by, prevailing
from serve_bench.analysis.verdict.evidence import Evidence, evidence_of, rate_of
from serve_bench.analysis.verdict.limits import (
    GIL_CEILING,
    NEAR,
    OTHERS,
    RESTING,
    SATURATED,
    SOME_FAILED,
)
from serve_bench.analysis.verdict.usage import SERVER, ProcessUse, short_name
from serve_bench.core.figures import counted, number
from serve_bench.core.proof import HA_PROXY_FLAG
from serve_bench.core.result import Launch, Trial

HOST: Final = "host CPU"
CLIENT: Final = "client CPU"
REPLICA: Final = "replica CPU"
"""What the name of each deployment's replicas ends with."""

GAIN: Final = 0.05
"""What adds less than this adds nothing: launches differ by as much."""

ROUTER_TASKS: Final = 2
ROUTER_MOST: Final = 50
"""Tasks of Serve's router for each replica, and at most: they give requests to replicas, in the
proxy. Ray 2.60, serve/_private/request_router/request_router.py, `max_num_routing_tasks`."""

ROUTER_WAIT: Final = "RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S"
ROUTER_WAIT_S: Final = 0.5
"""The longest wait of such a task between two tries. In a queue each waits so long for each request
once its own is behind others: `_fulfill_pending_requests` there goes on to count tries while it
gives requests of others to replicas."""

ROUTER_NEAR: Final = 0.2
"""How far from it a rate may be that is called the router's."""

_LOAD: Final = ("load_worker", "serve_bench", "driver")
"""Their CPU grows with the requests, too, if they run on this host."""


@dataclass(frozen=True)
class Change:
    """What is changed. `of`: the resource by its name, as in Demand. `demand`: a factor of its CPU
    per request; `replicas`: of the number of a deployment's replicas; `cores`: of the host's."""

    of: str
    demand: float = 1.0
    replicas: float = 1.0
    cores: float = 1.0


@dataclass(frozen=True)
class Demand:
    """The use of a resource in a trial. `seconds`: CPU of all its processes per answered request;
    `level`: the share in use, of a core by the busiest process, of all cores by the host; `even`:
    the mean of its processes; `count`: processes, of the host cores; `native`: its threads may use
    several cores; `fixed`: of the host, cores in use that do not grow with the rate."""

    name: str
    seconds: float
    level: float
    even: float
    count: int = 1
    native: bool = False
    fixed: float = 0.0


@dataclass(frozen=True)
class RateBound:
    """At most so many requests/s by one resource: between `low` and `high`."""

    name: str
    low: float
    high: float

    @property
    def middle(self) -> float:
        """Of the range."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class WhatIf:
    """A prediction. `measured`, `low`, `high`: requests/s, the last two what is possible at most.
    `limits`: what limits then, several where their bounds are close; `then`: the next. `words`: the
    change in words; `ground`: where the range comes from. `why_not`: why nothing is predicted, else
    empty."""

    change: Change
    words: str
    measured: float = 0.0
    low: float = 0.0
    high: float = 0.0
    limits: tuple[str, ...] = ()
    then: RateBound | None = None
    doubts: tuple[str, ...] = ()
    ground: str = ""
    why_not: str = ""

    @property
    def text(self) -> str:
        """`prediction: with the proxy at half its CPU per request at most 1,480 to 1,610 requests/s
        (measured 985), then replica CPU limits; next host CPU, 1,700`."""
        if self.why_not:
            return f"no prediction {self.words}".rstrip() + f": {self.why_not}"
        rates = " to ".join(dict.fromkeys(_about(one) for one in (self.low, self.high)))
        further = f"; next {self.then.name}, {_about(self.then.high)}" if self.then else ""
        doubts = "".join(f"; {one}" for one in self.doubts)
        return (
            f"prediction: {self.words} at most {rates} requests/s (measured "
            f"{_about(self.measured)}), then {' or '.join(self.limits)} limits{further}{doubts}"
        )


def _about(rate: float) -> str:
    """Three digits: a prediction has no more."""
    return number(float(f"{rate:.3g}"), 3)


# ------------------------------------------------------------------------------------ demands


def demands(trial: Trial) -> tuple[Demand, ...]:
    """The demand of each resource in a trial; none where nothing was sampled or answered. Names:
    "proxy CPU", "haproxy CPU", "replica CPU" (of several deployments "Ranker
    replica CPU"), "client CPU", "GPU 0", "host CPU"."""
    rate = rate_of(trial)
    return tuple(_demands(evidence_of(trial), rate)) if rate > 0 else ()


def _demands(seen: Evidence, rate: float) -> Iterator[Demand]:
    for name, uses in _groups(seen).items():
        levels = [use.level for use in uses]
        if sum(levels) > 0:
            seconds, even = sum(use.cpu for use in uses) / rate, sum(levels) / len(levels)
            native = any(map(_native, uses))
            yield Demand(name, seconds, max(levels), even, len(levels), native)
    for device, used in seen.gpus.items():
        if used > 0:
            yield Demand(f"GPU {device}", used / rate, used, used)
    if (host := seen.host) is not None:
        used = host.cpu + host.steal
        load = sum(use.cpu for use in seen.of_role(*SERVER, *_LOAD))
        fixed = max(0.0, used - load)
        yield Demand(HOST, used / rate, host.level, host.level, host.cores, fixed=fixed)


def _groups(seen: Evidence) -> dict[str, list[ProcessUse]]:
    """Processes that have the same work, by the name of the resource."""
    groups = {
        # A fallback beside HAProxy serves nothing.
        "proxy CPU": seen.of_role("proxy") or seen.of_role("fallback_proxy"),
        "haproxy CPU": seen.of_role("haproxy"),
    }
    shorts = [short_name(one) for one in seen.deployments]
    for name, uses in seen.deployments.items():
        short = short_name(name) if shorts.count(short_name(name)) == 1 else name
        groups[f"{short} {REPLICA}" if len(shorts) > 1 else REPLICA] = uses
    # A client that spins uses a core whatever its rate is, and tells no share of its own.
    groups[CLIENT] = seen.of_role("load_worker") if seen.client.busy is not None else []
    return groups


def _native(use: ProcessUse) -> bool:
    return use.role == "haproxy" or use.cpu > GIL_CEILING


# ----------------------------------------------------------------------------------- what if


def changes_for(trials: Sequence[Trial], limit: Verdict) -> tuple[Change, ...]:
    """The changes that a row asks for, where a CPU limits it: half the demand of what does, or
    twice the cores of the host; and twice the replicas of the busiest deployment."""
    for trial in trials:
        known = demands(trial)
        if (name := _limiting(limit, known)) is not None:
            first = Change(name, cores=2.0) if name == HOST else Change(name, demand=0.5)
            replicas = [one for one in known if one.name.endswith(REPLICA)]
            most = sorted(replicas, key=lambda one: -one.level)[:1]
            return (first, *(Change(one.name, replicas=2.0) for one in most))
    return ()


def what_ifs(
    trials: Sequence[Trial], limits: Sequence[Verdict] | None = None
) -> tuple[WhatIf, ...]:
    """The changes that a row asks for; where there are none, why nothing is predicted."""
    verdicts = [limited_by(one) for one in trials] if limits is None else list(limits)
    changes = changes_for(trials, prevailing(verdicts)) if verdicts else ()
    if changes:
        return tuple(what_if(trials, one, verdicts) for one in changes)
    return (replace(what_if(trials, Change(HOST), verdicts), words=""),)


def what_if(
    trials: Sequence[Trial], change: Change, limits: Sequence[Verdict] | None = None
) -> WhatIf:
    """At most so many requests/s with one change, from the launches of a row. `limits`: what
    limited each; without them each trial is judged by itself.

    The range holds what is possible in each launch. A resource is full from SATURATED of its time
    on, or from the level at which it limits here if that is less, up to the whole; processes of a
    group share their work as here, or evenly; CPU that is not of the load grows with the rate, or
    not at all.
    """
    verdicts = [limited_by(one) for one in trials] if limits is None else list(limits)
    judged = [(*pair, demands(pair[0])) for pair in zip(trials, verdicts, strict=True)]
    words = _words(change, judged[0][2] if judged else ())
    used = [(one, own) for one, limit, own in judged if _limiting(limit, own) is not None]
    if not judged:
        return WhatIf(change, words, why_not="nothing was measured")
    limit = prevailing(verdicts)
    if 2 * len(used) <= len(judged):
        return WhatIf(change, words, why_not=_no_ground(limit))
    if not all(any(one.name == change.of for one in own) for _, own in used):
        return WhatIf(change, words, why_not=f"{change.of} was not sampled")
    level, name = min(
        (one.level, one.name)
        for _, verdict, own in judged
        for one in own
        if one.name == _limiting(verdict, own)
    )
    if level < RESTING:
        why = f"the model does not hold: {name} limits at {100 * level:.0f} % of its time"
        return WhatIf(change, words, why_not=why)
    full = min(SATURATED, level)
    each = [_bounds(own, rate_of(one), change, full) for one, own in used]
    low = min(min(one.low for one in own) for own in each)
    high = max(min(one.high for one in own) for own in each)
    bounds, rates = _over_launches(each), [rate_of(one) for one, _ in used]
    close = [one for one in bounds if one.middle <= (1 + GAIN) * bounds[0].middle]
    others = bounds[len(close) :]
    doubts = list(_doubts([one for one, _ in used], used[0][1], close, limit))
    if high < (1 + GAIN) * min(rates):
        doubts.insert(0, f"that adds nothing: {_full(close[0].name, used[0][1])}")
    if len(used) < len(judged):
        doubts.append(f"no CPU limits {len(judged) - len(used)} of {len(judged)} launches")
    return WhatIf(
        change,
        words,
        measured=sum(rates) / len(rates),
        low=low,
        high=high,
        limits=tuple(one.name for one in close),
        then=others[0] if others else None,
        doubts=tuple(doubts),
        ground=f"full from {100 * full:.0f} % to 100 % of its time, "
        f"{counted(len(used), 'launch', 'launches')}",
    )


def _limiting(limit: Verdict, known: Sequence[Demand]) -> str | None:
    """The resource that a verdict names; None where it names no CPU that was sampled."""
    names = [one.name for one in known]
    if limit.cause in ("proxy CPU", "haproxy CPU"):
        return limit.cause if limit.cause in names else None
    if limit.cause == HOST:  # that of a server that is not seen may be elsewhere
        return HOST if any(one.name not in (HOST, CLIENT) for one in known) else None
    if limit.cause not in (REPLICA, "downstream deployment"):
        return None
    own = [one for one in known if one.name.endswith(REPLICA)]
    own = [one for one in own if len(own) == 1 or f"{limit.deployment} " in f"{one.name} "] or own
    top = max(own, key=lambda one: one.level, default=None)
    waits = limit.cause == "downstream deployment" and (top is None or top.level < NEAR)
    return None if waits or top is None else top.name


def _bounds(known: Sequence[Demand], rate: float, change: Change, full: float) -> list[RateBound]:
    """Of each resource with the change; no less than the rate that was measured, where it can only
    help."""
    out, saved = [], 0.0
    least = rate if change.demand <= 1 <= min(change.replicas, change.cores) else 0.0
    for one in known:
        own = one.name == change.of
        if one.name == HOST:
            cores = one.count * (change.cores if own else 1.0)
            used = max(one.seconds * rate - saved, 1e-9)
            load = max(used - one.fixed, 1e-9)
            low, high = full * cores / used, (cores - one.fixed) / load
        else:
            factor = change.demand / change.replicas if own else 1.0
            saved += (1 - change.demand) * one.seconds * rate if own else 0.0
            low, high = full / one.level / factor, max(1.0, one.level) / one.even / factor
        low = max(least, rate * low)
        out.append(RateBound(one.name, low, max(low, rate * high)))
    return out


def _over_launches(each: Sequence[Sequence[RateBound]]) -> list[RateBound]:
    """From the lowest to the highest of each resource, the least first."""
    by_name: dict[str, list[RateBound]] = {}
    for one in (bound for own in each for bound in own):
        by_name.setdefault(one.name, []).append(one)
    bounds = [
        RateBound(name, min(one.low for one in own), max(one.high for one in own))
        for name, own in by_name.items()
    ]
    return sorted(bounds, key=lambda one: one.middle)


# -------------------------------------------------------------------------------------- words


def _words(change: Change, known: Sequence[Demand]) -> str:
    """The change: `with the proxy at half its CPU per request`, `with 2 replicas`."""
    name = change.of.removesuffix(" CPU")
    now = next((one.count for one in known if one.name == change.of), 1)
    if change.replicas != 1:
        return f"with {number(now * change.replicas, 1)} {name}s"
    if change.cores != 1:
        return f"with {number(now * change.cores, 1)} cores"
    share = "half" if change.demand == 0.5 else f"{100 * change.demand:.0f} % of"
    return f"with the {name} at {share} its CPU per request"


def _no_ground(limit: Verdict) -> str:
    """Why a row is no ground for a prediction."""
    if limit.cause == "replica loop":
        return f"one replica alone, or its loop, limits this row ({limit.figures})"
    words = limit.text if limit.cause == "unclear" else limit.figures
    return f"no CPU of the server limits this row ({words})"


def _full(name: str, known: Sequence[Demand]) -> str:
    """`the 2 cores of the host are full`, `proxy CPU is full already`."""
    count = next(one.count for one in known if one.name == name)
    return f"the {count} cores of the host are full" if name == HOST else f"{name} is full already"


def _doubts(
    trials: Sequence[Trial], known: Sequence[Demand], close: Sequence[RateBound], limit: Verdict
) -> Iterator[str]:
    """What may be otherwise than the model has it."""
    if limit.confidence == "low":
        yield "the limit of the row has low confidence"
    names = [one.name for one in close]
    for one in known:
        if one.native and one.name in names:
            yield f"threads: {one.name} may use several cores"
    seen = evidence_of(trials[0])
    if seen.host is not None and seen.host.others >= OTHERS * seen.host.cores:
        yield f"other programs use {100 * seen.host.others:.0f} % of a core"
    if seen.batches is not None:
        yield "CPU per request changes with the size of the batches"
    if max(evidence_of(one).offered.failed for one in trials) >= SOME_FAILED:
        yield "the CPU of failed requests counts for the others"


# --------------------------------------------------------------------------- tasks of the router


def router_wait_s(launches: Iterable[Launch], variant: str) -> float | None:
    """The longest wait (s) of Serve's router between two tries in launches of a variant; None where
    HAProxy leads requests past it, or there was no launch."""
    env = next((one.variant.env for one in launches if one.variant.name == variant), None)
    if env is None or env.get(HA_PROXY_FLAG, "0") not in ("", "0"):
        return None
    try:
        wait_s = float(env.get(ROUTER_WAIT, ROUTER_WAIT_S))
    except ValueError:
        return None
    return wait_s if 0 < wait_s < math.inf else None


def router_words(rate: float, replicas: int, wait_s: float | None) -> str | None:
    """Words on a rate (requests/s) of a deployment that is what its router gives while all its
    tasks wait; None: it is another."""
    if not wait_s or replicas < 1:
        return None
    law = min(ROUTER_MOST, ROUTER_TASKS * replicas) / wait_s
    if abs(rate - law) > ROUTER_NEAR * law:
        return None
    return (
        f"{rate:.3g}/s fits what Serve's router gives once requests queue: {ROUTER_TASKS} tasks "
        f"a replica, one request each in {wait_s:g} s ({ROUTER_WAIT})"
    )
