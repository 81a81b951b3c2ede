"""The tables on the page of the ranker alone: times and ratios, the floor, what was executed.

Rule: figures are those of ranker_json in its units (ns, s, bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.parts.pieces import NOTHING, count, milliseconds, padded, plain
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.ranker.summary import FORWARD, Interval, RankerLine
from serve_bench.core.document import Cell, Column, Number, Row, Table, Text
from serve_bench.core.result import Result


def times_table(result: Result, lines: Sequence[RankerLine]) -> Table:
    """Times, rate and ratios of each ranker at each batch size; what is missing too."""
    columns = (
        Column("rows", "a batch"),
        Column("ranker", number=False),
        Column("forward", "ms"),
        Column("call", "ms"),
        Column("throughput", "rows/s"),
        Column("plain / tuned", "forward"),
        Column("plain / tuned", "call"),
    )
    failed = {one.key: one.message for one in result.failures}
    shown = [_time_row(line) for line in lines]
    for planned in result.missing:
        cells: list[Cell] = [count(int(planned.cell["rows"])), planned.variant]
        cells.append(Text("not measured", "doubt"))
        doubts = (f"failed: {failed[planned.key]}",) if planned.key in failed else ()
        shown.append(Row(padded(cells, len(columns)), doubts))
    notes = (
        "Medians over rounds; the rankers take turns in slices of about 10 ms, in drawn order.",
        "In brackets the interval that holds the median with 95 %, or with the share that is said.",
    )
    return Table("Times by batch size", columns, tuple(shown), notes)


def _time_row(line: RankerLine) -> Row:
    few = min(line.forward.level, line.call.level)
    doubts = () if few >= 0.95 else (f"{line.forward.count} rounds: intervals hold {few:.0%}",)
    return Row(
        (
            count(line.rows),
            line.kind,
            milliseconds(line.forward.median),
            milliseconds(line.call.median),
            plain(line.rows_per_s),
            _interval(line.forward_ratio),
            _interval(line.call_ratio),
        ),
        doubts,
    )


def _interval(interval: Interval | None) -> Number:
    if interval is None:
        return NOTHING
    text = f"{interval.median:.2f} ({interval.low:.2f} to {interval.high:.2f})"
    reached = "" if interval.level >= 0.95 else f" at {100 * interval.level:.0f} %"
    return Number(text + reached, interval.median)


def floors_table(lines: Sequence[RankerLine]) -> Table:
    """The least time of a forward by what each part of the device can do."""
    columns = (
        Column("rows", "a batch"),
        Column("ranker", number=False),
        Column("bytes moved", "MB"),
        Column("memory", "ms"),
        Column("operations", "Mflop"),
        Column("compute", "ms"),
        Column("operators"),
        Column("launches", "ms"),
        Column("floor", "ms"),
        Column("by", number=False),
        Column("forward / floor"),
    )
    return Table("The floor of one forward", columns, tuple(_floor(line) for line in lines))


def _floor(line: RankerLine) -> Row:
    floor = line.floor
    return Row(
        (
            count(line.rows),
            line.kind,
            Number(number(floor.bytes_moved / 1e6, 3), floor.bytes_moved),
            _seconds(floor.memory_s),
            Number(number(floor.flops / 1e6, 3), floor.flops),
            _seconds(floor.compute_s),
            count(floor.launches),
            _seconds(floor.launch_s),
            _seconds(floor.seconds),
            floor.bound_by,
            _times_floor(line),
        )
    )


def _seconds(value: float) -> Number:
    """Seconds, shown in ms."""
    return Number(latency(1e3 * value), value)


def _times_floor(line: RankerLine) -> str:
    """Text, since JSON has no such figure."""
    return f"{line.forward.median / 1e9 / line.floor.seconds:.1f}"


def executed_table(result: Result) -> Iterator[Table]:
    """What was executed of each row: rounds, calls, different inputs, the warm-up."""
    columns = (
        Column("rows", "a batch"),
        Column("ranker", number=False),
        Column("rounds"),
        Column("calls"),
        Column("inputs", "different"),
        Column("warm-up", "s"),
        Column("all", "s"),
    )
    rows = [
        Row(
            (
                count(int(one.cell["rows"])),
                one.variant,
                count(len(one.metrics[FORWARD].windows or ())),
                count(one.counts.completed),
                count(one.client.get("inputs")),
                plain(one.warmup.seconds, 3),
                plain(one.seconds.get("total"), 3),
            )
        )
        for one in result.trials
    ]
    if rows:
        yield Table("Executed", columns, tuple(rows))
