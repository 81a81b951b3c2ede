"""The app of `scripts/bench verdicts` and of tests/integration/test_planted.py: a known limit.

It runs in the replicas alone, so it imports only the standard library, ray, starlette and the
counter of serve-bench's own apps. What a request costs is a setting of the deployment
(user_config), changed in place; whether one stands in front is an argument, which starts all anew.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from ray import serve
from serve_bench_apps.tally import ReplicaTally, folders
from starlette.requests import Request
from starlette.responses import PlainTextResponse

QUIET = {"log_level": "WARNING", "enable_access_log": False}


#: Requests at once from which on a crowded server slows down.
CROWD = 8


def burn(ms: float) -> None:
    """Use `ms` of CPU of this thread, however long that takes."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        sum(range(200))


def is_first(file: str) -> bool:
    """Return whether this process is the one that made `file`: of several replicas, one."""
    try:
        os.symlink(str(os.getpid()), file)
    except FileExistsError:
        return os.readlink(file) == str(os.getpid())
    return True


@serve.deployment(name="Planted", logging_config=QUIET)
class Planted:
    """A deployment that answers "ok" after it has worked as set: by `how`, for `ms` ms."""

    def __init__(self) -> None:
        self._counts = ReplicaTally(folders()[0])
        self._config: dict[str, Any] = {}
        self._hot = False
        self._inside = 0

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Take all of user_config, without a restart."""
        self._config = config
        self._hot = config["how"] == "hot" and is_first(config["hot_file"])
        self._counts.make_room(int(config["max_batch_size"]))
        self._batched.set_max_batch_size(int(config["max_batch_size"]))
        self._batched.set_batch_wait_timeout_s(float(config["batch_wait_timeout_s"]))

    @serve.batch
    async def _batched(self, requests: list[int]) -> list[str]:
        self._counts.add(len(requests))
        return ["ok"] * len(requests)

    async def _work(self) -> None:
        how, ms = self._config["how"], self._config["ms"]
        if how == "burn" or self._hot:
            burn(ms)
        elif how in ("sleep", "hot"):
            await asyncio.sleep(ms / 1e3)
        elif how == "block":
            time.sleep(ms / 1e3)
        elif how == "batch":
            await self._batched(0)
        elif how in ("crowd", "queue"):
            await self._held(ms, worse=how == "crowd")

    async def _held(self, ms: float, worse: bool) -> None:
        """Wait as in a server with CROWD workers: more requests wait for one another ("queue")."""
        self._inside += 1  # "crowd": the more there are, the more each costs
        over = max(1.0, self._inside / CROWD)
        await asyncio.sleep(ms / 1e3 * (over * over if worse else over))
        self._inside -= 1

    async def __call__(self, request: Request) -> Any:
        self._counts.add(0)
        await self._work()
        return PlainTextResponse("ok")

    async def called(self) -> str:
        """Answer the deployment in front."""
        self._counts.add(0)
        await self._work()
        return "ok"

    def settings(self) -> dict[str, Any]:
        """Return what this replica uses now, for the proof."""
        return {
            "how": self._config["how"],
            "ms": self._config["ms"],
            "queue_max_batch_size": self._batched._get_max_batch_size(),
            "batch_wait_timeout_s": self._batched._get_batch_wait_timeout_s(),
        }


@serve.deployment(name="Front", logging_config=QUIET, max_ongoing_requests=1000)
class Front:
    """A deployment that hands each request on by a handle and waits for the answer."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def __call__(self, request: Request) -> Any:
        return PlainTextResponse(await self._handle.called.remote())


def build(args: dict[str, str]) -> Any:
    """Build the app. Args: front ("0" or "1")."""
    planted = Planted.bind()
    return Front.bind(planted) if args["front"] == "1" else planted
