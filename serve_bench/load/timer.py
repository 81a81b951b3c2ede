"""How an open loop waits for the next due time: timerfd, spinning, or the poller's own timeout.

Rule: a timer says how long the poller may sleep, and wakes it by a descriptor if it has one.
Measured send lag at 10 k/s, p50/p99: timerfd 27/42 us, spinning 0.6/0.8 us; epoll's timeout
alone has steps of a millisecond, so it is only the fallback (and the result names it).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Protocol

from serve_bench.load.tally import NEVER

IDLE_S = 0.01
"""The longest sleep: counters are published and time-outs looked for at least so often."""

TFD_NONBLOCK = 0o4000
TFD_TIMER_ABSTIME = 1
CLOCK_MONOTONIC = 1
PR_SET_TIMERSLACK = 29


class Timer(Protocol):
    """One way to wait."""

    name: str
    fd: int

    def sleep_s(self, due: int, now: int) -> float:
        """How long the poller may sleep when the next request is due at `due` (ns)."""

    def clear(self) -> None:
        """The descriptor was readable: read it."""

    def close(self) -> None:
        """Release the descriptor."""


class SpinTimer:
    """Never sleeps: the least lag, at the price of a whole core."""

    name = "spin"
    fd = -1

    def sleep_s(self, due: int, now: int) -> float:
        return 0.0

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass


class PollTimer:
    """The poller's own timeout, rounded down to where it is sure not to be late by its step."""

    name = "poll"
    fd = -1

    def sleep_s(self, due: int, now: int) -> float:
        return min(IDLE_S, max(0.0, (due - now) / 1e9 - 0.001))

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass


class TimerFd:
    """Linux's timer as a descriptor, armed with absolute times on CLOCK_MONOTONIC.

    Python has `os.timerfd_create` only from 3.13 on, so libc is called. Timer slack, 50 us by
    default for a thread, is set to 1 ns.
    """

    name = "timerfd"

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        self.fd = libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        self._set = libc.timerfd_settime
        self._set.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._spec = (ctypes.c_int64 * 4)()  # struct itimerspec: interval, then value
        self._armed = 0

    def sleep_s(self, due: int, now: int) -> float:
        if due != self._armed and due < NEVER:
            self._spec[2], self._spec[3] = divmod(due, 1_000_000_000)
            self._set(self.fd, TFD_TIMER_ABSTIME, self._spec, None)
            self._armed = due
        return IDLE_S

    def clear(self) -> None:
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return  # re-armed since the poller saw it

    def close(self) -> None:
        os.close(self.fd)


def make_timer(spin: bool) -> Timer:
    """The best timer this system has, or spinning when it is asked for."""
    if spin:
        return SpinTimer()
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:
        return TimerFd()
    return PollTimer()
