"""The report of `serve-bench run` for a terminal: one row a cell, the best one named.

Rule: options stand in columns under their own names; where that is too wide they get letters, and
the letters are told; what is still too wide is folded. What doubts a row stands below the table,
with the cell that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from serve_bench.analysis.statistics import FEWEST, LIKE, MAIN, Line, best
from serve_bench.benchmarks.parts.page import Entry, Page, page_of
from serve_bench.benchmarks.parts.texts import cell_title, latency, mean_and_std, number, remark
from serve_bench.core.kept import body_bytes
from serve_bench.core.own_app import APP_NAME
from serve_bench.core.result import Result
from serve_bench.report.columns import Fitted, fitted, wrapped
from serve_bench.report.widths import width_of

#: The columns behind those of the options, the variant and the row.
_FIGURES: Final = ("requests/s", "p50 ms", "p99 ms", "errors", "limited by")

#: Paths that are told by name where a load asks for several.
MOST_PATHS: Final = 4

#: Those that may go when there is no room, the first first.
SPARE: Final = ("p50 ms", "p99 ms")


@dataclass(frozen=True)
class _Names:
    """How options are called: those that vary, by column, and those that do not, by value."""

    columns: Mapping[str, str]  # option -> its name in the table
    fixed: Mapping[str, Any]
    variants: bool
    rows: bool

    def cell(self, line: Line) -> str:
        """A cell by what sets it apart."""
        words = [f"{short} {line.cell.get(axis, '-')}" for axis, short in self.columns.items()]
        words += [line.row.label] if self.rows else []
        words += [f"variant {line.variant}"] if self.variants else []
        return ", ".join(words) or "the app as it is"


def own_text(result: Result, where: str | None, width: int = 80) -> str:
    """The run as text that ends with a newline."""
    page = page_of(result)
    names = _names(page)
    table = _table(page, names)
    if max(map(width_of, table.lines)) > width:
        letters = dict(zip(names.columns, "abcdefghijklmnopqrstuvwxyz", strict=False))
        names = replace(names, columns=letters)
        table = _table(page, names, width)
    out = [*wrapped(page.title, width, hang=2), *wrapped(_asked(result), width)]
    if names.fixed:
        out += wrapped(f"in every cell: {cell_title(names.fixed)}", width)
    best_line = best_text(page)
    out += ["", *wrapped(best_line, width, hang=2)] if best_line is not None else []
    out += ["", *about_variants(page, width), "", *table.lines, *table.said(width)]
    out += [*_legend(names, width), ""]
    out += _limits(page, names, width)
    out += _remarks(page, names, width)
    out += closing(page, (), where, width)
    return "\n".join(out) + "\n"


def _names(page: Page) -> _Names:
    """Options by the last part of their names where that is enough."""
    values = {axis: [entry.line.cell.get(axis) for entry in page.entries] for axis in page.axes}
    varied = [axis for axis, found in values.items() if len(set(map(repr, found))) > 1]
    short = [axis.rpartition(".")[2] for axis in varied]
    columns = dict(zip(varied, short if len(set(short)) == len(short) else varied, strict=True))
    fixed = {axis: found[0] for axis, found in values.items() if axis not in varied}
    several = len({entry.line.row for entry in page.entries}) > 1
    return _Names(columns, fixed, len(page.variants) > 1, several)


def best_text(page: Page) -> str | None:
    """The best cell in words, with those that are not clearly slower; None without a choice."""
    found = best(entry.line for entry in page.entries)
    if found is None:
        return None
    several = len(page.variants) > 1
    rows = len({entry.line.row for entry in page.entries}) > 1
    spread = found.line.spreads[MAIN]
    text = f"best: {_named(found.line, several, rows)}: {mean_and_std(spread)} requests/s"
    if found.like:
        others = "; ".join(
            f"{_named(one, several, rows)} ({number(one.spreads[MAIN].mean)})" for one in found.like
        )
        how = f"within {100 * LIKE:.0f} % or two standard errors"
        text += f"; not clearly slower ({how}): {others}"
    if spread.launches < FEWEST:
        text += f". From {spread.launches} launch{'es' if spread.launches > 1 else ''}: "
        text += f"--launches {FEWEST} tells how far launches differ"
    return text


def _named(line: Line, variants: bool, rows: bool) -> str:
    words = [cell_title(line.cell)]
    words += [line.row.label] if rows else []
    words += [f"variant {line.variant}"] if variants else []
    return ", ".join(words)


def _asked(result: Result) -> str:
    app = result.run.suite.get("app")
    if not isinstance(app, dict):
        return f"app: {app}"
    asked = app["asked"]
    names = " and ".join(one["name"] for one in app["deployments"][::-1])
    return f"app: {app['target']} ({names}){beside_text(app)}, {request_text(asked)}"


def beside_text(app: Mapping[str, Any]) -> str:
    """The name of an application that has one of its own, and those that stand beside it."""
    name = app.get("config", {}).get("name", APP_NAME)
    others = " and ".join(str(one["config"]["name"]) for one in app.get("beside", ()))
    named = f" as {name}" if name != APP_NAME else ""
    return named + (f", beside {others}" if others else "")


def request_text(asked: Mapping[str, Any]) -> str:
    """What a load asks of an app, in words."""
    size = body_bytes(asked)
    words = [f"{asked['method']} {asked['route']}"]
    paths, sets = asked.get("paths", ()), asked.get("header_sets", ())
    how = "drawn at random" if asked.get("draw") == "random" else "in turn"
    if len(paths) > 1:
        shown = ", ".join(paths[1:MOST_PATHS])
        more = f" and {len(paths) - MOST_PATHS:,} more" if len(paths) > MOST_PATHS else ""
        words.append(f", {shown}{more} ({len(paths):,} paths {how})")
    if sets:
        names = ", ".join(dict.fromkeys(name for one in sets for name, _ in one))
        words.append(f", {len(sets):,} sets of headers {how} ({names})")
    return "".join([*words, f" with a body of {size:,} bytes" if size else ""])


def _table(page: Page, names: _Names, width: int | None = None) -> Fitted:
    words = names.variants + names.rows
    count = len(names.columns)
    heads = [*names.columns.values(), *(["variant"] if names.variants else [])]
    heads += [*(["row"] if names.rows else []), *_FIGURES]
    left = (*range(count, count + words), len(heads) - 1)
    rows = [_texts(entry, names) for entry in page.entries]
    return fitted(heads, rows, left, width, SPARE, fold=(*range(count), *left))


def _legend(names: _Names, width: int) -> Iterator[str]:
    """The options that stand in the table under another name."""
    told = [f"{short}: {axis}" for axis, short in names.columns.items() if short != axis]
    yield from wrapped("; ".join(told), width) if told else ()


def _texts(entry: Entry, names: _Names) -> list[str]:
    line = entry.line
    texts = [str(line.cell.get(axis, "-")) for axis in names.columns]
    texts += [line.variant] if names.variants else []
    texts += [entry.label] if names.rows else []
    rate = entry.gap or "-" if entry.rate is None else mean_and_std(entry.rate)
    cause = "-" if entry.limited is None else entry.limited.cause
    mark = " !" if entry.remarks else ""
    return [
        *texts,
        rate,
        latency(entry.latency_ms("p50")),
        latency(entry.latency_ms("p99")),
        str(line.errors) if line.trials else "-",
        f"{cause}{mark}",
    ]


def _limits(page: Page, names: _Names, width: int) -> Iterator[str]:
    """What limited each cell, with the figures for it."""
    for entry in page.entries:
        if entry.limited is not None:
            text = f"{names.cell(entry.line)}: limited by {entry.limited.text}"
            yield from wrapped(text, width, hang=2)


def _remarks(page: Page, names: _Names, width: int) -> Iterator[str]:
    for part in page.variants:
        for cell in part.cells:
            for entry in cell.entries:
                for text in entry.remarks:
                    yield from wrapped(f"! {names.cell(entry.line)}: {text}", width, hang=2)


def about_variants(page: Page, width: int) -> Iterator[str]:
    """Each variant as it was engaged, with what failed or is doubted about it as a whole."""
    for part in page.variants:
        if part.engaged or part.env:
            flags = " ".join(part.env) or "no flags"
            yield from wrapped(f"variant {part.name}: {flags}", width)
            yield from wrapped(part.engaged, width, indent=2)
        for warning in part.warnings:
            yield from wrapped(f"! {remark(warning)}", width)
        struck = [*part.failures, *(one for cell in part.cells for one in cell.failures)]
        for one in struck:
            yield from wrapped(f"failed: {one.what}: {one.message}", width)


def closing(
    page: Page,
    notes: Sequence[str],
    where: str | None,
    width: int,
    without: tuple[str, ...] = ("ratio:",),
) -> Iterator[str]:
    """What is about the whole run: failures, doubts, how to read it, host, records. Of the page's
    own notes those that begin with one of `without` are left out."""
    yield ""
    for one in page.failures:
        yield from wrapped(f"failed: {one.what}: {one.message}", width)
    for warning in page.warnings:
        yield from wrapped(f"! {remark(warning)}", width)
    others = [note for note in page.notes if not note.startswith(without)]
    for note in (*notes, *others, f"host: {page.host}"):
        yield from wrapped(note, width)
    if where is not None:
        yield f"records: {where}"
