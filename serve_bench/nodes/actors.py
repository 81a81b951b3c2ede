"""What runs on a node: the load actor drives its share of a load from there.

A plain class, made an actor by the program (__main__.py); its methods are called in several
threads, `drive` in one of them for as long as it lasts. Rule: no clock of another node is read;
`begin` says when to begin. Load workers end with their actor (stdin).
"""

from __future__ import annotations

import contextlib
import time
from contextlib import nullcontext
from typing import Any

import psutil

from serve_bench.core.load_result import Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.nodes import NodePart, NodeState
from serve_bench.core.proof import role_of
from serve_bench.core.schema import plain
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.observing.processes import ServeProcess, serve_processes
from serve_bench.observing.sampler import Sampler


def list_processes() -> list[ServeProcess]:
    """List the Serve processes of this node, which are those below the raylet of this actor."""
    raylets = [  # a machine may hold several nodes
        p.pid for p in psutil.Process().parents() if role_of(" ".join(p.cmdline())) == "raylet"
    ]
    processes = []
    for process in serve_processes() if raylets else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            if raylets[0] in {parent.pid for parent in psutil.Process(process.pid).parents()}:
                processes.append(process)
    return processes


class LoadActor:
    """Drives one load after the other on its node."""

    _state = NodeState()
    _called_off = False
    _begin_ns = 0
    _opened_after_s: float | None = None

    def state(self) -> NodeState:
        return self._state

    def begin(self) -> None:
        self._begin_ns = time.perf_counter_ns()

    def call_off(self) -> None:
        """End the load early: what was measured until then is kept."""
        self._called_off = True

    def drive(
        self, load: Load, timing: Timing, mark: dict[str, str], sample: bool
    ) -> dict[str, Any]:
        """Drive a load to its end, and return a NodePart as plain content, errors included."""
        # A message to the former load may have come when that had just ended.
        self._state, self._called_off = NodeState(), False
        self._begin_ns, self._opened_after_s = 0, None
        sampler = Sampler(list_processes(), apart=False) if sample else None
        options: Any = {"on_progress": self._note, "mark": mark, "may_measure": self._may_measure}
        try:
            with sampler or nullcontext():
                try:
                    result = drive_load(load, timing, **options)
                except LoadInterrupted as early:
                    result = early.result
        except KeyboardInterrupt:
            return plain(NodePart(reason="called off before it measured"))
        except LoadError as error:
            return plain(NodePart(reason=str(error), refused=True))
        finally:  # nobody shall see this load at the gate when the next is awaited there
            self._state = NodeState(self._state.progress)
        usage = None
        if sampler is not None:
            usage = sampler.summary(result.started_at_ns, result.duration_s)
        return plain(NodePart(result, usage=usage, opened_after_s=self._opened_after_s))

    def _note(self, progress: Progress) -> None:
        """Note how the load stands, and end it here, in its driver, if it is called off."""
        self._state = NodeState(progress, self._state.at_gate)
        if self._called_off:
            raise KeyboardInterrupt

    def _may_measure(self) -> bool:
        """Return whether the gate is open. It is asked again and again once all is ready."""
        self._state = NodeState(self._state.progress, at_gate=True)
        if self._called_off:
            raise KeyboardInterrupt
        if not self._begin_ns:
            return False
        if self._opened_after_s is None:
            self._opened_after_s = (time.perf_counter_ns() - self._begin_ns) / 1e9
        return True
