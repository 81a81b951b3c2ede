"""The folder of a run, its records as lines of JSON, and the time of day that they carry."""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, Union

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.kept import kept_line, kept_names
from serve_bench.core.result import (
    FORMAT_VERSION,
    RECORDS,
    FormatError,
    ReadWarning,
    Record,
    Result,
    Run,
    result_of,
)
from serve_bench.store.files import check_reachable, remove_empty

# --------------------------------------------------------------------------------------------------
# Records as lines of JSON, one object a line, `kind` first.
#
# Rule: what a reader does not know (kinds, fields) is passed over, what it knows is checked against
# the type hints of core/result.py, and a newer format is refused. A line that a kill cut off costs
# that line alone. No file is opened here.


def to_line(record: Record) -> str:
    """The record as one line, newline included, with hashes in the place of secrets. Raises
    ValueError on NaN or infinity."""
    plain: dict[str, Any] = {"kind": record.KIND}
    if isinstance(record, Run):
        plain["format"] = record.format  # up front, for people who look into the file
    plain |= _fields(record)
    line = json.dumps(plain, separators=(",", ":"), allow_nan=False, default=_fields)
    return kept_line(line) + "\n"


def from_json(data: object) -> Record | None:
    """The record of one JSON value; None for a kind this version does not know.

    Unknown fields are passed over. Raises FormatError on a newer format, a missing field or a
    field of another type, and names it.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise FormatError("not a record: it has no kind")
    kind = RECORDS.get(data["kind"])
    if kind is Run:
        version = data.get("format")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError(f"run: format is {version!r}, not a version number")
        if version > FORMAT_VERSION:
            raise FormatError(
                f"records of format {version}: this serve-bench reads up to {FORMAT_VERSION}, "
                "a newer one is needed"
            )
    return None if kind is None else _build(kind, kept_names(data), data["kind"])


def _no_number(name: str) -> float:
    """NaN and Infinity are no JSON, and are never written."""
    raise ValueError(f"{name} is no number of JSON")


def parse(lines: Iterable[str]) -> Result:
    """Read the lines of a records file.

    A line that is no whole JSON (cut off by a kill) and a kind that is not known are passed over
    and reported in `Result.warnings`. Raises FormatError, naming the line, on all else.
    """
    records: list[Record] = []
    warnings: list[ReadWarning] = []
    for number, line, last in _numbered(lines):
        try:
            data = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):  # the latter: brackets without an end
            if number == 1:
                raise FormatError("line 1 is not the record of a run") from None
            warnings.append(_broken(number, last))
            continue
        try:
            record = from_json(data)
        except FormatError as error:
            raise FormatError(f"line {number}: {error}") from None
        if record is None:
            message = f"line {number}: a record of the unknown kind {data['kind']!r}: passed over"
            warnings.append(ReadWarning("unknown-kind", message))
        elif isinstance(record, Run) and records:
            raise FormatError(f"line {number}: a second run in one file")
        else:
            records.append(record)
    return result_of(records, warnings)


def _broken(number: int, last: bool) -> ReadWarning:
    if last:
        return ReadWarning("cut-off", f"line {number}, the last, is cut off: read up to it")
    return ReadWarning("broken-line", f"line {number} is no whole record: passed over")


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str, bool]]:
    """Lines with their number and whether they are the last; blank ones are left out."""
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in kept:
        yield number, line, number == kept[-1][0]


# ---------------------------------------------------------------- the codec, by type hints

_T = TypeVar("_T")


def _fields(value: Any) -> dict[str, Any]:
    """The parts of what JSON does not know: dataclasses, and mappings that are no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _build(cls: type[_T], data: Any, where: str) -> _T:
    """A dataclass from a JSON object, checked against the class's type hints."""
    if not isinstance(data, dict):
        raise FormatError(f"{where} is {_named(data)}, not an object")
    hints = _hints(typing.cast(Any, cls))
    names = [item.name for item in fields(typing.cast(Any, cls)) if item.name in data]
    values = {name: _value(hints[name], data[name], f"{where}.{name}") for name in names}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:  # a missing field, or a part that refuses itself
        reason = str(error).replace(f"{cls.__name__}.__init__() ", "")
        raise FormatError(f"{where}: {reason}") from None


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _value(hint: Any, data: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return data
    if is_dataclass(hint):
        return _build(typing.cast(type[Any], hint), data, where)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        return _value(next(item for item in inner if item is not type(None)), data, where)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(inner[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is Mapping and isinstance(data, dict):
        return {key: _value(inner[1], item, f"{where}.{key}") for key, item in data.items()}
    if origin is Literal and data in inner:
        return data
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return data
    if isinstance(hint, type) and isinstance(data, hint):
        if hint is int and isinstance(data, bool):
            raise FormatError(f"{where} is true or false, not a number")
        return data
    raise FormatError(f"{where} is {_named(data)}, not {_expected(hint)}")


def _named(data: object) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else text[:37] + "..."


def _expected(hint: Any) -> str:
    """A type hint in words of JSON."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(json.dumps(item) for item in inner)
    words = {tuple: "a list", Mapping: "an object", str: "a text", bool: "true or false"}
    return words.get(origin or hint, "a whole number" if hint is int else "a number")


# --------------------------------------------------------------------------------------------------
# The folder of a run on disk: append a record, read the whole run back.
#
# Rule: records.jsonl only grows. A record is written whole or not at all, and stands on the disk
# (fsync) before `append` returns, so a kill at any moment loses at most the trial in hand.
# What a record is belongs to core/result.py, what follows from it to analysis/statistics.py.

RECORDS_FILE: Final = "records.jsonl"
RESULTS: Final = Path("results")


class StoreError(RunFailed):
    """A record could not be written (a full disk, say); those before it are kept."""


class RunFolder:
    """An open run: `path` is its folder. One process at a time writes to it (a file lock)."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._torn = not _ends_whole(fd)

    @classmethod
    def create(cls, path: Path | None = None, *, now: datetime, results: Path = RESULTS) -> Self:
        """Make the folder of a new run: `path`, else `results`/<UTC stamp of now>, never in use.

        Raises BadInput when `path` is a file or a folder that holds anything.
        """
        try:
            folder = fresh_folder(results, now) if path is None else _claim(path)
            fd = os.open(
                folder / RECORDS_FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
            )
        except OSError as error:
            place = results if path is None else path
            raise BadInput(f"{place}: cannot make a folder for the run: {_why(error)}") from None
        _lock(fd, folder)
        return cls(folder, fd)

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, Result]:
        """Open the folder of an earlier run to go on with it, and read what it holds.

        Raises BadInput when there is no run, when it is still being written, or holds a link.
        """
        result = read(path)  # first: its messages are the better ones
        folder = path if path.is_dir() else path.parent
        _refuse_links(folder)
        try:
            fd = os.open(folder / RECORDS_FILE, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise BadInput(f"{folder}: cannot go on with the run: {_why(error)}") from None
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
            raise StoreError(
                f"{self.path / RECORDS_FILE}: cannot write: {_why(error)}; "
                "the records up to here are kept"
            ) from None
        self._torn = False

    def close(self) -> None:
        """Give the folder free. Further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        raise BadInput(f"{file}: cannot read: {_why(error)}") from None


def fresh_folder(results: Path, now: datetime) -> Path:
    """A new folder named after the time; two runs of one second get -2, -3 ..."""
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
    """BadInput where `RunFolder.create` would refuse the folder; leaves none behind. None: the
    folder is named after the time."""
    if path is None:
        return
    new: tuple[Path, ...] = ()
    try:
        new = tuple(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
        _claim(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise BadInput(f"{path}: cannot make a folder for the run: {_why(error)}") from None
    finally:
        remove_empty([folder for folder in new if folder.is_dir()])


def _claim(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path}: is a file; a run needs a new or empty folder")
    if path.is_dir() and any(path.iterdir()):
        way = f"or go on with the run in it: --resume {path}"
        if not (path / RECORDS_FILE).exists():
            way = "it holds no run to go on with"
        raise BadInput(f"{path}: is not empty; name a new folder, {way}")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _refuse_links(folder: Path) -> None:
    """BadInput where anything in the folder is a link: what is appended would go elsewhere."""
    for one in folder.rglob("*"):
        if one.is_symlink():
            raise BadInput(f"{one}: is a link; a run is gone on with in its own folder alone")


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise BadInput(f"{folder}: another serve-bench is still writing this run") from None


def _ends_whole(fd: int) -> bool:
    """False when a kill cut off the last line, so that the next record needs a line of its own."""
    size = os.fstat(fd).st_size
    return size == 0 or os.pread(fd, 1, size - 1) == b"\n"


def _why(error: OSError) -> str:
    return error.strerror or str(error)


# --------------------------------------------------------------------------------------------------
# The time of day, as records carry it.
#
# Durations are measured where they arise, by a monotonic clock: none is made from this.


def now_iso() -> str:
    """The time, UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
