"""A run of rpc as a comment: a row for each world on each backend, every figure under the fold.

Rule: figures, doubts and notes are those of the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, command_line
from serve_bench.benchmarks.parts.published import rpc_published
from serve_bench.benchmarks.parts.texts import remark
from serve_bench.benchmarks.rpc import document as of_rpc
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage, rpc_page
from serve_bench.benchmarks.rpc.tables import SHORT, markdown_figures, markdown_ratio, memory
from serve_bench.benchmarks.rpc.text import asked, notes, versions
from serve_bench.core.result import Result
from serve_bench.report.columns import markdown_table
from serve_bench.report.comment import (
    BROKEN_OFF,
    broken_off,
    bullets,
    comment,
    doubts,
    folded,
    formulas,
    records,
    split,
)


def rpc_comment(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page = rpc_page(result, where)
    measured = any(one.point.figures for one in page.entries)
    found = split(result, of_rpc.found(page), page.warnings)
    return comment(
        found.first,
        _table(page),
        (
            bullets(found.further),
            bullets([page.title, f"command: {command_line(page.run)}"]),
            bullets([*asked(page), *versions(page)]),
            bullets(f"failed: {one.what}: {one.message}" for one in page.failures),
            bullets(remark(one) for one in page.warnings),
            bullets(page.remarks, "remarks"),
            bullets(_insides(page), "CPU by process"),
            bullets(notes(page) if measured else ()),
            bullets(rpc_published() if published else ()),
            bullets([f"host: {page.host}"]),
            records(where),
            folded("Every figure", markdown_figures(page) if page.entries else ()),
            formulas((*GENERAL_FORMULAS, *of_rpc.FORMULAS)),
        ),
        where,
    )


def _table(page: RpcPage) -> list[str]:
    """The figures that matter most; with several backends the ratio of what an observer waits."""
    if not page.entries:
        return []
    several = len(page.backends) > 1
    names = [page.x_axis, *(["backend"] if several else []), *(one.whole for one in SHORT)]
    names += [f"observer latency to {page.backends[0]}"] if several else []
    names += ["limited by", "doubts"]
    rows = []
    for entry in (one for x in page.xs for one in page.at(x)):
        figures = [one.text(entry) for one in SHORT]
        if not entry.point.figures:
            figures[0] = entry.gap or "-"
        row = [entry.point.x, *([entry.point.backend] if several else []), *figures]
        row += [markdown_ratio(page, entry)] if several else []
        rows.append([*row, entry.use.limited or "-", _doubts(entry)])
    left = (*((1,) if several else ()), len(names) - 2, len(names) - 1)
    return markdown_table(names, rows, left)


def _doubts(entry: RpcEntry) -> str:
    gap = entry.gap if entry.point.figures else None
    broken = any(map(broken_off, entry.point.trials))
    codes = [*([BROKEN_OFF] if broken else []), *(one.code for one in entry.warnings)]
    return doubts(codes, gap, entry.failures)


def _insides(page: RpcPage) -> Iterator[str]:
    return (f"{one.title}: {text}" for one in page.entries if (text := _inside(one)))


def _inside(entry: RpcEntry) -> str:
    """CPU, memory and limit in a few words; empty where nothing is known."""
    use = entry.use
    shares = {"agent": use.agent, "observers": use.observers, "others": use.others}
    words = [f"{name} {share:.0f} %" for name, share in shares.items() if share is not None]
    if use.host is not None and use.cores:
        words.append(f"host {use.host:.0f} of {100 * use.cores} %")
    known = [f"CPU of {', '.join(words)}"] if words else []
    known += [f"memory {memory(entry)} processes"] if entry.point.memory_bytes is not None else []
    known += [f"limited by {use.limited}"] if use.limited else []
    return "; ".join(known)
