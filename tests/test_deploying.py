"""What an own app that answers otherwise is told, by a server that stands in for Serve's proxy."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CLUSTER = Path(__file__).parent.parent / "serve_bench" / "cluster"

ROUTES = {"/-/routes": (200, {"/": "app"})}
FASTAPI = {**ROUTES, "/openapi.json": (200, {"paths": {"/a": {}, "/b": {}}})}


@pytest.fixture
def deploying(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the program that holds a cluster, which imports its neighbours by plain names;
    it loses patience at once."""
    monkeypatch.syspath_prepend(str(CLUSTER))
    module: Any = importlib.import_module("deploying")
    monkeypatch.setattr(module, "WRONG_ANSWER_S", 0.0)
    monkeypatch.setattr(module, "PROXY_TIMEOUT_S", 0.3)
    return module


@contextmanager
def answering(answers: Mapping[str, tuple[int, Any]], other: int) -> Iterator[int]:
    """The port of a server with these answers by path, and a status for all else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = answers.get(self.path, (other, {}))
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def refused(deploying: Any, answers: Mapping[str, tuple[int, Any]], status: int) -> str:
    ready: dict[str, Any] = {
        "method": "GET",
        "path": "/",
        "headers": {},
        "body": None,
        "statuses": [],
    }
    with answering(answers, status) as port:
        deployer = deploying.Deployer()
        deployer.http = {"host": "127.0.0.1", "port": port}
        with pytest.raises(deploying.Refused) as caught:
            deployer._wait_proxy({"ready": ready, "own": True, "route_prefix": "/"})
    return str(caught.value)


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        (FASTAPI, 404, "the app has no such path, name one with --route; the app has /a, /b"),
        (ROUTES, 404, "the app has no such path, name one with --route"),
        ({}, 404, "the app has no such path, name one with --route"),
        (ROUTES, 405, "the path takes another --method"),
        (ROUTES, 422, "the path takes another query (--route) or --body"),
    ],
)
def test_an_answer_that_is_the_apps_own_names_the_flag(
    deploying: Any, answers: Mapping[str, tuple[int, Any]], status: int, says: str
) -> None:
    said = refused(deploying, answers, status)
    assert said.startswith("GET / on port ") and said.endswith(f"for 0 s: {says}")


def test_a_404_of_a_proxy_that_does_not_know_the_app_yet_is_waited_for(
    deploying: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its route known it is the app's own answer after two polls; without, time has to end."""
    polls: list[str] = []
    ask = deploying.Deployer._ask

    def count(self: Any, ready: dict[str, Any], patience_s: float) -> Any:
        polls.append(ready["path"])
        return ask(self, ready, patience_s)

    monkeypatch.setattr(deploying.Deployer, "_ask", count)
    refused(deploying, ROUTES, 404)
    assert polls.count("/") <= 3
    polls.clear()
    refused(deploying, {}, 404)
    assert polls.count("/") > 3


def test_the_reason_of_a_failed_deploy_is_the_end_of_its_traceback(deploying: Any) -> None:
    refusal: Any = importlib.import_module("refusal")
    lines = [
        "RuntimeError: Traceback (most recent call last):",
        '  File "x"',
        "ValueError: no model",
    ]
    assert refusal.last_raised(lines) == "ValueError: no model"
    assert refusal.last_raised(["The deployment failed to start 3 times in a row."]) is None
