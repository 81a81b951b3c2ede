"""What the tests of HTML pages ask of a Document: its tables by caption, its texts, its charts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from serve_bench.benchmarks.registry import benchmark_of
from serve_bench.cli.show import render
from serve_bench.core.document import (
    Block,
    Chart,
    Document,
    Finding,
    Folded,
    Number,
    ReportOptions,
    Section,
    Table,
    with_charts,
)
from serve_bench.core.result import Result
from serve_bench.report.vega import vega


def texts(of: Any) -> Iterator[str]:
    """Every text of a part, those of its charts among them."""
    if isinstance(of, str):
        yield of
    elif isinstance(of, Finding):
        yield of.line
    elif is_dataclass(of) and not isinstance(of, type):
        for one in fields(of):
            yield from texts(getattr(of, one.name))
    elif isinstance(of, Mapping):
        for key, value in of.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(of, Sequence):
        for value in of:
            yield from texts(value)


def blocks(sheet: Document) -> Iterator[Any]:
    """Every block of a page, the folded ones too."""
    waiting: list[Any] = [
        block for section in sheet.sections for block in with_charts(section.blocks)
    ]
    while waiting:
        block = waiting.pop(0)
        yield block
        if isinstance(block, Folded):
            waiting = [*with_charts(block.blocks), *waiting]


def tables(sheet: Document) -> list[Table]:
    """Every table of a page."""
    return [one for one in blocks(sheet) if isinstance(one, Table)]


def charts(sheet: Document) -> list[Chart]:
    """Every chart of a page."""
    return [one for one in blocks(sheet) if isinstance(one, Chart)]


def chart(sheet: Document, title: str) -> Chart:
    """The chart whose title begins so."""
    return next(one for one in charts(sheet) if one.title.startswith(title))


Part = TypeVar("Part", bound=Block)


def every(blocks: Iterable[Block], kind: type[Part]) -> list[Part]:
    """The blocks of a kind, folded ones too."""
    found: list[Part] = []
    for one in with_charts(blocks):
        if isinstance(one, kind):
            found.append(one)
        if isinstance(one, Folded):
            found += every(one.blocks, kind)
    return found


def opened(blocks: Iterable[Block], kind: type[Part]) -> list[Part]:
    """The blocks of a kind that are not folded."""
    return [one for one in with_charts(blocks) if isinstance(one, kind)]


def names(sheet: Document) -> list[str]:
    """The names of its sections."""
    return [one.name for one in sheet.sections]


def part(sheet: Document, name: str) -> tuple[Block, ...]:
    """The blocks of the section of that name, which must be there."""
    return next(one.blocks for one in sheet.sections if one.name == name)


def section(sheet: Document, name: str) -> Section | None:
    """The section of that name."""
    return next((one for one in sheet.sections if one.name == name), None)


def at(of: Table, name: str, unit: str | None = None) -> int:
    """The place of a column; by its unit too where several have the name."""
    found = [
        place
        for place, one in enumerate(of.columns)
        if one.name == name and unit in (None, one.unit)
    ]
    assert len(found) == 1, (name, unit, of.columns)
    return found[0]


def is_sound(sheet: Document) -> None:
    """What every page keeps to: rows as wide as their table, numbers that JSON has words for,
    sections with a name of their own, sentences that end."""
    names = [one.name for one in sheet.sections]
    assert len(set(names)) == len(names) and names[-1] == "method"
    assert all(re.fullmatch(r"[a-z][a-z-]*", name) for name in names)
    assert all(one.blocks for one in sheet.sections)
    assert as_lines(sheet.findings) and all(one.endswith(".") for one in as_lines(sheet.findings))
    for one in tables(sheet):
        for row in one.rows:
            assert len(row.cells) == len(one.columns), one.caption
            for figure in (found for found in row.cells if isinstance(found, Number)):
                assert figure.value is None or math.isfinite(figure.value)
    for drawing in charts(sheet):
        json.dumps(vega(drawing), allow_nan=False)
        assert drawing.words and drawing.title


def sheet(result: Result, where: str | None = None, published: bool = False) -> Document:
    """What a run says, by the kind of its command."""
    return benchmark_of(result.run).document(result, ReportOptions(where, published))


page_sheet = load_sheet = ladder_sheet = versus_document = sheet


def as_lines(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Findings as they are read, one line each."""
    return tuple(one.line for one in findings)


def flat(text: str) -> str:
    """Without the breaks of lines."""
    return " ".join(text.split())


def shown(result: Result, **about: Any) -> str:
    """The table of a run with all that it has, in one line."""
    return flat(render(result, **{"width": 300, "verbose": True, **about}))
