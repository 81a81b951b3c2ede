"""A comparison in words: the figures of a line, the name of a row, the verdict in one sentence.

Pure. Rule: one line of text each, unbroken; the same words in every report and in what a gate says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from serve_bench.analysis.comparing.parts import Alone, Compared, ComparedRow, Comparing
from serve_bench.analysis.comparison import FEWEST, MOST_ROUNDS, Interval, Word
from serve_bench.core.result import cell_slug

IN_THE_VERDICT = ("client-bound", "errors", "interrupted", "worker-failed", "steal")
"""Doubts that are named in the sentence of the verdict itself."""


def ratio_text(value: float | None) -> str:
    """A ratio with the digits that its size allows: `0.912`, `1.004`, `11.8`, `1,240`."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf"
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"


def ends(interval: Interval | None) -> str:
    """`11.2 to 12.5`; `-` without an interval."""
    if interval is None:
        return "-"
    return f"{ratio_text(interval.low)} to {ratio_text(interval.high)}"


def figures(line: Compared) -> str:
    """`throughput 11.8 x (95 %: 11.2 to 12.5)`, or what there is of it."""
    if line.ratio is None:
        return f"{line.metric} {line.judged.why or 'not measured'}"
    interval = line.judged.interval
    known = f" ({100 * interval.confidence:g} %: {ends(interval)})" if interval else ""
    return f"{line.metric} {ratio_text(line.ratio)} x{known}"


def settles(line: Compared, paired: bool) -> str:
    """`about 14 rounds would settle it`; empty where nothing is to be settled."""
    judged = line.judged
    if judged.word != "inconclusive" or judged.interval is None or judged.p is None:
        return ""
    if judged.rounds_needed is not None:
        things = "rounds" if paired else "launches a side"
        return f"about {judged.rounds_needed} {things} would settle it"
    if judged.weighed:
        return ""
    return f"more than {MOST_ROUNDS} {'rounds' if paired else 'launches a side'} would be needed"


def row_title(comparing: Comparing, row: ComparedRow) -> str:
    """What tells a row from the others: variant, cell and client where they differ."""
    cells = {cell_slug(one.cell) for one in comparing.rows}
    clients = {one.client for one in comparing.rows if one.row == row.row}
    words = [
        variant_of(row),
        cell_slug(row.cell) if len(cells) > 1 else None,
        f"{row.row} ({row.client})" if len(clients) > 1 else row.row,
    ]
    return ", ".join(word for word in words if word)


def variant_of(row: ComparedRow) -> str | None:
    """The variant of a row, where a run has several."""
    if row.variants is None:
        return None
    return row.variants[0] if len(set(row.variants)) == 1 else " and ".join(row.variants)


def alone_words(one: Alone) -> str:
    """`100 connections (raw) of bs1-mcq1-rep1: in A alone`."""
    of = ", ".join(word for word in (one.variant, cell_slug(one.cell)) if word)
    return f"{one.row} ({one.client}) of {of}: in {one.side} alone"


def rounds_words(comparing: Comparing) -> str:
    """`6 rounds`, `4 to 6 of 6 rounds`, `3 launches a side`, `3 and 5 launches`."""
    if not comparing.rows:
        return "no rounds"
    a = _range(row.measured[0] for row in comparing.rows)
    if comparing.paired:
        planned = max(max(row.planned) for row in comparing.rows)
        of = "" if a == str(planned) else f" of {planned}"
        return f"{a}{of} round{'' if planned == 1 else 's'}"
    b = _range(row.measured[1] for row in comparing.rows)
    if a == b:
        return f"{a} launch{'' if a == '1' else 'es'} a side"
    return f"{a} and {b} launches"


def _range(counts: Iterable[int]) -> str:
    every = sorted(set(counts))
    return str(every[0]) if len(every) == 1 else f"{every[0]} to {every[-1]}"


# -------------------------------------------------------------------------------- the verdict


def subject(comparing: Comparing) -> str:
    """`optimized against default`; of an A/A run `default against itself`."""
    a, b = comparing.names
    if comparing.aa:
        return f"{a.removesuffix(' (A)')} against itself"
    return f"{b} against {a}"


def headline(comparing: Comparing) -> str:
    """The verdict in one sentence, by what the gate looks at.

    `optimized against default: improved, throughput 11.8 x (95 %: 11.2 to 12.5), 6 rounds`
    """
    word = comparing.word
    rows = [row for row in comparing.rows if row.word == word]
    leading = [
        (row, line)
        for row in rows
        for line in row.lines
        if line.gated and line.judged.word == word and not row.worse
    ]
    said = f"{subject(comparing)}: {word}{_where(comparing, word)}"
    said += "".join(f", {text}" for text in (*_worse(comparing), *_leading(comparing, leading)))
    said += f", {rounds_words(comparing)}"
    if len(leading) == 1 and (more := settles(leading[0][1], comparing.paired)):
        said += f"; {more}"
    if leading and all(line.judged.p is None for _, line in leading):
        said += f"; a verdict takes {FEWEST}"
    if comparing.aa and word in ("regressed", "improved"):
        said += "; a false alarm, or the sides were not alike"
    return said + _raised(comparing) + _doubted(rows) + _others(comparing)


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
        return _ranges([line for _, line in leading])
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
    told = [f"{n} row{'' if n == 1 else 's'} in {side} alone" for side, n in sorted(counts.items())]
    alone = f"; not compared: {', '.join(told)}" if told else ""
    return f"{alone}; unlike runs, compared by force" if comparing.unlike else alone


def _where(comparing: Comparing, word: Word) -> str:
    """` in 1 of 3 rows (same in 2)`; empty where there is one."""
    counts = Counter(row.word for row in comparing.rows)
    if len(comparing.rows) < 2:
        return ""
    others = ", ".join(f"{other} in {n}" for other, n in counts.items() if other != word)
    return f" in {counts[word]} of {len(comparing.rows)} rows{f' ({others})' if others else ''}"


def _ranges(lines: Sequence[Compared]) -> list[str]:
    """`throughput 0.82 to 0.91 x` for each metric."""
    told = []
    for metric in dict.fromkeys(line.metric for line in lines):
        ratios = [one.ratio for one in lines if one.metric == metric and one.ratio is not None]
        if ratios:
            texts = dict.fromkeys((ratio_text(min(ratios)), ratio_text(max(ratios))))
            told.append(f"{metric} {' to '.join(texts)} x")
    return told


def _doubted(rows: Sequence[ComparedRow]) -> str:
    """`; doubted: client-bound (A and B), errors (B)`."""
    sides: dict[str, set[str]] = {}
    for row in rows:
        for one in row.doubts:
            if one.code in IN_THE_VERDICT:
                sides.setdefault(one.code, set()).add(one.side)
    told = [f"{code} ({' and '.join(sorted(of))})" for code, of in sides.items()]
    return f"; doubted: {', '.join(told)}" if told else ""
