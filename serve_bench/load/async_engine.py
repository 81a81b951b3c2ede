"""Clients that are tasks of asyncio, one for each connection.

In a closed loop a client sends one request after the other, in an open loop as they are due. Rule:
this is the course of the load; what a request is belongs to the client of a protocol.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from serve_bench.load.pacing import IDLE_S, Assignment, Engine
from serve_bench.load.request_log import Events
from serve_bench.load.tally import NEVER

PAUSE_S = 0.05
"""Wait after a failed connect, as in the raw client."""

perf = time.perf_counter_ns


@dataclass(slots=True, eq=False, kw_only=True)
class AsyncClient:
    """A connection and its request; `due`, `sent_at`, `last`, `number`, `events` as in `Sender`."""

    busy: bool = False  # a request is in flight
    due: int = 0
    sent_at: int = 0
    last: int = 0
    number: int = 0
    events: Events | None = None
    task: asyncio.Task[None] | None = None


C = TypeVar("C", bound=AsyncClient)


class AsyncEngine(Engine, Generic[C]):
    """All clients of one worker. `_draw` returns the next request, as `_attempt` takes it."""

    _draw: Callable[[], Any]

    def __init__(self, work: Assignment) -> None:
        super().__init__(work)
        self._loop = asyncio.new_event_loop()
        self._clients: list[C] = []
        self._free: list[tuple[C, asyncio.Future[int]]] = []
        self._over = asyncio.Event()

    @abstractmethod
    def _make_client(self) -> C:
        """Make a client that is not connected yet."""

    async def _preconnect(self, client: C) -> bool:
        """Connect before the start; where that fails, say why in `connect_error`."""
        return True

    @abstractmethod
    async def _attempt(self, client: C, turn: Any) -> tuple[str | None, int]:
        """Send a request once; return its class of failure or None, and its status or 0."""

    async def _disconnect(self, client: C) -> None:
        """Close the client's connection, if it has one."""

    def _account(self, client: C) -> None:
        """Count what else is known of a try that has ended, such as its bytes."""

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        self._loop.add_reader(fd, call)

    @property
    def opened(self) -> int:
        return len(self._clients)

    def _in_flight(self) -> list[C]:
        return [client for client in self._clients if client.busy]

    def connect(self) -> int:
        return self._loop.run_until_complete(self._connect_all())

    async def _connect_all(self) -> int:
        clients = [self._add_client() for _ in range(self.share.connections)]
        begun = perf()
        opened = await asyncio.gather(*(self._preconnect(client) for client in clients))
        self.connecting = (begun, perf())
        return sum(opened)

    def _add_client(self) -> C:
        client = self._make_client()
        client.number = self.share.first + len(self._clients)
        client.events = None if self._notes is None else self._notes.events()
        self._clients.append(client)
        return client

    def _begin(self, client: C, due: int) -> None:
        """Count a request as begun: the client has it, though its task has yet to run."""
        client.busy = True
        client.due, client.sent_at, client.last = due, 0, 0
        self.tally.begun(due)

    async def _request(self, client: C, due: int, sent_at: int) -> None:
        tally = self.tally
        turn = self._draw()
        attempts = 0
        while True:
            client.sent_at = sent_at
            failure, status = await self._attempt(client, turn)
            now = perf()
            if now >= tally.edge:
                self._turn(now)
            self._account(client)
            if failure is None:
                tally.success(due, sent_at, now, status)
                break
            self.see(failure, "the answer had begun" if client.last else "no answer", status)
            if attempts == self.load.retries or self._over.is_set():
                self._count_failure(client, failure, now, status or None)
                break
            attempts += 1
            tally.retried += 1
            if failure == "connect":
                await asyncio.sleep(PAUSE_S)
            sent_at = perf()
        if self._notes is not None:
            self._note(client, self._notes, now, status, failure)
        client.busy = False
        if not tally.refill:
            self._turn(now)
        if failure == "connect":
            await asyncio.sleep(PAUSE_S)

    def run(self, start: int, drain_ns: int) -> None:
        self._drain_ns = drain_ns
        self._loop.run_until_complete(self._run(start))
        self._note_cut()

    def run_slice(self, length_ns: int, drain_ns: int) -> int:
        """Load for a slice as in `Engine`, but wait for every response, whatever `drain_ns` is."""
        begun = perf()  # a cancelled task would close its connection; the time-out bounds the wait
        self._drain_ns, self._drain_until = NEVER // 2, NEVER
        self._over.clear()
        self.tally.open_slice(begun, length_ns)
        self._loop.run_until_complete(self._run(begun))
        return begun

    async def _run(self, start: int) -> None:
        self._turn(perf())
        if self.load.open_loop:
            self._set_clock(start)
            for client in self._clients:
                self._begin_task(client, self._serve(client, None))
            await asyncio.sleep(0)
            if self.timer.fd >= 0:
                self._loop.add_reader(self.timer.fd, self._timer_rang)
            self._pump()
        else:
            for client in self._clients:
                self._begin_task(client, self._repeat(client))
        tick = self._loop.create_task(self._tick())
        await self._over.wait()
        tick.cancel()
        for client in self._clients:
            if client.task is not None:
                client.task.cancel()
        tasks = [client.task for client in self._clients if client.task is not None]
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _begin_task(self, client: C, course: Coroutine[Any, Any, None]) -> None:
        client.task = self._loop.create_task(course)
        client.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the load, which would wait for ever, when a task fails; `_run` raises its error."""
        if not task.cancelled() and task.exception() is not None:
            self._over.set()

    async def _repeat(self, client: C) -> None:
        """Send a client's requests one after the other (closed loop)."""
        left = NEVER if self.share.requests is None else self.share.requests
        while left and self.tally.may_send():
            now = perf()
            if now >= self.tally.edge:  # it is sent in the window in which it is counted
                self._turn(now)
                continue
            left -= 1
            self._begin(client, now)
            await self._request(client, now, now)

    async def _serve(self, client: C, due: int | None) -> None:
        """Send requests as they are due (open loop). `due`: of one that has begun already."""
        while True:
            if due is None and self._backlog:  # in the drain too
                due = self._backlog.popleft()
                self._begin(client, due)
                self.tally.had_waited(due)
            if due is None:
                turn: asyncio.Future[int] = self._loop.create_future()
                self._free.append((client, turn))
                due = await turn
            now = perf()
            self.tally.record_of(due, "send_lag", now - due)
            await self._request(client, due, now)
            due = None

    def _timer_rang(self) -> None:
        self.timer.clear()
        self._pump()

    def _pump(self) -> None:
        """Begin every request that is due, and arrange the call for the next one."""
        clock = self._clock
        assert clock is not None
        now = perf()
        if now >= self.tally.edge:
            self._turn(now)
        self._launch_due(now)
        if not self.tally.refill:
            return
        sleep_s = self.timer.sleep_s(clock.due, now)
        if self.timer.fd < 0:
            self._loop.call_later(sleep_s, self._pump)

    def _launch_due(self, now: int) -> None:
        clock, tally = self._clock, self.tally
        while clock is not None and tally.refill and clock.due <= now and clock.due < tally.edge:
            left = tally.left_to_send
            if left is not None and left <= len(self._backlog):
                return
            self._launch(clock.due)
            clock.step()

    def _launch(self, due: int) -> None:
        if self._free:
            client, turn = self._free.pop()
            self._begin(client, due)
            turn.set_result(due)
        elif len(self._clients) < self.share.limit:
            client = self._add_client()
            self._begin(client, due)
            self._begin_task(client, self._serve(client, due))
        else:
            self._backlog.append(due)

    async def _tick(self) -> None:
        """Keep the tally's time while no response comes."""
        while True:
            self._turn(perf())
            await asyncio.sleep(IDLE_S)

    def _turn(self, now: int) -> None:
        if self._advance(now):
            self._over.set()

    def _busy(self) -> bool:
        return any(client.busy for client in self._clients)

    def close(self) -> None:
        async def close_all() -> None:
            await asyncio.gather(*(self._disconnect(client) for client in self._clients))

        self._loop.run_until_complete(close_all())
        self.timer.close()
        self._loop.close()


@dataclass(slots=True, eq=False, kw_only=True)
class CallClient(AsyncClient):
    """A client whose requests are calls: of gRPC, or of a handle."""

    call: Any = None  # the one in flight
    stalled: bool = False  # the call was cancelled for its silence
    received: int = 0  # bytes of messages that are not counted yet


K = TypeVar("K", bound=CallClient)


class CallEngine(AsyncEngine[K]):
    """All call clients of one worker. `_size` returns the bytes of a message."""

    _size: Callable[[Any], int]

    async def _stream(self, client: K) -> tuple[str | None, int]:
        """Read the stream of the call to its end; return what `_attempt` does."""
        client.last = 0
        async for message in client.call:
            now = perf()
            if now >= self.tally.edge:
                self._turn(now)
            self.tally.streamed(client.due, client.last, now, 1)
            client.last = now
            if client.events is not None:
                client.events.add(now, 1)
            client.received += self._size(message)
        if client.last:
            return None, 0
        self.see("event", "the stream ended without a message")
        return "event", 0

    def _answer(self, client: K, answer: Any) -> tuple[str | None, int]:
        client.received += self._size(answer)
        expected = self.load.request.expect_body
        if expected is None:
            return None, 0
        content = answer if isinstance(answer, bytes) else str(answer).encode()
        if content == expected:
            return None, 0
        self.see("body", content)
        return "body", 0

    def _account(self, client: K) -> None:
        self.tally.bytes_received += client.received
        client.received = 0

    def _turn(self, now: int) -> None:
        if self._gap_ns < NEVER:
            for client in self._clients:
                if client.busy and client.last and now - client.last > self._gap_ns:
                    client.stalled = True
                    client.call.cancel()
        super()._turn(now)
