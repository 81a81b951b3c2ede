"""The report of `serve-bench ranker`: times by batch size, the ratio with its interval, the floor.

Rule: every figure comes from benchmarks/ranker/summary.py; here they are only set out, as text or
JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from serve_bench.benchmarks.parts.page import host_line, number
from serve_bench.benchmarks.ranker.summary import Interval, RankerLine, ranker_lines
from serve_bench.core.result import Result
from serve_bench.report.columns import fitted, wrapped

NOTES = (
    "forward: from features on the device to scores on it; call: from the requests' features, as "
    "they come, to the scores of each as Python lists. Medians over rounds; the rankers take turns "
    "in slices of about 10 ms, in drawn order.",
    "plain/tuned: the median of the ratios of rounds, and the interval that holds it with 95 % "
    "(order statistics, no distribution assumed). Above 1, tuned is faster.",
    "floor: the largest of its terms. memory: embeddings gathered, inputs and weights, over the "
    "bandwidth of a large copy; compute: operations over the rate of a large float32 product; "
    "launches: operators run, each at the cost of the smallest.",
)


def ranker_text(result: Result, where: str | None = None, width: int = 80) -> str:
    """The run as text that ends with a newline."""
    lines = ranker_lines(result)
    run = result.run
    out = wrapped(f"serve-bench ranker, {run.started_at}, run {run.id}", width, hang=0)
    if lines:
        out += wrapped(model_words(result), width)
        times = [times_texts(line) for line in lines]
        table = fitted(TIMES, times, (1,), width, ("rows/s",), fold=(5, 6))
        out += ["", *table.lines, *table.said(width)]
        floors = [floor_texts(line) for line in lines]
        table = fitted(FLOORS, floors, (1,), width, ("floor ms", "compute"), fold=(2, 3, 4))
        out += ["", "floor of one forward", *table.lines, *table.said(width)]
    out.append("")
    for planned in result.missing:
        out += wrapped(f"not measured: {planned.key}", width)
    for failure in result.failures:
        out += wrapped(f"failed: {failure.message}", width)
    for note in (*(NOTES if lines else ()), f"host: {host_line(result.run.host)}"):
        out += wrapped(note, width)
    if where is not None:
        out.append(f"records: {where}")
    return "\n".join(out) + "\n"


def ranker_json(result: Result, where: str | None = None) -> str:
    """The same figures as one JSON object, not rounded; times in ns and s as their names say."""
    page = {
        "run": {
            "id": result.run.id,
            "argv": list(result.run.argv),
            "started_at": result.run.started_at,
            "tool_version": result.run.tool_version,
            "records": where,
        },
        "host": dict(result.run.host),
        "rankers": {trial.variant: dict(trial.client["ranker"]) for trial in result.trials},
        "shape": dict(result.trials[0].client["shape"]) if result.trials else None,
        "machine": dict(result.trials[0].client["machine"]) if result.trials else None,
        "rows": [_as_json(line) for line in ranker_lines(result)],
        "not_measured": [planned.key for planned in result.missing],
        "failures": [failure.message for failure in result.failures],
    }
    return json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_json(line: RankerLine) -> dict[str, Any]:
    floor = asdict(line.floor) | {"seconds": line.floor.seconds, "bound_by": line.floor.bound_by}
    return {
        "rows": line.rows,
        "ranker": line.kind,
        "forward_ns": asdict(line.forward),
        "call_ns": asdict(line.call),
        "rows_per_s": line.rows_per_s,
        "forward_ratio": None if line.forward_ratio is None else asdict(line.forward_ratio),
        "call_ratio": None if line.call_ratio is None else asdict(line.call_ratio),
        "floor": floor,
    }


def model_words(result: Result) -> str:
    """The model, its device, and what the machine did at best, in one line."""
    trial = result.trials[0]
    shape, machine = trial.client["shape"], trial.client["machine"]
    facts = {one.variant: one.client["ranker"] for one in result.trials}
    first = next(iter(facts.values()))
    tables_mb = 4e-6 * shape["sparse_features"] * shape["table_rows"] * shape["width"]
    huge_mb, count = facts.get("tuned", {}).get("huge_pages_mb"), first["threads"]
    device = first["device_name"] or first["device"].upper()
    words = [
        f"DLRM, {shape['dense_features']} dense and {shape['sparse_features']} sparse features, "
        f"{shape['table_rows']:,} x {shape['width']} a table ({tables_mb:,.0f} MB), bottom "
        f"{shape['bottom']}, top {shape['top']}, float32",
        f"on {device}, {count} thread{'' if count == 1 else 's'}, torch {first['torch']}",
        f"tuned: {huge_mb:,.0f} MB in huge pages" if huge_mb else "",
        f"measured here: {machine['bytes_per_s'] / 1e9:.1f} GB/s copied, "
        f"{machine['flops_per_s'] / 1e9:,.0f} Gflop/s, {machine['launch_ns'] / 1e3:.2f} us for "
        "the smallest operator",
    ]
    return "; ".join(word for word in words if word)


TIMES = (
    "rows",
    "ranker",
    "forward ms",
    "call ms",
    "rows/s",
    "plain/tuned forward",
    "plain/tuned call",
)
FLOORS = (
    "rows",
    "ranker",
    "memory",
    "compute",
    "launches",
    "floor ms",
    "by",
    "forward/floor",
)


def times_texts(line: RankerLine) -> list[str]:
    """A row under TIMES."""
    return [
        f"{line.rows:,}",
        line.kind,
        _ms(line.forward.median / 1e6),
        _ms(line.call.median / 1e6),
        number(line.rows_per_s),
        _interval(line.forward_ratio),
        _interval(line.call_ratio),
    ]


def floor_texts(line: RankerLine) -> list[str]:
    """A row under FLOORS."""
    floor = line.floor
    return [
        f"{line.rows:,}",
        line.kind,
        f"{floor.bytes_moved / 1e6:.2f} MB {_ms(1e3 * floor.memory_s)}",
        f"{floor.flops / 1e6:.1f} Mflop {_ms(1e3 * floor.compute_s)}",
        f"{floor.launches} {_ms(1e3 * floor.launch_s)}",
        _ms(1e3 * floor.seconds),
        floor.bound_by,
        f"{line.forward.median / 1e9 / floor.seconds:.1f}",
    ]


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    text = f"{interval.median:.2f} ({interval.low:.2f} to {interval.high:.2f})"
    return text if interval.level >= 0.95 else f"{text} at {100 * interval.level:.0f} %"


def _ms(value: float) -> str:
    return number(value, 3)
