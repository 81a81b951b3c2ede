"""Runs of capacity of services whose capacity is known, for the tests of what reads such runs.

Each launch is searched as in a run; what a probe counts is drawn from a service whose share of late
requests grows with a power of the rate.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from serve_bench.analysis.capacity.launch import LaunchSearch, Searches
from serve_bench.analysis.capacity.model import Ask
from serve_bench.core.capacity import SLICE_S, CapacitySearch, closed_row
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.load_spec import Arrivals
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import (
    JsonObject,
    PlannedTrial,
    Record,
    Result,
    Run,
    RunStop,
    Trial,
    result_of,
)
from serve_bench.core.schema import plain
from serve_bench.core.slo import parse_slo
from tests.records import changed, trial
from tests.versus_records import HOST, one_launch

STEEP: Final = 8.0
"""Of the share of late requests, d ln(share) / d ln(rate)."""

SLOW: Final = 200.0
"""Requests/s of a closed loop where every request is late."""

FIRST: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Service:
    """A service of known capacity and client (requests/s); `cpu_ms`: of a replica per request."""

    capacity: float
    client: float = math.inf
    cpu_ms: float = 2.0

    def late(self, rate: float) -> float:
        """Compute the share of requests beyond p99's limit."""
        if not self.capacity:
            return 1.0
        return float(min(1.0, 0.01 * (rate / self.capacity) ** STEEP))


def capacity_result(
    id: str,
    services: Mapping[str, Sequence[Service]],
    *,
    slo: str = "p99=50ms",
    arrivals: Arrivals = "poisson",
    cell: JsonObject | None = None,
    day: int = 0,
    launch_s: float = 120.0,
    finished: bool = True,
) -> Result:
    """Search for the capacity of each launch; unless `finished`, the last ends after two probes."""
    where = cell or {}
    launches = max(map(len, services.values()))
    asked = CapacitySearch(parse_slo(slo).source, arrivals, launches=launches, launch_s=launch_s)
    searches = Searches(asked, parse_slo(slo))
    row = closed_row()
    plan = [plan_trial(name, at, where, row) for at in range(1, 21) for name in services]
    run = Run(
        id=id,
        argv=("capacity", "app.py:app", "--slo", slo),
        command="capacity",
        started_at=(FIRST + timedelta(days=day)).isoformat(),
        tool_version="0.1.0",
        suite={"name": "app", "timeout_s": 30.0, "capacity": plain(asked)},
        plan=tuple(plan),
        host=HOST,
    )
    records: list[Record] = [run]
    draw = np.random.default_rng([*id.encode()])
    for round_ in range(1, launches + 1):
        for name, launched in services.items():
            if round_ > len(launched):
                continue
            records.append(one_launch(name, round_, "default", None))
            search = searches.at(name, round_, where)
            whole = finished or round_ < launches
            records += _searched(search, launched[round_ - 1], draw, None if whole else 3)
    if finished:
        at = (FIRST + timedelta(days=day, hours=3)).isoformat()
        records.append(RunStop(launches, 20, "settled", at))
    return result_of(records)


class StoredCapacity:
    """The only capacity of a run as JSON has it, with its launches and probes."""

    def __init__(self, text: str) -> None:
        page = json.loads(text)
        self.findings = [finding["text"] for finding in page["findings"]]
        capacity, *self.launches = page["points"]
        self.dims, self.figures = capacity["dims"], capacity["figures"]
        self.loop, *self.probes = page["rows"]
        self.words = [probe["dims"]["slo"] for probe in self.probes]
        trials = [trial for probe in self.probes for trial in probe["trials"].values()]
        self.requests = [trial["requests"] for trial in trials]


def _searched(
    search: LaunchSearch, service: Service, draw: np.random.Generator, most: int | None
) -> list[Trial]:
    trials: list[Trial] = []
    while (planned := search.next()) is not None and len(trials) != most:
        ask = search.ask if planned.row.rate_per_s is not None else None
        seconds = ask.seconds if isinstance(ask, Ask) else 5.0
        made = _measured(planned, service, seconds, draw, at=len(trials))
        search.add(made)
        trials.append(made)
    return trials


def _measured(
    planned: PlannedTrial, service: Service, seconds: float, draw: np.random.Generator, at: int
) -> Trial:
    rate = planned.row.rate_per_s
    served = min(1.2 * service.capacity or SLOW if rate is None else rate, service.client)
    done = max(1, round(served * seconds))
    windows, cpu = max(1, round(seconds)), served * service.cpu_ms / 10
    made = trial(
        planned,
        *(served,) * windows,
        window_s=seconds / windows,
        started_at=(FIRST + timedelta(minutes=10 * planned.round, seconds=20 * at)).isoformat(),
        warmup=Warmup(0.5, True, 100, True),
        counts=Counts(done, done, {}, 0, unsent=max(0, round(((rate or 0.0) - served) * seconds))),
        seconds={"total": seconds + 1, "measured": seconds},
        usage={"interval_s": 0.2, "processes": [{"pid": 7, "role": "replica", "cpu_percent": cpu}]},
    )
    if rate is None:
        return made
    if rate > service.client:
        verdict = {"client_bound": True, "non_idle": 0.99, "reasons": ["busy for 99 % of the time"]}
        made = changed(made, client={"verdict": verdict})
    return changed(made, slices=_slices(rate, seconds, service.late(rate), draw))


def _slices(rate: float, seconds: float, late: float, draw: np.random.Generator) -> dict[str, Any]:
    count, mean = max(1, round(seconds / SLICE_S)), rate * SLICE_S
    of = np.full(count, round(mean)) if mean > 2 else draw.poisson(mean, count)
    bounds = {"p99": draw.binomial(of, late), "errors": 0 * of}
    sent = of.astype(float).tolist()
    return {
        "slice_s": SLICE_S,
        "bounds": {
            name: {"of": sent, "bad": bad.astype(float).tolist()} for name, bad in bounds.items()
        },
    }
