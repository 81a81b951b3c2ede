"""A world over torch.distributed.rpc (TensorPipe): rank 0 is the agent, the others observe.

All are forked from this process, which has imported torch and run none of it: so they share its
memory, and start in a tenth of a second each. Rule: no thread is started here before the fork.
Everything listens on the address asked for: torch by itself would open its store to the network,
and take the address of the host's name for the calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import rpc

from .agent import (
    PARENT,
    Agent,
    Broken,
    RpcWorld,
    end_launch,
    ended,
    episode,
    figures,
    now_ns,
    one_line,
    stopped,
)

SCHEME = "serve-bench"
AGENT = "agent"
PR_SET_PDEATHSIG = 1
TIMED_OUT = "ran for more than set timeout"  # torch's words

#: How long a killed process is looked for when a call of another broke.
GRACE_S = 1.0

#: How many connect to the agent at once. torch lets all do so at one moment, and its sockets take
#: no more than 128 that wait: with 79 observers on 2 cores `init_rpc` failed each time ("Resource
#: temporarily unavailable").
AT_ONCE = 8

#: Set in the agent's process alone; what comes over the wire is a call of this module.
_served: dict[str, Any] = {}


def listen(address: str, port: int) -> socket.socket:
    """Return the socket of the store: bound where asked for, and kept from world to world."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(4096)
    return listener


class TorchWorld(RpcWorld):
    """The processes of one world; made by starting them. `spec["observers"]` of them observe."""

    def __init__(self, spec: Mapping[str, Any], listener: socket.socket) -> None:
        super().__init__(spec)
        self._statuses: dict[int, int] = {}  # of those that have ended and were waited for
        self._lines: list[Connection] = []
        for rank in range(int(spec["observers"]) + 1):
            ours, theirs = Pipe()
            pid = os.fork()
            if pid == 0:
                for line in (*self._lines, ours):
                    line.close()
                _be(rank, spec, theirs, listener)
            theirs.close()
            self._pids[rank] = pid
            self._lines.append(ours)
        try:
            self._connect()
        except Broken:
            self.stop()
            raise

    def _connect(self) -> None:
        everyone = range(len(self._pids))
        self._hear(everyone)  # each says that it could connect now
        for first in (0, *range(1, len(everyone), AT_ONCE)):  # the agent alone, and first
            turn = everyone[first : first + (AT_ONCE if first else 1)]
            for rank in turn:
                self._say(rank, {})
            self._hear(turn)
        self._hear(everyone)  # and that all know each other

    def episode(self, steps: int) -> dict[str, Any]:
        for rank in range(1, len(self._pids)):
            self._say(rank, {"steps": steps})
        reports = self._hear(range(1, len(self._pids)))
        self._say(0, {})
        return figures(self._hear([0])[0]["latency_ns"], reports)

    def stop(self) -> None:
        """End all processes: nothing of theirs is needed any more."""
        left = set(self._pids.values()) - self._statuses.keys()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)
        for line in self._lines:
            line.close()
        self._pids, self._lines = {}, []

    def _say(self, rank: int, message: Mapping[str, Any]) -> None:
        try:
            self._lines[rank].send_bytes(json.dumps(message).encode())
        except OSError:
            raise self._ended(rank) from None

    def _hear(self, ranks: Iterator[int] | range | list[int]) -> list[dict[str, Any]]:
        """Return a message of each, in order; a process that ended breaks the world at once."""
        messages: dict[int, dict[str, Any]] = {}
        missing = set(ranks)
        places: dict[Any, int] = {line: rank for rank, line in enumerate(self._lines)}
        while missing:
            for ready in wait([*self._lines, PARENT]):
                if ready == PARENT:
                    end_launch()
                rank = places[ready]
                try:
                    message = json.loads(self._lines[rank].recv_bytes())
                except (EOFError, OSError):
                    raise self._ended(rank) from None
                if "failed" in message:
                    raise self._failed(rank, str(message["failed"]))
                messages[rank] = message
                missing.discard(rank)
        return [messages[rank] for rank in sorted(messages)]

    def _failed(self, rank: int, why: str) -> Broken:
        """Say what broke a call: a killed process, or after a time-out who holds all up."""
        deadline = time.monotonic() + GRACE_S  # others may report their broken connection first
        while TIMED_OUT not in why and time.monotonic() < deadline:
            for other, pid in self._pids.items():
                status = self._status(pid)
                if status is not None and (os.WIFSIGNALED(status) or other == 0 != rank):
                    return self._ended(other)
            time.sleep(0.02)
        if TIMED_OUT not in why:
            return ended(rank, self._pids[rank], f"failed: {why}")
        waited = f"waited {self._spec['timeout_s']:g} s for an action"
        return stopped(self._pids) or ended(rank, self._pids[rank], waited)

    def _status(self, pid: int, how: int = os.WNOHANG) -> int | None:
        """Return how a process ended; None while it runs."""
        if pid not in self._statuses:
            ended_pid, status = os.waitpid(pid, how)
            if ended_pid == 0:
                return None
            self._statuses[pid] = status
        return self._statuses[pid]

    def _ended(self, rank: int) -> Broken:
        status = self._status(self._pids[rank], 0)
        assert status is not None, "it was waited for"
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return ended(rank, self._pids[rank], how)


def _be(rank: int, spec: Mapping[str, Any], line: Connection, listener: socket.socket) -> None:
    """Run as the process of a rank; never return."""
    try:
        # The kernel ends this process when the one that forked it has ended.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), PARENT)
        if spec["interface"] is not None:
            os.environ["TP_SOCKET_IFNAME"] = str(spec["interface"])
        if rank == 0:
            _served["agent"], _served["lock"] = Agent(spec), threading.Lock()
            _served["waiting"], _served["queue"] = [], queue.SimpleQueue()
            threading.Thread(target=_serve_alone, daemon=True).start()
        else:
            torch.set_num_threads(1)
            torch.manual_seed(int(spec["seed"]) + rank)
        dist.register_rendezvous_handler(SCHEME, functools.partial(_meet, spec, rank, listener))
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"{SCHEME}://", rpc_timeout=float(spec["timeout_s"])
        )
        size = int(spec["observers"]) + 1
        name = AGENT if rank == 0 else f"observer{rank}"
        with _connecting_in_turn(rank, line):
            rpc.init_rpc(name, rank=rank, world_size=size, rpc_backend_options=options)
        _answer(line, {})
        if rank == 0:
            _on_command(line, lambda _: {"latency_ns": _served["agent"].take_latencies()})
        else:
            select = select_in_batch if spec["batch"] else select_alone
            size_of = tuple(int(length) for length in spec["state_size"])

            def run(command: Mapping[str, Any]) -> Any:
                return episode(
                    lambda state: int(rpc.rpc_sync(AGENT, select, args=(state,))),
                    lambda: torch.rand(size_of),
                    int(command["steps"]),
                )

            _on_command(line, run)
    except EOFError:
        os._exit(0)  # the world has ended
    except Exception as error:  # noqa: BLE001 - whatever it is, it must reach the parent
        with contextlib.suppress(OSError):
            _answer(line, {"failed": one_line(error)})
        os._exit(1)


@contextlib.contextmanager
def _connecting_in_turn(rank: int, line: Connection) -> Iterator[None]:
    """Make each wait for its turn to connect to the agent, by one call, before `init_rpc` ends.

    `init_rpc` ends with a round of calls to the agent by all at once.
    """
    gather = rpc.api._all_gather

    def in_turn(*args: Any, **more: Any) -> Any:
        _answer(line, {})
        line.recv_bytes()
        if rank:
            rpc.rpc_sync(AGENT, _connect)
        _answer(line, {})
        return gather(*args, **more)

    rpc.api._all_gather = in_turn
    try:
        yield
    finally:
        rpc.api._all_gather = gather


def _on_command(line: Connection, do: Callable[[Mapping[str, Any]], Any]) -> None:
    """Do what each command asks, until the line ends (EOFError)."""
    while True:
        _answer(line, do(json.loads(line.recv_bytes())))


def _answer(line: Connection, message: Any) -> None:
    line.send_bytes(json.dumps(message).encode())


def _meet(
    spec: Mapping[str, Any], rank: int, listener: socket.socket, *_: Any, **__: Any
) -> Iterator[Any]:
    """Yield torch's rendezvous: a store on the socket that is bound already."""
    address, port = listener.getsockname()[:2]
    size = int(spec["observers"]) + 1
    more = {"master_listen_fd": os.dup(listener.fileno()), "use_libuv": False} if rank == 0 else {}
    yield (
        dist.TCPStore(address, port, size, is_master=rank == 0, wait_for_workers=False, **more),
        rank,
        size,
    )


def _connect() -> None:
    """Do nothing: a call of this connects."""


@rpc.functions.async_execution
def select_alone(state: torch.Tensor) -> torch.futures.Future[int]:
    """Select for one request by itself: the agent's one thread serves in order of arrival."""
    mine: torch.futures.Future[int] = torch.futures.Future()
    _served["queue"].put((state, mine))
    return mine


def _serve_alone() -> None:
    """Serve one request after the other, in a thread of the agent.

    torch has 16 threads for calls; on a lock they would overtake each other: with 20 observers the
    median wait was a third of the mean.
    """
    agent, requests = _served["agent"], _served["queue"]
    while True:
        state, future = requests.get()
        future.set_result(agent.select([state], now_ns())[0])


@rpc.functions.async_execution
def select_in_batch(state: torch.Tensor) -> torch.futures.Future[int]:
    """Wait until the batch holds a request of each observer; the last one to come runs it."""
    mine: torch.futures.Future[int] = torch.futures.Future()
    agent, waiting = _served["agent"], _served["waiting"]
    with _served["lock"]:
        waiting.append((state, mine, now_ns()))
        if len(waiting) < agent.batch_size:
            return mine
        actions = agent.select([asked[0] for asked in waiting], waiting[0][2])
        taken = list(waiting)
        waiting.clear()
    for (_, future, _), action in zip(taken, actions, strict=True):
        future.set_result(action)
    return mine
