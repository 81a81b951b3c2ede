"""The findings of doctor, as text for people and as JSON for programs.

Rule: a status is a word first; colour only repeats it. Lines are at most `width` characters, but
for single long words: a path or a command is there to be copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.analysis.checks import (
    STATUSES,
    Check,
    CheckGroup,
    CheckStatus,
    counts,
    fit,
    fitness,
)
from serve_bench.core.figures import host_line
from serve_bench.report.columns import wrapped

_SGR: Final[dict[CheckStatus, str]] = {
    "ok": "32",
    "warning": "33",
    "failure": "31;1",
    "unknown": "2",
    "absent": "2",
}
_STATUS_WIDTH: Final = max(len(status) for status in STATUSES)
_PLURAL: Final[dict[CheckStatus, str]] = {"warning": "warnings", "failure": "failures"}

ABSENT: Final = "absent: not installed, not needed for the rest; unknown: could not be read"


def text(
    sections: Sequence[CheckGroup], host: dict[str, Any], *, width: int = 80, color: bool = False
) -> str:
    """The whole examination: warnings first, then each section, at last the verdict."""
    every = [one for section in sections for one in section.findings]
    names = max((len(one.name) for one in every), default=0)
    doubts = tuple(one for one in every if one.status in _PLURAL)
    first = CheckGroup("Warnings", tuple(sorted(doubts, key=lambda one: one.status)))
    rest = (
        CheckGroup(one.title, tuple(each for each in one.findings if each.status not in _PLURAL))
        for one in sections
    )
    lines = []
    for section in (first, *rest):
        if section.findings:
            lines.append(section.title)
            for finding in section.findings:
                lines += _lines(finding, names, width, color)
            lines.append("")
    lines += wrapped(ABSENT, width)
    lines += wrapped(f"host: {host_line(host)}", width)
    lines += wrapped(_summary(sections), width)
    return "\n".join(lines) + "\n"


def _lines(finding: Check, names: int, width: int, color: bool) -> Iterator[str]:
    """`  warning  load  6.3 ...`, and below it what to do."""
    status = finding.status.ljust(_STATUS_WIDTH)
    if color:
        status = f"\x1b[{_SGR[finding.status]}m{status}\x1b[0m"
    start = 2 + _STATUS_WIDTH + 2 + names + 2
    first, *rest = wrapped(finding.value, width - start, hang=0, fold=False)
    yield f"  {status}  {finding.name.ljust(names)}  {first}"
    yield from (" " * start + line for line in rest)
    if finding.advice:
        advice = wrapped(finding.advice, width - start - 3, hang=0, fold=False)
        for number, line in enumerate(advice):
            yield " " * start + ("   " if number else "-> ") + line


def _summary(sections: Sequence[CheckGroup]) -> str:
    tally = counts(sections)
    parts = []
    for status in STATUSES:
        number = tally[status]
        if number or status in ("ok", "warning", "failure"):
            parts.append(f"{number} {status if number == 1 else _PLURAL.get(status, status)}")
    why = "" if fit(sections) else "; fix the failures before a measurement"
    return f"{fitness(sections)}: {', '.join(parts)}{why}"


def data(sections: Sequence[CheckGroup], host: dict[str, Any]) -> str:
    """The same as JSON: `fit`, `verdict`, `counts`, `host`, and each check with its detail."""
    checks = [
        {
            "section": section.title,
            "name": one.name,
            "status": one.status,
            "value": one.value,
            "advice": one.advice,
            "detail": dict(one.detail),
        }
        for section in sections
        for one in section.findings
    ]
    whole = {
        "fit": fit(sections),
        "verdict": fitness(sections),
        "counts": counts(sections),
        "host": host,
        "checks": checks,
    }
    return json.dumps(whole, indent=2) + "\n"
