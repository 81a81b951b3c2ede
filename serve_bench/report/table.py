"""The table for a terminal: one for each variant, its cells as headings, doubts under their row.

Rule: it fits the width it is given. When columns must go it says which; what doubts a row, errors
and the client never go. Colour only repeats what words say. `rich` is used here and in cli/ only.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from serve_bench.report.inside import UsageTable
from serve_bench.report.page import Entry, Page, VariantPart
from serve_bench.report.texts import cell_title, latency, mean_and_std, number, ratio, remark
from serve_bench.result import Failure

#: Columns that may go when there is no room, the first first.
DROP: Final = ("p90", "max", "std over launches", "p50", "published")

_HEADING, _DOUBT, _FAILED, _FAINT = "bold", "yellow", "red", "dim"


@dataclass(frozen=True)
class _Column:
    name: str
    texts: tuple[str, ...]
    left: bool = False

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.name, *self.texts))

    def set(self, text: str) -> str:
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def terminal(file: TextIO) -> tuple[int, bool]:
    """Width and whether to use colour for what is printed to `file`.

    Colour only on a terminal, and not with NO_COLOR; the width of a pipe is COLUMNS, else 80.
    """
    console = Console(file=file)
    plain = console.no_color or console.is_dumb_terminal or not console.is_terminal
    return console.width, not plain


def table(page: Page, *, width: int = 80, color: bool = False) -> str:
    """The whole run as text; lines are at most `width` characters, but for single long words."""
    columns, dropped = _fit(_columns(page), width)
    lines: list[Text] = [*_wrapped(page.title, width, style=_HEADING), Text()]
    first = 0
    for part in page.variants:
        lines += [*_variant(part, columns, first, width), Text()]
        first += len(part.entries)
    lines += _failures(page.failures, width)
    for warning in page.warnings:
        lines += _wrapped(f"! {remark(warning)}", width, hang=2, style=_DOUBT)
    if dropped:
        said = f"left out at {width} columns: {', '.join(dropped)}"
        lines += _wrapped(said, width, style=_FAINT)
    for note in (*page.notes, f"host: {page.host}"):
        lines += _wrapped(note, width, hang=2, style=_FAINT)
    if page.where is not None:
        lines.append(Text(f"records: {page.where}"))
    return _drawn(lines, width, color)


def _columns(page: Page) -> list[_Column]:
    entries = page.entries
    every: list[tuple[str, list[str], bool]] = [
        ("row", [_label(entry) for entry in entries], True),
        ("requests/s", [_rate(entry) for entry in entries], False),
    ]
    if page.launches > 1:
        every.append(("std over launches", [_over_launches(entry) for entry in entries], False))
    for name in ("p50", "p90", "p99", "max"):
        every.append((name, [latency(entry.latency_ms(name)) for entry in entries], False))
    errors = [str(entry.line.errors) if entry.line.trials else "-" for entry in entries]
    every.append(("errors", errors, False))
    every.append(("client", [entry.line.row.client for entry in entries], True))
    if page.base is not None:
        texts = [ratio(entry.line, page.base) for entry in entries]
        every.append(("ratio", texts, False))
    if any(entry.published for entry in entries):
        every.append(("published", [str(entry.published or "-") for entry in entries], False))
    return [_Column(name, tuple(texts), left) for name, texts, left in every]


def _label(entry: Entry) -> str:
    """The name of the row; a profiled one stands right below the row it repeats."""
    return "  profiled" if entry.line.status == "profiled" else entry.line.row.label


def _rate(entry: Entry) -> str:
    return entry.gap or "-" if entry.rate is None else mean_and_std(entry.rate)


def _over_launches(entry: Entry) -> str:
    rate = entry.rate
    if rate is None or rate.launch_std is None:
        return "-"
    return f"{number(rate.launch_std)} ({rate.launches})"


def _fit(columns: list[_Column], width: int) -> tuple[list[_Column], list[str]]:
    """As many columns as fit behind the indent of two, and the names of those left out."""
    dropped: list[str] = []
    for name in (None, *DROP):
        if name is not None and any(column.name == name for column in columns):
            columns = [column for column in columns if column.name != name]
            dropped.append(name)
        if 2 + sum(column.width + 1 for column in columns) - 1 <= width:
            break
    return columns, dropped


def _variant(part: VariantPart, columns: list[_Column], first: int, width: int) -> Iterator[Text]:
    """The table of a variant; its rows stand in `columns` from index `first` on."""
    flags = " ".join(part.env) or "no flags"
    yield from _wrapped(f"variant {part.name}: {flags}", width, hang=2, style=_HEADING)
    if part.engaged:
        yield from _wrapped(part.engaged, width, indent=2, style=_FAINT)
    yield from _failures(part.failures, width)
    for warning in part.warnings:
        yield from _wrapped(f"! {remark(warning)}", width, hang=2, style=_DOUBT)
    space = " " * _gap(columns, width)
    names = space.join(column.set(column.name) for column in columns)
    yield Text(f"  {names}".rstrip(), style=_FAINT)
    at = first
    for cell in part.cells:
        yield from _wrapped(cell_title(cell.cell), width, hang=2)
        yield from _failures(cell.failures, width, indent=2)
        for entry in cell.entries:
            texts = space.join(column.set(column.texts[at]) for column in columns)
            yield Text(f"  {texts}".rstrip(), style=_FAILED if entry.rate is None else "")
            for text in _remarks(entry):
                yield from _wrapped(f"! {text}", width, indent=4, hang=2, style=_DOUBT)
            for text in entry.facts:
                yield from _wrapped(text, width, indent=4, hang=2, style=_FAINT)
            at += 1
        if cell.usage is not None:
            yield from _usage(cell.usage, width)


def _usage(usage: UsageTable, width: int) -> Iterator[Text]:
    """CPU by process, right-aligned under the names of the rows; memory last."""
    names = ("CPU by process, % of a core", *usage.columns, "MB")
    texts = [names, *usage.lines]
    widths = [max(len(line[at]) for line in texts) for at in range(len(names))]
    if 2 + sum(widths) + 2 * (len(names) - 1) > width:  # too many rows of load: one by one
        for at, column in enumerate(usage.columns, 1):
            told = ", ".join(f"{line[0]} {line[at]}" for line in usage.lines)
            yield from _wrapped(f"CPU, % of a core, {column}: {told}", width, 4, 2, _FAINT)
        return
    for line in texts:
        cells = [line[0].ljust(widths[0])]
        cells += [text.rjust(wide) for text, wide in zip(line[1:], widths[1:], strict=True)]
        yield Text(f"  {'  '.join(cells)}".rstrip(), style=_FAINT)


def _remarks(entry: Entry) -> Iterator[str]:
    """What is to be said under a row: doubts, failures, and metrics that have no column."""
    yield from entry.remarks
    for name, figures in entry.line.spreads.items():
        if figures is not entry.rate:
            yield f"{name}: {mean_and_std(figures)} {figures.unit}"


def _gap(columns: list[_Column], width: int) -> int:
    """Two spaces between columns where there is room, else one."""
    return 2 if 2 + sum(column.width + 2 for column in columns) - 2 <= width else 1


def _failures(failures: Iterable[Failure], width: int, indent: int = 0) -> Iterator[Text]:
    for failure in failures:
        said = f"failed: {failure.what}: {failure.message}"
        yield from _wrapped(said, width, indent, hang=2, style=_FAILED)
        for line in failure.detail:
            yield from _wrapped(line, width, indent + 2, hang=2, style=_FAINT)


def _wrapped(
    text: str, width: int, indent: int = 0, hang: int = 0, style: str = ""
) -> Iterator[Text]:
    """Lines of running text; those after the first are indented by `hang` more."""
    for line in textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield Text(line, style=style)


def _drawn(lines: Iterable[Text], width: int, color: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
    )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
    return out.getvalue()
