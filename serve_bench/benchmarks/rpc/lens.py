"""How a run of rpc is looked at: the four metrics of PyTorch's benchmark, world by world.

Latencies are recorded, throughputs follow from them value by value: agent throughput is batch_size
/ agent latency of the same batch, observer throughput 1 / observer latency of the same call. So a
percentile of a throughput is that of the latency from the other end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Final

from serve_bench.analysis.statistics import LATENCY, MAIN, Line, merged, variants
from serve_bench.benchmarks.rpc.latencies import AGENT_LATENCY
from serve_bench.benchmarks.rpc.request import PUBLISHED_ARGUMENTS, x_of
from serve_bench.core.errors import FormatError
from serve_bench.core.figures import counted, number
from serve_bench.core.histogram import Histogram, slot_middle
from serve_bench.core.result import Result
from serve_bench.view.blocks import (
    cpu_of_rows,
    curve_of,
    over_windows,
    percentile_charts,
    sentence,
    statement,
)
from serve_bench.view.charts import Chart
from serve_bench.view.csv import json_of, run_json
from serve_bench.view.document import Block, Charts, Finding, Folded, Prose, ReportOptions, Section
from serve_bench.view.figures import STATISTICS, Value, declare, grouped
from serve_bench.view.frame import (
    Field,
    TableSpec,
    ViewRow,
    draw_over,
    is_ordered,
    launch_table,
    make_table,
)
from serve_bench.view.inside import GroupedCpu, grouped_cpu
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RPC, reference, rpc_source
from serve_bench.view.rows import Page
from serve_bench.view.texts import cell_title

METRICS: Final[Mapping[str, str]] = {
    AGENT_LATENCY: "agent latency",
    "agent_throughput": "agent throughput",
    LATENCY: "observer latency",
    "observer_throughput": "observer throughput",
}
"""The four as the source names them, in its order, by what the names of our figures begin with."""

SHARES: Final[Mapping[str, int]] = {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
PUBLISHED_SHARES: Final = ("p50", "p75", "p90", "p95")

for _name in (*STATISTICS, "p95"):
    declare(
        f"{AGENT_LATENCY}_{_name}",
        "1" if _name == "count" else "ns",
        f"{_name} of the time from a batch's first request until each has its action",
        title=_name,
        shown="" if _name == "count" else None,
        better=None if _name == "count" else "lower",
    )
declare(
    *(f"{LATENCY}_p95", "ns", "p95 of the time from an observer's call until its action"),
    title="p95",
    better="lower",
)
for _metric, _rate in (
    ("agent_throughput", "batch_size / agent latency of the same batch"),
    ("observer_throughput", "1 / observer latency of the same call"),
):
    for _name in (*SHARES, "mean", "std"):
        _meaning = f"{_name} of {_rate}"
        declare(f"{_metric}_{_name}", "requests/s", _meaning, title=_name, better="higher")
declare("median_of_base", "1", "the median on a backend over that on the first one")
declare("median_more", "ns", "what the median call of an observer takes more than on the first")


def _cpu(line: Line) -> GroupedCpu:
    return grouped_cpu([trial.usage for trial in line.trials], _group)


def _group(role: str) -> str:
    return {"agent": "agent", "observer": "observers"}.get(role, "others")


def _call_cpu(line: Line) -> float | None:
    groups, rate = _cpu(line).groups, line.spreads.get(MAIN)
    if "agent" not in groups or rate is None or rate.mean <= 0:
        return None
    return 1e7 * sum(groups.values()) / rate.mean


def _memory(line: Line) -> float | None:
    sizes = [trial.client.get("memory_bytes") for trial in line.trials]
    return max((size / 1e6 for size in sizes if isinstance(size, int)), default=None)


for _name in ("agent", "observers", "others"):
    _meaning = f"CPU of the {_name} of a world, % of a core; the tool is of the others"
    declare(f"cpu_{_name}", "%", _meaning, grouped(_group, _name), title=_name)
declare(
    *("cpu_agent_busiest", "%", "the most CPU of the agent in a launch, % of a core"),
    lambda line: _cpu(line).busiest.get("agent"),
)
declare("call_cpu", "ns", "CPU time of all processes of a world for a call", _call_cpu)
declare("world_memory", "MB", "the most that all processes took (proportional set)", _memory)

HOST_FULL: Final = 0.90
"""Of all cores of the host: what is left then goes to work in the kernel and to switching."""

AGENT_FULL: Final = 85.0
"""% of a core. The agent also waits for its requests, so that it does not reach 100."""

MOST_NAMED: Final = 4
"""Worlds that a sentence names."""

EXAMPLE: Final = "PUBLISHED, not measured here; hardware not named"

RESULTS: Final = TableSpec(
    "Agent and observers",
    (
        Field(f"{AGENT_LATENCY}_p50", "agent", head="p50 ms"),
        Field(f"{AGENT_LATENCY}_p95", "agent", head="p95 ms", detail=True),
        Field("agent_throughput_p50", "agent", head="p50 1/s", detail=True),
        Field(f"{LATENCY}_p50", "observer", head="p50 ms"),
        Field(f"{LATENCY}_p95", "observer", head="p95 ms", detail=True),
        Field(f"{LATENCY}_p99", "observer", head="p99 ms"),
        Field("observer_throughput_p50", "observer", head="p50 1/s", detail=True),
        Field(MAIN, "all observers"),
    ),
    (
        "agent: from a batch's first request until each has its action; observer: from its call "
        "until it has its action; ±: std over episodes",
    ),
)
RATIOS: Final = TableSpec(
    "Ratios to {}: of medians; of requests/s those of means",
    (
        Field(f"median_of_base.{AGENT_LATENCY}", "agent", head="latency"),
        Field("median_of_base.agent_throughput", "agent", head="1/s", detail=True),
        Field(f"median_of_base.{LATENCY}", "observer", head="latency"),
        Field("median_of_base.observer_throughput", "observer", head="1/s", detail=True),
        Field("median_more", "observer", head="p50 ms more"),
        Field("launch_ratio", "all observers", head="requests/s"),
    ),
)
INSIDE: Final = TableSpec(
    "CPU and memory",
    (
        Field("cpu_agent", head="CPU %"),
        Field("cpu_observers", head="CPU %"),
        Field("cpu_others", head="CPU %", detail=True),
        Field("cpu_host", head="CPU %"),
        Field("call_cpu", "a call", head="CPU ms"),
        Field("world_memory", "memory", detail=True),
        Field("limit", "limited by"),
    ),
    (
        "CPU: % of a core; host: all that runs there; a call: what all processes of the world used "
        "for one; memory: of all processes, proportional (what n share counts 1/n in each)",
    ),
)
PERCENTILES: Final = tuple(
    TableSpec(
        words.capitalize(),
        tuple(Field(f"{metric}_{name}", name) for name in (*SHARES, "mean", "std", "count")),
    )
    for metric, words in METRICS.items()
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The worlds of a run over the argument that was swept, the backends of each side by side."""
    x_axis = str(result.run.suite.get("x_axis") or "world_size")
    planned = [row for row in rows if row.dims["status"] != "profiled"]
    worlds = _order(result, [_complete(row, x_axis) for row in planned], x_axis)
    if not worlds:
        return View(worlds, findings=("Nothing was planned.",))
    measured = [row for row in worlds if f"{LATENCY}_p95" in row.values]
    compared = [*compare_backends(measured, variants(result)[0])]
    example = _published_rows(worlds, x_axis) if options.published else []
    sections = [*_table_sections(worlds, measured, compared, x_axis)]
    if options.published:
        blocks = tuple(_example_blocks(example))
        sections.append(Section("published", "Published, not measured here", blocks, "table"))
    cpu = [(row.name, row.trials, None) for row in worlds]
    drawn = (Charts(partial(_draw, measured, example, x_axis)),)
    return View(
        rows=worlds,
        comparisons=compared,
        findings=tuple(_findings(worlds, measured, x_axis)),
        sections=sections,
        charts=[Section("metrics", f"The four metrics over {x_axis}", drawn)] if measured else (),
        cpu=(Charts(partial(cpu_of_rows, "CPU by process", cpu)),),
        facts=tuple(_describe(result, page, worlds)),
        notes=(),
    )


# Rows: a world on a backend.


def _complete(row: ViewRow, x_axis: str) -> ViewRow:
    """The world with its figures, what was full, and what broke off. Raises FormatError."""
    assert row.entry is not None
    line = row.entry.line
    for name in ("world_size", "batch", x_axis):
        if name not in line.cell:
            raise FormatError(f"{line.keys[0]}: its cell has no {name}")
    size = line.cell["world_size"]
    if not isinstance(size, int):
        raise FormatError(f"{line.keys[0]}: world_size {size!r} is no number of processes")
    batch_size = size - 1 if line.cell["batch"] else 1
    figures = dict(_compute_samples(line, batch_size))
    broken = [
        Finding(f"{counted(len(over_windows(trial)), 'whole episode')} kept", "broken off", "doubt")
        for trial in line.trials
        if trial.flags.get("interrupted")
    ]
    return replace(
        row,
        dims={**row.dims, "batch_size": batch_size, "limit": _find_limit(row)},
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


def _compute_samples(line: Line, batch_size: int) -> Iterator[tuple[str, Value]]:
    """What rows of all kinds lack of the four metrics; nothing unless agent and observers have
    latencies."""
    agent, observers = merged(line.trials, AGENT_LATENCY), merged(line.trials, LATENCY)
    if not agent.count or not observers.count:
        return
    yield f"{AGENT_LATENCY}_p95", Value(float(agent.percentile(0.95) or 0))
    yield f"{LATENCY}_p95", Value(float(observers.percentile(0.95) or 0))
    for name, latency, size in (("agent", agent, batch_size), ("observer", observers, 1)):
        for statistic, value in throughput_figures(latency, size).items():
            yield f"{name}_throughput_{statistic}", Value(value)


def throughput_figures(latency: Histogram, batch_size: int) -> dict[str, float]:
    """The figures of batch_size / latency, requests/s, of a histogram of ns that holds a value.

    The p-th percentile, nearest rank: the k-th smallest throughput, k = ceil(p n), is that of the
    k-th largest latency.
    """
    occupied = latency.occupied()
    running = list(accumulate(count for _, count in occupied))
    n = running[-1]

    def rate(index: int) -> float:
        return batch_size * 1e9 / max(1, slot_middle(index))

    def ranked(share: int) -> float:
        from_top = max(1, math.ceil(share / 100 * n - 1e-9 * n))
        return rate(occupied[bisect_left(running, n - from_top + 1)][0])

    mean = sum(rate(index) * count for index, count in occupied) / n
    squares = sum((rate(index) - mean) ** 2 * count for index, count in occupied)
    figures = {name: ranked(share) for name, share in SHARES.items()}
    return {**figures, "mean": mean, "std": math.sqrt(squares / n)}


def _order(result: Result, rows: Sequence[ViewRow], x_axis: str) -> list[ViewRow]:
    """The rows by the x axis as it was asked for, then by backend, so that a world can be read
    across; with their names."""
    asked = result.run.suite.get("worlds")
    cells = [*(asked if isinstance(asked, Sequence) else ()), *(row.dims for row in rows)]
    xs = list(dict.fromkeys(x_of(cell, x_axis) for cell in cells if isinstance(cell, Mapping)))
    several = len({row.dims["variant"] for row in rows}) > 1
    named = []
    for row in sorted(rows, key=lambda row: xs.index(x_of(row.dims, x_axis))):
        world = f"{x_axis} {x_of(row.dims, x_axis)}"
        name = f"{row.dims['variant']}, {world}" if several else world
        named.append(replace(row, name=name, group=world if several else ""))
    return named


def compare_backends(measured: Sequence[ViewRow], first: str) -> Iterator[ViewRow]:
    """Each world beside the same world on the first backend; of what broke there are no ratios."""
    sound = [row for row in measured if row.group and not _is_broken(row)]
    bases = {row.group: row for row in sound if row.dims["variant"] == first}
    for row in sound:
        base = bases.get(row.group, row)
        if base is row:
            continue
        values = {name: row.values[name] for name in ("launch_ratio",) if name in row.values}
        for metric in METRICS:
            ours, theirs = (side.values[f"{metric}_p50"].value for side in (row, base))
            if theirs:
                values[f"median_of_base.{metric}"] = Value(ours / theirs)
        more = row.values[f"{LATENCY}_p50"].value - base.values[f"{LATENCY}_p50"].value
        values["median_more"] = Value(more)
        yield ViewRow({**row.dims, "base": first}, values, row.name, row.group)


def _is_broken(row: ViewRow) -> bool:
    return row.entry is not None and row.entry.line.broken


# Sections.


def _table_sections(
    worlds: Sequence[ViewRow], measured: Sequence[ViewRow], compared: Sequence[ViewRow], x_axis: str
) -> Iterator[Section]:
    """Figures, ratios and use, a row for each world: by backend where there are several."""
    first = Field("variant", "backend") if worlds[0].group else Field(x_axis, x_axis)
    results: list[Block] = [make_table(_prepend(first, RESULTS), worlds)]
    rated = [row for row in measured if MAIN in row.values]
    if any(len(row.values[MAIN].launches) > 1 for row in rated):
        caption = "Calls of all observers in each launch, requests/s"
        results.append(launch_table(caption, rated, MAIN, "launch"))
    if measured:
        shares = (make_table(_prepend(first, spec), measured, bare=True) for spec in PERCENTILES)
        results.append(Folded("Every percentile of the four metrics", tuple(shares)))
    yield Section("results", f"Results over {x_axis}", tuple(results), "headline")
    if compared:
        caption = RATIOS.caption.format(compared[0].dims["base"])
        ratios = (make_table(_prepend(first, RATIOS), compared, caption),)
        yield Section("ratios", "Ratios between backends", ratios, "table")
    if used := [row for row in worlds if row.values.keys() & {"cpu_agent", "world_memory"}]:
        use = (make_table(_prepend(first, INSIDE), used, bare=True),)
        yield Section("use", "Limits by world", use, "table")


def _prepend(first: Field, spec: TableSpec) -> TableSpec:
    """The table with a column before all others."""
    return replace(spec, fields=(first, *spec.fields))


def _draw(measured: Sequence[ViewRow], example: Sequence[ViewRow], x_axis: str) -> Iterator[Chart]:
    """Rates and the four metrics over the x axis, and the latencies of all calls and batches."""
    over = partial(draw_over, rows=[*example, *measured], x=x_axis, series="variant")
    yield from over("Calls of all observers", figures=(MAIN,))
    for metric, words in METRICS.items():
        yield from over(words.capitalize(), figures=(f"{metric}_p50", f"{metric}_p95"))
    for title, metric in (("calls", LATENCY), ("batches", AGENT_LATENCY)):
        curves = {row.name: curve_of(merged(row.trials, metric)) for row in measured}
        drawn = {name: curve for name, curve in curves.items() if curve}
        yield from percentile_charts(f"Latency of all {title}", drawn)


# Sentences.


def _findings(worlds: Sequence[ViewRow], measured: Sequence[ViewRow], x_axis: str) -> Iterator[str]:
    """The fastest backend, or what a single one does; what was full, and what a call costs."""
    if not measured:
        yield "Nothing was measured."
        return
    if worlds[0].group:
        yield _rank_backends(measured, x_axis)
    else:
        calls = [_describe_calls(row, f" at {row.name}") for row in measured]
        yield sentence(f"{measured[0].dims['variant']} answers {'; '.join(calls)}")
    yield from _describe_costs(worlds)


def _rank_backends(measured: Sequence[ViewRow], x_axis: str) -> str:
    """The backend with the most calls/s, and the others beside it in the same world: of the worlds
    that most backends did the last, or the fastest where the axis has no numbers. What broke is not
    compared."""
    ranks: dict[str, list[ViewRow]] = {}
    for row in sorted(measured, key=lambda row: -(row.value(MAIN) or 0.0)):
        if row.value(MAIN) and not _is_broken(row):
            ranks.setdefault(row.group, []).append(row)
    if not ranks:
        return "No valid world."
    places = {row.group: place for place, row in enumerate(measured)}
    last = is_ordered(measured, x_axis)
    best, *others = max(
        ranks.values(), key=lambda rows: (len(rows), places[rows[0].group] if last else 0)
    )
    most = best.values[MAIN].value
    beside = [
        f"{row.dims['variant']} {number(row.values[MAIN].value / most, 2)} of that "
        f"(p50 {row.text('latency_p50')} ms)"
        for row in others
    ]
    head = f"With {best.group}, {best.dims['variant']} answers most: {_describe_calls(best)}"
    return sentence("; ".join([head, *beside]))


def _describe_calls(row: ViewRow, where: str = "") -> str:
    """`2,748 calls/s of all observers at world_size 10 (an observer waits 3.41 ms, p50)`."""
    rate, wait = number(row.value(MAIN)), row.text("latency_p50")
    return f"{rate} calls/s of all observers{where} (an observer waits {wait} ms, p50)"


def _describe_costs(worlds: Sequence[ViewRow]) -> Iterator[str]:
    """What was full, and the CPU that a call takes on each backend, at least and at most."""
    words, ranges = [], []
    for limit in dict.fromkeys(row.dims["limit"] for row in worlds if row.dims["limit"]):
        names = [row.name for row in worlds if row.dims["limit"] == limit]
        named = " and ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} worlds"
        words.append(f"the {limit} was full with {named}")
    costs = sorted(
        (row for row in worlds if "call_cpu" in row.values),
        key=lambda row: row.values["call_cpu"].value,
    )
    for backend in dict.fromkeys(row.dims["variant"] for row in worlds):
        texts = [row.text("call_cpu") for row in costs if row.dims["variant"] == backend]
        if texts:
            ends = dict.fromkeys((texts[0], texts[-1]))
            ranges.append(f"{' to '.join(ends)} ms on {backend}")
    if ranges:
        words.append(f"the CPU time of a call, of all processes, is {', '.join(ranges)}")
    if words:
        yield statement("; ".join(words))


def _describe(result: Result, page: Page, worlds: Sequence[ViewRow]) -> Iterator[tuple[str, str]]:
    """The worlds, their episodes and the backends in words."""
    axes = {
        name: " / ".join(dict.fromkeys(str(row.dims.get(name, "-")) for row in worlds))
        for name in page.axes
    }
    yield (
        "world",
        "one agent and world_size - 1 observers, each with one call in flight; with batch True the "
        f"policy takes a request of each at once; {cell_title(axes)}",
    )
    suite = result.run.suite
    seconds, episodes = suite.get("seconds"), suite.get("episodes", "?")
    many = f"{episodes}" if seconds is None else f"as many as begin within {seconds} s"
    calls = f"{suite.get('steps', '?')} calls of each observer"
    yield "episode", f"{calls}; episodes of a world: {many}; launches are merged"
    yield from ((f"backend {part.name}", part.engaged) for part in page.variants if part.engaged)


# Published.


def _published_rows(worlds: Sequence[ViewRow], x_axis: str) -> list[ViewRow]:
    """The source's example; none where the run is not alike (x axis world_size, batch True)."""
    if x_axis != "world_size" or not all(row.dims["batch"] is True for row in worlds):
        return []
    rows = []
    for point in reference(RPC)["example"]:
        values = {}
        for metric, words in METRICS.items():
            found = point[words.replace(" ", "_")]
            for share, value in zip(PUBLISHED_SHARES, found, strict=True):
                values[f"{metric}_{share}"] = Value(value * _get_factor(metric))
        rows.append(ViewRow({"variant": EXAMPLE, x_axis: point[x_axis]}, values))
    return rows


def _get_factor(metric: str) -> float:
    """By what a figure of the source is multiplied: it has seconds where we have ns."""
    return 1e9 if metric in (AGENT_LATENCY, LATENCY) else 1.0


def _example_blocks(example: Sequence[ViewRow]) -> Iterator[Block]:
    yield Prose((rpc_source(),), "quiet")
    if not example:
        text = "There is no example like this run: its x axis is world_size, its batch True."
        yield Prose((text,), "quiet")
        return
    for spec in PERCENTILES:
        first = Field("world_size", "world_size")
        yield make_table(_prepend(first, spec), example, f"{spec.caption}, published")


REPORT_FILE: Final = "benchmark_report.json"
"""In the run's folder, always."""


def classic_text(result: Result, page: Page, view: View) -> str:
    """The report file of PyTorch's benchmark: its arguments, and for each world of the first
    backend the four metrics. The source rounds latencies to three decimals and cuts throughputs to
    whole numbers; here nothing is rounded. `serve_bench` says of which run it is."""
    x_axis = str(result.run.suite.get("x_axis") or "world_size")
    worlds = [
        {**dict(_pick_published(row)), x_axis: row.dims[x_axis]}
        for row in view.rows
        if row.dims["variant"] == variants(result)[0] and f"{LATENCY}_p95" in row.values
    ]
    return json_of(
        {
            **published_arguments(result, x_axis),
            "x_axis_name": x_axis,
            "benchmark_results": worlds,
            "serve_bench": {"run": run_json(result.run, page.where)},
        }
    )


def _pick_published(row: ViewRow) -> Iterator[tuple[str, dict[str, float]]]:
    """The four metrics by their published names, in seconds and requests/s."""
    for metric, words in METRICS.items():
        factor = _get_factor(metric)
        values = {share: row.values[f"{metric}_{share}"].value for share in PUBLISHED_SHARES}
        name = f"{words} (seconds)" if factor > 1 else words
        yield name, {share: value / factor for share, value in values.items()}


def published_arguments(result: Result, x_axis: str) -> dict[str, Any]:
    """The arguments of the source with their values, in its order and of its types. Left out: the
    x axis, which each benchmark has for itself, and what the run does not record."""
    suite = result.run.suite
    cells = suite.get("worlds") or [planned.cell for planned in result.run.plan]
    arguments: dict[str, Any] = {"output_file_path": REPORT_FILE}
    arguments |= {name: value for name, value in suite.items() if value is not None}
    arguments |= cells[0] if cells else {}
    values: dict[str, Any] = {
        name: arguments[name]
        for name in PUBLISHED_ARGUMENTS
        if name in arguments and name != x_axis
    }
    if "master_port" in values:
        values["master_port"] = str(values["master_port"])  # a text there
    return values


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
