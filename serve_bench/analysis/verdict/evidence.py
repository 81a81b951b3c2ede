"""The evidence of a trial about its limits: processes, client, load, batches, Serve's own metrics.

Rule: figures only, no judgement; a figure that is not in the records is None and named in `unseen`.
CPU shares are of one core (1.0), times in ms, rates in requests/s. Serve's own metrics are used if
they were scraped and fresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from serve_bench.analysis.checks import added_of
from serve_bench.analysis.connections import ConnectionWait, connection_wait
from serve_bench.analysis.statistics import latency_figures, merged, read_rate
from serve_bench.analysis.verdict.limits import RESTING, WHOLE
from serve_bench.analysis.verdict.usage import (
    SERVER,
    HostUse,
    ProcessUse,
    Waits,
    is_named,
    read_usage,
    short_name,
    waits_of,
)
from serve_bench.core.facts import Group, WaitsFacts
from serve_bench.core.failed_requests import rejections
from serve_bench.core.figures import counted
from serve_bench.core.load_result import ClientVerdict
from serve_bench.core.result import Trial
from serve_bench.core.usage import BATCH_SIZE, mean_forward_ns

NS_PER_MS: Final = 1e6


@dataclass(frozen=True)
class ClientUse:
    """The client's own verdict and figures (shares of 1)."""

    bound: bool
    reasons: tuple[str, ...]
    busy: float | None  # ran or waited for a CPU; None of a spinning client, which always runs
    starved: float | None


@dataclass(frozen=True)
class Offered:
    """The load and its answers."""

    loop: str
    connections: int
    rate: float
    in_flight: float | None
    p50_ms: float | None
    mean_ms: float | None
    late: float  # the share of due requests that piled up over the windows (open loop)
    failed: float
    wait: ConnectionWait | None


@dataclass(frozen=True)
class Batches:
    """serve.batch as configured, and how full batches are."""

    most: int
    wait_ms: float
    fill: float | None  # the mean size over the largest
    waited_ms: float | None  # by Serve's own metrics


@dataclass(frozen=True)
class Evidence:
    """All evidence of a trial; deployments are "app:Name"."""

    uses: tuple[ProcessUse, ...]
    deployments: Mapping[str, Sequence[ProcessUse]]  # the replicas of each
    host: HostUse | None
    gpus: Mapping[int, float]
    client: ClientUse
    offered: Offered
    front: str | None  # the deployment that HTTP reaches
    measured: str | None  # the deployment that the cell is about
    slots: int | None
    slots_at: str | None  # the deployment that has them
    slots_words: str
    queue: int | None  # requests that may wait for a slot there; None: any number, or not known
    refused: float  # share of the requests that were rejected, where most failures were that
    refused_by: tuple[int, ...]  # with which statuses
    batches: Batches | None
    forward: float | None  # share of the time that a replica was in its batch function
    ongoing: float | None  # by Serve's own metrics, all replicas
    router_wait_ms: Mapping[str, float]  # wait for a slot, by deployment ("app:Name")
    processing_ms: Mapping[str, float]
    waits: Waits  # observations inside the replicas
    hops_ms: Mapping[str, float]  # mean times of traced requests, by hop; "latency": the whole
    partly: tuple[str, ...]  # processes that started or ended within the windows
    unseen: tuple[str, ...]  # what could not be observed

    def of_role(self, *roles: str) -> list[ProcessUse]:
        """List the processes of these roles."""
        return [use for use in self.uses if use.role in roles]


def looked_alike(trial: Trial) -> Trial:
    """Return the trial, without its look inside if other numbers of replicas ran by then."""
    looked = Counter(replica.deployment for replica in trial.waits.replicas)
    for name, limit in trial.limits.items():
        if (ran := limit.ran) and looked[name] not in (0, ran[-1]):
            why = f"{counted(looked[name], 'replica')} of {name} ran then, in the row {ran[-1]}"
            return replace(trial, waits=WaitsFacts(why_not=why))
    return trial


def evidence_of(trial: Trial, front: str | None = None) -> Evidence:
    """Gather the evidence of a trial. `front`: the deployment that HTTP reaches."""
    uses, host = read_usage(trial.usage)
    placed = dict.fromkeys(use.deployment for use in uses if use.deployment is not None)
    deployments = {name: [use for use in uses if use.deployment == name] for name in placed}
    first, measured = _places(trial, uses, front)
    slots, name, slots_words, queue = _slots(trial, uses, measured, first or front)
    named = (use.deployment for use in uses if name is not None and is_named(use.deployment, name))
    metrics = trial.serve_metrics
    offered, ongoing = _offered(trial), metrics.levels.get("ongoing")
    # The share of time in the batch function: batches per second times the mean time of one. Both
    # means include the warm-up.
    mean_ns = mean_forward_ns([trial.forward]) if trial.forward else None
    sizes = merged([trial], BATCH_SIZE)
    replicas = sum(use.deployment == measured for use in uses)
    batches_per_s = offered.rate / (sizes.mean or 1.0) / (replicas or 1)
    forward = None if mean_ns is None or not replicas else mean_ns / 1e9 * batches_per_s
    failed, ended = trial.counts.failed_total, trial.counts.completed + trial.counts.failed_total
    rejected = trial.counts.failed.get("rejected", 0)
    most = int(trial.cell.get("max_batch_size") or 1)
    wait_ms = 1e3 * float(trial.cell.get("batch_wait_timeout_s") or 0.0)
    fill = None if sizes.mean is None else sizes.mean / most
    waited_ms = _by_deployment(metrics.deployments, "batch_wait_ms").get(measured or "")
    fall = trial.waterfall
    times = {"latency": fall.total, **fall.hops} if fall.total.mean else {}
    seconds = read_rate(trial).seconds
    gpus = ((gpu.device, gpu.use_percent) for gpu in trial.usage.gpus)
    return Evidence(
        uses=uses,
        deployments=deployments,
        host=host,
        gpus={device: used / 100.0 for device, used in gpus if used is not None},
        client=_client(trial),
        offered=offered,
        front=first,
        measured=measured,
        slots=slots,
        slots_at=measured if name is None else next(named, None),
        slots_words=slots_words,
        queue=int(queue) if queue is not None and queue >= 0 else None,  # -1: any number
        refused=rejected / ended if ended and rejected >= WHOLE * failed else 0.0,
        refused_by=rejections(trial.counts.failed, trial.client.status_codes) if rejected else (),
        batches=Batches(most, wait_ms, fill, waited_ms) if most > 1 else None,
        forward=forward,
        ongoing=None if ongoing == "stale" else ongoing,
        router_wait_ms=_by_deployment(metrics.routers, "wait_ms"),
        processing_ms=_by_deployment(metrics.deployments, "processing_ms"),
        waits=waits_of(trial.waits),
        hops_ms={name: hop.mean / NS_PER_MS for name, hop in times.items()},
        partly=tuple(
            f"{process.role} {process.pid} was there for {process.seen_s:.1f} of {seconds:.1f} s"
            for process in trial.usage.processes
            if process.role in SERVER and process.role != "haproxy"  # each reload starts a new one
            if process.seen_s is not None and process.seen_s < WHOLE * seconds
        ),
        unseen=tuple(_list_unseen(trial, uses, first is None and len(deployments) > 1, slots)),
    )


def _places(
    trial: Trial, uses: tuple[ProcessUse, ...], front: str | None
) -> tuple[str | None, str | None]:
    """Return the deployment that HTTP reaches and the one that the cell is about, as far as known.

    An app of this tool counts requests in the deployment that the cell is about (`served`), and
    with two deployments that one stands behind the other."""
    names = sorted({use.deployment for use in uses if use.deployment is not None})
    if len(names) == 1:
        return names[0], names[0]
    first = next((name for name in names if is_named(name, front)), None)
    if trial.slots:  # of an own app a cell is about the whole
        return first, first
    counted = {f"replica {use.pid}": use.deployment for use in uses if use.role == "replica"}
    serving = {counted[name] for name in trial.served if name in counted}
    measured = serving.pop() if len(serving) == 1 else None
    if len(names) == 2 and measured is None and first is not None:
        measured = next(name for name in names if name != first)
    if len(names) == 2 and first is None and measured is not None:
        first = next(name for name in names if name != measured)
    return first, measured


def _slots(
    trial: Trial, uses: tuple[ProcessUse, ...], measured: str | None, front: str | None
) -> tuple[int | None, str | None, str, float | None]:
    """Return the slots of a deployment, its name, slots in words, and how many requests may queue.

    Slots are requests that all replicas take at once. The name has the app if `front` has, and is
    None for the measured deployment. Of an app of the user it is the deployment that HTTP reaches;
    without observations inside, the one with the fewest slots, since all requests may go there."""
    if trial.slots:
        least = min(trial.slots, key=lambda name: trial.slots[name])
        looked = [replica.name for replica in trial.waits.replicas]
        at = short_name(front) if looked and short_name(front) in trial.slots else least
        # Another application of the same config file may have a deployment of that name.
        app, colon, _ = (front or "").rpartition(":")
        name = f"{app}{colon}{at}"
        limits = trial.limits.get(at)
        queue = None if limits is None else limits.queued
        if limits is not None and limits.ran and limits.most:
            scaled = limits.each * limits.ran[-1]
            words = f"{counted(limits.ran[-1], 'replica')}, which Serve scales up to {limits.most}"
            return scaled, name, f"{counted(scaled, 'slot')} ({words})", queue
        return trial.slots[at], name, counted(trial.slots[at], "slot"), queue
    queue = trial.cell.get("max_queued_requests")
    slots_each = trial.cell.get("max_ongoing_requests")
    replicas = trial.cell.get("num_replicas")
    if replicas is None and measured is not None:
        replicas = sum(use.deployment == measured for use in uses)
    if not slots_each or not replicas:
        return None, None, "", queue
    slots = int(slots_each) * int(replicas)
    return slots, None, counted(slots, "slot"), queue


def _client(trial: Trial) -> ClientUse:
    verdict = trial.client.verdict or ClientVerdict(False, ())
    spins = any(worker.timer == "spin" for worker in trial.client.workers)
    busy, wait = verdict.non_idle, verdict.run_queue_wait
    # By its few answers a client can look slow that waited for the rest all the time.
    waited = trial.flags.cut and busy is not None and busy < RESTING
    return ClientUse(
        bound=verdict.client_bound and not waited,
        reasons=verdict.reasons,
        busy=None if spins else busy,
        starved=wait / busy if wait is not None and busy else None,
    )


def _offered(trial: Trial) -> Offered:
    """Return the load and its answers.

    Little's law gives the requests at the server: the time that all of them took, without what the
    client adds, over the time of the windows. An open loop counts from the sending, since unsent
    requests are not at the server."""
    counts, rate = trial.counts, read_rate(trial)
    latency = merged([trial], "latency")
    sent = merged([trial], "service_time")
    inside = sent if trial.row.loop == "open" and sent.count else latency
    lost = merged([trial], "failed_latency")
    spent_s = sum((part.mean or 0.0) * part.count for part in (inside, lost)) / 1e9
    # The accounting comes first: the latencies of a few windows miss long waits.
    in_flight = trial.client.mean_in_flight
    if in_flight is None and inside.count and rate.seconds > 0:
        in_flight = spent_s / rate.seconds
    elif in_flight is None and trial.row.loop == "closed":
        in_flight = float(trial.row.connections)
    if in_flight is not None and (trial.flags.cut or trial.row.loop == "closed"):
        # Requests without an end when the windows ended may have no latency, and waited too.
        in_flight = max(in_flight, float(counts.in_flight))
    if in_flight is not None and (added := added_of(trial)):
        in_flight *= max(0.0, 1.0 - added[0] / added[1])
    within = trial.client.in_windows or counts
    due = within.sent + within.unsent
    behind = within.in_flight + within.unsent - within.carried_in
    ended = counts.completed + counts.failed_total
    most = trial.client.asked.max_connections or 0
    (p50_ns,) = latency_figures([trial], (0.5,))
    return Offered(
        loop=trial.row.loop,
        connections=max(trial.row.connections, most),
        rate=rate.per_s,
        in_flight=in_flight,
        p50_ms=None if p50_ns is None else p50_ns / NS_PER_MS,
        mean_ms=None if latency.mean is None else latency.mean / NS_PER_MS,
        late=behind / due if due else 0.0,
        failed=counts.failed_total / ended if ended else 0.0,
        wait=connection_wait(trial) if trial.row.loop == "open" else None,
    )


def _list_unseen(
    trial: Trial, uses: tuple[ProcessUse, ...], no_front: bool, slots: int | None
) -> Iterator[str]:
    server = [use for use in uses if use.role in SERVER]
    if not server:
        yield "no process of the server was sampled"
    elif all(use.wait is None for use in server):
        yield "how long processes waited for a CPU is not known"
    if no_front:
        yield "which deployment HTTP meets is not known"
    if slots is None:
        yield "how many requests the replicas take at once is not known"
    if why := trial.waits.why_not:
        yield f"what requests wait in was not seen: {why}"
    if trial.serve_metrics.status != "fresh":
        yield "Serve's own queues were not read"


def _by_deployment(groups: Mapping[str, Group], name: str) -> dict[str, float]:
    """Return a figure by deployment, "app:Name" (recorded as "app#Name"), of fresh groups."""
    return {
        where.replace("#", ":"): value
        for where, fields in groups.items()
        if isinstance(fields, Mapping) and (value := fields.get(name)) is not None
    }
