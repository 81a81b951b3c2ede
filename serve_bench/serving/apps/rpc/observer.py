"""What an observer does, whatever carries the call: ask for an action, step, ask again.

Rule: the latency of a call is taken around the call alone; the next state is made outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .agent import now_ns


def episode(select_action: Callable[[Any], int], state: Callable[[], Any], steps: int) -> Any:
    """So many calls in a row: when the first began and the last ended, and the latency of each."""
    latency_ns = []
    began_ns = now_ns()
    for _ in range(steps):
        now = state()
        sent_ns = now_ns()
        select_action(now)
        latency_ns.append(now_ns() - sent_ns)
    return {"began_ns": began_ns, "ended_ns": now_ns(), "latency_ns": latency_ns}
