"""What several trials of one cell tell that one cannot: does the server follow a growing load?

Ray Serve's performance tuning page (docs.ray.io/en/latest/serve/advanced-guides/performance.html)
names two signs of a service at its limit: the router's count of requests stays constant while the
load increases, and the processing latency climbs as queries queue up. Rule: only loads of the same
client are compared. The client's requests stand for the router's, which count as fresh only when
they are the same (serve_metrics.py); without Serve's metrics the client's latency stands for that
of processing, and the symptom says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from serve_bench.analysis.statistics import latency_figures
from serve_bench.analysis.verdict.evidence import rate_of
from serve_bench.analysis.verdict.limits import FLAT, FOLLOWS, STEP
from serve_bench.analysis.verdict.usage import figure
from serve_bench.core.result import Trial

Sign: TypeAlias = Literal["constant requests", "climbing latency"]


@dataclass(frozen=True)
class Symptom:
    """A sign between two loads of a ladder. `source`: "replica" or "client", who measured it."""

    sign: Sign
    clients: tuple[int, int]
    figures: tuple[float, float]  # requests/s, or ms
    source: str

    @property
    def text(self) -> str:
        """The symptom in one line."""
        (low, high), (before, after) = self.clients, self.figures
        unit = "requests/s" if self.sign == "constant requests" else "ms"
        change = f"{figure(before)} -> {figure(after)} {unit}"
        return f"{self.sign}: {change} from {low} to {high} clients, by the {self.source}"


def comparable(trial: Trial, others: Iterable[Trial]) -> list[Trial]:
    """Those of the same launch, variant, cell, client and data, in a closed loop, the fewest
    clients first; the trial itself among them."""
    found = [
        other
        for other in others
        if (other.launch, other.variant, other.cell) == (trial.launch, trial.variant, trial.cell)
        and other.row.loop == trial.row.loop == "closed"
        and (other.row.client, other.row.data_size) == (trial.row.client, trial.row.data_size)
        and not other.profiled
        and other.key != trial.key
    ]
    return sorted([*found, trial], key=lambda one: one.row.connections)


def symptoms(trials: Sequence[Trial]) -> tuple[Symptom, ...]:
    """The signs in the trials of one cell, each between the load from which on it holds and the
    heaviest. Empty where the server follows, or where there is no load of twice the clients."""
    if not trials:
        return ()
    last = max(trials, key=lambda one: one.row.connections)
    ladder = comparable(last, trials)
    return tuple(found for found in (constant(last, ladder), climbing(last, ladder)) if found)


def constant(trial: Trial, ladder: Sequence[Trial]) -> Symptom | None:
    """Requests that stay the same up to this trial, from the lightest load on for which they do."""
    top = rate_of(trial)
    for low in _lighter(trial, ladder):
        before = rate_of(low)
        if before > 0 and abs(top / before - 1.0) <= FLAT:
            clients = (low.row.connections, trial.row.connections)
            return Symptom("constant requests", clients, (before, top), "client")
    return None


def climbing(trial: Trial, ladder: Sequence[Trial]) -> Symptom | None:
    """A latency that grows as the clients do: what is added waits in a queue."""
    by_replica = all(_processing_ms(one) is not None for one in ladder)
    latency = _processing_ms if by_replica else _p50_ms
    after = latency(trial)
    for low in _lighter(trial, ladder):
        before = latency(low)
        if not before or not after:
            continue
        grown = trial.row.connections / low.row.connections
        if after / before >= FOLLOWS * grown:
            clients = (low.row.connections, trial.row.connections)
            source = "replica" if by_replica else "client"
            return Symptom("climbing latency", clients, (before, after), source)
    return None


def follows(trial: Trial, ladder: Sequence[Trial]) -> bool:
    """Whether requests grew with the clients up to this trial, from the next lighter load on."""
    lighter = _lighter(trial, ladder)
    if not lighter or not rate_of(lighter[-1]):
        return False
    grown = trial.row.connections / lighter[-1].row.connections
    return rate_of(trial) / rate_of(lighter[-1]) >= FOLLOWS * grown


def _lighter(trial: Trial, ladder: Sequence[Trial]) -> list[Trial]:
    return [one for one in ladder if one.row.connections * STEP <= trial.row.connections]


def _processing_ms(trial: Trial) -> float | None:
    """The longest mean processing latency of the deployments, the one of the front."""
    groups = trial.serve_metrics.get("deployments", {}).values()
    found = [one.get("processing_ms") for one in groups if isinstance(one, Mapping)]
    return max((value for value in found if value is not None), default=None)


def _p50_ms(trial: Trial) -> float | None:
    (value,) = latency_figures([trial], (0.5,))
    return None if value is None else value / 1e6
