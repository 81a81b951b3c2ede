"""A made-up sheet that has every part of a page, with names that try to be more than text."""

import math
from typing import Any

from serve_bench.view.charts import Point, nines
from serve_bench.view.document import (
    Chart,
    Code,
    Column,
    Document,
    Facts,
    Finding,
    Flamegraph,
    Folded,
    Number,
    Prose,
    Section,
    Table,
    TableRow,
    Text,
    sentences,
)

EVIL = "</script><script>alert('evil')</script><img src=x onerror=alert('evil')>\u2028&amp;"


def chart(title: str = "requests/s by row", name: str = "default") -> Chart:
    """Points with intervals, by group; `name` is that of the first group."""
    points = [
        Point(f"{clients} clients", rate, group, 0.9 * rate, 1.1 * rate)
        for clients, rates in ((1, (155, 1670)), (8, (271, 2810)), (100, (375, 4550)))
        for group, rate in zip((name, "optimized"), rates, strict=True)
    ]
    return Chart(title, "dots", points, "requests/s", caption="A dot is the mean of a row.")


def curves() -> Chart:
    """Lines on log axes, with expressions that must be interpreted."""
    points = [
        Point(nines(share), factor * (2 + math.log(1 / (1 - share)) ** 2), name)
        for name, factor in (("single client", 1.0), ("8 clients", 4.0), ("100 connections", 11.0))
        for share in (0, 0.5, 0.9, 0.99, 0.999, 0.9999)
    ]
    title, x_name = "latency by percentile, max_batch_size 1", "share of requests"
    return Chart(title, "lines", points, "ms", x_name, x_scale="share", log_y=True)


def table(name: str = "single client") -> Table:
    """Two groups of rows; figures, words, tones, doubts."""
    heads = ("row", "requests/s", "p99", "errors", "limited by", "ratio")
    units = {"requests/s": "mean ± std", "p99": "ms"}
    texts = ("row", "limited by")
    columns = (Column(head, units.get(head, ""), head not in texts) for head in heads)
    default, optimized = (
        f"{variant}: max_batch_size 1, max_ongoing_requests 10000, num_replicas 1"
        for variant in ("default", "optimized")
    )

    def row(label: str, rate: float, group: str, *doubts: Finding) -> TableRow:
        below = ("medium confidence; next limit: host 181 of 200 %",)
        cells = (
            *(Text(label, below=("aiohttp",)), Number(f"{rate:,.1f} ± {0.08 * rate:.1f}", rate)),
            *(Number("10.7", 10.7), Number("3", 3, "bad") if doubts else Number("0", 0)),
            *(Text("offered load, 1 connection", below=below), Number("10.81", 10.81, "good")),
        )
        return TableRow(cells, doubts, group)

    doubts = (
        Finding("3 of 3,746 requests failed (reset 3)", "errors", "doubt"),
        Finding("the client used 97 % of a core", "client-bound", "doubt"),
    )
    gap = Text("100 connections", "bad", ("raw",)), Text("not measured", "bad", ("refused",))
    rows = (
        row(name, 154.3, default),
        row("8 clients", 270.6, default),
        row("100 connections", 374.6, default, *doubts),
        row(name, 1668.25, optimized),
        TableRow((*gap, *2 * [Number("-", None)], Text(""), Text("-")), group=optimized),
    )
    return Table("Results", tuple(columns), rows, ("requests/s: mean ± std over 10 x 1 s.",))


def sheet(name: str = "a row", **changes: Any) -> Document:
    """Make a document; `name` stands in every part of it."""
    proof = (Facts((("HTTP by", name), ("haproxy", "2.8.25"))), chart("folded chart"))
    method = (
        Prose((f"Each row ran once in each launch. {name}",)),
        Table("Plan", (Column("row", number=False),), (TableRow((Text(name),)),)),
        Folded("Proof of each launch", proof),
        Folded(f"Formulas {name}", (Code("std = sqrt(sum((x - mean)^2) / n)"),)),
    )
    results = (
        Prose((f"What is doubted stands under its row. {name}",)),
        table(name),
        Prose(("A doubtful paragraph.",), tone="doubt"),
        Prose(("one thing", name), listed=True),
    )
    profiles = (
        Flamegraph(f"replica {name}", "profiles/replica.raw.txt"),
        Flamegraph("proxy", "profiles/gone.raw.txt"),
    )
    given: dict[str, Any] = {
        "title": f"The micro matrix: {name}",
        "command": "micro",
        "about": lambda: (
            Facts((("variants", f"default, optimized, {name}"), ("when", "2026-11-22"))),
            Facts((("Ray", f"2.60.0 {name}"),)),
        ),
        "findings": sentences((f"optimized served 4,552 requests/s. {name}", "A row is missing.")),
        "doubts": sentences((f"busy-host: load average 1.7 before the start {name}",), "doubt"),
        "sections": (
            Section("method", "Method", method),
            Section("results", "Results", results),
            Section("throughput", "Throughput", (chart(name=name),)),
            Section("latency", "Latency", (curves(),)),
            Section("profiles", "Profiles", profiles),
        ),
        "records": ("results/20261122T052133Z",),
    }
    return Document(**{**given, **changes})
