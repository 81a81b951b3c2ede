"""The errors of a load, and the class of a failed request.

Rule: every exception of a socket or a parser gets one class of `ERROR_CLASSES` here and nowhere
else, so that both clients agree.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.core.load_result import LoadResult

BROKEN: frozenset[int] = frozenset(
    {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ENOTCONN, errno.ESHUTDOWN}
)
"""An established connection that the other side broke off."""


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


class LoadInterrupted(KeyboardInterrupt):
    """Ctrl-C while measuring. `result`: what was measured until then.

    Its `windows` are the whole ones; its rate and histograms cover `duration_s`, to the interrupt.
    """

    def __init__(self, result: LoadResult) -> None:
        self.result = result
        super().__init__("interrupted")


class BrokenAccount(AssertionError):
    """The accounting of the engine does not balance: a defect of the engine, not of the target."""


def connection_class(error: OSError) -> str:
    """The class of an error on an established connection: reset or timeout."""
    return "timeout" if isinstance(error, TimeoutError) else "reset"


def reason_of(error: BaseException) -> str:
    """A short reason in words, without Python's decoration."""
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error).__module__ == "ssl":  # an OSError too, with a number of its own
        message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or ""
        failed = "certificate verify failed: " if hasattr(error, "verify_message") else ""
        return f"TLS failure ({failed}{message.lower().replace('_', ' ')})"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
