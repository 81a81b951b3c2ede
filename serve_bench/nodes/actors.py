"""What runs on a node: the load actor drives its share of a load from there, the watching actor
looks at its Serve processes.

Plain classes, made actors by the program (__main__.py); their methods are called in several
threads, `drive` and `record` in one of them for as long as they last. Rule: no clock of another
node is looked at; `begin` says when to begin. Load workers end with their actor (stdin), and
py-spy does (load/tied.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

import serve_bench
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.load_result import LoadResult, Progress
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.proof import role_of
from serve_bench.core.schema import built, plain
from serve_bench.load import LoadError, LoadInterrupted, drive_load
from serve_bench.observing.processes import ServeProcess, in_use, serve_processes
from serve_bench.observing.profiler import (
    READY_S,
    STOP_S,
    Recording,
    SpyOptions,
    check_process,
    dump,
)
from serve_bench.observing.sampler import sampler_of


class Task:
    """What an actor is at. `number` tells it from a former one; `off` is set to end it early: what
    was measured until then is kept."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.off = threading.Event()

    def state(self) -> dict[str, Any]:
        """How it stands, for the program: plain content."""
        raise NotImplementedError


class NodeActor:
    """An actor of a node, with one task at a time."""

    def __init__(self) -> None:
        self._task: Task | None = None

    def hello(self) -> dict[str, Any]:
        """That it is up, and from where it has this package."""
        return {"pid": os.getpid(), "package": serve_bench.__file__}

    def _current(self, number: int) -> Task | None:
        task = self._task
        return task if task is not None and task.number == number else None

    def progress(self, number: int) -> dict[str, Any] | None:
        """How this task stands; None before it has begun."""
        task = self._current(number)
        return None if task is None else task.state()

    def call_off(self, number: int) -> None:
        """End this task early."""
        if (task := self._current(number)) is not None:
            task.off.set()


# --------------------------------------------------------------------------------------------------
# The watching actor: what lists, dumps and records the Serve processes of a node, on that node.
#
# Rule: nothing of ours is left on a node, whatever ends the actor: py-spy writes into memory, not
# into a file.

SPARE_S: Final = 30.0
"""How much longer than planned a recording may go on when nobody ends it."""

END_S: Final = STOP_S + 10.0
"""How long a node may take from the order to end until it answers with what it has."""

TICK_S: Final = 0.1


@dataclass
class Tied(Recording):
    """A recording whose py-spy ends with this process, and whose content stays in memory."""

    content: bytes = b""
    _memory: int = -1
    _place: Path = Path()

    @property
    def _draft(self) -> Path:
        return self._place

    def _make_room(self) -> None:
        if sys.platform == "linux":
            self._memory = os.memfd_create("py-spy")
            self._place = Path(f"/proc/{os.getpid()}/fd/{self._memory}")  # as py-spy reaches it
        else:
            self._memory, name = tempfile.mkstemp(prefix="py-spy-")
            self._place = Path(name)

    def _command(self) -> list[str]:
        tied = [sys.executable, *own_module("load.tied"), str(os.getpid())]
        return [*tied, *super()._command()]

    def _environment(self) -> dict[str, str]:
        return finding_ours(super()._environment())

    def _keep(self, content: bytes) -> None:
        self.content = content

    def _tidy(self) -> None:
        memory, self._memory = self._memory, -1
        if memory >= 0:
            os.close(memory)
            if sys.platform != "linux":
                self._place.unlink()


class RecordTask(Task):
    """One recording of this node, as it stands."""

    sampling = False

    def state(self) -> dict[str, Any]:
        return {"sampling": self.sampling}

    def wait_ready(self, recordings: Sequence[Recording]) -> None:
        """Until all sample, have ended, or took too long."""
        deadline = time.monotonic() + READY_S
        while not all(one.settled for one in recordings):
            if time.monotonic() > deadline or self.off.wait(TICK_S / 2):
                break
        self.sampling = True

    def wait_end(self, recordings: Sequence[Recording], longest_s: float) -> None:
        """Until it is called off, or nothing is left to be recorded."""
        deadline = time.monotonic() + longest_s
        while any(one.running for one in recordings) and time.monotonic() < deadline:
            if self.off.wait(TICK_S):
                return


class WatchActor(NodeActor):
    """Looks at processes of its node. Answers are plain content; nothing is raised."""

    def processes(self, seconds: float) -> list[dict[str, Any]]:
        """The Serve processes of this node, and what each uses."""
        return [asdict(one) for one in in_use(processes_here(), seconds)]

    def dump(self, pids: Sequence[int], native: bool) -> list[dict[str, Any]]:
        """The stacks of each process now: `text`, or the `problem`."""
        answers: list[dict[str, Any]] = []
        for pid in pids:
            try:
                check_process(pid)
                answers.append({"pid": pid, "text": dump(pid, native=native)})
            except (BadInput, RunFailed) as error:
                answers.append({"pid": pid, "problem": str(error)})
        return answers

    def record(
        self,
        number: int,
        pids: Sequence[int],
        options: Mapping[str, Any],
        format: str,
        duration_s: float,
        mark: Mapping[str, str],
    ) -> dict[str, Any]:
        """Records these processes at once, until called off."""
        session = self._task = RecordTask(number)
        longest_s = duration_s + READY_S + SPARE_S
        recordings, outcomes = [], []
        with contextlib.ExitStack() as stack:
            for pid in pids:
                recording = Tied(
                    pid, Path(str(pid)), SpyOptions(**options), format, longest_s, mark
                )
                stack.callback(recording.abandon)
                try:
                    check_process(pid)
                    recording.start()
                    recordings.append(recording)
                except (BadInput, RunFailed) as error:
                    outcomes.append({"pid": pid, "problem": str(error)})
            session.wait_ready(recordings)
            session.wait_end(recordings, longest_s)
            outcomes += [_stopped(recording) for recording in recordings]
        return {"kind": "recorded", "processes": outcomes}


def _stopped(recording: Tied) -> dict[str, Any]:
    try:
        done = recording.stop()
    except RunFailed as error:
        return {"pid": recording.pid, "problem": str(error)}
    return {
        "pid": recording.pid,
        "content": recording.content,
        "samples": done.samples,
        "notes": list(done.notes),
    }


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


# --------------------------------------------------------------------------------------------------
# The load actor.


class LoadTask(Task):
    """One load on this node, as it stands. `begin_ns`: when its gate was opened; 0 before."""

    progress: Progress | None = None
    opened_after_s: float | None = None
    begin_ns = 0
    _at_gate = False

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


class LoadActor(NodeActor):
    """Drives one load after the other on its node."""

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
        sampler = sampler_of(processes_here()) if sample else None
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
        usage = None if sampler is None else sampler.summary(began_ns, seconds)
        gate = {"opened_after_s": drive.opened_after_s, "began_at_ns": began_ns}
        return {**outcome, "usage": usage, **gate}

    def begin(self, number: int) -> None:
        """Open the gate of this drive."""
        drive = self._current(number)
        if isinstance(drive, LoadTask):
            drive.begin_ns = time.perf_counter_ns()


def _carry_out(
    drive: LoadTask, load: Load, timing: Timing, mark: Mapping[str, str]
) -> tuple[dict[str, Any], int, float]:
    """What came of the load, when its measured part began (time.time_ns) and its seconds."""
    interrupted = False
    try:
        result: LoadResult = drive_load(
            load, timing, on_progress=drive.look, mark=mark, may_measure=drive.may_measure
        )
    except LoadInterrupted as early:
        result, interrupted = early.result, True
    out = {"kind": "load", "result": plain(result), "interrupted": interrupted}
    return out, result.started_at_ns, result.duration_s
