"""What stands first in a comment: the sentences of the HTML page that say what a run found.

Rule: no second wording. Here it is only said how many of the page's sentences belong to the verdict
and which follow under the fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from serve_bench.analysis.checks import Warning
from serve_bench.core.result import Result, Trial
from serve_bench.report.html.pieces import doubted

CALLED_OFF: Final = "interrupted"
"""The message of the failure that a row records itself when it is broken off."""


class Found(NamedTuple):
    """`first`: what was broken off or is missing, the headline, and what doubts the whole run.
    `further`: the other sentences."""

    first: tuple[str, ...]
    further: tuple[str, ...]


def split(
    result: Result,
    sentences: Iterable[str],
    run: Sequence[Warning],
    before: int = 0,
    most: int = 1,
) -> Found:
    """The sentences of a page as they stand in a comment.

    `run`: the doubts about the whole run, which no row of the table has; `before`: sentences that
    come before those about gaps; `most`: how many make the headline.
    """
    every = tuple(sentences)
    told = before + most + bool(result.missing or result.failures)
    first = (*_broken_off(result), *every[:told], *doubted([], run))
    return Found(tuple(dict.fromkeys(first)), every[told:])


def _broken_off(result: Result) -> Iterator[str]:
    """How many rows were, where no failure says so."""
    count = sum(map(broken_off, result.trials))
    if count and not any(one.message == CALLED_OFF for one in result.failures):
        verb = "was" if count == 1 else "were"
        yield f"{count} of {len(result.trials)} rows {verb} broken off."


def broken_off(trial: Trial) -> bool:
    """Whether a row was measured in part alone."""
    return bool(trial.flags.get("interrupted"))
