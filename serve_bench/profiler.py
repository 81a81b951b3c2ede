"""py-spy on a process: one recording or several at once, and a dump of the stacks now.

Rule: py-spy is the one of this environment, started with a list of words. What it wrote is moved to
its place only when it holds samples, so a failed recording leaves no file. Its errors come out as
one line that says what to do. Who may look into a process is in rights.py, what the samples mean in
stacks.py.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from serve_bench.errors import BadInput, RunFailed
from serve_bench.rights import why_not_allowed
from serve_bench.sampler import threads_of
from serve_bench.stacks import by_thread_ran, parse_raw, to_raw
from serve_bench.usage import Threads

FORMATS: Final = {
    "flamegraph": ".svg",
    "speedscope": ".speedscope.json",
    "chrometrace": ".chrometrace.json",
    "raw": ".raw.txt",
}
"""What a recording can be had in, and how the name of its file ends."""

READY_S: Final = 30.0
"""py-spy reads the symbols of what it attaches to; with native extensions that takes seconds."""

STOP_S: Final = 20.0

ASLEEP: Final = 0.005
"""Below 0.5 % of a core a process was idle: being stopped 100 times a second alone costs it 0.2 %,
and the few samples of it are of threads that wait."""

#: A recording that nobody stops ends by itself so long after its time.
_AFTER_S: Final = 60
_SAMPLES: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")


@dataclass(frozen=True)
class Options:
    """How py-spy samples. `rate` is samples a second; the others are its flags."""

    rate: int = 100
    native: bool = False
    gil: bool = False
    idle: bool = False
    threads: bool = False
    subprocesses: bool = False
    nonblocking: bool = False

    def words(self) -> list[str]:
        """As words of py-spy's command line."""
        names = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")
        flags = [f"--{name}" for name in names if getattr(self, name)]
        return ["--rate", str(self.rate), *flags]


@dataclass(frozen=True)
class Recorded:
    """A recording that holds samples. `errors` counts stacks that py-spy could not read."""

    pid: int
    path: Path
    samples: int
    errors: int
    seconds: float
    notes: tuple[str, ...] = ()


class ProfileFailed(RunFailed):
    """A recording gave nothing. The message is one line and says what to do."""


def py_spy() -> str:
    """The py-spy of this environment, else the one on PATH. Raises BadInput without either."""
    for place in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), None):
        found = shutil.which("py-spy", path=place)
        if found:
            return found
    raise BadInput("py-spy is not installed in this environment: pip install py-spy")


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
    _process: subprocess.Popen[str] | None = None
    _said: list[str] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)
    _reader: threading.Thread | None = None
    _began: float = 0.0
    _threads: Threads | None = None  # when sampling began

    @property
    def _draft(self) -> Path:
        return self.out.with_name(f".{self.out.name}.part")

    def start(self) -> None:
        """Starts py-spy. Raises BadInput without one, or when the file cannot be made."""
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._draft.touch()
        except OSError as error:
            why = (error.strerror or "error").lower()
            raise BadInput(f"{self.out}: cannot be written: {why}") from None
        self._process = subprocess.Popen(
            [
                *(py_spy(), "record", "--pid", str(self.pid), "--format", self.format),
                *("--output", str(self._draft), *self._words()),
                *("--duration", str(math.ceil(self.longest_s) + _AFTER_S)),
            ],
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

    def wait_ready(self) -> bool:
        """Waits until it samples. False when it ended first, or took too long: `stop` says why."""
        self._ready.wait(READY_S)
        return bool(self._began)

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
            self._draft.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Kills py-spy if it still runs, and leaves no file half written."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()
        self._draft.unlink(missing_ok=True)

    def _end(self, seconds: float) -> Recorded:
        assert self._process is not None and self._reader is not None
        ended = not self.running
        ran = self._ran()
        if not ended:
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
        if self._process.returncode != 0 or found is None:
            raise ProfileFailed(explain(said, self.pid), tuple(self._said[:3]))
        samples, errors = int(found[1]), int(found[2])
        asleep = bool(ran) and sum(ran.values()) < ASLEEP and not self.options.idle
        if samples == 0 or asleep:
            raise ProfileFailed(
                f"process {self.pid} was idle: no samples; put load on it first, or use --idle"
            )
        if self._by_thread:
            stacks = parse_raw(self._draft.read_text(errors="replace"), str(self.out))
            marked = by_thread_ran(stacks, ran, keep_threads=self.options.threads)
            self._draft.write_text(to_raw(marked), encoding="utf-8")
        os.replace(self._draft, self.out)
        notes = []
        if "because process exited" in said:
            notes.append(f"process {self.pid} ended after {seconds:.1f} s; kept what was sampled")
        if "behind in sampling" in said:
            notes.append(f"py-spy fell behind on process {self.pid}: use a lower --rate")
        if errors > samples:
            notes.append(f"{errors} stacks of process {self.pid} could not be read")
        return Recorded(self.pid, self.out, samples, errors, seconds, tuple(notes))

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


def explain(said: str, pid: int) -> str:
    """What py-spy's words mean, in one line."""
    if "Permission Denied" in said or "Operation not permitted" in said:
        return why_not_allowed(pid) or f"not allowed to look into process {pid} (a seccomp filter?)"
    if "Failed to get process executable name" in said or "No such process" in said:
        return f"process {pid} ended before a sample was taken"
    if "Unsupported version of Python" in said:
        found = re.search(r"Unsupported version of Python: (\S+)", said)
        version = f"Python {found[1]}" if found else "its Python"
        return f"py-spy does not know {version} of process {pid} yet: pip install -U py-spy"
    if "Failed to find python version" in said or "Failed to find a python interpreter" in said:
        return f"process {pid} is not Python, or has only just started"
    first = next((line for line in said.splitlines() if line.strip()), "it said nothing")
    return f"py-spy on process {pid} failed: {first.removeprefix('Error: ')}"


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


def dump(pid: int, *, native: bool = False) -> str:
    """The stacks of all threads now, as py-spy prints them. Raises ProfileFailed."""
    words = [py_spy(), "dump", "--pid", str(pid), *(["--native"] if native else [])]
    told = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if told.returncode != 0:
        raise ProfileFailed(explain(told.stderr or told.stdout, pid))
    return told.stdout
