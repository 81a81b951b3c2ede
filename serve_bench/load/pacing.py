"""When the next request of an open loop is due. Pure: numbers in, numbers out.

Rule: due times are counted from the start of the load and depend on nothing that happens in it.
That keeps coordinated omission out: a stalled server does not make requests due later.

Both kinds of arrivals come from one idea. Let N(t) be the expected number of requests up to time t:
the integral of the rate. A constant pace sends at N(t) = 0, 1, 2 ...; a Poisson process of
that (changing) rate sends at N(t) = sums of exponential steps of mean 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serve_bench.core.load_spec import Arrivals, Stage


@dataclass(frozen=True)
class Segment:
    """A stretch of time in which the rate changes linearly.

    `begin` and `duration` in seconds; `rate` and `slope` in requests/s and requests/s per second;
    `expected` is N at its begin.
    """

    begin: float
    duration: float
    rate: float
    slope: float
    expected: float

    @property
    def gain(self) -> float:
        """How many requests are expected within it."""
        return self.duration * (self.rate + self.slope * self.duration / 2)

    def when(self, n: float) -> float:
        """The time (s) at which N reaches `n`: solves slope/2 t^2 + rate t = n - expected.

        Written so that nothing cancels when the slope is near 0 (Numerical Recipes, 5.6).
        """
        more = n - self.expected
        root = math.sqrt(max(0.0, self.rate * self.rate + 2 * self.slope * more))
        return self.begin + (2 * more / (self.rate + root) if more > 0 else 0.0)


def segments(stages: Sequence[Stage], ramp: bool = False) -> list[Segment]:
    """The course of the rate. With `ramp` it moves linearly from each stage's rate to the next.

    The first stage holds its rate; each later one begins at the former rate and ends at its own.
    """
    out: list[Segment] = []
    begin = expected = 0.0
    before = stages[0].rate
    for stage in stages:
        first = before if ramp else stage.rate
        slope = (stage.rate - first) / stage.duration_s
        out.append(Segment(begin, stage.duration_s, first, slope, expected))
        begin += stage.duration_s
        expected += out[-1].gain
        before = stage.rate
    return out


def rate_at(stages: Sequence[Stage], ramp: bool, t: float) -> float:
    """The rate (requests/s) at time `t` (s) since the start; 0 after the last stage."""
    for segment in segments(stages, ramp):
        if t < segment.begin + segment.duration:
            return segment.rate + segment.slope * (t - segment.begin)
    return 0.0


def _steps(arrivals: Arrivals, seed: int, worker: int, workers: int) -> Iterator[float]:
    """The values of N at which one of several workers sends, for ever."""
    if arrivals == "constant":
        n = float(worker)
        while True:
            yield n
            n += workers
    draw = random.Random(f"{seed}/{worker}").expovariate
    total = 0.0
    while True:
        total += draw(1.0) * workers
        yield total


def due_times(
    stages: Sequence[Stage],
    arrivals: Arrivals = "constant",
    ramp: bool = False,
    seed: int = 1,
    worker: int = 0,
    workers: int = 1,
) -> Iterator[int]:
    """When this worker's requests are due, in ns since the start; ends with the last stage.

    The workers share the rate: constant arrivals are dealt out in turn, and a Poisson process is
    the sum of independent ones of a smaller rate. The same seed gives the same times.
    """
    course = segments(stages, ramp)
    steps = _steps(arrivals, seed, worker, workers)
    n = next(steps)
    for segment in course:
        last = segment is course[-1]
        limit = segment.expected + segment.gain
        if segment.slope == 0:
            # The usual case, kept cheap: it runs once for each request.
            begin, expected, ns = segment.begin * 1e9, segment.expected, 1e9 / segment.rate
            while n < limit:
                yield int(begin + (n - expected) * ns)
                n = next(steps)
        else:
            while n < limit:
                yield int(segment.when(n) * 1e9)
                n = next(steps)
        if last:
            return
