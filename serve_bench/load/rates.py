"""The rate of single connections: how many requests one completed in an interval of 100 ms.

wrk tells such rates of its threads ("Thread Stats, Req/Sec"), and published benchmarks of Serve
are tables of them. Rule: time is passed in, and the counts are the connections' own (`ended_well`,
which both paths of the raw client keep up while rates are asked for).
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_bench.load.connection import Connection

INTERVAL_NS = 100_000_000
"""As long as wrk's. A look that comes late makes its interval longer, and the rate counts that."""


class ConnectionRates:
    """The highest rate of one connection in one interval of the measured part.

    `highest`: requests/s; None until an interval has ended.
    """

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._counts: list[int] = []
        self._since = 0
        self._due = 0
        self.highest: float | None = None

    def begin(self, now: int) -> None:
        """The measured part begins."""
        self._counts = [conn.ended_well for conn in self._connections]
        self._since = now
        self._due = now + INTERVAL_NS

    def look(self, now: int) -> None:
        """End the interval, if it is over. Costs nothing before it is."""
        if not self._due or now < self._due:
            return
        counts = [conn.ended_well for conn in self._connections]
        most = max(after - before for before, after in zip(self._counts, counts, strict=True))
        rate = most * 1e9 / (now - self._since)
        self.highest = rate if self.highest is None else max(rate, self.highest)
        self._counts, self._since = counts, now
        while self._due <= now + INTERVAL_NS // 2:
            self._due += INTERVAL_NS

    def end(self) -> None:
        """The measured part is over: what has begun of an interval is left out."""
        self._due = 0
