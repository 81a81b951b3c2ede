"""The one runner: it works off a plan on benches, and appends every record.

A Plan says what is to be measured, launch by launch. A Bench is what one launch measures on: a
cluster of ours, two of them, services that are there already, a cluster of others, a backend of
rpc. The Runner launches, puts cells, loads rows, appends what comes of them, and takes down. All
failures and steps of progress are made by the Journal here. Rule: nothing is computed beyond the
record, and a run goes on alike if nobody follows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from serve_bench.core.errors import RunFailed
from serve_bench.core.plan import Cell
from serve_bench.core.result import (
    Failure,
    JsonObject,
    Launch,
    PlannedTrial,
    Record,
    Row,
    Teardown,
    Trial,
    VariantUsed,
)
from serve_bench.load.request_log import RequestLog
from serve_bench.runner.requests_file import RequestsFile
from serve_bench.serving.strays import Reaped
from serve_bench.store import RunFolder, StoreError, now_iso

C = TypeVar("C")  # a cell of a launch
R = TypeVar("R")  # a row of a cell

#: What is done next when a phase of a launch has ended.
NEXT_PHASE: Final = {
    "import": "launch: starting Ray",
    "ray_init": "launch: starting Serve",
    "serve_start": "launch: Serve is up",
}


# --------------------------------------------------------------------------------------------------
# Progress and records.


@dataclass(frozen=True)
class RunStep:
    """Where the run is now: trial `number` of `of`, what is being done, how long it will take.

    `who`: the variant, the service or the sides at work, in launch round `round`.
    """

    number: int
    of: int
    who: str
    round: int
    cell: Cell | None
    row: Row | None
    phase: str
    rate: float | None
    left_s: float
    about: bool = False  # `of` and `left_s` are guesses


class Observer(Protocol):
    """Is told what goes on; it measures nothing and decides nothing."""

    def step(self, step: RunStep) -> None:
        """Something began or moved on (several times a second during a load)."""

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """A trial was measured; it stands in the records unless they cannot be written."""

    def failure(self, failure: Failure) -> None:
        """Something failed and stands in the records."""


@dataclass(frozen=True)
class Part:
    """A launch of a bench. `who`: its name in steps of progress; None: that of the variant."""

    number: str
    variant: VariantUsed
    round: int
    who: str | None = None
    started_at: str = field(default_factory=now_iso)

    @property
    def log(self) -> str:
        """The file of its chatter, relative to the folder of the run."""
        return f"logs/launch-{self.number}.log"

    def record(self, seconds: dict[str, float], proof: JsonObject) -> Launch:
        """The record of the launch."""
        return Launch(
            id=self.number,
            variant=self.variant,
            round=self.round,
            started_at=self.started_at,
            seconds=seconds,
            proof=proof,
            paths={"log": self.log},
        )

    def proven(self, seconds: dict[str, float], prove: Callable[[], JsonObject]) -> Launch:
        """The record of the launch with what `prove` finds, and how long that took."""
        began = time.monotonic()
        proof = prove()
        return self.record({**seconds, "proof": round(time.monotonic() - began, 4)}, proof)


@dataclass(frozen=True)
class Fault:
    """Something that went wrong: `what` is the kind of a Failure. `at`: the row, or the cell as it
    is recorded. A fault that is not `keyed` leaves the trial of its row as it is."""

    what: str
    why: str | RunFailed
    part: Part | None = None
    at: PlannedTrial | JsonObject | None = None
    keyed: bool = True

    def failure(self) -> Failure:
        """The record."""
        row = self.at if isinstance(self.at, PlannedTrial) else None
        variant = row.variant if row else self.part.variant.name if self.part else None
        about = row or self.part
        detail: tuple[str, ...] = ()
        if isinstance(self.why, RunFailed):
            log = getattr(self.why, "log", None)
            detail = (*self.why.detail, *((f"log: {log}",) if log else ()))
        return Failure(
            self.what,
            str(self.why),
            now_iso(),
            key=row.key if row and self.keyed else None,
            launch=self.part.number if self.part else None,
            variant=variant,
            round=about.round if about else None,
            cell=self.at.cell if isinstance(self.at, PlannedTrial) else self.at,
            row=row.row if row else None,
            detail=detail,
        )


@dataclass
class Journal:
    """Appends records, and tells an observer where the run is.

    `done` and `to_come` count trials, as far as those to come are known.
    """

    folder: RunFolder
    observer: Observer
    about: bool = False
    requests: RequestsFile | None = None
    failed: bool = False
    done: int = 0
    to_come: int = 0
    who: str = ""
    round: int = 1
    _ends_s: float = 0.0  # when all is likely to be over, by time.monotonic

    @property
    def planned(self) -> int:
        """How many trials there are in all; of a growing load as far as is known now."""
        return self.done + self.to_come

    @property
    def left_s(self) -> float:
        """About how long it takes until all is over."""
        return max(0.0, self._ends_s - time.monotonic())

    def expect(self, seconds: float | None) -> None:
        """So long it takes from now on; None: as was said before."""
        if seconds is not None:
            self._ends_s = time.monotonic() + seconds

    def skip(self, to_come: int) -> None:
        """So many trials are to come; those before them that were not measured never will be."""
        self.done, self.to_come = self.done + self.to_come - to_come, to_come

    def say(
        self,
        phase: str,
        *,
        cell: Cell | None = None,
        row: Row | None = None,
        rate: float | None = None,
        who: str | None = None,
    ) -> None:
        """Tells what goes on now. `who`: in place of what the launch is called."""
        number = min(self.done + 1, self.planned)
        name, left_s = self.who if who is None else who, self.left_s
        step = RunStep(
            number, self.planned, name, self.round, cell, row, phase, rate, left_s, self.about
        )
        self.observer.step(step)

    def append(self, *records: Record) -> None:
        """Keeps records. Raises StoreError."""
        for record in records:
            self.folder.append(record)

    def keep(self, trial: Trial, log: RequestLog | None = None) -> None:
        """Keeps a trial and the log of its requests. Raises StoreError."""
        try:
            self.folder.append(trial)
        finally:  # where it cannot be kept, it is at least seen
            self.observer.trial(trial, self.done, self.planned)
        if self.requests is not None and log is not None:
            self.requests.append(trial.key, log)

    def fail(self, fault: Fault) -> None:
        """Keeps what went wrong, and tells it. Raises StoreError."""
        self.failed = True
        failure = fault.failure()
        self.folder.append(failure)
        self.observer.failure(failure)


# --------------------------------------------------------------------------------------------------
# What is measured, and on what.


class Work(Protocol[R]):
    """The rows of a cell, one after the other."""

    def next(self) -> R | None:
        """The next row; None when all is done."""

    def add(self, row: R, trial: Trial | None) -> None:
        """What came of a row; None: nothing."""

    def left(self) -> Sequence[object]:
        """The rows to come, as far as they are known."""

    def left_s(self) -> float | None:
        """About how long they take, by what is measured so far; None: not known."""


@dataclass(frozen=True)
class Loaded:
    """What came of a row: its trials, then what went wrong, then what ends the launch or the run.

    `log`: every request of the trial, where they are kept.
    """

    trials: tuple[Trial, ...] = ()
    faults: tuple[Fault, ...] = ()
    ended: BaseException | None = None
    log: RequestLog | None = None


class CellOver(RunFailed):
    """Nothing more can be measured of a cell, for a reason that is recorded already."""


class LaunchOver(RunFailed):
    """Nothing more can be measured of a launch, for a reason that is recorded already."""


class Bench(Generic[C, R]):
    """What a launch of a plan is measured on, from `start` to `close`.

    `parts`: what it launches, in the order in which they are ended; none where services are there
    already. `begun`: there is something to be ended. A bench tells its steps to the journal, and
    keeps the records of launches and deploys there. It raises CellOver, LaunchOver, or another
    RunFailed, which is recorded as a failure of its first part.
    """

    parts: Sequence[Part] = ()
    begun: bool = False

    def start(self) -> None:
        """Starts all parts, and keeps the record of those that are proven without a cell."""

    def put(self, cell: C) -> None:
        """Puts a cell on each part, and proves the part with its first one."""

    def load(self, row: R) -> Loaded:
        """Loads a row of the cell."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises RunFailed when nothing more can be measured."""

    def leave(self, cell: C, whole: bool) -> Fault | None:
        """The rows of a cell are over; `whole`: nothing broke them off. Returns what went wrong."""
        return None

    def close(self, part: Part) -> Reaped:
        """Ends a part. Must work at any time after `begun`."""
        raise NotImplementedError


@dataclass(frozen=True)
class PlannedLaunch(Generic[C, R]):
    """A launch to come. `who`: its name in steps of progress. `bench` makes what it is measured on;
    the first part of that has the number that is given."""

    who: str
    round: int
    cells: Sequence[tuple[C, Callable[[], Work[R]]]]
    bench: Callable[[int, Journal], Bench[C, R]]


@dataclass(frozen=True)
class Plan(Generic[C, R]):
    """What is to be measured.

    `expected_s`: about how long the launches from a place on take, seconds, and once that one is
    up, from one of its cells on; None: as was said of the launch. `about`: counts and times are
    guesses. `width`: trials of a row.
    """

    launches: Sequence[PlannedLaunch[C, R]]
    expected_s: Callable[[int, int | None], float | None]
    about: bool = True
    width: int = 1


class Runner(Generic[C, R]):
    """One sitting of a run. `first_launch`: above 1 when a run is resumed. `requests` gets every
    request of every measured row."""

    def __init__(
        self,
        plan: Plan[C, R],
        folder: RunFolder,
        observer: Observer,
        *,
        first_launch: int = 1,
        requests: RequestsFile | None = None,
    ) -> None:
        self.journal = Journal(folder, observer, plan.about, requests)
        self._plan = plan
        self._number = first_launch

    @property
    def failed(self) -> bool:
        """Something of the plan is not measured, or is in doubt."""
        return self.journal.failed

    @failed.setter
    def failed(self, failed: bool) -> None:
        self.journal.failed = failed

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        plan, journal = self._plan, self.journal
        counts = [
            [plan.width * len(work().left()) for _, work in launch.cells]
            for launch in plan.launches
        ]
        journal.to_come = sum(map(sum, counts))
        for place, launch in enumerate(plan.launches):
            later = sum(map(sum, counts[place + 1 :]))
            journal.who, journal.round = launch.who, launch.round
            journal.expect(plan.expected_s(place, None))
            bench = launch.bench(self._number, journal)
            self._number += len(bench.parts)
            try:
                bench.start()
                for at, (cell, work) in enumerate(launch.cells):
                    journal.expect(plan.expected_s(place, at))
                    self._cell(bench, cell, work())
                    journal.skip(later + sum(counts[place][at + 1 :]))
            except StoreError:  # a full disk ends all, and is no fault of the launch
                raise
            except LaunchOver:
                pass  # the next launch starts afresh
            except RunFailed as error:
                journal.fail(Fault("launch", error, bench.parts[0]))
            finally:  # Ctrl-C comes this way too
                self._close(bench, bench.parts if bench.begun else ())
            journal.skip(later)
        return not journal.failed

    def _cell(self, bench: Bench[C, R], cell: C, work: Work[R]) -> None:
        """Puts a cell and measures its rows. Raises RunFailed when the launch is no good."""
        journal, width, whole = self.journal, self._plan.width, False
        after = journal.to_come - width * len(work.left())
        try:
            bench.put(cell)
        except CellOver:
            self._leave(bench, cell, False)
            bench.check()
            return
        others_s = max(0.0, journal.left_s - (work.left_s() or 0.0))
        try:
            while (row := work.next()) is not None:
                journal.to_come = after + width * len(work.left())
                if (left_s := work.left_s()) is not None:
                    journal.expect(others_s + left_s)
                work.add(row, self._row(bench, row))
                bench.check()
            journal.to_come, whole = after, True
        except CellOver:
            pass  # the next cell is put anew
        finally:
            self._leave(bench, cell, whole)

    def _leave(self, bench: Bench[C, R], cell: C, whole: bool) -> None:
        fault = bench.leave(cell, whole)
        if fault is not None:
            self.journal.fail(fault)

    def _row(self, bench: Bench[C, R], row: R) -> Trial | None:
        """The trial of a row, the first of several; None where none was measured."""
        journal = self.journal
        done, to_come = journal.done, journal.to_come
        loaded = bench.load(row)
        for number, trial in enumerate(loaded.trials, 1):
            journal.done, journal.to_come = done + number, to_come - number
            journal.keep(trial, loaded.log)
        journal.done, journal.to_come = done + self._plan.width, to_come - self._plan.width
        for fault in loaded.faults:
            journal.fail(fault)
        if loaded.ended is not None:
            raise loaded.ended
        return loaded.trials[0] if loaded.trials else None

    def _close(self, bench: Bench[C, R], parts: Sequence[Part]) -> None:
        """Ends all parts, even where the end of one cannot be recorded."""
        if not parts:
            return
        part, *rest = parts
        self.journal.say("teardown", who=part.who)
        try:
            reaped = bench.close(part)
            seconds, left = round(reaped.seconds, 4), reaped.leftovers
            self.journal.append(Teardown(part.number, seconds, reaped.killed, not left, left))
            if left:
                message = f"something of the launch is left: {', '.join(left)}"
                self.journal.fail(Fault("teardown", message, part))
        finally:
            self._close(bench, rest)
