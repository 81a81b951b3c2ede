"""A server whose capacity changes at known moments and which drops known requests.

Requests depart by Lindley's recursion over its slots, whose number is that of a schedule on the
clock of the load (`begin` is an `on_measure`), so what a request waits is known however busy the
host is; only its answer may be late. It serves in a thread of the test.
"""

import time
from collections.abc import Collection, Sequence
from typing import Self

from tests.servers import OK, Steps, serving


class SteppedServer:
    """A server of known slots: (second, number) in order, the first at 0 or before.

    A request takes `service_s` of a slot. `drops`: the numbers, from 0, of the requests behind
    `begin` that are cut off.
    """

    def __init__(
        self, slots: Sequence[tuple[float, int]], service_s: float, drops: Collection[int] = ()
    ) -> None:
        self.slots, self.service_s, self.drops = list(slots), service_s, set(drops)
        self.dropped: list[int] = []
        self._zero = float("inf")
        self._free: list[float] = [0.0] * self.slots[0][1]
        self._later = self.slots[1:]
        self._number = 0
        self._serving = serving(steps=self._answer)
        self.url = ""

    def begin(self, measure_ns: int) -> None:
        """Start the clock of the schedule at this moment (perf_counter_ns)."""
        self._zero = measure_ns / 1e9

    def __enter__(self) -> Self:
        self.url = self._serving.__enter__().url
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    def _answer(self, number: int) -> Steps:
        now = time.perf_counter()
        departs = self.departure(now)
        return [(0.0, b"")] if departs is None else [(departs - now, OK)]

    def departure(self, now: float) -> float | None:
        """When a request that comes now has its answer; None: it is dropped."""
        if now >= self._zero:
            self._number += 1
            if self._number - 1 in self.drops:
                self.dropped.append(self._number - 1)
                return None
        while self._later and now - self._zero >= self._later[0][0]:
            second, number = self._later.pop(0)
            self._free += [self._zero + second] * (number - len(self._free))
        place = min(range(len(self._free)), key=self._free.__getitem__)
        self._free[place] = max(self._free[place], now) + self.service_s
        return self._free[place]
