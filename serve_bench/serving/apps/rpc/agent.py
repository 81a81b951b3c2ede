"""What an agent does, whatever carries the calls: the policy, and how long each selection took.

Rule: one policy, one clock. An agent latency is the time from the first `select_action` that the
agent took up for a batch until an action is selected for each request in it (as PyTorch's benchmark
defines it). A request that waits while the agent is busy with another is not taken up yet.
Times are ns of `time.perf_counter_ns`, which all processes of a Linux host share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

now_ns = time.perf_counter_ns


class FixedPolicy:
    """Takes a fixed time and selects action 0: a known answer to check the benchmark with."""

    def __init__(self, ms: float) -> None:
        self._s = ms / 1e3

    def select(self, states: Sequence[Any]) -> list[int]:
        """An action for each state, after the fixed time."""
        time.sleep(self._s)
        return [0] * len(states)


class NetworkPolicy:
    """State flattened, a linear layer to `out_features`, then `nlayers` more of that width; the
    action is drawn from their softmax. Weights are seeded; nothing is learnt."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        import torch

        torch.manual_seed(int(spec["seed"]))
        torch.set_num_threads(int(spec["threads"]))
        width = int(spec["out_features"])
        flat = math.prod(int(one) for one in spec["state_size"])
        layers = [torch.nn.Linear(flat, width)]
        layers += [torch.nn.Linear(width, width) for _ in range(int(spec["nlayers"]))]
        self._torch = torch
        self._device = torch.device(spec["device"])
        self._model = torch.nn.Sequential(torch.nn.Flatten(), *layers).to(self._device)
        self.select([torch.zeros(*spec["state_size"])])  # what is made at the first call is made

    def select(self, states: Sequence[Any]) -> list[int]:
        """An action for each state; tensors or arrays of `state_size`, float32."""
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
        """An action for each state of a batch whose first request was taken up at `first_ns`."""
        if len(states) != self.batch_size:
            raise RuntimeError(f"a batch of {len(states)}, it takes {self.batch_size}")
        actions = self._policy.select(states)
        self._latency_ns.append(now_ns() - first_ns)
        return actions

    def take_latencies(self) -> list[int]:
        """The latencies since this was last asked, in the order of the batches."""
        taken, self._latency_ns = self._latency_ns, []
        return taken
