"""Which requests of a worker carry a `traceparent`, and their times at the client.

Rule: the short path of the raw client knows nothing of traces. Every 10 ms some connections leave
it, and their next requests are traced: so a request is chosen by its turn, not by how long it
takes, and all others cost what they cost without. An open loop chooses as requests begin, by the
times that they were due: those that wait behind a stall begin at once, and have their share.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from serve_bench.core.marks import TracedRequest
from serve_bench.load.request_log import WorkerFiles, write_columns

COLUMNS: Final = "QqqqqH"
"""Type codes of number, due, sent, first byte, end (ns of perf_counter), status (0: failed)."""

WORKER_SHIFT: Final = 48
"""The number of a trace: the worker's above these bits, then a count."""


class TraceOrder(NamedTuple):
    """What one worker is to trace."""

    fd: int
    prefix: str  # the first half of all ids of the load
    share: float  # of the worker's requests
    per_s: float  # requests, at least


def format_trace_id(prefix: str, number: int) -> str:
    """Return the id of a trace, as W3C Trace Context has it: 32 hexadecimal digits."""
    return f"{prefix}{number:016x}"


class Traces:
    """The traces of one worker, in plain arrays."""

    def __init__(self, order: TraceOrder, worker: int) -> None:
        self._order = order
        self._next = (worker << WORKER_SHIFT) + 1
        self._columns = [array(code) for code in COLUMNS]
        self._earned_at = 0
        self._completed = 0
        self.due = 0.0
        """How many requests are to be traced now."""
        self._headers: deque[tuple[int, bytes]] = deque()  # made ahead: no request waits for it

    def earn(self, now: int, completed: int) -> None:
        """Earn traces by time and by requests `completed` so far (closed loop, every 10 ms)."""
        if self._earned_at:
            earned = self._order.share * (completed - self._completed)
            least = self._order.per_s * (now - self._earned_at) / 1e9
            # Traces that cannot be made soon are given up: a burst would be no sample. But slow
            # requests that end together earn at once the traces of the next ones.
            self.due = max(
                self.due, min(self.due + max(earned, least), 1.0 + 2 * max(earned, least))
            )
        self._earned_at, self._completed = now, completed
        while len(self._headers) < self.due:
            self._headers.append(self._header())

    def earn_by(self, due: int) -> None:
        """Earn traces by a request of an open loop as it begins. `due`: when it was due."""
        if self._earned_at:
            least = self._order.per_s * (due - self._earned_at) / 1e9
            self.due = min(self.due + max(self._order.share, least), 2.0)  # one each, at most
        self._earned_at = due

    def traced(self, request: bytes) -> tuple[bytes, int]:
        """Return the request with its own `traceparent`, and the number of its trace."""
        self.due -= 1.0
        number, header = self._headers.popleft() if self._headers else self._header()
        line = request.index(b"\r\n") + 2
        return request[:line] + header + request[line:], number

    def _header(self) -> tuple[int, bytes]:
        number, self._next = self._next, self._next + 1
        ids = f"{format_trace_id(self._order.prefix, number)}-{number:016x}"
        return number, f"traceparent: 00-{ids}-01\r\n".encode()

    def add(self, number: int, due: int, sent: int, first: int, end: int, status: int) -> None:
        """Keep the row of a traced request (COLUMNS). `first` 0: no byte came before its end."""
        row = (number, due, sent, first or end, end, status)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def write(self) -> int:
        """Write all rows for the parent; return their number."""
        return write_columns(self._columns, self._order.fd)


class TraceLog(WorkerFiles):
    """The traced requests of one load: an argument of `drive_load`, to read after it."""

    def __init__(self, share: float, per_s: float) -> None:
        super().__init__()
        self._share, self._per_s = share, per_s
        self._prefix = os.urandom(8).hex()
        self.requests: tuple[TracedRequest, ...] = ()

    def open(self, workers: int) -> list[TraceOrder]:
        """Make the orders of each worker, with a file to write to."""
        fds, per_s = self._make_files(workers), self._per_s / workers
        return [TraceOrder(fd, self._prefix, self._share, per_s) for fd in fds]

    def take(self, written: Mapping[int, int]) -> None:
        """Read the `requests` that the workers have written. Raises BrokenAccount as `_read`."""
        columns = [array(code) for code in COLUMNS]
        self._read(written, columns)
        rows = [
            TracedRequest(format_trace_id(self._prefix, number), *rest)
            for number, *rest in zip(*columns, strict=True)
        ]
        self.requests = tuple(sorted(rows, key=lambda request: request.due_ns))
