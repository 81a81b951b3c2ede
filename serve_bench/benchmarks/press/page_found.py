"""What a press run found, in sentences: the best setting, what an axis is worth, collapses, doubts.

Rule: each sentence is made of figures that stand on the page; where they do not support one it is
not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from serve_bench.benchmarks.ladder.page_found import failed_words
from serve_bench.benchmarks.ladder.tables import entries_of
from serve_bench.benchmarks.parts.page import Page
from serve_bench.benchmarks.parts.pieces import doubted, gaps, sentence
from serve_bench.benchmarks.parts.texts import latency
from serve_bench.benchmarks.press.compare import comparisons
from serve_bench.benchmarks.press.summary import Setting
from serve_bench.benchmarks.press.tables import rate

MOST_COMPARED: Final = 2
"""Comparisons that are told at the top; all of them stand under the table of settings."""


def found(page: Page, settings: Sequence[Setting]) -> Iterator[str]:
    """What the figures support: gaps, the best setting, comparisons, collapses, doubts."""
    rows = [row for one in settings for row in one.rows]
    missing = sum(row.line.status != "measured" for row in rows)
    yield from gaps(missing, len(rows), failed_words(page), "row")
    sound = [one for one in settings if one.best is not None and one.knee is not None]
    if not sound:
        ended = any(one.ladder.finished for one in settings)
        why = "No row can be relied on" if ended else "No setting was climbed to its end"
        yield f"{why}: there is no best and no knee."
        return
    top = max(sound, key=lambda one: one.best_qps or 0.0)
    yield _headline(top, len(settings))
    if top.visible and top.knee is not None and top.knee.limited is not None:
        yield sentence(f"What limits {top.name} at its knee: {top.knee.limited.text}")
    yield from (one.sentence for one in comparisons(settings)[:MOST_COMPARED])
    yield from _collapses(settings, sound)
    entries = [entry for one in settings for entry in entries_of(one.ladder, page).values()]
    # A row of a fixed number of requests is one window by its nature.
    warnings = [[one for one in entry.warnings if one.code != "few-windows"] for entry in entries]
    cut = sum(1 for row in rows if row.ended_by_time)
    further = [f"cut by time ({cut} of {len(rows)} rows)"] if cut else []
    yield from doubted(warnings, page.warnings, further=further)


def _headline(top: Setting, settings: int) -> str:
    best, knee = top.best, top.knee
    assert best is not None and knee is not None
    verb = "serves most," if settings > 1 else "serves at most"
    waits = "" if knee.p50_ms is None else f" at p50 {latency(knee.p50_ms)} ms"
    served = f"{top.name} {verb} {rate(top.best_qps)} requests/s with {_clients(best.clients)}"
    if knee is best:
        words = f"{served}{waits}"
    else:
        words = f"{served}; its knee is {_clients(knee.clients)}{waits}"
    return sentence(words)


def _clients(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"


def _collapses(settings: Sequence[Setting], sound: Sequence[Setting]) -> Iterator[str]:
    said = [
        f"{one.name} collapses with {_clients(each.at.clients)} to {rate(each.qps)} requests/s, "
        f"{each.share:.2f} of its best"
        + ("" if each.agree or len(each.runs) < 2 else f" ({len(each.runs)} runs that disagree)")
        for one in settings
        for each in one.collapses[:1]
    ]
    if said:
        yield sentence("; ".join(said))
    elif all(_beyond(one) for one in sound):
        last = min(max(one.ladder.rates) for one in sound)
        yield f"No collapse was seen up to {_clients(last)}."


def _beyond(setting: Setting) -> bool:
    """Whether a row with more clients than the best was measured."""
    return setting.best is not None and max(setting.ladder.rates) > setting.best.clients
