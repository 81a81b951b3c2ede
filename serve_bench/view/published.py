"""Published figures, as data that is shipped with the tool (serve_bench/reference/).

Rule: they are what others measured on other hardware, and are always shown so: never as measured
here, and with their hardware named as far as the source names it.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any, Final

from serve_bench.core.result import JsonObject, Row, Traffic, cell_slug
from serve_bench.view.figures import Value

MICRO: Final = "ray_serve_microbenchmark.json"
NIGHTLY: Final = "serve_nightly.json"
RECSYS: Final = "recsys_oss_vs_turbo.json"
PRESS: Final = "presstest.json"
RPC: Final = "torch_rpc.json"

_WRK_CELL: Final = "bs1-ongoing10000-rep8"  # as in the published `noop_latency.py` command line


@functools.cache
def reference(name: str) -> Any:
    """A shipped file of published figures."""
    place = resources.files("serve_bench").joinpath("reference", name)
    return json.loads(place.read_text(encoding="utf-8"))


def published_for(cell: JsonObject, row: Row) -> Value | None:
    """The published requests/s of a row of the no-op matrix, with their std; None where there are
    none. Those of 100 connections are by wrk."""
    if row.traffic != Traffic() or row.loop != "closed":
        return None
    if row.connections == 100 and row.client == "raw" and cell_slug(cell) == _WRK_CELL:
        return Value(reference(MICRO)["noop_wrk"]["requests_per_s"])
    for known in reference(MICRO)["cells"] if row.client == "aiohttp" else ():
        axes = {key: value for key, value in known.items() if not isinstance(value, dict)}
        if row.label in known and cell_slug(axes) == cell_slug(cell):
            return Value(known[row.label]["mean"], known[row.label]["std"])
    return None


def published_notes() -> tuple[str, ...]:
    """What is to be known of the figures of the no-op matrix: where they come from, their hardware,
    and what is claimed beside. One line each."""
    micro, nightly = reference(MICRO), reference(NIGHTLY)
    wrk, claims = micro["noop_wrk"], nightly["claims"]
    times = ", ".join(f"{share} {wrk['latency_ms'][share]} ms" for share in ("p50", "p90", "p99"))
    by_wrk = f"100 connections: {wrk['command']} against {wrk['setup']}: "
    by_wrk += f"{wrk['requests_per_s']} requests/s, {times}"
    return (
        _credit(micro["source"], micro["hardware"]),
        _credit(by_wrk, micro["hardware"]),
        f"claimed (not measured here): {nightly['source']}: latency overhead in ms "
        f"{claims['latency_overhead_ms']}; {claims['throughput']}",
    )


def _credit(source: str, hardware: str) -> str:
    return f"published (not measured here): {source}; hardware {hardware}"


PRESS_LEVELS: Final = {"DEBUG": 2, "INFO": 3, "ERROR": 5}
"""The source's log levels are numbers, higher is quieter; what they are taken for is our guess."""


def press_table(device: str | None, log_level: str | None) -> Any:
    """The published table of a device ("cpu", "cuda") and a log level; None where there is none."""
    kind = {"cpu": "CPU", "cuda": "GPU"}.get(str(device))
    asked = (kind, PRESS_LEVELS.get(str(log_level)))
    tables = reference(PRESS)["tables"]
    return next((part for part in tables if (part["device"], part["log_level"]) == asked), None)


def scale_published(workload: str) -> dict[str, float]:
    """The published metrics of a workload of scale by name."""
    table = reference(NIGHTLY).get(workload, {})
    return {name: value for name, value in table.items() if isinstance(value, int | float)}


def scale_notes(workload: str) -> tuple[str, ...]:
    """Where they come from, on which hardware, and what is to be known of them; or that nothing is
    published. A line each."""
    nightly = reference(NIGHTLY)
    if (table := nightly.get(workload)) is None:
        return (f"published: nothing for {workload}",)
    credit = _credit(f"{nightly['source']}, {workload}: {table['workload']}", table["cluster"])
    return (credit, *([f"published {workload}: {table['note']}"] if "note" in table else []))
