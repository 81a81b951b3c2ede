"""A made-up sheet that has every part of a page, with names that try to be more than text."""

import math
from typing import Any

from serve_bench.report.page import Bundle
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
from serve_bench.view.drawn import Point, intervals, percentile_curves

EVIL = "</script><script>alert('evil')</script><img src=x onerror=alert('evil')>\u2028&amp;"

STUB = Bundle("window.vegaEmbed=null", "the notices\n", "Vega 1, Vega-Lite 2")
"""In place of the library, for what is about the page alone."""


def chart(title: str = "requests/s by row", name: str = "default") -> Chart:
    """Points with intervals, by group; `name` is that of the first group."""
    points = [
        Point(f"{clients} clients", group, rate, 0.9 * rate, 1.1 * rate)
        for clients, rates in ((1, (155, 1670)), (8, (271, 2810)), (100, (375, 4550)))
        for group, rate in zip((name, "optimized"), rates, strict=True)
    ]
    words = f"{title}: {name} 155 to 375, optimized 1,670 to 4,550."
    caption = "A dot is the mean of a row, its line the std over windows."
    return intervals(title, points, "requests/s", words, caption)


def curves() -> Chart:
    """Lines on log axes, with expressions that must be interpreted."""
    series = {
        name: [
            (share, factor * (2 + math.log(1 / (1 - share)) ** 2))
            for share in (0, 0.5, 0.9, 0.99, 0.999, 0.9999)
        ]
        for name, factor in (("single client", 1.0), ("8 clients", 4.0), ("100 connections", 11.0))
    }
    words = "Latency of 100 connections rises from 22 ms at the median to 950 ms."
    return percentile_curves("latency by percentile, max_batch_size 1", series, words)


def table(name: str = "single client") -> Table:
    """Two groups of rows; figures, words, tones, doubts."""
    columns = (
        Column("row", number=False),
        Column("requests/s", "mean ± std"),
        Column("p99", "ms"),
        Column("errors"),
        Column("limited by", number=False),
        Column("ratio"),
    )

    def row(
        label: str,
        rate: float,
        factor: float,
        limit: str,
        group: str,
        *doubts: tuple[str, str],
        errors: int = 0,
    ) -> TableRow:
        return TableRow(
            (
                Text(label, below=("aiohttp",)),
                Number(f"{rate:,.1f} ± {0.08 * rate:.1f}", rate),
                Number(f"{factor * 10.7:.3g}", factor * 10.7),
                Number(f"{errors}", errors, "bad" if errors else "plain"),
                Text(limit, below=("medium confidence; next limit: host 181 of 200 %",)),
                Number("10.81", 10.81, "good") if rate > 1000 else Number("1", 1.0),
            ),
            tuple(Finding(text, code, "doubt") for code, text in doubts),
            group,
        )

    one = "default: max_batch_size 1, max_ongoing_requests 10000, num_replicas 1"
    two = "optimized: max_batch_size 1, max_ongoing_requests 10000, num_replicas 1"
    return Table(
        "Results",
        columns,
        (
            row(name, 154.3, 1, "offered load, 1 connection", one),
            row("8 clients", 270.6, 8, "offered load, 8 connections", one),
            row(
                "100 connections",
                374.6,
                40,
                "proxy CPU 94 % of a core",
                one,
                ("errors", "3 of 3,746 requests failed (reset 3)"),
                ("client-bound", "the client used 97 % of a core; the server may be faster"),
                errors=3,
            ),
            row(name, 1668.25, 0.08, "offered load, 1 connection", two),
            TableRow(
                (
                    Text("100 connections", "bad", below=("raw",)),
                    Text("not measured", "bad", ("connection refused",)),
                    Number("-", None),
                    Number("-", None),
                    Text("", "quiet"),
                    Number("-", None),
                ),
                (),
                two,
            ),
        ),
        (
            "requests/s: mean ± std (ddof 0) over windows, 10 x 1 s; latency in ms.",
            "ratio: requests/s to those of the same row under default.",
        ),
    )


def sheet(name: str = "a row", **changes: Any) -> Document:
    given: dict[str, Any] = {
        "title": f"The micro matrix: {name}",
        "command": "micro",
        "run": Facts(
            (
                ("variants", f"default, optimized, {name}"),
                ("when", "2026-11-22 05:21 UTC, took 71 s"),
            )
        ),
        "machine": Facts((("Ray", f"2.60.0 {name}"),)),
        "findings": sentences(
            (
                f"optimized served 4,552 requests/s on 100 connections, 12.2 times default. {name}",
                "One row of optimized was not measured, and the host was busy before the start.",
            )
        ),
        "doubts": sentences(
            (f"busy-host: load average 1.7 on 2 cores before the start {name}",), "doubt"
        ),
        "sections": (
            Section(
                "method",
                "Method",
                (
                    Prose((f"Each row ran once in each launch. {name}",)),
                    Table(
                        "Plan and execution",
                        (
                            Column("row", number=False),
                            Column("windows", number=False),
                            Column("warm-up", "s"),
                        ),
                        (TableRow((name, "10 x 1 s", Number("3", 3.0))),),
                    ),
                    Folded(
                        "Proof of each launch",
                        (Facts((("HTTP by", name), ("haproxy", "2.8.25"))), chart("folded chart")),
                    ),
                    Folded(f"Formulas {name}", (Code("std = sqrt(sum((x - mean)^2) / n)"),)),
                ),
            ),
            Section(
                "results",
                "Results",
                (
                    Prose((f"What is doubted stands under its row. {name}",)),
                    table(name),
                    Prose(("A doubtful paragraph.",), tone="doubt"),
                    Prose(("one thing", name), listed=True),
                ),
            ),
            Section("throughput", "Throughput", (chart(name=name),)),
            Section("latency", "Latency", (curves(),)),
            Section(
                "profiles",
                "Profiles",
                (
                    Flamegraph(
                        f"replica {name}",
                        "profiles/replica.raw.txt",
                        f"flamegraph of a replica: json took 40 %. {name}",
                    ),
                    Flamegraph("proxy", "profiles/gone.raw.txt", "flamegraph of the proxy"),
                ),
            ),
        ),
        "where": "results/20261122T052133Z",
        "argv": ("serve-bench", "micro", "--variant", f"default,{name}"),
    }
    return Document(**{**given, **changes})
