"""Published figures, as data that is shipped with the tool (serve_bench/reference/).

Rule: they are what others measured on other hardware, and are always shown so: never as measured
here, and with their hardware named as far as the source names it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from serve_bench.core.result import JsonObject, Row, Traffic, cell_slug

MICRO: Final = "ray_serve_microbenchmark.json"
NIGHTLY: Final = "serve_nightly.json"
RECSYS: Final = "recsys_oss_vs_turbo.json"
PRESS: Final = "presstest.json"
RPC: Final = "torch_rpc.json"

_ROWS: Final = {"single client": "single_client", "8 clients": "eight_clients"}
_WRK_CELL: Final = "bs1-ongoing10000-rep8"  # as in the published `noop_latency.py` command line


@dataclass(frozen=True)
class Published:
    """A published figure in requests/s. `by` names the client if it is another than the row's."""

    mean: float
    std: float | None = None
    by: str | None = None

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std}"
        return f"{self.mean}{spread}" + (f" ({self.by})" if self.by else "")


@functools.cache
def reference(name: str) -> Any:
    """A shipped file of published figures."""
    place = resources.files("serve_bench").joinpath("reference", name)
    return json.loads(place.read_text(encoding="utf-8"))


def published_for(cell: JsonObject, row: Row) -> Published | None:
    """The published figure for a row of the no-op matrix; None where there is none."""
    if row.traffic != Traffic() or row.loop != "closed":
        return None
    if row.connections == 100 and row.client == "raw" and cell_slug(cell) == _WRK_CELL:
        return Published(reference(MICRO)["noop_wrk"]["requests_per_s"], by="wrk")
    name = _ROWS.get(row.label) if row.client == "aiohttp" else None
    for known in reference(MICRO)["cells"] if name else ():
        axes = {key: value for key, value in known.items() if not isinstance(value, dict)}
        if cell_slug(axes) == cell_slug(cell):
            return Published(known[name]["mean"], known[name]["std"])
    return None


def published_notes(command: str = "micro") -> tuple[str, ...]:
    """Where the figures come from, their hardware, and what is claimed in words, beside tables that
    name theirs. One line each."""
    if command == "recsys":
        return ()
    if command == "press":
        return _press_notes()
    micro, nightly = reference(MICRO), reference(NIGHTLY)
    wrk, claims = micro["noop_wrk"], nightly["claims"]
    latency = wrk["latency_ms"]
    return (
        f"published (not measured here): {micro['source']}; hardware {micro['hardware']}",
        f"published by wrk (not measured here): {wrk['command']} against {wrk['setup']}: "
        f"{wrk['requests_per_s']} requests/s, p50 {latency['p50']} ms, p90 {latency['p90']} ms, "
        f"p99 {latency['p99']} ms; hardware {micro['hardware']}",
        f"claimed (not measured here): {nightly['source']}: latency overhead in ms "
        f"{claims['latency_overhead_ms']}; {claims['throughput']}",
    )


PRESS_LEVELS: Final = {"DEBUG": 2, "INFO": 3, "ERROR": 5}
"""The source's log levels are numbers, higher is quieter; what they are taken for is our guess."""


def press_table(device: str | None, log_level: str | None) -> Any:
    """The published table of a device ("cpu", "cuda") and a log level; None where there is none."""
    kind = {"cpu": "CPU", "cuda": "GPU"}.get(str(device))
    level = PRESS_LEVELS.get(str(log_level))
    for table in reference(PRESS)["tables"]:
        if (table["device"], table["log_level"]) == (kind, level):
            return table
    return None


def _press_notes() -> tuple[str, ...]:
    tables = reference(PRESS)
    best = "; ".join(
        f"{row['device']}, log level {row['log_level']}: {row['qps']} qps, 1 client "
        f"{row['ave_printed']} ms, CPU {row['cpu_percent']} %, GPU {row['gpu_percent']} %"
        for row in tables["comparison"]
    )
    source = f"{tables['source']}; hardware {tables['hardware']}"
    return (
        f"published (not measured here): {source}: {best}",
        f"published log levels: {tables['log_levels']}",
    )


def rpc_source() -> str:
    """Where it comes from, and what is to be known before it is set beside."""
    return (
        f"{reference(RPC)['source']}; the hardware is not named; one process of its world is a "
        "coordinator, so that there are world_size - 2 observers"
    )


_SCALE: Final = {"single": "single_deployment", "multi": "multi_deployment", "ensemble": "ensemble"}


def scale_published(workload: str) -> dict[str, float] | None:
    """The published metrics of a workload of scale by name; None where there are none."""
    if workload not in _SCALE:
        return None
    table = reference(NIGHTLY)[_SCALE[workload]]
    return {name: value for name, value in table.items() if isinstance(value, int | float)}


def scale_notes(workload: str) -> tuple[str, ...]:
    """Where they come from, on which hardware, and what is to be known of them; or that nothing is
    published. A line each."""
    if workload not in _SCALE:
        return (f"published: nothing for {workload}",)
    nightly = reference(NIGHTLY)
    table = nightly[_SCALE[workload]]
    lines = [
        f"published (not measured here): {nightly['source']}, {_SCALE[workload]}: "
        f"{table['workload']}; hardware {table['cluster']}"
    ]
    if table.get("note"):
        lines.append(f"published {_SCALE[workload]}: {table['note']}")
    return tuple(lines)
