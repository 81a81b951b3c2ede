"""What a comparison says in running text: its sides, remarks under a row, how it was measured.

Rule: lines of plain text, unbroken; the forms break them. Figures as sentences are made in
analysis/comparing/parts.py, so that a gate says them alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.parts import (
    About,
    Compared,
    ComparedRow,
    Comparing,
    Effect,
    ends,
    ratio_text,
    row_title,
    settles,
)
from serve_bench.benchmarks.parts.rows import engaged_of
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.document import Finding, sentences
from serve_bench.core.errors import BadInput

UNITS: Final = {"throughput": "requests/s", "p50": "p50 ms", "p99": "p99 ms", "cpu": "CPU us"}
"""What a line is called, with the unit of its figures; CPU of the server for a request."""


def value_text(line: Compared, value: float | None) -> str:
    """A value in the unit of UNITS."""
    if value is None:
        return "-"
    if line.metric == "throughput":
        return number(value)
    return latency(value / 1e6) if line.metric in ("p50", "p99") else number(value / 1e3, 3)


def side_line(letter: str, side: About, kind: str) -> str:
    """`A default: no flags; HTTP by ray::ProxyActor, ray 2.60.0`, as the launches prove it."""
    url = (side.run.suite.get("urls") or {}).get(side.name)
    if url is not None:
        return f"{letter} {side.name}: {url}, a service that was up already"
    env = side.launches[0].variant.env if side.launches else _env_asked(side)
    several = len({one.variant.name for one in side.launches}) > 1
    flags = " ".join(f"{name}={value}" for name, value in env.items()) or "no flags"
    options = " ".join(f"{name}={value}" for name, value in side.settings.items())
    stated = [
        _app(side),
        "" if several else flags,
        f"with {options}" if options else "",
        engaged_of(list(side.launches)) or "no launch recorded",
    ]
    if kind == "compare":
        stated.append(f"{side.run.command} of {side.run.started_at}")
    name = side.name if kind == "versus" else side.variant
    return f"{letter} {name}: {'; '.join(text for text in stated if text)}"


def _app(side: About) -> str:
    """The app of a side of versus, where the two differ."""
    sides = [one for one in side.run.suite.get("sides") or () if isinstance(one, dict)]
    apps = {str(one.get("label")): one.get("app") for one in sides}
    if len({str(app) for app in apps.values()}) < 2:
        return ""
    app = apps.get(side.name)
    return f"app {app.get('target') or app.get('name') if isinstance(app, dict) else app}"


def _env_asked(side: About) -> dict[str, Any]:
    """The flags of a side that was never up, from the suite."""
    for one in side.run.suite.get("sides") or ():
        if isinstance(one, dict) and one.get("label") == side.name:
            return dict((one.get("variant") or {}).get("env") or {})
    return {}


def remarks(row: ComparedRow, paired: bool) -> Iterator[Finding]:
    """What stands under a row: what is missing, what doubts it, what would settle it."""
    for letter, planned, measured in zip("AB", row.planned, row.measured, strict=True):
        if measured < planned:
            things = "rounds" if paired else "launches"
            of = "" if paired else f"{letter}: "
            yield Finding(f"{of}{measured} of {planned} {things} measured", tone="doubt")
            if paired:
                break
    if row.worse:
        yield Finding("worse, whatever the figures say", row.worse, "bad")
    sides: dict[Finding, list[str]] = {}
    for one in row.doubts:
        rounds = f"in {one.launches} of {one.of} {'rounds' if paired else 'launches'}: "
        text = f"{rounds if one.of > 1 else ''}{one.message}"
        sides.setdefault(Finding(text, one.code, "doubt", one.hint), []).append(one.side)
    yield from (one.of(" and ".join(letters)) for one, letters in sides.items())
    yield from sentences(_open(row, paired))
    if row.rate_per_s is not None and not any(
        one.gated for one in row.lines if one.metric in ("p50", "p99")
    ):
        yield Finding(
            f"an open loop: throughput is the {row.rate_per_s:g} requests/s that were asked for, "
            "as long as the server keeps up; what differs is latency (--gate p50,p99)"
        )


def _open(row: ComparedRow, paired: bool) -> Iterator[str]:
    """Why lines are inconclusive, those with one reason together."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for line in row.lines:
        if line.judged.word == "inconclusive":
            grouped.setdefault((line.judged.why, settles(line, paired)), []).append(line.metric)
    for (why, more), metrics in grouped.items():
        word = "" if why == "not measured" else "inconclusive: "
        yield f"{', '.join(metrics)}: {word}{why}{f'; {more}' if more else ''}"


def _effect(effect: Effect) -> str:
    """`0.981 (0.967 to 0.995)`."""
    known = f" ({ends(effect.interval)})" if effect.interval is not None else ""
    return f"{ratio_text(effect.ratio)}{known}"


def floor_line(comparing: Comparing) -> str | None:
    """The noise floor, and what it does to the threshold; None without one."""
    if not comparing.floors:
        return None
    each = ", ".join(f"{name} {percent(value)}" for name, value in comparing.floors.items())
    raised = {
        line.metric: line.judged.threshold
        for line in comparing.lines
        if line.judged.threshold > comparing.threshold
    }
    told = ", ".join(f"{name} {percent(value)}" for name, value in raised.items())
    run = f" of run {comparing.noise}" if comparing.noise else ""
    effect = f"the threshold is raised for {told}" if told else "no threshold is raised"
    return f"noise floor{run}, how far from 1 A against itself reaches: {each}; {effect}"


def own_floor_line(comparing: Comparing) -> str | None:
    """Of an A/A run: the noise floor that it is."""
    if not comparing.aa:
        return None
    try:
        floors = floors_of(comparing)
    except BadInput:
        return "noise floor: unknown, with fewer than 3 rounds"
    each = ", ".join(f"{name} {percent(value)}" for name, value in floors.items())
    return f"noise floor: {each} (how far from 1 the intervals reach; a gate takes it: --noise RUN)"


def method(comparing: Comparing) -> Iterator[str]:
    """How it was measured and judged."""
    suite = comparing.sides[0].run.suite
    if comparing.kind == "versus":
        duet = suite.get("pairing") == "duet"
        loaded = "loaded at once on halves of the cores" if duet else "never loaded at once"
        yield (
            "round: both services in turn; none was launched, so that no interval knows how "
            "launches differ; A and B are geometric means over rounds, B/A and its interval (t, "
            "on logarithms) come from the ratio of each round"
            if suite.get("urls")
            else f"round: a fresh launch of both sides, both up at once and {loaded}; A and B "
            "are geometric means over rounds, B/A and its interval (t, on logarithms) "
            "come from the ratio of each round"
        )
        yield from _slicings(comparing)
        yield from _effects(comparing)
        yield from (f"given up for the budget: {one}" for one in suite.get("gave_up") or ())
    elif comparing.paired:
        yield "two variants of one run: B/A and its interval (t, on logarithms) by round"
    else:
        yield (
            "A and B are geometric means over launches; the interval of B/A is Welch's, on "
            "logarithms; what changed on the host between the runs is in no interval, and "
            "serve-bench versus is free of it"
        )
    rows = len(comparing.rows)
    holm = f", Holm's correction over {rows} rows" if rows > 1 else ""
    others = [name for name in UNITS if name not in comparing.gate]
    shown = f"; {', '.join(others)}: shown, and in no exit code" if others else ""
    floor = "" if not comparing.floors else " (for an alarm the noise floor, where that is larger)"
    yield (
        f"verdict: threshold {percent(comparing.threshold)}{floor}{holm}; gate: "
        f"{', '.join(comparing.gate)}{shown}; docs/ab.md"
    )
    known = "; not judged: nothing is known of the processes of --url" if suite.get("urls") else ""
    yield f"CPU us: of proxies and replicas, for a request{known}; p50, p99: of each launch"


def _slicings(comparing: Comparing) -> Iterator[str]:
    """How the rows were sliced; rows that were sliced alike in one line."""
    told: dict[str, list[str]] = {}
    for row in comparing.rows:
        of = row.slicing
        if of is None:
            continue
        asked = of.asked_connections
        fewer = asked is not None and asked != of.connections and not of.why
        load = f", {of.connections} connections instead of {asked}" if fewer else ""
        drains = [
            f"{_ms(one)} ({letter})"
            for letter, one in zip("AB", of.drain_s, strict=True)
            if one is not None
        ]
        drain = f", drains of {' and '.join(drains)}" if drains else ""
        words = f"{of.slices:,} slices of {_ms(of.slice_s)} a side in turn, in drawn order"
        if of.method == "duet":
            words = f"a duet: {of.slices:,} windows of {_ms(of.slice_s)}, both sides at once, each "
            words, drain = f"{words}and its client on cores of its own, swapped after each", ""
        elif of.method != "slices":
            words, drain = f"windows of {_ms(of.slice_s)}, not slices: noisier, docs/ab.md", ""
        why = f" ({of.why})" if of.why else ""
        told.setdefault(f"{words}{load}{drain}{why}", []).append(row_title(comparing, row))
    for words, rows in told.items():
        named = f"{', '.join(rows)}: " if len(comparing.rows) > 1 else ""
        yield named + words


def _effects(comparing: Comparing) -> Iterator[str]:
    """What slices did to the throughput of each row."""
    for row in comparing.rows:
        if row.effects:
            named = f"{row_title(comparing, row)}: " if len(comparing.rows) > 1 else ""
            told = ", ".join(f"{one.side} {_effect(one)}" for one in row.effects)
            yield f"{named}requests/s in slices to those of a steady load: {told}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:g} s"


def percent(share: float) -> str:
    """`5 %`, `2.1 %`."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.3g} %"
