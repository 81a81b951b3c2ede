"""Running totals of a replica, in memory mapped from a file, which is read without asking it.

What replicas that batch have in common is here too. A file is named by the pid, in a folder of the
launch; it holds 8-byte numbers: the first a total, then one for each batch size. Without a folder
there is no file. How they are read: core/usage.py.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "SERVE_BENCH_COUNTS"
"""The variable that names the folder of requests and batches; the parent makes it."""

FORWARD_SUFFIX = "-forward-ns"
"""Beside that folder, with this ending: nanoseconds in the model, in all and by batch size. A
replica makes it."""


def fill(fd: int, size: int) -> None:
    """Write zeros up to a size, before a file is mapped. Raises OSError.

    Written, not only made longer: to write to a mapped page that a full disk cannot hold kills.
    """
    while (missing := size - os.fstat(fd).st_size) > 0:
        os.write(fd, bytes(missing))


class ReplicaTally:
    """Numbers by place, 0 first. To add to one costs 0.1 us."""

    def __init__(self, folder: str | None) -> None:
        self._fd = -1
        if folder is not None:
            Path(folder).mkdir(exist_ok=True)
            how = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._fd = os.open(os.path.join(folder, str(os.getpid())), how, 0o600)
        self._slots = memoryview(bytearray(16)).cast("Q")
        self.make_room(1)

    def make_room(self, largest: int) -> None:
        """Make room for places up to `largest`; the present numbers stay."""
        size = 8 * (largest + 1)
        if self._fd < 0:
            fresh = memoryview(bytearray(max(size, self._slots.nbytes))).cast("Q")
            fresh[: len(self._slots)] = self._slots
            self._slots = fresh
            return
        fill(self._fd, size)
        self._slots = memoryview(mmap.mmap(self._fd, os.fstat(self._fd).st_size)).cast("Q")

    def add(self, place: int, amount: int = 1) -> None:
        """Add to the number at a place."""
        self._slots[place] += amount


class SharedTally(ReplicaTally):
    """A tally for several threads at once: no addition of one is lost to another's."""

    def __init__(self, folder: str | None) -> None:
        self._turn = threading.Lock()
        super().__init__(folder)

    def make_room(self, largest: int) -> None:
        """Make room as ReplicaTally does; additions of other threads meanwhile are kept."""
        with self._turn:
            super().make_room(largest)

    def add(self, place: int, amount: int = 1) -> None:
        with self._turn:
            super().add(place, amount)


def folders() -> tuple[str | None, str | None]:
    """Return the folders of this launch: of requests and batches, and of ns in the model."""
    folder = os.environ.get(FOLDER)
    return folder, None if folder is None else folder + FORWARD_SUFFIX


class Batching:
    """A replica whose method `_batched` is a `serve.batch`, used when max_batch_size is above 1."""

    _batched: Any
    _max_batch_size = 1
    _by_size: tuple[ReplicaTally, ...]  # what it counts by the size of batches

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Take max_batch_size and batch_wait_timeout_s from user_config, without a restart."""
        for tally in self._by_size:
            tally.make_room(int(config["max_batch_size"]))
        self._max_batch_size = int(config["max_batch_size"])
        self._batched.set_max_batch_size(self._max_batch_size)
        self._batched.set_batch_wait_timeout_s(float(config["batch_wait_timeout_s"]))

    def settings(self) -> dict[str, Any]:
        """Return what this replica uses now, for the proof."""
        return {
            "max_batch_size": self._max_batch_size,
            "queue_max_batch_size": self._batched._get_max_batch_size(),
            "batch_wait_timeout_s": self._batched._get_batch_wait_timeout_s(),
        }
