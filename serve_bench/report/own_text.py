"""The report of `serve-bench run` for a terminal: one row a cell, the best one named.

Rule: options stand in columns under their own names; where that is too wide they get letters, and
the letters are told. What doubts a row stands below the table, with the cell that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator

from serve_bench.best_cell import FEWEST, LIKE, best
from serve_bench.report.columns import columns, wrapped
from serve_bench.report.ladder_text import about_variants, closing
from serve_bench.report.page import Entry, Page, page_of
from serve_bench.report.texts import cell_title, latency, mean_and_std, number
from serve_bench.result import Result
from serve_bench.statistics import MAIN, Line


def own_text(result: Result, where: str | None, width: int = 80) -> str:
    """The run as text that ends with a newline."""
    page = page_of(result)
    out = [*wrapped(page.title, width, hang=2), *wrapped(_asked(result), width), ""]
    best_line = best_text(page)
    if best_line is not None:
        out += [*wrapped(best_line, width, hang=2), ""]
    out += [*about_variants(page, width), "", *_table(page, width), ""]
    out += _limits(page, width)
    out += _remarks(page, width)
    out += closing(page, (), where, width)
    return "\n".join(out) + "\n"


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
        how = f"within {100 * LIKE:.0f} %"
        how += " or two standard errors of launches" if spread.launches >= FEWEST else ""
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
    body = f" with a body of {_size(asked['body'])} bytes" if asked["body"] else ""
    return f"app: {app['target']} ({names}), {asked['method']} {asked['route']}{body}"


def _size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded.count("=")


def _table(page: Page, width: int) -> Iterator[str]:
    axes, letters = page.axes, {}
    names = [axis.partition(".")[2].rpartition(".")[2] or axis for axis in axes]
    if len(set(names)) < len(names):
        names = list(axes)
    rows = [_texts(entry, page) for entry in page.entries]
    lines = list(columns([*names, *_heads(page)], rows, _left(page), width))
    if max(len(line) for line in lines) > width and axes:
        letters = dict(zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False))
        lines = list(columns([*letters, *_heads(page)], rows, _left(page), width))
    yield from lines
    told = letters or {name: axis for name, axis in zip(names, axes, strict=True) if name != axis}
    if told:
        yield from wrapped("; ".join(f"{name}: {axis}" for name, axis in told.items()), width)


def _heads(page: Page) -> list[str]:
    """The columns behind those of the options: variant and row only where they differ."""
    heads = ["variant"] if len(page.variants) > 1 else []
    heads += ["row"] if _several_rows(page) else []
    return [*heads, "requests/s", "p50 ms", "p99 ms", "errors", "limited by"]


def _left(page: Page) -> tuple[int, ...]:
    """Columns of words."""
    count = len(page.axes)
    words = (len(page.variants) > 1) + _several_rows(page)
    return (*range(count, count + words), count + len(_heads(page)) - 1)


def _several_rows(page: Page) -> bool:
    return len({entry.line.row for entry in page.entries}) > 1


def _texts(entry: Entry, page: Page) -> list[str]:
    line = entry.line
    texts = [str(line.cell.get(axis, "-")) for axis in page.axes]
    texts += [line.variant] if len(page.variants) > 1 else []
    texts += [entry.label] if _several_rows(page) else []
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


def _limits(page: Page, width: int) -> Iterator[str]:
    """What limited each cell, with the figures for it."""
    for entry in page.entries:
        if entry.limited is not None:
            text = f"{_where(entry, page)}: limited by {entry.limited.text}"
            yield from wrapped(text, width, hang=2)


def _remarks(page: Page, width: int) -> Iterator[str]:
    for entry in page.entries:
        for text in entry.remarks:
            yield from wrapped(f"! {_where(entry, page)}: {text}", width, hang=2)


def _where(entry: Entry, page: Page) -> str:
    return _named(entry.line, len(page.variants) > 1, _several_rows(page))
