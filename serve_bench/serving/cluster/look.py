"""What requests in the replicas wait in, sampled by a thread inside each replica.

`begin` starts that thread in every replica, `end` takes its samples between two moments. A sample
holds the requests in progress, the line of the app at which each waits and what it awaits there,
threads of the app that work, and the queues of `serve.batch`. Rule: it runs beside a load that is
not measured; it reads tasks and frames of the interpreter and changes nothing of the app. As in
actors.py, all of this travels into the replica by value.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import AsyncGeneratorType
from typing import Any

import actors

#: Seconds between two samples. A sample of 100 requests takes 1 to 2 ms of the interpreter.
PERIOD_S = 0.05

#: More tasks than these are not followed; shares are of those that are.
MOST_TASKS = 400

#: Places kept of a replica, those with most requests.
MOST_PLACES = 8

#: The thread ends by itself after these seconds.
LONGEST_S = 60.0

Place = tuple[str, str, str]  # what is awaited, the app's line "shop.py:31", its function


def begin() -> None:
    """Starts the thread in every replica."""
    _ask_all(_begin)


def end(from_ns: int, to_ns: int) -> list[dict[str, Any]]:
    """The samples of every replica between two moments (time.time_ns), by deployment and pid."""

    def ended(replica: Any) -> dict[str, Any]:
        return _end(replica, from_ns, to_ns)

    looks = _ask_all(ended)
    return sorted(looks, key=lambda one: (one["deployment"], one["pid"]))


def _ask_all(question: Any) -> list[dict[str, Any]]:
    """The answers of the replicas that run; one that ends meanwhile has none."""
    running = actors.running_replicas()
    references = [
        actors.put(question, actor) for name, actor in actors.serve_actors() if name in running
    ]
    answers = actors.answers(references)
    return [one for one in answers if one and not isinstance(one, Exception)]


# ------------------------------------------------------------------------ inside a replica


def _begin(replica: Any) -> None:
    """Runs inside a replica."""
    replica._serve_bench_look = LookThread(getattr(replica, "_replica_impl", replica))
    replica._serve_bench_look.start()


def _end(replica: Any, from_ns: int, to_ns: int) -> dict[str, Any]:
    """Runs inside a replica: empty where nothing was begun in it."""
    look = getattr(replica, "_serve_bench_look", None)
    if look is None:
        return {}
    del replica._serve_bench_look
    look.stopped.set()
    look.join(1.0)
    return dict(look.seen(from_ns, to_ns))


class LookThread(threading.Thread):
    """The sampling thread of one replica. `taken`: its samples, each with its time."""

    def __init__(self, inner: Any) -> None:
        super().__init__(daemon=True, name="serve-bench look")
        self.stopped = threading.Event()
        self._inner = inner
        self._loop = inner._user_callable_wrapper.event_loop
        self._loop_ident: int | None = None
        self._metrics = inner._metrics_manager
        self._served: list[tuple[int, float]] = []  # (at, ms)
        self.taken: list[dict[str, Any]] = []

    def run(self) -> None:
        """Takes samples until it is stopped."""
        former = getattr(self._metrics, "record_request_metrics", None)
        if former is not None:
            self._metrics.record_request_metrics = self._counted(former)
        try:
            began = time.monotonic()
            self._loop.call_soon_threadsafe(self._note_thread)
            while not self.stopped.wait(PERIOD_S) and time.monotonic() - began < LONGEST_S:
                self.taken.append(self._now())
        finally:
            if former is not None:
                del self._metrics.record_request_metrics

    def _note_thread(self) -> None:
        """Runs in the loop of the app, and notes the loop's thread."""
        self._loop_ident = threading.get_ident()

    def _counted(self, former: Any) -> Any:
        """Wraps Serve's own note of an answered request, and keeps time and latency."""

        def record(*args: Any, **kwargs: Any) -> Any:
            latency_ms = kwargs.get("latency_ms", 0.0)
            self._served.append((time.time_ns(), float(latency_ms)))
            return former(*args, **kwargs)

        return record

    def seen(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        """The sum of all samples between two moments."""
        taken = [one for one in self.taken if from_ns <= one["at_ns"] <= to_ns]
        served = [ms for at, ms in self._served if from_ns <= at <= to_ns]
        config, identity = self._inner._deployment_config, self._inner._deployment_id
        count = len(taken) or 1
        places: Counter[Place] = Counter()
        own: Counter[Place] = Counter()
        loop: Counter[str] = Counter()
        threads: Counter[tuple[str, str, str]] = Counter()
        pools: dict[str, list[tuple[int, int]]] = {}
        batches: dict[str, list[dict[str, Any]]] = {}
        for one in taken:
            places.update(one["places"])
            own.update(one["own"])
            threads.update(one["threads"])
            if one["loop"]:
                loop[one["loop"]] += 1
            for name, counts in one["pools"].items():
                pools.setdefault(name, []).append(counts)
            for name, state in one["batches"].items():
                batches.setdefault(name, []).append(state)
        return {
            "pid": os.getpid(),
            "app": identity.app_name,
            "deployment": identity.name,
            "looks": len(taken),
            "max_ongoing": config.max_ongoing_requests,
            "ongoing": _mean([one["ongoing"] for one in taken]),
            "served": len(served),
            "mean_ms": _mean(served) if served else None,
            "requests": sum(places.values()) / count,
            "places": _ranked(places, count),
            "own": _ranked(own, count),
            "loop": [[at, times / count] for at, times in loop.most_common(3)],
            "threads": _ranked(threads, count),
            "pools": {
                name: {
                    "threads": max(threads for threads, _ in every),
                    "working": sum(working for _, working in every) / count,
                    "full": sum(working >= threads for threads, working in every) / count,
                }
                for name, every in pools.items()
            },
            "batches": {
                name: {
                    "most": every[-1]["most"],
                    "wait_s": every[-1]["wait_s"],
                    "waiting": sum(one["waiting"] for one in every) / count,
                    "running": sum(one["running"] > 0 for one in every) / count,
                    "held": sum(one["held"] for one in every) / count,
                }
                for name, every in batches.items()
            },
        }

    def _now(self) -> dict[str, Any]:
        """One sample."""
        places: Counter[Place] = Counter()
        own: Counter[Place] = Counter()
        batches: dict[str, Any] = {}
        for task in list(_tasks(self._loop))[:MOST_TASKS]:
            frames = list(_frames(task.get_coro()))
            in_batch = next((one for one, name in frames if name.startswith("_BatchQueue.")), None)
            if in_batch is not None and "self" in in_batch.f_locals:
                _add_batch(batches, in_batch.f_locals["self"], frames)
            place = _place(frames)
            if place is not None:
                request = in_batch is None and any(_is_serve(one) for one in frames)
                (places if request else own)[place] += 1
        stacks = sys._current_frames()
        names = {one.ident: one.name for one in threading.enumerate()}
        threads: Counter[tuple[str, str, str]] = Counter()
        pools: dict[str, tuple[int, int]] = {}
        loop = ""
        for ident, top in stacks.items():
            name = names.get(ident, "")
            if ident == threading.get_ident():
                continue
            at = _app_line(top)
            if ident == self._loop_ident:
                loop = at[1] if at else ""
                continue
            pool = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
            if name.startswith("AnyIO") or _of_a_pool(top):
                working = at is not None or (_of_a_pool(top) and top.f_code.co_name != "_worker")
                known, worked = pools.get(pool, (0, 0))
                pools[pool] = (known + 1, worked + working)
            if at is not None:
                threads[(pool, *at[1:])] += 1
        return {
            "at_ns": time.time_ns(),
            "ongoing": self._inner.get_num_ongoing_requests(),
            "places": places,
            "own": own,
            "loop": loop,
            "threads": threads,
            "pools": pools,
            "batches": batches,
        }


def _tasks(loop: Any) -> Iterator[Any]:
    """The tasks of a loop, from another thread: the set may change while it is copied."""
    try:
        yield from asyncio.all_tasks(loop)
    except RuntimeError:
        return


def _frames(awaited: Any) -> Iterator[tuple[Any, str]]:
    """From a task's coroutine to the innermost that it awaits: frames, with qualified names."""
    while awaited is not None:
        frame = next(
            (
                value
                for name in ("cr_frame", "gi_frame", "ag_frame")
                if (value := getattr(awaited, name, None)) is not None
            ),
            None,
        )
        if frame is not None:
            yield frame, str(getattr(awaited, "__qualname__", ""))
        awaited = next(
            (
                value
                for name in ("cr_await", "gi_yieldfrom", "ag_await")
                if (value := getattr(awaited, name, None)) is not None
            ),
            None,
        )
        if type(awaited).__name__.startswith("async_generator_"):  # a step of one, which hides it
            held = gc.get_referents(awaited)
            awaited = next((one for one in held if isinstance(one, AsyncGeneratorType)), None)


def _is_serve(frame: tuple[Any, str]) -> bool:
    return "/ray/serve/" in frame[0].f_code.co_filename


def _is_app(file: str) -> bool:
    """Whether a file is of the app: neither of a package nor of Python itself."""
    library = os.path.dirname(os.__file__)
    parts = ("/site-packages/", "/dist-packages/", "/ray/serve/", "/ray/_private/")
    of_others = file.startswith(library) or any(one in file for one in parts)
    return os.path.isabs(file) and not of_others  # else it is made up, or compiled (grpc)


def _line(frame: Any, line: int | None = None) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{line or frame.f_lineno}"


def _place(frames: list[tuple[Any, str]]) -> Place | None:
    """Where a task waits: the app's innermost line, and what is awaited there. None for a task in
    which neither the app nor a request is."""
    at = max(
        (n for n, (frame, _) in enumerate(frames) if _is_app(frame.f_code.co_filename)), default=-1
    )
    if at < 0:
        inside = [n for n, one in enumerate(frames) if _is_serve(one)]
        handed = [name for _, name in frames if name in IN_REQUEST]
        if not handed or not inside:
            return None
        return (_called(frames[inside[-1] + 1 :][::-1]), "", "")
    frame, name = frames[at]
    return (_called(frames[at + 1 :]), _line(frame), name)


#: Serve's own coroutines that run code of the app for a request.
IN_REQUEST = (
    "UserCallableWrapper._call_http_entrypoint",
    "UserCallableWrapper.call_http_entrypoint",
    "UserCallableWrapper.call_user_method",
    "UserCallableWrapper._call_func_or_gen",
)


def _called(beyond: list[tuple[Any, str]]) -> str:
    """What is awaited beyond the app's line, `asyncio.Lock.acquire`: the first coroutine of a
    public name, with its package before it."""
    if not beyond:
        return "a future"
    public = (one for one in beyond if not any(part[:1] == "_" for part in one[1].split(".")))
    frame, name = next(public, beyond[0])
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if frame.f_code.co_filename.endswith("/ray/serve/batching.py"):
        return f"serve.batch {name}"
    return f"{package}.{name.replace('<locals>.', '')}" if package else name


def _app_line(top: Any) -> Place | None:
    """The innermost line of the app in a thread's stack, and what it calls there."""
    inner, frame = None, top
    while frame is not None:
        if _is_app(frame.f_code.co_filename):
            called = "" if inner is None else inner.f_code.co_name
            return (called, _line(frame), frame.f_code.co_name)
        inner, frame = frame, frame.f_back
    return None


def _of_a_pool(top: Any) -> bool:
    """Whether a thread is one of concurrent.futures; idle, `_worker` is its innermost frame."""
    frame = top
    while frame is not None:
        if frame.f_code.co_name == "_worker" and "concurrent/futures" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _add_batch(batches: dict[str, Any], of: Any, frames: list[tuple[Any, str]]) -> None:
    """Adds the state of a `serve.batch` queue, by the name of its function. `waiting`: a batch
    waits for more requests, and none is in work."""
    waiting_frames = [frame for frame, name in frames if name.endswith("wait_for_batch")]
    held = len(waiting_frames[0].f_locals.get("batch") or ()) if waiting_frames else 0
    free = getattr(getattr(of, "semaphore", None), "_value", 1)
    running = getattr(of, "max_concurrent_batches", 1) - free
    state = batches.setdefault(
        str(getattr(of, "_function_name", "")),
        {"most": of.max_batch_size, "wait_s": of.batch_wait_timeout_s, "held": 0},
    )
    state["held"] = max(state["held"], held + of.queue.qsize())
    state["running"] = running
    state["waiting"] = state["held"] > 0 and running <= 0


def _mean(values: Any) -> float | None:
    return sum(values) / len(values) if values else None


def _ranked(counts: Counter[tuple[str, str, str]], looks: int) -> list[list[Any]]:
    """The places with most requests: what, line, function, mean number of requests there."""
    return [[*place, number / looks] for place, number in counts.most_common(MOST_PLACES)]
