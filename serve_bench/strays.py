"""Whatever a run started, found by its mark and ended: no process or directory of ours stays.

Every process of a run carries SERVE_BENCH_RUN=<id>, SERVE_BENCH_DIRECTORY and SERVE_BENCH_OWNER in
its environment, and every process of a launch SERVE_BENCH_LAUNCH=<id>.<number> too. Ray's agents
overwrite the memory that shows their environment; they are known by being descendants of a marked
process, or by holding a file open in the run's directory. Rule: nothing is ended that is not known
in one of these ways, and no run whose owner may be alive.

The warden (`python -m serve_bench.strays RUN`) waits for the end of its stdin, which comes with
the death of the CLI by any signal, and then ends the run. What outlives even that is found by the
next start (`sweep`) or by `serve-bench clean`.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serve_bench.errors import RunFailed

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

#: Start times are made of the boot time, which moves when the clock is set.
_SAME_START_S = 2.0
_WARDEN_READY = b"ready\n"


def temp_root() -> Path:
    """Where run directories go: TMPDIR, or /tmp where TMPDIR is too long for a socket path."""
    root = tempfile.gettempdir()
    return Path(root if len(root) <= LONGEST_TEMP_ROOT else "/tmp")


def run_directory(run_id: str) -> Path:
    """The temporary directory of a run; it need not exist."""
    return temp_root() / f"{DIRECTORY_PREFIX}{run_id}"


def marks(run_id: str) -> dict[str, str]:
    """The environment that every process of the run must carry. For the owner's process alone."""
    return {
        RUN_MARK: run_id,
        DIRECTORY_MARK: str(run_directory(run_id)),
        OWNER_MARK: owner_of(psutil.Process()),
    }


def owner_of(process: psutil.Process) -> str:
    """Who a process is, beyond its pid: pid, start time, and the pid namespace it counts in."""
    return f"{process.pid}:{process.create_time():.2f}:{_pid_namespace(process.pid)}"


def _pid_namespace(pid: int) -> int:
    """The inode of the pid namespace; 0 where there is no such thing."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def owner_alive(owner: str) -> bool:
    """Whether the owner of a run still lives.

    True too where that cannot be known: in another pid namespace a pid means another process, so
    a run in a container is for that container to clean up.
    """
    try:
        pid, created, namespace = owner.split(":")
        if int(namespace) != _pid_namespace(os.getpid()):
            return True
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(created)) < _SAME_START_S
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except (ValueError, psutil.NoSuchProcess):
        return False


def new_run() -> str:
    """Makes a run id and its directory, which names this process as the owner."""
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


def _mark_of(process: psutil.Process, name: str) -> str | None:
    try:
        environment: dict[str, str] = process.environ()
        return environment.get(name)
    except (psutil.Error, OSError):
        return None


def _holds_file_under(process: psutil.Process, directory: str) -> bool:
    """Whether the process has a file open below the directory (Ray's agents hold their logs)."""
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
    """The living processes of a run, or of one launch of it, the caller itself excepted.

    `place` is the run's directory, where it is not the one that this process would make.
    """
    directory = str((place or run_directory(run_id)) / (launch or ""))
    uid = os.getuid()
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["pid", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        try:
            if uid != 0 and process.uids().real != uid:
                continue
        except psutil.Error:
            continue
        if launch is None:
            marked = _mark_of(process, RUN_MARK) == run_id
        else:
            marked = _mark_of(process, LAUNCH_MARK) == f"{run_id}.{launch}"
        if marked or _holds_file_under(process, directory):
            found[process.pid] = process
    for process in list(found.values()):
        try:
            for child in process.children(recursive=True):
                if child.pid != os.getpid() and child.status() != psutil.STATUS_ZOMBIE:
                    found.setdefault(child.pid, child)
        except psutil.Error:
            continue
    return list(found.values())


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
    """SIGKILLs the run (or one launch), until two looks in a row find nothing, then its directory.

    A process that is just being started can escape one look, so one empty look does not suffice.
    """
    began = time.monotonic()
    known: dict[int, psutil.Process] = {}
    killed: set[int] = set()
    quiet = 0
    left: list[psutil.Process] = []
    while quiet < 2 and time.monotonic() - began < deadline_s:
        known.update({process.pid: process for process in find(run_id, launch, place)})
        left = [process for process in known.values() if _living(process)]
        quiet = 0 if left else quiet + 1
        for process in left:
            try:
                process.kill()
                killed.add(process.pid)
            except psutil.NoSuchProcess:
                continue
            except psutil.AccessDenied:
                continue  # stays in `left` and is reported
        if left:  # not psutil.wait_procs: it would take the exit codes of our own children
            time.sleep(_POLL_S)
    left = [process for process in left if _living(process)]
    directory = (place or run_directory(run_id)) / (launch or "")
    _remove(directory)
    leftovers = [f"process {_title(process)}" for process in left]
    if directory.exists():
        leftovers.append(f"directory {directory}")
    return Reaped(len(killed), time.monotonic() - began, tuple(leftovers))


def _living(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _title(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.name()}"
    except psutil.Error:
        return str(process.pid)


def _remove(directory: Path) -> None:
    for _ in range(3):  # a file made while the tree is removed makes rmtree fail once
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return


@dataclass(frozen=True)
class KnownRun:
    """A run that left something, or still goes on: its directory and its owner."""

    directory: Path
    owner: str


def known_runs() -> dict[str, KnownRun]:
    """Runs of this user that left a directory or a marked process, or still go on; by their id."""
    runs: dict[str, KnownRun] = {}
    for directory in temp_root().iterdir():
        name = _DIRECTORY_NAME.fullmatch(directory.name)
        if name is None or directory.is_symlink():
            continue
        try:
            status = directory.stat()
            if status.st_uid != os.getuid():
                continue  # another user's run is for that user to clean up
            has_owner = (directory / OWNER_FILE).exists()
            owner = (directory / OWNER_FILE).read_text() if has_owner else ""
        except (FileNotFoundError, PermissionError):
            continue  # its run ended just now, or is not ours
        settled = has_owner or time.time() - status.st_mtime > _OWNERLESS_AFTER_S
        if settled:
            runs[name.group(1)] = KnownRun(directory, owner)
    for process in psutil.process_iter():
        run_id, place, owner_mark = (
            _mark_of(process, name) for name in (RUN_MARK, DIRECTORY_MARK, OWNER_MARK)
        )
        if run_id and owner_mark and place and Path(place).name == f"{DIRECTORY_PREFIX}{run_id}":
            runs[run_id] = KnownRun(Path(place), owner_mark)
    return runs


def sweep() -> dict[str, Reaped]:
    """Ends every run whose owner is dead. Returns what was done, by run id."""
    own = os.environ.get(RUN_MARK)
    return {
        run_id: reap(run_id, place=run.directory)
        for run_id, run in known_runs().items()
        if run_id != own and not owner_alive(run.owner)
    }


def start_warden(run_id: str) -> subprocess.Popen[bytes]:
    """Starts the process that ends the run when this one dies. Close its stdin to let it go.

    Raises RunFailed when it does not come up: a run without it could leave processes behind.
    """
    environment = {k: v for k, v in os.environ.items() if k not in MARKS}
    warden = subprocess.Popen(
        [sys.executable, "-m", "serve_bench.strays", run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # Ctrl-C at the terminal must not reach it
    )
    assert warden.stdout is not None
    said = warden.stdout.readline()
    if said != _WARDEN_READY:
        rest = (said + warden.stdout.read()).decode(errors="replace").splitlines()
        raise RunFailed("the process that cleans up after a killed run did not start", tuple(rest))
    return warden


def _warden(run_id: str) -> None:
    sys.stdout.buffer.write(_WARDEN_READY)
    sys.stdout.flush()
    sys.stdin.buffer.read()
    if run_directory(run_id).exists() or find(run_id):
        reap(run_id, deadline_s=2 * REAP_DEADLINE_S)


if __name__ == "__main__":
    _warden(sys.argv[1])
