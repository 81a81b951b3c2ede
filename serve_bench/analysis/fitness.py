"""What `serve-bench doctor` found: is this machine fit to measure on?

Rule: `ok` is earned by something seen; what could not be found out is `unknown` and says why. What
is not here and need not be is `absent`. Looking is in doctor/, printing in report/doctor.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

Status: TypeAlias = Literal["ok", "warning", "failure", "unknown", "absent"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `value`: what was found, or why it could not be. `advice`: what to do,
    or what an absent thing would be good for. `detail`: the same as data, for `--json`."""

    name: str
    status: Status
    value: str
    advice: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in ("ok", "unknown") and not self.advice:
            raise ValueError(f"{self.name}: {self.status} without advice")


@dataclass(frozen=True)
class Section:
    """Findings on one subject, in the order in which they are read."""

    title: str
    findings: tuple[Finding, ...]


def counts(sections: Iterable[Section]) -> dict[Status, int]:
    """How many findings there are of each status, the worst last but for what is not judged."""
    found = Counter(finding.status for section in sections for finding in section.findings)
    return {status: found[status] for status in STATUSES}


def fit(sections: Iterable[Section]) -> bool:
    """Whether anything can be measured here: no failure."""
    return counts(sections)["failure"] == 0
