"""Figures and hosts as short texts, the same in every form of report and in every chart."""

from __future__ import annotations

import math


class LowerBound(float):
    """A figure that is known to be at least so much: some of what it is made of was given up before
    its end. It stays one in another unit; forms show it as `> 5,245`."""

    def __truediv__(self, other: float) -> LowerBound:
        return LowerBound(float(self) / other)

    def __mul__(self, other: float) -> LowerBound:
        return LowerBound(float(self) * other)


def number(value: float | None, digits: int = 4) -> str:
    """A figure with about so many digits and thousands apart; `-` where there is none."""
    return "-" if value is None else f"{value:,.{decimals(value, digits)}f}"


def bound_sign(value: float | None) -> str:
    """What stands before a figure that is only a lower bound."""
    return "> " if isinstance(value, LowerBound) else ""


def decimals(value: float, digits: int = 4) -> int:
    """Decimals that give about so many digits; with 3: 1234 -> 0, 12.3 -> 1, 0.123 -> 3."""
    before_point = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return max(0, digits - before_point)


def figure(value: float) -> str:
    """A figure in words with three digits: 0.535, 52.6, 4,878."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def part_text(part_ns: float, whole_ns: float) -> str:
    """`5.49 of 5.68 s`, two times in the unit of the whole; of seconds `0.21 ms of 5.68 s`."""
    if whole_ns < 1e9:
        return f"{figure(part_ns / 1e6)} of {figure(whole_ns / 1e6)} ms"
    small = part_ns < 0.01 * whole_ns
    part = f"{figure(part_ns / 1e6)} ms" if small else figure(part_ns / 1e9)
    return f"{part} of {figure(whole_ns / 1e9)} s"


def counted(count: int, thing: str, things: str = "") -> str:
    """`1 replica`, `1,000 replicas`. `things`: the plural, where it takes more than an s."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def percent(share: float) -> str:
    """`5 %`, `2.1 %`."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.3g} %"


def ratio_text(value: float | None) -> str:
    """A ratio with the digits that its size allows: `0.912`, `1.004`, `11.8`, `1,240`."""
    if value is None or math.isnan(value):
        return "-"
    if value >= 10:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"
