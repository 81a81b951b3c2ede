"""The search for what a run started, and its end: no process or directory of ours stays.

Every process of a run carries SERVE_BENCH_RUN=<id>, SERVE_BENCH_DIRECTORY and SERVE_BENCH_OWNER in
its environment, and every process of a launch SERVE_BENCH_LAUNCH=<id>.<number> too. Ray's agents
overwrite the memory that shows their environment; they are known by being descendants of a marked
process, or by holding a file open in the run's directory. Rule: nothing is ended that is not known
in one of these ways, and no run whose owner may be alive. A mark is believed, and a directory
removed, only where it belongs to our own user: anybody can set an environment and make a directory,
and as root we could end and remove anything that they name.

The warden (`python -m serve_bench.serving.strays RUN`) waits for the end of its stdin, which comes
with the death of the CLI by any signal, and then ends the run. What outlives even that is found by
the next start (`sweep`) or by `serve-bench clean`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serve_bench.core.errors import RunFailed
from serve_bench.core.own_module import finding_ours, own_module

RUN_MARK = "SERVE_BENCH_RUN"
LAUNCH_MARK = "SERVE_BENCH_LAUNCH"

#: Where the run's directory is (another shell may have another TMPDIR), and who owns the run (the
#: directory may be out of sight, in a chroot or a container).
DIRECTORY_MARK = "SERVE_BENCH_DIRECTORY"
OWNER_MARK = "SERVE_BENCH_OWNER"
MARKS = (RUN_MARK, LAUNCH_MARK, DIRECTORY_MARK, OWNER_MARK)
DIRECTORY_PREFIX = "sb-"
OWNER_FILE = "owner"
_DIRECTORY_NAME = re.compile(re.escape(DIRECTORY_PREFIX) + r"([0-9a-f]{6})")

#: A directory of ours without an owner file is being made, or its maker died just then.
_OWNERLESS_AFTER_S = 10.0

#: HAProxy refuses a socket path above 97 bytes; Ray puts `/h/admin-<56 characters>.sock` and more
#: behind ours, with a launch's number of up to two digits. A longer temporary directory breaks it.
LONGEST_TEMP_ROOT = 14

REAP_DEADLINE_S = 5.0
_POLL_S = 0.05

_WARDEN_READY = b"ready\n"
WARDEN_READY_S = 30.0


def temp_root() -> Path:
    """Return where run directories go: TMPDIR, or /tmp if that is too long for a socket path."""
    root = tempfile.gettempdir()
    return Path(root if len(root) <= LONGEST_TEMP_ROOT else "/tmp")


def run_directory(run_id: str) -> Path:
    """Return the temporary directory of a run; it need not exist."""
    return temp_root() / f"{DIRECTORY_PREFIX}{run_id}"


def marks(run_id: str) -> dict[str, str]:
    """Return the environment that marks every process of a run; the caller is its owner."""
    return {
        RUN_MARK: run_id,
        DIRECTORY_MARK: str(run_directory(run_id)),
        OWNER_MARK: owner_of(psutil.Process()),
    }


def owner_of(process: psutil.Process) -> str:
    """Return who a process is, beyond its pid: pid, start, and the pid namespace it counts in."""
    return f"{process.pid}:{started(process.pid)}:{_pid_namespace(process.pid)}"


def started(pid: int) -> int:
    """Return when a process started, in ticks since the boot (Linux); elsewhere in ms of the clock.

    Ticks (proc_pid_stat(5), field 22) are the same however the clock is set. Raises
    psutil.NoSuchProcess.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return int(psutil.Process(pid).create_time() * 1000)  # no /proc, or no process
    return int(stat.rpartition(")")[2].split()[19])


def _pid_namespace(pid: int) -> int:
    """Return the inode of the pid namespace; 0 where there is no such thing."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def owner_alive(owner: str) -> bool:
    """Return whether the owner of a run still lives; True too in another pid namespace."""
    try:
        pid, since, namespace = owner.split(":")
        if int(namespace) != _pid_namespace(os.getpid()):
            return True  # a container's runs are for that container to clean up
        return lives(int(pid), int(since))
    except ValueError:
        return False


def lives(pid: int, since: int) -> bool:
    """Return whether the process that started then (`started`) still runs."""
    try:
        same = started(pid) == since
        return same and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def new_run() -> str:
    """Make a run id and its directory, which names this process as the owner."""
    while True:
        run_id = secrets.token_hex(3)
        try:
            run_directory(run_id).mkdir(mode=0o700)
        except FileExistsError:
            continue
        draft = run_directory(run_id) / "owner.new"
        draft.write_text(owner_of(psutil.Process()))
        draft.rename(run_directory(run_id) / OWNER_FILE)  # at once: a sweep never reads half of it
        return run_id


def _is_ours(process: psutil.Process) -> bool:
    """Return whether a process is our own user's, and has no rights of another (setuid)."""
    try:
        uids = process.uids()
    except psutil.Error:
        return False
    return {uids.real, uids.effective, uids.saved} == {os.getuid()}


def _mark_of(process: psutil.Process, name: str) -> str | None:
    try:
        environment: dict[str, str] = process.environ()
        return environment.get(name)
    except (psutil.Error, OSError):
        return None


def _holds_file_under(process: psutil.Process, directory: str) -> bool:
    """Return whether a process has a file open below a directory, as Ray's agents have logs."""
    try:
        links = Path(f"/proc/{process.pid}/fd")
        if links.is_dir():
            paths: Iterable[str] = [os.readlink(link) for link in links.iterdir()]
        else:
            paths = [opened.path for opened in process.open_files()]
        return any(path.startswith(directory + os.sep) for path in paths)
    except (psutil.Error, OSError):
        return False


def find(run_id: str, launch: str | None = None, place: Path | None = None) -> list[psutil.Process]:
    """Return the living processes of a run, or of one launch of it, the caller excepted.

    `place` is the run's directory, where it is not the one that this process would make.
    Descendants of our processes may be another user's: descent cannot be forged, as a mark can.
    """
    directory = str((place or run_directory(run_id)) / (launch or ""))
    processes: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["pid", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if not _is_ours(process):
            continue
        if launch is None:
            marked = _mark_of(process, RUN_MARK) == run_id
        else:
            marked = _mark_of(process, LAUNCH_MARK) == f"{run_id}.{launch}"
        if marked or _holds_file_under(process, directory):
            processes[process.pid] = process
    for process in list(processes.values()):
        try:
            for child in process.children(recursive=True):
                if child.pid != os.getpid() and child.status() != psutil.STATUS_ZOMBIE:
                    processes.setdefault(child.pid, child)
        except psutil.Error:
            continue
    return list(processes.values())


@dataclass(frozen=True)
class Reaped:
    """What a reaping did: processes ended, seconds it took, titles of what would not end."""

    killed: int
    seconds: float
    leftovers: tuple[str, ...] = field(default=())


def reap(
    run_id: str,
    launch: str | None = None,
    deadline_s: float = REAP_DEADLINE_S,
    place: Path | None = None,
) -> Reaped:
    """Kill the run (or one launch) until two looks in a row find nothing; remove its directory.

    A process that is just being started can escape one look, so one empty look does not suffice.
    """
    began = time.monotonic()
    known: dict[int, psutil.Process] = {}
    killed: set[int] = set()
    quiet = 0
    left: list[psutil.Process] = []
    while quiet < 2 and time.monotonic() - began < deadline_s:
        known.update({process.pid: process for process in find(run_id, launch, place)})
        left = [process for process in known.values() if _is_living(process)]
        quiet = 0 if left else quiet + 1
        for process in left:
            with contextlib.suppress(PermissionError):  # stays in `left` and is reported
                if _kill(process):
                    killed.add(process.pid)
        if left:  # not psutil.wait_procs: it would take the exit codes of our own children
            time.sleep(_POLL_S)
    left = [process for process in left if _is_living(process)]
    directory = (place or run_directory(run_id)) / (launch or "")
    _remove(directory)
    leftovers = [f"process {_name_process(process)}" for process in left]
    if directory.exists():
        leftovers.append(f"directory {directory}")
    return Reaped(len(killed), time.monotonic() - began, tuple(leftovers))


def _kill(process: psutil.Process) -> bool:
    """Send SIGKILL to this very process; return False where it is gone."""
    try:
        if not hasattr(os, "pidfd_open"):
            process.kill()
            return True
        fd = os.pidfd_open(process.pid)  # a pid can become another's between look and signal
    except (psutil.NoSuchProcess, ProcessLookupError):
        return False
    except psutil.AccessDenied:
        raise PermissionError from None
    try:
        if not process.is_running():
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def _is_living(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _name_process(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.name()}"
    except psutil.Error:
        return str(process.pid)


def _remove(directory: Path) -> None:
    """Remove a directory of ours and its content, by descriptors."""
    for _ in range(3):  # a file made while the tree is removed makes rmtree fail once
        try:
            fd = _open_ours(directory)  # its name may be another user's by now
        except OSError:
            return
        try:
            for name in os.listdir(fd):
                shutil.rmtree(name, ignore_errors=True, dir_fd=fd)
                with contextlib.suppress(OSError):  # no directory
                    os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):
            directory.rmdir()
            return


def _open_ours(directory: Path) -> int:
    """Return a descriptor of a directory that is our own user's. Raises OSError for any other."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if os.fstat(fd).st_uid == os.getuid():
        return fd
    os.close(fd)
    raise PermissionError(f"{directory} is another user's")


def _read_owner(directory: Path) -> str | None:
    """Return the owner that a directory names, empty where it names none. Raises OSError."""
    fd = _open_ours(directory)
    try:
        file = os.open(OWNER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    except FileNotFoundError:
        young = time.time() - os.fstat(fd).st_mtime <= _OWNERLESS_AFTER_S
        return None if young else ""  # None: it is being made
    finally:
        os.close(fd)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
            return None  # not ours
        return opened.read(200).decode(errors="replace")


@dataclass(frozen=True)
class KnownRun:
    """A run that left something, or still goes on: its directory and its owner."""

    directory: Path
    owner: str


def known_runs() -> dict[str, KnownRun]:
    """Return this user's runs, by id, that left a directory or marked process, or still go on.

    A run is dead only where all that speaks of it names a dead owner: a setuid program such as sudo
    is ours while it asks for a password, and carries whatever marks its caller gave it.
    """
    runs: dict[str, KnownRun] = {}
    for directory in temp_root().iterdir():
        name = _DIRECTORY_NAME.fullmatch(directory.name)
        if name is None:
            continue
        with contextlib.suppress(OSError):  # its run ended just now, or is another user's
            owner = _read_owner(directory)
            if owner is not None:
                runs[name.group(1)] = KnownRun(directory, owner)
    for process in psutil.process_iter():
        if not _is_ours(process):
            continue
        run_id, place, owner_mark = (
            _mark_of(process, name) for name in (RUN_MARK, DIRECTORY_MARK, OWNER_MARK)
        )
        if not run_id or not owner_mark or not place:
            continue
        name = _DIRECTORY_NAME.fullmatch(Path(place).name)
        if name is None or name.group(1) != run_id:
            continue
        owners = [owner_mark]
        with contextlib.suppress(OSError):  # the run has no directory any more
            owners += filter(None, [_read_owner(Path(place))])
        for owner in owners:
            known = runs.get(run_id)
            if known is None or (owner_alive(owner) and not owner_alive(known.owner)):
                runs[run_id] = KnownRun(Path(place), owner)
    return runs


def sweep() -> dict[str, Reaped]:
    """End every run whose owner is dead; return what was done, by run id."""
    our_run = os.environ.get(RUN_MARK)
    return {
        run_id: reap(run_id, place=run.directory)
        for run_id, run in known_runs().items()
        if run_id != our_run and not owner_alive(run.owner)
    }


def start_warden(
    run_id: str, meanwhile: Callable[[], object] = lambda: None
) -> subprocess.Popen[bytes]:
    """Start the process that ends the run when this one dies; close its stdin to let it go.

    Raises RunFailed when it does not come up: a run without it could leave processes behind.
    """
    environment = finding_ours({k: v for k, v in os.environ.items() if k not in MARKS})
    warden = subprocess.Popen(
        [sys.executable, *own_module("serving.strays"), run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # Ctrl-C at the terminal must not reach it
    )
    assert warden.stdout is not None
    meanwhile()
    ready, _, _ = select.select([warden.stdout], [], [], WARDEN_READY_S)
    line = warden.stdout.readline() if ready else b""
    if line != _WARDEN_READY:
        warden.kill()  # else reading the rest of its output would wait
        rest = (line + warden.stdout.read()).decode(errors="replace").splitlines()
        raise RunFailed("the process that cleans up after a killed run did not start", tuple(rest))
    return warden


def _warden(run_id: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the CLI has died already
        os.write(sys.stdout.fileno(), _WARDEN_READY)
    sys.stdin.buffer.read()
    if run_directory(run_id).exists() or find(run_id):
        reap(run_id, deadline_s=2 * REAP_DEADLINE_S)


if __name__ == "__main__":
    _warden(sys.argv[1])


@dataclass
class Marked:
    """A run with its mark, its directory and the warden that ends it when this process dies."""

    run_id: str
    warden: subprocess.Popen[bytes]
    swept: dict[str, Reaped]  # dead runs that were ended at its start

    @classmethod
    def begin(cls) -> Marked:
        """Begin a run, and end dead runs while its warden starts. Raises RunFailed without it."""
        run_id, swept = new_run(), dict[str, Reaped]()
        try:
            return cls(run_id, start_warden(run_id, lambda: swept.update(sweep())), swept)
        except BaseException:  # Ctrl-C too
            reap(run_id)
            raise

    def end(self) -> tuple[Reaped, bool]:
        """End whatever the run started; return that, and whether its warden had died before."""
        reaped = reap(self.run_id)
        died = self.warden.poll() is not None
        if self.warden.stdin is not None:
            self.warden.stdin.close()
        try:
            self.warden.wait(4 * REAP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.warden.kill()
        return reaped, died
