"""How the rows of a run are named, and what they show in sentences.

Rule: a name holds what tells a row apart from the others beside it, and no more. A sentence stands
only where figures support it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from serve_bench.analysis.statistics import FEWEST, LIKE, MAIN, Line, best
from serve_bench.analysis.statistics import rate as measured_rate
from serve_bench.core import ladder
from serve_bench.core.figures import counted
from serve_bench.core.ladder import Rung
from serve_bench.core.result import cell_slug
from serve_bench.view import streams, waterfall
from serve_bench.view.blocks import doubted, gaps, limit_words, listed, rate, sentence
from serve_bench.view.names import Names, measured, place_of
from serve_bench.view.rows import Entry, Page
from serve_bench.view.texts import latency, number


def findings(page: Page, names: Names) -> Iterator[str]:
    """What is missing, the highest throughput and what limited it, ratios, doubts."""
    planned = [one for one in page.entries if one.line.status != "profiled"]
    missing = sum(one.line.status != "measured" for one in planned)
    messages = [one.message for one in page.all_failures]
    first = [*gaps(missing, len(planned), messages, "row"), *_broken_off(planned, messages)]
    rows = measured(page)
    if not rows:
        yield " ".join((*first, "No row was measured."))
        return
    top = best(row.line for row in rows)
    sound = next((row for row in rows if not row.line.broken), rows[0])
    shown = next((row for row in rows if row.line is top[0]), sound) if top else sound
    headline, *like = _headline(rows, names, shown, top)
    yield " ".join((*first, headline))
    yield from like
    yield from (sentence(text) for text, _ in collapses(rows, names))
    yield from _ratios(page, names, shown)
    for one in rows:
        row = waterfall.of_line(names.whole(one), one.line)
        yield from map(sentence, waterfall.sentences(row))
    yield from doubted([one.warnings for one in rows])
    if page.launches < FEWEST and len(rows) > 1:
        launches = "1 launch" if page.launches == 1 else f"{page.launches} launches"
        yield f"The spread between launches is unknown after {launches} (--launches {FEWEST})."


def broken_off(entry: Entry) -> bool:
    """Whether a row was measured in part alone."""
    return any(trial.flags.get("interrupted") for trial in entry.line.trials)


def _broken_off(planned: Sequence[Entry], failures: Sequence[str]) -> Iterator[str]:
    """How many rows were broken off, where no failure says so."""
    count = sum(map(broken_off, planned))
    if count and INTERRUPTED not in failures:
        which = f"{count} of {len(planned)} rows" if len(planned) > 1 else "The row"
        yield f"{which} {'was' if count == 1 else 'were'} interrupted."


def figures(entry: Entry) -> str:
    """`889.0 ± 14.0 requests/s, p50 8.55 ms, p99 10.7 ms`, as far as they are known."""
    words = [f"{rate(entry.rate).text} requests/s"]
    for name in ("p50", "p99"):
        value = entry.latency_ms(name)
        words += [f"{name} {latency(value)} ms"] if value is not None else []
    return ", ".join(words) + streams.words(entry)


def _headline(
    rows: Sequence[Entry], names: Names, first: Entry, top: Sequence[Line]
) -> Iterator[str]:
    """The row with the highest throughput and what limited it; then what is like it."""
    if not top:
        text = f"{names.whole(first)}: {figures(first)}"
    else:
        sound = [one.line for one in rows if not one.line.broken]
        higher = any(one.spreads[MAIN].mean > top[0].spreads[MAIN].mean for one in sound)
        which = "throughput without a failed request" if higher else "throughput"
        text = f"{names.whole(first)} has the highest {which}: {figures(first)}"
    if first.limited is not None:
        its = "its limit is" if first.limited.cause == "unclear" else "it is limited by"
        text += f"; {its} {first.limited.text}"
    yield sentence(text)
    # Few counts differ by chance by more, but what would be a collapse is not called alike.
    near = [one for one in top[1:] if measured_rate(one) >= ladder.COLLAPSE * measured_rate(top[0])]
    like = [row for line in near for row in rows if row.line is line]
    if like:
        texts = [f"{names.whole(one)} ({number(one.line.spreads[MAIN].mean)})" for one in like]
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        yield sentence(f"Not clearly slower ({_LIKE}): {'; '.join(texts[:3])}{more}")


def collapses(rows: Sequence[Entry], names: Names) -> Iterator[tuple[str, Entry]]:
    """A sentence on each cell and kind of clients whose throughput collapses with more of them, and
    the row with the most."""
    ladders: dict[tuple[object, ...], dict[int, Entry]] = {}
    for entry in rows:
        line, row = entry.line, entry.line.row
        if row.loop == "closed" and not line.broken:
            place = (line.variant, cell_slug(line.cell), row.client, row.traffic)
            ladders.setdefault(place, {})[row.connections] = entry
    for steps in ladders.values():
        rungs = [Rung(at, entry.line.spreads[MAIN].mean) for at, entry in steps.items()]
        top, lower = ladder.best(rungs), ladder.collapses(rungs)
        if top is None or not lower:
            continue
        last = steps[lower[-1].clients]
        before = f"{number(top.throughput)} requests/s with {counted(top.clients, 'client')}"
        after = listed([f"{number(step.throughput)} with {step.clients}" for step in lower])
        why = f"; with {last.line.row.connections}: {limit_words(last.limited)}"
        yield (
            f"{names.whole(steps[top.clients])}: the throughput collapses with more clients, from "
            f"{before} to {after}{why}",
            last,
        )


INTERRUPTED: Final = "interrupted"
"""The message of the failure that a row records itself when it is broken off."""

_LIKE: Final = f"within {100 * LIKE:.0f} % or two standard errors"


def _ratios(page: Page, names: Names, shown: Entry) -> Iterator[str]:
    """Each further variant against the first, over the rows that both have. The reason of a ratio
    may stand in the slower row: so what limits either is said of that farthest from 1, but of
    `shown`, which the headline has."""
    for part in page.variants:
        compared = [(row.line.ratio, row) for row in part.entries if row.line.ratio is not None]
        if not compared:
            continue
        ratios = [ratio for ratio, _ in compared]
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        times = f"{low} to {high}" if low != high else low
        rows = f"the {len(ratios)} rows" if len(ratios) > 1 else "the row"
        text = (
            f"{part.name} has {times} times the requests/s of {page.base}, in {rows} that "
            f"{'both have' if len(ratios) > 1 else 'is in both'}"
        )
        _, row = min(compared, key=lambda one: min(one[0], 1 / one[0]) if one[0] else 0.0)
        for entry in measured(page):
            sides = entry.line.variant in (part.name, page.base) and place_of(entry) == place_of(
                row
            )
            if sides and entry is not shown and entry.limited is not None:
                text += f"; {names.whole(entry)}: {limit_words(entry.limited)}"
        yield sentence(text)


def causes(page: Page) -> str:
    """What limited the rows, by how often it came; empty where that says no more than one row."""
    counted = Counter(one.limited.cause for one in measured(page) if one.limited is not None)
    texts = ", ".join(f"{cause} in {count}" for cause, count in counted.most_common())
    rows = counted.total()
    return f"Of the {rows} rows whose CPU was sampled, limited by: {texts}." if rows > 1 else ""
