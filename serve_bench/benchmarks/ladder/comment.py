"""A run of ladders (sweep, recsys) as a comment: a row for each ladder, its steps under the fold.

Rule: knee, best and collapse are those of benchmarks/ladder/summary.py; a step in doubt is counted
by its code in the row of its ladder, and told in whole words under the fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.ladder import document as of_ladder
from serve_bench.benchmarks.ladder import page_found as of_ladder_found
from serve_bench.benchmarks.ladder.page_rows import names_of, ratio_of
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.ladder.tables import (
    NOT_VISIBLE,
    entries_of,
    name_of,
    size_of,
    step_names,
    step_texts,
)
from serve_bench.benchmarks.micro.comment import (
    about,
    closing,
    every_figure,
    fixed,
    struck,
    told,
    usages,
)
from serve_bench.benchmarks.micro.page_panels import names_of as row_names
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS
from serve_bench.benchmarks.parts.page import Entry, Page, page_of
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.result import Result
from serve_bench.report.columns import markdown_table
from serve_bench.report.comment import (
    BROKEN_OFF,
    broken_off,
    bullets,
    comment,
    counted,
    doubts,
    folded,
    formulas,
    remarks,
    split,
)

NS_PER_MS = 1e6


def ladder_comment(result: Result, published: bool = False, where: str | None = None) -> str:
    """The run as Markdown that ends with a newline."""
    page, ladders = page_of(result, published=published, where=where), ladder_lines(result)
    rows = row_names(page)
    found = split(result, of_ladder_found.found(page, ladders), page.warnings)
    pairs = list(zip(names_of(ladders), ladders, strict=True))
    return comment(
        found.first,
        _table(page, pairs),
        (
            *about(page, found),
            bullets(fixed(page, rows)),
            bullets(of_ladder_found.told(name, one) for name, one in pairs),
            bullets(struck(page)),
            remarks(told(page, rows)),
            *closing(page),
            *(folded(f"Ladder {name_of(one)}, {size_of(one)}", _steps(one)) for one in ladders),
            *every_figure(page, rows),
            *usages(page),
            formulas((*GENERAL_FORMULAS, *of_ladder.FORMULAS)),
        ),
        where,
    )


def _entries(ladder: LadderLine, page: Page) -> list[Entry]:
    found = entries_of(ladder, page)
    return [found[line.row] for line in ladder.steps]


def _table(page: Page, pairs: Sequence[tuple[str, LadderLine]]) -> list[str]:
    if not pairs:
        return []
    ladders = [one for _, one in pairs]
    bases = [next(one for one in ladders if size_of(one) == size_of(each)) for each in ladders]
    several = any(one is not base for one, base in zip(ladders, bases, strict=True))
    names = ["service", "best requests/s", "users", *(["ratio"] if several else [])]
    names += ["knee, users", "p99 ms at the knee", "collapse", "limited by", "doubts"]
    rows = []
    for (name, ladder), base in zip(pairs, bases, strict=True):
        ratio = ratio_of(ladder, base)
        word = "-" if ratio is None else "1" if ladder is base else f"{ratio:.2f}"
        rows.append(
            [
                name,
                *best_texts(ladder),
                *([word] if several else []),
                *_knee(ladder),
                _collapse(ladder),
                _limited(ladder, page),
                _doubts(ladder, page),
            ]
        )
    left = (0, len(names) - 3, len(names) - 2, len(names) - 1)
    return markdown_table(names, rows, left)


def best_texts(ladder: LadderLine) -> tuple[str, str]:
    """The highest requests/s and its users."""
    best = ladder.best
    if best is None:
        return (ladder.without, "-")
    return (number(ladder.rate(best)), f"{best.row.connections:,}")


def _knee(ladder: LadderLine) -> tuple[str, str]:
    if ladder.knee is None:
        return ("-", "-")
    times = ladder.knee.distributions.get("latency")
    p99 = "-" if times is None else latency(times.p99 / NS_PER_MS)
    return (f"{ladder.knee.row.connections:,}", p99)


def _collapse(ladder: LadderLine) -> str:
    if ladder.best is None:
        return "-"
    if ladder.collapses:
        line = ladder.collapses[0]
        share = ladder.rate(line) / ladder.rate(ladder.best)
        return f"{of_ladder_found.users_words(line)}: {share:.2f} of the best"
    last = max(ladder.rates)
    return f"none up to {last:,}" if last > ladder.best.row.connections else "none to be seen"


def _limited(ladder: LadderLine, page: Page) -> str:
    """What limited the service at its knee, in a word or two."""
    if "num_replicas" not in ladder.cell:
        return NOT_VISIBLE
    limit = None if ladder.knee is None else entries_of(ladder, page)[ladder.knee.row].limited
    return "-" if limit is None else limit.cause


def _doubts(ladder: LadderLine, page: Page) -> str:
    rows = [row_codes(entry) for entry in _entries(ladder, page)]
    return doubts([*counted(rows, "step"), *variant_codes(page, ladder.variant)])


def row_codes(entry: Entry, without: str = "") -> list[str]:
    """What is missing of a step, that it failed, and the codes of its doubts."""
    codes = [one.code for one in entry.warnings if one.code != without]
    gap: list[str] = [] if entry.line.status == "measured" else [entry.line.status]
    gap += [BROKEN_OFF] if any(map(broken_off, entry.line.trials)) else []
    return [*gap, *(["failed"] if entry.failures else []), *dict.fromkeys(codes)]


def variant_codes(page: Page, variant: str) -> Iterator[str]:
    """That a variant failed as a whole, or one of its cells, and the codes of its doubts."""
    for part in (one for one in page.variants if one.name == variant):
        if part.failures or any(cell.failures for cell in part.cells):
            yield "failed"
        yield from (one.code for one in part.warnings)


def _steps(ladder: LadderLine) -> Iterator[str]:
    names = step_names()
    rows = [step_texts(ladder, line) for line in ladder.steps]
    yield from markdown_table(names, rows, (len(names) - 1,))
