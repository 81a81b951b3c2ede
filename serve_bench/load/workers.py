"""The worker processes as the parent sees them: start, listen, stop, and notice when one dies.

Rule: a death is a value (`WorkerFailure`), never a hang; and no worker outlives its parent.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from serve_bench.core.load_result import WorkerFailure
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.load.failures import LoadError
from serve_bench.load.share import Share
from serve_bench.load.shared import Shared

STUCK_S = 10.0
"""How long after its last deadline a worker may stay silent before it counts as failed."""

STOP_S = 2.0
"""How long a worker may take to end after its stdin is closed, before it is killed."""


@dataclass
class Worker:
    """One child process and what it has said so far."""

    index: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    buffer: bytes = b""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: bool = False
    overdue: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def give_up(self) -> None:
        """It is silent long after its deadline: kill it."""
        self.overdue = True
        self.process.kill()

    def failure(self, completed: int) -> WorkerFailure:
        """Why there is no report of it."""
        code = self.process.poll()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        if code is None or self.overdue:
            how = "it did not answer in time"
        else:
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerFailure(self.pid, f"{how}: {lines[-1]}" if lines else how, completed)


class Crew:
    """All workers of a load. Use as a context manager: leaving it ends every worker."""

    def __init__(self, orders: list[dict[str, Any]], mark: Mapping[str, str]) -> None:
        self.workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        env = finding_ours({**os.environ, **mark})
        try:
            for index, order in enumerate(orders):
                self._start(index, order, env)
        except BaseException:  # Ctrl-C too: those that have started must not stay
            self.stop()
            raise

    def _start(self, index: int, order: dict[str, Any], env: dict[str, str]) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, *own_module("load.worker")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            pass_fds=[fd for fd in (order["fd"], order["log_fd"]) if fd is not None],
        )
        worker = Worker(index, process, errors)
        self.workers.append(worker)
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return  # it died already: `listen` will see that

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> list[Worker]:
        """Workers whose stdout is open."""
        return [worker for worker in self.workers if not worker.ended]

    def listen(self, timeout_s: float) -> None:
        """Take in what the workers say within `timeout_s`; returns at once when one has spoken."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        for key, _ in self._selector.select(timeout_s):
            self._take(key.data)

    def _take(self, worker: Worker) -> None:
        assert worker.process.stdout is not None
        data = os.read(worker.process.stdout.fileno(), 1 << 20)
        worker.buffer += data
        *lines, worker.buffer = worker.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            worker.said[message["event"]] = message
        if not data:
            self._selector.unregister(worker.process.stdout)
            worker.process.wait()
            worker.ended = True

    def stop(self) -> None:
        """End every worker: close its stdin, then kill what has not ended by then."""
        for worker in self.workers:
            if worker.process.stdin is not None:
                try:
                    worker.process.stdin.close()
                except BrokenPipeError:
                    continue  # it is dead, and so is the pipe
        deadline = time.monotonic() + STOP_S
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.process.stdout is not None:
                worker.process.stdout.close()
            worker.errors.close()
        self._selector.close()


def orders_for(
    share: Share,
    sides: Sequence[dict[str, Any]],
    timing: Timing,
    shared: Shared,
    slices: Slices | None = None,
    log_fd: int | None = None,
) -> dict[str, Any]:
    """What one worker is told: its share, its targets, how long, and where its log goes."""
    return {
        "sides": list(sides),
        "share": asdict(share),
        "timing": asdict(timing),
        "slices": asdict(slices) if slices is not None else None,
        "fd": shared.fd,
        "boards": shared.boards,
        "log_fd": log_fd,
    }


def await_ready(crew: Crew, loads: Sequence[Load], look: Callable[[], None]) -> tuple[str, ...]:
    """Wait until every worker has opened its connections; returns notes on those that are not.

    Raises LoadError when a target took no connection at all, or no worker is left.
    """
    deadline = time.monotonic() + loads[0].connect_timeout_s * len(loads) + STUCK_S
    while pending := [w for w in crew.alive if "ready" not in w.said]:
        crew.listen(0.25)
        look()
        if time.monotonic() > deadline:
            for worker in pending:
                worker.give_up()
            deadline += STUCK_S
    for worker in crew.workers:
        if said := worker.said.get("unreachable"):
            raise LoadError(said["error_class"], said["host"], said["port"], said["reason"])
    ready = [w.said["ready"] for w in crew.workers if "ready" in w.said]
    if not ready or not crew.alive:
        request = loads[0].request
        reason = "; ".join(w.failure(0).reason for w in crew.workers)
        raise LoadError("worker", request.host, request.port, f"no worker is left: {reason}")
    notes = []
    for side, load in enumerate(loads):
        opened = sum(said["opened"][side] for said in ready)
        wanted = sum(said["wanted"] for said in ready)
        if not opened and load.keepalive:
            reason = next((s["errors"][side] for s in ready if s["errors"][side]), "no connection")
            raise LoadError("connect", load.request.host, load.request.port, reason)
        if opened < wanted:
            notes.append(f"{opened} of {wanted} connections were open at the start")
    return tuple(notes)


def connecting_s(crew: Crew) -> float:
    """From the first connect that any worker began to the last connection that was open."""
    spans = [w.said["ready"]["connecting"] for w in crew.workers if "ready" in w.said]
    ns: int = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return ns / 1e9
