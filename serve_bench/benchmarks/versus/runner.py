"""The composer of `serve-bench versus`: both sides up, proven, loaded in turn, down; next round.

Measure, then append: what the figures mean belongs to analysis/comparison.py. How a row is measured
is measure.py. Rule: whatever fails on a side ends its round, on both sides, and the next round goes
on; every launch that began is taken down and recorded, after Ctrl-C too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from serve_bench.benchmarks.versus.duet import at_once
from serve_bench.benchmarks.versus.measure import PairRows, Target, place_of
from serve_bench.benchmarks.versus.request import Pairing, RoundPlan, Side, VersusSuite, expected_s
from serve_bench.benchmarks.versus.slicing import Slicing
from serve_bench.core.errors import RunFailed
from serve_bench.core.failed_requests import none_succeeded
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import PUBLISHED_AXES, Cell, LaunchPlan, Suite, load_of
from serve_bench.core.result import Deploy, Failure, Launch, Trial, VariantUsed
from serve_bench.load import LoadError
from serve_bench.runner.observer import Observer, Step, record_teardown
from serve_bench.runner.url import Service
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.server import NOT_TRIED, Deployed, LaunchFailed, Serving
from serve_bench.store import RunFolder, now_iso

# --------------------------------------------------------------------------------------------------
# Both sides of a round of `serve-bench versus`: started and deployed on at the same time.
#
# So they are treated alike, and up sooner: `default` and `optimized` in 11 to 12 s on a host with 2
# cores (two rounds), where one after the other took 7.5 and 11.5 s. Rule: what fails is told to the
# runner, which records it; whatever happens, nothing is up that is not in an `Up` which the runner
# takes down.

Say: TypeAlias = Callable[["Up", str], None]

_NEXT_PHASE: Final = {
    "import": "launch: starting Ray",
    "ray_init": "launch: starting Serve",
    "serve_start": "launch: Serve is up",
}


@dataclass
class Up:
    """A side of a round that was started, or is being. `beside`: the one that began before it."""

    side: Side
    number: str
    serving: Serving
    log: str
    round: int
    beside: Up | None = None
    started_at: str = field(default_factory=now_iso)
    proven: bool = False


@dataclass(frozen=True)
class InForce:
    """A cell on a side: the deploy, and the launch where this was its first."""

    up: Up
    deployed: Deployed
    launch: Launch | None

    def records(self, label: Cell) -> list[Launch | Deploy]:
        """What there is to keep of it."""
        done = self.deployed
        deploy = Deploy(self.up.number, label, round(done.seconds, 4), done.in_place, done.proof)
        return [deploy] if self.launch is None else [self.launch, deploy]


def start_both(ups: Sequence[Up], say: Say) -> list[tuple[Up, LaunchFailed]]:
    """Starts the sides, at once, in this order. Those that failed, and why: where one does, the
    other is ended too, since there is nothing to compare."""
    for up in ups:
        say(up, "launch: loading Ray")
        taken = range(0) if up.beside is None else up.beside.serving.ports
        up.serving.begin(apart_from=taken)
    outcomes = at_once(
        [up.serving.await_up for up in ups],
        lambda place, phase: say(ups[place], _NEXT_PHASE[phase]),
        lambda: _end(ups),
        LaunchFailed,
        all_or_none=True,
    )
    pairs = zip(ups, outcomes, strict=True)
    return [(up, error) for up, error in pairs if isinstance(error, LaunchFailed)]


def deploy_both(
    ups: Sequence[Up], apps: Sequence[tuple[Suite, Cell]], say: Say
) -> list[InForce | LaunchFailed]:
    """Puts a cell on each side, at once: of each what is in force now, or why nothing is. `apps`:
    what each is to deploy."""
    for up in ups:
        say(up, "deploy")

    def work(up: Up, suite: Suite, cell: Cell) -> Callable[[Callable[[str], None]], InForce]:
        return lambda _: _deployed(up, suite, cell)

    outcomes = at_once(
        [work(up, suite, cell) for up, (suite, cell) in zip(ups, apps, strict=True)],
        lambda place, words: None,
        lambda: _end(ups),
        LaunchFailed,
    )
    return [one for one in outcomes if isinstance(one, InForce | LaunchFailed)]


def _deployed(up: Up, suite: Suite, cell: Cell) -> InForce:
    deployed = up.serving.deploy(suite.app, cell)
    if up.proven:
        return InForce(up, deployed, None)
    began = time.monotonic()
    proof = up.serving.prove()
    up.proven = True
    seconds = {**up.serving.seconds, "proof": round(time.monotonic() - began, 4)}
    launch = Launch(
        id=up.number,
        variant=up.side.launched,
        round=up.round,
        started_at=up.started_at,
        seconds=seconds,
        proof=proof,
        paths={"log": up.log},
    )
    return InForce(up, deployed, launch)


def _end(ups: Sequence[Up]) -> None:
    """Ends all, so that whoever waits for one is told."""
    for up in ups:
        up.serving.close()


# --------------------------------------------------------------------------------------------------


class RoundOver(RunFailed):
    """Nothing more can be measured in this round; what ended it is recorded already."""


@dataclass
class VersusRunner:
    """One sitting of a run: works off the rounds and appends every record to `folder`.

    `services`: those of `--url`, in place of launches. `chosen`: by an earlier sitting.
    """

    suite: VersusSuite
    rounds: tuple[RoundPlan, ...]
    folder: RunFolder
    run_id: str
    observer: Observer
    services: tuple[Service, Service] | None = None
    first_launch: int = 1
    chosen: dict[str, Slicing] = field(default_factory=dict)
    failed: bool = False
    _launched: int = 0
    _done: int = 0
    _ends_s: float = 0.0  # when all is likely to be over, by time.monotonic
    _round: int = 1
    _without_ray: set[str | None] = field(default_factory=set)  # interpreters, by their path

    def __post_init__(self) -> None:
        self._rows = PairRows(self.suite, self.folder, self.run_id, self._say_row, self.chosen)
        self._planned = 2 * sum(len(one.pairings) for one in self.rounds)

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        done, began_s = 0, time.monotonic()
        for offset, plan in enumerate(self.rounds):
            now_s = time.monotonic()
            planned_s = expected_s(self.suite, self.rounds[:offset])
            pace = max(1.0, (now_s - began_s) / planned_s) if planned_s else 1.0  # on a busy host
            self._ends_s = now_s + pace * expected_s(self.suite, self.rounds[offset:])
            self._round, self._done = plan.round, done
            try:
                if self.services is None:
                    self._with_launches(plan)
                else:
                    for at in plan.pairings:
                        self._measure(at, self._services_of(at), ())
            except RoundOver:
                pass  # recorded; the next round starts afresh
            done += 2 * len(plan.pairings)
        return not self.failed

    # ---------------------------------------------------------------------------- launches

    def _with_launches(self, plan: RoundPlan) -> None:
        ups: dict[int, Up] = {}
        try:
            self._start(plan, ups)
            both = ups[0], ups[1]
            for cell, pairings in plan.cells:
                if self._deploy(both, cell):
                    for at in pairings:
                        self._measure(at, self._targets(at, both), both)
        finally:  # Ctrl-C comes this way too
            self._teardown(list(ups.values()))

    def _start(self, plan: RoundPlan, ups: dict[int, Up]) -> None:
        """Fills `ups`, in the order of the plan. Raises RoundOver."""
        sides: list[Up] = []
        for number in plan.order:
            sides.append(self._up(plan, number, sides[0] if sides else None))
        failed = [
            (up, LaunchFailed(NOT_TRIED))
            for up in sides
            if up.side.launched.python in self._without_ray
        ]
        if not failed:
            ups.update(zip(plan.order, sides, strict=True))
            failed = start_both(sides, self._say_side)
        for up, error in failed:
            if not up.serving.imported:  # nor will it be the next time
                self._without_ray.add(up.side.launched.python)
            self._fail_launch("launch", error, up)
        if failed:
            raise RoundOver(str(failed[0][1]))

    def _up(self, plan: RoundPlan, number: int, beside: Up | None) -> Up:
        """A side that is to be started."""
        side = self.suite.sides[number]
        name = str(self.first_launch + self._launched)
        self._launched += 1
        log = f"logs/launch-{name}.log"
        cells = [side.cell(cell) for cell, _ in plan.cells]
        spec = LaunchSpec(
            side.launched,
            self.run_id,
            name,
            self.folder.path / log,
            most_replicas=max(map(side.app.replicas, cells)),
            folders=side.app.folders,
            cpus=max(map(side.app.cpus, cells)),
        )
        return Up(side, name, Serving(spec), log, plan.round, beside)

    def _deploy(self, both: tuple[Up, Up], cell: Cell) -> bool:
        """Puts a cell on both sides, and records a launch once it is proven. False where it is not
        in force on both. Raises RoundOver when a launch is no good."""
        label, over, ok = self.suite.label(cell), "", True
        apps = [self.suite.of_side(up.side, cell) for up in both]
        for up, outcome in zip(both, deploy_both(both, apps, self._say_side), strict=True):
            if isinstance(outcome, LaunchFailed):
                gone = not up.proven or not up.serving.alive()
                what = "launch" if gone else "deploy"
                self._fail_launch(what, outcome, up, None if gone else label)
                ok, over = False, over or (str(outcome) if gone else "")
                continue
            for record in outcome.records(label):
                self.folder.append(record)
        if over:
            raise RoundOver(over)
        return ok

    def _teardown(self, ups: Sequence[Up]) -> None:
        """Ends all, even where the end of one cannot be recorded."""
        if not ups:
            return
        first, *rest = ups
        self._say(first.side.label, "teardown")
        try:
            record_teardown(self.folder, first.number, first.serving.close(), self._append_failure)
        finally:
            self._teardown(rest)

    # -------------------------------------------------------------------------------- rows

    def _targets(self, at: Pairing, both: tuple[Up, Up]) -> tuple[Target, Target]:
        first, second = (Target(self._load(at, up), up.number, up.serving.processes) for up in both)
        return first, second

    def _load(self, at: Pairing, up: Up) -> Load:
        suite, whole = self.suite.of_side(up.side, at.cell)
        return replace(load_of(suite, at.row, up.serving.url, whole), rate=at.row.rate_per_s)

    def _services_of(self, at: Pairing) -> tuple[Target, Target]:
        assert self.services is not None, "asked of a run of --url"
        first, second = (
            Target(
                Load(
                    service.request,
                    client="aiohttp" if at.row.client == "aiohttp" else "raw",
                    connections=at.row.connections,
                    timeout_s=self.suite.timeout_s,
                    rate=at.row.rate_per_s,
                )
            )
            for service in self.services
        )
        return first, second

    def _measure(self, at: Pairing, targets: tuple[Target, Target], ups: Sequence[Up]) -> None:
        """Measures a row on both sides and keeps it. Raises RoundOver when a side is broken."""
        chosen_before = place_of(at) in self._rows.chosen
        try:
            trials = self._rows.measure(at, targets)
        except LoadError as error:
            self._fail_rows(at, ups, str(error), guilty=_to_blame(targets, error))
            return
        except KeyboardInterrupt:
            self._fail_rows(at, ups, "interrupted", look=False)
            raise
        if not chosen_before:
            self._tell_choice(at)
        if self._casualties(at, ups, trials):
            raise RoundOver("a process of a side ended")
        for number, trial in enumerate(trials):
            try:
                self.folder.append(trial)
            finally:  # where it cannot be kept, it is at least seen
                self._done += 1
                self.observer.trial(trial, self._done, self._planned)
            if trial.counts.completed == 0:
                self._fail_row(at, number, ups, none_succeeded(trial))

    def _tell_choice(self, at: Pairing) -> None:
        """Without a row, so that it stands as a line of its own where there is no terminal."""
        slicing = self._rows.chosen[place_of(at)]
        if slicing.why:
            self._say(at.row.label, slicing.why)

    def _casualties(self, at: Pairing, ups: Sequence[Up], trials: tuple[Trial, Trial]) -> list[str]:
        """What ended while the row was measured: its figures are of a broken cluster. They stand in
        the failure, and in no comparison."""
        every: list[str] = []
        for number, up in enumerate(ups):
            ended = up.serving.casualties()
            ended += [] if up.serving.alive() else ["the cluster process ended"]
            rates = trials[number].metrics["throughput"].windows or (0.0,)
            rate = sum(rates) / len(rates)
            for one in ended:
                message = f"{one} during the trial ({rate:,.1f} requests/s until its end)"
                self._fail_row(at, number, ups, message)
            every += ended
        return every

    def _fail_rows(
        self,
        at: Pairing,
        ups: Sequence[Up],
        message: str,
        look: bool = True,
        guilty: int | None = None,
    ) -> None:
        """Neither side of a row is measured, `guilty` is the one that is to blame where that is
        known. Raises RoundOver when a side is broken."""
        ended = [up.serving.casualties() if look else [] for up in ups]
        for number in range(len(at.planned)):
            told = ended[number] if ups else []
            own = message
            if guilty is not None and number != guilty:
                own = f"not measured without {at.planned[guilty].variant}"
            self._fail_row(at, number, ups, "; ".join([own, *told]))
        if any(ended):
            raise RoundOver(message)

    # ---------------------------------------------------------------------------- failures

    def _fail_row(self, at: Pairing, number: int, ups: Sequence[Up], message: str) -> None:
        planned = at.planned[number]
        self._append_failure(
            Failure(
                "trial",
                message,
                now_iso(),
                key=planned.key,
                launch=ups[number].number if ups else None,
                variant=planned.variant,
                round=planned.round,
                cell=planned.cell,
                row=planned.row,
            )
        )

    def _fail_launch(
        self, what: str, error: LaunchFailed, up: Up, label: Cell | None = None
    ) -> None:
        log = (f"log: {error.log}",) if error.log else ()
        self._append_failure(
            Failure(
                what,
                str(error),
                now_iso(),
                launch=up.number,
                variant=up.side.label,
                round=self._round,
                cell=label,
                detail=(*error.detail, *log),
            )
        )

    def _append_failure(self, failure: Failure) -> None:
        self.failed = True
        self.folder.append(failure)
        self.observer.failure(failure)

    # ---------------------------------------------------------------------------- progress

    def _say_side(self, up: Up, phase: str) -> None:
        self._say(up.side.label, phase)

    def _say_row(self, at: Pairing, phase: str, rate: float | None) -> None:
        both = " : ".join(planned.variant for planned in at.planned)
        self._say(both, phase, at, rate)

    def _say(
        self, who: str, phase: str, at: Pairing | None = None, rate: float | None = None
    ) -> None:
        cell = None
        if at is not None and len(self.suite.cells) > 1 and set(PUBLISHED_AXES) <= set(at.cell):
            cell = at.cell
        launch = LaunchPlan(VariantUsed(f"round {self._round}, {who}"), self._round, ())
        number = min(self._done + 1, self._planned)
        left_s = max(0.0, self._ends_s - time.monotonic())
        row = None if at is None else at.row
        self.observer.step(Step(number, self._planned, launch, cell, row, phase, rate, left_s))


def _to_blame(targets: Sequence[Target], error: LoadError) -> int | None:
    """The side that could not be loaded, by its address; None where that is of both or of none."""
    urls = [urlsplit(target.load.request.url) for target in targets]
    places = [(url.hostname, url.port or (443 if url.scheme == "https" else 80)) for url in urls]
    found = [number for number, at in enumerate(places) if at == (error.host, error.port)]
    return found[0] if len(found) == 1 else None
