"""Why something cannot be had, in one line: what the parent tells its user.

Rule: pure. Of an error that comes from another process as a whole traceback, the error counts.
"""

from __future__ import annotations

import re

ANSI = re.compile(r"\x1b\[[0-9;]*m")
RAISED = re.compile(r"[\w.]+(Error|Exception|Timeout|Refused): .")


FRAME = re.compile(r'\s+File ".+", line \d+')
LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python3|<frozen|<string>")


class Refused(Exception):
    """What was asked cannot be had: one line, and the lines that explain it."""

    def __init__(self, message: str, detail: list[str] | None = None) -> None:
        super().__init__(message)
        self.detail = detail or []


def last_raised(lines: list[str]) -> str | None:
    """The last line that is the end of a traceback, such as `ValueError: no model`."""
    raised = [line.strip() for line in lines if RAISED.match(line.strip())]
    return raised[-1] if raised else None


def traceback_in(lines: list[str]) -> list[str]:
    """The last traceback among the lines of a log, without the frames of libraries."""
    heads = [number for number, line in enumerate(lines) if FRAME.match(line)]
    if not heads:
        return []
    first = last = heads[-1]
    deep = _indent(lines[last])
    while first > 0 and _indent(lines[first - 1]) >= deep:
        first -= 1
    while last < len(lines) and (_indent(lines[last]) >= deep or not lines[last].strip()):
        last += 1
    frames: list[list[str]] = []
    for line in lines[first:last]:
        if FRAME.match(line):
            frames.append([line])
        elif frames:
            frames[-1].append(line)
    own = [one for one in frames if not LIBRARY.search(one[0])] or frames[-1:]
    return [
        "Traceback (most recent call last):",
        *(line.rstrip() for one in own for line in one),
        *(line.strip() for line in lines[last : last + 1]),
    ]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def one_line(error: BaseException) -> str:
    """The error itself. One from a remote actor holds a whole traceback: its last error counts."""
    lines = ANSI.sub("", str(error)).splitlines()
    raised = last_raised(lines)
    if len(lines) > 1 and raised:
        return raised
    text = " ".join(" ".join(lines).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
