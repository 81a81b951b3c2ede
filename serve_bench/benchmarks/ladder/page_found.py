"""What a run of ladders found, in sentences: the best service, its limit, collapses, doubts.

Rule: each sentence is made of figures that stand on the page; where they do not support one it is
not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.ladder.page_rows import names_of, ratio_of
from serve_bench.benchmarks.ladder.summary import LadderLine
from serve_bench.benchmarks.ladder.tables import entries_of, size_of
from serve_bench.benchmarks.parts.page import Page
from serve_bench.benchmarks.parts.pieces import NS_PER_MS, doubted, gaps, sentence
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.ladder import KNEE


def told(name: str, ladder: LadderLine) -> str:
    """What a ladder adds up to, in a line: its end, its collapses, its signs."""
    words = [ladder.end, *collapse_words(ladder)]
    words += [f"sign: {sign}" for sign in ladder.signs]
    knee = ladder.knee
    if knee is not None and knee is ladder.steps[0] and knee.row.connections > 1:
        words.append("the first step is the knee already: fewer users may do (--users)")
    return f"{name}: {'; '.join(words)}."


def collapse_words(ladder: LadderLine) -> Iterator[str]:
    """Each collapse; that there is none, or that none could be seen."""
    if ladder.best is None:
        return
    if not ladder.collapses:
        last = max(ladder.rates)
        if last > ladder.best.row.connections:
            yield f"no collapse up to {last:,} users"
        else:
            yield "no step has more users than the best, so no collapse could be seen"
    most = ladder.rate(ladder.best)
    for line in ladder.collapses:
        kept = ladder.rate(line)
        yield (
            f"collapse with {users_words(line)}: {number(kept)} requests/s, {kept / most:.2f} of "
            "the best"
        )


def users_words(line: Line) -> str:
    """`1 user`, `200 users`."""
    users = line.row.connections
    return f"{users:,} user{'' if users == 1 else 's'}"


def found(page: Page, ladders: Sequence[LadderLine]) -> Iterator[str]:
    """What the figures support: gaps, the best service, its limit, collapses, doubts."""
    own = [(entries_of(one, page), one) for one in ladders]
    steps = [(entries[line.row], line) for entries, one in own for line in one.steps]
    missing = sum(line.status != "measured" for _, line in steps)
    yield from gaps(missing, len(steps), failed_words(page), "step")
    sound = [one for one in ladders if one.knee is not None and one.best is not None]
    if not sound:
        ended = any(one.finished for one in ladders)
        why = "No step can be relied on" if ended else "No ladder was climbed to its end"
        yield f"{why}: there is no knee and no best."
        return
    top = max(sound, key=_best_rate)
    yield _headline(top, ladders)
    yield from _limit_and_collapses(page, top, sound)
    yield from doubted([entry.warnings for entry, _ in steps], page.warnings, "step")


def failed_words(page: Page) -> list[str]:
    """The messages of all failures of a page, those of rows last."""
    parts = [one for part in page.variants for one in part.failures]
    parts += [one for part in page.variants for cell in part.cells for one in cell.failures]
    own = [one for entry in page.entries for one in entry.failures]
    return [one.message for one in (*page.failures, *parts, *own)]


def _best_rate(ladder: LadderLine) -> float:
    return 0.0 if ladder.best is None else ladder.rate(ladder.best)


def _headline(top: LadderLine, ladders: Sequence[LadderLine]) -> str:
    """The highest requests/s, its knee, and how it stands to the first service of its size."""
    best, knee = top.best, top.knee
    assert best is not None and knee is not None
    served = f"{number(top.rate(best))} requests/s with {users_words(best)}"
    names = dict(zip(map(id, ladders), names_of(ladders), strict=True))
    head = f"{names[id(top)]} {'serves most,' if len(ladders) > 1 else 'serves at most'} {served}"
    base = next(one for one in ladders if size_of(one) == size_of(top))
    value = ratio_of(top, base)
    if base is not top and value is not None:
        head += f", {value:.2f} times the best of {names[id(base)]}"
    times = knee.distributions.get("latency")
    waits = "" if times is None else f"p50 {_ms(times.p50)} ms, p99 {_ms(times.p99)} ms"
    if knee is best:
        head += f" ({waits})" if waits else ""
        if min(top.rates) < knee.row.connections:
            head += f", and no step with fewer users reaches {100 * KNEE:.0f} % of that"
        return sentence(head)
    inside = [f"{number(top.rate(knee))} requests/s", *([waits] if waits else [])]
    enough = f"{users_words(knee)} are enough for {100 * KNEE:.0f} % of that"
    return sentence(f"{head}; {enough} ({', '.join(inside)})")


def _ms(value_ns: float) -> str:
    return latency(value_ns / NS_PER_MS)


def _limit_and_collapses(page: Page, top: LadderLine, sound: Sequence[LadderLine]) -> Iterator[str]:
    """What limited the best service at its knee, and which service collapsed."""
    seen = top.knee is not None and "num_replicas" in top.cell  # not of a service of others
    limit = entries_of(top, page)[top.knee.row].limited if top.knee and seen else None
    names = names_of(sound)
    best = names[next(at for at, one in enumerate(sound) if one is top)]
    words = [] if limit is None else [f"What limits {best} at its knee: {limit.text}"]
    fallen = [
        f"{name}: {next(collapse_words(one))}" if len(sound) > 1 else next(collapse_words(one))
        for name, one in zip(names, sound, strict=True)
        if one.collapses
    ]
    if fallen:
        words += fallen
    elif all(max(one.rates) > _best_users(one) for one in sound):
        words.append("no collapse was seen" if words else "No collapse was seen")
    if words:
        yield sentence("; ".join(words))


def _best_users(ladder: LadderLine) -> int:
    return 0 if ladder.best is None else ladder.best.row.connections
