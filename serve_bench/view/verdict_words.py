"""A comparison in sentences: the verdict, its figures, its rounds and what is not in it.

One line of text each, unbroken; the same words in every report and in what a gate says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from serve_bench.analysis.comparing import floors_of
from serve_bench.analysis.comparing.match import software_changes, software_of, software_words
from serve_bench.analysis.comparing.model import (
    OPEN,
    About,
    Compared,
    ComparedRow,
    Comparing,
    change_text,
    figures,
    row_title,
    subject,
)
from serve_bench.analysis.ratios import MOST_ROUNDS, Word
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import percent
from serve_bench.core.result import RunStop
from serve_bench.view.blocks import statement
from serve_bench.view.document import Finding
from serve_bench.view.rows import engaged_of
from serve_bench.view.waterfall import shift_sentence

IN_THE_VERDICT = ("client-bound", "errors", "interrupted", "worker-failed", "steal")
"""Warnings that are named in the sentence of the verdict itself."""


def settles(line: Compared, paired: bool) -> str:
    """`about 14 rounds needed`; empty where nothing is to be settled."""
    judged, things = line.judged, "rounds" if paired else "launches a side"
    if judged.word != "inconclusive" or judged.interval is None or judged.p is None:
        return ""
    if judged.rounds_needed is not None:
        return f"about {judged.rounds_needed} {things} needed"
    if judged.weighed:
        return ""
    if judged.interval.between:
        return "the spread between runs hides it: serve-bench versus avoids it"
    return f"more than {MOST_ROUNDS} {things} needed"


def rounds_words(comparing: Comparing) -> str:
    """`6 rounds`, `4 to 6 of 6 rounds`, `3 launches a side`, `3 and 5 launches`."""
    if not comparing.rows:
        return "no rounds"
    a = _range(row.measured[0] for row in comparing.rows)
    if comparing.paired:
        planned = max(max(row.planned) for row in comparing.rows)
        of = "" if a == str(planned) else f" of {planned}"
        words = f"{a}{of} round{'' if planned == 1 else 's'}"
        return words if comparing.stop is None else f"{words} ({stop_text(comparing.stop)})"
    b = _range(row.measured[1] for row in comparing.rows)
    if a == b:
        return f"{a} launch{'' if a == '1' else 'es'} a side"
    return f"{a} and {b} launches"


def stop_text(stop: RunStop) -> str:
    """`settled after 4 of at most 20 rounds`."""
    whys = {"budget": "the budget was used up", "failure": "given up, since each try fails alike,"}
    why = whys.get(stop.why, stop.why)
    return f"{why} after {stop.after_round} of at most {stop.of} rounds"


def _range(counts: Iterable[int]) -> str:
    ordered = sorted(counts)
    return " to ".join(dict.fromkeys((str(ordered[0]), str(ordered[-1]))))


def headline(comparing: Comparing) -> str:
    """The verdict in one sentence, by what the gate looks at: `optimized is 14 % slower than
    default (4 to 23 %): regressed, 6 rounds`; of several figures, or of none that differs,
    `optimized against default: same, between 1 % slower and 2 % faster, 6 rounds`."""
    word = comparing.word
    rows = [row for row in comparing.rows if row.word == word]
    leading = [
        (row, line)
        for row in rows
        for line in row.lines
        if line.gated and line.judged.word == word and not row.worse
    ]
    texts = [*_worse(comparing), *_leading(comparing, leading)]
    sentence = f"{subject(comparing)}: {word}{_where(comparing, word)}"
    if len(leading) == len(comparing.rows) == 1 and word not in OPEN:
        (_, line), (a, b), texts = leading[0], comparing.names, []
        verb = "takes" if line.metric == "cpu" else "is"
        sentence = f"{comparing.of}: {b} {verb} {figures(line, a)}: {word}".removeprefix(": ")
    sentence += "".join(f", {text}" for text in texts)
    sentence += f", {rounds_words(comparing)}"
    if len(leading) == 1 and (more := settles(leading[0][1], comparing.paired)):
        sentence += f"; {more}"
    if all(line.judged.p is None for _, line in leading):
        takes = {line.judged.why.partition(": ")[2]: None for _, line in leading}
        sentence += "".join(f"; {text}" for text in takes if text and text not in sentence)
    if comparing.aa and word not in OPEN:
        sentence += "; a false alarm, or the sides were not alike"
    return sentence + _raised(comparing) + _doubted(rows) + _others(comparing)


def _worse(comparing: Comparing) -> list[str]:
    """Rows on which B is worse by what no figure shows: the first with its reason."""
    rows = [row for row in comparing.rows if row.worse]
    if not rows:
        return []
    title = f"{row_title(comparing, rows[0])}: " if len(comparing.rows) > 1 else ""
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return [f"{title}{rows[0].worse}{more}"]


def _leading(comparing: Comparing, leading: Sequence[tuple[ComparedRow, Compared]]) -> list[str]:
    """The figures behind the word: of one line all, of several their range."""
    if len(leading) != 1:
        by_metric: dict[str, list[Compared]] = {}
        for _, line in leading:
            if line.ratio is not None:
                by_metric.setdefault(line.metric, []).append(line)
        return [range_text(lines) for lines in by_metric.values()]
    row, line = leading[0]
    title = [row_title(comparing, row)] if len(comparing.rows) > 1 else []
    return [*title, figures(line)]


def _raised(comparing: Comparing) -> str:
    """`; alarms from 24 % on (noise floor)`, where a floor is above the threshold."""
    raised = max((line.judged.threshold for line in comparing.gated), default=0.0)
    if raised <= comparing.threshold:
        return ""
    return f"; alarms from {100 * raised:.3g} % on (noise floor)"


def _others(comparing: Comparing) -> str:
    """What is not in the verdict: rows of one side, and that the runs are unlike."""
    counts = Counter(row.side for row in comparing.alone)
    counted = [
        f"{n} row{'' if n == 1 else 's'} in {side} alone" for side, n in sorted(counts.items())
    ]
    alone = f"; not compared: {', '.join(counted)}" if counted else ""
    return f"{alone}; unlike runs, compared by force" if comparing.unlike else alone


def _where(comparing: Comparing, word: Word) -> str:
    """` in 1 of 3 rows (same in 2)`; empty where there is one."""
    counts = Counter(row.word for row in comparing.rows)
    if len(comparing.rows) < 2:
        return ""
    others = ", ".join(f"{other} in {n}" for other, n in counts.items() if other != word)
    return f" in {counts[word]} of {len(comparing.rows)} rows{f' ({others})' if others else ''}"


def range_text(lines: Sequence[Compared]) -> str:
    """`9 to 18 % slower`, of lines of one metric that have a ratio: of those that are open all
    that their intervals hold."""
    ratios: list[float] = []
    for line in lines:
        interval = line.judged.interval
        if interval is not None and line.judged.word in OPEN:
            ratios += (interval.low, interval.high)
        elif line.ratio is not None:
            ratios.append(line.ratio)
    return change_text(lines[0], ratios)


def _doubted(rows: Sequence[ComparedRow]) -> str:
    """`; warnings: client-bound (A and B), errors (B)`."""
    sides: dict[str, set[str]] = {}
    for row in rows:
        for doubt in row.doubts:
            if doubt.code in IN_THE_VERDICT:
                sides.setdefault(doubt.code, set()).add(doubt.side)
    codes = [f"{code} ({' and '.join(sorted(of))})" for code, of in sides.items()]
    return f"; warnings: {', '.join(codes)}" if codes else ""


# What stands beside the verdict: the sentences of a report, remarks under a row, the method.


def describe_comparing(comparing: Comparing) -> Iterator[str]:
    """The sentences that stand first: the verdict, what is outside of the gate, what is open."""
    yield f"{headline(comparing)}."
    others: dict[str, list[Compared]] = {}
    for line in comparing.lines:
        if not line.gated and line.ratio is not None:
            others.setdefault(line.metric, []).append(line)
    if others:
        yield f"Outside of the gate: {'; '.join(map(_of_metric, others.values()))}."
    for row in comparing.rows:
        if (shift := shift_sentence(row_title(comparing, row), row.hops)) is not None:
            yield f"{shift}."
    yield from map(statement, (*_open_figures(comparing), *_noise(comparing)))


def _of_metric(lines: Sequence[Compared]) -> str:
    """`14 % slower at p99 (regressed)`; of several rows the range, and how often each word came."""
    words = Counter(line.judged.word for line in lines)
    several = len(words) > 1
    counts = ", ".join(f"{word} in {count}" if several else word for word, count in words.items())
    return f"{range_text(lines)} ({counts})"


def _open_figures(comparing: Comparing) -> Iterator[str]:
    """How many figures of the gate are inconclusive, and what would decide them. The headline says
    it of a single figure, and why figures were not tested."""
    lines = [line for line in comparing.gated if line.judged.word == "inconclusive"]
    if not lines or len(comparing.gated) == 1 or any(line.judged.p is None for line in lines):
        return
    needed = [line.judged.rounds_needed for line in lines if line.judged.rounds_needed is not None]
    things = "rounds" if comparing.paired else "launches a side"
    words = (
        f"about {max(needed)} {things} needed" if needed else f"more {things} would not decide them"
    )
    more = f" for {len(needed)} of them" if 0 < len(needed) < len(lines) else ""
    yield f"{len(lines)} of {len(comparing.gated)} gated figures are inconclusive: {words}{more}"


def _noise(comparing: Comparing) -> Iterator[str]:
    """The noise floor that an A/A run measured, and what a floor does to the threshold."""
    if comparing.aa:
        try:
            floors = _shares(floors_of(comparing))
            use = "how far from 1 the intervals reach; a gate takes it: --noise RUN"
            yield f"noise floor: {floors} ({use})"
        except BadInput:
            yield "noise floor: unknown, with fewer than 3 rounds"
    if comparing.floors:
        raised = raised_thresholds(comparing)
        run = f" of run {comparing.noise}" if comparing.noise else ""
        effect = f"the threshold is raised for {_shares(raised)}" if raised else ""
        yield (
            f"noise floor{run} (A compared with itself): {_shares(comparing.floors)}; "
            f"{effect or 'no threshold is raised'}"
        )


def raised_thresholds(comparing: Comparing) -> dict[str, float]:
    """The thresholds that a noise floor raised, by metric."""
    return {
        line.metric: line.judged.threshold
        for line in comparing.lines
        if line.judged.threshold > comparing.threshold
    }


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {percent(value)}" for name, value in shares.items())


def row_remarks(row: ComparedRow, paired: bool) -> Iterator[Finding]:
    """What stands under a row: what is missing, its warnings, what would settle it."""
    things = "rounds" if paired else "launches"
    for letter, planned, measured in zip("AB", row.planned, row.measured, strict=True):
        if measured < planned and not (paired and letter == "B"):
            side = "" if paired else f"{letter}: "
            yield Finding(f"{side}{measured} of {planned} {things} measured", tone="doubt")
    if row.slicing is not None and row.slicing.why:
        yield Finding(row.slicing.why)
    if row.worse:
        yield Finding("worse, regardless of the figures", row.worse, "bad")
    sides: dict[Finding, list[str]] = {}
    for doubt in row.doubts:
        rounds = f"in {doubt.launches} of {doubt.of} {things}: " if doubt.of > 1 else ""
        finding = Finding(f"{rounds}{doubt.message}", doubt.code, "doubt", doubt.hint)
        sides.setdefault(finding, []).append(doubt.side)
    yield from (finding.of(" and ".join(letters)) for finding, letters in sides.items())
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in row.lines:
        if line.judged.word == "inconclusive":
            reasons.setdefault((line.judged.why, settles(line, paired)), []).append(line.metric)
    for (why, more), metrics in reasons.items():
        word = "" if why == "not measured" else "inconclusive: "
        yield Finding(f"{', '.join(metrics)}: {word}{why}{f'; {more}' if more else ''}")
    if row.rate_per_s is not None and not any(
        line.gated and line.metric in ("p50", "p99") for line in row.lines
    ):
        yield Finding(
            f"open loop: throughput is the arrival rate of {row.rate_per_s:g} requests/s while "
            "the server keeps up; compare latency (--gate p50,p99)"
        )


def describe_method(comparing: Comparing) -> Iterator[str]:
    """How it was measured and judged, where docs/ab.md does not say it of all comparisons."""
    suite = comparing.sides[0].run.suite
    if comparing.kind == "versus":
        yield (
            "round: both services in turn, not launched, so the interval excludes the spread "
            "between launches"
            if suite.get("urls")
            else "round: a fresh launch of both sides, both up at once and never loaded at once"
        )
        if suite.get("looks"):
            yield (
                f"looks: judged after each round from the third on, at most {suite['rounds']} as "
                "planned, until every verdict of the gate is final; intervals are wider for it"
            )
    elif not comparing.paired:
        yield (
            "the interval of B/A has the spread between runs in it, which more launches do not "
            "reduce; serve-bench versus avoids it"
        )
    figures = len(comparing.gated)
    holm = f", Holm's correction over {figures} figures" if figures > 1 else ""
    floor = "" if not comparing.floors else " (for an alarm the noise floor, where that is larger)"
    yield (
        f"verdict: threshold {percent(comparing.threshold)}{floor}{holm}; gate: "
        f"{', '.join(comparing.gate)}; docs/ab.md"
    )
    unseen = "; not judged: the processes behind --url are unknown" if suite.get("urls") else ""
    yield f"CPU us: of proxies and replicas, for a request{unseen}; p50, p99: of each launch"


def describe_changes(comparing: Comparing) -> list[str]:
    """In what B's code and packages are not A's."""
    return software_changes(*(software_of(side.launches) for side in comparing.sides))


def describe_side(side: About, kind: str) -> str:
    """`no flags; HTTP by ray::ProxyActor, ray 2.60.0`, as the launches of a side prove it."""
    if (url := (side.run.suite.get("urls") or {}).get(side.name)) is not None:
        return f"{url}, a service that was up already"
    sides = [part for part in side.run.suite.get("sides") or () if isinstance(part, dict)]
    apps = {str(part.get("label")): part.get("app") for part in sides}
    app = apps.get(side.name)
    name = app.get("target") or app.get("name") if isinstance(app, dict) else app
    variants = {launch.variant.name: launch.variant for launch in side.launches}
    flags = [dict(variant.env) for variant in variants.values()]
    texts = (
        f"app {name}" if len(set(map(str, apps.values()))) > 1 else "",
        setting_words(flags[0]) or "no flags" if len(flags) == 1 else "",
        f"with {setting_words(side.settings)}" if side.settings else "",
        engaged_of(list(side.launches)) or "no launch recorded",
        software_words(side.launches),
        f"{side.run.command} of {side.run.started_at}" if kind == "compare" else "",
    )
    return "; ".join(filter(None, texts))


def setting_words(settings: Mapping[str, object]) -> str:
    """`name=value other=value`."""
    return " ".join(f"{name}={value}" for name, value in settings.items())
