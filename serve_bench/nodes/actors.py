"""What runs on a node: the load actor drives its share of a load from there.

A plain class, made an actor by the program (__main__.py); its methods are called in several
threads, `drive` in one of them for as long as it lasts. Rule: no clock of another node is looked
at; `begin` says when to begin. Load workers end with their actor (stdin).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import psutil
from msgspec import to_builtins

import serve_bench
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.proof import role_of
from serve_bench.core.schema import built, plain
from serve_bench.load.driver import drive_load
from serve_bench.load.failures import LoadError, LoadInterrupted
from serve_bench.observing.processes import ServeProcess, serve_processes
from serve_bench.observing.sampler import Sampler


def processes_here() -> list[ServeProcess]:
    """The Serve processes of this node: below the raylet that started this actor, since a machine
    may hold several nodes."""
    above = [
        p.pid for p in psutil.Process().parents() if role_of(" ".join(p.cmdline())) == "raylet"
    ]
    mine = []
    for one in serve_processes() if above else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            if above[0] in {parent.pid for parent in psutil.Process(one.pid).parents()}:
                mine.append(one)
    return mine


class LoadTask:
    """One load on this node, as it stands. `number` tells it from a former one; `off` is set to end
    it early: what was measured until then is kept. `begin_ns`: when its gate was opened; 0 before.
    """

    progress: Progress | None = None
    opened_after_s: float | None = None
    begin_ns = 0
    _at_gate = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.off = threading.Event()

    def look(self, progress: Progress) -> None:
        """How the load stands; where it is called off, that reaches the driver from here."""
        self.progress = progress
        if self.off.is_set():
            raise KeyboardInterrupt

    def may_measure(self) -> bool:
        """Called when all is ready to be measured, until the gate is open."""
        self._at_gate = True
        if self.off.is_set():
            raise KeyboardInterrupt
        if not self.begin_ns:
            return False
        if self.opened_after_s is None:
            self.opened_after_s = (time.perf_counter_ns() - self.begin_ns) / 1e9
        return True

    def state(self) -> dict[str, Any]:
        return {
            "progress": None if self.progress is None else asdict(self.progress),
            "at_gate": self._at_gate,
            "opened_after_s": self.opened_after_s,
        }


class LoadActor:
    """Drives one load after the other on its node."""

    def __init__(self) -> None:
        self._task: LoadTask | None = None

    def hello(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "package": serve_bench.__file__}

    def _current(self, number: int) -> LoadTask | None:
        task = self._task
        return task if task is not None and task.number == number else None

    def progress(self, number: int) -> dict[str, Any] | None:
        task = self._current(number)
        return None if task is None else task.state()

    def call_off(self, number: int) -> None:
        if (task := self._current(number)) is not None:
            task.off.set()

    def drive(
        self,
        number: int,
        load: Mapping[str, Any],
        timing: Mapping[str, Any],
        mark: Mapping[str, str],
        sample: bool,
    ) -> dict[str, Any]:
        """Drive a load to its end. What came of it, as plain content; nothing is raised."""
        drive = self._task = LoadTask(number)
        spec, times = built(Load, load, "load"), Timing(**timing)
        sampler = Sampler(processes_here(), apart=False) if sample else None
        try:
            with sampler or nullcontext():
                outcome, began_ns, seconds = _carry_out(drive, spec, times, mark)
        except KeyboardInterrupt:
            return {"kind": "called_off"}
        except LoadError as error:
            where = {"host": error.host, "port": error.port, "reason": error.reason}
            return {"kind": "load_error", "error_class": error.error_class, **where}
        except Exception as error:  # noqa: BLE001 - whatever breaks here must reach the parent
            detail = traceback.format_exc().splitlines()[-12:]
            reason = f"{type(error).__name__}: {error}"
            return {"kind": "broken", "reason": reason, "detail": detail}
        usage = None if sampler is None else to_builtins(sampler.summary(began_ns, seconds))
        gate = {"opened_after_s": drive.opened_after_s, "began_at_ns": began_ns}
        return {**outcome, "usage": usage, **gate}

    def begin(self, number: int) -> None:
        if (drive := self._current(number)) is not None:
            drive.begin_ns = time.perf_counter_ns()


def _carry_out(
    drive: LoadTask, load: Load, timing: Timing, mark: Mapping[str, str]
) -> tuple[dict[str, Any], int, float]:
    """What came of the load, when its measured part began (time.time_ns) and its seconds."""
    try:
        result: LoadResult = drive_load(
            load, timing, on_progress=drive.look, mark=mark, may_measure=drive.may_measure
        )
    except LoadInterrupted as early:
        result = early.result
    return {"kind": "load", "result": plain(result)}, result.started_at_ns, result.duration_s
