"""The wait of an open loop for a free connection of our own: the client's limit, not the service's.

Pure. The wait is in the latency, since a user who cannot connect waits too; but no service can be
blamed for it, and more connections may end it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.statistics import CENSORED, LATENCY, merged, read_rate
from serve_bench.core.figures import figure, part_text
from serve_bench.core.result import Trial
from serve_bench.core.slo import time_text

ON_TIME: Final = 0.02
"""An open loop keeps up if the backlog grew by no more than 2 % of its due requests over the
windows; that of a server that falls behind grows with every second."""

HINT: Final = "more connections (load: --max-connections); a service at its limit lets them wait"

NOTED: Final = 0.10
"""The least share of the latency that is worth a warning, where the rate was kept: as of all that
the client adds (load/merge.py)."""


@dataclass(frozen=True)
class ConnectionWait:
    """The wait for a connection in a trial; times are means over the requests."""

    due: float  # requests/s within the windows
    sent: float  # likewise
    connections: int  # how many there were
    wait_ns: float
    latency_ns: float
    service_ns: float

    @property
    def missed(self) -> bool:
        """Whether fewer requests were sent than were due."""
        return falls_short(self.sent, self.due)

    @property
    def part_text(self) -> str:
        """`5.49 of 5.68 s are the wait for them`."""
        which = "it" if self.connections == 1 else "them"
        return f"{part_text(self.wait_ns, self.latency_ns)} are the wait for {which}"

    @property
    def text(self) -> str:
        """What the wait did to the load, in one sentence."""
        several = f"all {self.connections:,} connections were"
        subject = "the only connection was" if self.connections == 1 else several
        took = f"{self.part_text}, the service took {time_text(float(f'{self.service_ns:.2g}'))}"
        if not self.missed:
            return f"{subject} busy at times: {took}"
        sent = f"{figure(self.sent)} of {figure(self.due)} requests/s could be sent: {subject} busy"
        # If each request holds a connection for as long as now.
        needed = max(self.connections + 1, math.ceil(self.connections * self.due / self.sent))
        return f"{sent}; {took}; {figure(self.due)}/s need {needed:,} connections or more"


def falls_short(sent: float, due: float) -> bool:
    """Return whether fewer requests were sent than were due, by more than ON_TIME."""
    return sent < (1 - ON_TIME) * due


def connection_wait(trial: Trial) -> ConnectionWait | None:
    """Return the wait of a trial for connections.

    None unless the rate was missed for it or it was more than NOTED of the latency, or where it is
    not known. Raises FormatError where a histogram cannot be read."""
    waited, within, counts = trial.client.waited, trial.client.in_windows, trial.counts
    seconds = read_rate(trial).seconds
    if trial.row.loop != "open" or waited is None or within is None or seconds <= 0:
        return None
    lag, answered = merged([trial], "send_lag"), merged([trial], LATENCY)
    latency = answered.joined(merged([trial], CENSORED))
    service, rest = merged([trial], "service_time"), lag.without_highest(waited)
    if not waited + counts.unsent or not service.count or not within.sent:
        return None
    waits_ns = (lag.mean or 0.0) * lag.count - (rest.mean or 0.0) * rest.count
    due = (counts.sent + counts.unsent) / seconds
    if trial.client.asked.count:  # all are sent, and it takes longer
        due = trial.row.rate_per_s or due
    found = ConnectionWait(
        due=due,
        sent=within.sent / seconds,
        connections=sum(worker.connections for worker in trial.client.workers),
        wait_ns=waits_ns / max(1, lag.count),
        latency_ns=latency.mean or 0.0,
        service_ns=service.mean or 0.0,
    )
    return found if found.missed or found.wait_ns > NOTED * found.latency_ns else None
