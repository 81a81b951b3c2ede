"""The memory that the parent and its workers share: a few control words, live counters, histograms.

Rule: each word has one writer. The parent writes the control words; a worker writes its own
boards. A board is the account of one target in one worker. The file behind the memory has no
name (memfd, else an unlinked temporary file), so nothing is left when the processes are gone.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from serve_bench.core.histogram import SLOTS, Histogram

START, MEASURE, ABORT = 0, 1, 2
"""Control words: the instant of the first request, that of the first window (perf_counter_ns,
one clock for all processes on Linux; 0 means not known yet), and 1 to end at once."""

CONTROL_WORDS = 8

SENT, COMPLETED, FAILED, MEASURING, LEFT = 0, 1, 2, 3, 4
"""Live counters of a board, brought up to date every few milliseconds. LEFT: in the drain, the
requests that have not ended."""

LIVE_WORDS = 8

KINDS = ("equal", "latency", "service_time", "send_lag", "pickup", "failed_latency", "censored")
"""Histograms of a board. `equal` holds the values that are latency and service time alike, so that
the closed loop records one value a request; the parent adds it to both."""

PARTS: tuple[str, ...] = ("rest", "measured")
"""Each histogram exists twice: of the requests of the windows, and of all others."""

HISTOGRAM_WORDS = 1 + SLOTS
"""The exact maximum, then the slots."""

BOARD_WORDS = LIVE_WORDS + len(PARTS) * len(KINDS) * HISTOGRAM_WORDS


class Shared:
    """The memory as 64-bit words. The parent makes it with `create`, a worker with `attach`."""

    def __init__(self, fd: int, boards: int) -> None:
        self.fd = fd
        self.boards = boards
        self._map = mmap.mmap(fd, shared_bytes(boards))
        self.words = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls, boards: int) -> Shared:
        """New memory, all zero, with room for so many boards."""
        fd = anonymous_file()
        os.ftruncate(fd, shared_bytes(boards))
        return cls(fd, boards)

    @classmethod
    def attach(cls, fd: int, boards: int) -> Shared:
        """The memory behind a file descriptor that the parent handed down."""
        return cls(fd, boards)

    def live(self, board: int) -> memoryview[int]:
        """The live counters of a board."""
        base = CONTROL_WORDS + board * BOARD_WORDS
        return self.words[base : base + LIVE_WORDS]

    def histogram(self, board: int, part: str, kind: str) -> memoryview[int]:
        """The words of one histogram: its maximum, then its slots."""
        which = PARTS.index(part) * len(KINDS) + KINDS.index(kind)
        base = CONTROL_WORDS + board * BOARD_WORDS + LIVE_WORDS + which * HISTOGRAM_WORDS
        return self.words[base : base + HISTOGRAM_WORDS]

    def read(self, board: int, part: str, kind: str) -> Histogram:
        """A copy of one histogram."""
        words = self.histogram(board, part, kind).tolist()
        return Histogram(words[1:], words[0])

    def total(self, counter: int) -> int:
        """A live counter, summed over all boards."""
        return sum(self.live(board)[counter] for board in range(self.boards))

    def close(self) -> None:
        """Close the file. The memory itself goes when its last view does."""
        os.close(self.fd)


def shared_bytes(boards: int) -> int:
    """The size of the memory."""
    return 8 * (CONTROL_WORDS + boards * BOARD_WORDS)


def anonymous_file() -> int:
    """The descriptor of a new, empty file that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("load", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd
