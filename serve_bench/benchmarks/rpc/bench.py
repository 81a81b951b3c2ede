"""The bench of `serve-bench rpc`: a backend, with one world after the other on it.

A world is a cell with one row: warm-up, then episodes. Rule: an episode that broke off is no part
of the trial; the whole ones before it are, marked. Every latency stands in a separate file.
apps/rpc is the program of the processes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from serve_bench.analysis.statistics import LATENCY, MAIN
from serve_bench.benchmarks.rpc.backend import RpcBackend
from serve_bench.benchmarks.rpc.latencies import Episodes
from serve_bench.benchmarks.rpc.spec import RpcSpec, World, x_of
from serve_bench.core.facts import ClientFacts, TrialFlags, TrialSeconds
from serve_bench.core.figures import counted
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.plan import PlannedCell
from serve_bench.core.result import Deploy, PlannedTrial, Trial
from serve_bench.core.schema import built
from serve_bench.core.traffic import Row
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler
from serve_bench.runner.agenda import ListedBench
from serve_bench.runner.runner import CellOver, Fault, Loaded, Part
from serve_bench.serving.server import LaunchFailed
from serve_bench.serving.strays import Reaped
from serve_bench.store import StoreError, now_iso

RAW_FOLDER: Final = "rpc"

STEADY: Final = 0.15
"""A warm-up has settled when its last two episodes differ by no more in their rate."""

Broke: TypeAlias = LaunchFailed | StoreError | KeyboardInterrupt
"""What ends the episodes of a world before their time."""


class RpcBench(ListedBench[RpcSpec]):
    """A launch of a backend."""

    def __post_init__(self) -> None:
        super().__post_init__()
        about = self.suite, self.run_id, self.part.number, self.log
        self._backend = RpcBackend(self.part.variant.name, *about)

    def start(self) -> None:
        """Start the program, which is proven at once."""
        backend = self._backend
        self.journal.say(f"starting {backend.backend}")
        backend.start()
        proof = {"versions": backend.versions, "master_port": backend.port}
        self.journal.append(self.part.record({"start": backend.start_s}, proof))

    def put(self, cell: PlannedCell) -> None:
        """Start the processes of a world. Raises CellOver."""
        settings, (self._planned,) = cell
        self._world = built(World, settings, "cell")
        self._say(f"starting {self._world.world_size} processes")
        try:
            pids = self._pids = self._backend.world(self._world)
        except LaunchFailed as error:
            self.journal.fail(Fault("deploy", error, self.part, self._planned))
            raise CellOver(str(error)) from None
        proof = {
            "agent": pids.agent,
            "observers": list(pids.observers),
            "open_to_network": self._backend.open_to_network(),
        }
        number, label = self.part.number, self._planned.cell
        self.journal.append(Deploy(number, label, pids.seconds, False, proof))
        self._say(f"agent is pid {pids.agent}")

    def load(self, row: PlannedTrial) -> Loaded:
        """Warm up and run episodes; return the trial of the whole ones, and what broke the rest."""
        self._episodes = Episodes(self._world.batch_size)
        self._raw = _raw_file(self.folder, row.key)
        try:
            trial, broken = self._measure(row)
        except LaunchFailed as error:  # in the warm-up
            return Loaded(faults=(Fault("trial", error, self.part, row),))
        trials = () if trial is None else (trial,)
        after = f"after {counted(len(self._episodes.windows[MAIN]), 'episode')}"
        if isinstance(broken, LaunchFailed):
            why = LaunchFailed(f"{broken}, {after}", broken.detail, broken.log)
            return Loaded(trials, (Fault("trial", why, self.part, row),))
        interrupted = Fault("trial", f"interrupted {after}", self.part, row)
        faults = (interrupted,) if isinstance(broken, KeyboardInterrupt) else ()
        return Loaded(trials, faults, broken)

    def check(self) -> None:
        """Raise LaunchFailed if the program has ended."""
        if not self._backend.alive():
            raise LaunchFailed("the rpc program ended", (), self._backend.log)

    def leave(self, cell: PlannedCell, whole: bool) -> Fault | None:
        """End the processes of the world."""
        try:
            if whole:
                self._backend.end_world()
        except LaunchFailed as error:
            return Fault("deploy", error, self.part, self._planned)
        return None

    def close(self, part: Part) -> Reaped:
        return self._backend.close()

    def _measure(self, planned: PlannedTrial) -> tuple[Trial | None, Broke | None]:
        """Return the trial of the whole episodes, if any, and what broke the rest."""
        warmup = self._warm_up()  # what breaks it is raised
        started_at, began_ns, began_s = now_iso(), time.time_ns(), time.monotonic()
        broken: Broke | None = None
        sampler = Sampler(self._backend.processes()) if self.suite.sample else None
        with sampler or nullcontext():
            try:
                while not self._is_enough(time.monotonic() - began_s):
                    self._episode()
            except (LaunchFailed, StoreError, KeyboardInterrupt) as error:
                broken = error
            taken_s = time.monotonic() - began_s
            memory = self._backend.memory_bytes() if broken is None else None
        if not self._episodes.windows[MAIN]:
            return None, broken
        trial = self._trial(started_at, warmup, taken_s, memory, broken is not None)
        if sampler is not None:
            trial = replace(trial, usage=sampler.summary(began_ns, taken_s))
            try:
                keep_samples(self.folder, sampler.samples(planned.key))
            except StoreError as error:
                broken = broken or error
        return trial, broken

    def _warm_up(self) -> Warmup:
        """Run episodes that are not counted, until two in a row have about one rate."""
        began_s, calls, steady = time.monotonic(), 0, False
        rates: list[float] = []
        while len(rates) < 2 or not (steady or time.monotonic() - began_s > self.suite.warmup_s):
            self._report("warm-up", rates)
            episodes = Episodes(self._world.batch_size)
            episodes.add(self._backend.episode())
            calls += episodes.times[LATENCY].count
            rates += episodes.windows[MAIN]
            steady = len(rates) > 1 and abs(rates[-1] / rates[-2] - 1) <= STEADY
        return Warmup(round(time.monotonic() - began_s, 4), steady, calls)

    def _is_enough(self, spent_s: float) -> bool:
        suite, done = self.suite, len(self._episodes.windows[MAIN])
        late = suite.seconds is not None and spent_s >= suite.seconds
        return done >= suite.episodes or (done > 0 and late)

    def _episode(self) -> None:
        """Run an episode, and append its latencies to the raw file. Raises StoreError."""
        number, suite = len(self._episodes.windows[MAIN]) + 1, self.suite
        total = "" if suite.seconds is not None else f" of {suite.episodes:,}"
        self._report(f"episode {number}{total}", self._episodes.windows[MAIN])
        episode = self._backend.episode()
        line = {
            "trial": self._planned.key,
            "episode": number,
            "batch_size": self._world.batch_size,
            "began_ns": episode["began_ns"],
            "ended_ns": episode["ended_ns"],
            "agent_latency_ns": episode["agent_ns"],
            "observer_latency_ns": episode["observer_ns"],
        }
        try:
            with self._raw.open("a", encoding="ascii") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{self._raw}: cannot write: {why}") from None
        self._episodes.add(episode)

    def _trial(
        self, started_at: str, warmup: Warmup, taken_s: float, memory: int | None, broken: bool
    ) -> Trial:
        """Return the trial of the whole episodes so far."""
        episodes, planned, pids = self._episodes, self._planned, self._pids
        calls, fixed = episodes.times[LATENCY].count, self.suite.policy_ms
        return Trial(
            **vars(planned),
            launch=self.part.number,
            started_at=started_at,
            window_s=sum(episodes.spans_s) / len(episodes.spans_s),
            warmup=warmup,
            metrics=episodes.metrics(),
            counts=Counts(sent=calls, completed=calls, failed={}, in_flight=0),
            client=ClientFacts(
                batch_size=self._world.batch_size,
                agent_pid=pids.agent,
                observer_pids=tuple(pids.observers),
                processes=self._world.world_size,
                memory_bytes=memory,
                policy="network" if fixed is None else f"fixed {fixed:g} ms",
                versions=self._backend.versions,
                raw=str(self._raw.relative_to(self.folder)),
            ),
            seconds=TrialSeconds(
                total=round(taken_s + warmup.seconds, 4),
                world=pids.seconds,
                warmup=warmup.seconds,
                measured=round(sum(episodes.spans_s), 6),
            ),
            flags=TrialFlags(interrupted=broken),
        )

    def _report(self, phase: str, rates: Sequence[float]) -> None:
        text = f"agent pid {self._pids.agent}, {phase}"  # for whoever wants to profile it
        self._say(text, self._planned.row, rates[-1] if rates else None)

    def _say(self, phase: str, row: Row | None = None, rate: float | None = None) -> None:
        axis = self.suite.x_axis
        self.journal.say(f"{axis} {x_of(self._planned.cell, axis)}: {phase}", row=row, rate=rate)


def _raw_file(folder: Path, key: str) -> Path:
    """Name a new file for every latency of a trial; one of an earlier sitting stays."""
    place = folder / RAW_FOLDER
    place.mkdir(exist_ok=True)
    stem, number = re.sub(r"[^A-Za-z0-9=.-]+", "_", key), 1
    while (file := place / f"{stem}{'' if number == 1 else f'-{number}'}.jsonl").exists():
        number += 1
    return file
