"""The agent and the observers of all backends, and what all worlds have in common.

Rule: one policy, one clock. An agent latency is the time from the first `select_action` that the
agent took up for a batch until an action is selected for each request in it (as PyTorch's benchmark
defines it). A request that waits while the agent is busy with another is not taken up yet. The
latency of an observer's call is taken around the call alone; the next state is made outside.
Times are ns of `time.perf_counter_ns`, which all processes of a Linux host share.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from .. import of_cluster

now_ns = time.perf_counter_ns


class FixedPolicy:
    """A policy that takes a fixed time and selects action 0: a known answer for checks."""

    def __init__(self, ms: float) -> None:
        self._s = ms / 1e3

    def select(self, states: Sequence[Any]) -> list[int]:
        """Return an action for each state, after the fixed time."""
        time.sleep(self._s)
        return [0] * len(states)


class NetworkPolicy:
    """A policy of linear layers: the flattened state to `out_features`, then `nlayers` more.

    The action is drawn from their softmax. Weights are seeded; nothing is learnt.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        import torch

        torch.manual_seed(int(spec["seed"]))
        torch.set_num_threads(int(spec["threads"]))
        width = int(spec["out_features"])
        flat = math.prod(int(size) for size in spec["state_size"])
        layers = [torch.nn.Linear(flat, width)]
        layers += [torch.nn.Linear(width, width) for _ in range(int(spec["nlayers"]))]
        self._torch = torch
        self._device = torch.device(spec["device"])
        self._model = torch.nn.Sequential(torch.nn.Flatten(), *layers).to(self._device)
        self.select([torch.zeros(*spec["state_size"])])  # warms up what a first call would make

    def select(self, states: Sequence[Any]) -> list[int]:
        """Return an action for each state; tensors or arrays of `state_size`, float32."""
        torch = self._torch
        with torch.inference_mode():
            if isinstance(states[0], torch.Tensor):
                batch = torch.stack(list(states))
            else:
                import numpy

                batch = torch.from_numpy(numpy.stack(states))  # a copy: those of Ray are read-only
            scores = self._model(batch.to(self._device))
            drawn = torch.multinomial(torch.softmax(scores, dim=1), 1)
            actions: list[int] = drawn[:, 0].tolist()
        return actions


class Agent:
    """The policy with its times. `batch_size`: requests of a batch; 1 where each is alone."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        fixed = spec.get("policy_ms")
        self.batch_size = int(spec["observers"]) if spec["batch"] else 1
        self._policy = NetworkPolicy(spec) if fixed is None else FixedPolicy(float(fixed))
        self._latency_ns: list[int] = []

    def select(self, states: Sequence[Any], first_ns: int) -> list[int]:
        """Return an action for each state of a batch that was begun at `first_ns`."""
        if len(states) != self.batch_size:
            raise RuntimeError(f"a batch of {len(states)}, it takes {self.batch_size}")
        actions = self._policy.select(states)
        self._latency_ns.append(now_ns() - first_ns)
        return actions

    def take_latencies(self) -> list[int]:
        """Return the latencies (ns) since the last call, in the order of the batches."""
        taken, self._latency_ns = self._latency_ns, []
        return taken


def episode(select_action: Callable[[Any], int], state: Callable[[], Any], steps: int) -> Any:
    """Call `steps` times in a row; return first begin, last end and each latency, ns."""
    latency_ns = []
    began_ns = now_ns()
    for _ in range(steps):
        now = state()
        sent_ns = now_ns()
        select_action(now)
        latency_ns.append(now_ns() - sent_ns)
    return {"began_ns": began_ns, "ended_ns": now_ns(), "latency_ns": latency_ns}


# Worlds: the names of calls that failed and of processes that ended.

PARENT = 0
"""Descriptor of the parent's commands; it sends none while one is in progress, so it is readable
only when the parent has gone."""


one_line: Callable[[BaseException], str] = of_cluster("actors").one_line
Refused: Any = of_cluster("actors").Refused


class Broken(Refused):  # type: ignore[misc]  # of the program of the cluster
    """A world cannot go on: one line that names the process."""


class RpcWorld(ABC):
    """One agent and its observers, up and connected, with their pids by rank."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec, self._pids = dict(spec), dict[int, int]()

    def people(self) -> dict[str, Any]:
        """Return the pids of the `agent` and of the `observers`, in their order."""
        agent, *observers = self._pids.values()
        return {"agent": agent, "observers": observers}

    @abstractmethod
    def episode(self, steps: int) -> dict[str, Any]:
        """Let all observers call at once, `steps` times each. Raises Broken."""

    @abstractmethod
    def stop(self) -> None:
        """End all processes of the world."""


def ended(rank: int, pid: int | None, how: str) -> Broken:
    """Say that a process is missing. Rank 0 is the agent, the others are observers."""
    whose = "" if pid is None else f" (pid {pid})"
    return Broken(f"{f'observer {rank}' if rank else 'the agent'}{whose} {how}")


def stopped(pids: Mapping[int, int]) -> Broken | None:
    """Say which process, first by rank, a signal has stopped: the others waited for it.

    None where all run, or where the system does not say.
    """
    for rank in sorted(pids):
        try:
            with open(f"/proc/{pids[rank]}/stat", encoding="ascii", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "T":
            return ended(rank, pids[rank], "is stopped by a signal; others waited for it")
    return None


def figures(agent_ns: Sequence[int], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an episode as it goes to the parent; `reports` by the observers in their order."""
    return {
        "agent_ns": list(agent_ns),
        "observer_ns": [report["latency_ns"] for report in reports],
        "began_ns": min(report["began_ns"] for report in reports),
        "ended_ns": max(report["ended_ns"] for report in reports),
    }


end_launch: Callable[[], NoReturn] = of_cluster("ending").become
"""Go on as the program of the cluster that ends a launch: the parent has gone, and its warden may
have."""
