"""Replicas that Serve starts and stops by itself while a load runs: waited for, and recorded.

A warm-up goes on while Serve starts replicas, as long as some come. What ran within the windows is
in the record of the trial; analysis/verdict judges it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Self

from serve_bench.core.load_result import LoadResult
from serve_bench.core.result import Trial
from serve_bench.serving.server import LaunchFailed, Serving

READ_S: Final = 0.5
"""Seconds between two readings: with them the controller uses 2 to 3 % of a core."""

PATIENCE_S: Final = 15.0
"""A warm-up does not wait for replicas of which none came for so long: there may be no room."""

MOST_S: Final = 60.0
"""Nor for replicas that come and go for longer."""


@dataclass
class ReplicaWatch:
    """Watches the replicas of an app during one load, as a context manager. `changes`: what was
    seen, once it is over (serving/cluster/course.py)."""

    serving: Serving
    app: str
    clock: Callable[[], float] = time.monotonic
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    _running: list[int] = field(default_factory=list)
    _changed_s: float = 0.0
    _began_s: float = math.inf

    def __enter__(self) -> Self:
        self.serving.begin_course(READ_S)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.changes = self.serving.end_course()["changes"]
        except LaunchFailed:
            return  # the cluster is gone: the runner notices that itself

    def settled(self) -> bool:
        """Whether the measurement may begin: no replica is missing, or none comes."""
        now_s = self.clock()
        self._began_s = min(self._began_s, now_s)
        try:
            states = self.serving.replica_states().values()
        except LaunchFailed:
            return True
        running = [int(state["running"]) for state in states]
        if running != self._running:
            self._running, self._changed_s = running, now_s
        latest_s = min(self._changed_s + PATIENCE_S, self._began_s + MOST_S)
        return now_s > latest_s or all(state["running"] >= state["wanted"] for state in states)

    def add_to(self, trial: Trial, result: LoadResult) -> Trial:
        """The trial, whose limits (core/own_app.py) of what Serve scales have what ran within the
        windows: the numbers of replicas in turn, and how many Serve wanted in the end."""
        begin_ns = result.started_at_ns - time.time_ns() + time.perf_counter_ns()
        limits = dict(trial.limits)
        for name in [name for name, limit in limits.items() if "most" in limit]:
            of_it = [
                change for change in self.changes if change["deployment"] == f"{self.app}:{name}"
            ]
            seen = [
                change for change in of_it if change["at_ns"] <= begin_ns + result.duration_s * 1e9
            ]
            before = sum(change["at_ns"] <= begin_ns for change in seen)
            counts = [int(change["running"]) for change in seen[max(0, before - 1) :]]
            if counts:
                ran = [count for count, _ in groupby(counts)]
                limits[name] = {**limits[name], "ran": ran, "wanted": int(seen[-1]["wanted"])}
        return replace(trial, limits=limits)
