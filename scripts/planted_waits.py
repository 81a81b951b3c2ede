"""Apps that wait, of `scripts/bench verdicts --set waits`: each one kind of wait, as in own apps.

They run in the replicas alone, as a user's app does: nothing here counts or reports anything.
`build` takes the kind; the TCP service that some wait for is a process of planted_cases.py.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import queue
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

QUIET = {"log_level": "WARNING", "enable_access_log": False}


def burn(ms: float, work: Callable[[], object] = lambda: sum(range(200))) -> None:
    """Use `ms` of CPU of this thread."""
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        work()


class App:
    """The settings of all kinds of wait, as strings, and what they may call."""

    def __init__(self, args: dict[str, str], helper: Any = None) -> None:
        self.ms = float(args["ms"])
        self.port = int(args["port"])
        self.helper = helper
        self.lock = asyncio.Lock()
        self.few = asyncio.Semaphore(3)
        self.one_thread = ThreadPoolExecutor(1)
        self.pool: asyncio.Queue[Any] | None = None
        self.jobs: asyncio.Queue[Any] = asyncio.Queue()
        self.tick, self.file, self.drawn = asyncio.Event(), args["file"], 0.0
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, request: Request) -> Any:
        return PlainTextResponse(await self.called())

    async def called(self) -> str:
        """Answer what calls by a handle."""
        await self.work()
        return "ok"

    async def work(self) -> None:
        raise NotImplementedError


class Block(App):
    async def work(self) -> None:
        time.sleep(self.ms / 1e3)


class Sleep(App):
    async def work(self) -> None:
        await asyncio.sleep(self.ms / 1e3)


class Drawn(App):
    """A wait of up to twice as long, spread evenly by the golden ratio even over few draws."""

    async def work(self) -> None:
        self.drawn = (self.drawn + 0.618034) % 1
        await asyncio.sleep((1 + self.drawn) * self.ms / 1e3)


class Burn(App):
    async def work(self) -> None:
        burn(self.ms)


class Lock(App):
    async def work(self) -> None:
        async with self.lock:
            await asyncio.sleep(self.ms / 1e3)


class Pool(App):
    """Two connections to a TCP service that answers after a while."""

    async def work(self) -> None:
        if self.pool is None:
            self.pool = asyncio.Queue()
            for _ in range(2):
                self.pool.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))
        reader, writer = await self.pool.get()
        writer.write(b"ask\n")
        await reader.readline()
        self.pool.put_nowait((reader, writer))


class Executor(App):
    async def work(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self.one_thread, time.sleep, self.ms / 1e3)


class Batch(App):
    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.2)
    async def predict(self, items: list[int]) -> list[int]:
        return items

    async def work(self) -> None:
        await self.predict(1)


class Differs(App):
    """One replica that is 20 times as slow as the others."""

    def __init__(self, args: dict[str, str]) -> None:
        super().__init__(args)
        with suppress(FileExistsError):
            os.symlink(str(os.getpid()), self.file)
        self.slow = os.readlink(self.file) == str(os.getpid())

    async def work(self) -> None:
        await asyncio.sleep(self.ms / 1e3 * (20 if self.slow else 1))


class Few(App):
    """A semaphore."""

    async def work(self) -> None:
        async with self.few:
            await asyncio.sleep(self.ms / 1e3)


class Worker(App):
    """A task that takes jobs from a queue, one after another, as an engine does."""

    async def serve_jobs(self) -> None:
        while True:
            done = await self.jobs.get()
            await asyncio.sleep(self.ms / 1e3)
            done.set_result(None)

    async def work(self) -> None:
        self.task = self.task or asyncio.create_task(self.serve_jobs())
        done = asyncio.get_running_loop().create_future()
        self.jobs.put_nowait(done)
        await done


class Socket(App):
    """Plain sockets to the TCP service, in an async method."""

    async def work(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"ask\n")
            connection.recv(100)


class FileLock(App):
    """A lock of a file, taken in threads."""

    def locked(self) -> None:
        with open(self.file + ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(self.ms / 1e3)

    async def work(self) -> None:
        await asyncio.to_thread(self.locked)


class Tick(App):
    """A clock that ticks every `ms`, with which answers go out."""

    async def clock(self) -> None:
        while True:
            await asyncio.sleep(self.ms / 1e3)
            self.tick.set()
            self.tick.clear()

    async def work(self) -> None:
        self.task = self.task or asyncio.create_task(self.clock())
        await self.tick.wait()


class Stream(App):
    """Ten chunks with a wait before each."""

    async def __call__(self, request: Request) -> Any:
        async def chunks() -> AsyncIterator[str]:
            for _ in range(10):
                await asyncio.sleep(self.ms / 1e3)
                yield "ok"

        return StreamingResponse(chunks())


class Thread(App):
    """A thread that does one job after another."""

    def __init__(self, args: dict[str, str]) -> None:
        super().__init__(args)
        self.inbox: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self.serve_jobs, daemon=True, name="engine").start()

    def serve_jobs(self) -> None:
        while True:
            loop, done = self.inbox.get()
            time.sleep(self.ms / 1e3)
            loop.call_soon_threadsafe(done.set_result, None)

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self.inbox.put((loop, done))
        await done


class HashThread(App):
    """CPU in a pool of one thread, in code that lets the interpreter go."""

    def digest(self) -> None:
        burn(self.ms, lambda: hashlib.sha256(bytes(1 << 20)).digest())

    async def work(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self.one_thread, self.digest)


class Helper:
    """An actor of Ray: one call at a time."""

    def work(self, ms: float) -> None:
        time.sleep(ms / 1e3)


class Actor(App):
    def __init__(self, args: dict[str, str]) -> None:
        super().__init__(args)
        self.helper = ray.remote(num_cpus=0)(Helper).remote()

    async def work(self) -> None:
        await self.helper.work.remote(self.ms)


class Rare(App):
    """A wait outside, and a call of a helper in one request of 50."""

    count = 0

    async def work(self) -> None:
        self.count += 1
        if self.count % 50 == 0:
            await self.helper.called.remote()
        await asyncio.sleep(self.ms / 1e3)


class Calls(App):
    """A call of the next deployment for each request."""

    async def work(self) -> None:
        await self.helper.called.remote()


KINDS = {kind.__name__: kind for kind in App.__subclasses__()}

api = FastAPI()


@api.get("/")
def in_a_thread() -> str:
    """Block: FastAPI runs a plain function in a thread of its pool (40)."""
    time.sleep(0.2)
    return "ok"


class InThreads:
    """The class behind `in_a_thread`."""


def make_deployment(name: str, code: Any, **given: Any) -> Any:
    """Make a deployment of 1,000 slots, unless `given` says otherwise."""
    made: Any = serve.deployment(code, name=name, logging_config=QUIET)
    return made.options(**{"max_ongoing_requests": 1000, **given})


def build(args: dict[str, str]) -> Any:
    """Build an app. Args: kind, ms, port, file, behind, and options of Front ("front") as JSON."""
    kind, options = args["kind"], json.loads(args["front"])
    if kind == "InThreads":
        return make_deployment("Front", serve.ingress(api)(InThreads), **options).bind()
    front = make_deployment("Front", KINDS[kind], **options)
    if not args["behind"]:
        return front.bind(args)
    if args["behind"] == "Calls":
        last = make_deployment("Last", Lock).bind(args)
        return front.bind(args, make_deployment("Middle", Calls).bind(args, last))
    slots = {"max_ongoing_requests": int(args["slots"])} if args.get("slots") else {}
    return front.bind(args, make_deployment("Helper", KINDS[args["behind"]], **slots).bind(args))
