"""Loads an application through its handle: clients are coroutines of this process.

Rule: all of them run in one event loop that lives as long as the process, because a handle of a
Serve whose router has no thread of its own is bound to the loop that it was first used in. A wrong
answer is a failure of class "body", and no failure is a sample.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from asking import one_line

#: Lines about failures that are told.
EXAMPLES = 5

#: What Serve and Ray raise, by the name of the class, and the class of failure that it is.
CLASSES = {
    "BackPressureError": "backpressure",
    "DeploymentUnavailableError": "unavailable",
    "RayActorError": "replica",
    "ActorDiedError": "replica",
    "ActorUnavailableError": "replica",
    "RayTaskError": "error",
}


@dataclass
class Tally:
    """What came of the requests of a measured part: those sent in it, whenever they end. The
    windows count what ended in each; `late` ended behind the last. `flown_ns`: requests in flight
    times ns, over the windows. `censored_ns`: how long those were waited for that had a time-out.
    """

    begin_ns: int
    window_ns: int
    windows: list[int]
    latencies_ns: list[int] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    censored_ns: list[int] = field(default_factory=list)
    late: int = 0
    late_failed: int = 0
    flown_ns: int = 0


class Handles:
    """The loop, and the handles that were used in it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Drives the load of a row; what came of it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(_load(spec), self._loop).result()


async def _load(spec: dict[str, Any]) -> dict[str, Any]:
    from ray import serve

    # It asks the controller, and blocks meanwhile: in a thread, so that the loop goes on.
    loop = asyncio.get_running_loop()
    handle = await loop.run_in_executor(None, serve.get_app_handle, spec["app"])
    clients = [_Client(handle, spec) for _ in range(int(spec["clients"]))]
    warm = await _until(clients, spec, float(spec["warmup_s"]), 1)
    if spec.get("requests_each"):
        began_ns = time.monotonic_ns()
        tally = Tally(began_ns, 0, [])
        each = int(spec["requests_each"])
        await asyncio.gather(*(client.times(each, tally) for client in clients))
    else:
        tally = await _until(clients, spec, float(spec["window_s"]), int(spec["windows"]))
        began_ns = tally.begin_ns
    seconds, drained_s = (time.monotonic_ns() - began_ns) / 1e9, 0.0
    if tally.windows:
        windows_s = tally.window_ns * len(tally.windows) / 1e9
        seconds, drained_s = windows_s, max(0.0, seconds - windows_s)
    return {
        "seconds": seconds,
        "drained_s": drained_s,
        "windows": tally.windows,
        "latencies_ns": tally.latencies_ns,
        "completed": len(tally.latencies_ns),
        "failed": dict(tally.failed),
        "censored_ns": tally.censored_ns,
        "late": tally.late,
        "late_failed": tally.late_failed,
        "flown_ns": tally.flown_ns,
        "examples": tally.examples,
        "warmup_completed": len(warm.latencies_ns),
        "warmup_failed": sum(warm.failed.values()),
    }


async def _until(
    clients: list[_Client], spec: dict[str, Any], window_s: float, windows: int
) -> Tally:
    """All clients send for so many windows. A request that is under way at the end of them is
    waited for, up to its time-out: it counts as any other, but in no window."""
    tally = Tally(time.monotonic_ns(), int(window_s * 1e9), [0] * windows)
    await asyncio.gather(*(client.until_the_end(tally) for client in clients))
    return tally


class _Client:
    """Sends a request when the answer of the one before is there."""

    def __init__(self, handle: Any, spec: dict[str, Any]) -> None:
        self._handle, self._expect = handle, str(spec["expect"])
        self._timeout_s = float(spec["timeout_s"])

    async def times(self, count: int, tally: Tally) -> None:
        for _ in range(count):
            began = time.monotonic_ns()
            failure = await self._ask()
            _note(tally, failure, began, time.monotonic_ns())

    async def until_the_end(self, tally: Tally) -> None:
        end_ns = tally.begin_ns + tally.window_ns * len(tally.windows)
        while (began := time.monotonic_ns()) < end_ns:
            failure = await self._ask()
            now = time.monotonic_ns()
            _note(tally, failure, began, now)
            tally.flown_ns += min(now, end_ns) - began
            if now >= end_ns:
                tally.late += 1
                tally.late_failed += failure is not None
            elif failure is None:
                tally.windows[(now - tally.begin_ns) // tally.window_ns] += 1
            else:  # one that fails at once must not keep the loop to itself
                await asyncio.sleep(0)

    async def _ask(self) -> tuple[str, str] | None:
        """None when the answer is right; else the class of failure, and a line about it."""
        try:
            answer = await asyncio.wait_for(self._handle.remote(0), self._timeout_s)
        except (TimeoutError, asyncio.TimeoutError):  # noqa: UP041 - two before Python 3.11
            return "timeout", f"no answer in {self._timeout_s:g} s"
        except Exception as error:  # noqa: BLE001 - of any kind: it is a class of failure
            kinds = [kind.__name__ for kind in type(error).__mro__]
            named = next((CLASSES[kind] for kind in kinds if kind in CLASSES), "error")
            return named, one_line(error)
        if str(answer) == self._expect:
            return None
        return "body", f"answered {answer!r}, expected {self._expect}"


def _note(tally: Tally, failure: tuple[str, str] | None, began: int, now: int) -> None:
    if failure is None:
        tally.latencies_ns.append(now - began)
        return
    named, line = failure
    if named == "timeout":
        tally.censored_ns.append(now - began)
    tally.failed[named] += 1
    if line not in tally.examples and len(tally.examples) < EXAMPLES:
        tally.examples.append(line)
