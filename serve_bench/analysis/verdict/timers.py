"""Timers in the way of requests: flags of Serve, and latencies that a time makes, not load.

Pure. By Little's law the tasks of the router, N = X W, give X = N / W requests/s once each of them
waits for W before it gives one to a replica: less than the replicas can, however many are idle.

Rule: a setting is named only where its value fits and something else shows a wait for it: batches
that are not full, slots that are idle, requests in no replica."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from serve_bench.analysis.statistics import merged
from serve_bench.analysis.verdict import limits, waits
from serve_bench.analysis.verdict.case import Case
from serve_bench.core.figures import figure
from serve_bench.core.proof import HA_PROXY_FLAG
from serve_bench.core.result import Launch

ROUTER_TASKS: Final = 2
ROUTER_MOST: Final = 50
"""Tasks of Serve's router for each replica, and at most: they give requests to replicas, in the
proxy. Ray 2.60, serve/_private/request_router/request_router.py, `max_num_routing_tasks`."""

ROUTER_WAIT: Final = "RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S"
"""The longest wait of such a task between two tries. In a queue each waits so long for each request
once its own is behind others: `_fulfill_pending_requests` there goes on to count tries while it
gives requests of others to replicas."""

ROUTER_NEAR: Final = 0.2
"""How far from it a rate may be that is called the router's."""

MODEL_WAIT: Final = "RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S"
"""For so long, or up to twice as long by chance, the router seeks a replica that has the model of a
request (`_multiplexed_matching_timeout` there)."""

HARD_STOP: Final = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
"""So long after a reload the HAProxy of before may go on with the requests that it has."""

USUAL_S: Final = {ROUTER_WAIT: 0.5, MODEL_WAIT: 1.0, HARD_STOP: 120.0}


def read_flag_s(launches: Iterable[Launch], variant: str, flag: str) -> float | None:
    """Return the time (s) that a flag of Serve has in launches of a variant.

    None where there was none, or it is of the router, past which HAProxy leads requests."""
    env = next((launch.variant.env for launch in launches if launch.variant.name == variant), None)
    if env is None or (flag == ROUTER_WAIT and env.get(HA_PROXY_FLAG, "0") not in ("", "0")):
        return None
    try:
        seconds = float(env.get(flag, USUAL_S[flag]))
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None


def router_words(rate: float, replicas: int, wait_s: float | None) -> str | None:
    """Describe a rate (requests/s) that a router gives while all its tasks wait, else None."""
    if not wait_s or replicas < 1:
        return None
    law = min(ROUTER_MOST, ROUTER_TASKS * replicas) / wait_s
    if abs(rate - law) > ROUTER_NEAR * law:
        return None
    return (
        f"{rate:.3g}/s fits what Serve's router gives once requests queue: {ROUTER_TASKS} tasks "
        f"a replica, one request each in {wait_s:g} s ({ROUTER_WAIT})"
    )


def timer_words(
    case: Case, cause: str, deployment: str | None, launches: Sequence[Launch]
) -> str | None:
    """Describe the timer that makes the latency of a trial.

    None where none is seen, or load or CPU may make it. `cause`, `deployment`: of its verdict;
    `launches`: of its run, for their flags."""
    seen, variant = case.seen, case.trial.variant
    if cause == "router back-off":
        most_s, use = read_flag_s(launches, variant, ROUTER_WAIT), seen.waits.slot_use(deployment)
        if use is None or most_s is None or use.gap_s > most_s:
            return None
        if not case.outlasts_cpu(100 * (1 - use.share)):
            return None
        idle = f"a slot is idle for {figure(1e3 * use.gap_s)} ms between two requests"
        tries = f"Serve's router sleeps up to {figure(1e3 * most_s)} ms between its tries"
        return f"a timer, not load: {idle}, and {tries} ({ROUTER_WAIT})"
    if cause not in ("offered load", "batch wait", "app wait") or not case.way:
        return None
    latency, looks = merged([case.trial], "latency"), seen.waits.replicas
    percent = [(value or 0) / 1e6 for value in latency.percentiles([n / 100 for n in range(101)])]
    queues = [queue for look in looks for queue in look.batches.values()]
    waits_ms = [1e3 * queue.wait_s for queue in queues if waits.measure_filling([queue])]
    if seen.batches is not None and case.batch is not None and case.batch.cause == "batch wait":
        waits_ms.append(seen.batches.wait_ms)
    if waits_ms:
        wait_ms, most_ms = max(waits_ms), limits.ALIKE * max(waits_ms)
        share = sum(wait_ms <= ms <= most_ms for ms in percent[1:])
        words = f"{share} % of the latencies are {figure(wait_ms)} to {figure(most_ms)} ms"
        timer = f"a timer, not load: {words}, and batch_wait_timeout_s is {wait_ms / 1e3:g} s"
        return timer if share >= 100 * limits.WAIT_SHARE else None
    # Requests that come while a batch runs wait evenly for its end.
    if seen.batches or queues or latency.count < limits.SHAPED or seen.offered.loop != "closed":
        return None
    return _describe_shape(case, percent, launches)


def _describe_shape(case: Case, percent: Sequence[float], launches: Sequence[Launch]) -> str | None:
    """Describe a time that is drawn evenly, where requests wait for neither others nor a CPU.

    `percent`: percentiles 0 to 100 of the latency, ms."""
    offered, look, low, high = case.seen.offered, case.seen.waits, percent[5], percent[95]
    alone = offered.connections == 1 or case.growth.follows
    alone = alone or (look.longer or math.inf) <= limits.ALIKE
    cpu_ms = 1e3 * math.fsum(use.cpu for use in case.way) / (offered.rate or math.inf)
    waits_alone = alone and low >= limits.SLOW_MS and cpu_ms <= (1 - limits.WAIT_MOST) * low
    rise, step = high - low, (high - low) / 90
    off = max(abs(ms - low - n * step) for n, ms in enumerate(percent[5:96]))
    is_even = off <= limits.EVEN * rise and percent[75] - percent[25] >= rise / 2
    if not waits_alone or high <= limits.ALIKE * low or not is_even:
        return None
    digits = 1 - round(math.log10(rise / 1e3))  # as exact as a few hundred latencies make it
    least, most = (round(ms / 1e3, digits) for ms in (low - 5 * step, high + 5 * step))
    words = f"a drawn time, not load: latencies lie evenly from {least:g} to {most:g} s"
    inside = math.fsum(replica.ongoing for replica in look.replicas)
    outside = look.replicas and inside < limits.WAIT_SHARE * offered.connections
    model_s = read_flag_s(launches, case.trial.variant, MODEL_WAIT) if outside else None
    if model_s is not None and (least, most) == (model_s, 2 * model_s):
        words += f", as the router seeks a replica with the model of a request ({MODEL_WAIT})"
    return words
