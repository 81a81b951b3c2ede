"""What the tests of HTML pages ask of a Document: its tables by caption, its texts, its charts."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from serve_bench.benchmarks.registry import find_lens
from serve_bench.core.result import Result
from serve_bench.report.drawing import draw
from serve_bench.report.page import make_blocks
from serve_bench.report.theme import list_looks, list_series
from serve_bench.view import document
from serve_bench.view.ladders import LadderView, view_ladders
from serve_bench.view.lens import RunLook, View
from serve_bench.view.rows import make_page
from tests.rendering import render

Part = TypeVar("Part", bound=document.Block)


def select(blocks: Iterable[document.Block], kind: type[Part]) -> list[Part]:
    """Select the blocks of a kind, folded ones too."""
    return [block for block in document.unfold(blocks) if isinstance(block, kind)]


def tables(sheet: document.Document) -> list[document.Table]:
    return [table for section in sheet.sections for table in select(section.blocks, document.Table)]


def tiles(sheet: document.Document) -> list[str]:
    return [cell.text for row in sheet.tiles().rows for cell in row.cells]


def charts(sheet: document.Document) -> list[document.Chart]:
    return [chart for section in sheet.sections for chart in select(section.blocks, document.Chart)]


def chart(sheet: document.Document, title: str) -> document.Chart:
    return next(chart for chart in charts(sheet) if chart.title.startswith(title))


def opened(blocks: Iterable[document.Block], kind: type[Part]) -> list[Part]:
    return [block for block in make_blocks(blocks) if isinstance(block, kind)]


def names(sheet: document.Document) -> list[str]:
    return [section.name for section in sheet.sections if [*make_blocks(section.blocks)]]


def part(sheet: document.Document, name: str) -> tuple[document.Block, ...]:
    return tuple(make_blocks(next(part for part in sheet.sections if part.name == name).blocks))


def at(of: document.Table, name: str, unit: str | None = None) -> int:
    """Find the place of a column; by its unit too where several have the name."""
    found = [
        place
        for place, column in enumerate(of.columns)
        if column.name == name and unit in (None, column.unit)
    ]
    assert len(found) == 1, (name, unit, of.columns)
    return found[0]


def is_sound(sheet: document.Document) -> None:
    """Check a page: rows as wide as the table, numbers for JSON, named sections, sentences."""
    names = [section.name for section in sheet.sections]
    assert len(set(names)) == len(names) and names[-1] == "method"
    assert all(re.fullmatch(r"[a-z][a-z-]*", name) for name in names)
    assert as_lines(sheet.findings) and all(line.endswith(".") for line in as_lines(sheet.findings))
    for table in tables(sheet):
        for row in table.rows:
            assert len(row.cells) == len(table.columns), table.caption
            for figure in (found for found in row.cells if isinstance(found, document.Number)):
                assert figure.value is None or math.isfinite(figure.value)
    for drawing in charts(sheet):
        plot = draw(drawing, list_series(drawing, list_looks([drawing]))).plot
        assert '"nan' not in plot and drawing.title


def look_at(result: Result, **options: Any) -> RunLook:
    return find_lens(result.run.command).look(result, document.ReportOptions(**options))


def view_of(result: Result) -> View:
    return look_at(result).view


def make_sheet(
    result: Result, where: str | None = None, published: bool = False
) -> document.Document:
    return look_at(result, where=where, published=published).document


def ladders_of(result: Result) -> list[LadderView]:
    return view_ladders(result, [*make_page(result).rows])


def as_lines(findings: Sequence[document.Finding]) -> tuple[str, ...]:
    return tuple(finding.line for finding in findings)


def flat(text: str) -> str:
    return " ".join(text.split())


def shown(result: Result, **about: Any) -> str:
    """Join the table of a run with all that it has, in one line."""
    return flat(render(result, **{"width": 300, "verbose": True, **about}))
