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

CLUSTER = Path(__file__).parents[2] / "serve_bench" / "serving" / "cluster"

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
            if self.headers.get("Upgrade") and self.path in answers:
                status = 101
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
            app = {"name": "default", "ready": ready, "own": True, "route_prefix": "/"}
            deployer._wait_proxy(app)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        (FASTAPI, 404, "the app has no such path, name one with --route; the app has /a, /b"),
        (ROUTES, 404, "the app has no such path, name one with --route"),
        ({}, 404, "the app has no such path, name one with --route"),
        (
            {**FASTAPI, "/": (404, {})},
            404,
            "the path takes websockets alone, and loads are of HTTP requests",
        ),
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
    refusal: Any = importlib.import_module("asking")
    lines = [
        "RuntimeError: Traceback (most recent call last):",
        '  File "x"',
        "ValueError: no model",
    ]
    assert refusal.last_raised(lines) == "ValueError: no model"
    assert refusal.last_raised(["The deployment failed to start 3 times in a row."]) is None


LOG = """INFO 10:00:00 default_Front a1 -- started
ERROR 10:00:01 default_Front a1 -- Request failed.
ray::ServeReplica:default:Front.handle_request() (pid=7)
  File "/venv/lib/python3.11/site-packages/ray/serve/replica.py", line 1, in call
    return await user(request)
           ^^^^^^^^^^^^^^^^^^^
  File "/home/me/shop.py", line 19, in best
    return table["key"]
           ~~~~~^^^^^^^
shop.NoKey: key
INFO 10:00:02 default_Front a1 -- GET / 500
""".splitlines()


def test_a_traceback_in_a_log_is_told_by_the_frames_of_the_app(deploying: Any) -> None:
    refusal: Any = importlib.import_module("asking")
    assert refusal.traceback_in(LOG) == [
        "Traceback (most recent call last):",
        '  File "/home/me/shop.py", line 19, in best',
        '    return table["key"]',
        "           ~~~~~^^^^^^^",
        "shop.NoKey: key",
    ]
    assert refusal.traceback_in(LOG[:2]) == []
    library = refusal.traceback_in([*LOG[:6], "KeyError: 1"])  # no frame of the app: the last one
    assert library[1].endswith("line 1, in call") and library[-1] == "KeyError: 1"


def test_a_500_is_told_with_what_the_replica_logged(
    deploying: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploying, "_logged", lambda app, pattern, since: LOG)
    said = refused(deploying, ROUTES, 500)
    assert said.endswith("answered 500 Internal Server Error for 0 s: shop.NoKey: key")
    monkeypatch.setattr(deploying, "_logged", lambda app, pattern, since: [])
    assert refused(deploying, ROUTES, 500).endswith("500 Internal Server Error for 0 s")


def test_a_replica_that_died_is_told_by_the_last_that_it_wrote(
    deploying: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote = [":actor_name:ServeReplica:default:Dies", "going down", ""]
    monkeypatch.setattr(deploying, "_logged", lambda app, pattern, since: wrote)
    refusal = deploying._failed("default", "DEPLOY_FAILED", ["start failed", "ActorDiedError()"], 0)
    assert str(refusal).endswith("the process of a replica ended; its last line: going down")
    assert refusal.detail == ["going down"]
    raised = deploying._failed("default", "DEPLOY_FAILED", ["\n".join(LOG)], 0.0)
    assert str(raised) == "the app 'default' is DEPLOY_FAILED: shop.NoKey: key"
    assert raised.detail[1].startswith('  File "/home/me/shop.py"')


@pytest.mark.parametrize("place", ["expect", "told"])
def test_a_setting_that_is_not_in_force_is_told_without_what_may_be_a_secret(
    deploying: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    class Client:
        def get_serve_details(self) -> Any:
            config = {"api_key": "old", "boost": 1}
            return {"applications": {"a": {"deployments": {"Shop": {"deployment_config": config}}}}}

    asked = {"api_key": "new", "boost": 2}
    check = {"deployment": "Shop", "replicas": None, "expect": {}, "told": {}, place: asked}
    spec = {"name": "a", "own": True, "checks": [{**check, "hidden": ["api_key"]}]}
    replica = {"deployment": "Shop", "pid": 1, "api_key": "old", "boost": 1}
    monkeypatch.setattr(deploying, "serve_client", Client)
    monkeypatch.setattr(deploying, "_replicas", lambda spec: ([replica], []))
    monkeypatch.setattr(deploying, "PROOF_TIMEOUT_S", 0.0)
    with pytest.raises(deploying.Refused) as refused:
        deploying._wait_settings(spec)
    told = [str(refused.value), *refused.value.detail]
    assert "api_key" in told[0] and "boost" in told[1] and "1, asked for 2" in told[1]
    assert not any("old" in line or "new" in line for line in told)
