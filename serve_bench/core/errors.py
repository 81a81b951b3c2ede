"""The errors that a person is meant to read: one line, naming what is wrong and what is allowed.

The CLI turns each into one line and the exit code of the design, section 4. Anything else that is
raised is our own defect and keeps its traceback.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that turn the direction of a line with the figures in it, and what
stands for bytes of a name that are not UTF-8, which no stream takes."""


def visible(text: str) -> str:
    r"""Escape control characters, except newline and tab, as \u001b or \u202e.

    A name in a record must not move a terminal's cursor, nor turn the figures beside it. JSON stays
    JSON: its strings have the same escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class BadInput(ValueError):
    """A wrong flag, file or key, found before anything was started. Exit code 2."""


class FormatError(BadInput):
    """Records, or a part of them, that cannot be read. One line names the line or the field."""


class RunFailed(RuntimeError):
    """Something failed while running; what was measured is kept. Exit code 1.

    `detail` holds the lines that matter (the end of a log, say), shown below the message."""

    def __init__(self, message: str, detail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.detail = detail
