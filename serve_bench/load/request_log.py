"""The log of the single requests of a load: in the workers' memory, read by the parent at the end.

Rule: nothing is written while the load runs. A worker hands over its notes in a file without a
name, whose descriptor it has from the parent, so nothing is left when the processes have ended.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from serve_bench.core.load_result import ERROR_CLASSES
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.tally import NEVER, anonymous_file

CUT = "cut"
"""The class of a request that was in flight when the measured part ended."""

CLASSES: tuple[str | None, ...] = (None, *ERROR_CLASSES, CUT)

NUMBER_OF = {name: number for number, name in enumerate(CLASSES)}

COLUMNS = "IqqHB"
"""Type codes of client, due time, end (ns of perf_counter), status, class."""

ROW_BYTES = sum(array(code).itemsize for code in COLUMNS)


class LoggedRequest(NamedTuple):
    """One request. `client`: the number of its connection over all workers, from 0.

    `start_ns`: when it was due, since the first window's start.
    `latency_ns`: from then to its end; None for a `cut` one, which had none. `status`: of a whole
    response, else 0. `error`: None for a completed request, one of ERROR_CLASSES, or `cut`.
    """

    client: int
    start_ns: int
    latency_ns: int | None
    status: int
    error: str | None


class Notes:
    """The notes of a worker, 23 bytes a request, in plain arrays, which make no garbage."""

    __slots__ = ("_class", "_client", "_columns", "_due", "_end", "_status")

    def __init__(self) -> None:
        self._columns = [array(code) for code in COLUMNS]
        appends = (column.append for column in self._columns)
        self._client, self._due, self._end, self._status, self._class = appends

    def add(self, client: int, due: int, end: int, status: int, error_class: str | None) -> None:
        """A request has ended for good: a retry is the same request."""
        self._client(client)
        self._due(due)
        self._end(end)
        self._status(status)
        self._class(NUMBER_OF[error_class])

    def add_cut(self, client: int, due: int) -> None:
        """The measured part is over with this request in flight."""
        self.add(client, due, NEVER, 0, CUT)

    def write(self, fd: int) -> int:
        """Write all notes for the parent; returns the number of requests."""
        with open(fd, "wb", closefd=False) as file:
            for column in self._columns:
                column.tofile(file)
        return len(self._columns[0])


class RequestLog:
    """Each request of the measured part of one load: an argument of `drive_load`, to read after it.

    The rows are those of the result's `measured` account: requests of the windows that completed or
    failed, in the drain too, and those that never ended (`cut`). Requests of the warm-up and of a
    lost worker are not in it. Another load starts the log anew.
    """

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._columns = [array(code) for code in COLUMNS]
        self._begin_ns = 0

    def open(self, workers: int) -> list[int]:
        """An empty file for each worker to write to: their descriptors."""
        self._columns = [array(code) for code in COLUMNS]
        self._fds = [anonymous_file() for _ in range(workers)]
        return list(self._fds)

    def take(self, written: Mapping[int, int], begin_ns: int) -> None:
        """Read the notes. `written`: worker -> number of requests. `begin_ns`: the first window's
        start (perf_counter). Raises BrokenAccount if a file has another length."""
        self._begin_ns = begin_ns
        for worker, count in sorted(written.items()):
            fd = self._fds[worker]
            held = os.lseek(fd, 0, os.SEEK_END)
            if held != count * ROW_BYTES:
                raise BrokenAccount(f"{held} bytes in the log of {count} requests")
            os.lseek(fd, 0, os.SEEK_SET)
            with open(fd, "rb", closefd=False) as file:
                for column in self._columns:
                    column.fromfile(file, count)

    def close(self) -> None:
        """Close the files; the rows stay."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def __len__(self) -> int:
        return len(self._columns[0])

    def rows(self) -> Iterator[LoggedRequest]:
        """The requests in the order of their ends, the cut ones last."""
        clients, dues, ends, statuses, classes = self._columns
        for i in sorted(range(len(self)), key=ends.__getitem__):
            latency_ns = ends[i] - dues[i] if ends[i] != NEVER else None
            start_ns = dues[i] - self._begin_ns
            yield LoggedRequest(clients[i], start_ns, latency_ns, statuses[i], CLASSES[classes[i]])
