"""The worker processes, from the parent's side: their number, shares, start, messages and end.

Rule: a dead worker is a value (`WorkerFailure`), never a hang; and no worker outlives its parent.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from serve_bench.core.load_result import WorkerFailure
from serve_bench.core.load_spec import HANDLE, Load
from serve_bench.core.own_module import finding_ours, own_module
from serve_bench.core.schema import built
from serve_bench.load.failures import BrokenAccount, LoadError
from serve_bench.load.messages import Messages, Orders, Ready, line_of
from serve_bench.load.pacing import WorkerShare

# How many worker processes a load needs, how many cores there are, and the shares of the workers.

RAW_RATE_PER_WORKER = 25_000.0
"""Requests/s of an open loop that one raw worker sends on time; above, the send lag grows
(measured: 54 % of a core at 10 k/s with timerfd, at most 60 k/s)."""


def cpu_quota_cores(root: Path = Path("/")) -> float | None:
    """Return the CPU quota of this process's cgroup in cores (version 2 or 1); None: no limit.

    In version 2 the lowest limit of all cgroups above holds.
    """
    limits = []
    for text in cgroup_files(root, "", "cpu.max"):  # "200000 100000" or "max 100000"
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    quotas = cgroup_files(root, "cpu", "cpu.cfs_quota_us")
    periods = cgroup_files(root, "cpu", "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods, strict=False):
        if quota.isdigit() and period.isdigit():  # -1: no limit
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def cgroup_files(root: Path, controller: str, name: str) -> list[str]:
    """Return the texts of a file in this process's cgroup and those above it, the lowest first.

    `controller` is empty for version 2. Inside a container the path may not be visible; then the
    top of the mount is the container's cgroup.
    """
    group = "/"
    for line in (small_file(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = path
    top = root / "sys/fs/cgroup" / controller
    place = top / group.lstrip("/")
    above = [folder for folder in place.parents if folder.is_relative_to(top)]
    texts = [small_file(folder / name) for folder in (place, *above)]
    return [text for text in texts if text]


def small_file(file: Path) -> str | None:
    """Return the stripped content of a small file; None if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def usable_cores() -> int:
    """Return how many whole cores this process may use, by affinity and quota; at least 1."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota_cores()
    return max(1, cores if quota is None else min(cores, int(quota)))


def enough_processes(load: Load, cores: int) -> int:
    """Return the number of workers: that of the load, or else by its client.

    raw: one, which is as fast as wrk, or more for an open loop of a high rate. Others: a worker
    for each connection. At least one, at most half the cores (the server needs the rest),
    and at most the number of connections.
    """
    if load.processes is not None:
        return load.processes
    if load.client in ("aiohttp", "grpc", "handle"):
        wanted = load.connections
    elif load.open_loop:
        wanted = math.ceil(max(stage.rate for stage in load.schedule) / RAW_RATE_PER_WORKER)
    else:
        wanted = 1
    return max(1, min(wanted, cores // 2, load.connections))


def yield_to_workers(yields: bool) -> None:
    """Set whether this thread, when it wakes, waits until a worker on the same core sleeps."""
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) in (os.SCHED_OTHER, os.SCHED_BATCH):
        os.sched_setscheduler(0, os.SCHED_BATCH if yields else os.SCHED_OTHER, os.sched_param(0))


def divide(total: int, workers: int) -> list[int]:
    """Divide `total` into as equal parts as whole numbers allow; the first are the larger."""
    base, extra = divmod(total, workers)
    return [base + (1 if i < extra else 0) for i in range(workers)]


def shares(load: Load, workers: int) -> list[WorkerShare]:
    """Divide a load among its workers.

    A count is divided evenly. With `each`, a worker's count follows from its connections.
    """
    connections = divide(load.connections, workers)
    limits = divide(load.connection_limit, workers)
    counts: list[int | None] = [None] * workers
    if load.each is not None:
        counts = [load.each * part for part in connections]
    elif load.count is not None:
        counts = list(divide(load.count, workers))
    return [
        WorkerShare(i, workers, connections[i], limits[i], counts[i], load.each, sum(limits[:i]))
        for i in range(workers)
    ]


STUCK_S = 10.0
"""How long a worker may be silent after its last deadline before it counts as failed."""

STOP_S = 2.0
"""How long a worker may take to end after its stdin or stdout closes; then it is killed."""


def end_process(process: subprocess.Popen[bytes], wait_s: float) -> None:
    """Wait for a process that is about to end, at most `wait_s`, then kill it."""
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it
            process.wait(STOP_S)


@dataclass
class Worker:
    """One child process and what it has said so far."""

    index: int
    process: subprocess.Popen[bytes]
    errors: IO[bytes]  # its stderr
    env: Mapping[str, str] = field(default_factory=dict)
    buffer: bytes = b""  # of a message whose end has not come
    said: Messages = field(default_factory=Messages)
    ended: bool = False
    overdue: bool = False  # it was killed for its silence

    def hear(self, data: bytes) -> None:
        """Take in bytes of its messages. Raises BrokenAccount if the worker reports one."""
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            message = built(Messages, json.loads(line), "worker")
            if message.broken is not None:
                raise BrokenAccount(message.broken)
            news = {name: part for name, part in vars(message).items() if part is not None}
            self.said = replace(self.said, **news)

    def failure(self, completed: int) -> WorkerFailure:
        """Say how the worker ended that did not finish, with its last line of stderr."""
        code = self.process.poll()
        self.errors.seek(0)
        written = self.errors.read().decode(errors="replace").strip().splitlines()
        lines = [line for line in written if "INFO " not in line]  # Ray's chatter explains nothing
        if code is None or self.overdue:
            how = "it did not answer in time"
        else:
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return WorkerFailure(self.process.pid, f"{how}: {lines[-1]}" if lines else how, completed)


KEPT: Final[list[Worker]] = []
"""Workers that have ended their load and wait for orders: to start one takes 0.1 s, with aiohttp
0.35 s."""


def end_workers(workers: list[Worker]) -> None:
    """Close the workers' stdin, kill those that are left after STOP_S, and empty the list."""
    for worker in workers:
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, and so is the pipe
            worker.process.stdin.close()
    deadline = time.monotonic() + STOP_S
    for worker in workers:
        end_process(worker.process, max(0.0, deadline - time.monotonic()))
        assert worker.process.stdout is not None
        worker.process.stdout.close()
        worker.errors.close()
    workers.clear()


class Crew:
    """All workers of a load, one for each of the orders. A context manager that ends every worker.

    `keeps`: a worker that has ended its load is kept for the next, and those of earlier loads are
    used.
    """

    def __init__(
        self, orders: Sequence[Orders], mark: Mapping[str, str] | None, keeps: bool = False
    ) -> None:
        self.workers: list[Worker] = []
        self._loads = loads = [load for load, _ in orders[0].sides]
        self._keeps = keeps and loads[0].client != HANDLE
        self._keeps &= all(order.log is None and order.traces is None for order in orders)
        self._keeps &= sys.platform == "linux"  # by /proc it gets the memory of another load
        self._selector = selectors.DefaultSelector()
        of_loads = {name: value for load in loads for name, value in load.environment.items()}
        env = finding_ours({**os.environ, **(mark or {}), **of_loads})
        try:
            for order in orders:
                self._start(order, env)
        except BaseException:  # Ctrl-C too: started workers must not stay
            self.stop()
            raise

    def _start(self, orders: Orders, env: dict[str, str]) -> None:
        worker = None
        while worker is None and KEPT and self._keeps:
            kept = KEPT.pop()
            if kept.env == env and kept.process.poll() is None:
                worker = Worker(len(self.workers), kept.process, kept.errors, env)
                orders = replace(orders, file=f"/proc/{os.getpid()}/fd/{orders.file}")
            else:
                end_workers([kept])
        worker = worker or self._make_worker(orders, env)
        self.workers.append(worker)
        stdin, stdout = worker.process.stdin, worker.process.stdout
        assert stdin is not None and stdout is not None
        self._selector.register(stdout, selectors.EVENT_READ, worker)
        try:
            stdin.write(line_of(orders))
            stdin.flush()
        except BrokenPipeError:
            return  # it died already: `listen` notices that

    def _make_worker(self, orders: Orders, env: dict[str, str]) -> Worker:
        files = [file.fd for file in (orders.log, orders.traces) if file is not None]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, *own_module("load.worker")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            pass_fds=[int(orders.file), *files],
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return Worker(len(self.workers), process, errors, env)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._keeps &= kind is None
        self.stop()

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if not worker.ended]

    def listen(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for messages of the workers; return once one has arrived."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        for key, _ in self._selector.select(timeout_s):
            worker: Worker = key.data
            data = os.read(key.fd, 1 << 20)
            worker.hear(data)
            if not data:
                self._selector.unregister(key.fileobj)
                end_process(worker.process, STOP_S)
                worker.ended = True

    def wait_for(self, event: str, left_s: float, look: Callable[[], float | None]) -> None:
        """Listen until every living worker has said this (a field of `Messages`).

        `look` is called meanwhile, and may return the least number of seconds left. A worker that
        is silent for STUCK_S beyond the time left is killed.
        """
        deadline = time.monotonic() + left_s + STUCK_S
        while pending := [worker for worker in self.alive if getattr(worker.said, event) is None]:
            self.listen(0.25)
            more_s = look()
            if more_s is not None:
                deadline = max(deadline, time.monotonic() + more_s + STUCK_S)
            if time.monotonic() > deadline:
                for worker in pending:
                    worker.overdue = True
                    worker.process.kill()
                deadline += STUCK_S

    def connect(self, look: Callable[[], None]) -> tuple[str, ...]:
        """Wait until every worker has opened its connections; return notes on missing ones.

        Raises LoadError when a target took no connection at all, or no worker is left.
        """
        loads = self._loads
        self.wait_for("ready", loads[0].connect_timeout_s * len(loads), look)
        for worker in self.workers:
            if (refusal := worker.said.unreachable) is not None:
                raise LoadError(*refusal)
        ready = self._ready()
        if not ready or not self.alive:
            raise self.all_lost([worker.failure(0) for worker in self.workers])
        notes = []
        for side, load in enumerate(loads):
            opened = sum(message.opened[side] for message in ready)
            wanted = sum(message.wanted for message in ready)
            if not opened and load.keepalive:
                reason = next(
                    filter(None, (message.errors[side] for message in ready)), "no connection"
                )
                raise LoadError("connect", load.request.host, load.request.port, reason)
            if opened < wanted:
                notes.append(f"{opened} of {wanted} connections were open at the start")
        return tuple(notes)

    def _ready(self) -> list[Ready]:
        return [worker.said.ready for worker in self.workers if worker.said.ready is not None]

    @property
    def connecting_s(self) -> float:
        """Seconds from the first connect of any worker to the last open connection."""
        spans = [ready.connecting for ready in self._ready()]
        return (max(end for _, end in spans) - min(begin for begin, _ in spans)) / 1e9

    def all_lost(self, failures: Sequence[WorkerFailure]) -> LoadError:
        """Make the error of a load that has no worker left."""
        request = self._loads[0].request
        reasons = "; ".join(f"worker {failure.pid}: {failure.reason}" for failure in failures)
        return LoadError("worker", request.host, request.port, f"no worker is left: {reasons}")

    def stop(self) -> None:
        """End every worker; of a whole load keep those that may have another."""
        keeps = self._keeps and all(worker.said.done for worker in self.workers)
        self._keeps = False
        if keeps:
            self.wait_for("kept", STOP_S - STUCK_S, lambda: None)
        self._selector.close()
        KEPT.extend(worker for worker in self.alive if keeps and worker.said.kept)
        end_workers([worker for worker in self.workers if worker not in KEPT])
