"""Both sides of a round of `serve-bench versus`: started and deployed on at the same time.

So they are treated alike, and up sooner: `default` and `optimized` in 11 to 12 s on a host with 2
cores (two rounds), where one after the other took 7.5 and 11.5 s. Rule: what fails is told to the
runner, which records it; whatever happens, nothing is up that is not in an `Up` which the runner
takes down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from serve_bench.benchmarks.versus.at_once import at_once
from serve_bench.benchmarks.versus.request import Side
from serve_bench.core.result import Deploy, Launch
from serve_bench.core.scenario import Cell, Suite
from serve_bench.serving.server import Deployed, LaunchFailed, Serving
from serve_bench.store.clock import now_iso

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
