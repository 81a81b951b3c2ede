"""When a warm-up may end. Pure: counts in, yes or no out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from serve_bench.core.load_result import REQUESTS_EACH

SAMPLE_S = 0.05
"""The parent notes the count of completed requests so often during the warm-up."""

HALF_SAMPLES = 4
"""Fewest samples in each of the two halves that are compared."""

TOLERANCE = 0.05
"""Two halves whose rates differ by no more than this share of their mean are alike."""


def enough_to_judge(completed: int, connections: float) -> bool:
    """Whether so many completed requests tell how fast `connections` of them at once are served."""
    return completed >= REQUESTS_EACH * max(1.0, connections)


def is_steady(completed: Sequence[int]) -> bool:
    """Whether the rate has settled, from counts taken every SAMPLE_S seconds.

    The later half of the warm-up so far (at least 8 samples) is cut into two equal parts. The
    rate is steady when the parts' mean rates differ by no more than 5 %, or by no more than
    two standard errors of that difference, estimated from the scatter of the samples within the
    parts. So a noisy server is not warmed up for ever, while a rate that still climbs is
    caught: on a straight ramp the parts differ by more than twice their standard error.
    A load in which nothing completes is not steady.
    """
    rates = [after - before for before, after in pairwise(completed)]
    half = max(HALF_SAMPLES, len(rates) // 4)
    if len(rates) < 2 * half:
        return False
    first, second = rates[-2 * half : -half], rates[-half:]
    mean = (sum(first) + sum(second)) / (2 * half)
    if sum(second) == 0:
        return False
    error = math.sqrt((statistics.variance(first) + statistics.variance(second)) / half)
    difference = abs(sum(second) - sum(first)) / half
    return difference <= max(TOLERANCE * mean, 2 * error)
