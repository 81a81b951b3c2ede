"""What a comparison says in words: its sides, its findings, remarks under a row, its method.

Pure: lines of plain text and findings. The sentences that a gate needs too stand in
analysis/comparing/model.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.match import software_changes, software_of, software_words
from serve_bench.analysis.comparing.model import (
    About,
    Compared,
    ComparedRow,
    Comparing,
    RowSlices,
    ends,
    row_title,
)
from serve_bench.analysis.comparing.values import OF_ALL
from serve_bench.benchmarks.versus.slicing import ms_text
from serve_bench.benchmarks.versus.words import headline, range_text, settles
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import percent, ratio_text
from serve_bench.view.blocks import statement
from serve_bench.view.document import Finding, Number, sentences
from serve_bench.view.rows import engaged_of
from serve_bench.view.texts import bounded_number
from serve_bench.view.waterfall import shift_sentence


@dataclass(frozen=True)
class Scale:
    """How a metric is shown: `unit`, and how much of the unit of its values that holds."""

    name: str
    unit: str
    size: float
    heading: str
    digits: int = 3

    @property
    def axis(self) -> str:
        """Of a chart: `p50, ms`."""
        return self.unit if self.unit == self.heading else f"{self.name}, {self.unit}"


SCALES: Final[Mapping[str, Scale]] = {
    "throughput": Scale("throughput", "requests/s", 1.0, "requests/s", 4),
    "p50": Scale("p50", "ms", 1e6, "p50 ms"),
    "p99": Scale("p99", "ms", 1e6, "p99 ms"),
    "cpu": Scale("CPU per request", "us", 1e3, "CPU us"),
    "ttft_p50": Scale("TTFT p50", "ms", 1e6, "TTFT p50 ms"),
    "ttft_p99": Scale("TTFT p99", "ms", 1e6, "TTFT p99 ms"),
    "itl_p50": Scale("ITL p50", "ms", 1e6, "ITL p50 ms"),
    "itl_p99": Scale("ITL p99", "ms", 1e6, "ITL p99 ms"),
}
"""By metric; `cpu` is that of the server for a request. `heading`: in a table."""


def value_text(metric: str, value: float | None) -> str:
    """A value of a metric in the unit of SCALES."""
    scale = SCALES[metric]
    return "-" if value is None else bounded_number(value / scale.size, scale.digits)


def metric_number(metric: str, value: float | None) -> Number:
    """The same with the value in that unit, not rounded."""
    text = value_text(metric, value)
    return Number(text, None if value is None else value / SCALES[metric].size)


def span_text(values: Sequence[float], text: Callable[[float], str] = ratio_text) -> str:
    """`0.82 to 0.91`: the least and the largest, once where they read alike."""
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def side_changes(comparing: Comparing) -> list[str]:
    """In what B's code and packages are not A's."""
    before, after = (software_of(side.launches) for side in comparing.sides)
    return software_changes(before, after)


def side_text(side: About, kind: str) -> str:
    """`no flags; HTTP by ray::ProxyActor, ray 2.60.0`, as the launches of a side prove it."""
    url = (side.run.suite.get("urls") or {}).get(side.name)
    if url is not None:
        return f"{url}, a service that was up already"
    sides = [one for one in side.run.suite.get("sides") or () if isinstance(one, dict)]
    suite = {str(one.get("label")): one for one in sides}
    own = suite.get(side.name, {})
    env = (
        side.launches[0].variant.env
        if side.launches
        else dict((own.get("variant") or {}).get("env") or {})
    )
    several = len({one.variant.name for one in side.launches}) > 1
    flags = " ".join(f"{name}={value}" for name, value in env.items()) or "no flags"
    options = " ".join(f"{name}={value}" for name, value in side.settings.items())
    app = own.get("app")
    name = app.get("target") or app.get("name") if isinstance(app, dict) else app
    texts = (
        f"app {name}" if len({str(one.get("app")) for one in suite.values()}) > 1 else "",
        "" if several else flags,
        f"with {options}" if options else "",
        engaged_of(list(side.launches)) or "no launch recorded",
        software_words(side.launches),
        f"{side.run.command} of {side.run.started_at}" if kind == "compare" else "",
    )
    return "; ".join(filter(None, texts))


def findings(comparing: Comparing) -> Iterator[str]:
    """The sentences that stand first: the verdict, what is outside of the gate, what is open."""
    failed = len(comparing.failures)
    failures = f"; {failed} failure{'' if failed == 1 else 's'}, see below" if failed else ""
    yield f"{headline(comparing)}{failures}."
    others: dict[str, list[Compared]] = {}
    for line in comparing.lines:
        if not line.gated and line.ratio is not None:
            others.setdefault(line.metric, []).append(line)
    if others:
        yield f"Outside of the gate: {'; '.join(map(_of_metric, others.values()))}."
    for row in comparing.rows:
        if (shift := shift_sentence(row_title(comparing, row), row.hops)) is not None:
            yield f"{shift}."
    for text in (_unsettled(comparing), _own_floor(comparing), _floor(comparing)):
        if text is not None:
            yield statement(text)


def _of_metric(lines: Sequence[Compared]) -> str:
    """`14 % slower at p99 (regressed)`; of several rows the range, and how often each word came."""
    words = Counter(line.judged.word for line in lines)
    several = len(words) > 1
    counts = ", ".join(f"{word} in {count}" if several else word for word, count in words.items())
    return f"{range_text(lines)} ({counts})"


def _unsettled(comparing: Comparing) -> str | None:
    lines = [line for line in comparing.gated if line.judged.word == "inconclusive"]
    needed = [line.judged.rounds_needed for line in lines if line.judged.rounds_needed is not None]
    # The headline says it of a single line, and why lines were not tested.
    if not lines or len(comparing.gated) == 1 or any(line.judged.p is None for line in lines):
        return None
    things = "rounds" if comparing.paired else "launches a side"
    count = f"{len(lines)} of {len(comparing.gated)} gated figures are inconclusive"
    if not needed:
        return f"{count}; more {things} would not decide them"
    settled = f"{count}: about {max(needed)} {things} needed"
    if len(needed) == len(lines):
        return settled
    return f"{settled} for {len(needed)} of them; the others need more than is practical"


def _floor(comparing: Comparing) -> str | None:
    """The noise floor, and what it does to the threshold; None without one."""
    if not comparing.floors:
        return None
    raised = raised_thresholds(comparing)
    run = f" of run {comparing.noise}" if comparing.noise else ""
    effect = (
        f"the threshold is raised for {_shares(raised)}" if raised else "no threshold is raised"
    )
    return f"noise floor{run} (A compared with itself): {_shares(comparing.floors)}; {effect}"


def raised_thresholds(comparing: Comparing) -> dict[str, float]:
    """The thresholds that a noise floor raised, by metric."""
    return {
        line.metric: line.judged.threshold
        for line in comparing.lines
        if line.judged.threshold > comparing.threshold
    }


def _own_floor(comparing: Comparing) -> str | None:
    """Of an A/A run: the noise floor that it measured."""
    if not comparing.aa:
        return None
    try:
        floors = floors_of(comparing)
    except BadInput:
        return "noise floor: unknown, with fewer than 3 rounds"
    return (
        f"noise floor: {_shares(floors)} (how far from 1 the intervals reach; a gate takes it: "
        "--noise RUN)"
    )


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {percent(value)}" for name, value in shares.items())


def row_findings(row: ComparedRow, paired: bool) -> Iterator[Finding]:
    """What stands under a row: what is missing, what doubts it, what would settle it."""
    things = "rounds" if paired else "launches"
    for letter, planned, measured in zip("AB", row.planned, row.measured, strict=True):
        if measured < planned:
            side = "" if paired else f"{letter}: "
            yield Finding(f"{side}{measured} of {planned} {things} measured", tone="doubt")
            if paired:
                break
    if row.worse:
        yield Finding("worse, regardless of the figures", row.worse, "bad")
    sides: dict[Finding, list[str]] = {}
    for one in row.doubts:
        rounds = f"in {one.launches} of {one.of} {things}: " if one.of > 1 else ""
        finding = Finding(f"{rounds}{one.message}", one.code, "doubt", one.hint)
        sides.setdefault(finding, []).append(one.side)
    yield from (one.of(" and ".join(letters)) for one, letters in sides.items())
    yield from sentences(_inconclusive(row, paired))
    gated = {one.metric for one in row.lines if one.gated}
    if row.rate_per_s is not None and not gated & {"p50", "p99"}:
        yield Finding(
            f"open loop: throughput is the arrival rate of {row.rate_per_s:g} requests/s while "
            "the server keeps up; compare latency (--gate p50,p99)"
        )


def _inconclusive(row: ComparedRow, paired: bool) -> Iterator[str]:
    """Why lines are inconclusive, those with one reason together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in row.lines:
        if line.judged.word == "inconclusive":
            reasons.setdefault((line.judged.why, settles(line, paired)), []).append(line.metric)
    for (why, more), metrics in reasons.items():
        word = "" if why == "not measured" else "inconclusive: "
        yield f"{', '.join(metrics)}: {word}{why}{f'; {more}' if more else ''}"


def method(comparing: Comparing) -> Iterator[str]:
    """How it was measured and judged."""
    suite = comparing.sides[0].run.suite
    if comparing.kind == "versus":
        yield (
            "round: both services in turn, not launched, so the interval excludes the spread "
            "between launches; A and B are geometric means over rounds, B/A and its interval (t, "
            "on logarithms) come from the ratio of each round"
            if suite.get("urls")
            else "round: a fresh launch of both sides, both up at once and never loaded at once; A "
            "and B are geometric means over rounds, B/A and its interval (t, on logarithms) come "
            "from the ratio of each round, from 7 rounds on of a trimmed mean"
        )
        if suite.get("looks"):
            yield (
                f"looks: judged after each round from the third on, at most {suite['rounds']} as "
                "planned; intervals are wider for it, and hold the truth at all looks together in "
                "95 %; it stops when every verdict of the gate is final"
            )
        yield from _slicings(comparing)
        yield from _effects(comparing)
    elif comparing.paired:
        yield "two variants of one run: B/A and its interval (t, on logarithms) by round"
    else:
        yield (
            "A and B are geometric means over launches; the interval of B/A is Welch's, on "
            "logarithms, with the spread between runs in it; serve-bench versus avoids it"
        )
        yield from _between(comparing)
    figures = len(comparing.gated)
    holm = f", Holm's correction over {figures} figures" if figures > 1 else ""
    lines = {line.metric for line in comparing.lines} | OF_ALL
    others = [name for name in SCALES if name in lines and name not in comparing.gate]
    shown = f"; {', '.join(others)}: shown, no effect on the exit code" if others else ""
    floor = "" if not comparing.floors else " (for an alarm the noise floor, where that is larger)"
    yield (
        f"verdict: threshold {percent(comparing.threshold)}{floor}{holm}; gate: "
        f"{', '.join(comparing.gate)}{shown}; docs/ab.md"
    )
    known = "; not judged: the processes behind --url are unknown" if suite.get("urls") else ""
    yield f"CPU us: of proxies and replicas, for a request{known}; p50, p99: of each launch"


def _between(comparing: Comparing) -> Iterator[str]:
    """How much of each interval is of the runs, and not of their launches."""
    for row in comparing.rows:
        shares = [
            f"{line.metric} {percent(interval.between / interval.se**2)}"
            for line in row.lines
            if (interval := line.judged.interval) is not None and interval.between
        ]
        if shares:
            title = f"{row_title(comparing, row)}: " if len(comparing.rows) > 1 else ""
            yield (
                f"{title}the spread between runs is {', '.join(shares)} of the squared error; "
                "more launches do not reduce it"
            )


def _slicings(comparing: Comparing) -> Iterator[str]:
    """How the rows were sliced; rows that were sliced alike in one line."""
    alike: dict[str, list[str]] = {}
    for row in comparing.rows:
        if row.slicing is not None:
            alike.setdefault(_slicing(row.slicing), []).append(row_title(comparing, row))
    for words, rows in alike.items():
        named = f"{', '.join(rows)}: " if len(comparing.rows) > 1 else ""
        yield named + words


def _slicing(of: RowSlices) -> str:
    """`134 slices of 50 ms a side in turn, in drawn order, drains of 3.6 ms (A) and 4 ms (B)`."""
    why = f" ({of.why})" if of.why else ""
    drains = [
        f"{ms_text(one)} ({letter})"
        for letter, one in zip("AB", of.drain_s, strict=True)
        if one is not None
    ]
    drain = f", drains of {' and '.join(drains)}" if drains else ""
    words = f"windows of {ms_text(of.slice_s)}, not slices: noisier, docs/ab.md"
    if of.method == "slices":
        words = f"{of.slices:,} slices of {ms_text(of.slice_s)} a side in turn, in drawn order"
    return f"{words}{drain}{why}"


def _effects(comparing: Comparing) -> Iterator[str]:
    """What slices did to the throughput of each row."""
    effects = [
        f"{row_title(comparing, row)} {one.side}: {ratio_text(one.ratio)}"
        + (f" ({ends(one.interval)})" if one.interval else "")
        for row in comparing.rows
        for one in row.effects
    ]
    if effects:
        yield (
            "requests/s in slices divided by requests/s of a steady load (if not 1, B/A holds "
            f"for slices): {', '.join(effects)}"
        )
