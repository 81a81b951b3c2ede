"""A comparison in sentences: the verdict, what it rests on, and in what the sides differ.

One line of text each, unbroken; the same words in every report and in what a gate says.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.model import (
    OPEN,
    About,
    Compared,
    ComparedRow,
    Comparing,
    figures,
    row_title,
    subject,
)
from serve_bench.analysis.comparing.values import Doubt
from serve_bench.analysis.ratios import MOST_ROUNDS
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted, percent
from serve_bench.core.result import RunStop
from serve_bench.view.document import Finding
from serve_bench.view.rows import engaged_of
from serve_bench.view.waterfall import shift_sentence

# The verdict.


def headline(comparing: Comparing) -> str:
    """The verdict in one sentence, by what the gate looks at: `optimized is 14 % slower than
    default (4 to 23 %): regressed, 6 rounds`; of several rows the one that differs most,
    `optimized against default: regressed in 2 of 3 rows (same in 1), 8 clients, 14 % slower`."""
    word, several, proven = comparing.word, len(comparing.rows) > 1, comparing.word not in OPEN
    sentence = f"{subject(comparing)}: {word}"
    row, line = _find_leading(comparing)
    if several:
        counts = Counter(row.word for row in comparing.rows)
        others = ", ".join(f"{other} in {n}" for other, n in counts.items() if other != word)
        sentence += f" in {counts[word]} of {len(comparing.rows)} rows"
        sentence += f" ({others})" if others else ""
        sentence += f", {row_title(comparing, row)}" if row is not None else ""
    if line is not None and proven and not several:
        a, b = comparing.names
        verb = "takes" if line.metric == "cpu" else "is"
        sentence = f"{comparing.of}: {b} {verb} {figures(line, a)}: {word}".removeprefix(": ")
    elif row is not None:
        sentence += f", {row.worse if line is None else figures(line)}"
    parts = (
        f"{sentence}, {_rounds(comparing)}",
        "" if line is None else _need(line, comparing.paired),
        "a false alarm, or the sides were not alike" if comparing.aa and proven else "",
        "unlike runs, compared by force" if comparing.unlike else "",
    )
    return "; ".join(filter(None, parts))


def _find_leading(comparing: Comparing) -> tuple[ComparedRow | None, Compared | None]:
    """What the verdict rests on: a row that is worse whatever its figures, without a figure; else
    the figure of that word that differs most, of throughput if that has it."""
    word = comparing.word
    worse = next((row for row in comparing.rows if row.worse), None)
    if worse is not None:
        return worse, None
    lines = [pair for pair in comparing.pairs if pair[1].gated and pair[1].judged.word == word]
    main = [pair for pair in lines if pair[1].metric == MAIN] or lines
    return max(main, key=lambda pair: abs(math.log(pair[1].ratio or 1)), default=(None, None))


def _need(line: Compared, paired: bool) -> str:
    """What would decide an inconclusive figure: `about 14 rounds needed`; else empty."""
    judged, things = line.judged, "rounds" if paired else "launches a side"
    if judged.rounds_needed is not None:
        return f"about {judged.rounds_needed} {things} needed"
    if judged.word != "inconclusive" or judged.weighed or judged.interval is None:
        return ""
    if judged.interval.between:
        return "the spread between runs hides it: serve-bench versus avoids it"
    return f"more than {MOST_ROUNDS} {things} needed"


def _rounds(comparing: Comparing) -> str:
    """`6 rounds`, `4 to 6 of 6 rounds`, `3 launches a side`, `3 and 5 launches`."""
    spans = (sorted({row.measured[side] for row in comparing.rows} or {0}) for side in (0, 1))
    a, b = (" to ".join(dict.fromkeys((str(span[0]), str(span[-1])))) for span in spans)
    if not comparing.paired:
        return f"{a} launch{'' if a == '1' else 'es'} a side" if a == b else f"{a} and {b} launches"
    planned = max((max(row.planned) for row in comparing.rows), default=0)
    words = f"{'' if a == str(planned) else f'{a} of '}{counted(planned, 'round')}"
    return words if comparing.stop is None else f"{words} ({stop_text(comparing.stop)})"


def stop_text(stop: RunStop) -> str:
    """`settled after 4 of at most 20 rounds`."""
    whys = {"budget": "the budget was used up", "failure": "given up, since each try fails alike,"}
    return f"{whys.get(stop.why, stop.why)} after {stop.after_round} of at most {stop.of} rounds"


# What stands beside the verdict.


def describe_comparing(comparing: Comparing) -> Iterator[str]:
    """The sentences that stand first: the verdict, the hop that grew, the noise floor."""
    yield f"{headline(comparing)}."
    for row in comparing.rows:
        if (shift := shift_sentence(row_title(comparing, row), row.hops)) is not None:
            yield f"{shift}."
    floors, use = comparing.floors, "the threshold, where that is smaller"
    if comparing.aa:
        use = "a gate takes it: --noise RUN"
        try:
            floors = floors_of(comparing)
        except BadInput:  # of too few rounds the headline says what is needed
            floors = {}
    if floors:
        run = f" of run {comparing.noise}" if comparing.noise else ""
        shares = ", ".join(f"{name} {percent(floor)}" for name, floor in floors.items())
        yield f"Noise floor{run}: {shares} ({use})."


def describe_row(row: ComparedRow, paired: bool) -> Iterator[Finding]:
    """What stands under a row: what is missing, its warnings, why no verdict is possible."""
    things = "rounds" if paired else "launches"
    for letter, planned, measured in zip("AB", row.planned, row.measured, strict=True):
        if measured < planned and not (paired and letter == "B"):
            side = "" if paired else f"{letter}: "
            yield Finding(f"{side}{measured} of {planned} {things} measured", tone="doubt")
    if why := row.slicing.get("why"):
        yield Finding(why)
    if row.worse:
        yield Finding(f"{row.worse}: so whatever its figures", "worse", "bad")
    sides = defaultdict[Finding, list[str]](list)  # the same of both is said once
    for doubt in row.doubts:
        sides[make_finding(doubt, things)].append(doubt.side)
    yield from (replace(found, about=" and ".join(by)) for found, by in sides.items())
    reasons = defaultdict[str, list[str]](list)
    for line in row.lines:
        if line.judged.word == "inconclusive":
            reasons[line.judged.why].append(line.metric)
    yield from (Finding(f"{', '.join(metrics)}: {why}") for why, metrics in reasons.items())
    gated = {line.metric for line in row.lines if line.gated}
    if row.rate_per_s is not None and not gated & {"p50", "p99"}:
        words = f"throughput is the arrival rate of {row.rate_per_s:g} requests/s while the server"
        yield Finding(f"open loop: {words} keeps up; compare latency (--gate p50,p99)")


def make_finding(doubt: Doubt, things: str) -> Finding:
    """A doubt about a row of a side. `things`: what is repeated, rounds or launches."""
    rounds = f"in {doubt.launches} of {doubt.of} {things}: " if doubt.of > 1 else ""
    return Finding(f"{rounds}{doubt.message}", doubt.code, "doubt", doubt.hint)


def describe_side(side: About) -> list[str]:
    """What ran on a side, as its launches prove it: no flags, HTTP by haproxy, ray 2.60.0."""
    suite = side.run.suite
    if (url := (suite.get("urls") or {}).get(side.name)) is not None:
        return [f"{url}, a service that was up already"]
    app = {part["label"]: part.get("app") for part in suite.get("sides") or ()}.get(side.name)
    app = app.get("target") or app.get("name") if isinstance(app, dict) else app
    flags = {launch.variant.name: launch.variant.env for launch in side.launches}
    *envs, settings = (
        " ".join(f"{name}={value}" for name, value in part.items())
        for part in (*flags.values(), side.settings)
    )
    facts = (
        f"app {app}" if app else "",
        *([envs[0] or "no flags"] if len(envs) == 1 else []),
        f"with {settings}" if settings else "",
        *(engaged_of(side.launches) or ["no launch recorded"]),
    )
    return [*filter(None, facts)]
