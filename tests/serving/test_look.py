"""The look inside a replica, on a loop without Ray: where requests wait that have several tasks."""

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.cases import cases
from tests.places import CLUSTER

SERVE = """
class UserCallableWrapper:
    async def _call_http_entrypoint(self, app, scope, receive, send):
        await app(scope, receive, send)
"""
"""In place of Serve's own, by the name of its file."""


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the module, which travels into replicas."""
    monkeypatch.syspath_prepend(str(CLUSTER))
    return importlib.import_module("look")


class Shop:
    """Endpoints that wait in tasks of their own."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def locked(self, request: Request) -> Response:
        await self.lock.acquire()  # never released
        return PlainTextResponse("ok")

    async def beside(self, request: Request) -> Response:
        self.task = asyncio.create_task(asyncio.sleep(9))
        return await self.locked(request)

    def slow_chunks(self) -> Iterator[str]:
        time.sleep(0.5)  # in a thread
        yield "x"

    async def stream(self, request: Request) -> Response:
        return StreamingResponse(self.slow_chunks())

    async def chunks(self) -> AsyncIterator[str]:
        await self.lock.acquire()  # of a stream
        yield "x"

    async def async_stream(self, request: Request) -> Response:
        return StreamingResponse(self.chunks())

    async def part(self) -> None:
        await self.lock.acquire()  # of a part

    async def gathered(self, request: Request) -> Response:
        await asyncio.gather(self.part(), self.part())
        return PlainTextResponse("ok")

    async def grouped(self, request: Request) -> Response:
        await asyncio.wait([asyncio.create_task(self.part())])
        return PlainTextResponse("ok")


async def timed(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    return response


async def sampled(look: Any, endpoint: str, middleware: bool) -> dict[str, Any]:
    """Sample three requests at an endpoint of Shop, whose lock is held."""
    shop = Shop()
    serve: dict[str, Any] = {}
    await shop.lock.acquire()
    exec(compile(SERVE, "/x/ray/serve/_private/replica.py", "exec"), serve)
    layers = [Middleware(BaseHTTPMiddleware, dispatch=timed)] * (2 * middleware)
    app = Starlette(routes=[Route("/", getattr(shop, endpoint))], middleware=layers)

    async def send(message: Any) -> None:
        pass

    def call() -> Any:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
        user = serve["UserCallableWrapper"]()
        return user._call_http_entrypoint(app, scope, asyncio.Queue().get, send)

    wrapper = SimpleNamespace(event_loop=asyncio.get_running_loop())
    thread = look.LookThread(
        SimpleNamespace(
            _user_callable_wrapper=wrapper,
            _metrics_manager=None,
            get_num_ongoing_requests=lambda: 3,
        )
    )
    await thread._note_loop()
    tasks = [asyncio.create_task(call()) for _ in range(3)]
    await asyncio.sleep(0.1)
    sample: dict[str, Any] = await asyncio.to_thread(thread._take_sample)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sample


def line_of(text: str) -> str:
    """`test_look.py:31` of the line with this text."""
    lines = Path(__file__).read_text().splitlines()
    at = next(at for at, line in enumerate(lines, 1) if line.strip().startswith(text))
    return f"{Path(__file__).name}:{at}"


NEVER = "await self.lock.acquire()  # never"


@cases("middleware", False, True, ids=["plain", "middleware"])
@cases(
    "endpoint, text",
    ("locked", NEVER),
    ("beside", NEVER),
    ("async_stream", "await self.lock.acquire()  # of a stream"),
    ("gathered", "await self.lock.acquire()  # of a part"),
    ("grouped", "await self.lock.acquire()  # of a part"),
)
def test_the_innermost_line_is_named(look: Any, endpoint: str, text: str, middleware: bool) -> None:
    sample = asyncio.run(sampled(look, endpoint, middleware))
    places = {at[:2]: count for at, count in sample["places"].items()}
    assert places == {("asyncio.Lock.acquire", line_of(text)): 3}
    assert not any(at[0].startswith("asyncio.Lock") for at in sample["own"])


def test_a_generator_in_a_thread_is_what_its_stream_waits_for(look: Any) -> None:
    sample = asyncio.run(sampled(look, "stream", middleware=False))
    ((awaited, line, _),) = sample["places"]
    assert "run_sync" in awaited and not line
    at = ("AnyIO worker thread", line_of("time.sleep(0.5)"), "slow_chunks")
    assert sample["threads"][at] == 3
    # Of the 40 threads that there may be three have started.
    (pool,) = sample["pools"].values()
    assert pool == {"threads": 40, "full": False, "num_cpus": None}


def test_calls_of_a_request_are_counted_by_its_id(look: Any) -> None:
    """Two requests; one that began before the look has only a part of its calls in it."""
    calls = {
        "Leaf": [("a", 10, 20), ("a", 30, 40), ("b", 15, 30), ("c", 1, 2)],
        "Other": [("a", 0, 10), ("a", 0, 10), ("b", 3, 8), ("b", 8, 13)],
    }
    looks = [
        {"app": "app", "deployment": name, "ingress": False, "answers": spans}
        for name, spans in calls.items()
    ]
    front = [("a", 5, 50), ("b", 12, 35), ("d", 1, 2), ("d", 3, 4)]  # d is an id of the client
    looks.append({"app": "app", "deployment": "Front", "ingress": True, "answers": front})
    look._add_calls(looks)
    assert [look.get("calls") for look in looks] == [
        {"a_request": 1.5, "at_once": 1.0},
        {"a_request": 2.0, "at_once": 1.5},
        None,
    ]
    assert not any("answers" in look for look in looks)
