"""How a run of tax is looked at: each layer compared with the first and with the layer before.

Statistics and verdicts are those of versus: rounds are paired, the interval is on logarithms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

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
from serve_bench.view.comparison import METRICS, bare_loads, compare_rows, mean_value, ratio_chart
from serve_bench.view.document import Charts, Finding, Folded, ReportOptions, Section
from serve_bench.view.figures import Value, declare
from serve_bench.view.frame import Field, TableSpec, ViewRow, launch_table, make_table
from serve_bench.view.lens import Lens, View
from serve_bench.view.rows import Page

GATE: Final = ("throughput",)
"""What verdicts are on; the other metrics are judged among themselves."""

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
        Field(MAIN, "throughput"),
        Field("latency_p50"),
        Field("latency_p99"),
        Field("request_cpu", "CPU/request"),
        Field("ttft_p50"),
        Field("itl_p50"),
    ),
    (
        "requests/s, p50, p99: client raw, of a handle a driver in Python, whose own work limits "
        "it; geometric means over rounds. TTFT: to the first event; ITL: between events.",
    ),
)
COMPARED: Final = TableSpec(
    "compared with",
    (
        Field("name", "layer"),
        Field("b_over_a", "requests/s", head="x (95 %)"),
        Field("p50_added", head="ms (95 %)"),
        Field("cpu_added"),
    ),
)
CPU: Final = TableSpec(
    "CPU per request by process",
    (
        Field("name", "layer"),
        *(Field(f"way_cpu.{role}", role.replace("_", " ")) for role in ROLES),
        Field("way_cpu.all", "all"),
        Field("idle_cpu.way", "idle", head="% of a core"),
        Field("idle_cpu.all", "all idle", detail=True),
    ),
    (
        "On a request's way: without client, controller, raylet and agents. idle: the same "
        "processes in a second without any load, taken off for the time of other layers; all "
        "idle: all processes of the cluster.",
    ),
)


Layered: TypeAlias = tuple[SideRow, ViewRow]
"""A row on a layer: what was measured of it, and how it is shown."""


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The layers in their order, in each row."""
    suite = TaxSuite.from_json(result.run.suite)
    warnings = by_key(result, checks(result))
    by_row = [*_layer_rows(result, suite, warnings)]
    points = [view for layers in by_row for _, view in layers]
    pairs = [(layers[0], row) for layers in by_row for row in layers[1:]]
    firsts = _compare(result.run, suite, pairs, warnings, "first")
    steps = [pair for layers in by_row for pair in pairwise(layers)]
    befores = _compare(result.run, suite, steps, warnings, "before")
    codes = Counter(code for row in points for code in {finding.code for finding in row.warnings})
    rounds = [set(side.rounds) for layers in by_row for side, _ in layers]
    planned = suite.versus.rounds if result.last is None else result.last
    measured = len(set.intersection(*rounds)) if rounds else 0
    facts = (
        ("planned", f"{planned} rounds, {measured} measured on all layers"),
        ("app", suite.versus.sides[0].app.name),
        ("left out", "; ".join(suite.left_out)),
    )
    base = suite.layers[0].title
    rates, further = (
        [row for row in part if row.dims["metric"] == MAIN] for part in (firsts, befores)
    )
    table = make_table(COMPARED, rates, f"{COMPARED.caption} {base}")
    sections = [
        Section("layers", "Layers", (make_table(LAYERS, points), table), "headline"),
        Section("cpu-by-process", "CPU by process", (make_table(CPU, points, bare=True),), "table"),
    ]
    if len(suite.layers) > 2:
        table = make_table(COMPARED, further, f"{COMPARED.caption} the layer before")
        sections.insert(1, Section("steps", "Steps", (table,), "table"))
    tables = tuple(
        launch_table(layers[0][1].group, views, MAIN, "round")
        for layers in by_row
        if (views := [view for _, view in layers if MAIN in view.values])
    )
    folded = (Folded("requests/s of each round", tables),) if tables else ()
    title = f"requests/s, divided by that of {base}, with its 95 % interval"
    draw = partial(ratio_chart, title, rates, suite.versus.threshold, "")
    return View(
        rows=bare_loads(rows),
        points=points,
        comparisons=[*firsts, *befores],
        findings=[*map(statement, _findings(by_row, rates, further))],
        doubts=[
            f"{code.replace('-', ' ')} ({n} of {len(points)} rows)" for code, n in codes.items()
        ],
        sections=sections,
        charts=(Section("chart", "Shares with their intervals", (Charts(draw), *folded)),),
        facts=[fact for fact in facts if fact[1]],
        notes=(),
    )


def _layer_rows(
    result: Result, suite: TaxSuite, warnings: Mapping[str, Sequence[Warning]]
) -> Iterator[list[Layered]]:
    """The layers of each row. Raises FormatError for damaged records."""
    sides = {
        layer.name: {side.row.label: side for side in rows_of(result, layer.name).values()}
        for layer in suite.layers
    }
    for row in suite.versus.rows:
        made = []
        for layer in suite.layers:
            planned = suite.row_of(row, layer)
            side = sides[layer.name].get(planned.label) or SideRow({}, planned)
            values = {METRICS[name]: mean_value(launches) for name, launches in side.values.items()}
            dims = {"layer": layer.name, "row": row.label, "connections": row.connections}
            dims |= {"client": side.row.client, "rounds": len(side.rounds)}
            remarks = tuple(
                Finding(
                    f"in {doubt.launches} of {doubt.of} rounds: {doubt.message}",
                    *(doubt.code, "doubt", doubt.hint),
                )
                for doubt in doubts_of("A", side, warnings)
            )
            values |= _cpu_values(layer, side)
            made.append((side, ViewRow(dims, values, layer.title, row.label, remarks)))
        yield made


def _cpu_values(layer: Layer, side: SideRow) -> dict[str, Value]:
    """CPU by role for a request, and what the processes use without any load."""
    slices = [trial.client.get(SLICES) or {} for trial in side.trials if trial.counts.completed]
    try:
        requests = sum(int(part.get("requests") or 0) for part in slices)
        seconds = _add_up([part.get("cpu_s") or {} for part in slices])
        idle = _add_up([part.get("idle_cores") or {} for part in slices])
        wholes = [float(part["idle_all_cores"]) for part in slices if "idle_all_cores" in part]
        if not all(map(math.isfinite, (*seconds.values(), *idle.values(), *wholes))):
            raise ValueError("not a number")
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise FormatError(f"{layer.name}: its CPU by process cannot be read: {error!r}") from None
    cpu = {role: 1e6 * spent / requests for role, spent in seconds.items()} if requests > 0 else {}
    cpu |= {"all": sum(cpu.values())} if cpu else {}
    quiet = {role: 100.0 * cores / len(slices) for role, cores in idle.items()}
    quiet |= {"way": sum(quiet.values())} if quiet else {}
    quiet |= {"all": 100.0 * sum(wholes) / len(wholes)} if wholes else {}
    return {
        **{f"way_cpu.{role}": Value(used) for role, used in cpu.items()},
        **{f"idle_cpu.{role}": Value(used) for role, used in quiet.items()},
    }


def _add_up(parts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for role, spent in part.items():
            total[role] = total.get(role, 0.0) + float(spent)
    return total


def _compare(
    run: Run,
    suite: TaxSuite,
    pairs: Sequence[tuple[Layered, Layered]],
    warnings: Mapping[str, Sequence[Warning]],
    base: str,
) -> list[ViewRow]:
    """Each layer compared with another: a row for each metric, that of the rate with what is added
    to latency and CPU. `base`: what the other is, `first` or `before`."""
    matches = [Match(a, b, (warnings, warnings), pairs=True) for (a, _), (b, _) in pairs]
    threshold = suite.versus.threshold
    made = []
    for ((_, a), (_, b)), judged in zip(
        pairs, judged_rows(matches, threshold, GATE, {}), strict=True
    ):
        base_side, side = (About(view.name, view.dims["layer"], run, ()) for view in (a, b))
        comparing = Comparing("versus", (base_side, side), (judged,), threshold, GATE)
        rows = {row.dims["metric"]: row for row in compare_rows(comparing)}
        added = {"p50_added": _added(rows["p50"]), "cpu_added": _added(rows["cpu"])}
        values = {name: value for name, value in added.items() if value is not None}
        rows[MAIN] = replace(rows[MAIN], values={**rows[MAIN].values, **values})
        title = f"{b.name}, {b.group}" if len(suite.versus.rows) > 1 else b.name
        about = {"title": title, "layer": b.dims["layer"], "row": b.group, "with": base}
        made += [
            replace(row, dims={**row.dims, **about}, name=b.name, group=b.group, warnings=())
            for row in rows.values()
        ]
    return made


def _added(row: ViewRow) -> Value | None:
    """What B adds to A in the unit of the metric: A times the ratio less 1."""
    a, ratio = row.value(f"{row.dims['figure']}.A"), row.values.get("b_over_a")
    if a is None or ratio is None:
        return None
    low, high = (None if end is None else a * (end - 1) for end in (ratio.low, ratio.high))
    return Value(a * (ratio.value - 1), low=low, high=high)


def _findings(
    by_row: Sequence[Sequence[Layered]], firsts: Sequence[ViewRow], steps: Sequence[ViewRow]
) -> Iterator[str]:
    """What the layers cost, row by row."""
    for layers in by_row:
        label = layers[0][1].group
        about = f"{label}: " if len(by_row) > 1 else ""
        texts = [*_cost_words(layers, [row for row in firsts if row.dims["row"] == label])]
        ratios = [row for row in steps if row.dims["row"] == label and row.value("b_over_a")]
        step = min(ratios, key=lambda row: row.values["b_over_a"].value, default=None)
        if step is not None and (ratio := step.values["b_over_a"]).value < 1:
            texts.append(
                f"the largest step is {step.name}, after {step.dims['a']}: "
                f"{percent(1 - ratio.value)} of the requests/s{_share_words(ratio)}"
            )
        if not any("b_over_a" in row.values for row in firsts if row.dims["row"] == label):
            texts.append("nothing can be compared: see what failed")
        yield from (f"{about}{text}" for text in texts)


def _cost_words(layers: Sequence[Layered], rates: Sequence[ViewRow]) -> Iterator[str]:
    """What the default and the optimized Serve cost or gain compared with the first layer."""
    base = layers[0][1]
    for (_, view), rate in zip(layers[1:], rates, strict=True):
        ratio = rate.values.get("b_over_a")
        if ratio is None or view.dims["layer"] not in ("default", "optimized"):
            continue
        verb = "costs" if ratio.value < 1 else "gains"
        share = f"{percent(abs(1 - ratio.value))} of the requests/s of {base.name}"
        medians = [row.text("latency_p50") for row in (view, base)]
        # That of most requests is a lower bound where they ended in the drain.
        p50 = "" if "-" in medians else f"; p50 {medians[0]} ms, not {medians[1]} ms"
        yield f"{view.name} {verb} {share}{_share_words(ratio)}{p50}"


def _share_words(ratio: Value) -> str:
    """` (95 %: 86 % to 88 %)`: what is lost of a rate, or gained; empty without an interval."""
    if ratio.low is None or ratio.high is None:
        return ""
    sign = 1 if ratio.value < 1 else -1
    shares = sorted(sign * (1 - end) for end in (ratio.low, ratio.high))
    words = [percent(share) if share >= 0 else f"-{percent(-share)}" for share in shares]
    return f" (95 %: {' to '.join(words)})"


LENS: Final = Lens(build, ignored=lambda row, warning: True, usage_of=lambda trial: {})
