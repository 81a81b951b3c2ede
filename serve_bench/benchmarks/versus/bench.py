"""What `serve-bench versus` measures on: both sides of a round up at once, or two services.

How a row is measured is measure.py, what the figures mean analysis/ratios.py. Rule: whatever
fails on a side ends its round, on both sides, and the next round goes on.
Jobs run at once, each in a thread; only the thread that asked reports, so that a listener need know
nothing of threads. No job is left behind, after Ctrl-C too, provided that `stop` ends each.
"""

from __future__ import annotations

import math
import queue
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.ratios import FEWEST
from serve_bench.benchmarks.versus.measure import PairRows, Target, place_of
from serve_bench.benchmarks.versus.request import Pairing, RoundPlan, Side, VersusSuite, expected_s
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.errors import RunFailed
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import PUBLISHED_AXES, Cell, Suite, load_of, load_with
from serve_bench.core.result import Deploy, Launch, RunStop, Trial
from serve_bench.load.failures import LoadError
from serve_bench.runner.agenda import Listed
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
    next_phase,
)
from serve_bench.runner.served_bench import launch_spec
from serve_bench.runner.service import Service
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, LaunchFailed, Serving
from serve_bench.serving.strays import Reaped
from serve_bench.store import now_iso, read

#: In a budget no side is loaded for less in a round: of the shortest slices these are 20.
SHORTEST_SIDE_S: Final = 1.0

# Both sides of a round: started and deployed on at the same time.
#
# So they are treated alike, and up sooner: `default` and `optimized` in 11 to 12 s on a host with 2
# cores (two rounds), where one after the other took 7.5 and 11.5 s. Rule: whatever happens, nothing
# is up that is not in an `Up` which the bench closes.

Say: TypeAlias = Callable[["Up", str], None]


@dataclass
class Up:
    """A side of a round that was started, or is being."""

    side: Side
    part: Part
    serving: Serving
    proven: bool = False


def start_both(ups: Sequence[Up], say: Say) -> list[tuple[Up, LaunchFailed]]:
    """Starts the sides, at once, in this order. Returns those that failed, and why: where one does,
    the other is ended too, since there is nothing to compare."""
    for at, up in enumerate(ups):
        say(up, "launch: loading Ray")
        up.serving.begin(apart_from=[one.serving.ports for one in ups[:at]])
    outcomes = run_at_once(
        [up.serving.await_up for up in ups],
        lambda place, phase: say(ups[place], next_phase(phase)),
        lambda: _end(ups),
        LaunchFailed,
        all_or_none=True,
    )
    pairs = zip(ups, outcomes, strict=True)
    return [(up, error) for up, error in pairs if isinstance(error, LaunchFailed)]


def deploy_both(
    ups: Sequence[Up], apps: Sequence[tuple[Suite, Cell]], label: Cell, say: Say
) -> list[list[Launch | Deploy] | LaunchFailed]:
    """Puts a cell on each side, at once: for each its records, or why it is not in force. `apps`:
    what each is to deploy; `label`: the cell as it is recorded."""
    for up in ups:
        say(up, "deploy")

    def work(
        up: Up, suite: Suite, cell: Cell
    ) -> Callable[[Callable[[str], None]], list[Launch | Deploy]]:
        return lambda report: _deployed(up, suite, cell, label, report)

    outcomes = run_at_once(
        [work(up, suite, cell) for up, (suite, cell) in zip(ups, apps, strict=True)],
        lambda place, words: say(ups[place], f"deploy: {words}"),
        lambda: _end(ups),
        LaunchFailed,
    )
    return [one for one in outcomes if isinstance(one, list | LaunchFailed)]


def _deployed(
    up: Up, suite: Suite, cell: Cell, label: Cell, report: Callable[[str], None]
) -> list[Launch | Deploy]:
    done = up.serving.deploy(suite.app, cell, report)
    launches = [] if up.proven else [up.part.proven(up.serving.seconds, up.serving.prove)]
    up.proven = True
    seconds = round(done.seconds, 4)
    return [*launches, Deploy(up.part.number, label, seconds, done.in_place, done.proof)]


def _end(ups: Sequence[Up]) -> None:
    """Ends all, so that whoever waits for one is told."""
    for up in ups:
        up.serving.close()


@dataclass
class Pairs:
    """How both sides are measured, round by round. `folder`: of the run. `services`: those of
    `--url`, in place of launches. `chosen`: how rows are loaded, by an earlier sitting. `budget_s`:
    no round begins that would probably end later; None: they take what they take. `trace`: the
    share of requests that are traced."""

    suite: VersusSuite
    rounds: tuple[RoundPlan, ...]
    folder: Path
    run_id: str
    services: tuple[Service, Service] | None = None
    chosen: dict[str, Slicing] = field(default_factory=dict)
    budget_s: float | None = None
    trace: float | None = None
    without_ray: set[str | None] = field(default_factory=set)  # interpreters that cannot import it
    _began_s: float | None = None
    _begun: int = 0  # the place of the round that began last
    _planned_s: float = 0.0  # that the rounds of this sitting were to take
    _measured: bool = False  # a row on both sides
    _failed: set[str] = field(default_factory=set)
    _alike: bool = False

    def __post_init__(self) -> None:
        self.rows = PairRows(
            self.suite, self.folder, self.run_id, chosen=self.chosen, trace=self.trace
        )

    def plan(self) -> Plan[Cell, Pairing]:
        """The rounds that are to be measured; each step says of which side."""
        launches = [
            PlannedLaunch(
                f"round {one.round}",
                one.round,
                [(cell, partial(Listed, rows)) for cell, rows in one.cells],
                partial(PairBench, self, one),
            )
            for one in self.rounds
        ]
        return Plan(launches, self._expected_s, about=self.suite.looks, width=2, over=self._over)

    def _expected_s(self, place: int, at: int | None) -> float | None:
        """At the pace of the rounds before."""
        if at is not None:
            return None
        self._begun = place
        return self._takes_s(place, self.rounds[place:])

    def _takes_s(self, place: int, rounds: Sequence[RoundPlan]) -> float:
        """How long further rounds take, at the pace of the `place` rounds before: each is as much
        longer than planned as those were, on a busy host."""
        late_s = max(0.0, self._lasted_s - self._planned_s) / max(1, place)
        return expected_s(self.suite, rounds) + late_s * len(rounds)

    @property
    def _lasted_s(self) -> float:
        now_s = time.monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        return now_s - self._began_s

    def _over(self) -> RunStop | None:
        """Whether the rounds so far are enough, or the next one is not in the budget."""
        measured, after, of = self._begun + 1, self.rounds[self._begun].round, self.suite.rounds
        self._planned_s += expected_s(self.suite, self.rounds[self._begun : measured])
        if self._alike:
            return RunStop(after, of, "failure", now_iso())
        if self.suite.looks and of_versus(read(self.folder)).settled:
            return RunStop(after, of, "settled", now_iso())
        if self.budget_s is not None:
            left_s, later = self.budget_s - self._lasted_s, self.rounds[measured:]
            needed = [planned for planned in later if planned.round <= FEWEST] or later[:1]
            short_s = self._takes_s(measured, needed) - left_s
            if short_s > 0 and needed[0].round <= FEWEST:
                self._shorten(short_s / (2 * sum(len(planned.pairings) for planned in needed)))
            if self._takes_s(measured, needed[:1]) > left_s:
                return RunStop(after, of, "budget", now_iso())
        return None

    def _shorten(self, by_s: float) -> None:
        """Loads each side and row for less time in the rounds to come, so that as many fit into the
        budget as a verdict takes: a short round says less, and two say nothing."""
        side_s = max(SHORTEST_SIDE_S, math.floor(10 * (self.suite.side_s - by_s)) / 10)
        self.suite = self.rows.suite = replace(self.suite, side_s=side_s)

    def note_failures(self, messages: Sequence[str]) -> None:
        """Takes why sides failed. Where both failed alike, or one did as in the round before, and
        nothing was measured yet, further rounds would fail as well."""
        words = {re.sub(r"\d+", "N", message) for message in messages}
        alike = len(words) == 1 and (len(messages) == 2 or words == self._failed)
        self._failed = words
        self._alike = self._alike or (alike and not self._measured)

    def note_measured(self) -> None:
        """A row was measured on both sides."""
        self._measured, self._alike = True, False


class PairBench(Bench[Cell, Pairing]):
    """Both sides of a round. Its parts are in the order in which they are started."""

    letters = "AB"  # what progress calls the sides; empty: by their labels

    def __init__(self, plan: Pairs, launch: RoundPlan, number: int, journal: Journal) -> None:
        self._plan, self._suite, self._journal = plan, plan.suite, journal
        self._round = launch.round
        plan.rows.say = self._say_row
        self._ups: dict[int, Up] = {}
        if plan.services is not None:
            return
        for at, side in enumerate(launch.order):
            part, spec = self._spec(launch, side, number + at)
            self._ups[side] = Up(launch.sides[side], part, Serving(spec))
        self._both = [self._ups[side] for side in sorted(self._ups)]
        self.parts = [up.part for up in self._ups.values()]

    def _spec(self, launch: RoundPlan, at: int, number: int) -> tuple[Part, LaunchSpec]:
        side = launch.sides[at]
        who = f"round {launch.round}, {self.letters[at] if self.letters else side.label}"
        part = Part(str(number), side.launched, launch.round, who)
        cells = [side.cell(cell) for cell, _ in launch.cells]
        about = part, self._plan.run_id, self._plan.folder
        spec = launch_spec(*about, side.app, cells, self._suite.rows)
        return part, replace(spec, traced=self._plan.trace is not None)

    def start(self) -> None:
        """Starts both sides."""
        if self._plan.services is not None:
            return
        ups, without_ray = list(self._ups.values()), self._plan.without_ray
        useless = [up for up in ups if up.side.launched.python in without_ray]
        failed = [(up, LaunchFailed(NOT_TRIED)) for up in useless]
        if not failed:
            self.begun = True
            failed = start_both(ups, self._say_side)
        for up, error in failed:
            if not up.serving.imported:  # nor will it be the next time
                without_ray.add(up.side.launched.python)
            self._journal.fail(Fault("launch", error, up.part))
        if failed:
            messages = [str(error) for _, error in failed]
            if all(up.side.launched.python in without_ray for up in ups):  # the other fails as well
                messages = [messages[0]] * len(ups)
            self._plan.note_failures(messages)
            raise LaunchOver(messages[0])

    def put(self, cell: Cell) -> None:
        """Deploys a cell on both sides. A launch must be proven with its first cell."""
        if self._plan.services is not None:
            return
        apps = [self._suite.of_side(up.side, cell) for up in self._both]
        over: RunFailed | None = None
        label = self._suite.label(cell)
        placed = deploy_both(self._both, apps, label, self._say_side)
        for up, outcome in zip(self._both, placed, strict=True):
            if not isinstance(outcome, LaunchFailed):
                self._journal.append(*outcome)
            elif not up.proven or not up.serving.alive():
                self._journal.fail(Fault("launch", outcome, up.part))
                over = LaunchOver(str(outcome))
            else:
                self._journal.fail(Fault("deploy", outcome, up.part, label))
                over = over or CellOver(str(outcome))
        if over is not None:
            self._plan.note_failures(
                [str(outcome) for outcome in placed if isinstance(outcome, LaunchFailed)]
            )
            raise over

    def load(self, row: Pairing) -> Loaded:
        """A row on all sides."""
        rows, sides = self._plan.rows, range(len(row.planned))
        chosen_before = place_of(row) in rows.chosen
        targets = [self._target(row, side) for side in sides]
        try:
            trials = rows.measure(row, targets)
        except LoadError as error:
            return self._not_measured(row, str(error), _to_blame(targets, error))
        except KeyboardInterrupt as early:
            faults = [self._fault(row, side, "interrupted") for side in sides]
            return Loaded(faults=tuple(faults), ended=early)
        why = rows.chosen[place_of(row)].why
        if why and not chosen_before:  # a line of its own where there is no terminal
            self._say(row.row.label, why)
        faults = [
            self._fault(row, side, f"{one} during the trial ({_rate(trial)} until its end)")
            for side, trial in enumerate(trials)
            for one in self._casualties(row, side)
        ]
        if faults:  # the figures are of a broken cluster: they stand in the failure alone
            return Loaded(faults=tuple(faults), ended=LaunchOver("a process of a side ended"))
        reasons = {side: why_failed(trial) for side, trial in enumerate(trials)}
        silent = {side: reason for side, reason in reasons.items() if reason is not None}
        self._plan.note_failures(list(silent.values()))
        if len(silent) < len(trials):
            self._plan.note_measured()
        return Loaded(trials, tuple(self._fault(row, side, why) for side, why in silent.items()))

    def close(self, part: Part) -> Reaped:
        """Ends a side."""
        (up,) = (up for up in self._both if up.part == part)
        return up.serving.close()

    # -------------------------------------------------------------------------------- rows

    def _target(self, at: Pairing, side: int) -> Target:
        suite, whole = self._suite.of_side(self._suite.sides[side], at.cell)
        if self._plan.services is not None:
            load = load_with(self._plan.services[side].request, suite, at.row)
            return Target(replace(load, rate=at.row.rate_per_s))
        up = self._both[side]
        serving = up.serving
        load = replace(
            load_of(suite, at.row, serving.url_of(at.row), whole),
            rate=at.row.rate_per_s,
            environment=serving.environment_of(at.row),
        )
        return Target(load, up.part.number, serving.processes, serving.marks, ended=serving.missing)

    def _not_measured(self, at: Pairing, message: str, guilty: int | None) -> Loaded:
        """No side of a row is measured; `guilty` is to blame, where that is known."""
        faults, broken = [], False
        # What is said of the others is no reason: the first fault is that of the guilty side.
        for side in sorted(range(len(at.planned)), key=lambda side: side != guilty):
            ended = self._ended(at, side)
            broken = broken or bool(ended)
            own = message
            if guilty is not None and side != guilty:
                own = f"not measured without {at.planned[guilty].variant}"
            faults.append(self._fault(at, side, "; ".join([own, *ended])))
        return Loaded(faults=tuple(faults), ended=LaunchOver(message) if broken else None)

    def _casualties(self, at: Pairing, side: int) -> list[str]:
        """What of a side ended while the row was measured."""
        if not self._ups:
            return []
        alive = self._ups[side].serving.alive()
        return self._ended(at, side) + ([] if alive else ["the cluster process ended"])

    def _ended(self, at: Pairing, side: int) -> list[str]:
        """The same, but the program of the side itself."""
        return self._ups[side].serving.casualties() if self._ups else []

    def _part(self, at: Pairing, side: int) -> Part | None:
        """What a side is part of; None of a service that was there already."""
        return self._ups[side].part if self._ups else None

    def _fault(self, at: Pairing, side: int, message: str) -> Fault:
        return Fault("trial", message, self._part(at, side), at.planned[side])

    # ---------------------------------------------------------------------------- progress

    def _say_side(self, up: Up, phase: str) -> None:
        self._journal.say(phase, who=up.part.who)

    def _say_row(self, at: Pairing, phase: str, load: Progress | None) -> None:
        self._say("A and B", phase, at, load)

    def _say(
        self, who: str, phase: str, at: Pairing | None = None, load: Progress | None = None
    ) -> None:
        named = (
            at is not None and len(self._suite.cells) > 1 and set(PUBLISHED_AXES) <= set(at.cell)
        )
        self._journal.say(
            phase,
            cell=at.cell if at is not None and named else None,
            row=None if at is None else at.row,
            load=load,
            who=f"round {self._round}, {who}",
        )


def _rate(trial: Trial) -> str:
    rates = trial.metrics["throughput"].windows or (0.0,)
    return f"{sum(rates) / len(rates):,.1f} requests/s"


def _to_blame(targets: Sequence[Target], error: LoadError) -> int | None:
    """The side that could not be loaded, by its address; None where that is of both or of none."""
    urls = [urlsplit(target.load.request.url) for target in targets]
    places = [(url.hostname, url.port or (443 if url.scheme == "https" else 80)) for url in urls]
    numbers = [number for number, at in enumerate(places) if at == (error.host, error.port)]
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
