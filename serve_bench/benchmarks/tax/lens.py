"""The report on tax: each layer compared with the first and with the layer before.

Statistics and verdicts are those of versus: rounds are paired, the interval is on logarithms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Final, TypeAlias

from serve_bench.analysis.checks import checks
from serve_bench.analysis.comparing import Known, Match, judge_rows
from serve_bench.analysis.comparing.model import About, Comparing, describe_change
from serve_bench.analysis.comparing.values import SideRow, group_by_key, list_doubts, rows_of
from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.tax.spec import TaxSpec
from serve_bench.core.facts import TrialUsage
from serve_bench.core.result import Result
from serve_bench.view.comparison import METRICS, compare_rows, mean_value, ratio_chart, scale_value
from serve_bench.view.document import Finding, Later, Section
from serve_bench.view.figures import Value, declare, mean_of
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_spec, make_table, make_tiles
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page
from serve_bench.view.verdict_words import make_finding

declare(("way_cpu", "us", "CPU of a role for a request", "CPU"), digits=3)
declare(("idle_cpu", "%", "CPU of a role without any load, % of a core"), digits=3)
declare(("p50_added", "ns", "median latency that a layer adds", "p50 adds"), digits=3)
declare(("cpu_added", "ns", "CPU for a request that a layer adds", "CPU adds"), shown="us")

LAYERS: Final = TableSpec(
    "Each layer",
    (
        *(Field("name", "layer"), Field(MAIN), Field("b_over_a", "of the first", head="x (95 %)")),
        Field("latency_p50"),
        *(Field(name, detail=True) for name in "latency_p99 request_cpu ttft_p50 itl_p50".split()),
    ),
    ("geometric means over rounds; of a handle a driver in Python is the client, and its limit",),
)
ADDED: Final = "b_over_a p50_added cpu_added"
STEPS: Final = make_spec("Each layer (B) beside the one before (A)", ADDED, row="layer")
WAY: Final = "uvicorn haproxy proxy fallback_proxy replica all"
CPU: Final = make_spec(
    "CPU for a request by process",
    " ".join((*(f"way_cpu.{role}" for role in WAY.split()), "idle_cpu.way")),
    row="layer",
    notes=("idle: in a second without any load, taken off for the time of other layers",),
)

Layered: TypeAlias = tuple[SideRow, ViewRow]
"""A row on a layer: what was measured of it, and how it is shown."""


def build(page: Page) -> View:
    """Build the view of the layers in their order, in each row."""
    result, suite = page.result, TaxSpec.stored(page.result.run.suite)
    warnings = group_by_key(result, checks(result))
    layers, count = [*_layer_rows(result, suite, warnings)], len(suite.layers)
    further = [place for place in range(len(layers)) if place % count]  # not the first of its row
    with_first = [(layers[place - place % count], layers[place]) for place in further]
    with_before = [(layers[place - 1], layers[place]) for place in further]
    threshold = (page.options.comparing or suite).threshold
    compare = partial(_compare, result, threshold, warnings)
    firsts, previous = [*compare("first", with_first)], [*compare("before", with_before)]
    rates, steps = (
        [row for row in compared if row.dims["metric"] == MAIN and "b_over_a" in row.values]
        for compared in (firsts, previous)
    )
    ratios = {(row.group, row.dims["layer"]): {"b_over_a": row.values["b_over_a"]} for row in rates}
    known = ((row, ratios.get((row.group, row.dims["layer"]), {})) for _, row in layers)
    points = [replace(row, values={**row.values, **ratio}) for row, ratio in known]
    title = f"requests/s, divided by that of {suite.layers[0].title}, with its 95 % interval"
    draw = Later(partial(ratio_chart, title, rates, threshold))
    return View(
        rows=[*page.bare_rows()],
        points=points,
        comparisons=[*firsts, *previous],
        findings=[*_findings(rates, steps)] or ["Nothing can be compared: see what failed."],
        sections=[
            Section("layers", "Layers", (make_table(LAYERS, points),), "headline"),
            Section("steps", "Steps", (make_table(STEPS, steps, bare=True),)),
            Section("cpu-by-process", "CPU by process", (make_table(CPU, points, bare=True),)),
        ],
        charts=[Section("chart", "Shares with their intervals", (draw,))],
        facts=[("left out", "; ".join(suite.tax.left_out))] if suite.tax.left_out else [],
        tiles=partial(make_tiles, rates[-3:], "b_over_a"),
        notes=(),
    )


def _layer_rows(result: Result, suite: TaxSpec, warnings: Known) -> Iterator[Layered]:
    """Yield the layers of each row. Raises FormatError for damaged records."""
    measured = [(layer.name, rows_of(result, layer.name).values()) for layer in suite.layers]
    sides = {(name, side.row.label): side for name, of_layer in measured for side in of_layer}
    planned_rounds = suite.rounds if result.last is None else result.last
    for row, layer in product(suite.rows, suite.layers):
        planned = suite.row_of(row, layer)
        side = sides.get((layer.name, planned.label)) or SideRow({}, planned)
        values = {METRICS[name]: mean_value(launches) for name, launches in side.values.items()}
        values |= _compute_cpu(side)
        dims = {"layer": layer.name, "row": row.label, "connections": row.connections}
        dims |= {"client": side.row.client, "rounds": len(side.rounds)}
        found = [make_finding(doubt, "rounds") for doubt in list_doubts("A", side, warnings)]
        if (rounds := len(side.rounds)) < planned_rounds:
            found.append(Finding(f"{rounds} of {planned_rounds} rounds measured", tone="doubt"))
        yield side, ViewRow(dims, values, layer.title, row.label, tuple(found))


def _compute_cpu(side: SideRow) -> dict[str, Value]:
    """Compute the CPU by role per request, and what the processes use without any load."""
    measured = (trial.client.slices for trial in side.trials if trial.counts.completed)
    slices = [part for part in measured if part is not None and part.requests is not None]
    requests = sum(part.requests or 0 for part in slices)
    values, idle = {}, mean_of(part.idle_all_cores for part in slices)
    if idle is not None:
        values["idle_cpu.all"] = Value(100.0 * idle)
    for figure, whole, name, factor in (
        ("way_cpu", "all", "cpu_s", 1e6 / requests if requests else 0.0),
        ("idle_cpu", "way", "idle_cores", 100.0 / max(1, len(slices))),
    ):
        roles = Counter[str]()
        for part in slices:
            roles.update(getattr(part, name))
        if roles and factor:
            members = {**roles, whole: roles.total()}
            values |= {f"{figure}.{role}": Value(factor * used) for role, used in members.items()}
    return values


def _compare(
    result: Result,
    threshold: float,
    warnings: Known,
    base: str,
    pairs: Sequence[tuple[Layered, Layered]],
) -> Iterator[ViewRow]:
    """Compare layers with the `first` or the one `before` (`base`): a row for each metric."""
    matches = [Match(a, b, (warnings, warnings), pairs=True) for (a, _), (b, _) in pairs]
    verdicts = judge_rows(matches, threshold, (MAIN,), {})
    several = len({b.group for _, (_, b) in pairs}) > 1
    for ((_, a), (_, b)), judged in zip(pairs, verdicts, strict=True):
        first, second = (About(row.name, row.dims["layer"], result.run, ()) for row in (a, b))
        rows = [*compare_rows(Comparing("versus", (first, second), (judged,), threshold, (MAIN,)))]
        added = {  # to A, in the unit of the metric: A times the ratio less 1
            f"{row.dims['metric']}_added": scale_value(row.values["b_over_a"], of_a, -of_a)
            for row in rows
            if row.dims["metric"] in ("p50", "cpu") and "b_over_a" in row.values
            if (of_a := row.value(f"{row.dims['figure']}.A"))
        }
        title = f"{b.name}, {b.group}" if several else b.name
        about = {"title": title, "layer": b.dims["layer"], "row": b.group, "with": base}
        words = f"{b.name} beside {a.name}: {describe_change(judged.line(MAIN))}"
        for row in rows:
            main = row.dims["metric"] == MAIN
            # The row of the rate has what is added to latency and CPU.
            dims, values = {**row.dims, **about}, {**row.values, **(added if main else {})}
            notes = (words,) if main else ()
            yield ViewRow(dims, values, b.name, b.group, notes=notes, tones=row.tones)


def _findings(rates: Sequence[ViewRow], steps: Sequence[ViewRow]) -> Iterator[str]:
    """Yield how default and optimized Serve compare with the first layer; then the largest step."""
    for row in rates:
        if row.dims["layer"] in ("default", "optimized"):
            yield f"{row.group}: {row.notes[0]}"
    step = min(steps, key=lambda row: row.values["b_over_a"].value, default=None)
    if step is not None and step.values["b_over_a"].value < 1:
        yield f"The largest step, {step.group}: {step.notes[0]}"


LENS: Final = Lens(build, usage_of=lambda trial: TrialUsage())
