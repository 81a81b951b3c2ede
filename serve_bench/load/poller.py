"""Waiting for sockets: epoll where there is one, else `selectors`, behind the same four methods.

Rule: masks are epoll's numbers on every system, so that the clients know one set of names.
"""

from __future__ import annotations

import select
import selectors
from typing import Protocol

READ, WRITE, ERROR = 0x001, 0x004, 0x018
"""EPOLLIN, EPOLLOUT, and EPOLLERR with EPOLLHUP."""


class Poller(Protocol):
    """What the clients need; `select.epoll` has exactly this."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class SelectorsPoller:
    """The fallback. Slower, and it reports errors as readiness to read and write."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    @staticmethod
    def _events(mask: int) -> int:
        read = selectors.EVENT_READ if mask & READ else 0
        return read | (selectors.EVENT_WRITE if mask & WRITE else 0)

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch a descriptor."""
        self._selector.register(fd, self._events(eventmask))

    def modify(self, fd: int, eventmask: int, /) -> None:
        """Watch it for something else."""
        self._selector.modify(fd, self._events(eventmask))

    def unregister(self, fd: int, /) -> None:
        """Watch it no longer."""
        self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int, /) -> list[tuple[int, int]]:
        """Wait at most `timeout` seconds; returns (descriptor, mask) of at most `maxevents`."""
        ready = self._selector.select(timeout)[:maxevents]
        return [
            (
                key.fd,
                (READ if events & selectors.EVENT_READ else 0)
                | (WRITE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in ready
        ]

    def close(self) -> None:
        """Release the system's poller."""
        self._selector.close()


def make_poller() -> Poller:
    """epoll where the system has it."""
    if hasattr(select, "epoll"):
        poller: Poller = select.epoll()
        return poller
    return SelectorsPoller()
