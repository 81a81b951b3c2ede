"""Candidates: each resource that may limit a trial, and how much of it is in use, in words.

Rule: a candidate describes one resource. __init__.py chooses among candidates.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from serve_bench.analysis.connections import HINT
from serve_bench.analysis.verdict import limits
from serve_bench.analysis.verdict.evidence import Evidence
from serve_bench.analysis.verdict.usage import SERVER, ProcessUse, figure, is_named, short_name
from serve_bench.core.figures import counted
from serve_bench.core.proof import CHILD_OF_REPLICA

Cause: TypeAlias = Literal[
    "client",
    "proxy CPU",
    "haproxy CPU",
    "replica loop",
    "replica CPU",
    "concurrency limit",
    "router back-off",
    "batch wait",
    "app wait",
    "slow replica",
    "downstream deployment",
    "host CPU",
    "GPU",
    "connections",
    "offered load",
    "unclear",
]

REFUSED: Final = " % refused"
"""What the figures say where requests were refused."""

BESIDE: Final = ("haproxy_manager", "controller", "raylet", "gcs", "dashboard_agent")
"""Roles that are not on the way of a request, but that Serve needs."""


@dataclass(frozen=True)
class Candidate:
    """A possible limit."""

    cause: Cause
    level: float  # the share in use
    figures: str  # the share in use, in words
    short: str  # the same, shorter
    deployment: str | None = None
    awake: float | None = None  # the share of time that its busiest thread ran or waited for a CPU
    restless: bool = False  # never idle, though others kept it from a whole core
    sole: bool = False  # the only part of the server that has no time left: all others wait for it
    pid: int | None = None  # of its process, if it is a single one
    pool: bool = False  # requests wait for threads of a pool that are always all in use
    crowded: bool = False  # the words say that the host was full
    idle: float | None = None  # %, of the time that slots were idle while requests waited for them
    hint: str = ""  # what to try, where it is not that of the cause


def server_candidates(seen: Evidence) -> list[Candidate]:
    """List proxy, HAProxy, deployments, busy children of replicas and GPUs, the fullest first."""
    kinds: tuple[tuple[Cause, tuple[str, ...]], ...] = (
        ("proxy CPU", ("proxy", "fallback_proxy")),
        ("haproxy CPU", ("haproxy",)),
    )
    parts = []
    for cause, roles in kinds:
        if uses := seen.of_role(*roles):
            top = max(uses, key=lambda use: use.level)
            words, short = f"{cause} {core_words(top)}", f"{cause} {100 * top.level:.0f} %"
            parts.append(Candidate(cause, top.level, words, short, awake=top.awake))
    parts += _replicas(seen)
    # Processes that a replica started, as those of a pool, compute for it, each on a core of its
    # own. One that is idle at times is no limit, and which replica started it is not sampled.
    for use in seen.of_role(CHILD_OF_REPLICA):
        if use.level >= limits.NEAR:
            words = f"a child process of a replica uses {core_words(use)}"
            short = f"child of a replica {100 * use.level:.0f} %"
            parts.append(Candidate("replica CPU", use.level, words, short, awake=use.awake))
    for device, used in seen.gpus.items():
        share = f"{100 * used:.0f} %"
        words = f"GPU {device} in use {share} of the time"
        parts.append(Candidate("GPU", used, words, f"GPU {share}"))
    parts.sort(key=lambda part: -part.level)
    # One that waits for a core at times, while the host has one free at times and all others rest,
    # would get no more from a whole core than the time that it waited.
    full = [at for at, part in enumerate(parts) if (part.awake or 0.0) >= limits.SATURATED]
    ways = [1.0 if part.awake is None else part.awake for part in parts]
    free = seen.host is not None and seen.host.level < limits.SATURATED
    if free and len(full) == 1 and sum(map(limits.RESTLESS.__le__, ways)) == 1:
        parts[full[0]] = replace(parts[full[0]], sole=True)
    return parts


def host_candidate(seen: Evidence) -> Candidate | None:
    """Return all cores together, with the share of processes that were not sampled."""
    host = seen.host
    if host is None:
        return None
    share = f"{100 * host.cpu:.0f} of {100 * host.cores} %"
    words, short, more = f"host CPU {share}", f"host {share}", ""
    if host.others >= limits.OTHERS * host.cores:
        whose = "by others" if seen.of_role(*SERVER) else "not by the load"
        more += f", {100 * host.others:.0f} % {whose}"
        more += f"; known of them: {host.programs}" if host.programs else ""
    if host.steal >= limits.OTHERS * host.cores:
        more += f", {100 * host.steal:.0f} % taken by the hypervisor"
    return Candidate("host CPU", host.level, words + more, short)


def client_candidate(seen: Evidence) -> Candidate | None:
    """Return the client, if it reported its own state."""
    client = seen.client
    if not client.bound and client.busy is None:
        return None
    short = "client" if client.busy is None else f"client {100 * client.busy:.0f} % not idle"
    words = short
    if client.bound and (client.busy is None or client.busy < limits.SATURATED):
        words = f"client: {client.reasons[0]}" if client.reasons else f"{short}, by its own verdict"
    if client.bound and client.busy is not None and client.busy < limits.NEAR:
        short = "client late"
    level = max(client.busy or 0.0, 1.0 if client.bound else 0.0)
    return Candidate("client", level, words, short)


def concurrency_candidate(seen: Evidence, full: float = limits.FULL_SLOTS) -> Candidate | None:
    """Find more requests in flight than slots, by the factor `full`; None if all have a slot.

    With Serve's own metrics also a wait for a slot of any deployment."""
    in_flight, slots, mean_ms = seen.offered.in_flight, seen.slots, seen.offered.mean_ms
    for name, wait_ms in seen.router_wait_ms.items():
        if mean_ms and wait_ms >= limits.WAIT_SHARE * mean_ms:
            words = f"{figure(wait_ms)} of {figure(mean_ms)} ms waiting for a slot"
            at = next((known for known in seen.deployments if is_named(known, name)), None)
            return slots_candidate(seen, at, wait_ms / mean_ms, words)
    if in_flight is None or not slots or in_flight < full * slots:
        return None
    words = f"{counted(round(in_flight), 'request')} for {seen.slots_words}"
    return slots_candidate(seen, seen.slots_at, in_flight / slots, words)


def slots_candidate(seen: Evidence, at: str | None, level: float, words: str) -> Candidate:
    """Describe requests that wait for slots that are in use, or idle for too long.

    Too long is more than it takes to hand a slot over: so long Serve's router sleeps between its
    tries. HAProxy leads requests past it."""
    use, past_router = seen.waits.slot_use(at), at == seen.front and seen.of_role("haproxy")
    idle = None if use is None else 100.0 * (1.0 - use.share)
    cause: Cause = "concurrency limit"
    more = hint = ""
    if use and use.share < limits.NEAR and use.gap_s >= limits.HAND_OVER_S and not past_router:
        cause, more = "router back-off", f", idle {idle:.0f} % of the time while requests waited"
        if use.most is not None:
            # A deployment behind another serves calls, of which a request may make several.
            unit = "requests/s" if at in (None, seen.front) else "calls/s"
            more += f" (never idle: about {figure(float(f'{use.most:.2g}'))} {unit})"
        setting = f"{short_name(at)}.request_router_config.max_backoff_s"
        hint = f"smaller {setting}, more slots, or variant optimized" if at else ""
    full = _about(seen, at, cause, level, f"{cause}, {words}{more}", words)
    return replace(full, idle=idle, hint=hint)


def refused_candidate(seen: Evidence) -> Candidate | None:
    """Find requests that full slots and queue refused; None: no limit, or other failures."""
    if not seen.refused or seen.queue is None or seen.slots is None:
        return None
    share = min(100 * seen.refused, 99.9) if seen.offered.rate else 100.0
    by = f" ({' or '.join(map(str, seen.refused_by))})" if seen.refused_by else ""
    words = (
        f"{counted(seen.offered.connections, 'client')} for {seen.slots_words} and a queue of "
        f"{seen.queue}: {share:.3g}{REFUSED}{by}, {figure(seen.offered.rate)} requests/s answered"
    )
    hint = (
        "refused by design (max_queued_requests): --expect-status "
        f"200,{','.join(map(str, seen.refused_by)) or '503'} counts refusals as answers, an open "
        "loop (timeline, load --rate) does not ask again at once; to refuse less, more slots or a "
        "longer queue"
    )
    long = f"concurrency limit, {words}"
    full = _about(seen, seen.slots_at, "concurrency limit", 1.0, long, words)
    return replace(full, hint=hint)


def batch_candidate(seen: Evidence) -> Candidate | None:
    """Find batches that start by their timeout, or full ones while others wait.

    The first if that wait is most of the latency; the second if more than another one waits, since
    serve.batch runs one at a time."""
    batches, p50_ms = seen.batches, seen.offered.p50_ms
    if batches is None:
        return None
    replicas = len(seen.deployments.get(seen.measured or "", ())) or 1
    waiting = (seen.offered.in_flight or 0.0) / replicas
    # Where that was not seen they are as full as the requests in flight at a replica allow.
    fill = min(1.0, waiting / batches.most) if batches.fill is None else batches.fill
    if fill >= limits.BATCH_FULL:
        if batches.fill is None or waiting < limits.QUEUED_BATCHES * batches.most:
            return None
        words = f"batches full, {waiting:.0f} in flight for {batches.most} a batch"
        long = f"replica loop, {words}"
        return _about(seen, seen.measured, "replica loop", 1.0, long, words)
    wait_ms = batches.wait_ms if batches.waited_ms is None else batches.waited_ms
    if not p50_ms or not limits.WAIT_SHARE * p50_ms <= wait_ms <= p50_ms / limits.WAIT_MEAN:
        return None
    what = "timeout" if batches.waited_ms is None else "mean"
    short = f"batch wait: {what} {figure(wait_ms)} ms, p50 {figure(p50_ms)} ms"
    words = f"{short}, batches {100 * fill:.0f} % full"
    return Candidate("batch wait", min(1.0, wait_ms / p50_ms), words, short, seen.measured)


HOPS: Final[Mapping[str, Cause]] = {
    "router": "concurrency limit",
    "replica slot": "concurrency limit",
    "replica loop": "replica loop",
    "batch wait": "batch wait",
}
"""What requests wait for in a hop, of those that are waits."""


def traced_candidate(seen: Evidence) -> Candidate | None:
    """Find the wait that traced requests spend most of their time in.

    Hops with one cause in one deployment count together. Calls that are made at once add up to more
    than the time that they take: then their hops have parts of `downstream`."""
    whole = seen.hops_ms.get("latency")
    if not whole:
        return None
    below = {name: ms for name, ms in seen.hops_ms.items() if ": " in name}
    others = (": downstream", ": argument")  # lie in other hops below
    called = sum(ms for name, ms in below.items() if not name.endswith(others))
    part = min(1.0, seen.hops_ms.get("downstream", 0.0) / called) if called > 0 else 1.0
    times: dict[tuple[Cause, str], float] = {}
    hops: dict[tuple[Cause, str], list[str]] = {}
    for name, ms in seen.hops_ms.items():
        deployment, _, hop = name.rpartition(": ")
        if (cause := HOPS.get(hop)) is not None and ms:
            spent = ms * part if deployment else ms
            times[cause, deployment] = times.get((cause, deployment), 0.0) + spent
            hops.setdefault((cause, deployment), []).append(hop)
    most = max(times, key=lambda name: times[name], default=None)
    if most is None:
        return None
    (cause, deployment), ms = most, times[most]
    at = f" of {deployment}" if deployment else ""
    named = "" if hops[most] == [cause] else f"{cause}: "
    short = f"{named}{' and '.join(hops[most])}{at} {figure(ms)} of {figure(whole)} ms"
    words = f"{short} of traced requests"
    return Candidate(cause, min(1.0, ms / whole), words, short, deployment or seen.front)


def _replicas(seen: Evidence) -> Iterator[Candidate]:
    """Yield each deployment by its busiest replica: alone at its core, or as busy as the others.

    A replica that is ahead of the others and never idle is at its limit below a whole core: with
    many processes on few cores it waits for one."""
    for name, uses in seen.deployments.items():
        top = max(uses, key=lambda use: use.level)
        others = [use.level for use in uses if use is not top]
        ahead = bool(others) and top.level - statistics.fmean(others) >= limits.GAP
        not_idle = top.not_idle or top.level
        restless = ahead and not_idle >= limits.CERTAIN
        cause: Cause = "replica loop" if ahead and not_idle >= limits.NEAR else "replica CPU"
        words = f"{cause} {core_words(top)}"
        if ahead:
            mean = 100 * statistics.fmean(others)
            words += f", the other{'s' if others[1:] else ''} {mean:.0f} %"
        elif others:
            words += f", busiest of {len(uses)}"
        short = f"replica CPU {100 * top.level:.0f} %"
        busiest = _about(seen, name, cause, top.level, words, short)
        yield replace(busiest, awake=top.awake, restless=restless)
        in_batch = seen.forward if name == seen.measured else None
        if in_batch is not None and in_batch > top.level:
            share = f"{100 * in_batch:.0f} %"
            words = f"replica loop {share} of the time in its batch function"
            busy = _about(seen, name, "replica loop", in_batch, words, f"batch function {share}")
            yield replace(busy, awake=top.awake)


def core_words(use: ProcessUse) -> str:
    """Render `98 % of a core`; of the busiest thread if native threads share the work."""
    if use.thread is not None and use.level == use.thread and use.cpu > use.thread:
        return f"{100 * use.level:.0f} % of a core in one thread"
    return f"{100 * use.level:.0f} % of a core"


def _about(
    seen: Evidence, name: str | None, cause: Cause, level: float, words: str, short: str
) -> Candidate:
    """Return a candidate about a deployment, with its name if there are several."""
    where = f"{short_name(name)}: " if name is not None and len(seen.deployments) > 1 else ""
    return Candidate(cause, level, f"{where}{words}", f"{where}{short}", name)


# What to try against each limit, one line for a cause.
#
# Facts from Ray Serve's performance tuning page (docs.ray.io/en/latest/serve/advanced-guides/
# performance.html: cores and GPUs a replica, OMP_NUM_THREADS, batching, async methods, an end-to-
# end timeout with retries by the client), from the page of `ray.serve.batch` (one batch at a time
# unless max_concurrent_batches says more) and from KubeRay's page on high throughput (the two flags
# of the variant `optimized`). Rule: a hint names settings and promises nothing; no judgement rests
# on it.

HINTS: Final[Mapping[Cause, str]] = {
    "client": "the raw client, more load processes, or another machine for it",
    "proxy CPU": "the variant optimized (HAProxy, direct gRPC), or more nodes",
    "haproxy CPU": "RAY_SERVE_HAPROXY_NBTHREAD, or more nodes",
    "replica loop": "await, a thread or another deployment for what blocks",
    "replica CPU": "more replicas, num_cpus with OMP_NUM_THREADS, or batching",
    "concurrency limit": "max_ongoing_requests (async methods), or num_replicas",
    "router back-off": "smaller max_backoff_s, more slots, or variant optimized",
    "batch wait": "smaller batch_wait_timeout_s or max_batch_size, more clients",
    "app wait": "more of what is awaited there, less time in it or under a lock",
    "slow replica": "see its host, cache, GPU, and stacks (serve-bench profile)",
    "downstream deployment": "more replicas, num_cpus or batching there",
    "host CPU": "more cores, nothing else on the host, or the client elsewhere",
    "GPU": "num_gpus for each replica and more GPUs, or larger batches",
    "connections": HINT,
    "offered load": "more clients or a higher rate; the server can do more",
    "unclear": "measure longer, with --serve-metrics, fewer and more clients",
}
