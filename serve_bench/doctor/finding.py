"""What a check of doctor finds, and what all findings together say of a machine.

Rule: `ok` needs an observation. What could not be observed is `unknown`, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

Tone: TypeAlias = Literal["ok", "warning", "failure", "unknown"]
TONES: Final[tuple[Tone, ...]] = get_args(Tone)


@dataclass(frozen=True)
class CheckFinding:
    """What was observed, or why it was not. `hint`: what to do about a warning or a failure."""

    tone: Tone
    text: str
    hint: str = ""

    def __post_init__(self) -> None:
        if (self.tone in ("warning", "failure")) != bool(self.hint):
            raise ValueError(f"{self.tone} with hint {self.hint!r}: {self.text}")


Findings: TypeAlias = Mapping[str, CheckFinding]
"""The findings by the names of their checks, in the order of the report."""


def judge(text: str, hint: str) -> CheckFinding:
    """Return a warning where there is something to do, else `ok`."""
    return CheckFinding("warning" if hint else "ok", text, hint)


def count_tones(findings: Findings) -> dict[Tone, int]:
    """Count the findings of each tone, in the order of TONES."""
    tones = [finding.tone for finding in findings.values()]
    return {tone: tones.count(tone) for tone in TONES}


def is_fit(findings: Findings) -> bool:
    """Return whether this machine can measure at all: no check failed."""
    return count_tones(findings)["failure"] == 0


def verdict(findings: Findings) -> str:
    """Say what to do with this machine now. Not now: a failure, or other work takes its cores."""
    if not is_fit(findings) or ("busy" in findings and findings["busy"].tone == "warning"):
        return "not now"
    return "usable with warnings" if count_tones(findings)["warning"] else "fit"
