"""Several jobs at once, each in a thread, reported and waited for by the thread that asked.

Rule: only that thread reports, so that a listener need know nothing of threads; and no job is left
behind, after Ctrl-C too, provided that `stop` makes each one end.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Job: TypeAlias = Callable[[Callable[[str], None]], T]
"""Does its work, and reports in words how far it is."""

_POLL_S: Final = 0.2  # a wait without an end would hold back Ctrl-C


def run_at_once(
    jobs: Sequence[Job[T]],
    report: Callable[[int, str], None],
    stop: Callable[[], None],
    failures: type[Exception] | tuple[type[Exception], ...],
    *,
    all_or_none: bool = False,
) -> list[T | BaseException | None]:
    """What came of each job, in their order: its result, or the one of `failures` that it raised.

    `report`: takes what a job reports, with its place. `stop`: must end all that still run; it is
    called when a job raises something else or Ctrl-C comes, which is then raised, and with
    `all_or_none` on the first failure: None stands for those that it stopped.
    """
    reports: queue.Queue[tuple[int, str | None]] = queue.Queue()
    stopped: set[int] = set()

    def put_end(place: int, _: Future[Any]) -> None:
        reports.put((place, None))

    def put_words(place: int, words: str) -> None:
        reports.put((place, words))

    with ThreadPoolExecutor(len(jobs)) as threads:
        try:
            futures: list[Future[T]] = []
            for place, job in enumerate(jobs):
                futures.append(threads.submit(job, partial(put_words, place)))
                futures[place].add_done_callback(partial(put_end, place))
            running = set(range(len(jobs)))
            while running:
                try:
                    place, words = reports.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if words is not None:
                    report(place, words)
                    continue
                running.discard(place)
                error = futures[place].exception()
                if error is None or place in stopped:
                    continue
                if not isinstance(error, failures):
                    raise error
                if all_or_none and running:
                    stopped |= running
                    stop()
        except BaseException:  # Ctrl-C as well: the other jobs would go on in their threads
            stop()
            raise
    errors = [future.exception() for future in futures]
    return [
        future.result(timeout=0) if error is None else None if place in stopped else error
        for place, (future, error) in enumerate(zip(futures, errors, strict=True))
    ]
