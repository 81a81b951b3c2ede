"""Two sides loaded at once, each with its client on cores of its own: a duet.

What disturbs a host disturbs both at the same time, so that a ratio needs about a quarter of the
time that slices take. Rule: a side is pinned whole, all threads of all its processes and its
client, and the cores are swapped after each window, so that a better core favours nobody. What was
pinned is looked at after each window, and stands in the record. A side on half of the cores, with
its client, is another machine: where B has more processes than A, or waits, the ratio is another
than that of slices on the whole host (docs/ab.md).
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from serve_bench.core.load_result import LoadResult, Progress, Slice, SlicedResult
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.load import LoadError, drive_load
from serve_bench.load.driver import as_slice, joined
from serve_bench.load.workers import usable_cores

# --------------------------------------------------------------------------------------------------
# Several works at once, each in a thread, heard and waited for by the one that asked.
#
# Rule: only the thread that asked reports, so that whoever listens need know nothing of threads;
# and none is left behind, after Ctrl-C too, provided that `stop` makes each work end.

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
    reports: queue.Queue[tuple[int, str | None]] = queue.Queue()
    stopped: set[int] = set()

    def ended(place: int, _: Future[Any]) -> None:
        reports.put((place, None))

    with ThreadPoolExecutor(len(works)) as threads:
        try:
            futures: list[Future[T]] = []
            for place, work in enumerate(works):
                futures.append(threads.submit(work, partial(_report, reports, place)))
                futures[place].add_done_callback(partial(ended, place))
            going = set(range(len(works)))
            while going:
                try:
                    place, words = reports.get(timeout=_POLL_S)
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
        except BaseException:  # Ctrl-C as well: the other works would go on in their threads
            stop()
            raise
    errors = [future.exception() for future in futures]
    return [
        future.result() if error is None else None if place in stopped else error
        for place, (future, error) in enumerate(zip(futures, errors, strict=True))
    ]


def _report(reports: queue.Queue[tuple[int, str | None]], place: int, words: str) -> None:
    reports.put((place, words))


# --------------------------------------------------------------------------------------------------

Cores: TypeAlias = tuple[int, ...]

#: Threads start others while they are pinned; what a pinned one starts is pinned.
_PASSES: Final = 5


@dataclass(frozen=True)
class Pinned:
    """A side in one window: its cores, how many threads it had after it, and how many of them might
    run elsewhere. `idle`: the share of the window in which its cores did nothing at all."""

    cores: Cores
    threads: int
    outside: int
    idle: float | None = None


def halves() -> tuple[Cores, Cores]:
    """The cores that this process may use in two halves of one size, both empty where there are
    fewer than two (or where the system cannot pin); together no more than a CPU quota allows. No
    physical core is in both, unless it is the only one; an odd one is left to everything else."""
    if not hasattr(os, "sched_setaffinity") or usable_cores() < 2:
        return (), ()
    physical: dict[tuple[int, int], list[int]] = {}
    for core in sorted(os.sched_getaffinity(0)):
        physical.setdefault(_physical(core), []).append(core)
    parts = [own for _, own in sorted(physical.items())]
    if len(parts) == 1:
        parts = [[core] for core in parts[0]]
    each = len(parts) // 2
    first, second = (
        [core for own in some for core in own] for some in (parts[:each], parts[each : 2 * each])
    )
    half = min(usable_cores() // 2, len(first), len(second))
    return tuple(first[:half]), tuple(second[:half])


def _physical(core: int) -> tuple[int, int]:
    """The package and the physical core that a logical one belongs to; 0 and itself if unknown."""
    place = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        package, of = ((place / name).read_text() for name in ("physical_package_id", "core_id"))
        return int(package), int(of)
    except (OSError, ValueError):
        return 0, core


def pin(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Every thread of these processes to these cores; those that end meanwhile are passed over."""
    wanted, processes = set(cores), list(pids)
    for _ in range(_PASSES):
        loose = [tid for tid, allowed in _threads(processes) if allowed != wanted]
        if not loose:
            return
        for tid in loose:
            try:
                os.sched_setaffinity(tid, wanted)
            except ProcessLookupError:
                continue


def pinned(pids: Iterable[int], cores: Cores, idle: float | None = None) -> Pinned:
    """How these processes stand to their cores now."""
    every = [allowed for _, allowed in _threads(pids)]
    outside = sum(not allowed <= set(cores) for allowed in every)
    return Pinned(cores, len(every), outside, idle)


def idle_s(cores: Iterable[int]) -> float | None:
    """Seconds that these cores have done nothing so far, waits for a disk among them; None where
    the system does not tell."""
    wanted, ticks = {f"cpu{core}" for core in cores}, 0
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for name, *fields in (line.split() for line in lines):
        if name in wanted:
            ticks += int(fields[3]) + int(fields[4])
    return ticks / os.sysconf("SC_CLK_TCK")


def _threads(pids: Iterable[int]) -> Iterator[tuple[int, set[int]]]:
    """Each thread with the cores that it may use."""
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # the process ended
        for name in names:
            try:
                yield int(name), os.sched_getaffinity(int(name))
            except ProcessLookupError:
                continue


def drive_duet(
    loads: tuple[Load, Load],
    plan: Slices,
    pids: tuple[Callable[[], Sequence[int]], Callable[[], Sequence[int]]],
    *,
    on_progress: Callable[[Progress], None] | None = None,
    mark: Mapping[str, str] | None = None,
) -> tuple[SlicedResult, tuple[list[Pinned], list[Pinned]]]:
    """Load both in windows of `plan.slice_s`, `plan.pairs` times at once, on swapped cores; and how
    each side was pinned in each window.

    `pids`: the processes of a side now. All are free to use every core afterwards. Raises LoadError
    as `drive_load` does, and where there are no two cores.
    """
    both = halves()
    if not both[0]:
        request = loads[0].request
        raise LoadError("worker", request.host, request.port, "a duet takes 2 cores")
    first = random.Random(f"{plan.seed}/duet").randrange(2)
    timing = Timing(plan.warmup_s, plan.warmup_s, 1, plan.slice_s)
    results: tuple[list[LoadResult], list[LoadResult]] = ([], [])
    seen: tuple[list[Pinned], list[Pinned]] = ([], [])
    slices: list[Slice] = []
    try:
        for pair in range(plan.pairs):
            cores = [both[(side + pair + first) % 2] for side in (0, 1)]
            for side in (0, 1):
                pin(pids[side](), cores[side])
            outcomes = _together(loads, timing, cores, on_progress, mark)
            for side, (result, idle) in enumerate(outcomes):
                seen[side].append(pinned(pids[side](), cores[side], idle))
                results[side].append(result)
                began_ns = results[0][0].started_at_ns
                slices.append(as_slice(result, side, pair, began_ns))
    finally:
        for own in pids:
            pin(own(), os.sched_getaffinity(0))
    sides = joined(loads[0], results[0]), joined(loads[1], results[1])
    return SlicedResult(sides, tuple(slices)), seen


def _together(
    loads: tuple[Load, Load],
    timing: Timing,
    cores: Sequence[Cores],
    on_progress: Callable[[Progress], None] | None,
    mark: Mapping[str, str] | None,
) -> list[tuple[LoadResult, float | None]]:
    """One window of both, each in a thread on the cores of its side, which its worker inherits; and
    which share of it those cores were idle."""
    stopped = threading.Event()

    def work(side: int) -> Callable[[Callable[[str], None]], tuple[LoadResult, float | None]]:
        idle: list[tuple[float, float | None]] = []

        def own_progress(now: Progress) -> None:
            if now.phase == "measure":
                idle.append((time.monotonic(), idle_s(cores[side])))
            if stopped.is_set():
                raise LoadError("worker", loads[side].request.host, 0, "the other side ended")
            if side == 0 and on_progress is not None:
                on_progress(now)

        def one(_: Callable[[str], None]) -> tuple[LoadResult, float | None]:
            os.sched_setaffinity(0, cores[side])  # of this thread alone
            result = drive_load(loads[side], timing, on_progress=own_progress, mark=mark)
            return result, _share(idle, len(cores[side]))

        return one

    outcomes = at_once(
        [work(0), work(1)], lambda place, words: None, stopped.set, LoadError, all_or_none=True
    )
    for one in outcomes:
        if isinstance(one, LoadError):
            raise one
    return [one for one in outcomes if isinstance(one, tuple)]


def _share(idle: Sequence[tuple[float, float | None]], cores: int) -> float | None:
    """Of the time between the first reading and the last."""
    if len(idle) < 2 or (first := idle[0][1]) is None or (last := idle[-1][1]) is None:
        return None
    return round((last - first) / (idle[-1][0] - idle[0][0]) / cores, 3)
