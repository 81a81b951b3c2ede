"""py-spy: the program, the rights, recordings of one process, of several, and during a load.

Rule: the program is that of this environment; its errors become one line that says what to do. A
recording moves to its place only if it has samples, so a failed one leaves no file; samples before
a failure are kept if possible. analysis/stacks.py interprets the samples.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import psutil

from serve_bench.analysis.stacks import by_thread_ran, parse_raw, shortened, to_raw
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.usage import Threads
from serve_bench.observing.host import threads_of
from serve_bench.observing.processes import TARGETS
from serve_bench.serving.server import Process
from serve_bench.serving.strays import DIRECTORY_MARK
from serve_bench.store.files import make_room, remove_empty, why, write_whole

# May this user look into a process, and is it Python? Errors say what to do. It only reads /proc.

_CAP_SYS_PTRACE: Final = 19


def check_process(pid: int) -> None:
    """Raise BadInput unless the process is a living Python; RunFailed without the right to look."""
    try:
        process = psutil.Process(pid)
        name, status = process.name(), process.status()
    except (psutil.NoSuchProcess, ValueError):  # the latter: a pid below 0
        raise BadInput(f"no process {pid}: it has ended, or never was") from None
    if status == psutil.STATUS_ZOMBIE:
        raise BadInput(f"process {pid} ({name}) has ended and waits for its parent to notice")
    reason = why_not_allowed(pid)
    if reason is not None:
        raise RunFailed(reason)
    if name == "haproxy":
        why = "is haproxy, which is C: py-spy cannot see it"
        raise BadInput(f"process {pid} {why}; profile --list shows its CPU")
    if is_python(pid) is False:
        raise BadInput(f"process {pid} ({name}) is not Python: py-spy cannot see into it")


def why_not_allowed(pid: int) -> str | None:
    """Say why this user may not look into the process, and what to do; None if it may."""
    again = f'sudo env "PATH=$PATH" serve-bench profile --pid {pid}'
    if _has_ptrace():
        return None
    try:
        owner = psutil.Process(pid).uids().real
    except psutil.NoSuchProcess:
        return None  # check_process reports that
    if os.geteuid() == 0:
        kubernetes = 'securityContext.capabilities.add: ["SYS_PTRACE"]'
        way = f"start the container with --cap-add SYS_PTRACE (Kubernetes: {kubernetes})"
        return f"root without CAP_SYS_PTRACE: {way}"
    if owner != os.geteuid():
        return f"process {pid} belongs to another user: {again}"
    scope = ptrace_scope()
    if scope >= 1:
        return f"ptrace_scope is {scope}, which keeps other processes closed: {again}"
    return None


def _has_ptrace() -> bool:
    status = Path("/proc/self/status").read_text()
    rights = re.search(r"^CapEff:\s*(\w+)", status, re.MULTILINE)
    return rights is not None and bool(int(rights[1], 16) >> _CAP_SYS_PTRACE & 1)


def ptrace_scope(file: Path = Path("/proc/sys/kernel/yama/ptrace_scope")) -> int:
    """Read the kernel's setting: 0 own processes, 1 own children, 2 administrators, 3 nobody."""
    try:
        return int(file.read_text())
    except OSError:
        return 0  # a kernel without Yama does not restrict


def is_python(pid: int) -> bool | None:
    """Return whether an interpreter is mapped into the process; None if that cannot be read."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return None
    files = {line.rsplit("/", 1)[-1] for line in text.splitlines() if "/" in line}
    return any(re.match(r"(lib)?python\d", name) for name in files) if files else None


@dataclass(frozen=True)
class SpyOptions:
    """How py-spy samples. `rate`: samples a second; the others are flags of py-spy."""

    rate: int = 100
    native: bool = False
    gil: bool = False
    idle: bool = False

    def words(self) -> list[str]:
        """Return the options as words of py-spy's command line."""
        flags = [f"--{name}" for name in ("native", "gil", "idle") if getattr(self, name)]
        return ["--rate", str(self.rate), *flags]


class ProfileFailed(RunFailed):
    """A recording without samples. One line that says what to do."""


def py_spy() -> str:
    """Return the py-spy of this environment, else that on PATH. Raises BadInput without either."""
    for place in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), None):
        path = shutil.which("py-spy", path=place)
        if path:
            return path
    raise BadInput("py-spy is not installed in this environment: pip install py-spy")


def explain(output: str, pid: int) -> str:
    """Explain an error of py-spy in one line."""
    if "Permission Denied" in output or "Operation not permitted" in output:
        return why_not_allowed(pid) or f"not allowed to look into process {pid} (a seccomp filter?)"
    if "Failed to get process executable name" in output or "No such process" in output:
        if os.path.exists(f"/proc/{pid}"):
            return f"process {pid} is not Python, or hides its program"
        return f"process {pid} ended before a sample was taken"
    if version := re.search(r"Unsupported version of (Python): (\S+)", output):
        known = " ".join(version.groups())
        return f"py-spy does not know {known} of process {pid} yet: pip install -U py-spy"
    if "Failed to find python version" in output or "Failed to find a python interpreter" in output:
        return f"process {pid} is not Python, or has only just started"
    first = next((line for line in output.splitlines() if line.strip()), "it said nothing")
    return f"py-spy on process {pid} failed: {first.removeprefix('Error: ')}"


def dump(pid: int, *, native: bool = False) -> str:
    """Return the stacks of all threads now, as py-spy prints them. Raises ProfileFailed."""
    words = [py_spy(), "dump", "--pid", str(pid), *(["--native"] if native else [])]
    try:
        ran = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=READY_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProfileFailed(f"py-spy on process {pid} gave no stacks in {READY_S:.0f} s") from None
    if ran.returncode != 0:
        raise ProfileFailed(explain(ran.stderr or ran.stdout, pid))
    return ran.stdout


def find_wait(pid: int) -> str:
    """Say `: it waits in select (selectors.py:468)` of the main thread; empty if not seen."""
    with contextlib.suppress(ProfileFailed):
        frame = re.search(rf"Thread {pid} .*\n\s+(\S.*)", dump(pid))
        return f": it waits in {frame[1]}" if frame else ""
    return ""


# Recordings.

READY_S: Final = 30.0
"""py-spy first reads the symbols of its process; with native extensions that takes seconds."""

STOP_S: Final = 20.0

STOP_COSTS_S: Final = 0.0001
"""A stop costs a process 18 to 28 us on an idle host, over 50 us on a slow one. A process that ran
for less than this at each stop was idle: its few samples are of the stopping."""

#: A recording without a `stop` ends by itself this long after its time.
_AFTER_S: Final = 60
_BEHIND: Final = re.compile(r"([\d.]+)s behind in sampling")

_SAMPLES: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")


@dataclass(frozen=True)
class Recorded:
    """A recording with samples. `errors`: stacks that py-spy could not read."""

    pid: int
    path: Path
    samples: int
    errors: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass
class Recording:
    """One py-spy on one process: `start`, `wait_ready` until it samples, then `stop`.

    py-spy has its own session: Ctrl-C at the terminal reaches the caller alone, who then calls
    `stop` and keeps the samples.
    """

    pid: int
    out: Path
    options: SpyOptions = field(default_factory=SpyOptions)
    longest_s: float = 3600.0
    mark: Mapping[str, str] = field(default_factory=dict)  # added to py-spy's environment
    _new_folders: tuple[Path, ...] = ()  # created for the file, the innermost first
    _process: subprocess.Popen[str] | None = None
    _output: list[str] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)
    _reader: threading.Thread | None = None
    _began: float = 0.0
    _threads: Threads | None = None  # when sampling began

    @property
    def _draft(self) -> Path:
        """The file that py-spy writes: in the run's temporary directory, if there is one."""
        folder = Path(self.mark.get(DIRECTORY_MARK, self.out.parent))
        return folder / f".{self.pid}.{self.out.name}.draft"

    def start(self) -> None:
        """Start py-spy. Raises BadInput without it, or if the file cannot be created."""
        self._new_folders = make_room(self.out)
        self._process = subprocess.Popen(
            self._build_command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | dict(self.mark),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _build_command(self) -> list[str]:
        by_thread = [] if self.options.idle else ["--threads"]
        return [
            *(py_spy(), "record", "--pid", str(self.pid), "--format", "raw"),
            *("--output", str(self._draft), *self.options.words(), *by_thread),
            *("--duration", str(math.ceil(self.longest_s) + _AFTER_S)),
        ]

    def wait_ready(self, seconds: float = READY_S) -> bool:
        """Wait until it samples. False if it ended first or took too long: `stop` says why."""
        self._ready.wait(seconds)
        return bool(self._began)

    @property
    def py_spy_pid(self) -> int:
        """The pid of py-spy itself."""
        assert self._process is not None, "start() first"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether py-spy runs; it ends with its process."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> Recorded:
        """End the recording and move the file to its place. Raises ProfileFailed."""
        assert self._process is not None and self._reader is not None, "start() first"
        seconds = time.monotonic() - self._began if self._began else 0.0
        try:
            return self._end(seconds)
        finally:
            self._tidy()

    def abandon(self) -> None:
        """Kill py-spy if it runs, and leave no partial file."""
        if self._process is not None and self.running:
            self._kill()
        self._tidy()

    def _kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it
            self._process.wait(STOP_S)

    def _tidy(self) -> None:
        if self._process is not None:
            self._draft.unlink(missing_ok=True)
        remove_empty(self._new_folders)

    def _end(self, seconds: float) -> Recorded:
        assert self._process is not None and self._reader is not None
        ran, spy = self._measure_ran(), f"py-spy on process {self.pid}"
        if self.running:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._kill()
            raise ProfileFailed(f"{spy} did not end in {STOP_S:.0f} s") from None
        self._reader.join(STOP_S)
        output = "\n".join(self._output)
        summary = _SAMPLES.search(output)
        if self._process.returncode < 0:
            raise ProfileFailed(f"{spy} was ended by signal {-self._process.returncode}")
        if self._process.returncode != 0 or summary is None:
            raise ProfileFailed(explain(output, self.pid), tuple(self._output[:3]))
        samples, errors = int(summary[1]), int(summary[2])
        behind_s = max(map(float, _BEHIND.findall(output)), default=0.0)
        missing = f"{100 * behind_s / max(seconds, behind_s, 0.1):.0f} % of the samples"
        behind = f"{spy} fell behind: {missing} are missing; use a lower --rate"
        asleep = bool(ran) and sum(ran.values()) < STOP_COSTS_S * self.options.rate
        if samples == 0 or (asleep and not self.options.idle):
            idle = f"process {self.pid} was idle: no samples on a CPU{find_wait(self.pid)}"
            why_idle = f"{idle}; put load on it first, or use --idle"
            raise ProfileFailed(behind if behind_s else why_idle)
        notes = [behind] if behind_s else []
        text = self._draft.read_text(encoding="utf-8", errors="replace")
        self._keep(text, ran, seconds * self.options.rate)
        if "because process exited" in output:
            notes.append(f"process {self.pid} ended after {seconds:.1f} s; kept what was sampled")
        if errors > samples:
            notes.append(f"{errors} stacks of process {self.pid} could not be read")
        return Recorded(self.pid, self.out, samples, errors, seconds, tuple(notes))

    def _keep(self, text: str, ran: Mapping[int, float], ticks: float) -> None:
        """Write the stacks: file names from the package on, waits marked. Raises ProfileFailed."""
        stacks = by_thread_ran(shortened(parse_raw(text, str(self.out))), ran, ticks)
        try:
            # A recording that made the folder and kept nothing has removed it by now.
            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.out, to_raw(stacks))
        except OSError as error:
            raise ProfileFailed(f"{self.out}: cannot be written: {why(error)}") from None

    def _measure_ran(self) -> dict[int, float]:
        """Return the share of time on a CPU since sampling began, by thread."""
        now = threads_of(self.pid)
        if self._threads is None or now is None:
            return {}
        span_ns = max(now.at_ns - self._threads.at_ns, 1)
        before = self._threads.run_ns
        return {tid: (run - before.get(tid, 0)) / span_ns for tid, run in now.run_ns.items()}

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line.rstrip())
            if "Sampling process" in line:
                self._threads = threads_of(self.pid)
                self._began = time.monotonic()
                self._ready.set()
        self._ready.set()


R = TypeVar("R")


@dataclass(frozen=True)
class Recordings(Generic[R]):
    """The recordings of several processes."""

    done: tuple[R, ...]
    failed: tuple[RunFailed, ...]
    interrupted: bool = False  # by Ctrl-C; what was sampled until then is kept


def record(
    recordings: Sequence[Recording],
    duration_s: float,
    on_progress: Callable[[float], None] = lambda seconds: None,
) -> Recordings[Recorded]:
    """Record several processes at once. A failure of one does not end the others.

    `on_progress` gets the seconds since all of them sample. Raises BadInput without py-spy, or if a
    file cannot be created.
    """
    interrupted, begun = False, list[Recording]()
    with contextlib.ExitStack() as stack:
        try:
            for recording in recordings:
                stack.callback(recording.abandon)
                recording.start()
                begun.append(recording)
            for recording in recordings:
                recording.wait_ready()
            began = time.monotonic()
            while (passed := time.monotonic() - began) < duration_s:
                if not any(recording.running for recording in recordings):
                    break
                on_progress(passed)
                time.sleep(min(0.1, duration_s - passed))
        except KeyboardInterrupt:
            interrupted = True
        done, failed = [], []
        for recording in begun:
            try:
                done.append(recording.stop())
            except ProfileFailed as error:
                failed.append(error)
    return Recordings(tuple(done), tuple(failed), interrupted)


# py-spy during one load: started before it, ended after it, its stacks kept in the run's folder.
#
# Rule: a load with py-spy is a repetition with the flag `profiled`, never a measured one.
# A failed recording is noted in the record, and does not fail the load.

FOLDER: Final = "profiles"

MOST_OF_A_ROLE: Final = 4
"""Most processes of a role that are profiled at once: each py-spy needs a share of a core."""

PROFILE_TARGETS: Final = ("proxy", "replica", "controller")

BESIDE_A_LOAD: Final = SpyOptions(rate=25)
"""How processes are sampled during a load: 100 Hz cost 20 % of the requests/s of a no-op app, 25 Hz
nothing that shows (docs/profiling.md). Its samples are as true, and fewer."""


def parse_targets(text: str, flag: str) -> tuple[str, ...]:
    """Parse a text such as `proxy,replica`. BadInput names the flag and the choices."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in PROFILE_TARGETS:
            takes = f"it takes {', '.join(PROFILE_TARGETS)}, one or more, with commas"
            raise BadInput(f"{flag}: {name!r} is not allowed; {takes}")
    return names


_P = TypeVar("_P", bound=Process)


def to_profile(processes: Sequence[_P], targets: Sequence[str]) -> list[_P]:
    """Select the processes of targets, at most MOST_OF_A_ROLE of each role, lowest pid first."""
    chosen: list[_P] = []
    for role in dict.fromkeys(role for target in targets for role in TARGETS[target]):
        of_role = [found for found in processes if found.role == role]
        chosen += sorted(of_role, key=lambda found: found.pid)[:MOST_OF_A_ROLE]
    return chosen


@dataclass
class Profiling:
    """The recordings during one load. `outcomes`: after `stop`, one object for each process."""

    run_folder: Path
    key: str  # of the trial; the stacks lie in profiles/<key>
    mark: Mapping[str, str] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    _recordings: list[tuple[Process, Recording]] = field(default_factory=list)

    @contextmanager
    def around(self, processes: Sequence[Process]) -> Iterator[None]:
        """Sample from before the block until its end; a failing block leaves no stacks."""
        try:
            self.start(processes)
            yield
            self.stop()
        finally:
            for _, recording in self._recordings:
                recording.abandon()

    def start(self, processes: Sequence[Process]) -> None:
        """Start a py-spy on each process, and wait until all of them sample."""
        place = self.run_folder / FOLDER / self.key
        if not place.resolve().is_relative_to(self.run_folder.resolve() / FOLDER):
            raise RunFailed(f"{self.key}: leads out of the folder of the run")
        for process in processes:
            out = place / f"{process.role}-{process.pid}.raw.txt"
            recording = Recording(process.pid, out, BESIDE_A_LOAD, mark=self.mark)
            self._recordings.append((process, recording))
            recording.start()
        for _, recording in self._recordings:
            recording.wait_ready()

    @property
    def py_spies(self) -> list[int]:
        """The pids of the py-spys that run."""
        return [recording.py_spy_pid for _, recording in self._recordings if recording.running]

    def stop(self) -> None:
        """End the recordings, and add their outcomes."""
        for process, recording in self._recordings:
            about = {"pid": process.pid, "role": process.role, "title": process.title}
            try:
                recorded = recording.stop()
            except ProfileFailed as error:
                self.outcomes.append({**about, "failed": str(error)})
                continue
            self.outcomes.append(
                about
                | {
                    "path": str(recorded.path.relative_to(self.run_folder)),
                    "samples": recorded.samples,
                    "errors": recorded.errors,
                    "seconds": round(recorded.seconds, 2),
                    "rate": BESIDE_A_LOAD.rate,
                    "notes": list(recorded.notes),
                }
            )
