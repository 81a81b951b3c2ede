"""The press service without a model: it reads the same JSON request, ranks nothing and answers
{"samples": N}. What the ranker costs is the difference. No torch and no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve

from .press_calls import deployment
from .press_samples import Samples
from .tally import SharedTally, folders


class Echo:
    """Answers with the number of samples; through serve.batch when max_batch_size is above 1."""

    def __init__(self) -> None:
        self._max_batch_size = 1
        self._counts = SharedTally(folders()[0])

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Takes max_batch_size and batch_wait_timeout_s from user_config, without a restart."""
        self._max_batch_size = int(config["max_batch_size"])
        self._counts.make_room(self._max_batch_size)
        self._batched.set_max_batch_size(self._max_batch_size)
        self._batched.set_batch_wait_timeout_s(float(config["batch_wait_timeout_s"]))

    @serve.batch
    async def _batched(self, requests: list[int]) -> list[int]:
        self._counts.add(len(requests))
        return requests

    async def __call__(self, payload: int) -> int:
        self._counts.add(0)
        if self._max_batch_size > 1:
            return int(await self._batched(payload))
        return payload

    def now(self, payload: int) -> int:
        """The same to several threads at once, without a batch."""
        self._counts.add(0)
        return payload

    def payload(self, samples: Samples) -> int:
        """How many there are: nothing is hashed."""
        return len(samples)

    def body(self, answer: int) -> bytes:
        """The number as JSON."""
        return b'{"samples": %d}' % answer

    def settings(self) -> dict[str, Any]:
        """What this replica uses now, for the proof."""
        return {
            "max_batch_size": self._max_batch_size,
            "queue_max_batch_size": self._batched._get_max_batch_size(),
            "batch_wait_timeout_s": self._batched._get_batch_wait_timeout_s(),
        }


def build(args: Mapping[str, Any]) -> Any:
    """The service. Args: those of press_calls.deployment."""
    return deployment(args, Echo)
