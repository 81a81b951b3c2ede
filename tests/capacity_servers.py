"""Simulated servers with a clock of their own and a known capacity, for the search.

Each server is asked for a launch, and the launch for probes: Poisson arrivals at a rate, served
first come, first served. Between probes the launch is idle for IDLE_S, as a client that connects
anew; time since the launch goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from serve_bench.analysis.capacity.model import Bound, Probe
from serve_bench.core.facts import SliceCounts

SLICE_S: Final = 0.5
IDLE_S: Final = 1.0
READY_S: Final = 5.0
"""The first probe begins so long after the launch at most."""

Array = np.ndarray[Any, np.dtype[np.float64]]

Answer = Callable[[Array, float, np.random.Generator], Array]
"""Latencies (s) of requests by their arrival (s since the launch), with the speed of the launch (1:
as the server is); infinite: refused."""


@dataclass(frozen=True)
class Server:
    """A service.

    `truth`: its capacity at `bounds` (requests/s), over launches the centre of their logarithms;
    `se`: the standard error of that as a share, 0 by a formula. `limit_s`: the latency beyond which
    a request is bad for the bound "latency". `spread`: the standard deviation of the logarithm of
    the speed of launches. `breaks`: at a higher arrival rate half of all requests are refused: a
    limit on a rate that is averaged over minutes.
    """

    name: str
    truth: float
    limit_s: float
    share: float
    answer: Answer
    se: float = 0.0
    spread: float = 0.0
    breaks: float = math.inf

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return Bound("latency", 1 - self.share), Bound("errors", 0.01)

    def launch(self, seed: int) -> Launch:
        return Launch(self, seed)


class Launch:
    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._random = np.random.default_rng([seed, len(server.name), *server.name.encode()])
        self.speed = math.exp(self._random.normal(0, server.spread)) if server.spread else 1.0
        self._now = self._random.uniform(0, READY_S)

    def probe(self, rate: float, seconds: float) -> Probe:
        """Run an open loop at `rate` for about `seconds`."""
        slices = max(1, round(seconds / SLICE_S))
        length = slices * SLICE_S
        due = np.sort(self._random.uniform(0, length, self._random.poisson(rate * length)))
        latency = self._server.answer(self._now + due, self.speed, self._random)
        if rate > self._server.breaks * self.speed:
            latency[self._random.uniform(size=len(due)) < 0.5] = math.inf
        at = np.minimum((due / SLICE_S).astype(int), slices - 1)
        answered = np.isfinite(latency)
        beyond = answered & (latency > self._server.limit_s)

        def sums(of: Any) -> tuple[float, ...]:
            return tuple(np.bincount(at[of], minlength=slices).astype(float).tolist())

        sent = np.ones(len(due), bool)
        counts = {
            "latency": SliceCounts(sums(answered), sums(beyond)),
            "errors": SliceCounts(sums(sent), sums(~answered)),
        }
        probe = Probe(rate, SLICE_S, counts, began_s=self._now)
        backlog = float(np.max(latency[answered] + due[answered], initial=length)) - length
        self._now += length + backlog + IDLE_S
        return probe


def queue(arrivals: Array, service: Array) -> Array:
    """Latencies of one server: D[i] = max(A[i], D[i-1]) + S[i] [Lindley 1952], at once."""
    total = np.cumsum(service)
    return np.asarray(total + np.maximum.accumulate(arrivals - total + service) - arrivals)


def m_m_1(mu: float) -> Answer:
    """Exponential service at `mu`/s."""
    return lambda due, speed, random: queue(due, random.exponential(1 / (mu * speed), len(due)))


def m_d_1(mu: float) -> Answer:
    """Service of 1/mu s."""
    return lambda due, speed, random: queue(due, np.full(len(due), 1 / (mu * speed)))


def m_m_2(mu: float) -> Answer:
    """Two servers of `mu`/s, one queue."""

    def answer(due: Array, speed: float, random: np.random.Generator) -> Array:
        service = random.exponential(1 / (mu * speed), len(due)).tolist()
        done, other = 0.0, 0.0  # when the servers are free; `done` the earlier
        out = []
        for at, takes in zip(due.tolist(), service, strict=True):
            done = (done if done > at else at) + takes
            out.append(done - at)
            if done > other:
                done, other = other, done
        return np.array(out)

    return answer


def stalls(mu: float, stall_s: float, every_s: float) -> Answer:
    """M/M/1 that stands still, clock and all, for `stall_s` at the end of every `every_s`."""
    works = every_s - stall_s

    def answer(due: Array, speed: float, random: np.random.Generator) -> Array:
        period, phase = np.divmod(due, every_s)
        clock = period * works + np.minimum(phase, works)
        done = clock + queue(clock, random.exponential(1 / (mu * speed), len(due)))
        return np.asarray(done + np.floor(done / works) * stall_s - due)

    return answer


def bucket(rate: float, burst: float, answer_s: float) -> Answer:
    """Answers in `answer_s`; 503 where a bucket of `burst` tokens, filled at `rate`, is empty."""

    def answer(due: Array, speed: float, random: np.random.Generator) -> Array:
        tokens, before = burst, 0.0
        out = []
        for at in due.tolist():
            tokens = min(burst, tokens + (at - before) * rate * speed)
            before = at
            if tokens >= 1:
                tokens -= 1
                out.append(answer_s)
            else:
                out.append(math.inf)
        return np.array(out)

    return answer


def at_once(answer_s: float) -> Answer:
    return lambda due, speed, random: np.full(len(due), answer_s)


def degrades(mu: float, slower: float, after_s: float) -> Answer:
    """M/M/1 whose service takes longer by the factor `slower` for what arrives after `after_s`."""

    def answer(due: Array, speed: float, random: np.random.Generator) -> Array:
        service = random.exponential(1 / (mu * speed), len(due))
        return queue(due, np.where(due < after_s, service, slower * service))

    return answer


def m_m_1_truth(mu: float, limit_s: float, share: float) -> float:
    """P(sojourn > t) = exp(-(mu - rate) t)."""
    return mu + math.log(1 - share) / limit_s


def m_m_2_truth(mu: float, limit_s: float, share: float) -> float:
    """Derive it from the sojourn time of M/M/2, its wait W and service S.

    P(W > t) = c exp(-a t), with a = 2 mu - rate, and c of Erlang; P(W + S > t) = (1 - c) exp(-mu t)
    + c (a exp(-mu t) - mu exp(-a t)) / (a - mu).
    """

    def beyond(rate: float) -> float:
        use, a = rate / (2 * mu), 2 * mu - rate
        c = 2 * use * use / (1 + use)
        served, wait = math.exp(-mu * limit_s), math.exp(-a * limit_s)
        return (1 - c) * served + c * (a * served - mu * wait) / (a - mu)

    return root(beyond, 1 - share, 1.0, 2 * mu - 1e-6)


def root(of: Callable[[float], float], value: float, low: float, high: float) -> float:
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < value else (low, middle)
    return (low + high) / 2


DEGRADED: Final = 1.1

SERVERS: Final = (
    Server("M/M/1", m_m_1_truth(1000, 0.02, 0.99), 0.02, 0.99, m_m_1(1000)),
    Server("M/D/1", 773.8, 0.01, 0.99, m_d_1(1000), se=0.0002),
    Server("M/M/2", m_m_2_truth(500, 0.02, 0.99), 0.02, 0.99, m_m_2(500)),
    Server("bucket", 766.9, 1.0, 0.99, bucket(800, 20, 0.005), se=0.0003),
    Server("breaks", 800.0, 1.0, 0.99, at_once(0.005), breaks=800.0),
    Server("stalls", 580.3, 0.1, 0.95, stalls(1000, 0.2, 5.0), se=0.0007),
    Server(
        "launches differ", m_m_1_truth(1000, 0.02, 0.99), 0.02, 0.99, m_m_1(1000), spread=0.0385
    ),
    Server(
        "degrades",
        m_m_1_truth(1000 / DEGRADED, 0.02, 0.99),
        0.02,
        0.99,
        degrades(1000, DEGRADED, 20.0),
    ),
)
"""Those of the table. Where launches differ, their capacities do by 5 %: 1,000 / 770 times as much
as their speeds. The truths without a formula are of loads of 10,000 to 60,000 s a rate."""

HARD: Final = (
    Server("95 % use", m_m_1_truth(1000, 0.1, 0.99), 0.1, 0.99, m_m_1(1000)),
    Server("60/s", m_m_1_truth(60, 0.4, 0.99), 0.4, 0.99, m_m_1(60)),
)
"""M/M/1 of which 120 s of a launch see little: its queue takes seconds to grow, or few requests are
bad. Their intervals are known to hold the truth less often."""
