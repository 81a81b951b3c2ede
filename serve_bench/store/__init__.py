"""The folder of a run on disk: create or resume it, append a record, read the whole run back.

Rule: records.jsonl only grows. A record is written whole or not at all, and stands on the disk
(fsync) before `append` returns, so a kill at any moment loses at most the trial in progress.
What a record is belongs to core/result.py, its line of JSON to core/record_lines.py.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from serve_bench.core.errors import BadInput, FormatError, RunFailed
from serve_bench.core.record_lines import parse, to_line
from serve_bench.core.result import Record, Result
from serve_bench.store.files import check_reachable, remove_empty, why

RECORDS_FILE: Final = "records.jsonl"
RESULTS: Final = Path("results")


class StoreError(RunFailed):
    """A record could not be written (a full disk, say); those before it are kept."""


class RunFolder:
    """An open run: `path` is its folder. One process at a time writes to it (a file lock)."""

    def __init__(self, path: Path, fd: int, made: Sequence[Path] = ()) -> None:
        self.path = path
        self._fd = fd
        self._made = made  # folders that `create` made, the innermost first: `discard` removes them
        size = os.fstat(fd).st_size
        # A kill cut off the last line: the next record needs a new line.
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"

    @classmethod
    def create(cls, path: Path | None = None, *, now: datetime, results: Path = RESULTS) -> Self:
        """Make the folder of a new run: `path`, else `results`/<UTC stamp of now>, never in use.

        Raises BadInput when `path` is a file or a folder that holds anything.
        """
        above = (*results.parents,) if path is None else (*path.parents,)
        try:
            made = [folder for folder in (path or results, *above) if not folder.exists()]
            folder = fresh_folder(results, now) if path is None else _claim(path)
            new = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
            fd = os.open(folder / RECORDS_FILE, new, 0o644)
        except OSError as error:
            place = results if path is None else path
            raise BadInput(f"{place}: cannot make a folder for the run: {why(error)}") from None
        _lock(fd, folder)
        return cls(folder, fd, made if path is not None else [folder, *made])

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, Result]:
        """Open the folder of an earlier run to resume it, and read what it holds.

        Raises BadInput when there is no run, when it is still being written, or holds a link."""
        result = read(path)  # first: its messages are the better ones
        folder = path if path.is_dir() else path.parent
        for place in folder.rglob("*"):
            if place.is_symlink():  # what is appended would go elsewhere
                raise BadInput(f"{place}: is a link; a run is resumed in its own folder alone")
        try:
            fd = os.open(folder / RECORDS_FILE, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise BadInput(f"{folder}: cannot resume the run: {why(error)}") from None
        _lock(fd, folder)
        return cls(folder, fd), result

    def append(self, record: Record) -> None:
        """Add one record and flush it to the disk. Raises StoreError, with nothing before lost."""
        line = ("\n" if self._torn else "") + to_line(record)
        before = os.fstat(self._fd).st_size
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, before)  # to shrink a file needs no room
            reason = f"cannot write: {why(error)}; the records up to here are kept"
            raise StoreError(f"{self.path / RECORDS_FILE}: {reason}") from None
        self._torn = False

    def discard(self) -> None:
        """Remove a new run in which nothing was measured: records, and the folders made for it."""
        self.close()
        (self.path / RECORDS_FILE).unlink()
        remove_empty(self._made)

    def close(self) -> None:
        """Release the folder for other processes. Further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Result:
    """Read a run from its folder, or from a records file. Raises BadInput in one line."""
    check_reachable(path)
    file = path / RECORDS_FILE if path.is_dir() else path
    check_reachable(file)
    if not path.exists():
        raise BadInput(f"{path}: no such folder")
    if not file.exists():
        raise BadInput(f"{path}: holds no run (no {RECORDS_FILE})")
    if not file.is_file():  # to open a pipe would wait for somebody to write into it
        raise BadInput(f"{file}: is no regular file")
    try:
        # Records are ASCII; a damaged byte becomes no valid JSON, and costs its line alone.
        with file.open(encoding="ascii", errors="backslashreplace") as lines:
            return parse(lines)
    except FormatError as error:
        raise BadInput(f"{file}: {error}") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot read: {why(error)}") from None


def fresh_folder(results: Path, now: datetime) -> Path:
    """Make a new folder named after the time; two runs of one second get -2, -3 ..."""
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    results.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = results / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def check_new(path: Path | None) -> None:
    """Raise BadInput where `RunFolder.create` would refuse the folder; None is never refused."""
    if path is not None:
        RunFolder.create(path, now=datetime.now(UTC)).discard()  # leaves no folder


def _claim(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path}: is a file; a run needs a new or empty folder")
    if path.is_dir() and any(path.iterdir()):
        way = f"or resume the run in it: --resume {path}"
        if not (path / RECORDS_FILE).exists():
            way = "it holds no run to resume"
        raise BadInput(f"{path}: is not empty; name a new folder, {way}")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise BadInput(f"{folder}: another serve-bench is still writing this run") from None


def now_iso() -> str:
    """Return the time of day, UTC, in ISO 8601 with milliseconds; never to be subtracted."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
