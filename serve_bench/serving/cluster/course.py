"""Serve's report on its replicas during a load, read by a thread of the child.

`Course.begin` starts to read the state of all deployments, `Course.end` gives the readings: each
change once, with its moment on the monotonic clock, which all processes of a host share. Rule: it
asks the controller, which knows a state before any metric shows it, and changes nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from actors import ANSWER_TIMEOUT_S, name_state, serve_details

#: Seconds between two readings. With them, and all else that it does, the controller used 4 to 6 %
#: of a core (Ray 2.60, 3 or 4 replicas).
EVERY_S = 0.25

#: States of Serve's replicas, by what they are called here.
STATES = {
    "STARTING": "starting",
    "RUNNING": "running",
    "UPDATING": "running",  # takes over another config, and serves
    "RECOVERING": "running",  # a controller that has started anew asks for it
    "STOPPING": "draining",
    "PENDING_MIGRATION": "draining",
}


class Course:
    """The readings of one load at a time."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._changes: list[dict[str, Any]] = []
        self._failed: list[str] = []
        self._every_s = EVERY_S
        self.states: dict[str, Any] = {}  # as they were read last

    def begin(self, every_s: float = EVERY_S) -> None:
        """Start to read every `every_s` seconds, and drop earlier readings."""
        self.end()
        self._over, self._changes, self._failed = threading.Event(), [], []
        self._every_s, self.states = every_s, {}
        self._thread = threading.Thread(target=self._read, args=(self._over,), daemon=True)
        self._thread.start()

    def end(self) -> dict[str, Any]:
        """Stop reading; return the changes since `begin`, and why readings failed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * ANSWER_TIMEOUT_S)
            self._thread = None
        return {"changes": self._changes, "failed": self._failed[:3], "losses": len(self._failed)}

    def _read(self, over: threading.Event) -> None:
        while True:
            at_ns = time.perf_counter_ns()
            try:
                now = read_state()
            except Exception as error:  # noqa: BLE001 - whatever a killed controller makes Ray raise
                self._failed.append(f"{type(error).__name__}: {error}".splitlines()[0])
                now = self.states
            for name, seen in now.items():
                if seen != self.states.get(name):
                    self._changes.append({"at_ns": at_ns, "deployment": name, **seen})
            self.states = now
            took_s = (time.perf_counter_ns() - at_ns) / 1e9
            if over.wait(max(0.05, self._every_s - took_s)):
                return


def read_state() -> dict[str, dict[str, Any]]:
    """Return by deployment (`app:Name`) replicas wanted, by state, and pids of those that run."""
    states: dict[str, dict[str, Any]] = {}
    for app, about in serve_details()["applications"].items():
        for name, deployment in (about.get("deployments") or {}).items():
            counts = dict.fromkeys(("starting", "running", "draining"), 0)
            running = []
            for replica in deployment.get("replicas") or ():
                kind = STATES.get(name_state(replica.get("state")))
                if kind is None:  # STOPPED: it is gone
                    continue
                counts[kind] += 1
                if kind == "running" and replica.get("pid") is not None:
                    running.append(int(replica["pid"]))
            states[f"{app}:{name}"] = {
                "wanted": int(deployment.get("target_num_replicas") or 0),
                **counts,
                "pids": sorted(running),
            }
    return states
