"""A world on Serve: the agent is a deployment of one replica, observers call its handle.

They are Ray actors. With `batch` requests are collected by `serve.batch`, whose wait is as long as
a call may take: a batch is run when it is full, as on the other backends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray import serve

from .. import QUIET
from .agent import ended, now_ns, one_line
from .ray_world import AsyncAgent, RayWorld

APP = "rpc"


@serve.deployment(name="Agent")
class ServeAgent(AsyncAgent):
    """The agent as a replica."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__(spec)
        if spec["batch"]:
            self._collected.set_max_batch_size(self._agent.batch_size)
            self._collected.set_batch_wait_timeout_s(float(spec["timeout_s"]))

    async def select_in_batch(self, state: Any) -> int:
        """Wait until the batch holds a request of each observer."""
        action: int = await self._collected((state, now_ns()))
        return action

    @serve.batch
    async def _collected(self, requests: list[tuple[Any, int]]) -> list[int]:
        first_ns = min(taken_up for _, taken_up in requests)
        return self._agent.select([state for state, _ in requests], first_ns)


class ServeWorld(RayWorld):
    """A world of Ray actors whose agent is behind a handle."""

    def _start_agent(self) -> Any:
        # More than there are calls at once: a replica that is full makes the router pause.
        most = 2 * int(self._spec["observers"]) + 16
        agent = ServeAgent.options(
            num_replicas=1,
            max_ongoing_requests=most,
            # Where a world broke, calls of a batch that never fills would be waited for (20 s).
            graceful_shutdown_timeout_s=1.0,
            graceful_shutdown_wait_loop_s=0.1,
            ray_actor_options={"num_cpus": 0},
            logging_config=QUIET,
        )
        return serve.run(agent.bind(self._spec), name=APP, route_prefix=None)

    def _ask_agent(self, method: str) -> Any:
        timeout_s = float(self._spec["timeout_s"])
        try:
            answer = getattr(self._agent, method).remote().result(timeout_s=timeout_s)
            pid = self._agent.pid.remote().result(timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001 - Serve raises what the replica raised
            raise ended(0, self._pids.get(0), f"failed: {one_line(error)}") from None
        if pid != self._pids.get(0, pid):  # latencies are lost with the one that was there before
            how = f"ended; Serve has put another in its place (pid {pid})"
            raise ended(0, self._pids[0], how)
        return answer

    def stop(self) -> None:
        """End the observers and the deployment."""
        for observer in self._observers:
            ray.kill(observer)
        serve.delete(APP)
