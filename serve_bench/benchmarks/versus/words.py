"""A comparison in a sentence: the verdict, its figures, its rounds and what is not in it.

One line of text each, unbroken; the same words in every report and in what a gate says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from serve_bench.analysis.comparing.model import (
    OPEN,
    Compared,
    ComparedRow,
    Comparing,
    change_text,
    figures,
    row_title,
    subject,
)
from serve_bench.analysis.ratios import MOST_ROUNDS, Word
from serve_bench.core.result import RunStop

IN_THE_VERDICT = ("client-bound", "errors", "interrupted", "worker-failed", "steal")
"""Doubts that are named in the sentence of the verdict itself."""


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
    every = sorted(set(counts))
    return str(every[0]) if len(every) == 1 else f"{every[0]} to {every[-1]}"


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
        known: dict[str, list[Compared]] = {}
        for _, line in leading:
            if line.ratio is not None:
                known.setdefault(line.metric, []).append(line)
        return [range_text(lines) for lines in known.values()]
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
    counts = Counter(one.side for one in comparing.alone)
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
    """`; doubted: client-bound (A and B), errors (B)`."""
    sides: dict[str, set[str]] = {}
    for row in rows:
        for one in row.doubts:
            if one.code in IN_THE_VERDICT:
                sides.setdefault(one.code, set()).add(one.side)
    codes = [f"{code} ({' and '.join(sorted(of))})" for code, of in sides.items()]
    return f"; warnings: {', '.join(codes)}" if codes else ""
