"""What streams add to rows: columns, words and JSON. Rows of other protocols have none of it.

Rule: times are as in `core/load_result.py`: TTFB and TTFT run from the moment a request was due,
ITL from one event to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from serve_bench.core.load_result import STREAM_TIMES, TokenCounts
from serve_bench.core.result import Trial
from serve_bench.core.schema import built
from serve_bench.view.rows import NS_PER_MS, Entry
from serve_bench.view.texts import latency, number

EVENTS: Final = "events"
"""The metric of events/s."""

TTFT, ITL = "ttft", "itl"


def name(metric: str) -> str:
    """How a metric is called: TTFB, TTFT and ITL are short names of the field."""
    return metric.upper() if metric in STREAM_TIMES else metric.replace("_", " ")


def words(entry: Entry) -> str:
    """`; 740.0 events/s, TTFT p50 5.21 ms, p99 6.33 ms, ITL p50 5.10 ms, p99 5.44 ms`, as far as
    they are known; empty of a row without events."""
    line = entry.line
    if EVENTS not in line.spreads:
        return ""
    texts = [f"{number(line.spreads[EVENTS].mean)} events/s"]
    for metric in (TTFT, ITL):
        if (times := line.distributions.get(metric)) is not None:
            p50, p99 = (latency(value / NS_PER_MS) for value in (times.p50, times.p99))
            texts.append(f"{name(metric)} p50 {p50} ms, p99 {p99} ms")
    if (per_s := tokens_per_s(line.trials)) is not None:
        texts.append(f"{number(per_s)} tokens/s of answers")
    return "; " + ", ".join(texts)


def merged_words(trials: Sequence[Trial]) -> str | None:
    """How many events there were, and how many of them came in the same read as the one before;
    None without any. The library of another client says nothing of reads."""
    events, merged = (
        sum(int(trial.client.get(name) or 0) for trial in trials) for name in (EVENTS, "merged")
    )
    if not events:
        return None
    raw = all(trial.row.traffic.client == "raw" for trial in trials)
    share = f"; {100 * merged / events:.3g} % in the same read as the one before" if raw else ""
    return f"{events:,} in the windows{share}"


def tokens_words(trial: Trial) -> str | None:
    """`9,312 of answers (4,656/s), 512 per request with 480 of its prompt`, as the service counts
    them; None where it was not asked."""
    counts = token_counts(trial)
    if counts is None:
        return None
    if not counts.requests:
        return "the service counted none in its answers (usage); see events/s"
    rate_per_s = tokens_per_s([trial])
    per_s = "" if rate_per_s is None else f" ({number(rate_per_s)}/s)"
    answer, prompt = (count / counts.requests for count in (counts.answer, counts.prompt))
    text = f"{counts.answer:,} of answers{per_s}"
    text += f"; per request {answer:,.4g} of the answer, {prompt:,.4g} of the prompt"
    uncounted = trial.completed_in_windows - counts.requests
    return text + (f"; {uncounted:,} requests without a count" if uncounted > 0 else "")


def tokens_per_s(trials: Sequence[Trial]) -> float | None:
    """Tokens of answers in a second of the windows, as the service counts them; None where it
    counted none. Raises FormatError."""
    tokens, seconds = 0, 0.0
    for trial in trials:
        counts = token_counts(trial)
        if counts is not None and counts.requests:
            tokens, seconds = tokens + counts.answer, seconds + trial.seconds.get("measured", 0.0)
    return tokens / seconds if seconds > 0 else None


def token_counts(trial: Trial) -> TokenCounts | None:
    """What the service counted in the windows of a trial. Raises FormatError."""
    stored = trial.client.get("tokens")
    return None if stored is None else built(TokenCounts, stored, "trial.client.tokens")


def json_counts(trial: Trial) -> dict[str, Any]:
    """Of the account of a trial: `events` within the windows, `merged` those of them that came in
    the same read as the one before, `tokens` as the service counts them. Empty of other protocols.
    """
    if EVENTS not in trial.client:
        return {}
    counts = {EVENTS: trial.client[EVENTS], "merged": trial.client.get("merged", 0)}
    tokens = trial.client.get("tokens")
    return counts if tokens is None else {**counts, "tokens": tokens}
