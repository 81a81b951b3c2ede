"""How failed requests are put in words: how many, of which class, and with which statuses.

Rule: one wording for runners, checks, comparisons and reports. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from serve_bench.core.load_result import ERROR_WORDS, GIVEN_UP, REJECTIONS
from serve_bench.core.result import Result, Trial

#: By which Serve answers a request that it gave up after `request_timeout_s`.
GAVE_UP: Final = 408

INVALID_SHARE: Final = 0.01
"""Above 1 % of failed requests a figure is one of the requests that were left: invalid."""

MOST_NAMED: Final = 12
"""Classes and statuses that are named in a sentence."""

_CLASSED: Final = (0, 4, 8, 14)
"""Codes of gRPC with an error class, and OK: those of time-outs and rejections."""


def failures(
    failed: Mapping[str, int],
    statuses: Mapping[int, int] | None = None,
    examples: Mapping[str, str] | None = None,
) -> str:
    """List failures in words, the most frequent first: `12 timed out, 3 with status 500`.

    `failed`: counts by error class. `statuses`: how often each status was seen, of good responses
    too; without them, or where they do not show which were wrong, no code is named. `examples`:
    what was seen of each class or status; it follows in brackets. Empty where none failed."""
    codes = " or ".join(map(str, rejections(failed, statuses or {})))
    words = {**ERROR_WORDS, "node": "lost with their node"}
    words["rejected"] += f" with status {codes}" if codes else ""
    counts = {name: count for name, count in failed.items() if count and name != "status"}
    parts = [(name, count, f"{count:,} {words.get(name, name)}") for name, count in counts.items()]
    if failed.get("status"):
        parts += _split_status(failed, statuses or {})
    ranked, seen = sorted(parts, key=lambda part: (-part[1], part[0])), examples or {}
    named = ((words, seen.get(name)) for name, _, words in ranked[:MOST_NAMED])
    text = ", ".join(
        f"{words} (such as: {example})" if example else words for words, example in named
    )
    rest = sum(count for _, count, _ in ranked[MOST_NAMED:])
    return f"{text}, {rest:,} with others" if rest else text


def _split_status(
    failed: Mapping[str, int], statuses: Mapping[int, int]
) -> list[tuple[str, int, str]]:
    """Split the class `status` by code, as (name, count, words).

    Which codes were unexpected is known only where the counts agree: with all but 2xx, or all."""
    count = failed["status"]
    if statuses and max(statuses) < 100:  # codes of gRPC
        unexpected = {code: n for code, n in statuses.items() if code not in _CLASSED}
        if sum(unexpected.values()) == count:
            return [(str(code), n, f"{n:,} with code {code}") for code, n in unexpected.items()]
        return [("status", count, f"{count:,} with another code than OK")]
    seen, rejected = dict(statuses), rejections(failed, statuses)
    if rejected:
        left = sum(statuses[code] for code in rejected) - failed["rejected"]
        seen = {code: n for code, n in statuses.items() if code not in rejected}
        seen |= {rejected[0]: left} if left else {}
    for codes in ({code: n for code, n in seen.items() if not 200 <= code < 300}, seen):
        if sum(codes.values()) == count:
            return [(str(code), n, f"{n:,} with status {code}") for code, n in codes.items()]
    among = f" (seen: {', '.join(map(str, sorted(seen)))})" if seen else ""
    return [("status", count, f"{count:,} with another status{among}")]


def rejections(failed: Mapping[str, int], statuses: Mapping[int, int]) -> tuple[int, ...]:
    """Return the HTTP statuses by which requests were rejected, if they were."""
    return tuple(code for code in REJECTIONS if failed.get("rejected") and statuses.get(code))


def failures_of(trials: Iterable[Trial]) -> str:
    failed: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    examples: dict[str, str] = {}
    for trial in trials:
        failed.update(trial.counts.failed)
        statuses.update(trial.client.status_codes)
        examples = {**trial.client.seen, **examples}
    return failures(failed, statuses, examples)


def of_windows(trial: Trial) -> str:
    """Say which requests all failed, where the rate of a row is that of earlier ones."""
    rates = trial.metrics["throughput"].windows if "throughput" in trial.metrics else None
    return " that began in the windows" if not trial.counts.completed and any(rates or ()) else ""


def why_failed(trial: Trial) -> str | None:
    """Say why a row is a failure of its run: no request succeeded. None: it is no failure.

    Nor is it where all requests of its windows were refused or are unanswered while earlier ones
    were answered: both are a warning."""
    other_failures = trial.counts.failed_total - trial.counts.failed.get("rejected", 0)
    fails = not trial.counts.completed and (other_failures or not of_windows(trial))
    return _explain_no_success(trial) if fails else None


def _explain_no_success(trial: Trial) -> str:
    failed = failures_of([trial])
    if not failed and not trial.counts.sent:
        total = trial.client.total
        early = "" if total is None else failures(total.failed, examples=trial.client.seen)
        ends = f" ({early}): ask for less" if early else ": measure longer, without --quick"
        return f"no request began in the windows: those of the warm-up outlasted them{ends}"
    return f"no request{of_windows(trial)} succeeded: {failed or 'none was answered in time'}"


def too_many_failed(trial: Trial) -> str | None:
    """Say in a line why a trial is invalid; None where it is valid."""
    completed, failed = trial.counts.completed, trial.counts.failed_total + trial.unanswered
    if not completed:
        return _explain_no_success(trial)
    share = failed / (completed + failed)
    if share <= INVALID_SHARE:
        return None
    why = failures_of([trial]) or "not answered in time"
    most = f"more than {100 * INVALID_SHARE:g} %"
    return f"{100 * share:.3g} % of the requests failed, {most}: {why}"


def count_given_up(failed: Mapping[str, int], statuses: Mapping[int, int]) -> int:
    """Count the requests that were given up, by the client or by Serve at its time-out."""
    return sum(failed.get(kind, 0) for kind in GIVEN_UP) + statuses.get(GAVE_UP, 0)


def given_up_after_s(trial: Trial, result: Result) -> float | None:
    """Return Serve's `request_timeout_s` where it failed requests of a trial (status 408).

    None where it did not, or the launch had no such limit."""
    gave_up = trial.client.status_codes.get(GAVE_UP) and trial.counts.failed.get("status")
    launch = next((launch for launch in result.launches if launch.id == trial.launch), None)
    return launch.variant.http_options.get("request_timeout_s") if launch and gave_up else None
