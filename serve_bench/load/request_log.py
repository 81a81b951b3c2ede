"""The log of the single requests of a load: in the workers' memory, read by the parent at the end.

Rule: nothing is written while the load runs. A worker hands over its columns in a file without a
name, whose descriptor it has from the parent, so nothing is left when the processes have ended.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from serve_bench.core.load_result import ERROR_CLASSES
from serve_bench.load.failures import BrokenAccount
from serve_bench.load.tally import NEVER, make_anonymous_file

CUT = "cut"
"""The class of a request that was in flight when the measured part ended."""

UNSENT = "unsent"
"""The class of a request that was due, and still waited for a free connection then (open loop)."""

CLASSES: tuple[str | None, ...] = (None, *ERROR_CLASSES, CUT, UNSENT)

NUMBER_OF = {name: number for number, name in enumerate(CLASSES)}

COLUMNS: Final = "IqqqHB"
"""Type codes of client, due time, when it was sent, end (ns of perf_counter), status, class."""

STREAM_COLUMNS: Final = "qqI"
"""Type codes that streams add: first and latest event (ns of perf_counter), number of gaps between
events."""

GAPS: Final = "I"  # for each limit, how many gaps were longer


def make_columns(limits_ns: Sequence[int] | None) -> list[array[int]]:
    """Make the empty columns of a log; `limits_ns`: of gaps in streams, None without streams."""
    codes = COLUMNS
    if limits_ns is not None:
        codes += STREAM_COLUMNS + GAPS * len(limits_ns)
    return [array(code) for code in codes]


def write_columns(columns: Sequence[array[int]], fd: int) -> int:
    """Write all columns for the parent; return the number of rows."""
    with open(fd, "wb", closefd=False) as file:
        for column in columns:
            column.tofile(file)
    return len(columns[0])


class WorkerFiles:
    """The parent's side: a file for each worker of one load."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def _make_files(self, workers: int) -> list[int]:
        self._fds = [make_anonymous_file() for _ in range(workers)]
        return self._fds

    def _read(self, written: Mapping[int, int], columns: Sequence[array[int]]) -> None:
        """Append the rows `written` by each worker. Raises BrokenAccount at another length."""
        row_bytes = sum(column.itemsize for column in columns)
        for worker, count in sorted(written.items()):
            fd = self._fds[worker]
            held = os.lseek(fd, 0, os.SEEK_END)
            if held != count * row_bytes:
                raise BrokenAccount(f"{held} bytes in the log of {count} requests")
            os.lseek(fd, 0, os.SEEK_SET)
            with open(fd, "rb", closefd=False) as file:
                for column in columns:
                    column.fromfile(file, count)

    def close(self) -> None:
        """Close the files, which are then gone."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


class StreamTimes(NamedTuple):
    """The events of one request."""

    first_ns: int | None  # from its due time to the first event; None without any
    gaps: int  # between the events
    gaps_ns: int  # of all gaps together
    late: tuple[int, ...]  # for each limit of the log, how many gaps were longer


class LoggedRequest(NamedTuple):
    """One request of the windows. Times count from the start of the first window."""

    client: int  # the number of its connection over all workers, from 0
    start_ns: int  # when it was due
    latency_ns: int | None  # from then to its end; None if `cut` or `unsent`, which have none
    status: int  # of a whole response, else 0
    error: str | None  # None if it completed; one of ERROR_CLASSES, `cut` or `unsent`
    stream: StreamTimes | None = None  # of a load of streams alone
    sent_ns: int | None = None  # when it was sent for the last time; None if it never was


class Events:
    """The events of the stream in flight on a connection, for the log."""

    __slots__ = ("_first", "_gaps", "_last", "_late", "_limits_ns")

    def __init__(self, limits_ns: Sequence[int]) -> None:
        self._limits_ns = tuple(limits_ns)
        self._begin()

    def _begin(self) -> None:
        self._first = self._last = NEVER
        self._gaps = 0
        self._late = [0] * len(self._limits_ns)

    def add(self, now: int, count: int) -> None:
        """Count the events of one read: all but the first come 0 ns after the one before."""
        if self._first == NEVER:
            self._first = now
            self._gaps -= 1
        else:
            gap = now - self._last
            for number, limit_ns in enumerate(self._limits_ns):
                self._late[number] += gap > limit_ns
        self._last = now
        self._gaps += count

    def take(self) -> tuple[int, ...]:
        """Return the values of STREAM_COLUMNS and of the limits, and forget them."""
        values = (self._first, self._last, self._gaps, *self._late)
        self._begin()
        return values


class Notes:
    """The notes of a worker: 31 bytes per request; per stream 51, and 4 for each limit."""

    __slots__ = ("_class", "_client", "_columns", "_due", "_end", "_limits_ns", "_sent", "_status")

    def __init__(self, limits_ns: Sequence[int] | None = None) -> None:
        self._limits_ns = limits_ns
        self._columns = make_columns(limits_ns)  # plain arrays make no garbage
        appends = (column.append for column in self._columns[: len(COLUMNS)])
        self._client, self._due, self._sent, self._end, self._status, self._class = appends

    def events(self) -> Events | None:
        """Make the counter of a connection's events; None where responses are no streams."""
        return None if self._limits_ns is None else Events(self._limits_ns)

    def add(
        self, client: int, due: int, sent: int, end: int, status: int, error_class: str | None
    ) -> None:
        """Note a request that has ended for good: a retry is the same request.

        Without an end, `end` is NEVER and the class CUT; where `sent` is NEVER too, UNSENT."""
        self._client(client)
        self._due(due)
        self._sent(sent)
        self._end(end)
        self._status(status)
        self._class(NUMBER_OF[error_class])

    def add_events(self, values: Sequence[int]) -> None:
        """Note the events of that request; in a log of streams each has them."""
        for column, value in zip(self._columns[len(COLUMNS) :], values, strict=True):
            column.append(value)

    def write(self, fd: int) -> int:
        """Write all notes for the parent; return the number of requests."""
        return write_columns(self._columns, fd)


class LogOrder(NamedTuple):
    """The log of one worker: the descriptor of its file, and the limits of its `Notes`."""

    fd: int
    limits_ns: tuple[int, ...] | None


class RequestLog(WorkerFiles):
    """Each request of the measured part of one load: an argument of `drive_load`, to read after it.

    The rows are those of the result's `measured` account: requests of the windows that completed or
    failed, in the drain too, those that never ended (`cut`), and those that were never sent
    (`unsent`). Requests of the warm-up and of a lost worker are not in it. Another load starts the
    log anew. `limits_ns`: of the gaps between events of a stream, each counted on its own.
    """

    def __init__(self, limits_ns: Sequence[int] = ()) -> None:
        super().__init__()
        self._limits_ns = tuple(limits_ns)
        self._columns = make_columns(None)
        self._begin_ns = 0

    def open(self, workers: int, streams: bool = False) -> list[LogOrder]:
        """Make an empty file for each worker to write to. `streams`: responses are streams."""
        limits_ns = self._limits_ns if streams else None
        self._columns = make_columns(limits_ns)
        return [LogOrder(fd, limits_ns) for fd in self._make_files(workers)]

    def take(self, written: Mapping[int, int], begin_ns: int) -> None:
        """Read the notes. `begin_ns`: the first window's start. Raises BrokenAccount as `_read`."""
        self._begin_ns = begin_ns
        self._read(written, self._columns)

    def __len__(self) -> int:
        return len(self._columns[0])

    def rows(self) -> Iterator[LoggedRequest]:
        """Yield the requests in the order of their ends, those without one last."""
        clients, dues, sent, ends, statuses, classes, *streams = self._columns
        for i in sorted(range(len(self)), key=ends.__getitem__):
            latency_ns = ends[i] - dues[i] if ends[i] != NEVER else None
            start_ns = dues[i] - self._begin_ns
            error = CLASSES[classes[i]]
            stream = None
            if streams:
                first, last, gaps, *late = (column[i] for column in streams)
                first_ns = first - dues[i] if first != NEVER else None
                stream = StreamTimes(first_ns, gaps, last - first, tuple(late))
            sent_ns = sent[i] - self._begin_ns if sent[i] != NEVER else None
            about = (clients[i], start_ns, latency_ns, statuses[i], error, stream, sent_ns)
            yield LoggedRequest(*about)
