"""What a press run says in sentences: its findings, what a setting adds up to, doubts of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.checks import Warning
from serve_bench.benchmarks.micro.summary import all_failures
from serve_bench.benchmarks.parts.blocks import doubted, gaps, sentence
from serve_bench.benchmarks.parts.rows import Page
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.press.summary import Collapse, PressRow, RunFigure, Setting, comparisons
from serve_bench.core.document import Finding, sentences

MOST_COMPARED: Final = 2
"""Comparisons among the findings; all of them stand with their ratios."""

LEFT_OUT: Final = 1.1
"""The mean by Little's law that is so many times that of the completed requests is stated."""


def rate(value: float | None) -> str:
    """Requests/s with four digits; no commas, as in the published table."""
    return number(value).replace(",", "")


def clients(count: int) -> str:
    """`1 client`, `1,000 clients`."""
    return f"{count:,} client{'' if count == 1 else 's'}"


def findings(page: Page, settings: Sequence[Setting]) -> Iterator[str]:
    """What the figures support: gaps, the best setting, comparisons, collapses, doubts."""
    rows = [row for one in settings for row in one.rows]
    missing = sum(row.line.status != "measured" for row in rows)
    yield from gaps(missing, len(rows), [failure.message for failure in all_failures(page)], "row")
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
    cut = sum(row.ended_by_time for row in rows)
    further = [f"cut by time ({cut} of {len(rows)} rows)"] if cut else []
    yield from doubted([_warnings(row) for row in rows], further=further)


def _headline(top: Setting, settings: int) -> str:
    best, knee = top.best, top.knee
    assert best is not None and knee is not None
    verb = "serves most," if settings > 1 else "serves at most"
    waits = "" if knee.p50_ms is None else f" at p50 {latency(knee.p50_ms)} ms"
    served = f"{top.name} {verb} {rate(top.best_qps)} requests/s with {clients(best.clients)}"
    return sentence(
        served + (waits if knee is best else f"; its knee is {clients(knee.clients)}{waits}")
    )


def _collapses(settings: Sequence[Setting], sound: Sequence[Setting]) -> Iterator[str]:
    fallen = [
        f"{one.name} collapses with {clients(each.at.clients)} to {rate(each.qps)} requests/s, "
        f"{each.share:.2f} of its best"
        + ("" if each.agree or len(each.runs) < 2 else f" ({len(each.runs)} runs that disagree)")
        for one in settings
        for each in one.collapses[:1]
    ]
    if fallen:
        yield sentence("; ".join(fallen))
    elif all(one.best and max(one.ladder.rates) > one.best.clients for one in sound):
        last = min(max(one.ladder.rates) for one in sound)
        yield f"No collapse was seen up to {clients(last)}."


def setting_lines(setting: Setting) -> Iterator[str]:
    """What the rows of a setting add up to, a line each."""
    if setting.first_ms:
        each = ", ".join(f"{latency(one)} ms" for one in setting.first_ms)
        yield f"first request after the start: {each}"
    if setting.settled:
        yield f"before the first row: {_settled(setting.settled)}"
    best = setting.best
    if best is None:
        sound = "no row can be relied on" if setting.ladder.finished else setting.ladder.without
        yield f"{sound}: no best, no knee"
    else:
        if not setting.collapses:
            yield _no_collapse(setting, best)
        for collapse in setting.collapses:
            yield from _collapse_lines(collapse)
    yield from (f"sign: {sign}" for sign in setting.ladder.signs)
    if setting.ladder.end != "the list is measured":
        yield setting.ladder.end


def _no_collapse(setting: Setting, best: PressRow) -> str:
    more = [row for row in setting.rows if row.clients > best.clients and row.qps is not None]
    if not more:
        return "no collapse: no row has more clients than the best, so none could be seen"
    return f"no collapse up to {clients(max(row.clients for row in more))}"


def _settled(settled: Sequence[Mapping[str, Any]]) -> str:
    """Of all launches: how long it took, and the median latency of one client then."""
    of = f" of {len(settled)} launches" if len(settled) > 1 else ""
    unjudged = sum(one.get("judged") is False for one in settled)
    missed = sum(not one.get("steady") for one in settled) - unjudged
    counts = {"had not settled": missed, "too slow to tell whether it had settled": unjudged}
    words = [f"{word} in {n}{of}," if of else word for word, n in counts.items() if n]
    seconds = _span([float(one.get("seconds", 0.0)) for one in settled], lambda s: f"{s:.1f}")
    p50 = _span([float(one["p50_ns"]) / 1e6 for one in settled if one.get("p50_ns")], latency)
    after = f"{' '.join(words) or 'settled'} after {seconds} s"
    return after + (f" (p50 of one client {p50} ms)" if p50 else "")


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The least and the largest; one of them where they read alike; empty without any."""
    if not values:
        return ""
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def _collapse_lines(collapse: Collapse) -> Iterator[str]:
    """A collapse: how far, each of its runs, and what gives it."""
    at = collapse.at
    kept = f"{rate(collapse.qps)} qps, {collapse.share:.2f} of the best"
    yield f"collapse with {clients(at.clients)}: {kept}"
    if len(collapse.runs) > 1:
        rounds = dict.fromkeys(one.round for one in collapse.runs)
        runs = "; ".join(
            (f"launch {round_}: " if len(rounds) > 1 else "")
            + ", ".join(_run_words(one) for one in collapse.runs if one.round == round_)
            for round_ in rounds
        )
        held = sum(not one.fell for one in collapse.runs)
        verdict = "they agree" if collapse.agree else "the runs disagree"
        if held:
            verdict += f": {held} of {len(collapse.runs)} did not fall"
        yield f"its {len(collapse.runs)} runs in qps: {runs}; {verdict}"
    else:
        yield "it was run once: a collapse is rarely the same twice"
    if collapse.router is not None:
        yield collapse.router
    if at.limited is not None:
        yield f"limited by, with {clients(at.clients)}: {at.limited.text}"


def _run_words(one: RunFigure) -> str:
    words = [
        rate(one.qps),
        f"with {one.errors} errors" if one.errors else "",
        "cut" if one.cut else "",
        "" if one.fell else "held",
    ]
    return " ".join(word for word in words if word)


def _warnings(row: PressRow) -> list[Warning]:
    """Those of a row. One of a fixed number of requests is one window by its nature, so that it has
    but one is no doubt."""
    counted = row.line.row.requests_each is not None
    return [one for one in row.entry.warnings if not (counted and one.code == "few-windows")]


def row_findings(row: PressRow | None) -> list[Finding]:
    """What failed and what is doubted of a row, that time cut it, and what it lacks."""
    if row is None:
        return []
    out = [*replace(row.entry, warnings=tuple(_warnings(row))).findings]
    done = f"{row.line.completed:,} of {row.asked or 0:,} requests were completed, {row.cut:,} not"
    if row.ended_by_time:
        broken_off = any(trial.flags.get("interrupted") for trial in row.line.trials)
        late = f", {row.late:,} ended after that" if row.late else ""
        code = "interrupted" if broken_off else "cut by time"
        out += [Finding(f"{done}{late}", code, "doubt"), *sentences(_left_out(row), "doubt")]
    if row.unaccounted:
        words = (
            f"{row.asked or 0:,} requests asked for, but {row.line.completed:,} completed + "
            f"{row.line.errors:,} failed + {row.cut:,} cut: do not trust this row"
        )
        out.append(Finding(words, "accounting", "doubt"))
    return out


def _left_out(row: PressRow) -> Iterator[str]:
    """Of a row that time ended, where those still in flight would have changed the mean latency."""
    waiting = sum(trial.counts.in_flight for trial in row.line.trials)
    if not waiting or not row.qps_without or not row.ave_us:
        return
    mean_us = 1e6 * row.clients / row.qps_without
    if mean_us > LEFT_OUT * row.ave_us:
        what = "in no latency: aveTime and the percentiles are too low"
        if row.line.distributions["latency"].lower_bounds:
            what = "known to take longer: figures marked > are lower bounds"
        yield (
            f"{waiting:,} requests were still in flight, and are {what}; clients / qps gives a "
            f"mean of {number(mean_us, 5)} us"
        )
