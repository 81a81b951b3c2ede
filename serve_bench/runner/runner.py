"""The one runner: it executes a plan on benches and appends every record.

A Plan lists what to measure, launch by launch. A Bench is what a launch measures on: our own
cluster, two of them, running services, another cluster, a backend of rpc. `run` starts the launch,
puts cells, loads rows, appends the trials, and ends the launch. The Journal makes all failures and
all steps of progress. Rule: the runner computes nothing beyond the record, and a run is the same
without an observer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from serve_bench.core.errors import RunFailed
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import Cell
from serve_bench.core.result import (
    Failure,
    JsonObject,
    Launch,
    PlannedTrial,
    Record,
    RunStop,
    Teardown,
    Trial,
    VariantUsed,
)
from serve_bench.core.traffic import Row
from serve_bench.load.request_log import RequestLog
from serve_bench.runner.requests_file import RequestsFile
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, StoreError, now_iso

C = TypeVar("C")  # a cell of a launch
R = TypeVar("R")  # a row of a cell

_NEXT: Final = {
    "import": "launch: starting Ray",
    "ray_init": "launch: starting Serve",
    "serve_start": "launch: Serve is up",
}


def next_phase(ended: str) -> str:
    """Return the step of progress that begins when a phase of a launch has ended."""
    return _NEXT.get(ended, f"launch: {ended} is up")


# Progress and records.


@dataclass(frozen=True)
class RunStep:
    """A step of progress: where the run is, and how much time is left."""

    number: int  # trial `number` of `of`
    of: int
    who: str  # the variant, service or sides that are measured
    round: int  # of the launch
    cell: Cell | None
    row: Row | None
    phase: str
    rate: float | None
    left_s: float
    estimated: bool = False  # `of` and `left_s` are
    load: Progress | None = None  # as it is now, if one is on


class Observer(Protocol):
    """Follows a run. It measures nothing and decides nothing."""

    def step(self, step: RunStep) -> None:
        """Take a step that began or advanced (several times a second during a load)."""

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """Take a measured trial. It is in the records unless they cannot be written."""

    def failure(self, failure: Failure) -> None:
        """Take a failure, which is in the records."""


@dataclass(frozen=True)
class Part:
    """A launch of a bench."""

    number: str
    variant: VariantUsed
    round: int
    who: str | None = None  # its name in steps of progress; None: that of the launch
    started_at: str = field(default_factory=now_iso)

    @property
    def log(self) -> str:
        """The log file, relative to the folder of the run."""
        return f"logs/launch-{self.number}.log"

    def record(self, seconds: dict[str, float], proof: JsonObject) -> Launch:
        """Return the record of the launch. `seconds`: by phase."""
        return Launch(
            id=self.number,
            variant=self.variant,
            round=self.round,
            started_at=self.started_at,
            seconds=seconds,
            proof=proof,
            paths={"log": self.log},
        )

    def prove(self, seconds: dict[str, float], prove: Callable[[], JsonObject]) -> Launch:
        """Return the record with the proof that `prove` gives, and the seconds that it took."""
        began = time.monotonic()
        proof = prove()
        return self.record({**seconds, "proof": round(time.monotonic() - began, 4)}, proof)


@dataclass(frozen=True)
class Fault:
    """Something that went wrong."""

    kind: str  # of the Failure
    why: str | RunFailed
    part: Part | None = None
    place: PlannedTrial | JsonObject | None = None  # the row, or the recorded cell
    keyed: bool = True  # False: the trial of its row counts nevertheless

    def failure(self) -> Failure:
        """Return the record, with the log of the launch among the details."""
        row = self.place if isinstance(self.place, PlannedTrial) else None
        variant = row.variant if row else self.part.variant.name if self.part else None
        about = row or self.part
        detail: tuple[str, ...] = ()
        if isinstance(self.why, RunFailed):
            log = getattr(self.why, "log", None)
            detail = (*self.why.detail, *((f"log: {log}",) if log else ()))
        return Failure(
            self.kind,
            str(self.why),
            now_iso(),
            key=row.key if row and self.keyed else None,
            launch=self.part.number if self.part else None,
            variant=variant,
            round=about.round if about else None,
            cell=self.place.cell if isinstance(self.place, PlannedTrial) else self.place,
            row=row.row if row else None,
            detail=detail,
        )


@dataclass
class Journal:
    """Appends records and reports progress to an observer."""

    folder: RunFolder
    observer: Observer
    requests: RequestsFile | None = None  # the file for every request of every measured row
    estimated: bool = False  # the counts of trials and the time left are
    unwritten: Loaded | None = None  # measured, on a disk that is full
    failed: bool = False  # something of the plan is not measured, or has a failure
    done: int = 0  # trials
    remaining: int = 0  # trials that are planned so far
    who: str = ""
    round: int = 1
    _ends_s: float = 0.0  # expected end of the run, of time.monotonic

    @property
    def planned(self) -> int:
        """All trials of the run that are planned so far."""
        return self.done + self.remaining

    @property
    def left_s(self) -> float:
        """Expected seconds until the end of the run."""
        return max(0.0, self._ends_s - time.monotonic())

    def expect(self, seconds: float | None) -> None:
        """Set the seconds that remain from now on; None keeps the former estimate."""
        if seconds is not None:
            self._ends_s = time.monotonic() + seconds

    def skip(self, remaining: int) -> None:
        """Leave only `remaining` trials: the others that were not measured never will be."""
        self.done, self.remaining = self.done + self.remaining - remaining, remaining

    def say(
        self,
        phase: str,
        *,
        cell: Cell | None = None,
        row: Row | None = None,
        rate: float | None = None,
        load: Progress | None = None,
        who: str | None = None,
    ) -> None:
        """Report a step of progress. `who` replaces the name of the launch."""
        number = min(self.done + 1, self.planned)
        name = self.who if who is None else who
        place = (number, self.planned, name, self.round, cell, row, phase)
        rate = rate if load is None else load.rate
        self.observer.step(RunStep(*place, rate, self.left_s, self.estimated, load))

    def append(self, *records: Record) -> None:
        """Write records. Raises StoreError."""
        for record in records:
            self.folder.append(record)

    def keep(self, trial: Trial, log: RequestLog | None = None) -> None:
        """Write a trial and the log of its requests. Raises StoreError."""
        try:
            self.folder.append(trial)
        finally:  # the observer sees it even if it cannot be written
            self.observer.trial(trial, self.done, self.planned)
        if self.requests is not None and log is not None:
            self.requests.append(trial.key, log)

    def fail(self, fault: Fault) -> None:
        """Write and report a failure. Raises StoreError."""
        self.failed = True
        failure = fault.failure()
        self.folder.append(failure)
        self.observer.failure(failure)


# What is measured, and on what.


class Work(Generic[R]):
    """The rows of a cell, in order: those given, or those that a subclass finds as results come.

    `cost`: expected seconds of a row; None: unknown.
    """

    def __init__(self, rows: Iterable[R] = (), cost: Callable[[R], float] | None = None) -> None:
        self._rows, self._cost = deque(rows), cost

    def next(self) -> R | None:
        """Return the next row; None at the end."""
        return self._rows[0] if self._rows else None

    def add(self, row: R, trial: Trial | None) -> None:
        """Take the trial of a row; None if it has none. The next row is the one after it."""
        self._rows.popleft()

    def left(self) -> int:
        """Return how many rows remain, as far as that is decided."""
        return len(self._rows)

    def left_s(self) -> float | None:
        """Return the expected seconds of these rows, from the results so far; None: unknown."""
        return None if self._cost is None else sum(map(self._cost, self._rows))


@dataclass(frozen=True)
class Loaded:
    """The outcome of a row."""

    trials: tuple[Trial, ...] = ()
    faults: tuple[Fault, ...] = ()
    ended: BaseException | None = None  # ends the launch or the run
    log: RequestLog | None = None  # every request of the trial, if requests are logged


class CellOver(RunFailed):
    """The cell cannot be measured further. The reason is recorded already."""


class LaunchOver(RunFailed):
    """The launch cannot be measured further. The reason is recorded already."""


class Bench(Generic[C, R]):
    """What a launch of a plan is measured on, from `start` to `close`.

    A bench reports its steps and appends the records of launches and deploys to the journal. It
    raises CellOver, LaunchOver, or another RunFailed, which the runner records as a failure of its
    first part.
    """

    parts: Sequence[Part] = ()  # what it launches, in the order of their ends; empty for services
    begun: bool = False  # there is something to end

    def start(self) -> None:
        """Start all parts, and append the record of those that are proven without a cell."""

    def put(self, cell: C) -> None:
        """Put a cell on each part. The first cell of a part proves it."""

    def load(self, row: R) -> Loaded:
        """Load a row of the cell."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise RunFailed when nothing more can be measured."""

    def leave(self, cell: C, whole: bool) -> Fault | None:
        """End a cell, after all its rows (`whole`) or early. Returns a fault, if any."""
        return None

    def close(self, part: Part) -> Reaped:
        """End a part. It works at any time after `begun`."""
        raise NotImplementedError


@dataclass(frozen=True)
class PlannedLaunch(Generic[C, R]):
    """A launch of a plan."""

    who: str  # its name in steps of progress
    round: int
    cells: Sequence[tuple[C, Callable[[], Work[R]]]]
    bench: Callable[[int, Journal], Bench[C, R]]  # from the number of its first part


@dataclass(frozen=True)
class Plan(Generic[C, R]):
    """What to measure.

    `expected_s(launch, cell)`: expected seconds from this launch on (cell None) or, once it is up,
    from this cell of it on; None keeps the former estimate. `over`: asked after each launch but the
    last: why the rest is not measured; None: it is.
    """

    launches: Sequence[PlannedLaunch[C, R]]
    expected_s: Callable[[int, int | None], float | None]
    estimated: bool = True  # counts and times are
    width: int = 1  # trials of a row
    over: Callable[[], RunStop | None] = lambda: None


def run(plan: Plan[C, R], journal: Journal, first_launch: int = 1) -> bool:
    """Measure the remaining launches of a plan, and return whether nothing failed.

    `first_launch`: above 1 in a resumed run. KeyboardInterrupt ends all launches first. Raises
    StoreError.
    """
    journal.estimated = plan.estimated
    counts = [[plan.width * work().left() for _, work in launch.cells] for launch in plan.launches]
    journal.remaining = sum(map(sum, counts))
    for place, launch in enumerate(plan.launches):
        later = sum(map(sum, counts[place + 1 :]))
        journal.who, journal.round = launch.who, launch.round
        journal.expect(plan.expected_s(place, None))
        bench = launch.bench(first_launch, journal)
        first_launch += len(bench.parts)
        try:
            bench.start()
            for number, (cell, work) in enumerate(launch.cells):
                journal.expect(plan.expected_s(place, number))
                _run_cell(journal, bench, cell, work(), plan.width)
                journal.skip(later + sum(counts[place][number + 1 :]))
        except StoreError:  # a full disk ends the run, and is no fault of the launch
            raise
        except LaunchOver:
            pass  # the next launch starts afresh
        except RunFailed as error:
            journal.fail(Fault("launch", error, bench.parts[0]))
        finally:  # after Ctrl-C too
            _close(journal, bench, bench.parts if bench.begun else ())
        journal.skip(later)
        if place + 1 < len(plan.launches) and (stop := plan.over()) is not None:
            journal.append(stop)
            break
    return not journal.failed


def _run_cell(journal: Journal, bench: Bench[C, R], cell: C, work: Work[R], width: int) -> None:
    """Put a cell and measure its rows. Raises RunFailed when the launch cannot go on."""
    after, whole = journal.remaining - width * work.left(), False
    try:
        bench.put(cell)
    except CellOver:
        _leave(journal, bench, cell, False)
        bench.check()
        return
    others_s = max(0.0, journal.left_s - (work.left_s() or 0.0))
    try:
        while (row := work.next()) is not None:
            journal.remaining = after + width * work.left()
            if (left_s := work.left_s()) is not None:
                journal.expect(others_s + left_s)
            work.add(row, _run_row(journal, bench, row, width))
            bench.check()
        journal.remaining, whole = after, True
    except CellOver:
        pass  # the next cell is put anew
    finally:
        _leave(journal, bench, cell, whole)


def _leave(journal: Journal, bench: Bench[C, R], cell: C, whole: bool) -> None:
    fault = bench.leave(cell, whole)
    if fault is not None:
        journal.fail(fault)


def _run_row(journal: Journal, bench: Bench[C, R], row: R, width: int) -> Trial | None:
    """Measure a row, and return its first trial; None without one. Raises what ended the load."""
    done, remaining = journal.done, journal.remaining
    loaded = bench.load(row)
    try:
        for number, trial in enumerate(loaded.trials, 1):
            journal.done, journal.remaining = done + number, remaining - number
            journal.keep(trial, loaded.log)
        journal.done, journal.remaining = done + width, remaining - width
        for fault in loaded.faults:
            journal.fail(fault)
    except StoreError:
        journal.unwritten = loaded
        raise
    if loaded.ended is not None:
        raise loaded.ended
    return loaded.trials[0] if loaded.trials else None


def _close(journal: Journal, bench: Bench[C, R], parts: Sequence[Part]) -> None:
    """End all parts, even if the end of one cannot be recorded."""
    if not parts:
        return
    part, *rest = parts
    journal.say("teardown", who=part.who)
    try:
        reaped = bench.close(part)
        seconds, left = round(reaped.seconds, 4), reaped.leftovers
        journal.append(Teardown(part.number, seconds, reaped.killed, not left, left))
        if left:
            message = f"something of the launch is left: {', '.join(left)}"
            journal.fail(Fault("teardown", message, part))
    finally:
        _close(journal, bench, rest)
