"""What streams add to a load: their events, and the tokens that the service counts."""

from __future__ import annotations

from collections.abc import Sequence

from serve_bench.core.load_result import TokenCounts
from serve_bench.core.result import Trial
from serve_bench.core.schema import built
from serve_bench.view.texts import number


def merged_words(trial: Trial) -> str | None:
    """How many events there were, and how many of them came in the same read as the one before;
    None without any. The library of another client says nothing of reads."""
    events, merged = (int(trial.client.get(name) or 0) for name in ("events", "merged"))
    if not events:
        return None
    raw = trial.row.traffic.client == "raw"
    share = f"; {100 * merged / events:.3g} % in the same read as the one before" if raw else ""
    return f"{events:,} in the windows{share}"


def tokens_words(trial: Trial) -> str | None:
    """`9,312 of answers (4,656/s); per request 512 of the answer, 480 of the prompt`, as the
    service counts them; None where it was not asked."""
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
