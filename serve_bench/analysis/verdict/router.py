"""Waits that Serve sets by flags, among them that of its router: the rate that its tasks give once
requests queue. Pure.

By Little's law the tasks of the router, N = X W, give X = N / W requests/s once each of them waits
for W before it gives one to a replica: less than the replicas can, however many are idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

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


HARD_STOP: Final = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
"""So long after a reload the HAProxy of before may go on with the requests that it has."""

USUAL_S: Final = {ROUTER_WAIT: 0.5, HARD_STOP: 120.0}


def read_flag_s(launches: Iterable[Launch], variant: str, flag: str) -> float | None:
    """The time (s) that a flag of Serve has in launches of a variant; None where there was none, or
    it is of the router, past which HAProxy leads requests."""
    env = next((launch.variant.env for launch in launches if launch.variant.name == variant), None)
    if env is None or (flag == ROUTER_WAIT and env.get(HA_PROXY_FLAG, "0") not in ("", "0")):
        return None
    try:
        seconds = float(env.get(flag, USUAL_S[flag]))
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None


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
