"""How a run of tax is looked at: each layer compared with the first and with the layer before.

Statistics and verdicts are those of versus: rounds are paired, the interval is on logarithms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

from serve_bench.analysis.checks import Warning, checks
from serve_bench.analysis.comparing import Match, judged_rows
from serve_bench.analysis.comparing.model import About, Comparing
from serve_bench.analysis.comparing.values import SLICES, SideRow, by_key, doubts_of, rows_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.tax.request import Layer, TaxSuite
from serve_bench.core.errors import FormatError
from serve_bench.core.figures import percent
from serve_bench.core.result import Result, Run
from serve_bench.view.blocks import statement
from serve_bench.view.comparison import (
    METRICS,
    bare_loads,
    compare_rows,
    mean_value,
    ratio_chart,
    scale_value,
)
from serve_bench.view.document import Charts, Finding, ReportOptions, Section
from serve_bench.view.figures import Value, declare, known_values
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table, make_tiles
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page
from serve_bench.view.verdict_words import make_finding

ROLES: Final = ("uvicorn", "haproxy", "proxy", "fallback_proxy", "replica")
"""Processes on a request's way, in the order of tables."""

declare("way_cpu", "us", "CPU of a role for a request", title="CPU", digits=3)
declare("idle_cpu", "%", "CPU of a role without any load, % of a core", digits=3)
declare("p50_added", "ns", "median latency that a layer adds", title="p50 adds", digits=3)
declare("cpu_added", "ns", "CPU for a request that a layer adds", title="CPU adds", shown="us")

LAYERS: Final = TableSpec(
    "Each layer",
    (
        Field("name", "layer"),
        Field(MAIN),
        Field("b_over_a", "of the first", head="x (95 %)"),
        Field("latency_p50"),
        *(Field(name, detail=True) for name in ("latency_p99", "request_cpu")),
        *(Field(name, detail=True) for name in ("ttft_p50", "itl_p50")),
    ),
    (
        "requests/s, p50, p99: client raw, of a handle a driver in Python, whose own work limits "
        "it; geometric means over rounds. CPU: for a request.",
    ),
)
STEPS: Final = TableSpec(
    "Compared with the layer before",
    (
        Field("name", "layer"),
        Field("b_over_a", "requests/s", head="x (95 %)"),
        Field("p50_added", head="ms (95 %)"),
        Field("cpu_added"),
    ),
)
CPU: Final = TableSpec(
    "CPU for a request by process",
    (
        Field("name", "layer"),
        *(Field(f"way_cpu.{role}", role.replace("_", " ")) for role in ROLES),
        Field("way_cpu.all", "all"),
        Field("idle_cpu.way", "idle", head="% of a core"),
    ),
    (
        "On a request's way: without client, controller, raylet and agents. idle: the same "
        "processes in a second without any load, taken off for the time of other layers.",
    ),
)

Layered: TypeAlias = tuple[SideRow, ViewRow]
"""A row on a layer: what was measured of it, and how it is shown."""
Warnings: TypeAlias = Mapping[str, Sequence[Warning]]


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The layers in their order, in each row."""
    suite, warnings = TaxSuite.from_json(result.run.suite), by_key(result, checks(result))
    by_row = [*_layer_rows(result, suite, warnings)]
    with_first = [(layers[0], layer) for layers in by_row for layer in layers[1:]]
    with_before = [pair for layers in by_row for pair in pairwise(layers)]
    firsts = [*_compare(result.run, suite, with_first, warnings, "first")]
    befores = [*_compare(result.run, suite, with_before, warnings, "before")]
    rates = [row for row in firsts if row.dims["metric"] == MAIN and "b_over_a" in row.values]
    steps = [row for row in befores if row.dims["metric"] == MAIN]
    ratios = {(row.group, row.dims["layer"]): {"b_over_a": row.values["b_over_a"]} for row in rates}
    points = [
        replace(row, values={**row.values, **ratios.get((row.group, row.dims["layer"]), {})})
        for layers in by_row
        for _, row in layers
    ]
    title = f"requests/s, divided by that of {suite.layers[0].title}, with its 95 % interval"
    draw = Charts(partial(ratio_chart, title, rates, suite.versus.threshold))
    return View(
        rows=bare_loads(rows),
        points=points,
        comparisons=[*firsts, *befores],
        findings=[*map(statement, _findings(by_row, rates, steps))],
        sections=[
            Section("layers", "Layers", (make_table(LAYERS, points),), "headline"),
            Section("steps", "Steps", (make_table(STEPS, steps),)),
            Section("cpu-by-process", "CPU by process", (make_table(CPU, points, bare=True),)),
        ],
        charts=[Section("chart", "Shares with their intervals", (draw,))],
        facts=[("left out", "; ".join(suite.left_out))] if suite.left_out else [],
        tiles=[tile for row in rates for tile in make_tiles(row, ("b_over_a",))][-3:],
        notes=(),
    )


def _layer_rows(result: Result, suite: TaxSuite, warnings: Warnings) -> Iterator[list[Layered]]:
    """The layers of each row. Raises FormatError for damaged records."""
    sides = {
        layer.name: {side.row.label: side for side in rows_of(result, layer.name).values()}
        for layer in suite.layers
    }
    planned_rounds = suite.versus.rounds if result.last is None else result.last
    for row in suite.versus.rows:
        layers = []
        for layer in suite.layers:
            planned = suite.row_of(row, layer)
            side = sides[layer.name].get(planned.label) or SideRow({}, planned)
            values = {METRICS[name]: mean_value(launches) for name, launches in side.values.items()}
            values |= _cpu_values(layer, side)
            dims = {"layer": layer.name, "row": row.label, "connections": row.connections}
            dims |= {"client": side.row.client, "rounds": len(side.rounds)}
            found = [make_finding(doubt, "rounds") for doubt in doubts_of("A", side, warnings)]
            if len(side.rounds) < planned_rounds:
                words = f"{len(side.rounds)} of {planned_rounds} rounds measured"
                found.append(Finding(words, tone="doubt"))
            layers.append((side, ViewRow(dims, values, layer.title, row.label, tuple(found))))
        yield layers


def _cpu_values(layer: Layer, side: SideRow) -> dict[str, Value]:
    """CPU by role for a request, and what the processes use without any load."""
    slices = [trial.client.get(SLICES) or {} for trial in side.trials if trial.counts.completed]
    cpu, idle = defaultdict[str, float](float), defaultdict[str, float](float)
    try:
        requests = sum(int(part.get("requests") or 0) for part in slices)
        for total, name in ((cpu, "cpu_s"), (idle, "idle_cores")):
            for part in slices:
                for role, spent in (part.get(name) or {}).items():
                    total[role] += float(spent)
        wholes = [float(part["idle_all_cores"]) for part in slices if "idle_all_cores" in part]
        if not all(map(math.isfinite, (*cpu.values(), *idle.values(), *wholes))):
            raise ValueError("not a number")
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise FormatError(f"{layer.name}: its CPU by process cannot be read: {error!r}") from None
    used = {f"way_cpu.{role}": 1e6 * spent / (requests or math.inf) for role, spent in cpu.items()}
    used |= {"way_cpu.all": sum(used.values())} if cpu else {}
    quiet = {f"idle_cpu.{role}": 100.0 * cores / len(slices) for role, cores in idle.items()}
    quiet |= {"idle_cpu.way": sum(quiet.values())} if idle else {}
    quiet |= {"idle_cpu.all": 100.0 * sum(wholes) / len(wholes)} if wholes else {}
    return known_values(**(used if requests > 0 else {}), **quiet)


def _compare(
    run: Run,
    suite: TaxSuite,
    pairs: Sequence[tuple[Layered, Layered]],
    warnings: Warnings,
    base: str,
) -> Iterator[ViewRow]:
    """Each layer compared with another: a row for each metric, that of the rate with what is added
    to latency and CPU. `base`: what the other is, `first` or `before`."""
    matches = [Match(a, b, (warnings, warnings), pairs=True) for (a, _), (b, _) in pairs]
    threshold = suite.versus.threshold
    verdicts = judged_rows(matches, threshold, (MAIN,), {})
    for ((_, a), (_, b)), judged in zip(pairs, verdicts, strict=True):
        first, second = (About(layer.name, layer.dims["layer"], run, ()) for layer in (a, b))
        rows = [*compare_rows(Comparing("versus", (first, second), (judged,), threshold, (MAIN,)))]
        added = {}
        for row in rows:  # what B adds to A, in the unit of the metric: A times the ratio less 1
            ratio, of_a = row.values.get("b_over_a"), row.value(f"{row.dims['figure']}.A") or 0.0
            if row.dims["metric"] in ("p50", "cpu") and ratio is not None:
                added[f"{row.dims['metric']}_added"] = scale_value(ratio, of_a, -of_a)
        title = f"{b.name}, {b.group}" if len(suite.versus.rows) > 1 else b.name
        about = {"title": title, "layer": b.dims["layer"], "row": b.group, "with": base}
        for row in rows:
            values = row.values if row.dims["metric"] != MAIN else {**row.values, **added}
            dims = {**row.dims, **about}
            yield replace(row, dims=dims, values=values, name=b.name, group=b.group, warnings=())


def _findings(
    by_row: Sequence[Sequence[Layered]], rates: Sequence[ViewRow], steps: Sequence[ViewRow]
) -> Iterator[str]:
    """What the default and the optimized Serve cost in each row, then the largest step of all."""
    for base in (layers[0][1] for layers in by_row):
        about = f"{base.group}: " if len(by_row) > 1 else ""
        of_row = [row for row in rates if row.group == base.group]
        costs = {row.dims["layer"]: f"{row.name} {_cost_words(row)}" for row in of_row}
        texts = [costs[name] for name in ("default", "optimized") if name in costs]
        if texts:
            yield f"{about}{' and '.join(texts)} of the requests/s of {base.name}"
        elif not costs:
            yield f"{about}nothing can be compared: see what failed"
    compared = [row for row in steps if "b_over_a" in row.values]
    step = min(compared, key=lambda row: row.values["b_over_a"].value, default=None)
    if step is not None and step.values["b_over_a"].value < 1:
        words = f"after {step.dims['a']}: it {_cost_words(step)}"
        yield f"the largest step is {step.dims['title']}, {words}"


def _cost_words(row: ViewRow) -> str:
    """`costs 87 % (86 to 88 %)`, with the 95 % interval; `gains 20 %`."""
    ratio = row.values["b_over_a"]
    sign, verb = (1, "costs") if ratio.value < 1 else (-1, "gains")
    ends = sorted(100 * sign * (1 - end) for end in (ratio.low, ratio.high) if end is not None)
    interval = f" ({ends[0]:.3g} to {ends[1]:.3g} %)" if len(ends) > 1 else ""
    return f"{verb} {percent(sign * (1 - ratio.value))}{interval}"


LENS: Final = Lens(build, usage_of=lambda trial: {})
