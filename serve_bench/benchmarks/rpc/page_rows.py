"""The tables on the page of a run of rpc: figures, ratios, percentiles, CPU and memory.

Rule: figures are those of rpc_json in its units (seconds, requests/s, bytes); with several backends
they stand by the x axis, so that the same world can be read across.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.pieces import NOTHING, count, padded, percent, plain, rate
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES
from serve_bench.benchmarks.rpc.tables import (
    AGENT_LATENCY,
    AGENT_RATE,
    OBSERVER_LATENCY,
    OBSERVER_RATE,
    cpu_ms_a_call,
    memory,
)
from serve_bench.core.document import Cell, Column, Number, Row, Table, Text

_SHOWN: Final = (
    (AGENT_LATENCY, 50, "agent p50", "ms"),
    (AGENT_LATENCY, 95, "agent p95", "ms"),
    (AGENT_RATE, 50, "agent p50", "requests/s"),
    (OBSERVER_LATENCY, 50, "observer p50", "ms"),
    (OBSERVER_LATENCY, 95, "observer p95", "ms"),
    (OBSERVER_LATENCY, 99, "observer p99", "ms"),
    (OBSERVER_RATE, 50, "observer p50", "requests/s"),
)


def metric(name: str, value: float) -> Number:
    """A figure of one of the four metrics: latencies in seconds, shown in ms."""
    return Number(latency(1e3 * value) if "latency" in name else number(value), value)


def _heads(page: RpcPage) -> tuple[Column, ...]:
    head = "backend" if len(page.backends) > 1 else page.x_axis
    return (Column(head, number=False),)


def _row(page: RpcPage, entry: RpcEntry, cells: Sequence[Cell], doubts: bool = False) -> Row:
    """A row under the point of its x axis, where several backends share it."""
    several = len(page.backends) > 1
    name = entry.point.backend if several else entry.point.x
    group = f"{page.x_axis} {entry.point.x}" if several else ""
    return Row((name, *cells), entry.remarks if doubts else (), group)


def _entries(page: RpcPage) -> list[RpcEntry]:
    return [entry for x in page.xs for entry in page.at(x)]


def figures_table(page: RpcPage) -> Table:
    """The figures of every world; of several launches the spread of their means too."""
    columns = [
        *_heads(page),
        *(Column(name, unit) for _, _, name, unit in _SHOWN),
        Column("all observers", "requests/s"),
    ]
    if page.several_launches:
        columns.append(Column("over launches", "± requests/s"))
    rows = []
    for entry in _entries(page):
        point, spread = entry.point, entry.point.line.spreads.get(MAIN)
        cells: list[Cell] = []
        if point.figures:
            cells += [
                metric(name, point.figures[name].percentiles[share]) for name, share, *_ in _SHOWN
            ]
            cells.append(rate(spread))
            if page.several_launches:
                cells.append(plain(None if spread is None else spread.launch_std))
        else:
            cells.append(Text(str(entry.gap), "doubt"))
        rows.append(_row(page, entry, padded(cells, len(columns) - 1), doubts=True))
    return Table("Agent and observers", tuple(columns), tuple(rows))


# -------------------------------------------------------------------------------------- ratios


def ratios_table(page: RpcPage) -> Table:
    """Every backend but the first, to the same world on the first."""
    columns = (
        *_heads(page),
        Column("agent latency", "x"),
        Column("agent rate", "x"),
        Column("observer latency", "x"),
        Column("observer rate", "x"),
        Column("observer p50", "ms more"),
        Column("all observers", "x"),
    )
    rows = []
    for entry in _entries(page):
        if entry.point.backend == page.backends[0] or not entry.point.figures:
            continue
        base = next(iter(page.at(entry.point.x)))
        cells: list[Cell] = [_times(entry.point.ratios.get(name)) for name in NAMES]
        rows.append(
            _row(page, entry, [*cells, _more(entry, base), _times(entry.point.line.ratio).text])
        )
    caption = f"Ratios to {page.backends[0]}: of medians, and of the mean requests/s of all"
    return Table(caption, columns, tuple(rows))


def _times(value: float | None) -> Number:
    """Two decimals; more where two would hold less than two digits of it."""
    if value is None:
        return NOTHING
    return Number(f"{value:.2f}" if value >= 0.1 else f"{value:.2g}", value)


def _more(entry: RpcEntry, base: RpcEntry) -> Cell:
    """What the median call of an observer takes more: text, since JSON has no such figure."""
    if not entry.point.ratios or OBSERVER_LATENCY not in base.point.figures:
        return "-"
    medians = [one.point.figures[OBSERVER_LATENCY].percentiles[50] for one in (entry, base)]
    ms = 1e3 * (medians[0] - medians[1])
    return f"{'+' if ms >= 0 else '-'}{latency(abs(ms))}"


# --------------------------------------------------------------------------------- percentiles


def percentiles_table(page: RpcPage) -> Table:
    """The four metrics of every world with all of their percentiles."""
    columns = (
        Column("metric", number=False),
        Column("unit", number=False),
        *(Column(f"p{share}") for share in (*PERCENTILES, 99)),
        Column("mean"),
        Column("std"),
        Column("samples"),
    )
    rows = []
    for entry in _entries(page):
        for name, figures in entry.point.figures.items():
            shares = [figures.percentiles[share] for share in (*PERCENTILES, 99)]
            rows.append(
                Row(
                    (
                        name.removesuffix(" (seconds)"),
                        "ms" if "latency" in name else "requests/s",
                        *(metric(name, value) for value in (*shares, figures.mean, figures.std)),
                        count(figures.count),
                    ),
                    group=entry.title,
                )
            )
    return Table("Percentiles of the four metrics", columns, tuple(rows))


# --------------------------------------------------------------------------------- CPU, memory


def inside_table(page: RpcPage) -> Table | None:
    """CPU, memory and limit of every world that was measured; None where nothing is known."""
    entries = [one for one in _entries(page) if one.point.trials]
    known = any(one.use.agent is not None or one.point.memory_bytes is not None for one in entries)
    if not known:
        return None
    columns = (
        *_heads(page),
        *(Column(name, "% of a core") for name in ("agent", "observers", "others", "host")),
        Column("a call", "ms of a core"),
        Column("memory", "in processes"),
        Column("limited by", number=False),
    )
    rows = []
    for entry in entries:
        use, size = entry.use, entry.point.memory_bytes
        host = percent(use.host)
        if use.host is not None and use.cores:
            host = Number(f"{use.host:.0f} of {100 * use.cores}", use.host)
        rows.append(
            _row(
                page,
                entry,
                [
                    *(percent(one) for one in (use.agent, use.observers, use.others)),
                    host,
                    number(cpu_ms_a_call(entry), 3),
                    NOTHING if size is None else Number(memory(entry), size),
                    use.limited or "-",
                ],
            )
        )
    notes = (
        "Host: all that runs there. A call: what all processes of the world used for one. Memory: "
        "of all processes, proportional.",
    )
    return Table("CPU and memory", columns, tuple(rows), notes)
