"""Figures and hosts as short texts, the same in every form of report and in every chart."""

from __future__ import annotations

import math


class LowerBound(float):
    """A figure of which a lower bound is known, as some requests were given up before their end.

    It stays one in another unit; forms show it as `> 5,245`."""

    def __truediv__(self, other: float) -> LowerBound:
        return LowerBound(float(self) / other)

    def __mul__(self, other: float) -> LowerBound:
        return LowerBound(float(self) * other)


def number(value: float | None, digits: int = 4) -> str:
    """Format a figure with about `digits` digits and thousands apart; `-` for None."""
    return "-" if value is None else f"{value:,.{decimals(value, digits)}f}"


def bound_sign(value: float | None) -> str:
    """Return what stands before a figure that is only a lower bound."""
    return "> " if isinstance(value, LowerBound) else ""


def decimals(value: float, digits: int = 4) -> int:
    """Return the decimals for about `digits` digits; with 3: 1234 -> 0, 12.3 -> 1, 0.123 -> 3."""
    before_point = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    return max(0, digits - before_point)


def figure(value: float) -> str:
    """Format a figure for a sentence with three digits: 0.535, 52.6, 4,878."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def part_text(part_ns: float, whole_ns: float) -> str:
    """Format two times in the unit of the whole, `5.49 of 5.68 s`, or `0.21 ms of 5.68 s`."""
    if whole_ns < 1e9:
        return f"{figure(part_ns / 1e6)} of {figure(whole_ns / 1e6)} ms"
    small = part_ns < 0.01 * whole_ns
    part = f"{figure(part_ns / 1e6)} ms" if small else figure(part_ns / 1e9)
    return f"{part} of {figure(whole_ns / 1e9)} s"


def counted(count: int, thing: str, things: str = "") -> str:
    """Format `1 replica`, `1,000 replicas`. `things`: the plural, where it takes more than an s."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def percent(share: float) -> str:
    """Format a share: `5 %`, `2.1 %`."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.3g} %"


def ratio_text(value: float | None) -> str:
    """Format a ratio with the digits that its size allows: `0.912`, `1.004`, `11.8`, `1,240`."""
    if value is None or math.isnan(value):
        return "-"
    if value >= 10:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"
