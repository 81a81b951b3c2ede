"""The load actor: what runs on a node and drives its share of the load from there.

A plain class, made an actor by the program (conductor.py); its methods are called in several
threads, `drive` in one of them for as long as the load lasts. Rule: no clock of another node is
looked at; when to begin is told by `begin`. Its load workers end with it (stdin),
and wrk does (load/tied.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
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
from serve_bench.load import LoadError, LoadInterrupted, drive_load
from serve_bench.load.external import ExternalError, drive_external
from serve_bench.observing.processes import ServeProcess, in_use, serve_processes
from serve_bench.observing.profiler import READY_S, STOP_S, Options, Recording, check_process, dump
from serve_bench.observing.sampler import sampler_of
from serve_bench.serving.strays import DIRECTORY_MARK

# --------------------------------------------------------------------------------------------------
# The watching actor: what lists, dumps and records the Serve processes of a node, on that node.
#
# A plain class, made an actor by the program (conductor.py). Rule: nothing of ours is left on a
# node, whatever ends the actor: py-spy ends with it (load/tied.py), and writes into memory instead
# of a file.

SPARE_S: Final = 30.0
"""How much longer than planned a recording may go on when nobody ends it."""

END_S: Final = STOP_S + 10.0
"""How long a node may take, once it is told to end, to say what it has."""

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


class Session:
    """One recording of this node, as it stands. `number` tells it from a former one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = threading.Event()
        self.sampling = False

    def wait_ready(self, recordings: Sequence[Recording]) -> None:
        """Until all sample, have ended, or took too long."""
        deadline = time.monotonic() + READY_S
        while not all(one.settled for one in recordings):
            if time.monotonic() > deadline or self.end.wait(TICK_S / 2):
                break
        self.sampling = True

    def wait_end(self, recordings: Sequence[Recording], longest_s: float) -> None:
        """Until it is told to end, or nothing is left to be recorded."""
        deadline = time.monotonic() + longest_s
        while any(one.running for one in recordings) and time.monotonic() < deadline:
            if self.end.wait(TICK_S):
                return


class WatchActor:
    """Looks at processes of its node. Answers are plain content; nothing is raised."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def hello(self, program: str | None = None) -> dict[str, Any]:
        """That it is up."""
        return {"pid": os.getpid(), "package": serve_bench.__file__}

    def processes(self, seconds: float) -> list[dict[str, Any]]:
        """The Serve processes of this node, and what each uses."""
        return [asdict(one) for one in in_use(processes_here(), seconds)]

    def dump(self, pids: Sequence[int], native: bool) -> list[dict[str, Any]]:
        """The stacks of each process now: `text`, or the `problem`."""
        told: list[dict[str, Any]] = []
        for pid in pids:
            try:
                check_process(pid)
                told.append({"pid": pid, "text": dump(pid, native=native)})
            except (BadInput, RunFailed) as error:
                told.append({"pid": pid, "problem": str(error)})
        return told

    def record(
        self,
        number: int,
        pids: Sequence[int],
        options: Mapping[str, Any],
        format: str,
        duration_s: float,
        mark: Mapping[str, str],
    ) -> dict[str, Any]:
        """Records these processes at once, until it is told to end."""
        session = self._session = Session(number)
        longest_s = duration_s + READY_S + SPARE_S
        recordings, told = [], []
        with contextlib.ExitStack() as stack:
            for pid in pids:
                recording = Tied(pid, Path(str(pid)), Options(**options), format, longest_s, mark)
                stack.callback(recording.abandon)
                try:
                    check_process(pid)
                    recording.start()
                    recordings.append(recording)
                except (BadInput, RunFailed) as error:
                    told.append({"pid": pid, "problem": str(error)})
            session.wait_ready(recordings)
            session.wait_end(recordings, longest_s)
            told += [_stopped(recording) for recording in recordings]
        return {"kind": "recorded", "processes": told}

    def progress(self, number: int) -> dict[str, Any] | None:
        """How this recording stands; None before it has begun."""
        session = self._session
        if session is None or session.number != number:
            return None
        return {"sampling": session.sampling}

    def call_off(self, number: int) -> None:
        """End this recording: what was sampled is kept."""
        if self._session is not None and self._session.number == number:
            self._session.end.set()


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
    return [one for one in serve_processes() if above and above[0] in _parents(one.pid)]


def _parents(pid: int) -> set[int]:
    try:
        return {one.pid for one in psutil.Process(pid).parents()}
    except psutil.NoSuchProcess:
        return set()


# --------------------------------------------------------------------------------------------------


class Drive:
    """One load on this node, as it stands. `number` tells it from a former one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress: Progress | None = None
        self.opened_after_s: float | None = None
        self._at_gate = threading.Event()
        self._off = threading.Event()
        self._begin_ns = 0

    def begin(self) -> None:
        """Open the gate."""
        self._begin_ns = time.perf_counter_ns()

    def call_off(self) -> None:
        """End early: what was measured stands."""
        self._off.set()

    def called_off(self) -> bool:
        """Whether it was."""
        return self._off.is_set()

    def look(self, progress: Progress) -> None:
        """How the load stands; where it is called off, that reaches the driver from here."""
        self.progress = progress
        if self._off.is_set():
            raise KeyboardInterrupt

    def may_measure(self) -> bool:
        """Asked when all is ready to be measured, until the gate is open."""
        self._at_gate.set()
        if self._off.is_set():
            raise KeyboardInterrupt
        if not self._begin_ns:
            return False
        if self.opened_after_s is None:
            self.opened_after_s = (time.perf_counter_ns() - self._begin_ns) / 1e9
        return True

    def state(self) -> dict[str, Any]:
        """For the program: plain content."""
        return {
            "progress": None if self.progress is None else asdict(self.progress),
            "at_gate": self._at_gate.is_set(),
            "opened_after_s": self.opened_after_s,
        }


class LoadActor:
    """Drives one load after the other on its node."""

    def __init__(self) -> None:
        self._drive: Drive | None = None

    def hello(self, program: str | None = None) -> dict[str, Any]:
        """That it is up, from where it has this package, and whether it has the program."""
        has = program is None or shutil.which(program) is not None
        return {"pid": os.getpid(), "package": serve_bench.__file__, "has_program": has}

    def drive(
        self,
        number: int,
        load: Mapping[str, Any],
        timing: Mapping[str, Any],
        mark: Mapping[str, str],
        sample: bool,
    ) -> dict[str, Any]:
        """Drive a load to its end. What came of it, as plain content; nothing is raised."""
        drive = self._drive = Drive(number)
        spec, times = Load.from_json(load), Timing(**timing)
        sampler = sampler_of(processes_here()) if sample else None
        try:
            with sampler or nullcontext():
                told, began_ns, seconds = _carry_out(drive, spec, times, mark)
        except KeyboardInterrupt:
            return {"kind": "called_off"}
        except LoadError as error:
            where = {"host": error.host, "port": error.port, "reason": error.reason}
            return {"kind": "load_error", "error_class": error.error_class, **where}
        except ExternalError as error:
            return {"kind": "refused", "reason": str(error)}
        except Exception as error:  # noqa: BLE001 - a defect here must be told there, whatever it is
            detail = traceback.format_exc().splitlines()[-12:]
            return {
                "kind": "broken",
                "reason": f"{type(error).__name__}: {error}",
                "detail": detail,
            }
        usage = None if sampler is None else sampler.summary(began_ns, seconds)
        out = {**told, "usage": usage, "opened_after_s": drive.opened_after_s}
        return {**out, "began_at_ns": began_ns}

    def progress(self, number: int) -> dict[str, Any] | None:
        """How this drive stands; None before it has begun."""
        drive = self._drive
        return drive.state() if drive is not None and drive.number == number else None

    def begin(self, number: int) -> None:
        """Open the gate of this drive."""
        if self._drive is not None and self._drive.number == number:
            self._drive.begin()

    def call_off(self, number: int) -> None:
        """End this drive early."""
        if self._drive is not None and self._drive.number == number:
            self._drive.call_off()


def _carry_out(
    drive: Drive, load: Load, timing: Timing, mark: Mapping[str, str]
) -> tuple[dict[str, Any], int, float]:
    """What the load told, when its measured part began (time.time_ns) and the seconds of it."""
    if load.client in ("wrk", "ab"):
        while not drive.may_measure():  # these programs have no warm-up of ours
            time.sleep(0.005)
        began_ns = time.time_ns()
        place = Path(mark.get(DIRECTORY_MARK, ""))  # of the run, where this node is its host
        here = place if place.is_absolute() and place.is_dir() else None
        told = drive_external(load, timing, mark=mark, place=here, called_off=drive.called_off)
        out = {"kind": "external", "result": told.to_json(), "interrupted": drive.called_off()}
        return out, began_ns, told.seconds
    interrupted = False
    try:
        result: LoadResult = drive_load(
            load, timing, on_progress=drive.look, mark=mark, may_measure=drive.may_measure
        )
    except LoadInterrupted as early:
        result, interrupted = early.result, True
    out = {"kind": "load", "result": result.to_json(), "interrupted": interrupted}
    return out, result.started_at_ns, result.duration_s
