"""The sides of a round, up at once: what is measured on them, whatever kind of run compares them.

in_turn.py measures a row, analysis/ratios.py says what the figures mean. Rule: whatever fails on a
side ends its round, on all sides, and the next round continues; of three sides or more, a side
other than A that cannot be started or deployed is left out of the round, or the cell, alone. Jobs
run at once, each in a thread; only the thread that asked reports, so that a listener need not know
of threads. No job is left behind, after Ctrl-C too, provided that `stop` ends each.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import PUBLISHED_AXES, Cell, Suite, load_with
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Deploy, Launch, PlannedTrial, RunStop, Trial
from serve_bench.core.traffic import Row
from serve_bench.load.failures import LoadError
from serve_bench.runner.in_turn import SideRows, Target, place_of
from serve_bench.runner.runner import (
    Bench,
    CellOver,
    Fault,
    Journal,
    LaunchOver,
    Loaded,
    Part,
    Plan,
    PlannedLaunch,
    Work,
    next_phase,
)
from serve_bench.runner.served_bench import launch_spec
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, LaunchFailed, Serving
from serve_bench.serving.strays import Reaped
from serve_bench.spec.sides import Pairing, RoundPlan, RowPlan, Side

# The sides of a round: started and deployed on at the same time.
#
# So they are treated alike, and up sooner: `default` and `optimized` in 11 to 12 s on a host with 2
# cores (two rounds), where one after the other took 7.5 and 11.5 s. Rule: whatever happens, nothing
# is up that is not in an `Up` which the bench closes.

Say: TypeAlias = Callable[["Up", str], None]


@dataclass
class Up:
    """A side of a round that was started, or is being started."""

    side: Side
    part: Part
    serving: Serving
    proven: bool = False


def start_at_once(
    ups: Sequence[Up], say: Say, *, all_or_none: bool = True
) -> list[tuple[Up, LaunchFailed]]:
    """Start the sides at once, in this order, and return those that failed, each with its error.

    `all_or_none`: if a side fails, the others are ended too, since there is nothing to compare.
    """
    for place, up in enumerate(ups):
        say(up, "launch: loading Ray")
        up.serving.begin(apart_from=[before.serving.ports for before in ups[:place]])
    outcomes = run_at_once(
        [up.serving.await_up for up in ups],
        lambda place, phase: say(ups[place], next_phase(phase)),
        lambda: _end(ups),
        LaunchFailed,
        all_or_none=all_or_none,
    )
    pairs = zip(ups, outcomes, strict=True)
    return [(up, error) for up, error in pairs if isinstance(error, LaunchFailed)]


def deploy_at_once(
    ups: Sequence[Up], apps: Sequence[tuple[Suite, Cell]], label: Cell, say: Say
) -> list[list[Launch | Deploy] | LaunchFailed]:
    """Deploy a cell on each side at once, and return its records, or why it is not in force.

    `apps`: what each side is to deploy; `label`: the cell as it is recorded.
    """
    for up in ups:
        say(up, "deploy")

    outcomes = run_at_once(
        [partial(_deploy, up, *app, label) for up, app in zip(ups, apps, strict=True)],
        lambda place, words: say(ups[place], f"deploy: {words}"),
        lambda: _end(ups),
        LaunchFailed,
    )
    return [outcome for outcome in outcomes if isinstance(outcome, list | LaunchFailed)]


def _deploy(
    up: Up, suite: Suite, cell: Cell, label: Cell, report: Callable[[str], None]
) -> list[Launch | Deploy]:
    done = up.serving.deploy(suite.app, cell, report)
    launches = [] if up.proven else [up.part.prove(up.serving.seconds, up.serving.prove)]
    up.proven = True
    seconds = round(done.seconds, 4)
    return [*launches, Deploy(up.part.number, label, seconds, done.in_place, done.proof)]


def _end(ups: Sequence[Up]) -> None:
    """End all sides, so that whoever waits for one of them hears of it."""
    for up in ups:
        up.serving.close()


class SidesBench(Bench[Cell, RowPlan]):
    """The sides of a round. Its parts are in the order in which they are started."""

    def __init__(
        self, rounds: SideRounds, planned: RoundPlan, number: int, journal: Journal
    ) -> None:
        self._rounds, self._spec, self._journal = rounds, rounds.spec, journal
        self._round = planned.round
        rounds.say = self._say_row
        self._ups: dict[str, Up] = {}
        launched = planned.order if self._spec.urls is None else ()
        for launch_number, place in enumerate(launched, number):
            side = planned.sides[place]
            part, spec = self._launch(planned, side, launch_number)
            self._ups[side.label] = Up(side, part, Serving(spec))
        self.parts = [up.part for up in self._ups.values()]
        self._in_order = [self._ups[side.label] for side in planned.sides if self._ups]
        self._absent: set[str] = set()  # sides without the cell that is measured, by label

    def _launch(self, planned: RoundPlan, side: Side, number: int) -> tuple[Part, LaunchSpec]:
        who = f"round {planned.round}, {self._name(side.label)}"
        part = Part(str(number), side.launched, planned.round, who)
        cells = [side.cell(cell) for cell, _ in planned.cells]
        about = part, self._rounds.run_id, self._rounds.folder
        spec = launch_spec(*about, side.app, cells, self._spec.rows)
        return part, replace(spec, traced=self._rounds.trace is not None)

    def start(self) -> None:
        """Start the sides. Raises LaunchOver when those that are up cannot be compared."""
        ups, without_ray = list(self._ups.values()), self._rounds.without_ray
        if not ups:
            return
        useless = [up for up in ups if up.side.launched.python in without_ray]
        failed = [(up, LaunchFailed(NOT_TRIED)) for up in useless]
        tried = [up for up in ups if up not in useless]
        if self._suffice(tried):
            self.begun = True
            all_or_none = not self._suffice(self._in_order[:-1])
            failed += start_at_once(tried, self._say_side, all_or_none=all_or_none)
        for up, error in failed:
            if not up.serving.imported:  # nor will it be the next time
                without_ray.add(up.side.launched.python)
            self._journal.fail(Fault("launch", error, up.part))
        self._lose([up for up, _ in failed])
        if failed and not self._suffice(self._in_order):
            messages = [str(error) for _, error in failed]
            if all(up.side.launched.python in without_ray for up in ups):  # the other fails as well
                messages = [messages[0]] * len(ups)
            self._rounds.note_failures(messages)
            raise LaunchOver(messages[0])

    def _suffice(self, ups: Sequence[Up]) -> bool:
        """Return whether these sides can be compared: both of two, else A and another."""
        if len(self._spec.sides) == 2:
            return len(ups) == len(self._ups)
        return len(ups) > 1 and any(up.side == self._spec.sides[0] for up in ups)

    def _lose(self, lost: Sequence[Up]) -> None:
        """Take sides that are not up out of the round, and end what is left of them."""
        self._in_order = [up for up in self._in_order if up not in lost]
        self._absent |= {up.side.label for up in lost}
        if self._suffice(self._in_order):  # else the round ends, and all of it
            _end(lost)

    def put(self, cell: Cell) -> None:
        """Deploy a cell on the sides. A launch must be proven with its first cell."""
        if not self._ups:
            return
        apps = [self._spec.of_side(up.side, cell) for up in self._in_order]
        label = self._spec.label(cell)
        placed = deploy_at_once(self._in_order, apps, label, self._say_side)
        failed, lost = dict[str, str](), list[Up]()
        for up, outcome in zip(self._in_order, placed, strict=True):
            if not isinstance(outcome, LaunchFailed):
                self._journal.append(*outcome)
                continue
            failed[up.side.label] = str(outcome)
            if up.proven and up.serving.alive():
                self._journal.fail(Fault("deploy", outcome, up.part, label))
            else:
                self._journal.fail(Fault("launch", outcome, up.part))
                lost.append(up)
        self._lose(lost)
        left = [up for up in self._in_order if up.side.label not in failed]
        self._absent = {*self._ups} - {up.side.label for up in left}
        if failed and not self._suffice(left):
            self._rounds.note_failures(list(failed.values()))
            over = CellOver if self._suffice(self._in_order) else LaunchOver
            raise over(next(iter(failed.values())))

    def load(self, row: RowPlan) -> Loaded:
        """Measure a row on all sides, part by part; what came before a failed part is kept."""
        trials: list[Trial] = []
        for pairing in (part.without(self._absent) for part in row.parts):
            loaded = self._load_part(pairing)
            trials += loaded.trials
            if loaded.faults or loaded.ended is not None:
                return replace(loaded, trials=tuple(trials))
        return Loaded(tuple(trials))

    def _load_part(self, pairing: Pairing) -> Loaded:
        """Measure a part of a row on all its sides; keep no figures of a broken cluster."""
        rounds, planned = self._rounds, pairing.planned
        chosen_before = place_of(pairing) in rounds.chosen
        targets = [self._target(pairing, side) for side in range(len(planned))]
        try:
            trials = rounds.measure(pairing, targets)
        except LoadError as error:
            return _fail_row(pairing, targets, error)
        except KeyboardInterrupt as early:
            faults = [_fault(*side, "interrupted") for side in zip(targets, planned, strict=True)]
            return Loaded(faults=tuple(faults), ended=early)
        why = rounds.chosen[place_of(pairing)].why
        if why and not chosen_before:  # a separate line where there is no terminal
            self._say(pairing.row.label, why)
        faults = [
            _fault(target, trial, f"{ended} during the trial ({_rate(trial)} until its end)")
            for target, trial in zip(targets, trials, strict=True)
            for ended in [*target.casualties(), *_list_ended_program(target)]
        ]
        if faults:  # the figures are of a broken cluster: they stand in the failure alone
            return Loaded(faults=tuple(faults), ended=LaunchOver("a process of a side ended"))
        reasons = [why_failed(trial) for trial in trials]
        silent = [reason for reason in reasons if reason is not None]
        rounds.note_failures(silent)
        if len(silent) < len(trials):
            rounds.note_measured()
        about = zip(targets, trials, reasons, strict=True)
        faults = [_fault(target, trial, why) for target, trial, why in about if why is not None]
        return Loaded(trials, tuple(faults))

    def close(self, part: Part) -> Reaped:
        """End the cluster of a side."""
        (up,) = (up for up in self._ups.values() if up.part == part)
        return up.serving.close()

    # -------------------------------------------------------------------------------- rows

    def _target(self, pairing: Pairing, side: int) -> Target:
        """Return what a row loads on a side: a service that is up already, or a cluster."""
        row = pairing.row
        if self._rounds.requests:  # services that are up already
            suite, _ = self._spec.of_side(self._spec.sides[side], pairing.cell)
            load = load_with(self._rounds.requests[side], suite, row)
            return Target(replace(load, rate=row.rate_per_s))
        return self._target_on(self._ups[pairing.planned[side].variant], pairing.cell, row)

    def _target_on(self, up: Up, cell: Cell, row: Row) -> Target:
        serving = up.serving
        suite, whole = self._spec.of_side(up.side, cell)
        return Target(
            replace(serving.load_of(suite, row, whole), rate=row.rate_per_s),
            up.part,
            serving.processes,
            serving.marks,
            missing=serving.missing,
            casualties=serving.casualties,
            alive=serving.alive,
        )

    # ---------------------------------------------------------------------------- progress

    def _name(self, label: str) -> str:
        return self._spec.letters.get(label, label)

    def _say_side(self, up: Up, phase: str) -> None:
        self._journal.say(phase, who=up.part.who)

    def _say_row(self, pairing: Pairing, phase: str, load: Progress | None) -> None:
        who = " and ".join(self._name(planned.variant) for planned in pairing.planned)
        self._say(who, phase, pairing, load)

    def _say(
        self, who: str, phase: str, pairing: Pairing | None = None, load: Progress | None = None
    ) -> None:
        cell = None if pairing is None or len(self._spec.cells) < 2 else pairing.cell
        self._journal.say(
            phase,
            cell=cell if cell is not None and set(PUBLISHED_AXES) <= set(cell) else None,
            row=None if pairing is None else pairing.row,
            load=load,
            who=f"round {self._round}, {who}",
        )


@dataclass
class SideRounds(SideRows):
    """How sides are measured, round by round."""

    bench: ClassVar[type[SidesBench]] = SidesBench  # measures a round

    rounds: Sequence[RoundPlan] = ()
    requests: Sequence[Request] = ()  # to services that are up already, in place of launches
    without_ray: set[str | None] = field(default_factory=set)  # interpreters that cannot import it

    def plan(self) -> Plan[Cell, RowPlan]:
        """Plan the rounds; each step of progress says of which side it is."""
        launches = [
            PlannedLaunch(
                f"round {planned.round}",
                planned.round,
                [(cell, partial(Work, rows)) for cell, rows in planned.cells],
                partial(self.bench, self, planned),
            )
            for planned in self.rounds
        ]
        width = max((len(row.keys) for planned in self.rounds for row in planned.rows), default=1)
        looks = self.spec.looks
        return Plan(launches, self.expected_s, estimated=looks, width=width, over=self.stop_early)

    def expected_s(self, place: int, cell: int | None) -> float | None:
        """Return how long the rounds from this one on take, s; within one None: no change."""
        return self.spec.expected_s(self.rounds[place:]) if cell is None else None

    def stop_early(self) -> RunStop | None:
        """Return why the rounds so far are enough; None: continue. A subclass may stop."""
        return None

    def note_failures(self, messages: Sequence[str]) -> None:
        """Note why sides failed; a subclass may use it."""

    def note_measured(self) -> None:
        """Note that a row was measured on a side or more; a subclass may use it."""


def _rate(trial: Trial) -> str:
    rates = trial.metrics["throughput"].windows or (0.0,)
    return f"{sum(rates) / len(rates):,.1f} requests/s"


def _fault(target: Target, trial: PlannedTrial, message: str) -> Fault:
    return Fault("trial", message, target.part, trial)


def _list_ended_program(target: Target) -> list[str]:
    return [] if target.alive() else ["the cluster process ended"]


def _fail_row(pairing: Pairing, targets: Sequence[Target], error: LoadError) -> Loaded:
    """Return the outcome of a row that no side has; the faulty side is blamed if it is known."""
    guilty, message = _find_faulty_side(targets, error), str(error)
    faults, broken = list[Fault](), False
    # What is said of the others is no reason: the first fault is that of the guilty side.
    for side in sorted(range(len(targets)), key=lambda side: side != guilty):
        ended = targets[side].casualties()
        broken = broken or bool(ended)
        reason = message
        if guilty is not None and side != guilty:
            reason = f"not measured without {pairing.planned[guilty].variant}"
        faults.append(_fault(targets[side], pairing.planned[side], "; ".join([reason, *ended])))
    return Loaded(faults=tuple(faults), ended=LaunchOver(message) if broken else None)


def _find_faulty_side(targets: Sequence[Target], error: LoadError) -> int | None:
    """Return the side at the address of the error; None where several sides or none have it."""
    urls = [urlsplit(target.load.request.url) for target in targets]
    places = [(url.hostname, url.port or (443 if url.scheme == "https" else 80)) for url in urls]
    numbers = [side for side, place in enumerate(places) if place == (error.host, error.port)]
    return numbers[0] if len(numbers) == 1 else None


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
    """Run the jobs at once; return the result of each, or the one of `failures` that it raised.

    `report`: takes what a job reports, with its place. `stop`: must end all that still run; it is
    called when a job raises something else or Ctrl-C comes, which is then raised, and with
    `all_or_none` on the first failure: None stands for those that it stopped.
    """
    reports: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    stopped: set[Future[T]] = set()

    def put(place: int, words: str) -> None:
        reports.put((place, words))

    with ThreadPoolExecutor(len(jobs)) as threads:
        try:
            futures = [threads.submit(job, partial(put, place)) for place, job in enumerate(jobs)]
            running = {*futures}
            while running:
                done, running = wait(running, _POLL_S, FIRST_COMPLETED)
                while not reports.empty():
                    report(*reports.get())
                for error in (future.exception() for future in done - stopped):
                    if error is not None and not isinstance(error, failures):
                        raise error
                    if error is not None and all_or_none and running - stopped:
                        stopped |= running
                        stop()
        except BaseException:  # Ctrl-C as well: the other jobs would go on in their threads
            stop()
            raise
    ends = ((future, future.exception()) for future in futures)
    return [
        future.result(timeout=0) if error is None else None if future in stopped else error
        for future, error in ends
    ]
