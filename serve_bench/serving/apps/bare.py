"""A program: an app behind uvicorn alone, without Serve, as the measure of what Serve adds.

It answers its parent as the program of a cluster does: a spec comes, the port goes back. uvicorn is
configured as Serve configures that of its proxy: its own choice of loop and parser, no access log,
one process. `kind`: "asgi", a callable that answers what the no-op app answers; "fastapi", the same
as a route; "app", the ASGI app of the user's ingress, whose class is made as a replica makes it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import uvicorn

from . import of_cluster
from .noop_answers import ANSWER, EVENT, asked, body_of

PACKAGES = ("uvicorn", "uvloop", "httptools", "fastapi", "starlette")
KEEP_ALIVE_S = 90
"""Serve's value (Ray 2.60): others may be loaded in turn for longer than the 5 s of uvicorn."""

TEXT, STREAM = b"text/plain; charset=utf-8", b"text/event-stream; charset=utf-8"


async def asgi(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
    """Answer as the no-op app does, with the least code."""
    query = scope["query_string"]
    events = asked(query, b"events")
    body = b"" if events else body_of(query) if query else ANSWER.encode()
    kind = STREAM if events else TEXT
    headers = [] if events else [(b"content-length", str(len(body)).encode())]
    headers.append((b"content-type", kind))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(events):
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": body})


def fastapi(route: str) -> Any:
    """Return the no-op app as a route of FastAPI."""
    from fastapi import FastAPI, Request
    from starlette.responses import PlainTextResponse, StreamingResponse

    app = FastAPI()

    async def stream(events: int) -> AsyncIterator[bytes]:
        for _ in range(events):
            yield EVENT

    async def answer(request: Any) -> Any:
        query: bytes = request.scope["query_string"]
        if query and (events := asked(query, b"events")):
            return StreamingResponse(stream(events), media_type="text/event-stream")
        return PlainTextResponse(body_of(query) if query else ANSWER)

    answer.__annotations__ = {"request": Request}  # not a name that FastAPI looks for here
    app.get(route, response_model=None)(answer)
    return app


async def build_ingress(spec: Mapping[str, Any]) -> Any:
    """Return the ASGI app of the user's ingress, with an instance of its class behind routes."""
    from .own import build  # with Ray, which the other kinds do without

    deployment = build({"import_path": spec["import_path"], "args": spec["args"]})._bound_deployment
    kind = deployment.func_or_class
    instance = kind.__new__(kind)
    made = instance.__init__(*deployment.init_args, **deployment.init_kwargs)
    if inspect.isawaitable(made):
        await made
    context: Any = importlib.import_module("ray.serve.context")
    # Methods that are routes get the instance from here.
    context._INTERNAL_REPLICA_CONTEXT = SimpleNamespace(
        servable_object=instance, app_name="default", deployment=deployment.name
    )
    if deployment.user_config is not None:
        changed = instance.reconfigure(deployment.user_config)
        if inspect.isawaitable(changed):
            await changed
    if hasattr(kind, "__serve_build_asgi_app__"):  # instead of an app in the decorator
        built = instance.__serve_build_asgi_app__()
        return await built if inspect.isawaitable(built) else built
    return instance._asgi_app


def mount(app: Any, prefix: str) -> Any:
    """Return the app as if it were mounted at a prefix, as Serve mounts it."""
    root = prefix.rstrip("/")
    if not root:
        return app

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": root}, receive, send)

    return mounted


async def serve(spec: Mapping[str, Any], say: Any) -> None:
    """Serve until the process ends; `say` takes the port and facts, once the app is up."""
    kind = spec["kind"]
    app: Any = asgi
    if kind == "fastapi":
        app = fastapi(str(spec["route"]))
    elif kind == "app":
        app = await build_ingress(spec)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        mount(app, spec.get("prefix", "/")),
        timeout_keep_alive=KEEP_ALIVE_S,
        lifespan="auto" if kind == "app" else "off",
        access_log=False,
        log_level=None,
        log_config=None,
    )
    server = uvicorn.Server(config)
    done = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started:
        if done.done():
            raise RuntimeError("the app did not start (its lifespan)")
        await asyncio.sleep(0.01)
    say(
        event="done",
        port=listener.getsockname()[1],
        serves=f"{type(app).__module__}.{type(app).__name__}" if kind == "app" else kind,
        loop=type(asyncio.get_running_loop()).__module__,
        parser=getattr(config.http_protocol_class, "__name__", ""),
        versions={"python": sys.version.split()[0], **of_cluster("start").installed(*PACKAGES)},
    )
    await done


def main() -> None:
    """Serve what the first line of stdin says, until stdin ends."""
    protocol = of_cluster("protocol")
    answers, spec = protocol.Answers(), protocol.read_commands(lambda: None).get()
    setup: Any = getattr(uvicorn.Config(asgi), "get_loop_factory", lambda: None)()
    try:
        with asyncio.Runner(loop_factory=setup) as runner:
            runner.run(serve(spec, answers.say))
    except Exception as error:  # noqa: BLE001 - whatever the app raises must reach the parent
        answers.say(event="refused", message=protocol.one_line(error), detail=[])


if __name__ == "__main__":
    main()
