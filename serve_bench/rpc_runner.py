"""The composer of `serve-bench rpc`: start a backend, make a world, run its episodes, append, next.

Rule: measure, then append; nothing is computed beyond the record. An episode that broke off is no
part of a trial; the whole ones before it are, marked. Every latency stands in a file beside.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from serve_bench.clock import now_iso
from serve_bench.inside import keep_samples
from serve_bench.load_result import Counts, Warmup
from serve_bench.observer import Observer, Step
from serve_bench.result import Deploy, Failure, Launch, PlannedTrial, Teardown, Trial, VariantUsed
from serve_bench.rpc_backend import People, RpcBackend, RpcFailed
from serve_bench.rpc_figures import Episodes
from serve_bench.rpc_request import RpcLaunch, RpcSuite, World, x_of
from serve_bench.sampler import Sampler
from serve_bench.scenario import LaunchPlan
from serve_bench.store import RunFolder, StoreError

RAW_FOLDER: Final = "rpc"

STEADY: Final = 0.15
"""A warm-up has settled when its last two episodes differ by no more in their rate."""

#: Seconds of a start of the backend, and of each process of a world, and calls/s, on a host with 2
#: cores. They serve the estimate of time left alone.
START_S: Final = {"torch": 2.0, "ray": 5.0, "serve": 8.0}
EACH_S: Final = {"torch": 0.17, "ray": 0.6, "serve": 0.9}
CALLS_PER_S: Final = {"torch": 2500.0, "ray": 850.0, "serve": 250.0}


def expected_s(suite: RpcSuite, launches: Sequence[RpcLaunch], done: int = 0) -> float:
    """About how long these launches take, without the first `done` worlds of them."""
    total, at = 0.0, 0
    for launch in launches:
        worlds = [world for place, (world, _) in enumerate(launch.worlds) if at + place >= done]
        at += len(launch.worlds)
        total += START_S[launch.backend] if worlds else 0.0
        total += sum(_world_s(suite, launch.backend, world) for world in worlds)
    return total


def _world_s(suite: RpcSuite, backend: str, world: World) -> float:
    calls = world.observers * suite.steps
    an_episode_s = calls / CALLS_PER_S[backend]
    if suite.policy_ms is not None:
        selections = suite.steps if world.batch else calls
        an_episode_s += selections * suite.policy_ms / 1e3
    measured_s = suite.episodes * an_episode_s
    if suite.seconds is not None:
        measured_s = min(measured_s, suite.seconds + an_episode_s)
    return EACH_S[backend] * world.world_size + 2 * an_episode_s + measured_s


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
        reaped = backend.close()
        record = Teardown(
            launch=str(number),
            seconds=round(reaped.seconds, 4),
            killed=reaped.killed,
            clean=not reaped.leftovers,
            leftovers=reaped.leftovers,
        )
        self.folder.append(record)
        if reaped.leftovers:
            message = f"something of the launch is left: {', '.join(reaped.leftovers)}"
            self._append_failure(Failure("teardown", message, now_iso(), launch=str(number)))

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
        trial = _Measuring(self, backend, launch, number, world, planned, people)
        try:
            trial.measure()
        except RpcFailed as error:
            self._fail("trial", error, launch, number, planned)
        if backend.alive():
            try:
                backend.end_world()
            except RpcFailed as error:
                self._fail("deploy", error, launch, number, planned)

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


class _Measuring:
    """The episodes of one world, and the record that they make."""

    def __init__(
        self,
        runner: RpcRunner,
        backend: RpcBackend,
        launch: RpcLaunch,
        number: int,
        world: World,
        planned: PlannedTrial,
        people: People,
    ) -> None:
        self._runner, self._backend, self._launch, self._number = runner, backend, launch, number
        self._world, self._planned, self._people = world, planned, people
        self._episodes = Episodes(world.batch_size)
        self._raw = _raw_file(runner.folder.path, planned.key)

    def measure(self) -> None:
        """Warm-up, episodes, record. The record is made of whole episodes, also where one broke:
        then RpcFailed or KeyboardInterrupt goes on."""
        suite, runner = self._runner.suite, self._runner
        warmup = self._warm_up()
        started_at, began_ns, began_s = now_iso(), time.time_ns(), time.monotonic()
        broken: RpcFailed | KeyboardInterrupt | None = None
        watched = self._backend.processes() if suite.sample else []
        sampler = Sampler(watched) if suite.sample else None
        with sampler or nullcontext():
            try:
                while not self._enough(time.monotonic() - began_s):
                    self._episode()
            except (RpcFailed, KeyboardInterrupt) as error:
                broken = error
            taken_s = time.monotonic() - began_s
            memory = self._backend.memory_bytes() if broken is None else None
        if self._episodes.rates:
            trial = self._trial(started_at, warmup, taken_s, memory, broken is not None)
            if sampler is not None:
                trial = replace(trial, usage=sampler.summary(began_ns, taken_s))
                keep_samples(runner.folder.path, sampler.samples(self._planned.key))
            try:
                runner.folder.append(trial)
            finally:  # where it cannot be kept, it is at least seen
                runner.observer.trial(trial, runner._done + 1, runner._planned)
        if broken is None:
            return
        done = f"after {len(self._episodes.rates)} of {_of(suite)}"
        if isinstance(broken, RpcFailed):
            raise RpcFailed(f"{broken}, {done}", broken.detail, broken.log)
        runner._append_failure(self._interrupted(done))
        raise broken

    def _warm_up(self) -> Warmup:
        """Episodes that are not counted, until two in a row are of about one rate."""
        began_s, calls, steady = time.monotonic(), 0, False
        rates: list[float] = []
        while len(rates) < 2 or not (
            steady or time.monotonic() - began_s > self._runner.suite.warmup_s
        ):
            self._say("warm-up", rates[-1] if rates else None)
            one = Episodes(self._world.batch_size)
            one.add(self._backend.episode())
            calls += one.calls
            rates += one.rates
            steady = len(rates) > 1 and abs(rates[-1] / rates[-2] - 1) <= STEADY
        return Warmup(round(time.monotonic() - began_s, 4), steady, calls)

    def _enough(self, spent_s: float) -> bool:
        suite, done = self._runner.suite, len(self._episodes.rates)
        if done >= suite.episodes:
            return True
        return done > 0 and suite.seconds is not None and spent_s >= suite.seconds

    def _episode(self) -> None:
        done = len(self._episodes.rates)
        rate = self._episodes.rates[-1] if done else None
        suite = self._runner.suite
        of = "" if suite.seconds is not None else f" of {suite.episodes:,}"
        self._say(f"episode {done + 1}{of}", rate)
        told = self._backend.episode()
        line = {
            "trial": self._planned.key,
            "episode": done + 1,
            "batch_size": self._world.batch_size,
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
        self._episodes.add(told)

    def _trial(
        self, started_at: str, warmup: Warmup, taken_s: float, memory: int | None, broken: bool
    ) -> Trial:
        episodes, planned, suite = self._episodes, self._planned, self._runner.suite
        fixed = suite.policy_ms
        return Trial(
            key=planned.key,
            launch=str(self._number),
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
                "batch_size": self._world.batch_size,
                "agent_pid": self._people.agent,
                "observer_pids": list(self._people.observers),
                "processes": self._world.world_size,
                "memory_bytes": memory,
                "policy": "network" if fixed is None else f"fixed {fixed:g} ms",
                "versions": self._backend.versions,
                "raw": str(self._raw.relative_to(self._runner.folder.path)),
            },
            seconds={
                "total": round(taken_s + warmup.seconds, 4),
                "world": self._people.seconds,
                "warmup": warmup.seconds,
                "measured": round(sum(episodes.spans_s), 6),
            },
            flags={"interrupted": True} if broken else {},
        )

    def _interrupted(self, done: str) -> Failure:
        planned = self._planned
        return Failure(
            "trial",
            f"interrupted {done}",
            now_iso(),
            key=planned.key,
            launch=str(self._number),
            variant=planned.variant,
            round=planned.round,
            cell=planned.cell,
            row=planned.row,
        )

    def _say(self, phase: str, rate: float | None) -> None:
        spent_s = sum(self._episodes.spans_s)
        self._runner._say(self._launch, self._planned, phase, rate, spent_s)


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
