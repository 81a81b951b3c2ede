"""Why something cannot be had, in one line: what the parent tells its user.

Rule: pure. Of an error that comes from another process as a whole traceback, the error counts.
"""

from __future__ import annotations

import re

ANSI = re.compile(r"\x1b\[[0-9;]*m")
RAISED = re.compile(r"[\w.]+(Error|Exception|Timeout|Refused): .")


class Refused(Exception):
    """What was asked cannot be had: one line, and the lines that explain it."""

    def __init__(self, message: str, detail: list[str] | None = None) -> None:
        super().__init__(message)
        self.detail = detail or []


def last_raised(lines: list[str]) -> str | None:
    """The last line that is the end of a traceback, such as `ValueError: no model`."""
    raised = [line.strip() for line in lines if RAISED.match(line.strip())]
    return raised[-1] if raised else None


def one_line(error: BaseException) -> str:
    """The error itself. One from a remote actor holds a whole traceback: its last error counts."""
    lines = ANSI.sub("", str(error)).splitlines()
    raised = last_raised(lines)
    if len(lines) > 1 and raised:
        return raised
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
