"""What both sides of a row did, which is compared before their figures.

Where the app did other work on B, a ratio says nothing about the server.

Pure. Rule: amounts are per answer, or per request of the ingress as Serve counted it, over all
launches."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from serve_bench.analysis.comparing.values import SideRow

FEWEST: Final = 100
"""Answers, or requests of the ingress, below which nothing is reported."""
Amounts: TypeAlias = Mapping[tuple[str, str], float]
"""By kind, and the status or the deployment that it is of."""

BYTES: Final = "bytes of an answer"
RELOADS: Final = "repeated model loads in"
PLACES: Final = "replicas of a model in"


@dataclass(frozen=True)
class WorkKind:
    """A kind of work, `per` what. It is other work from this factor and this difference on."""

    factor: float
    least: float
    per: str = ""


KINDS: Final[Mapping[str, WorkKind]] = {
    "answers with status": WorkKind(1.0, 50.0, " per 1,000"),
    BYTES: WorkKind(1.1, 256.0),  # heads of servers differ by about 100
    "calls of": WorkKind(1.1, 0.1, " per request"),
    "requests in a batch of": WorkKind(1.5, 1.0),
    "errors in": WorkKind(2.0, 10.0, " per 1,000 requests"),
    # The first load of a model by a replica is none: a faster side has fewer of them per request.
    RELOADS: WorkKind(2.0, 5.0, " per 1,000 requests"),
}
"""By its words."""


def compare_work(a: SideRow, b: SideRow) -> Iterator[str]:
    """Yield in what the sides did not do the same: `calls of Child 1 against 12 per request`."""
    for measure in (_measure_answers, _measure_calls):
        of_a, of_b = measure(a), measure(b)
        for kind, name in dict.fromkeys((*of_a, *of_b)) if of_a and of_b else ():
            low, high = sorted(side.get((kind, name), 0.0) for side in (of_a, of_b))
            work = KINDS.get(kind)
            if work is None or high < work.factor * low or high - low < work.least:
                continue
            for what, per in ((kind, work.per), (PLACES, ""))[: 1 + (kind == RELOADS)]:
                values = (float(f"{side.get((what, name), 0.0):.3g}") for side in (of_a, of_b))
                shown = " against ".join(f"{value:,g}" for value in values)
                yield f"{f'{what} {name}'.rstrip()} {shown}{per}"


def _measure_answers(side: SideRow) -> Amounts:
    """Return bytes and statuses that the client received; empty below FEWEST answers."""
    codes, clients = Counter[int](), [trial.client for trial in side.trials]
    for client in clients:
        codes.update(client.status_codes)
    if (answers := codes.total()) < FEWEST:
        return {}
    received = sum(client.bytes_received or 0 for client in clients)
    other = sorted(codes.keys() - {200})
    shares = {("answers with status", str(code)): 1e3 * codes[code] / answers for code in other}
    return {(BYTES, ""): received / answers} | shares


def _measure_calls(side: SideRow) -> Amounts:
    """Return what Serve counted of each deployment, by kind and deployment.

    Empty where it was not read, and below FEWEST requests."""
    sums = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float))
    for trial in side.trials:
        for place, group in trial.serve_metrics.deployments.items():
            if isinstance(group, Mapping):
                for what, amount in {**group, "exports": 1.0}.items():
                    sums[place.rpartition("#")[2]][what] += amount
    if (requests := sums[side.ingress]["requests"]) < FEWEST:
        return {}
    work = dict[tuple[str, str], float]()
    for name, done in ((name, done) for name, done in sums.items() if done):
        work["calls of", name] = done["requests"] / requests
        work["errors in", name] = 1e3 * done["errors"] / requests
        work["requests in a batch of", name] = done["requests"] / (done["batches"] or math.inf)
        work[RELOADS, name] = 1e3 * done["model_unloads"] / requests
        work[PLACES, name] = done["model_places"] / done["exports"]
    return work
