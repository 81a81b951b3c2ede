"""What a search for a capacity takes. Pure words; the search is analysis/capacity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from serve_bench.core.load_spec import Arrivals, make_row
from serve_bench.core.numbers import Positive
from serve_bench.core.traffic import Row, Traffic

Some: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
"""A number of things, of which there is at least one."""

LAUNCHES: Final = 3
"""Launches that a capacity is measured on at least: fewer have no spread to speak of."""

MOST_LAUNCHES: Final = 20

LAUNCH_S: Final = 120.0
"""Measured seconds of the search on one launch, at most."""

BUDGET_S: Final = 1200.0

PRECISION: Final = 0.05
"""Of the 95 % interval, as a share of the capacity."""

CLOSED: Final = 10
"""Connections of the closed loop before the search. It warms the launch up, says about what the
service serves at most, and stands in the report beside the capacity."""

CLOSED_WINDOWS: Final = 5
"""Seconds of the closed loop."""

SLICE_S: Final = 0.5
"""The time in which a probe counts its requests together."""


@dataclass(frozen=True)
class CapacitySearch:
    """How a capacity is searched."""

    slo: str  # what has to hold, as core/slo.py reads it
    arrivals: Arrivals = "poisson"
    precision: Positive = PRECISION  # of the interval, as a share of the capacity
    launches: Some = LAUNCHES  # at least
    most_launches: Some = MOST_LAUNCHES  # where the interval is not as narrow as `precision` before
    launch_s: Positive = LAUNCH_S  # measured seconds of a launch, at most
    budget_s: Positive | None = BUDGET_S  # of the run; None: no limit
    start: Positive | None = None  # the first rate (requests/s); None: by a closed loop
    need: Positive | None = None  # the rate that a cell has to hold, requests/s
    connections: Some = CLOSED


def closed_row(connections: int = CLOSED, traffic: Traffic | None = None) -> Row:
    """Make the row of the closed loop before the search; plain HTTP without `traffic`."""
    row = make_row(connections, "connection", traffic)
    return replace(row, label=f"closed loop, {row.label}")


def probe_row(number: int, rate: float, connections: int, traffic: Traffic | None = None) -> Row:
    """Make the open-loop row of a probe; `number` counts those of a launch from 1."""
    about = {"label": f"probe {number}", "loop": "open", "rate_per_s": rate, "run": number}
    return make_row(connections, "connection", traffic, **about)
