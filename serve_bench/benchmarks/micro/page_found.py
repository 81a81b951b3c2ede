"""What a run of rows found, in about three sentences: what is missing, the headline, what limited
it, and what is to be doubted.

Rule: a sentence stands only where figures of the page support it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from serve_bench.analysis.statistics import FEWEST, MAIN, Line, best
from serve_bench.benchmarks.micro.page_details import all_failures
from serve_bench.benchmarks.micro.page_panels import Names, measured
from serve_bench.benchmarks.parts.page import Entry, Page
from serve_bench.benchmarks.parts.pieces import doubted, gaps, limit_clause, rate, sentence
from serve_bench.benchmarks.parts.texts import latency


def found(page: Page, names: Names) -> tuple[str, ...]:
    """The sentences of a page of rows."""
    return tuple(_found(page, names))


def _found(page: Page, names: Names) -> Iterator[str]:
    planned = [one for one in page.entries if one.line.status != "profiled"]
    missing = sum(one.line.status != "measured" for one in planned)
    yield from gaps(missing, len(planned), [one.message for one in all_failures(page)], "row")
    rows = measured(page)
    if not rows:
        yield "No row was measured."
        return
    yield from _headline(rows, names)
    yield from _ratios(page)
    yield from _doubts(page, rows)


def figures(entry: Entry) -> str:
    """`889.0 ± 14.0 requests/s, p50 8.55 ms, p99 10.7 ms`, as far as they are known."""
    words = [f"{rate(entry.rate).text} requests/s"]
    for name in ("p50", "p99"):
        value = entry.latency_ms(name)
        words += [f"{name} {latency(value)} ms"] if value is not None else []
    return ", ".join(words)


def _headline(rows: Sequence[Entry], names: Names) -> Iterator[str]:
    """The row with the highest throughput and what limited it; then what is like it."""
    top = best(one.line for one in rows)
    if top is None:
        first = next((one for one in rows if not one.line.broken), rows[0])
        text = f"{names.whole(first)}: {figures(first)}"
    else:
        first = _of(top.line, rows)
        sound = [one.line for one in rows if not one.line.broken]
        higher = any(one.spreads[MAIN].mean > top.line.spreads[MAIN].mean for one in sound)
        which = "throughput without a failed request" if higher else "throughput"
        text = f"The highest {which} is that of {names.whole(first)}: {figures(first)}"
    if first.limited is not None:
        text += f"; {limit_clause(first.limited)}"
    yield sentence(text)
    if top is not None and top.like:
        like = [names.whole(_of(line, rows)) for line in top.like]
        yield sentence(f"Not clearly slower: {_listed(like)}")


def _of(line: Line, rows: Sequence[Entry]) -> Entry:
    return next(one for one in rows if one.line is line)


def _listed(texts: Sequence[str], most: int = 3) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


def _ratios(page: Page) -> Iterator[str]:
    """Each further variant against the first, over the rows that both have."""
    for part in page.variants:
        ratios = [one.line.ratio for one in part.entries if one.line.ratio is not None]
        if ratios:
            low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            times = f"{low} to {high}" if low != high else low
            rows = f"the {len(ratios)} rows" if len(ratios) > 1 else "the row"
            yield sentence(
                f"{part.name} has {times} times the requests/s of {page.base}, in {rows} that "
                f"{'both have' if len(ratios) > 1 else 'is in both'}"
            )


def _doubts(page: Page, rows: Sequence[Entry]) -> Iterator[str]:
    """What is doubted of how many rows, and what few launches cannot tell."""
    warnings = [*page.warnings, *(one for part in page.variants for one in part.warnings)]
    words = [text.rstrip(".") for text in doubted([one.warnings for one in rows], warnings)]
    if page.launches < FEWEST and len(rows) > 1:
        launches = "1 launch" if page.launches == 1 else f"{page.launches} launches"
        told = f"from {launches} it is not known how far launches differ"
        words.append(told if words else f"F{told[1:]}")
    if words:
        yield sentence("; ".join(words))


def causes(page: Page) -> str:
    """What limited the rows, by how often it came; empty where that says no more than one row."""
    counted = Counter(one.limited.cause for one in measured(page) if one.limited is not None)
    told = ", ".join(f"{cause} in {number}" for cause, number in counted.most_common())
    rows = counted.total()
    return f"Of the {rows} rows whose CPU was sampled, limited by: {told}." if rows > 1 else ""
