"""The episodes of one world of `serve-bench rpc`, and the trial that they make.

Rule: an episode that broke off is no part of the trial; the whole ones before it are, marked. Every
latency stands in a file beside. Who starts worlds and keeps records is rpc_runner.py.
"""

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
from serve_bench.benchmarks.rpc.request import RpcSuite, World
from serve_bench.benchmarks.rpc.summary import Episodes
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.observing.inside import keep_samples
from serve_bench.observing.sampler import Sampler
from serve_bench.store import StoreError
from serve_bench.store.clock import now_iso

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
