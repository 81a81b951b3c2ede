"""What requests in the replicas wait for, sampled by a thread inside each replica.

The cluster's program calls `begin`, which starts the thread in each replica, and `end`, which sums
up its samples between two moments. A sample holds the requests in progress, the line of the app at
which each waits and what it awaits there, threads of the app that work, and queues of
`serve.batch`. Rule: it runs during a load that is not measured; it reads tasks and frames of the
interpreter and changes nothing of the app. As in actors.py, all of this goes into the replica by
value.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import AsyncGeneratorType
from typing import Any

import actors

#: Seconds between two samples. A sample of 100 requests takes 1 to 2 ms of the interpreter, behind
#: two middlewares of starlette, with three tasks each, up to 17 ms on a busy host.
PERIOD_S = 0.05

#: More tasks than these are not followed; shares are of those that are.
MOST_TASKS = 400

#: Places kept of a replica, those with most requests.
MOST_PLACES = 8

#: The thread ends by itself after these seconds.
LONGEST_S = 60.0

Place = tuple[str, str, str]  # what is awaited, the app's line "shop.py:31", its function
Frame = tuple[Any, str]  # the frame and its qualified name

#: The variable that holds the work of a pool's thread, by the function that takes it: first that of
#: concurrent.futures, whose futures CHAIN chains to those of asyncio, then that of anyio.
WORK = {"_worker": "work_item", "run": "future"}
CHAIN = "asyncio.futures"

HANDLE = "ray.DeploymentResponse"
"""What a call of another deployment awaits; the name of the called method follows it."""


def begin() -> None:
    """Start the sampling thread in every replica."""
    _ask_all(_begin)


def end(from_ns: int, to_ns: int) -> list[dict[str, Any]]:
    """Return each replica's samples between two moments (time.time_ns), by deployment and pid."""
    looks = _ask_all(_end, from_ns, to_ns)
    _add_calls(looks)
    return sorted(looks, key=lambda look: (look["deployment"], look["pid"]))


def _add_calls(looks: list[dict[str, Any]]) -> None:
    """Add to each replica behind the ingress the calls that a request makes to its deployment."""
    times: dict[tuple[str, str], dict[str, list[tuple[int, int]]]] = {}
    for look in looks:
        by_id = times.setdefault((look["app"], look["deployment"]), {})
        for request_id, *span in look.pop("answers"):  # of requests wholly within the look
            by_id.setdefault(request_id, []).append((span[0], span[1]))
    whole: dict[str, list[str]] = {}
    for app, deployment in {(look["app"], look["deployment"]) for look in looks if look["ingress"]}:
        answered = times[app, deployment].items()
        whole[app] = [name for name, spans in answered if len(spans) == 1]
    for look in looks:
        by_id, names = times[look["app"], look["deployment"]], whole.get(look["app"], [])
        calls = [] if look["ingress"] else [by_id[name] for name in names if name in by_id]
        if spent := sum(end - begin for spans in calls for begin, end in spans):
            look["calls"] = {
                "a_request": sum(map(len, calls)) / len(names),  # mean number
                "at_once": spent / sum(map(_sum_covered, calls)),  # in progress while any is
            }


def _sum_covered(spans: list[tuple[int, int]]) -> int:
    """Return the time in which any of these spans lies."""
    covered, until = 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, until))
        until = max(until, end)
    return covered


def _ask_all(question: Any, *about: Any) -> list[dict[str, Any]]:
    """Return the answers of the replicas that run; one that ends meanwhile gives none."""
    answers = actors.ask_all(actors.list_running().__contains__, question, *about)
    return [answer for answer in answers.values() if answer and not isinstance(answer, Exception)]


def _begin(replica: Any) -> None:
    """Start the thread; runs inside a replica."""
    replica._serve_bench_look = LookThread(getattr(replica, "_replica_impl", replica))
    replica._serve_bench_look.start()


def _end(replica: Any, from_ns: int, to_ns: int) -> dict[str, Any]:
    """Stop the thread and return its samples; runs inside a replica."""
    if (look := vars(replica).pop("_serve_bench_look", None)) is None:
        return {}  # nothing was begun in it
    look.stopped.set()
    look.join(1.0)
    return dict(look.sum_up(from_ns, to_ns))


class LookThread(threading.Thread):
    """The sampling thread of one replica. `taken`: its samples, each with its time."""

    def __init__(self, inner: Any) -> None:
        super().__init__(daemon=True, name="serve-bench look")
        self.stopped = threading.Event()
        self._inner, wrapper = inner, inner._user_callable_wrapper
        self._loop = wrapper.event_loop
        self._loop_ident: int | None = None
        self._count_most_threads = math.inf  # of the pool of anyio, which runs sync methods
        # The pool that Serve makes for asyncio.to_thread: its size follows from num_cpus.
        prefix = getattr(getattr(wrapper, "_user_code_threadpool", 0), "_thread_name_prefix", "")
        self._serve_pool = {prefix: getattr(wrapper, "_ray_actor_options", {}).get("num_cpus")}
        self._metrics = inner._metrics_manager
        self._served: list[tuple[str, int, int]] = []  # id of the request, begin and end, ns
        self._finished = 0  # requests that Serve counts as handled
        self.taken: list[dict[str, Any]] = []

    def run(self) -> None:
        """Take samples until it is stopped."""
        former = getattr(self._metrics, "record_request_metrics", None)
        if former is not None:
            self._metrics.record_request_metrics = self._wrap_note(former)
        try:
            began = time.monotonic()
            asyncio.run_coroutine_threadsafe(self._note_loop(), self._loop)
            while not self.stopped.wait(PERIOD_S) and time.monotonic() - began < LONGEST_S:
                self.taken.append(self._take_sample())
        finally:
            if former is not None:
                del self._metrics.record_request_metrics

    async def _note_loop(self) -> None:
        """Note the thread of the app's loop, which runs this, and the size of its thread pool."""
        from anyio.to_thread import current_default_thread_limiter

        self._loop_ident = threading.get_ident()
        self._count_most_threads = current_default_thread_limiter().total_tokens

    def _wrap_note(self, former: Any) -> Any:
        """Wrap Serve's note of an answered request, to keep the request's id, begin and end."""
        from ray.serve.context import _get_serve_request_context

        def record(*args: Any, **kwargs: Any) -> Any:
            now_ns, latency_ms = time.time_ns(), float(kwargs.get("latency_ms", 0.0))
            request_id = str(_get_serve_request_context().request_id)  # a call has its caller's
            self._served.append((request_id, now_ns - int(1e6 * latency_ms), now_ns))
            self._finished += not kwargs.get("is_error", False)
            return former(*args, **kwargs)

        return record

    def sum_up(self, from_ns: int, to_ns: int) -> dict[str, Any]:
        """Sum up all samples between two moments."""
        taken = [sample for sample in self.taken if from_ns <= sample["at_ns"] <= to_ns]
        whole = [span for span in self._served if from_ns <= span[1] and span[2] <= to_ns]
        served = [(end - begin) / 1e6 for _, begin, end in self._served if from_ns <= end <= to_ns]
        config, identity = self._inner._deployment_config, self._inner._deployment_id
        count = len(taken) or 1
        loop = Counter(sample["loop"] for sample in taken if sample["loop"])
        left = {work for sample in self.taken for work in sample["left"]}  # of requests given up
        at_work = set(self.taken[-1]["left"] if self.taken else ())
        return {
            "pid": os.getpid(),
            "app": identity.app_name,
            "deployment": identity.name,
            "looks": len(taken),
            "max_ongoing": config.max_ongoing_requests,
            "ongoing": sum(sample["ongoing"] for sample in taken) / count,
            "served": len(served),
            "finished": self._finished,
            "worked_on": sum(map(_is_over, left - at_work)),
            "at_work": len(at_work),
            "mean_ms": sum(served) / len(served) if served else None,
            "ingress": bool(getattr(self._inner, "_ingress", False)),
            "answers": whole,
            **{part: _rank_places(taken, part) for part in ("places", "own", "threads")},
            "loop": [[line, times / count] for line, times in loop.most_common(3)],
            "pools": _average(taken, "pools", "full"),
            "batches": _average(taken, "batches", "waiting", "running", "held"),
        }

    def _take_sample(self) -> dict[str, Any]:
        """Take one sample."""
        places: Counter[Place] = Counter()
        in_app: Counter[Place] = Counter()
        batches: dict[str, Any] = {}
        followed: set[Any] = set()  # tasks that belong to a request that is counted already
        left: list[Any] = []  # work whose request was given up
        tasks: list[Any] = []
        with suppress(RuntimeError):  # the set may change while this thread copies it
            tasks = list(asyncio.all_tasks(self._loop))[:MOST_TASKS]
        chains = {task: list(_walk_frames(task.get_coro())) for task in tasks}
        # Those that Serve began come first: others that call it may be a part of them.
        for task in sorted(tasks, key=lambda task: not any(map(_is_serve, chains[task][:1]))):
            frames = chains[task]
            in_batch = any(name.startswith("_BatchQueue.") for _, name in frames)
            if in_batch or task in followed or not any(map(_is_serve, frames)):
                continue
            for where, times in Counter(_find_waits(task, chains, [], followed)).items():
                places[where] += times if where[0].startswith(HANDLE) else 1
        for task, frames in chains.items():
            if (queue := _find_queue(frames)) is not None:
                _add_batch(batches, queue, frames)
            if task not in followed and (place := _find_place(frames)) is not None:
                in_app[place] += 1
            cancelled = getattr(task, "cancelling", int)()  # from Python 3.11 on
            left += [task] if cancelled and any(name in IN_REQUEST for _, name in frames) else []
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        threads: Counter[tuple[str, str, str]] = Counter()
        pools: dict[str, list[bool]] = {}
        most: dict[str, float] = {}  # threads that a pool starts at most
        loop = ""  # the app's line in the event loop's thread, if it is there
        for ident, top in sys._current_frames().items():
            name = names.get(ident, "")
            if ident == threading.get_ident():
                continue
            line = _find_app_line(top)
            if ident == self._loop_ident:
                loop = line[1] if line else ""
                continue
            pool = name.rpartition("_")[0] if name.rpartition("_")[2].isdigit() else name
            if (worker := _find_worker(top)) is not None:
                in_anyio = worker.f_code.co_name != "_worker"
                working = line is not None or not (in_anyio or worker is top)
                pools.setdefault(pool, []).append(working)
                most[pool] = self._count_most_threads if in_anyio else _count_most_threads(worker)
                left += _list_given_up(worker) if line is not None else []
            if line is not None:
                threads[(pool, *line[1:])] += 1
        cpus = self._serve_pool
        return {
            "at_ns": time.time_ns(),
            "ongoing": self._inner.get_num_ongoing_requests(),
            "places": places,
            "own": in_app,
            "loop": loop,
            "threads": threads,
            "pools": {
                name: {"threads": size, "full": sum(busy) >= size, "num_cpus": cpus.get(name)}
                for name, busy in pools.items()
                for size in [len(busy) if most[name] == math.inf else int(most[name])]
            },
            "batches": batches,
            "left": left,
        }


def _is_over(work: Any) -> bool:
    """Return whether work that outlived its cancellation came to an end; threads always do."""
    return not isinstance(work, asyncio.Task) or (work.done() and not work.cancelled())


def _walk_frames(awaited: Any) -> Iterator[Frame]:
    """Yield frames and qualified names from a task's coroutine to the innermost it awaits."""
    while awaited is not None:
        if (frame := _find_first(awaited, "cr_frame", "gi_frame", "ag_frame")) is not None:
            yield frame, str(getattr(awaited, "__qualname__", ""))
        awaited = _find_first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        if type(awaited).__name__.startswith("async_generator_"):  # a step of one, which hides it
            referents = gc.get_referents(awaited)
            awaited = next(
                (part for part in referents if isinstance(part, AsyncGeneratorType)), None
            )


def _find_first(awaited: Any, *names: str) -> Any:
    values = (getattr(awaited, name, None) for name in names)
    return next((value for value in values if value is not None), None)


def _find_waits(
    task: Any,
    chains: dict[Any, list[Frame]],
    outer: list[Frame],
    followed: set[Any],
    awaited: bool = True,
) -> list[Place]:
    """Return where a request waits by a task: in the tasks that it awaits, else at its own line.

    `chains`: the frames of tasks; `outer`: those that lead to this one; `followed`: takes the tasks
    in it. A task that was only started beside (not `awaited`) has none, unless it runs the app.
    """
    frames, places = chains[task], []
    followed.add(task)
    for inner, depth, is_awaited in _list_subtasks(task, frames):
        if inner not in chains:
            chains[inner] = list(_walk_frames(inner.get_coro()))
        within = chains[inner]
        if within and inner not in followed and not _is_serve(within[0]):  # else one by itself
            places += _find_waits(inner, chains, [*outer, *frames[:depth]], followed, is_awaited)
    if places or not (awaited or any(map(_is_of_app, frames))):
        return places
    place = _find_place([*outer, *frames])
    return [] if place is None else [place]


def _list_subtasks(task: Any, frames: list[Frame]) -> Iterator[tuple[Any, int, bool]]:
    """Yield (task, number of frames up to its start, if awaited) of what a task waits for."""
    future = getattr(task, "_fut_waiter", None)
    for awaited in getattr(future, "_children", [future]):
        if isinstance(awaited, asyncio.Task):
            yield awaited, len(frames), True
    # Others are in a group that a library keeps while it calls the app or answers the client
    # (middleware and streams of starlette), or waits for (asyncio.wait and TaskGroup).
    for place, (frame, name) in enumerate(frames):
        code = frame.f_code
        kept = GROUP_NAMES if name.endswith("TaskGroup.__aexit__") else TASK_NAMES
        if kept.isdisjoint((*code.co_varnames, *code.co_cellvars)) or _is_app(code.co_filename):
            continue
        for value in [frame.f_locals.get(name) for name in kept]:
            tasks = value if isinstance(value, set) else getattr(value, "_tasks", [value])
            for task in list(tasks):
                if isinstance(task, asyncio.Task) and not task.done():
                    yield task, place + 1, False


#: Variables of libraries that hold tasks: of starlette, and of asyncio's `wait` and `wait_for`.
TASK_NAMES = frozenset({"task_group", "fs", "fut"})
GROUP_NAMES = frozenset({"self"})


def _is_of_app(frame: Frame) -> bool:
    """Return whether a frame runs code of the app, here or in a thread."""
    file, name = frame[0].f_code.co_filename, frame[1]
    return _is_app(file) or any(part in name for part in ("to_thread", "threadpool", "run_sync"))


def _find_queue(frames: list[Frame]) -> Any:
    """Return the queue of `serve.batch` that a task is of, or its request waits in; else None."""
    for frame, name in frames:
        if name.startswith("_BatchQueue."):
            return frame.f_locals.get("self")
        enqueue = frame.f_locals.get("enqueue_request") if _is_batching(frame) else None
        for cell in getattr(enqueue, "__closure__", None) or ():
            if hasattr(cell.cell_contents, "_queue"):
                return cell.cell_contents._queue
    return None


def _is_batching(frame: Any) -> bool:
    return bool(frame.f_code.co_filename.endswith("/ray/serve/batching.py"))


def _is_serve(frame: Frame) -> bool:
    return "/ray/serve/" in frame[0].f_code.co_filename


LIBRARY = os.path.dirname(os.__file__)
MARKS = "/serve_bench/serving/apps/marks.py"
"""Around methods of Serve in a cluster that may be traced."""


def _is_app(file: str) -> bool:
    """Return whether a file is of the app: not of a package, Python itself or our marks."""
    parts = ("/site-packages/", "/dist-packages/", "/ray/serve/", "/ray/_private/", MARKS)
    of_others = file.startswith(LIBRARY) or any(part in file for part in parts)
    return os.path.isabs(file) and not of_others  # else it is made up, or compiled (grpc)


def _format_line(frame: Any) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _find_place(frames: list[Frame]) -> Place | None:
    """Return the app's innermost line and what it awaits; None: neither app nor request."""
    index = max(
        (n for n, (frame, _) in enumerate(frames) if _is_app(frame.f_code.co_filename)), default=-1
    )
    if index < 0:
        inside = [n for n, code in enumerate(frames) if _is_serve(code)]
        handed = [name for _, name in frames if name in IN_REQUEST]
        if not handed or not inside:
            return None
        return (_name_awaited(frames[inside[-1] + 1 :][::-1]), "", "")
    frame, name = frames[index]
    return (_name_awaited(frames[index + 1 :]), _format_line(frame), name)


#: Serve's own coroutines that run code of the app for a request.
IN_REQUEST = (
    "UserCallableWrapper._call_http_entrypoint",
    "UserCallableWrapper.call_http_entrypoint",
    "UserCallableWrapper.call_user_method",
    "UserCallableWrapper._call_func_or_gen",
)


def _name_awaited(beyond: list[Frame]) -> str:
    """Name the first public coroutine beyond the app's line, such as `asyncio.Lock.acquire`."""
    if not beyond:
        return "a future"
    call = next((frame for frame, name in beyond if name.startswith("DeploymentResponse")), None)
    if call is not None:
        request = getattr(call.f_locals.get("self"), "_request_metadata", None)
        return f"{HANDLE} {getattr(request, 'call_method', '')}"
    public = (place for place in beyond if not any(part[:1] == "_" for part in place[1].split(".")))
    frame, name = next(public, beyond[0])
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if _is_batching(frame):
        return f"serve.batch {name}"
    return f"{package}.{name.replace('<locals>.', '')}" if package else name


def _find_app_line(top: Any) -> Place | None:
    """Return the innermost line of the app in a thread's stack, and what it calls there."""
    called = ""
    for frame, _ in traceback.walk_stack(top):
        if _is_app(frame.f_code.co_filename):
            return (called, _format_line(frame), frame.f_code.co_name)
        called = frame.f_code.co_name
    return None


def _find_worker(top: Any) -> Any:
    """Return the frame in which a pool's thread takes its work; None of another thread."""
    for frame, _ in traceback.walk_stack(top):
        code = frame.f_code
        if WORK.get(code.co_name) in code.co_varnames and not _is_app(code.co_filename):
            return frame
    return None


def _list_given_up(worker: Any) -> list[Any]:
    """Return the result of a thread's work, if the task that awaited it was cancelled."""
    work = worker.f_locals.get(WORK[worker.f_code.co_name])
    result = getattr(work, "future", work)
    calls = [call for call in getattr(result, "_done_callbacks", ()) if call.__module__ == CHAIN]
    awaited = [result, *(cell.cell_contents for call in calls for cell in call.__closure__)]
    cancelled = any(asyncio.isfuture(future) and future.cancelled() for future in awaited)
    return [result] if cancelled else []


def _count_most_threads(worker: Any) -> float:
    """Return how many threads a pool starts at most; an idle one has not started them all."""
    pool = worker.f_locals.get("executor_reference", lambda: None)()
    return float(getattr(pool, "_max_workers", math.inf))


def _add_batch(batches: dict[str, Any], queue: Any, frames: list[Frame]) -> None:
    """Add the state of a `serve.batch` queue, by the name of its function."""
    waiting_frames = [frame for frame, name in frames if name.endswith("wait_for_batch")]
    held = len(waiting_frames[0].f_locals.get("batch") or ()) if waiting_frames else 0
    free = getattr(getattr(queue, "semaphore", None), "_value", 1)
    running = getattr(queue, "max_concurrent_batches", 1) - free
    state = batches.setdefault(
        str(getattr(queue, "_function_name", "")),
        {"most": queue.max_batch_size, "wait_s": queue.batch_wait_timeout_s, "held": 0},
    )
    loop = getattr(queue, "_handle_batch_task", None)
    if loop is not None and loop.done() and not loop.cancelled():
        state["ended"] = "".join(traceback.format_exception_only(loop.exception())).strip()
    state["held"] = max(state["held"], held + queue.queue.qsize())
    state["running"] = running > 0
    state["waiting"] = state["held"] > 0 and running <= 0  # for more requests


def _rank_places(taken: list[dict[str, Any]], part: str) -> list[list[Any]]:
    """List the places with most requests: what, line, function, mean number of requests."""
    counts = sum((sample[part] for sample in taken), Counter[Place]())
    return [[*place, number / len(taken)] for place, number in counts.most_common(MOST_PLACES)]


def _average(taken: list[dict[str, Any]], part: str, *keys: str) -> dict[str, dict[str, Any]]:
    """Return the last states of a part by name, with the means of `keys` over all samples."""
    found: dict[str, list[Any]] = {}
    for sample in taken:
        for name, state in sample[part].items():
            found.setdefault(name, []).append(state)
    return {
        name: {
            **states[-1],
            **{key: sum(state[key] for state in states) / len(taken) for key in keys},
        }
        for name, states in found.items()
    }
