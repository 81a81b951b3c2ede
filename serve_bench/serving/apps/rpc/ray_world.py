"""A world of Ray actors: an asynchronous one is the agent, synchronous ones observe.

Rule: what an actor does stands in agent.py; here is only how the call gets there.
Observers import no torch: a state is an array, as Ray carries it best.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Mapping
from typing import Any

import numpy
import ray

from .agent import (
    PARENT,
    Agent,
    Broken,
    RpcWorld,
    end_launch,
    ended,
    episode,
    figures,
    now_ns,
    one_line,
    stopped,
)

LOOK_S = 0.2


class AsyncAgent:
    """What the agents of Ray and of Serve share: their calls take turns on one event loop."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._agent = Agent(spec)

    async def select_action(self, state: Any) -> int:
        """Select an action for one request by itself."""
        return self._agent.select([state], now_ns())[0]

    async def take_latencies(self) -> list[int]:
        """Return the latencies (ns) since the last call."""
        return self._agent.take_latencies()

    async def pid(self) -> int:
        """Return the pid of the process."""
        return os.getpid()


@ray.remote(num_cpus=0, max_restarts=0)
class RayAgent(AsyncAgent):
    """The agent as an asynchronous actor."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__(spec)
        self._waiting: list[tuple[Any, asyncio.Future[int]]] = []
        self._first_ns = 0

    async def select_in_batch(self, state: Any) -> int:
        """Wait until the batch holds a request of each observer; the last one to come runs it."""
        mine: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._first_ns = now_ns()
        self._waiting.append((state, mine))
        if len(self._waiting) == self._agent.batch_size:
            taken, self._waiting = self._waiting, []
            actions = self._agent.select([state for state, _ in taken], self._first_ns)
            for (_, future), action in zip(taken, actions, strict=True):
                future.set_result(action)
        return await mine


@ray.remote(num_cpus=0, max_restarts=0)
class RayObserver:
    """An observer that calls the agent as an actor, or by its handle of Serve."""

    def __init__(self, spec: Mapping[str, Any], rank: int, agent: Any) -> None:
        self._drawn = numpy.random.default_rng([int(spec["seed"]), rank])
        self._size = tuple(map(int, spec["state_size"]))
        self._timeout_s = float(spec["timeout_s"])
        self._agent = agent  # older Rays keep but a weak reference to it in its methods
        self._method = agent.select_in_batch if spec["batch"] else agent.select_action

    def pid(self) -> int:
        """Return the pid of the actor's process."""
        return os.getpid()

    def episode(self, steps: int) -> Any:
        """Call the agent `steps` times in a row."""
        return episode(self._ask, lambda: self._drawn.random(self._size, numpy.float32), steps)

    def _ask(self, state: Any) -> int:
        answer = self._method.remote(state)
        if isinstance(answer, ray.ObjectRef):
            return int(ray.get(answer, timeout=self._timeout_s))
        return int(answer.result(timeout_s=self._timeout_s))


class RayWorld(RpcWorld):
    """The actors of one world; made by starting them."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__(spec)
        self._observers: list[Any] = []
        self._agent = self._start_agent()
        self._pids[0] = int(self._ask_agent("pid"))
        ranks = range(1, int(spec["observers"]) + 1)
        self._observers = [RayObserver.remote(self._spec, rank, self._agent) for rank in ranks]
        pids = self._gathered([observer.pid.remote() for observer in self._observers])
        self._pids.update(zip(ranks, pids, strict=True))

    def episode(self, steps: int) -> dict[str, Any]:
        reports = self._gathered([observer.episode.remote(steps) for observer in self._observers])
        return figures(self._ask_agent("take_latencies"), reports)

    def stop(self) -> None:
        for actor in (*self._observers, self._agent):
            ray.kill(actor)

    def _start_agent(self) -> Any:
        return RayAgent.remote(self._spec)

    def _ask_agent(self, method: str) -> Any:
        return self._gathered([getattr(self._agent, method).remote()], first=0)[0]

    def _gathered(self, references: list[Any], first: int = 1) -> list[Any]:
        """Return all answers in their order; one that failed breaks the world at once.

        `first` is the rank of the first.
        """
        answers: dict[Any, Any] = {}
        left = list(references)
        while left:
            done, left = ray.wait(left, num_returns=1, timeout=LOOK_S)
            self._look()
            for reference in done:
                rank = first + references.index(reference)
                try:
                    answers[reference] = ray.get(reference, timeout=0)
                except ray.exceptions.RayTaskError as error:
                    # First: one that tells of a dead agent is a RayActorError as well.
                    raise self._failed(rank, error) from None
                except ray.exceptions.RayActorError:
                    raise ended(rank, self._pids.get(rank), "ended") from None
        return [answers[reference] for reference in references]

    def _look(self) -> None:
        """End the launch if the parent has gone; raise Broken if the agent's process has."""
        if select.select([PARENT], [], [], 0)[0]:
            end_launch()
        pid = self._pids.get(0)
        if pid is not None:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                # Serve would start another in its place, and only make the calls wait.
                raise ended(0, pid, "ended") from None

    def _failed(self, rank: int, error: Any) -> Broken:
        """Explain a call that failed. Where the agent has ended, the observer is not to blame."""
        cause = getattr(error, "cause", None)
        if rank != 0 and isinstance(cause, ray.exceptions.RayActorError):
            return ended(0, self._pids[0], "ended")
        if isinstance(cause, (ray.exceptions.GetTimeoutError, TimeoutError)):
            how = f"waited {self._spec['timeout_s']:g} s for an action"
            return stopped(self._pids) or ended(rank, self._pids.get(rank), how)
        return ended(rank, self._pids.get(rank), f"failed: {one_line(cause or error)}")
