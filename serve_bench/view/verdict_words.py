"""A comparison in sentences: the verdict, what it rests on, and in what the sides differ.

One line of text each, unbroken; the same words in every report and in what a gate says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.model import (
    OPEN,
    About,
    Compared,
    ComparedRow,
    Comparing,
    describe_change,
    name_subject,
    row_title,
)
from serve_bench.analysis.comparing.values import Doubt
from serve_bench.analysis.ratios import MOST_ROUNDS, launches_text
from serve_bench.analysis.statistics import MAIN
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted, percent
from serve_bench.core.result import RunStop
from serve_bench.view.document import Finding, join_words
from serve_bench.view.rows import describe_engaged
from serve_bench.view.waterfall import shift_sentence


def headline(comparing: Comparing) -> str:
    """Render the verdict in one sentence, by what the gate looks at.

    `optimized is 14 % slower than default (4 to 23 %): regressed, 6 rounds`; of several rows the
    one that differs most, `optimized against default: regressed in 2 of 3 rows, 8 clients, 14 %
    slower, 6 rounds`."""
    word, rows, proven = comparing.word, comparing.rows, comparing.word not in OPEN
    row, line = _find_leading(comparing)
    sentence = f"{name_subject(comparing)}: {word}"
    if line is not None and line.metric != "cpu" and proven and len(rows) == 1:
        a, b = comparing.names
        sentence = f"{comparing.of}: {b} is {describe_change(line, a)}: {word}".removeprefix(": ")
    elif row is not None:
        if len(rows) > 1:
            count = sum(other.word == word for other in rows)
            sentence += f" in {count} of {len(rows)} rows, {row_title(comparing, row)}"
        sentence += f", {row.worse if line is None else describe_change(line)}"
    parts = (
        f"{sentence}, {_rounds(comparing, [row] if row else rows)}",
        "" if line is None else _need(line, comparing.paired),
        "a false alarm, or the sides were not alike" if comparing.aa and proven else "",
        "unlike runs, compared by force" if comparing.unlike else "",
    )
    return "; ".join(filter(None, parts))


def _find_leading(comparing: Comparing) -> tuple[ComparedRow | None, Compared | None]:
    """Find what the verdict rests on: a row, and a figure of it.

    A row that is worse whatever its figures is without a figure; else it is the figure of that word
    that differs most, of throughput if that has it."""
    for row in comparing.rows:
        if row.worse:
            return row, None
    word = comparing.word
    lines = [pair for pair in comparing.pairs if pair[1].gated and pair[1].judged.word == word]
    main = [pair for pair in lines if pair[1].metric == MAIN] or lines
    return max(main, key=lambda pair: abs(math.log(pair[1].ratio or 1)), default=(None, None))


def _need(line: Compared, paired: bool) -> str:
    """Say what would decide an inconclusive figure: `about 14 rounds needed`; else empty."""
    things = ("round", "rounds") if paired else ("launch a side", "launches a side")
    judged = line.judged
    if judged.rounds_needed is not None:
        return f"about {counted(judged.rounds_needed, *things)} needed"
    if judged.word != "inconclusive" or judged.weighed or judged.interval is None:
        return ""
    if judged.interval.between:
        return "the spread between runs hides it: serve-bench versus avoids it"
    return f"more than {MOST_ROUNDS} {things[1]} needed"


def _rounds(comparing: Comparing, rows: Sequence[ComparedRow]) -> str:
    """Render `6 rounds`, `4 of 6 rounds`, `3 launches a side`, `3 and 5 launches`, by the least."""
    a, b = (min((row.measured[side] for row in rows), default=0) for side in (0, 1))
    if not comparing.paired:
        return launches_text(a, b, pairs=False)
    planned = max((max(row.planned) for row in comparing.rows), default=0)
    words = f"{'' if a == planned else f'{a} of '}{counted(planned, 'round')}"
    return words if comparing.stop is None else f"{words} ({stop_text(comparing.stop)})"


def stop_text(stop: RunStop) -> str:
    """Render `settled after 4 of at most 20 rounds`."""
    whys = {"budget": "the budget was used up", "failure": "given up, since each try fails alike,"}
    return f"{whys.get(stop.why, stop.why)} after {stop.after_round} of at most {stop.of} rounds"


def describe_comparing(comparing: Comparing) -> Iterator[str]:
    """Yield the sentences that stand first: verdicts, hops that grew, corrections, noise floor."""
    parts = comparing.split()
    for row in (row for row in comparing.rows if row.work):
        title = row_title(comparing, row)
        yield f"{title}: A and {row.side} do other work: {'; '.join(row.work)}"
    for part in parts:
        yield headline(replace(part, stop=part.stop if len(parts) == 1 else None))
        for row in part.rows:
            title = ", ".join(filter(None, (part.of, row_title(part, row))))
            groups = f"{title}: {row.groups}" if row.groups else None
            yield from filter(None, (groups, shift_sentence(title, row.hops)))
    if len(parts) > 1:
        if comparing.stop is not None:
            yield stop_text(comparing.stop)
        yield (
            f"Intervals have {percent(comparing.confidence)}, so that those of the {len(parts)} "
            "sides hold at once for a figure in 95 % of runs; verdicts are corrected over all, too"
        )
    floors = comparing.floors
    if comparing.aa:
        try:
            floors = floors_of(comparing)
        except BadInput:  # of too few rounds the headline says what is needed
            floors = {}
    if floors:
        run = f" of run {comparing.noise}" if comparing.noise else ""
        shares = ", ".join(f"{name} {percent(floor)}" for name, floor in floors.items())
        yield f"Noise floor{run}: {shares}"


def describe_row(row: ComparedRow, paired: bool) -> Iterator[Finding]:
    """Yield what stands under a row: what is missing, its warnings, why no verdict is possible."""
    things = "rounds" if paired else "launches"
    for letter, planned, measured in zip(("A", row.side), row.planned, row.measured, strict=True):
        if measured < planned and not (paired and letter != "A"):
            side = "" if paired else f"{letter}: "
            yield Finding(f"{side}{measured} of {planned} {things} measured", tone="doubt")
    if why := row.slicing.get("why"):
        yield Finding(why)
    if row.worse:
        yield Finding(f"{row.worse}: so whatever its figures", "worse", "bad")
    said = defaultdict[Finding, list[str]](list)  # of both sides, or of several metrics once
    for doubt in row.doubts:
        said[make_finding(doubt, things)].append(doubt.side)
    for line in row.lines:
        if line.judged.word == "inconclusive":
            metric = line.metric if row.side == "B" else f"{row.side} {line.metric}"
            said[Finding(line.judged.why)].append(metric)
    yield from (replace(found, about=join_words(parts)) for found, parts in said.items())
    gated = {line.metric for line in row.lines if line.gated}
    if row.rate_per_s is not None and not gated & {"p50", "p99"}:
        words = f"throughput is the arrival rate of {row.rate_per_s:g} requests/s while the server"
        yield Finding(f"open loop: {words} keeps up; compare latency (--gate p50,p99)")


def make_finding(doubt: Doubt, things: str) -> Finding:
    """Return a doubt as a finding. `things`: what is repeated, rounds or launches."""
    rounds = f"in {doubt.launches} of {doubt.of} {things}: " if doubt.of > 1 else ""
    return Finding(f"{rounds}{doubt.message}", doubt.code, "doubt", doubt.hint)


def describe_side(side: About) -> list[str]:
    """List what ran on a side, as its launches prove it: flags, HTTP by haproxy, ray 2.60.0."""
    asked = side.run.asked
    if (url := (asked.urls or {}).get(side.name)) is not None:
        return [f"{url}, a service that was up already"]
    app = {part.label: part.target for part in asked.sides}.get(side.name)
    envs = {launch.variant.name: launch.variant.env for launch in side.launches}
    flags = {**(next(iter(envs.values())) if len(envs) == 1 else {}), **side.settings}
    words = [f"app {app}"] if app else []
    words += [f"{name}={value}" for name, value in flags.items()]
    return [*words, *(describe_engaged(side.launches) or ["no launch recorded"])]
