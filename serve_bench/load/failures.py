"""The errors of a load, and the class of a failed request.

Rule: every exception of a socket or a parser gets one class of `ERROR_CLASSES` here and nowhere
else, so that all clients agree.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from serve_bench.core.load_result import LoadResult
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Request
from serve_bench.core.secrets import MOST, hash_value

LONGEST_EXAMPLE: Final = 120
"""Characters of what was seen of a failed request: it stands in the line of an error."""

_SHORTEST_SECRET: Final = 4
"""Characters: to take out less would take letters out of words."""

_READ: Final = 4096
"""Bytes of an answer of which its example is made."""


class LoadError(Exception):
    """The load could not be run at all: the target cannot be reached, or no worker is left.

    One line; `error_class` is one of ERROR_CLASSES, or `worker`.
    """

    def __init__(self, error_class: str, host: str, port: int, reason: str) -> None:
        self.error_class = error_class
        self.host = host
        self.port = port
        self.reason = reason
        where = f"{host}:{port}" if port else host
        super().__init__(f"{error_class}: {where}: {reason}")


class TargetEnded(LoadError):
    """A process of what is loaded has ended, and the load was given up. One line."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__("worker", host, port, "")
        self.args = ("the load was given up",)


class LoadInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring. `result`: what was measured until then.

    Its `windows` are the whole ones; its rate and histograms cover `duration_s`, to the interrupt.
    """

    def __init__(self, result: LoadResult) -> None:
        self.result = result
        super().__init__("interrupted")


class BrokenAccount(AssertionError):
    """The accounting of the engine does not balance: a defect of the engine, not of the target."""


def classify_error(error: OSError) -> str:
    """Return the class of an error on an established connection: reset or timeout."""
    return "timeout" if isinstance(error, TimeoutError) else "reset"


def describe_error(error: BaseException) -> str:
    """Return a short reason in words, without Python's decoration."""
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error).__module__ == "ssl":  # an OSError too, with another meaning of its number
        message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or ""
        failed = "certificate verify failed: " if hasattr(error, "verify_message") else ""
        return f"TLS failure ({failed}{message.lower().replace('_', ' ')})"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def describe_seen(seen: str | bytes, request: Request) -> str:
    """Describe in a short line what was seen of a failed request: words, or an answer's start.

    What it repeats of the headers and bodies that are sent is hidden."""
    data = seen.encode(errors="replace") if isinstance(seen, str) else seen[:_READ]
    head, _, body = data.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/"):  # without its headers, whose values may be secrets
        data = b": ".join(filter(None, (head.partition(b"\r\n")[0], body)))
    sent = [value for headers in (request.headers, *request.header_sets) for _, value in headers]
    tokens = [value.split()[-1] for value in sent if value.split()]  # those without their scheme
    for value in (*map(str.encode, sent[:MOST]), *request.all_bodies[:MOST]):
        hash_value(value)  # however else the answer spells it
    hide_in_text(request.url)
    for value in (*map(str.encode, (*sent, *tokens)), *request.all_bodies):
        if len(value) >= _SHORTEST_SECRET and value in data:
            data = data.replace(value, hash_value(value).encode())
    text = hide_in_text(data.decode(errors="backslashreplace"))
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= LONGEST_EXAMPLE else text[: LONGEST_EXAMPLE - 3] + "..."
