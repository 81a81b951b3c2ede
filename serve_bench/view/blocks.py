"""Small pieces that the pages of several kinds of run are made of: cells, sentences, charts.

Rule: the value of a Number is not rounded, and in the unit of its column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.statistics import LATENCY, MAIN, merged
from serve_bench.analysis.verdict import Verdict
from serve_bench.core.figures import number
from serve_bench.core.histogram import Histogram, bounded, slot_middle
from serve_bench.core.load_result import CENSORED_BY
from serve_bench.core.result import Trial
from serve_bench.view.document import (
    Block,
    Column,
    Detail,
    Finding,
    Number,
    Section,
    Table,
    TableRow,
)
from serve_bench.view.rows import NS_PER_MS, Page, VariantPart, warning_finding


def section(
    name: str, title: str, blocks: Iterable[Block], detail: Detail = "further"
) -> Iterator[Section]:
    """The section; none where it would be empty."""
    every = tuple(blocks)
    if every:
        yield Section(name, title, every, detail)


def page_doubts(page: Page) -> Iterator[Finding]:
    """Failures and doubts of a whole page, then of each variant: each kind of warning once, with
    how many more there are, since a run that was resumed is warned about at each start."""
    parts: list[Page | VariantPart] = [page, *page.variants]
    for part in parts:
        for failure in part.failures:
            where = "" if failure.variant is None else f" of {failure.variant}"
            yield Finding(f"{failure.what}{where}: {failure.message}", "failed", "bad")
        doubts: dict[str, dict[Finding, None]] = {}
        for warning in part.warnings:
            doubts.setdefault(warning.code, {})[warning_finding(warning)] = None
        for first, *more in doubts.values():
            again = f"; {len(more)} more like it" if more else ""
            yield replace(first, text=f"{first.text}{again}")


def sentence(text: str) -> str:
    """The text with one full stop. A name that it begins with stays as it is written."""
    return f"{text.rstrip('.')}."


def statement(text: str, names: Iterable[str] = ()) -> str:
    """The same, with a capital where it does not begin with one of the names."""
    named = any(name and text.startswith(name) for name in names)
    return sentence(text if named else f"{text[:1].upper()}{text[1:]}")


def limit_words(limit: Verdict | None) -> str:
    """`limited by replica CPU 98 % (high confidence)`; that it is unclear, or was not sampled."""
    if limit is None:
        return "CPU was not sampled"
    return f"limit {limit.text}" if limit.cause == "unclear" else f"limited by {limit.text}"


BARS: Final = 5
"""Of the histogram of a load in a terminal; the longest has BAR_WIDTH signs."""
BAR_WIDTH: Final = 40


def histogram_table(histogram: Histogram) -> Table | None:
    """A latency in ms as bars of equal width, the last one open up to the maximum; None without
    two values that differ."""
    least, most, last = histogram.min, histogram.percentile(0.99), histogram.max
    if least is None or most is None or last is None or most <= least:
        return None
    width = (most - least) / (BARS - 1)
    counts = [0] * BARS
    for index, number_of in histogram.occupied():
        place = math.ceil((slot_middle(index) - least) / width) - 1
        counts[min(max(place, 0), BARS - 1)] += number_of
    ends = (*(least + width * bar for bar in range(1, BARS)), last)
    names = [f"to {number(end / NS_PER_MS, 3)} ms" for end in ends]
    rows = (
        TableRow((name, Number(f"{n:,}", n), "■" * math.ceil(BAR_WIDTH * n / max(counts))))
        for name, n in zip(names, counts, strict=True)
    )
    columns = (Column(""), Column(""), Column("", number=False))
    return Table("", columns, tuple(rows))


#: Shares of a percentile curve, up to the one that the slowest of 100,000 stands for.
_SHARES: Final = (
    *(0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.98),
    *(0.99, 0.9925, 0.995, 0.9965, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99995, 0.99999),
)


def latency_curve(trials: Sequence[Trial], name: str = LATENCY) -> list[tuple[float, float]]:
    """(share, ms) of a time of all requests of the windows, up to the last share that one of its
    values lies beyond. It ends where requests without an answer leave it open."""
    answered, censored = merged(trials, name), merged(trials, CENSORED_BY.get(name, ""))
    total = answered.count + censored.count
    shares = [share for share in _SHARES if (1 - share) * total >= 1 - 1e-9]
    ends = zip(shares, bounded(answered, censored, shares), strict=True)
    return [
        (share, ns / NS_PER_MS) for share, (ns, is_open) in ends if ns is not None and not is_open
    ]


def over_windows(trial: Trial) -> list[tuple[float, float]]:
    """(seconds, requests/s) of the windows, each at the middle of its window."""
    metric = trial.metrics.get(MAIN)
    windows = () if metric is None else metric.windows or ()
    return [((place + 0.5) * trial.window_s, value) for place, value in enumerate(windows)]


def by_launch(name: str, trials: Sequence[Trial]) -> dict[str, list[tuple[float, float]]]:
    """The windows of each launch under a name of its own; one window alone is no course."""
    several = len(trials) > 1
    names = [f"{name}, launch {trial.round}" if several else name for trial in trials]
    courses = zip(names, map(over_windows, trials), strict=True)
    return {name: values for name, values in courses if len(values) > 1}


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def distinct(names: Sequence[str]) -> list[str]:
    """Names of the form `a, b, c` without the parts that are the same in all."""
    parts = [name.split(", ") for name in names]
    if len(names) < 2 or len({len(words) for words in parts}) > 1:
        return list(names)
    kept = [place for place, values in enumerate(zip(*parts, strict=True)) if len(set(values)) > 1]
    short = [", ".join(words[place] for place in kept) for words in parts]
    return short if len(set(short)) == len(set(names)) and all(short) else list(names)
