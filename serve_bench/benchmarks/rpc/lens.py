"""The report on rpc: the four metrics of PyTorch's benchmark, world by world.

Latencies are recorded, throughputs follow from them value by value: agent throughput is batch_size
/ agent latency of the same batch, observer throughput 1 / observer latency of the same call. So a
percentile of a throughput is that of the latency from the other end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN, merged, read_rate
from serve_bench.benchmarks.rpc.latencies import AGENT_LATENCY, RATES
from serve_bench.benchmarks.rpc.spec import PUBLISHED_ARGUMENTS, RpcSpec, World, x_of
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import TrialUsage
from serve_bench.core.figures import counted, number
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.schema import built
from serve_bench.view.csv import json_of, run_json
from serve_bench.view.document import Finding, Section
from serve_bench.view.figures import Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, ViewRow, describe_figures, make_table
from serve_bench.view.inside import grouped_cpu, mean_by_role
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RPC, published_rows, read_reference
from serve_bench.view.row_charts import chart_sections
from serve_bench.view.rows import Page

METRICS: Final = {
    AGENT_LATENCY: "agent latency (seconds)",
    RATES[AGENT_LATENCY]: "agent throughput",
    LATENCY: "observer latency (seconds)",
    RATES[LATENCY]: "observer throughput",
}
"""The four as the source names them, in its order, by what the names of our figures begin with."""

SHARES: Final = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
PUBLISHED_SHARES: Final = ("p50", "p75", "p90", "p95")
GROUPS: Final = {"agent": "cpu_agent", "observer": "cpu_observers"}
"""The figures of roles; all others, the tool too, are of `cpu_others`."""

for _metric in METRICS:
    _unit = "requests/s" if _metric in RATES.values() else "ns"
    for _name in ("p95",) if _unit == "ns" else (*SHARES, "mean", "std"):
        declare((f"{_metric}_{_name}", _unit, f"{_name} of the {METRICS[_metric]}", _name))
declare(
    ("cpu_agent", "%", "CPU of the agent of a world, % of a core"),
    ("cpu_observers", "%", "CPU of the observers of a world, % of a core"),
    ("cpu_others", "%", "CPU of the other processes of a world and of the tool, % of a core"),
    ("cpu_agent_busiest", "%", "the most CPU of the agent in a launch, % of a core"),
    ("call_cpu", "ns", "CPU time of all processes of a world for a call", "CPU a call"),
    ("world_memory", "MB", "the most that all processes took (proportional set)"),
)

HOST_FULL: Final = 0.90
"""Share of the host's cores: the rest goes to work in the kernel and to switching."""

AGENT_FULL: Final = 85.0
"""% of a core. The agent also waits for its requests, so that it does not reach 100."""

RESULTS: Final = TableSpec(
    "Agent and observers",
    (
        *(Field("name", "world"), Field("agent_latency_p50", "agent p50")),
        *map(Field, "latency_p50 latency_p99 throughput call_cpu limit".split()),
        Field("agent_latency_p95", "agent p95", detail=True),
        *(Field(name, detail=True) for name in ("latency_p95", "launch_ratio", "world_memory")),
    ),
    ("p50, p95, p99, throughput: of the calls of all observers; ±: std over episodes",),
)


def build(page: Page) -> View:
    """Build the view: the worlds over the swept argument, the backends of each side by side."""
    x_axis = page.result.run.asked.x_axis
    xs = list(dict.fromkeys(x_of(row.dims, x_axis) for row in page.rows))
    worlds = sorted(  # a world can be read across its backends
        (_complete(row, x_axis, several=len(page.variants) > 1) for row in page.rows),
        key=lambda row: xs.index(x_of(row.dims, x_axis)),
    )
    measured = [row for row in worlds if f"{LATENCY}_p95" in row.values and row.value(MAIN)]
    sound = [row for row in measured if not row.line.broken]
    example = [*published_rows(RPC)] if page.options.published else []
    table = make_table(RESULTS, [replace(row, group="") for row in (*worlds, *example)])
    return View(
        rows=worlds,
        findings=(_rank_backends(sound) if measured else "Nothing was measured.",),
        sections=[Section("results", f"Results over {x_axis}", (table,), "headline")],
        charts=tuple(chart_sections(measured)),
        definitions=(f"published elsewhere: {read_reference(RPC)['source']}",) if example else (),
        notes=(),
        lead=max(measured, key=lambda row: row.values[MAIN].value, default=None),
    )


def _complete(row: ViewRow, x_axis: str, *, several: bool) -> ViewRow:
    """Complete a world: its name, its figures, what was full or broke off. Raises FormatError."""
    line = row.line
    batch_size = built(World, line.cell, f"{line.keys[0]}: cell").batch_size
    if x_axis not in line.cell:
        raise FormatError(f"{line.keys[0]}: its cell has no {x_axis}")
    values = {**row.values, **_compute_values(row, batch_size)}
    host, agent, limit = values.get("cpu_host"), values.get("cpu_agent_busiest"), None
    if host is not None and host.of and host.value >= HOST_FULL * host.of:
        limit = "host CPU"
    elif agent is not None and agent.value >= AGENT_FULL:
        limit = "agent CPU"
    kept = (len(read_rate(trial).windows) for trial in line.trials if trial.flags.interrupted)
    words = (f"{counted(episodes, 'whole episode')} kept" for episodes in kept)
    broken = (Finding(text, "broken off", "doubt") for text in words)
    name = f"{x_axis} {x_of(line.cell, x_axis)}"
    return replace(
        row,
        name=f"{line.variant}, {name}" if several else name,
        group=name,
        dims={**row.dims, "batch_size": batch_size, "limit": limit},
        values=values,
        warnings=(*broken, *row.warnings),
        gap=row.gap or ("" if f"{LATENCY}_p95" in values else "not measured"),
    )


def _compute_values(row: ViewRow, batch_size: int) -> dict[str, Value]:
    """Compute the metrics that other kinds lack, and the CPU of a call; none without latencies."""
    roles, rate = mean_by_role(row.trials), row.value(MAIN)
    sizes = [trial.client.memory_bytes or 0 for trial in row.trials]
    figures: dict[str, float | None] = {"world_memory": max(sizes, default=0) / 1e6 or None}
    for name, size in ((AGENT_LATENCY, batch_size), (LATENCY, 1)):
        latency = merged(row.trials, name)
        if not latency.count:
            return {}
        figures[f"{name}_p95"] = latency.percentile(0.95)
        rates = throughput_figures(latency, size)
        figures |= {f"{RATES[name]}_{key}": value for key, value in rates.items()}
    usages = [trial.usage for trial in row.trials]
    cpu = grouped_cpu(usages, lambda role: GROUPS.get(role, "cpu_others"))
    if "agent" in roles:
        figures["cpu_agent_busiest"] = roles["agent"].busiest_percent
        figures["call_cpu"] = 1e7 * sum(cpu.values()) / rate if rate else None
    return known_values(**figures, **cpu)


def throughput_figures(latency: Histogram, batch_size: int) -> dict[str, float]:
    """Compute figures of batch_size / latency, requests/s, from a histogram of ns with a value."""
    n, size, slots = latency.count, batch_size * 1e9, latency.occupied()
    rates = [size / max(1, slot_middle(slot)) for slot, _ in slots]
    counts = [count for _, count in slots]
    mean = fmean(rates, counts)
    variance = fmean([(rate - mean) ** 2 for rate in rates], counts)
    # The k-th smallest throughput, k = ceil(p n), is that of the k-th largest latency.
    from_top = [max(1, math.ceil(share / 100 * n - 1e-9 * n)) for share in SHARES.values()]
    times = latency.percentiles([(n - rank + 1) / n for rank in from_top])
    shares = {name: size / max(1, ns or 0) for name, ns in zip(SHARES, times, strict=True)}
    return {**shares, "mean": mean, "std": math.sqrt(variance)}


def _rank_backends(sound: Sequence[ViewRow]) -> str:
    """Say which backend has the most calls/s, in the world that most backends did the fastest."""
    if not sound:
        return "No valid world."
    ranked = sorted(sound, key=lambda row: -row.values[MAIN].value)
    ((world, _),) = Counter(row.group for row in ranked).most_common(1)
    best, *others = (row for row in ranked if row.group == world)
    first = f"{best.dims['variant']} answers most, of all observers"
    words = [f"With {world}, {first}: {describe_figures(best)}"]
    for row in others:
        share = number(row.values[MAIN].value / best.values[MAIN].value, 2)
        words.append(f"{row.dims['variant']} {share} of that (p50 {row.text('latency_p50')} ms)")
    return "; ".join(words)


REPORT_FILE: Final = "benchmark_report.json"
"""In the run's folder, always."""


def classic_text(page: Page, view: View) -> str:
    """Render the report file of PyTorch's benchmark. Raises BadInput.

    It has the arguments of that benchmark, in its order and types, without the x axis, which each
    result has; and for each world of the first backend the four metrics in seconds and requests/s,
    not rounded. `serve_bench` names the run.
    """
    suite = RpcSpec.stored(page.result.run.suite)
    asked = {**suite.to_json(), **asdict(suite.worlds[0]), "master_port": str(suite.master_port)}
    asked["output_file_path"] = suite.output_file_path or REPORT_FILE
    worlds = []
    for row in view.rows:
        if row.dims["variant"] == suite.backend[0] and f"{LATENCY}_p95" in row.values:
            world: dict[str, Any] = {}
            for metric, words in METRICS.items():
                ours = 1e9 if metric in RATES else 1.0
                values = {
                    share: row.values[f"{metric}_{share}"].value for share in PUBLISHED_SHARES
                }
                world[words] = {share: value / ours for share, value in values.items()}
            worlds.append({**world, suite.x_axis: row.dims[suite.x_axis]})
    return json_of(
        {
            **{name: asked[name] for name in PUBLISHED_ARGUMENTS if name != suite.x_axis},
            "x_axis_name": suite.x_axis,
            "benchmark_results": worlds,
            "serve_bench": {"run": run_json(page.result.run, None)},
        }
    )


# What limits a server is not what limits a world: no trial has a usage to judge.
LENS: Final = Lens(
    build, figures=("cpu_host",), classic=classic_text, usage_of=lambda trial: TrialUsage()
)
