"""The runner of `serve-bench rpc`: backends, worlds, episodes, and the trial that they make."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from serve_bench.benchmarks.rpc.backend import People, RpcBackend, RpcFailed
from serve_bench.benchmarks.rpc.request import RpcLaunch, RpcSuite, World, expected_s, x_of
from serve_bench.benchmarks.rpc.summary import Episodes
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.plan import LaunchPlan
from serve_bench.core.result import Deploy, Failure, Launch, PlannedTrial, Trial, VariantUsed
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler
from serve_bench.runner.observer import Observer, Step, record_teardown
from serve_bench.store import RunFolder, StoreError, now_iso

# --------------------------------------------------------------------------------------------------
# The episodes of one world of `serve-bench rpc`, and the trial that they make.
#
# Rule: an episode that broke off is no part of the trial; the whole ones before it are, marked.
# Every latency stands in a file beside. Who starts worlds and keeps records stands below.

RAW_FOLDER: Final = "rpc"

STEADY: Final = 0.15
"""A warm-up has settled when its last two episodes differ by no more in their rate."""

Broke: TypeAlias = RpcFailed | StoreError | KeyboardInterrupt
"""What ends the episodes of a world before their time."""

Say: TypeAlias = Callable[[str, float | None, float], None]
"""Is told the phase, the rate of the last episode (calls/s), and the seconds of all so far."""


@dataclass
class Measuring:
    """One world that is up. `launch` is the number of its backend's launch, `folder` the run's."""

    suite: RpcSuite
    backend: RpcBackend
    launch: int
    world: World
    planned: PlannedTrial
    people: People
    folder: Path
    say: Say
    episodes: Episodes = field(init=False)
    _raw: Path = field(init=False)

    def __post_init__(self) -> None:
        self.episodes = Episodes(self.world.batch_size)
        self._raw = _raw_file(self.folder, self.planned.key)

    @property
    def done(self) -> str:
        """How far it came, in words."""
        return f"after {len(self.episodes.rates)} of {_of(self.suite)}"

    def measure(self) -> tuple[Trial | None, Broke | None]:
        """Warm-up and episodes: the trial of the whole ones, None without any, and what broke the
        rest. What breaks the warm-up is raised."""
        suite = self.suite
        warmup = self._warm_up()
        started_at, began_ns, began_s = now_iso(), time.time_ns(), time.monotonic()
        broken: Broke | None = None
        sampler = Sampler(self.backend.processes()) if suite.sample else None
        with sampler or nullcontext():
            try:
                while not self._enough(time.monotonic() - began_s):
                    self._episode()
            except (RpcFailed, StoreError, KeyboardInterrupt) as error:
                broken = error
            taken_s = time.monotonic() - began_s
            memory = self.backend.memory_bytes() if broken is None else None
        if not self.episodes.rates:
            return None, broken
        trial = self._trial(started_at, warmup, taken_s, memory, broken is not None)
        if sampler is not None:
            trial = replace(trial, usage=sampler.summary(began_ns, taken_s))
            try:
                keep_samples(self.folder, sampler.samples(self.planned.key))
            except StoreError as error:
                broken = broken or error
        return trial, broken

    def _warm_up(self) -> Warmup:
        """Episodes that are not counted, until two in a row are of about one rate."""
        began_s, calls, steady = time.monotonic(), 0, False
        rates: list[float] = []
        while len(rates) < 2 or not (steady or time.monotonic() - began_s > self.suite.warmup_s):
            self._tell("warm-up", rates[-1] if rates else None)
            one = Episodes(self.world.batch_size)
            one.add(self.backend.episode())
            calls += one.calls
            rates += one.rates
            steady = len(rates) > 1 and abs(rates[-1] / rates[-2] - 1) <= STEADY
        return Warmup(round(time.monotonic() - began_s, 4), steady, calls)

    def _enough(self, spent_s: float) -> bool:
        suite, done = self.suite, len(self.episodes.rates)
        if done >= suite.episodes:
            return True
        return done > 0 and suite.seconds is not None and spent_s >= suite.seconds

    def _episode(self) -> None:
        done = len(self.episodes.rates)
        rate = self.episodes.rates[-1] if done else None
        suite = self.suite
        of = "" if suite.seconds is not None else f" of {suite.episodes:,}"
        self._tell(f"episode {done + 1}{of}", rate)
        told = self.backend.episode()
        line = {
            "trial": self.planned.key,
            "episode": done + 1,
            "batch_size": self.world.batch_size,
            "began_ns": told["began_ns"],
            "ended_ns": told["ended_ns"],
            "agent_latency_ns": told["agent_ns"],
            "observer_latency_ns": told["observer_ns"],
        }
        try:
            with self._raw.open("a", encoding="ascii") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{self._raw}: cannot write: {why}") from None
        self.episodes.add(told)

    def _trial(
        self, started_at: str, warmup: Warmup, taken_s: float, memory: int | None, broken: bool
    ) -> Trial:
        episodes, planned, suite = self.episodes, self.planned, self.suite
        fixed = suite.policy_ms
        return Trial(
            key=planned.key,
            launch=str(self.launch),
            round=planned.round,
            variant=planned.variant,
            cell=planned.cell,
            row=planned.row,
            started_at=started_at,
            window_s=sum(episodes.spans_s) / len(episodes.spans_s),
            warmup=warmup,
            metrics=episodes.metrics(),
            counts=Counts(sent=episodes.calls, completed=episodes.calls, failed={}, in_flight=0),
            client={
                "batch_size": self.world.batch_size,
                "agent_pid": self.people.agent,
                "observer_pids": list(self.people.observers),
                "processes": self.world.world_size,
                "memory_bytes": memory,
                "policy": "network" if fixed is None else f"fixed {fixed:g} ms",
                "versions": self.backend.versions,
                "raw": str(self._raw.relative_to(self.folder)),
            },
            seconds={
                "total": round(taken_s + warmup.seconds, 4),
                "world": self.people.seconds,
                "warmup": warmup.seconds,
                "measured": round(sum(episodes.spans_s), 6),
            },
            flags={"interrupted": True} if broken else {},
        )

    def _tell(self, phase: str, rate: float | None) -> None:
        text = f"agent pid {self.people.agent}, {phase}"  # for whoever wants to profile it
        self.say(text, rate, sum(self.episodes.spans_s))


def _of(suite: RpcSuite) -> str:
    """How many episodes there are to be, in words."""
    if suite.seconds is not None:
        return f"as many episodes as {suite.seconds:g} s hold"
    return f"{suite.episodes} episode{'' if suite.episodes == 1 else 's'}"


def _raw_file(folder: Path, key: str) -> Path:
    """A new file for every latency of a trial; one of an earlier sitting stays."""
    place = folder / RAW_FOLDER
    place.mkdir(exist_ok=True)
    stem, number = re.sub(r"[^A-Za-z0-9=.-]+", "_", key), 1
    while (file := place / f"{stem}{'' if number == 1 else f'-{number}'}.jsonl").exists():
        number += 1
    return file


# --------------------------------------------------------------------------------------------------
# The composer of `serve-bench rpc`: start a backend, make a world, run its episodes, append, next.
#
# Rule: measure, then append; nothing is computed beyond the record. The episodes of a world are in
# above, what runs in the processes in apps/rpc.


@dataclass
class RpcRunner:
    """One sitting: works off `launches` and appends every record to `folder`."""

    suite: RpcSuite
    launches: tuple[RpcLaunch, ...]
    folder: RunFolder
    run_id: str
    observer: Observer
    first_launch: int = 1
    failed: bool = False
    _done: int = 0
    _began_s: float = 0.0

    def run(self) -> bool:
        """Measures everything. True if nothing failed. KeyboardInterrupt ends it, cleanly."""
        for offset, launch in enumerate(self.launches):
            self._launch(launch, self.first_launch + offset)
        return not self.failed

    @property
    def _planned(self) -> int:
        return sum(len(launch.worlds) for launch in self.launches)

    def _launch(self, launch: RpcLaunch, number: int) -> None:
        log = f"logs/launch-{number}.log"
        backend = RpcBackend(
            launch.backend, self.suite, self.run_id, str(number), self.folder.path / log
        )
        started_at, done = now_iso(), self._done
        try:
            self._say(launch, None, f"starting {launch.backend}")
            backend.start()
            self._record_launch(backend, launch, number, started_at, log)
            for world, planned in launch.worlds:
                if backend.alive():
                    self._world(backend, launch, number, world, planned)
                self._done += 1
            if not backend.alive():
                raise RpcFailed("the rpc program ended", (), backend.log)
        except RpcFailed as error:
            self._fail("launch", error, launch, number)
        finally:  # Ctrl-C comes this way too
            self._done = done + len(launch.worlds)
            self._teardown(backend, number)

    def _record_launch(
        self, backend: RpcBackend, launch: RpcLaunch, number: int, started_at: str, log: str
    ) -> None:
        proof = {"versions": backend.versions, "master_port": backend.port}
        record = Launch(
            id=str(number),
            variant=VariantUsed(launch.backend),
            round=launch.round,
            started_at=started_at,
            seconds={"start": backend.start_s},
            proof=proof,
            paths={"log": log},
        )
        self.folder.append(record)

    def _teardown(self, backend: RpcBackend, number: int) -> None:
        record_teardown(self.folder, str(number), backend.close(), self._append_failure)

    def _world(
        self,
        backend: RpcBackend,
        launch: RpcLaunch,
        number: int,
        world: World,
        planned: PlannedTrial,
    ) -> None:
        """One world: up, warm, measured, recorded, ended. What breaks it is recorded."""
        self._say(launch, planned, f"starting {world.world_size} processes")
        try:
            people = backend.world(world)
        except RpcFailed as error:
            self._fail("deploy", error, launch, number, planned)
            return
        who = {"agent": people.agent, "observers": list(people.observers)}
        reachable = backend.open_to_network()
        self.folder.append(
            Deploy(
                launch=str(number),
                cell=planned.cell,
                seconds=people.seconds,
                in_place=False,
                proof={**who, "open_to_network": reachable},
            )
        )
        self._say(launch, planned, f"agent is pid {people.agent}")
        try:
            self._measure(backend, launch, number, world, planned, people)
        except RpcFailed as error:
            self._fail("trial", error, launch, number, planned)
        if backend.alive():
            try:
                backend.end_world()
            except RpcFailed as error:
                self._fail("deploy", error, launch, number, planned)

    def _measure(
        self,
        backend: RpcBackend,
        launch: RpcLaunch,
        number: int,
        world: World,
        planned: PlannedTrial,
        people: People,
    ) -> None:
        """The trial of a world that is up, recorded; then what broke it is raised."""

        def say(phase: str, rate: float | None, spent_s: float) -> None:
            self._say(launch, planned, phase, rate, spent_s)

        one = Measuring(self.suite, backend, number, world, planned, people, self.folder.path, say)
        trial, broken = one.measure()
        if trial is not None:
            try:
                self.folder.append(trial)
            finally:  # where it cannot be kept, it is at least seen
                self.observer.trial(trial, self._done + 1, self._planned)
        if isinstance(broken, RpcFailed):
            raise RpcFailed(f"{broken}, {one.done}", broken.detail, broken.log)
        if isinstance(broken, KeyboardInterrupt):
            self._append_failure(
                Failure(
                    "trial",
                    f"interrupted {one.done}",
                    now_iso(),
                    key=planned.key,
                    launch=str(number),
                    variant=planned.variant,
                    round=planned.round,
                    cell=planned.cell,
                    row=planned.row,
                )
            )
        if broken is not None:
            raise broken

    def _fail(
        self,
        what: str,
        error: RpcFailed,
        launch: RpcLaunch,
        number: int,
        planned: PlannedTrial | None = None,
    ) -> None:
        self._append_failure(
            Failure(
                what,
                str(error),
                now_iso(),
                key=None if planned is None else planned.key,
                launch=str(number),
                variant=launch.backend,
                round=launch.round,
                cell=None if planned is None else planned.cell,
                row=None if planned is None else planned.row,
                detail=(*error.detail, f"log: {error.log}"),
            )
        )

    def _append_failure(self, failure: Failure) -> None:
        self.failed = True
        self.folder.append(failure)
        self.observer.failure(failure)

    def _say(
        self,
        launch: RpcLaunch,
        planned: PlannedTrial | None,
        phase: str,
        rate: float | None = None,
        spent_s: float | None = None,
    ) -> None:
        """Where the run is; `spent_s` of the present world's episodes, None before they begin."""
        if planned is not None:
            axis = self.suite.x_axis
            phase = f"{axis} {x_of(planned.cell, axis)}: {phase}"
        shown = LaunchPlan(VariantUsed(launch.backend), launch.round, ())
        number = min(self._done + 1, self._planned)
        left_s = max(0.0, self._left_s() - (spent_s or 0.0))
        row = None if planned is None or spent_s is None else planned.row
        self.observer.step(
            Step(number, self._planned, shown, None, row, phase, rate, left_s, about=True)
        )

    def _left_s(self) -> float:
        """About how long the worlds to come take, the present one with them."""
        return expected_s(self.suite, self.launches, self._done)
