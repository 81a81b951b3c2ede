"""How sure a run may be that is judged after each of its rounds.

Pure. Looking again and again finds an alarm sooner or later. Each look therefore has a level of its
own, such that all of them together stay within alpha: error spending [Lan, DeMets 1983], with the
levels from the distribution of the cumulated means [Armitage, McPherson, Rowe 1969]. The levels are
those of normal means; used as levels of t they hold as well as docs/ab.md shows.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

FIRST: Final = 3
"""The first round that is judged."""

PLANNED: Final = 0.8
"""The share of alpha that the planned rounds may spend; the rest is for rounds that are added."""

_POINTS: Final = 301


def spent(n: int, planned: int, alpha: float) -> float:
    """The error that may be spent up to round `n`: even over the planned rounds, and never all of
    it, so that rounds can always be added."""
    return alpha * (PLANNED * n / planned if n <= planned else 1 - (1 - PLANNED) * planned / n)


def nominal(n: int, planned: int, alpha: float, first: int = FIRST) -> float:
    """The two-sided level of a look after round `n`, with a look after each from `first` on, so
    that a run that is judged at all of them errs in at most `alpha` of all cases.

    `planned`: the rounds of the first plan. Raises ValueError where they are below `first`, or `n`.
    """
    if not first <= min(n, planned):
        raise ValueError(f"looks begin after round {first}, not {min(n, planned)}")
    for earlier in range(first, n):  # each look follows from the one before
        _look(earlier, planned, alpha, first)
    return _look(n, planned, alpha, first)[0]


@cache
def _look(n: int, planned: int, alpha: float, first: int) -> tuple[float, Any, Any]:
    """The level of a look; of the sum of standard normal steps, as far as no look up to this one
    has ended it, where on a grid it may be, and how likely."""
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr

    before, grid, density = 0.0, None, None
    if n > first:
        before = spent(n - 1, planned, alpha)
        _, grid, density = _look(n - 1, planned, alpha, first)
    due = spent(n, planned, alpha) - before

    def beyond(bound: float) -> float:
        """How likely the walk ends at this look, at |sum| >= bound."""
        if grid is None:
            return float(2 * ndtr(-bound / np.sqrt(n)))
        up, down = ndtr(grid - bound), ndtr(-grid - bound)
        return float(np.trapezoid((up + down) * density, grid))

    bound = brentq(lambda at: beyond(at) - due, 0.0, 12 * np.sqrt(n), xtol=1e-10)
    after = np.linspace(-bound, bound, _POINTS)
    if grid is None:
        likely = np.exp(-(after**2) / (2 * n)) / np.sqrt(2 * np.pi * n)
    else:
        steps = np.exp(-((after[:, None] - grid[None, :]) ** 2) / 2) / np.sqrt(2 * np.pi)
        likely = np.trapezoid(steps * density, grid, axis=1)
    return float(2 * ndtr(-bound / np.sqrt(n))), after, likely
