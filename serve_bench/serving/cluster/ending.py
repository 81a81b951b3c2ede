"""A program, started by path, that ends a launch when no other process is left to do it.

The child of a launch becomes this program (exec) when its parent is gone. As a rule the warden ends
the launch at the same time; where that was killed too, this alone is left. Rule: only processes of
our own user that are below this one, or carry the mark of this launch, are ended, and only what
belongs to the launch is removed. Nothing but the standard library: any interpreter may run it.
Without /proc (macOS) it can only end its own process group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path

LAUNCH_MARK = "SERVE_BENCH_LAUNCH"
DIRECTORY_MARK = "SERVE_BENCH_DIRECTORY"
OWNER_FILE = "owner"

DEADLINE_S = 10.0
POLL_S = 0.05

#: prctl(2): from now on, what loses its parent below this process becomes its child, not that of
#: pid 1. So agents of Ray, which overwrite their environment, are found when the raylet is gone.
PR_SET_CHILD_SUBREAPER = 36


def become() -> None:
    """Replace this process by the program, from any thread; does not return.

    It takes in orphans from now on (kept across exec): the raylet ends as soon as the exec closes
    the driver's connections, before the program runs, and its agents would go to pid 1.
    """
    _take_in_orphans()
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(Path(__file__).resolve())])


def _take_in_orphans() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on: [0] state, [1] parent."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


def _find_processes(mark: str) -> set[int]:
    """Return the living processes below this one, or with the mark of the launch."""
    parents: dict[int, int] = {}
    marked = set()
    wanted = f"{LAUNCH_MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            pid, fields = int(entry.name), _read_stat(int(entry.name))
            if fields[0] in "ZX":
                continue
            parents[pid] = int(fields[1])
            is_ours = entry.stat().st_uid == os.getuid()
            if is_ours and wanted in (entry / "environ").read_bytes().split(b"\0"):
                marked.add(pid)
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return (below | marked) - {os.getpid()}


def end_all(mark: str) -> None:
    """End the processes of the launch, until two looks in a row find none."""
    deadline, quiet = time.monotonic() + DEADLINE_S, 0
    while quiet < 2 and time.monotonic() < deadline:
        left = _find_processes(mark)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(POLL_S)


def remove(run: Path, launch: str) -> None:
    """Remove the directory of the launch, and with the last launch that of the run."""
    shutil.rmtree(run / launch, ignore_errors=True)
    with contextlib.suppress(OSError):
        for draft in run.glob("*.draft"):  # of a py-spy that was ended here
            draft.unlink()
        if [file.name for file in run.iterdir()] == [OWNER_FILE]:
            (run / OWNER_FILE).unlink()
            run.rmdir()


def main() -> None:
    """End the launch whose marks this process carries; do nothing without them."""
    mark, directory = os.environ.get(LAUNCH_MARK), os.environ.get(DIRECTORY_MARK)
    if not mark or not directory:
        return
    os.chdir("/")
    if Path("/proc/self/stat").exists():
        _take_in_orphans()  # where it was started and not become
        end_all(mark)
    remove(Path(directory), mark.partition(".")[2])
    if not Path("/proc/self/stat").exists():
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
