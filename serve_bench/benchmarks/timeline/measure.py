"""What happens beside a load over time: faults on its clock, and the course that a record keeps.

Rule: only processes of the cluster that this run started are ended or stopped, and what is stopped
goes on before the load is over. A fault that cannot be done is recorded with the reason.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psutil

from serve_bench.analysis.capacity.launch import slices_of
from serve_bench.analysis.course import (
    NO_END,
    STEP_S,
    changes_of,
    processes_of,
    seconds_of_requests,
)
from serve_bench.core.app_spec import AppSpec
from serve_bench.core.plan import Cell
from serve_bench.core.result import Trial
from serve_bench.core.slo import Slo
from serve_bench.core.timeline import CONTROLLER, NODE, PROXY, REPLICA, PlannedFault
from serve_bench.core.usage import Track
from serve_bench.load.request_log import RequestLog
from serve_bench.serving.server import LaunchFailed, Process, Serving
from serve_bench.serving.strays import started

UPDATED: Final = "ray_actor_options.memory"
"""An option whose change makes Serve start new replicas; a few bytes are no limit to them."""

IN_PLACE: Final = "graceful_shutdown_wait_loop_s"
"""An option that replicas take over while they run."""


@dataclass
class FaultClock:
    """Carries out the faults of a load, each in a thread of its own. `records`: what was done, in
    the order of the plan."""

    faults: Sequence[PlannedFault]
    serving: Serving
    app: AppSpec
    cell: Cell
    records: list[dict[str, Any]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _child: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _deploys: int = 0

    def begin(self, zero_ns: int) -> None:
        """The first stage begins at this moment (perf_counter_ns)."""
        for fault in self.faults:
            record = {"fault": fault.source, "text": fault.text, "at_s": None}
            self.records.append(record)
            thread = threading.Thread(
                target=self._carry_out, args=(fault, record, zero_ns), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def end(self, patience_s: float) -> bool:
        """The load is over: what is stopped goes on, and deploys are awaited for so long. Whether
        all threads have ended."""
        self._over.set()
        deadline = time.monotonic() + patience_s
        for one in self._threads:
            one.join(max(0.0, deadline - time.monotonic()))
        return not any(one.is_alive() for one in self._threads)

    def _carry_out(self, fault: PlannedFault, record: dict[str, Any], zero_ns: int) -> None:
        due_ns = zero_ns + int(fault.at_s * 1e9)
        if self._over.wait(max(0.0, (due_ns - time.perf_counter_ns()) / 1e9)):
            record["why_not"] = "the load was over"
            return

        def now_s() -> float:
            return round((time.perf_counter_ns() - zero_ns) / 1e9, 3)

        try:
            if fault.action == "deploy":
                record["at_s"] = now_s()
                self._deploy(fault)
                record["done_s"] = now_s()
                return
            victim = self._victim(fault)
            if victim is None:
                record["why_not"] = f"there was no {fault.target}"
                return
            record["at_s"], record["pid"] = now_s(), victim.pid
            if fault.action == "kill":
                self._kill(victim)
            else:
                self._stop(victim.pid, fault.for_s or 0.0)
                record["done_s"] = now_s()
        except (LaunchFailed, ProcessLookupError, psutil.NoSuchProcess) as error:
            record["why_not"] = str(error) or "the process had ended"

    def _victim(self, fault: PlannedFault) -> Process | None:
        """The oldest process of the kind; of nodes the newest, since the first is the head."""
        every = self.serving.processes()
        roles = {REPLICA: ("replica",), CONTROLLER: ("controller",), NODE: ("raylet",)}
        if fault.target == PROXY:  # what serves the port: HAProxy where there is one
            haproxy = [one for one in every if one.role == "haproxy"]
            chosen = haproxy[-1:] or [one for one in every if one.role == "proxy"]
        else:
            chosen = [one for one in every if one.role in roles[fault.target]]
        if fault.deployment is not None:
            chosen = [one for one in chosen if one.title.endswith(f":{fault.deployment}")]
        aged = []
        for one in chosen:
            try:
                aged.append((started(one.pid), one.pid, one))
            except psutil.NoSuchProcess:
                continue
        aged.sort()
        if fault.target == NODE:
            return aged[-1][2] if len(aged) > 1 else None
        return aged[0][2] if aged else None

    def _kill(self, victim: Process) -> None:
        below = []
        if victim.role == "raylet":
            below = psutil.Process(victim.pid).children(recursive=True)
        for pid in (victim.pid, *(one.pid for one in below)):
            self.serving.forget(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                if pid == victim.pid:
                    raise

    def _stop(self, pid: int, for_s: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            self._over.wait(for_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _deploy(self, fault: PlannedFault) -> None:
        with self._child:
            self._deploys += 1
            assert self.app.own is not None, "timelines are of own apps"
            changed: dict[str, float] = {}
            for one in self.app.own.deployments:
                if fault.target:
                    changed[f"{one.name}.{IN_PLACE}"] = 2.0 + self._deploys / 10
                else:
                    memory = one.tables.get("ray_actor_options", {}).get("memory") or 0
                    changed[f"{one.name}.{UPDATED}"] = int(memory) + self._deploys
            self.serving.deploy(self.app, {**self.cell, **changed})


def with_course(
    trial: Trial,
    log: RequestLog,
    slo: Slo,
    zero_ns: int,
    seconds: int,
    *,
    tracks: Sequence[Track],
    readings: Mapping[str, Any],
    faults: Sequence[Mapping[str, Any]],
    after_s: float,
    interrupted: bool,
) -> Trial:
    """The trial with each of its `seconds`. `zero_ns`: when the first stage began; `readings`: what
    Serve said of its replicas. Of an interrupted load requests in flight are left out: nobody
    waited for their answers."""
    rows = list(log.rows())
    judged = [one for one in rows if not (interrupted and one.error in NO_END)]
    watched = seconds + int(after_s)
    course = {
        **seconds_of_requests(rows, seconds, broken_off=interrupted),
        **processes_of(tracks, zero_ns, watched),
        "changes": changes_of(readings.get("changes", ()), zero_ns),
        "faults": [dict(one) for one in faults],
        "after_s": after_s,
    }
    why = readings.get("failed") or ()
    if why:
        lost = readings.get("losses", len(why))
        course["why_not"] = f"{lost} readings of Serve's state failed: {why[0]}"
    slices = slices_of(judged, slo, float(seconds), STEP_S)
    return replace(trial, course=course, slices=slices)
