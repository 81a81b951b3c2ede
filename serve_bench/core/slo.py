"""Service level objectives: what a service must hold, in one grammar for all commands. Pure.

    p99=50ms,errors=0.1%        every percentile up to p99.9, mean; errors of all classes
    errors.timeout=0.1%         errors of one class
    goodput=95%@50ms            the share of all due requests that are answered well within 50 ms
    ttft_p95=200ms              of the time to the first event of a stream
    itl_p99=50ms                of the time between two events of a stream

Rule: a percentile or mean is of requests that got an answer, as reports show it: those without any
answer count with the time that they were waited for, those that failed with an answer count in
`errors` alone. So an SLO always bounds the errors: by DEFAULT_ERRORS where it names none.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from serve_bench.core.errors import BadInput
from serve_bench.core.load_result import CENSORED_BY, ERROR_CLASSES

Kind = Literal["percentile", "mean", "errors", "goodput"]

LATENCY: Final = "latency"
TTFT: Final = "ttft"
ITL: Final = "itl"

METRICS: Final = tuple(CENSORED_BY)
"""Histograms that a percentile or a mean may be of; the first needs no prefix."""

DEFAULT_ERRORS: Final = 0.01
"""Most errors, as a share, where an SLO names none: what `load` allows too."""

HIGHEST: Final = 0.999
"""The highest percentile."""

EXAMPLE: Final = "p99=50ms,errors=0.1%"

_UNITS: Final = {"us": 1e3, "ms": 1e6, "s": 1e9}
_NUMBER: Final = r"(\d+(?:\.\d*)?|\.\d+)"
_LONGEST_NS: Final = 3600e9


@dataclass(frozen=True)
class Objective:
    """One objective of an SLO."""

    name: str  # as it is written
    kind: Kind
    limit: float  # ns, or a share of 1; for `goodput` the least, else the most
    metric: str = LATENCY  # the histogram of a percentile or mean
    share: float | None = None  # of a percentile: 0.99
    error: str | None = None  # the class of errors; None: all
    within_ns: float | None = None  # of goodput
    given: bool = True  # False for the default

    @property
    def timed(self) -> bool:
        """Whether its limit is a time."""
        return self.kind in ("percentile", "mean")

    @property
    def fewest(self) -> int:
        """The fewest requests to judge it by: of a percentile, those that leave one beyond it."""
        return 1 if self.share is None else round(1 / (1 - self.share))

    @property
    def allowed(self) -> float | None:
        """The largest share of requests that may be beyond it, or fail; None of a mean."""
        if self.kind == "mean":
            return None
        if self.share is not None:
            return 1 - self.share
        return 1 - self.limit if self.kind == "goodput" else self.limit

    def met_by(self, value: float) -> bool:
        """Return whether a value (ns, or a share of 1) is within the limit."""
        return value >= self.limit if self.kind == "goodput" else value <= self.limit

    @property
    def text(self) -> str:
        """In words: `p99 <= 50 ms`, `errors <= 0.1 %`, `goodput >= 95 % within 50 ms`."""
        sign = "<=" if self.within_ns is None else ">="
        return self._write(f" {sign} ", " within ")

    @property
    def source(self) -> str:
        """The objective as it is written on a command line."""
        return self._write("=", "@").replace(" ", "")

    def _write(self, sign: str, within: str) -> str:
        limit = time_text(self.limit) if self.timed else share_text(self.limit)
        end = "" if self.within_ns is None else f"{within}{time_text(self.within_ns)}"
        return f"{self.name}{sign}{limit}{end}"


@dataclass(frozen=True)
class Slo:
    """The objectives, in the order in which they are written; each name once."""

    objectives: tuple[Objective, ...]

    @property
    def text(self) -> str:
        """The objectives in words: `p99 <= 50 ms, errors <= 1 % (default)`."""
        return ", ".join(
            objective.text + ("" if objective.given else " (default)")
            for objective in self.objectives
        )

    @property
    def source(self) -> str:
        """The objectives as on a command line, without the default; `parse_slo` reads them."""
        return ",".join(objective.source for objective in self.objectives if objective.given)


def time_text(ns: float) -> str:
    """Format ns as `50 ms`, `1.5 s` or `200 us`."""
    unit = "s" if ns >= 1e9 else "ms" if ns >= 1e6 else "us"
    return f"{ns / _UNITS[unit]:.10g} {unit}"


def share_text(share: float) -> str:
    """Format a share as `0.1 %`."""
    return f"{100 * share:.10g} %"


def read_slo(text: str, where: str = "--slo", metrics: Collection[str] = (LATENCY,)) -> Slo:
    """Parse an SLO as `parse_slo`. Raises BadInput on a histogram that is not in `metrics`."""
    slo = parse_slo(text, where)
    for objective in slo.objectives:
        if objective.metric not in metrics:
            needs = "--protocol stream, and no other beside it"
            raise BadInput(f"{where}: {objective.name}: is measured of streams alone: {needs}")
    return slo


def check_limits(slo: Slo, timeout_s: float, where: str = "--slo") -> None:
    """Raise BadInput for a limit that a request cannot reach before its time-out (s)."""
    for objective in slo.objectives:
        limit_ns = objective.limit if objective.timed else objective.within_ns or 0.0
        if limit_ns > timeout_s * 1e9:
            text = f"its limit is above the time-out of {timeout_s:g} s (--timeout)"
            raise BadInput(f"{where}: {objective.name}: {text}")


def parse_slo(text: str, where: str = "--slo") -> Slo:
    """Parse an SLO such as `p99=50ms,errors=0.1%`. BadInput begins with `where`."""
    objectives: list[Objective] = []
    for part in text.split(","):
        found = _parse_objective(part.strip(), where)
        if found.name in (objective.name for objective in objectives):
            raise BadInput(f"{where}: {found.name} is given twice")
        objectives.append(found)
    if not any(objective.kind == "errors" and objective.error is None for objective in objectives):
        objectives.append(Objective("errors", "errors", DEFAULT_ERRORS, given=False))
    return Slo(tuple(objectives))


def _parse_objective(part: str, where: str) -> Objective:
    name, equals, limit = (word.strip() for word in part.partition("="))
    if not equals or not limit:
        raise BadInput(f"{where}: {part!r} is not allowed; it takes NAME=LIMIT, as in {EXAMPLE}")
    metric, under, statistic = name.rpartition("_")
    if statistic == "mean" or re.fullmatch(r"p\d.*", statistic):
        if (metric or LATENCY) not in METRICS or metric == LATENCY or (under and not metric):
            prefixes = ", ".join(f"{prefix}_" for prefix in METRICS[1:])
            raise BadInput(f"{where}: {name!r}: the prefix must be {prefixes} or none")
        of = metric or LATENCY
        if statistic == "mean":
            return Objective(name, "mean", _parse_time(name, limit, where), of)
        share = _parse_percentile(statistic, where)  # `p99.0` and `p99` are one objective
        name = f"{metric}{under}p{100 * share:g}"
        return Objective(name, "percentile", _parse_time(name, limit, where), of, share)
    first, dot, error = name.partition(".")
    if first == "errors":
        if dot and error not in ERROR_CLASSES:
            classes = ", ".join(ERROR_CLASSES)
            raise BadInput(f"{where}: {name!r}: the class of errors must be one of {classes}")
        share = _parse_share(name, limit, where, zero=True)
        return Objective(name, "errors", share, error=error or None)
    if name == "goodput":
        least, sign, within = limit.partition("@")
        if not sign:
            raise BadInput(f"{where}: {part!r} is not allowed; it takes goodput=95%@50ms")
        share, within_ns = _parse_share(name, least, where), _parse_time(name, within, where)
        return Objective(name, "goodput", share, within_ns=within_ns)
    takes = f"p50 to p99.9, mean, errors, errors.CLASS, goodput or ttft_p95, as in {EXAMPLE}"
    raise BadInput(f"{where}: {name!r} is not allowed; it takes {takes}")


def _parse_percentile(text: str, where: str) -> float:
    match = re.fullmatch(rf"p{_NUMBER}", text, re.ASCII)
    share = round(float(match[1]) / 100, 9) if match else 0.0  # 99.9 / 100 is above 0.999
    if not 0.01 <= share <= HIGHEST:
        raise BadInput(f"{where}: {text!r} is not allowed; a percentile is p1 to p99.9")
    return share


def _parse_time(name: str, text: str, where: str) -> float:
    match = re.fullmatch(rf"{_NUMBER}\s*(us|ms|s)", text.strip(), re.ASCII)
    ns = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < ns <= _LONGEST_NS:
        takes = "a time with its unit, us, ms or s, above 0 and up to 3600s"
        raise BadInput(f"{where}: {name}={text.strip()} is not allowed; it takes {takes}")
    return ns


def _parse_share(name: str, text: str, where: str, zero: bool = False) -> float:
    match = re.fullmatch(rf"{_NUMBER}\s*(%)?", text.strip(), re.ASCII)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not (0 if zero else 1e-9) <= share < 1:
        takes = f"a share {'from' if zero else 'above'} 0 and below 100%, such as 0.1% or 0.001"
        raise BadInput(f"{where}: {name}={text.strip()} is not allowed; it takes {takes}")
    return share
