"""How a run of rpc is looked at: the four metrics of PyTorch's benchmark, world by world.

Latencies are recorded, throughputs follow from them value by value: agent throughput is batch_size
/ agent latency of the same batch, observer throughput 1 / observer latency of the same call. So a
percentile of a throughput is that of the latency from the other end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, Line, merged
from serve_bench.benchmarks.rpc.latencies import AGENT_LATENCY
from serve_bench.benchmarks.rpc.request import PUBLISHED_ARGUMENTS, RpcSuite, World, x_of
from serve_bench.core.errors import FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.result import Result
from serve_bench.view.blocks import over_windows, section, sentence
from serve_bench.view.charts import Chart
from serve_bench.view.csv import json_of, run_json
from serve_bench.view.document import Charts, Finding, ReportOptions, Section
from serve_bench.view.figures import Value, declare, grouped, known_values
from serve_bench.view.frame import (
    Field,
    TableSpec,
    ViewRow,
    describe_figures,
    draw_over,
    make_table,
)
from serve_bench.view.inside import mean_by_role
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RPC, reference
from serve_bench.view.rows import Page

METRICS: Final[Mapping[str, str]] = {
    AGENT_LATENCY: "agent latency",
    "agent_throughput": "agent throughput",
    LATENCY: "observer latency",
    "observer_throughput": "observer throughput",
}
"""The four as the source names them, in its order, by what the names of our figures begin with."""

SECONDS: Final = {AGENT_LATENCY: 1e9, LATENCY: 1e9}
"""What a second of the source is of ours."""

SHARES: Final[Mapping[str, int]] = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
PUBLISHED_SHARES: Final = ("p50", "p75", "p90", "p95")

for _metric in (AGENT_LATENCY, LATENCY):
    declare(f"{_metric}_p95", "ns", f"p95 of the {METRICS[_metric]}", title="p95", better="lower")
for _metric, _rate in (
    ("agent_throughput", "batch_size / agent latency of the same batch"),
    ("observer_throughput", "1 / observer latency of the same call"),
):
    for _name in (*SHARES, "mean", "std"):
        _meaning = f"{_name} of {_rate}"
        declare(f"{_metric}_{_name}", "requests/s", _meaning, title=_name, better="higher")
declare("median_of_base", "1", "the median on a backend over that on the first one")
declare("median_more", "ns", "what the median call of an observer takes more than on the first")


def _group(role: str) -> str:
    return {"agent": "agent", "observer": "observers"}.get(role, "others")


def _busiest_agent(line: Line) -> float | None:
    agent = mean_by_role(line.trials).get("agent")
    return None if agent is None else agent.busiest_percent


def _call_cpu(line: Line) -> float | None:
    roles, rate = mean_by_role(line.trials), line.spreads.get(MAIN)
    if "agent" not in roles or rate is None or rate.value <= 0:
        return None
    return 1e7 * sum(use.cpu_percent for use in roles.values()) / rate.value


def _memory(line: Line) -> float | None:
    sizes = [trial.client.get("memory_bytes") for trial in line.trials]
    return max((size / 1e6 for size in sizes if isinstance(size, int)), default=None)


for _name in ("agent", "observers", "others"):
    _meaning = f"CPU of the {_name} of a world, % of a core; the tool is of the others"
    declare(f"cpu_{_name}", "%", _meaning, grouped(_group, _name), title=_name)
declare(
    *("cpu_agent_busiest", "%", "the most CPU of the agent in a launch, % of a core"),
    _busiest_agent,
)
declare("call_cpu", "ns", "CPU time of all processes of a world for a call", _call_cpu)
declare("world_memory", "MB", "the most that all processes took (proportional set)", _memory)

HOST_FULL: Final = 0.90
"""Of all cores of the host: what is left then goes to work in the kernel and to switching."""

AGENT_FULL: Final = 85.0
"""% of a core. The agent also waits for its requests, so that it does not reach 100."""

RESULTS: Final = TableSpec(
    "Agent and observers",
    (
        Field("name", "world"),
        Field(f"{AGENT_LATENCY}_p50", "agent", head="p50 ms"),
        Field(f"{AGENT_LATENCY}_p95", "agent", head="p95 ms", detail=True),
        Field(f"{LATENCY}_p50", "observer", head="p50 ms"),
        Field(f"{LATENCY}_p95", "observer", head="p95 ms", detail=True),
        Field(f"{LATENCY}_p99", "observer", head="p99 ms"),
        Field(MAIN, "all observers"),
        Field("call_cpu", "a call", head="CPU ms"),
        Field("world_memory", "memory", detail=True),
        Field("limit", "limited by"),
    ),
    (
        "agent: from a batch's first request until each has its action; observer: from its call "
        "until it has its action; ±: std over episodes; a call: CPU time of all processes of the "
        "world for one; memory: proportional",
    ),
)
RATIOS: Final = TableSpec(
    "Ratios to the first backend: of medians; of requests/s those of means",
    (
        Field("name", "world"),
        Field(f"median_of_base.{AGENT_LATENCY}", "agent", head="latency"),
        Field(f"median_of_base.{LATENCY}", "observer", head="latency"),
        Field("median_more", "observer", head="p50 ms more"),
        Field("launch_ratio", "all observers", head="requests/s"),
    ),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The worlds of a run over the argument that was swept, the backends of each side by side."""
    x_axis = str(result.run.suite.get("x_axis") or "world_size")
    xs = list(dict.fromkeys(x_of(row.dims, x_axis) for row in rows))
    worlds = sorted(  # a world can be read across its backends
        (_complete(row, x_axis, several=page.base is not None) for row in rows),
        key=lambda row: xs.index(x_of(row.dims, x_axis)),
    )
    measured = [row for row in worlds if f"{LATENCY}_p95" in row.values]
    sound = [row for row in measured if row.entry and not row.entry.line.broken]
    compared = list(_compare_backends(sound, page.base or ""))
    example = list(_published_rows()) if options.published else []
    table = make_table(RESULTS, [*(replace(row, group="") for row in worlds), *example])
    blocks = (table, Charts(partial(_draw, measured, x_axis)))
    ratios = [make_table(RATIOS, compared)] if compared else []
    sections = [
        Section("results", f"Results over {x_axis}", blocks, "headline"),
        *section("ratios", "Ratios between backends", ratios, "table"),
    ]
    return View(
        rows=worlds,
        comparisons=compared,
        findings=(_rank_backends(sound) if measured else "Nothing was measured.",),
        sections=sections if worlds else (),
        facts=[(f"backend {part.name}", part.engaged) for part in page.variants if part.engaged],
        definitions=(f"published elsewhere: {reference(RPC)['source']}",) if example else (),
        notes=(),
        lead=max(measured, key=lambda row: row.value(MAIN) or 0.0, default=None),
    )


# Rows: a world on a backend.


def _complete(row: ViewRow, x_axis: str, *, several: bool) -> ViewRow:
    """The world by its place on the x axis, of `several` backends by its backend too, with its
    figures, what was full, and what broke off. Raises FormatError."""
    assert row.entry is not None
    line = row.entry.line
    world = World.from_cell(line.cell, f"{line.keys[0]}: cell")
    if x_axis not in line.cell:
        raise FormatError(f"{line.keys[0]}: its cell has no {x_axis}")
    figures = _compute_samples(line, world.batch_size)
    broken = [
        Finding(f"{counted(len(over_windows(trial)), 'whole episode')} kept", "broken off", "doubt")
        for trial in line.trials
        if trial.flags.get("interrupted")
    ]
    name = f"{x_axis} {x_of(line.cell, x_axis)}"
    return replace(
        row,
        name=f"{line.variant}, {name}" if several else name,
        group=name if several else "",
        dims={**row.dims, "batch_size": world.batch_size, "limit": _find_limit(row)},
        values={**row.values, **figures},
        warnings=(*broken, *row.warnings),
        gap=row.gap or ("" if figures else "not measured"),
    )


def _find_limit(row: ViewRow) -> str | None:
    """What was full, where the figures say so."""
    host = row.values.get("cpu_host")
    if host is not None and host.of and host.value >= HOST_FULL * host.of:
        return "host CPU"
    return "agent CPU" if (row.value("cpu_agent_busiest") or 0.0) >= AGENT_FULL else None


def _compute_samples(line: Line, batch_size: int) -> dict[str, Value]:
    """What rows of all kinds lack of the four metrics; nothing unless agent and observers have
    latencies."""
    agent, observers = merged(line.trials, AGENT_LATENCY), merged(line.trials, LATENCY)
    if not agent.count or not observers.count:
        return {}
    figures: dict[str, float | None] = {
        f"{AGENT_LATENCY}_p95": agent.percentile(0.95),
        f"{LATENCY}_p95": observers.percentile(0.95),
    }
    for name, latency, size in (("agent", agent, batch_size), ("observer", observers, 1)):
        rates = throughput_figures(latency, size)
        figures |= {f"{name}_throughput_{key}": value for key, value in rates.items()}
    return known_values(**figures)


def throughput_figures(latency: Histogram, batch_size: int) -> dict[str, float]:
    """The figures of batch_size / latency, requests/s, of a histogram of ns that holds a value.

    The p-th percentile, nearest rank: the k-th smallest throughput, k = ceil(p n), is that of the
    k-th largest latency.
    """
    n, size = latency.count, batch_size * 1e9
    rates = [(size / max(1, slot_middle(slot)), count) for slot, count in latency.occupied()]
    mean = sum(rate * count for rate, count in rates) / n
    squares = sum((rate - mean) ** 2 * count for rate, count in rates)
    from_top = [max(1, math.ceil(share / 100 * n - 1e-9 * n)) for share in SHARES.values()]
    times = latency.percentiles([(n - rank + 1) / n for rank in from_top])
    shares = {name: size / max(1, ns or 0) for name, ns in zip(SHARES, times, strict=True)}
    return {**shares, "mean": mean, "std": math.sqrt(squares / n)}


def _compare_backends(sound: Sequence[ViewRow], first: str) -> Iterator[ViewRow]:
    """Each world beside the same world on the first backend. Of what broke there are no ratios."""
    bases = {row.group: row for row in sound if row.group and row.dims["variant"] == first}
    for row in sound:
        base = bases.get(row.group, row)
        if base is row:
            continue
        medians = {f"median_of_base.{metric}": f"{metric}_p50" for metric in METRICS}
        values = {
            name: Value(row.values[median].value / below)
            for name, median in medians.items()
            if (below := base.values[median].value)
        }
        more = row.values[f"{LATENCY}_p50"].value - base.values[f"{LATENCY}_p50"].value
        values |= known_values(median_more=more, launch_ratio=row.value("launch_ratio"))
        yield ViewRow({**row.dims, "base": first}, values, row.name)


def _draw(measured: Sequence[ViewRow], x_axis: str) -> Iterator[Chart]:
    """Rates and latencies over the x axis."""
    yield from draw_over("Calls of all observers", measured, x_axis, (MAIN,), "variant")
    for metric in (AGENT_LATENCY, LATENCY):
        figures = (f"{metric}_p50", f"{metric}_p95")
        yield from draw_over(METRICS[metric].capitalize(), measured, x_axis, figures, "variant")


# Sentences.


def _rank_backends(sound: Sequence[ViewRow]) -> str:
    """The backend with the most calls/s, and the others beside it in the same world: of the worlds
    that most backends did the fastest. What broke is not compared."""
    ranks: dict[str, list[ViewRow]] = {}
    for row in sorted(sound, key=lambda row: -(row.value(MAIN) or 0.0)):
        if row.value(MAIN):
            ranks.setdefault(row.group or row.name, []).append(row)
    if not ranks:
        return "No valid world."
    world, (best, *others) = max(ranks.items(), key=lambda item: len(item[1]))
    shares = [
        f"{row.dims['variant']} {number(row.values[MAIN].value / best.values[MAIN].value, 2)} of "
        f"that (p50 {row.text('latency_p50')} ms)"
        for row in others
    ]
    first = f"{best.dims['variant']} answers most, of all observers"
    lead = f"With {world}, {first}: {describe_figures(best)}"
    return sentence("; ".join([lead, *shares]))


# Published.


def _published_rows() -> Iterator[ViewRow]:
    """The source's example, which has batches."""
    for point in reference(RPC)["example"]:
        values = {
            f"{metric}_{share}": Value(value * SECONDS.get(metric, 1.0))
            for metric, words in METRICS.items()
            for share, value in zip(PUBLISHED_SHARES, point[words.replace(" ", "_")], strict=True)
        }
        name = f"published elsewhere, world_size {point['world_size']}"
        yield ViewRow({"limit": None}, values, name)


REPORT_FILE: Final = "benchmark_report.json"
"""In the run's folder, always."""


def classic_text(result: Result, page: Page, view: View) -> str:
    """The report file of PyTorch's benchmark: its arguments in its order and of its types, but for
    the x axis, which each benchmark has for itself; and for each world of the first backend the
    four metrics. The source rounds latencies to three decimals and cuts throughputs to whole
    numbers; here nothing is rounded. `serve_bench` says of which run it is. Raises BadInput."""
    suite = RpcSuite.from_json(result.run.suite)
    asked = {**suite.to_json(), **suite.worlds[0].cell, "master_port": str(suite.master_port)}
    asked["output_file_path"] = suite.output_file_path or REPORT_FILE
    worlds = [
        {**_pick_published(row), suite.x_axis: row.dims[suite.x_axis]}
        for row in view.rows
        if row.dims["variant"] == suite.backends[0] and f"{LATENCY}_p95" in row.values
    ]
    return json_of(
        {
            **{name: asked[name] for name in PUBLISHED_ARGUMENTS if name != suite.x_axis},
            "x_axis_name": suite.x_axis,
            "benchmark_results": worlds,
            "serve_bench": {"run": run_json(result.run, None)},
        }
    )


def _pick_published(row: ViewRow) -> dict[str, dict[str, float]]:
    """The four metrics by their published names, in seconds and requests/s."""
    return {
        f"{words} (seconds)" if metric in SECONDS else words: {
            share: row.values[f"{metric}_{share}"].value / SECONDS.get(metric, 1.0)
            for share in PUBLISHED_SHARES
        }
        for metric, words in METRICS.items()
    }


LENS: Final = Lens(
    build,
    (
        *("cpu_agent", "cpu_observers", "cpu_others", "cpu_agent_busiest", "cpu_host"),
        *("call_cpu", "world_memory"),
    ),
    noun="world",
    classic=classic_text,
    usage_of=lambda trial: {},  # what limits a server is not what limits a world
)
