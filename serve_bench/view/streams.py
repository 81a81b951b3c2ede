"""What streams add to a load: their events, and the tokens that the service counts."""

from __future__ import annotations

from collections.abc import Sequence

from serve_bench.core.load_result import TokenCounts
from serve_bench.core.result import Trial
from serve_bench.core.schema import built
from serve_bench.view.figures import declare


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


declare(
    *("tokens", "1/s", "tokens of answers in a second, as the service counts them"),
    lambda line: tokens_per_s(line.trials),
    title="tokens/s",
)
