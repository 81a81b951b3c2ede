"""Recordings by py-spy: of one process, or of several at once.

Rule: what py-spy wrote is moved to its place only when it holds samples, so a failed recording
leaves no file; what was sampled is kept where it can be. The program itself is in pyspy.py, what
the samples mean in analysis/stacks.py.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from serve_bench.analysis.stacks import by_thread_ran, parse_raw, shortened, to_raw
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.usage import Threads
from serve_bench.observing.host import threads_of
from serve_bench.observing.processes import TARGETS
from serve_bench.observing.pyspy import Options, ProfileFailed, explain, py_spy
from serve_bench.serving.strays import DIRECTORY_MARK
from serve_bench.store.files import make_room, remove_empty, why, write_whole

READY_S: Final = 30.0
"""py-spy reads the symbols of what it attaches to; with native extensions that takes seconds."""

STOP_S: Final = 20.0

STOP_COSTS_S: Final = 0.0001
"""Being stopped once costs a process 18 to 28 us on an idle host, over 50 us on a slow one. What
ran for less than this at each stop was idle: the few samples of it are of the stopping."""

#: A recording that nobody stops ends by itself so long after its time.
_AFTER_S: Final = 60
_SAMPLES: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")


@dataclass(frozen=True)
class Recorded:
    """A recording that holds samples. `errors` counts stacks that py-spy could not read."""

    pid: int
    path: Path
    samples: int
    errors: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass
class Recording:
    """One py-spy on one process. `start`, then `stop`; `wait_ready` when samples must be running.

    py-spy is in a session of its own: Ctrl-C at the terminal is for the caller, who then stops it
    and keeps what was sampled.
    """

    pid: int
    out: Path
    options: Options = field(default_factory=Options)
    format: str = "raw"
    longest_s: float = 3600.0
    mark: Mapping[str, str] = field(default_factory=dict)  # added to py-spy's environment
    _new_folders: tuple[Path, ...] = ()  # that were made for the file, the innermost first
    _process: subprocess.Popen[str] | None = None
    _said: list[str] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)
    _reader: threading.Thread | None = None
    _began: float = 0.0
    _threads: Threads | None = None  # when sampling began

    @property
    def _draft(self) -> Path:
        """What py-spy writes: in the run's directory, which goes with the run, if there is one."""
        folder = Path(self.mark.get(DIRECTORY_MARK, self.out.parent))
        return folder / f".{self.pid}.{self.out.name}.draft"

    def start(self) -> None:
        """Starts py-spy. Raises BadInput without one, or when the file cannot be made."""
        self._make_room()
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environment(),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _make_room(self) -> None:
        """Sees that the file can be made. Raises BadInput."""
        self._new_folders = make_room(self.out)

    def _command(self) -> list[str]:
        return [
            *(py_spy(), "record", "--pid", str(self.pid), "--format", self.format),
            *("--output", str(self._draft), *self._words()),
            *("--duration", str(math.ceil(self.longest_s) + _AFTER_S)),
        ]

    def _environment(self) -> dict[str, str]:
        return os.environ | dict(self.mark)

    def wait_ready(self, seconds: float = READY_S) -> bool:
        """Waits until it samples. False when it ended first, or took too long: `stop` says why."""
        self._ready.wait(seconds)
        return bool(self._began)

    @property
    def settled(self) -> bool:
        """Whether it samples, or ended before it did."""
        return self._ready.is_set()

    @property
    def started(self) -> bool:
        """Whether `start` went well."""
        return self._process is not None

    @property
    def py_spy_pid(self) -> int:
        """The pid of py-spy itself."""
        assert self._process is not None, "start() first"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether py-spy still runs; it ends by itself when its process does."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> Recorded:
        """Ends the recording and moves the file to its place. Raises ProfileFailed."""
        assert self._process is not None and self._reader is not None, "start() first"
        seconds = time.monotonic() - self._began if self._began else 0.0
        try:
            return self._end(seconds)
        finally:
            self._tidy()

    def abandon(self) -> None:
        """Kills py-spy if it still runs, and leaves no file half written."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()
        self._tidy()

    def _tidy(self) -> None:
        """Leaves no draft, and no folder that was made for a file which did not come."""
        if self.started:
            self._draft.unlink(missing_ok=True)
        remove_empty(self._new_folders)

    def _end(self, seconds: float) -> Recorded:
        assert self._process is not None and self._reader is not None
        ran = self._ran()
        if self.running:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ProfileFailed(
                f"py-spy on process {self.pid} did not end in {STOP_S:.0f} s"
            ) from None
        self._reader.join()
        said = "\n".join(self._said)
        found = _SAMPLES.search(said)
        if self._process.returncode < 0:
            signal_ = -self._process.returncode
            raise ProfileFailed(f"py-spy on process {self.pid} was ended by signal {signal_}")
        if self._process.returncode != 0 or found is None:
            raise ProfileFailed(explain(said, self.pid), tuple(self._said[:3]))
        samples, errors = int(found[1]), int(found[2])
        asleep = sum(ran.values()) < STOP_COSTS_S * self.options.rate
        asleep = bool(ran) and asleep and not self.options.idle
        if samples == 0 or asleep:
            raise ProfileFailed(
                f"process {self.pid} was idle: no samples; put load on it first, or use --idle"
            )
        content = self._draft.read_bytes()
        if self.format == "raw":
            content = self._refined(content.decode(errors="replace"), ran).encode()
        self._keep(content)
        notes = []
        if "because process exited" in said:
            notes.append(f"process {self.pid} ended after {seconds:.1f} s; kept what was sampled")
        if "behind in sampling" in said:
            notes.append(f"py-spy fell behind on process {self.pid}: use a lower --rate")
        if errors > samples:
            notes.append(f"{errors} stacks of process {self.pid} could not be read")
        return Recorded(self.pid, self.out, samples, errors, seconds, tuple(notes))

    def _keep(self, content: bytes) -> None:
        """Puts what was recorded in its place. Raises ProfileFailed."""
        try:
            write_whole(self.out, content)
        except OSError as error:
            raise ProfileFailed(f"{self.out}: cannot be written: {why(error)}") from None

    def _refined(self, text: str, ran: Mapping[int, float]) -> str:
        """Raw stacks as they are kept: file names from the package on, waiting threads marked."""
        stacks = shortened(parse_raw(text, str(self.out)))
        if self._by_thread:
            stacks = by_thread_ran(stacks, ran, keep_threads=self.options.threads)
        return to_raw(stacks)

    @property
    def _by_thread(self) -> bool:
        """Whether samples are held against what the kernel says of each thread."""
        return self.format == "raw" and not self.options.idle

    def _words(self) -> list[str]:
        return (
            replace(self.options, threads=True).words()
            if self._by_thread
            else (self.options.words())
        )

    def _ran(self) -> dict[int, float]:
        """The share of the time since sampling began that each thread was on a CPU."""
        now = threads_of(self.pid)
        if self._threads is None or now is None:
            return {}
        span_ns = max(now.at_ns - self._threads.at_ns, 1)
        before = self._threads.run_ns
        return {tid: (run - before.get(tid, 0)) / span_ns for tid, run in now.run_ns.items()}

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.rstrip())
            if "Sampling process" in line:
                self._threads = threads_of(self.pid)
                self._began = time.monotonic()
                self._ready.set()
        self._ready.set()


@dataclass(frozen=True)
class Outcome:
    """What came of several recordings. `interrupted`: by Ctrl-C; what was sampled until then is
    kept."""

    done: tuple[Recorded, ...]
    failed: tuple[ProfileFailed, ...]
    interrupted: bool = False


def record(
    recordings: Sequence[Recording],
    duration_s: float,
    on_progress: Callable[[float], None] = lambda seconds: None,
) -> Outcome:
    """Records several processes at once. What went wrong with one does not end the others.

    `on_progress` takes the seconds since all of them sample. Raises BadInput when py-spy or a place
    for the file is missing.
    """
    interrupted = False
    with contextlib.ExitStack() as stack:
        try:
            for recording in recordings:
                stack.callback(recording.abandon)
                recording.start()
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
        done, failed = stop_all(recordings)
    return Outcome(done, failed, interrupted)


def stop_all(
    recordings: Sequence[Recording],
) -> tuple[tuple[Recorded, ...], tuple[ProfileFailed, ...]]:
    """Stops those that were started: what they gave, and what went wrong."""
    done, failed = [], []
    for recording in recordings:
        if recording.started:
            try:
                done.append(recording.stop())
            except ProfileFailed as error:
                failed.append(error)
    return tuple(done), tuple(failed)


# --------------------------------------------------------------------------------------------------
# py-spy beside one load: started before it, ended after it, its stacks kept in the run's folder.
#
# Rule: a load with py-spy beside it is a repetition that is marked `profiled`, never a measured
# one. What cannot be recorded is said in the record, and is no reason for the load to fail. One
# recording is made above, which processes there are to serving/server.py and processes.py.

FOLDER: Final = "profiles"

MOST_OF_A_ROLE: Final = 4
"""So many processes of a role are profiled at once: each py-spy needs a share of a core too."""

PROFILE_TARGETS: Final = ("proxy", "replica", "controller")


class Profilable(Protocol):
    """A process with its role, of our own launch or of another's."""

    @property
    def pid(self) -> int: ...

    @property
    def role(self) -> str: ...

    @property
    def title(self) -> str: ...


def parse_targets(text: str, flag: str) -> tuple[str, ...]:
    """`proxy,replica` as targets. BadInput names the flag and what is allowed."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in PROFILE_TARGETS:
            raise BadInput(
                f"{flag}: {name!r} is not allowed; it takes {', '.join(PROFILE_TARGETS)}, "
                "one or more, with commas"
            )
    return names


_P = TypeVar("_P", bound=Profilable)


def to_profile(processes: Sequence[_P], targets: Sequence[str]) -> list[_P]:
    """The processes of the targets, at most MOST_OF_A_ROLE of each role, lowest pid first."""
    chosen: list[_P] = []
    for role in dict.fromkeys(role for target in targets for role in TARGETS[target]):
        of_role = sorted((one for one in processes if one.role == role), key=lambda one: one.pid)
        chosen += of_role[:MOST_OF_A_ROLE]
    return chosen


@dataclass
class Profiling:
    """The recordings beside one load. `told`, after `stop`: one object for each process."""

    run_folder: Path
    key: str  # of the trial; the stacks lie in profiles/<key>
    mark: Mapping[str, str] = field(default_factory=dict)
    longest_s: float = 3600.0  # py-spy ends by itself some time after that
    told: list[dict[str, Any]] = field(default_factory=list)
    _recordings: list[tuple[Profilable, Recording]] = field(default_factory=list)

    @contextmanager
    def around(self, processes: Sequence[Profilable]) -> Iterator[None]:
        """Samples from before the block until its end; a block that fails leaves no stacks."""
        try:
            self.start(processes)
            yield
            self.stop()
        finally:
            for _, recording in self._recordings:
                recording.abandon()

    def start(self, processes: Sequence[Profilable]) -> None:
        """Starts a py-spy on each process, and waits until all of them sample."""
        place = self.run_folder / FOLDER / self.key
        if not place.resolve().is_relative_to(self.run_folder.resolve() / FOLDER):
            raise RunFailed(f"{self.key}: leads out of the folder of the run")
        for one in processes:
            out = place / f"{one.role}-{one.pid}.raw.txt"
            recording = Recording(one.pid, out, Options(), longest_s=self.longest_s, mark=self.mark)
            self._recordings.append((one, recording))
            recording.start()
        for _, recording in self._recordings:
            recording.wait_ready()

    @property
    def py_spies(self) -> list[int]:
        """The pids of the py-spys that run."""
        return [recording.py_spy_pid for _, recording in self._recordings if recording.running]

    def stop(self) -> None:
        """Ends the recordings: what each gave, or why it gave nothing."""
        for process, recording in self._recordings:
            about = {"pid": process.pid, "role": process.role, "title": process.title}
            try:
                self.told.append({**about, **self._kept(recording.stop(), recording)})
            except ProfileFailed as error:
                self.told.append({**about, "failed": str(error)})

    def _kept(self, recorded: Recorded, recording: Recording) -> dict[str, Any]:
        return {
            "path": str(recorded.path.relative_to(self.run_folder)),
            "samples": recorded.samples,
            "errors": recorded.errors,
            "seconds": round(recorded.seconds, 2),
            "rate": recording.options.rate,
            "notes": list(recorded.notes),
        }
