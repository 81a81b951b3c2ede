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
from serve_bench.load.tally import NEVER, anonymous_file

CUT = "cut"
"""The class of a request that was in flight when the measured part ended."""

UNSENT = "unsent"
"""The class of a request that was due, and still waited for a free connection then (open loop)."""

CLASSES: tuple[str | None, ...] = (None, *ERROR_CLASSES, CUT, UNSENT)

NUMBER_OF = {name: number for number, name in enumerate(CLASSES)}

COLUMNS: Final = "IqqqHB"
"""Type codes of client, due time, when it was sent, end (ns of perf_counter), status, class."""

STREAM_COLUMNS: Final = "qqI"
"""Of a log of streams also: the first and the latest event (ns of perf_counter), how many gaps lie
between. Then for each limit how many gaps were longer."""

GAPS: Final = "I"


def columns_of(limits_ns: Sequence[int] | None) -> list[array[int]]:
    """Empty columns of a log; `limits_ns`: of gaps between events, None where responses are no
    streams."""
    codes = COLUMNS
    if limits_ns is not None:
        codes += STREAM_COLUMNS + GAPS * len(limits_ns)
    return [array(code) for code in codes]


def write_columns(columns: Sequence[array[int]], fd: int) -> int:
    """Writes all columns for the parent; returns the number of rows."""
    with open(fd, "wb", closefd=False) as file:
        for column in columns:
            column.tofile(file)
    return len(columns[0])


class WorkerFiles:
    """The parent's side: a file for each worker of one load."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def _make_files(self, workers: int) -> list[int]:
        self._fds = [anonymous_file() for _ in range(workers)]
        return self._fds

    def _read(self, written: Mapping[int, int], columns: Sequence[array[int]]) -> None:
        """Adds what the workers wrote to the columns. `written`: worker -> number of rows. Raises
        BrokenAccount if a file has another length."""
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
        """Closes the files, which are gone then."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


class StreamTimes(NamedTuple):
    """The events of one request: `first_ns` from its due time to the first one, None without any;
    `gaps` between them, of `gaps_ns` together; `late`: for each limit of the log, how many of them
    were longer."""

    first_ns: int | None
    gaps: int
    gaps_ns: int
    late: tuple[int, ...]


class LoggedRequest(NamedTuple):
    """One request. `client`: the number of its connection over all workers, from 0.

    `start_ns`: when it was due, since the first window's start.
    `latency_ns`: from then to its end; None for one that is `cut` or `unsent`, which had none.
    `status`: of a whole response, else 0. `error`: None for a completed request, one of
    ERROR_CLASSES, `cut` or `unsent`. `stream`: of a load of streams alone. `sent_ns`: when it was
    sent for the last time, since the first window's start; None for one that never was.
    """

    client: int
    start_ns: int
    latency_ns: int | None
    status: int
    error: str | None
    stream: StreamTimes | None = None
    sent_ns: int | None = None


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
        """So many events came in one read: all but the first of them 0 ns after the one before."""
        if self._first == NEVER:
            self._first = now
            self._gaps -= 1
        else:
            gap = now - self._last
            for at, limit_ns in enumerate(self._limits_ns):
                self._late[at] += gap > limit_ns
        self._last = now
        self._gaps += count

    def take(self) -> tuple[int, ...]:
        """The values of STREAM_COLUMNS and of the limits. The next request begins without any."""
        values = (self._first, self._last, self._gaps, *self._late)
        self._begin()
        return values


class Notes:
    """The notes of a worker in plain arrays, which make no garbage: 31 bytes a request, 51 of a
    stream and 4 for each limit. `limits_ns`: as in `columns_of`."""

    __slots__ = ("_class", "_client", "_columns", "_due", "_end", "_limits_ns", "_sent", "_status")

    def __init__(self, limits_ns: Sequence[int] | None = None) -> None:
        self._limits_ns = limits_ns
        self._columns = columns_of(limits_ns)
        appends = (column.append for column in self._columns[: len(COLUMNS)])
        self._client, self._due, self._sent, self._end, self._status, self._class = appends

    def events(self) -> Events | None:
        """For a connection, to count the events of its streams; None where there are none."""
        return None if self._limits_ns is None else Events(self._limits_ns)

    def add(
        self, client: int, due: int, sent: int, end: int, status: int, error_class: str | None
    ) -> None:
        """A request has ended for good: a retry is the same request. `end` is NEVER, and the class
        CUT, where the measured part is over with it in flight; `sent` too, and the class UNSENT,
        where it still waits for a connection."""
        self._client(client)
        self._due(due)
        self._sent(sent)
        self._end(end)
        self._status(status)
        self._class(NUMBER_OF[error_class])

    def add_events(self, values: Sequence[int]) -> None:
        """The events of that request; in a log of streams each has them."""
        for column, value in zip(self._columns[len(COLUMNS) :], values, strict=True):
            column.append(value)

    def write(self, fd: int) -> int:
        """Write all notes for the parent; returns the number of requests."""
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
        self._columns = columns_of(None)
        self._begin_ns = 0

    def open(self, workers: int, streams: bool = False) -> list[LogOrder]:
        """An empty file for each worker to write to. `streams`: responses are."""
        limits_ns = self._limits_ns if streams else None
        self._columns = columns_of(limits_ns)
        return [LogOrder(fd, limits_ns) for fd in self._make_files(workers)]

    def take(self, written: Mapping[int, int], begin_ns: int) -> None:
        """Read the notes. `written`: worker -> number of requests. `begin_ns`: the first window's
        start (perf_counter). Raises BrokenAccount if a file has another length."""
        self._begin_ns = begin_ns
        self._read(written, self._columns)

    def __len__(self) -> int:
        return len(self._columns[0])

    def rows(self) -> Iterator[LoggedRequest]:
        """The requests in the order of their ends, those without one last."""
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
