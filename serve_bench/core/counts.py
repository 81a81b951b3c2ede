"""What the replicas of an app count by themselves: requests taken, and batches by their size.

A replica keeps its counts in a file named by its pid, in the folder of the launch: 8-byte numbers,
the first the requests, then the batches of 1, of 2, of 3 ... A model's time stands in the same form
in a folder beside: the first is the whole. They are running totals, exact at any
moment, and to read them asks nothing of the replica. Rule: an app that keeps none has none, which
is not 0. Pure: who counts is in apps/, who reads the files is server.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from serve_bench.core.histogram import SLOTS, Histogram, slot
from serve_bench.core.result import Metric

FOLDER: Final = "SERVE_BENCH_COUNTS"
"""The variable that tells a replica the folder."""

FORWARD_SUFFIX: Final = "-forward-ns"
"""Beside that folder, with this ending: nanoseconds in the model, in all and by batch size."""

BATCH_SIZE: Final = "batch_size"
"""The metric of a trial that holds the sizes of all its batches."""

UNIT: Final = "requests"


@dataclass(frozen=True)
class Counts:
    """Running totals of one replica: requests taken, and batches by their size."""

    requests: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)


def counts_of(content: bytes) -> Counts:
    """The numbers of one file, in the byte order of this machine; a torn end is left out."""
    numbers = memoryview(content[: len(content) // 8 * 8]).cast("Q")
    batches = {size: count for size, count in enumerate(numbers) if size and count}
    return Counts(numbers[0], batches) if len(numbers) else Counts()


@dataclass(frozen=True)
class Served:
    """What replicas took in a span: requests by pid, and batches of all of them by size."""

    requests: Mapping[int, int] = field(default_factory=dict)
    batches: Mapping[int, int] = field(default_factory=dict)
    forward_ns: Mapping[int, int] = field(default_factory=dict)  # in the model, by batch size

    @property
    def forward(self) -> dict[str, list[int]]:
        """For the record of a trial: by batch size the batches, and nanoseconds in the model."""
        return {
            str(size): [self.batches.get(size, 0), ns]
            for size, ns in sorted(self.forward_ns.items())
        }

    @property
    def by_replica(self) -> dict[str, int]:
        """For the record of a trial."""
        return {f"replica {pid}": count for pid, count in self.requests.items()}

    @property
    def batch_sizes(self) -> Metric | None:
        """The sizes as a histogram, exact below 2,048; None if no batch was formed."""
        if not self.batches:
            return None
        slots = [0] * SLOTS
        for size, count in self.batches.items():
            slots[slot(size)] += count
        histogram = Histogram(slots, max(self.batches), UNIT)
        return Metric(UNIT, "higher", histogram=histogram.encode())


def grown(
    before: Mapping[int, Counts], after: Mapping[int, Counts], replicas: Iterable[int]
) -> Served:
    """What grew in a span. `replicas`: those that are there now; one that has counts and took no
    request stands with 0, and one that took some and ended stands too."""
    now = set(replicas)
    requests: dict[int, int] = {}
    batches: Counter[int] = Counter()
    for pid, counts in sorted(after.items()):
        former = before.get(pid, Counts())
        taken = counts.requests - former.requests
        if taken or pid in now:
            requests[pid] = taken
        for size, count in counts.batches.items():
            batches[size] += count - former.batches.get(size, 0)
    return Served(requests, {size: count for size, count in sorted(batches.items()) if count})


def mean_forward_ns(forwards: Iterable[Mapping[str, Sequence[int]]]) -> float | None:
    """Nanoseconds in the model for a batch, over all batches of these records; None without any."""
    every = [pair for forward in forwards for pair in forward.values()]
    batches = sum(count for count, _ in every)
    return sum(ns for _, ns in every) / batches if batches else None
