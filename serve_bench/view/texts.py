"""Figures, cells, hosts and doubts as short texts, the same in every form of report.

Rule: one line each, no layout and no colour; what has no value is `-`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import LowerBound
from serve_bench.analysis.verdict import Verdict, prevailing
from serve_bench.core.figures import number as number
from serve_bench.core.result import JsonObject

#: Of the processes that `load` samples, its own; the others are of the Serve that answers.
LOAD_ROLES: Final = ("serve_bench", "load_worker")


def cell_title(cell: JsonObject) -> str:
    """A cell in words: `max_batch_size 1, max_ongoing_requests 10000, num_replicas 8`."""
    return ", ".join(f"{name} {value}" for name, value in cell.items()) or "app as it is"


def latency(value_ms: float | None) -> str:
    """Milliseconds with the three digits that a histogram holds (its error is 0.05 %); `> 5,245`
    where no more is known than that it is above."""
    return bounded_number(value_ms, 3)


def bounded_number(value: float | None, digits: int = 4) -> str:
    """As `number`, with a sign where it is only a lower bound."""
    return f"{bound_sign(value)}{number(value, digits)}"


def bound_sign(value: float | None) -> str:
    """What stands before a figure that is only a lower bound."""
    return "> " if isinstance(value, LowerBound) else ""


def limited_line(verdicts: Sequence[Verdict]) -> str:
    """`limited by: proxy CPU 96 % of a core (high confidence; next limit: replica CPU 59 %)`, of at
    least one launch; of several the most frequent, and how often the others came if they were not
    the same."""
    most = prevailing(verdicts)
    counts = Counter(one.cause for one in verdicts)
    others = ", ".join(f"{cause} in {n}" for cause, n in counts.items() if cause != most.cause)
    share = f", in {counts[most.cause]} of {len(verdicts)} launches; {others}" if others else ""
    return f"limited by: {most.text}{share}"


def used_words(usage: Mapping[str, Any]) -> str:
    """CPU of a load, of the Serve that was sampled with it, and of the host; empty if none was."""
    host = usage.get("host", {})
    if host.get("cpu_percent") is None:
        return ""
    used = {True: 0.0, False: 0.0}
    for process in usage.get("processes", ()):
        used[process.get("role") in LOAD_ROLES] += process.get("cpu_percent") or 0.0
    serve = f", the Serve {used[False]:.0f} %" if used[False] else ""
    whole = f"{host['cpu_percent']:.0f} % of {100 * host.get('cores', 1)} %"
    return f"the load {used[True]:.0f} % of a core{serve}; all that runs on the host {whole}"
