"""Several works at once, each in a thread, heard and waited for by the one that asked.

Rule: only the thread that asked reports, so that whoever listens need know nothing of threads; and
none is left behind, after Ctrl-C too, provided that `stop` makes each work end.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Callable[[Callable[[str], None]], T]
"""Does it, and tells in words how far it is."""

_POLL_S = 0.2  # a wait without an end would hold back Ctrl-C


def at_once(
    works: Sequence[Work[T]],
    hear: Callable[[int, str], None],
    stop: Callable[[], None],
    failures: type[Exception] | tuple[type[Exception], ...],
    *,
    all_or_none: bool = False,
) -> list[T | BaseException | None]:
    """What each work came to, in their order: its result, or the one of `failures` that it raised.

    `hear`: takes what a work tells, with its place. `stop`: must end all that go on; it is called
    when one raises something else or Ctrl-C comes, which is then raised, and with `all_or_none` on
    the first failure: those that were stopped by it come to None.
    """
    said: queue.Queue[tuple[int, str | None]] = queue.Queue()
    stopped: set[int] = set()

    def ended(place: int, _: Future[Any]) -> None:
        said.put((place, None))

    with ThreadPoolExecutor(len(works)) as threads:
        try:
            futures: list[Future[T]] = []
            for place, work in enumerate(works):
                futures.append(threads.submit(work, partial(_tell, said, place)))
                futures[place].add_done_callback(partial(ended, place))
            going = set(range(len(works)))
            while going:
                try:
                    place, words = said.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if words is not None:
                    hear(place, words)
                    continue
                going.discard(place)
                error = futures[place].exception()
                if error is None or place in stopped:
                    continue
                if not isinstance(error, failures):
                    raise error
                if all_or_none and going:
                    stopped |= going
                    stop()
        except BaseException:
            stop()
            raise
    errors = [future.exception() for future in futures]
    return [
        future.result() if error is None else None if place in stopped else error
        for place, (future, error) in enumerate(zip(futures, errors, strict=True))
    ]


def _tell(said: queue.Queue[tuple[int, str | None]], place: int, words: str) -> None:
    said.put((place, words))
