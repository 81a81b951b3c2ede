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
    return _walk(planned, alpha, first).level(n)


@cache
def _walk(planned: int, alpha: float, first: int) -> _Walk:
    return _Walk(planned, alpha, first)


class _Walk:
    """The sum of standard normal steps, as far as no look has ended it: its density on a grid."""

    def __init__(self, planned: int, alpha: float, first: int) -> None:
        self._plan = (planned, alpha)
        self._first = first
        self._levels: list[float] = []
        self._grid: Any = None  # where the sum may be, and how likely, after the newest look
        self._density: Any = None

    def level(self, n: int) -> float:
        while len(self._levels) <= n - self._first:
            self._look(self._first + len(self._levels))
        return self._levels[n - self._first]

    def _look(self, n: int) -> None:
        import numpy as np
        from scipy.optimize import brentq
        from scipy.special import ndtr

        before = spent(n - 1, *self._plan) if self._levels else 0.0
        due = spent(n, *self._plan) - before

        def beyond(bound: float) -> float:
            """How likely the walk ends at this look, at |sum| >= bound."""
            if self._grid is None:
                return float(2 * ndtr(-bound / np.sqrt(n)))
            up, down = ndtr(self._grid - bound), ndtr(-self._grid - bound)
            return float(np.trapezoid((up + down) * self._density, self._grid))

        bound = brentq(lambda at: beyond(at) - due, 0.0, 12 * np.sqrt(n), xtol=1e-10)
        grid = np.linspace(-bound, bound, _POINTS)
        if self._grid is None:
            density = np.exp(-(grid**2) / (2 * n)) / np.sqrt(2 * np.pi * n)
        else:
            steps = np.exp(-((grid[:, None] - self._grid[None, :]) ** 2) / 2) / np.sqrt(2 * np.pi)
            density = np.trapezoid(steps * self._density, self._grid, axis=1)
        self._grid, self._density = grid, density
        self._levels.append(float(2 * ndtr(-bound / np.sqrt(n))))
