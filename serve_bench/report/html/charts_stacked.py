"""Bars made of parts, such as the CPU of each process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from serve_bench.core.document import Chart
from serve_bench.report.html.charts_parts import (
    Share,
    Spec,
    axis,
    by_group,
    chart,
    ordered,
    shown,
    tooltip,
)
from serve_bench.report.html.charts_rows import LINE, Rows

SAID = 0.12
"""A part that takes such a share of the longest bar has its figure in it; less has no room."""


def stacked(title: str, shares: Sequence[Share], unit: str, words: str, caption: str = "") -> Chart:
    """A bar for each label, by part, from zero, its sum behind it and its note under it. Raises
    ValueError without shares, and for a share below zero."""
    if not shares:
        raise ValueError("stacked: no shares")
    if any(one.value < 0 for one in shares):
        raise ValueError("stacked: a share below zero")
    parts = ordered(one.part for one in shares)
    labels = ordered(one.label for one in shares)
    bars = [[one for one in shares if one.label == label] for label in labels]
    notes = [" ".join(ordered(one.note for one in bar if one.note)) for bar in bars]
    rows = Rows([(label, "") for label in labels], notes)
    sums = [sum(one.value for one in bar) for bar in bars]
    longest = max(sums) or 1.0
    # Behind the longest bar there is room for its sum.
    x = axis("start", unit, (0.0, 1.16 * longest), False)
    values = [
        datum
        for key, bar in zip(rows.keys, bars, strict=True)
        for datum in _bar(key, sorted(bar, key=lambda one: parts.index(one.part)), unit)
    ]
    totals = [
        {"line": key, "total": total, "shown": shown(total, unit)}
        for key, total in zip(rows.keys, sums, strict=True)
    ]
    colour = by_group(parts, ("color",), beside=rows.beside)
    said = tooltip(("label", "row"), ("part", "part"), ("shown", unit))
    spec: Spec = {
        "data": {"values": values},
        "layer": [
            *rows.words(),
            {
                # A pixel is left free at the end of each part: parts are told apart without colour.
                "mark": {"type": "bar", "height": LINE - 4, "x2Offset": -1},
                "encoding": {
                    "y": rows.y,
                    "x": x,
                    "x2": {"field": "end"},
                    **colour,
                    "tooltip": said,
                },
            },
            {
                "transform": [{"filter": f"datum.value >= {SAID * longest!r}"}],
                "mark": {"type": "text", "style": "segment", "tooltip": None},
                "encoding": {
                    "y": rows.y,
                    "x": {**x, "field": "middle"},
                    "text": {"field": "shown"},
                },
            },
            {
                "data": {"values": totals},
                "mark": {"type": "text", "style": "value", "align": "left", "dx": 5},
                "encoding": {
                    "y": rows.y,
                    "x": {**x, "field": "total"},
                    "text": {"field": "shown"},
                },
            },
        ],
    }
    return chart(title, spec, words, caption, rows.height)


def _bar(key: str, bar: Sequence[Share], unit: str) -> Iterator[Spec]:
    """The parts of a bar, one behind the other."""
    at = 0.0
    for one in bar:
        yield {
            "line": key,
            "label": one.label,
            "group": one.part,
            **asdict(one),
            "shown": shown(one.value, unit),
            "start": at,
            "middle": at + one.value / 2,
            "end": at + one.value,
        }
        at += one.value
