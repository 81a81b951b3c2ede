import importlib
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.cases import Patch, cases
from tests.places import CLUSTER, git
from tests.servers import Steps, serving

ROUTES = {"/-/routes": (200, {"/": "app"})}
SOCKETS = "the path takes websockets alone, and loads ask by HTTP: --route names another"
NEEDED = [{"name": name, "in": "query", "required": name in "ab"} for name in ("a", "b", "other")]
PATHS = {"/a": {}, "/b/{n}": {"post": {"parameters": [{"name": "n", "in": "path"}, *NEEDED]}}}
FASTAPI = {**ROUTES, "/openapi.json": (200, {"paths": PATHS})}
NO_PATH = "the app has no such path, name one with --route"


@pytest.fixture
def deployer(monkeypatch: Patch) -> Any:
    """Load the program that holds a cluster; its neighbours have plain names. It does not wait."""
    monkeypatch.syspath_prepend(str(CLUSTER))
    module: Any = importlib.import_module("deployer")
    monkeypatch.setattr(module, "WRONG_ANSWER_S", 0.0)
    monkeypatch.setattr(module, "PROXY_TIMEOUT_S", 0.3)
    return module


def refused(
    deployer: Any, answers: Mapping[str, tuple[int, Any]], status: int, late_s: float = 0.0
) -> str:
    """Return what is said of a server with these answers by path, and a status for all else."""

    def answer(number: int) -> Steps:
        head = server.log[number].head
        path = head.split()[1].decode()
        code, content = answers.get(path, (status, {}))
        if path in answers and b"\nupgrade:" in head.lower():
            code = 101
        body, line = json.dumps(content).encode(), f"{code} {HTTPStatus(code).phrase}".encode()
        return [(late_s, b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (line, len(body), body))]

    ready: Any = {"method": "GET", "path": "/", "headers": {}, "body": None, "statuses": []}
    with serving(steps=answer) as server:
        made = deployer.Deployer()
        made.http = {"host": "127.0.0.1", "port": server.port}
        with pytest.raises(deployer.Refused) as caught:
            app = {"name": "default", "ready": ready, "own": True, "route_prefix": "/"}
            made._wait_proxy(app)
    return str(caught.value)


@cases(
    "answers, status, says",
    (FASTAPI, 404, f"{NO_PATH}; the app has /a, POST /b/{{n}} (query a&b)"),
    ({**ROUTES, "/openapi.json": (200, {"paths": ["/a"]})}, 404, NO_PATH),
    ({}, 404, NO_PATH),
    ({**FASTAPI, "/": (404, {})}, 404, SOCKETS),
    (ROUTES, 405, "the path takes another --method"),
    (ROUTES, 422, "the path takes another query (--route), --body or --header"),
)
def test_an_answer_that_is_the_apps_own_names_the_flag(
    deployer: Any, answers: Mapping[str, tuple[int, Any]], status: int, says: str
) -> None:
    said = refused(deployer, answers, status)
    assert re.fullmatch(rf"GET / on port .* for \d+ s: {re.escape(says)}", said)


def test_a_late_first_answer_is_waited_for(deployer: Any, monkeypatch: Patch) -> None:
    assert "answered 400 Bad Request" in refused(deployer, {}, 400, late_s=0.5)
    monkeypatch.setattr(deployer, "FIRST_ANSWER_S", 0.1)
    assert refused(deployer, {}, 400, late_s=0.5).endswith("sooner (--route, --body)")


def test_a_404_of_a_new_app_is_waited_for(deployer: Any, monkeypatch: Patch) -> None:
    """With its route known it is the app's own answer after two polls; without, time has to end."""
    polls: list[str] = []
    ask = deployer.Deployer._ask

    def count(self: Any, ready: dict[str, Any], patience_s: float) -> Any:
        polls.append(ready["path"])
        return ask(self, ready, patience_s)

    monkeypatch.setattr(deployer.Deployer, "_ask", count)
    for answers, fewest, most in ((ROUTES, 1, 3), ({}, 4, 99)):
        polls.clear()
        refused(deployer, answers, 404)
        assert fewest <= polls.count("/") <= most


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


def test_a_traceback_in_a_log_is_told_by_the_frames_of_the_app(deployer: Any) -> None:
    refusal: Any = importlib.import_module("actors")
    assert refusal.traceback_in(LOG) == [
        "Traceback (most recent call last):",
        '  File "/home/me/shop.py", line 19, in best',
        '    return table["key"]',
        "           ~~~~~^^^^^^^",
        "shop.NoKey: key",
    ]
    assert refusal.traceback_in(LOG[:2]) == refusal.traceback_in(LOG[:6]) == []
    assert refusal.traceback_in([*LOG, *LOG[:5]]) == refusal.traceback_in(
        LOG
    )  # cut: the one before
    lines = ["RuntimeError: Traceback (most recent call last):", '  File "x"', "ValueError: bad"]
    assert refusal.last_raised(lines) == "ValueError: bad"
    assert refusal.last_raised(["The deployment failed to start 3 times in a row."]) is None
    library = refusal.traceback_in([*LOG[:6], "KeyError: 1"])  # no frame of the app: the last one
    assert library[1].endswith("line 1, in call") and library[-1] == "KeyError: 1"


def test_a_500_has_its_log_and_a_dead_replica_its_end(deployer: Any, monkeypatch: Patch) -> None:
    monkeypatch.setattr(deployer, "_logged", lambda app, pattern, since: LOG)
    said = refused(deployer, ROUTES, 500)
    flags = "; if the request lacks something: query (--route), --body, --header, --protocol"
    assert said.endswith(f"answered 500 Internal Server Error for 0 s: shop.NoKey: key{flags}")
    monkeypatch.setattr(deployer, "_logged", lambda app, pattern, since: [])
    assert refused(deployer, ROUTES, 500).endswith(f"500 Internal Server Error for 0 s{flags}")
    taken = [*LOG[:-2], 'TypeError: can only concatenate str (not "Request") to str']
    monkeypatch.setattr(deployer, "_logged", lambda app, pattern, since: taken)
    assert "takes no HTTP request: --protocol handle" in refused(deployer, ROUTES, 500)
    taken = [*LOG[:6], '    return request.query_params["word"]', "KeyError: 'word'"]
    assert "'word'; it takes a query: --route with / (query word)" in refused(deployer, ROUTES, 500)
    wrote = [":actor_name:ServeReplica:default:Dies", "going down", ""]
    monkeypatch.setattr(deployer, "_logged", lambda app, pattern, since: wrote)
    refusal = deployer._failed("default", "DEPLOY_FAILED", ["start failed", "ActorDiedError()"], 0)
    assert str(refusal).endswith("the process of a replica ended; its last line: going down")
    assert refusal.detail == ["going down"]
    raised = deployer._failed("default", "DEPLOY_FAILED", ["\n".join(LOG)], 0.0)
    assert str(raised) == "the app 'default' is DEPLOY_FAILED: shop.NoKey: key"
    assert raised.detail[1].startswith('  File "/home/me/shop.py"')


@cases("place", "expect", "told")
def test_settings_not_in_force(deployer: Any, monkeypatch: Patch, place: str) -> None:
    shop = {"deployment_config": {"word": "old", "boost": 1}}
    details = {"applications": {"a": {"deployments": {"Shop": shop}}}}
    asked = {"word": "new", "boost": 2}
    check = {"deployment": "Shop", "replicas": None, "expect": {}, "told": {}, place: asked}
    spec = {"name": "a", "own": True, "checks": [check]}
    replica = {"deployment": "Shop", "pid": 1, "word": "old", "boost": 1}
    monkeypatch.setattr(deployer, "serve_details", lambda: details)
    monkeypatch.setattr(deployer, "_replicas", lambda spec: ([replica], []))
    monkeypatch.setattr(deployer, "PROOF_TIMEOUT_S", 0.0)
    with pytest.raises(deployer.Refused) as refused:
        deployer._wait_settings(spec)
    lines = [str(refused.value), *refused.value.detail]
    assert "'old', asked for 'new'" in lines[0] and "1, asked for 2" in lines[1]


IN_RAY = '  File "/v/lib/python3.11/site-packages/ray/serve/__init__.py", line 4, in <module>'
IN_IT = '  File "/v/lib/python3.11/site-packages/httptools/parser.py", line 9, in parse'


@cases(
    "frames, last, says",
    ([IN_RAY, IN_IT], "TypeError: bad", "start with httptools {its}: TypeError: bad"),
    ([IN_IT, IN_RAY], "ImportError: cannot import name 'X' from 'httptools.y' (/v)", "{its}: I"),
    ([IN_RAY], "ModuleNotFoundError: No module named 'nowhere'", "start without nowhere, which"),
    ([IN_RAY], "RuntimeError: no GCS", "does not start: RuntimeError: no GCS"),
    ([IN_IT], "OSError: [Errno 98] Address already in use", "; a busy host is slow (serve"),
)
def test_a_ray_that_does_not_start_is_told_with_the_package_beside_it(
    deployer: Any, frames: list[str], last: str, says: str, tmp_path: Path
) -> None:
    actors: Any = importlib.import_module("actors")
    wrote = ["Traceback (most recent call last):", *frames, f"\x1b[36m{last}\x1b[0m"]
    (tmp_path / "dashboard_agent.log").write_text("\n".join(wrote))
    line = actors.why_not_up(RuntimeError("timed out \\x1b[36m" + 2000 * "x"), tmp_path)
    assert line.startswith(f"Ray {version('ray')} does not start")
    assert says.format(its=version("httptools")) in line and len(line) < 400
    assert "\x1b" not in line and "\\x1b" not in actors.why_not_up(RuntimeError("a \\x1b[36m b"))


@pytest.fixture
def measured(monkeypatch: Patch) -> Any:
    """Read what a launch says of the code that it measures: commit, sources, packages."""
    monkeypatch.syspath_prepend(str(CLUSTER))
    return importlib.import_module("measured")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a repository with an app in a folder below its top, committed."""
    folder = tmp_path / "repository" / "service"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text("import helper\n")
    (folder / "helper.py").write_text("one = 1\n")
    for command in ("init -q", "add -A", "commit -q -m first"):
        git(folder.parent, *command.split())
    return folder


NAMES = ["app.py", "helper.py"]


@pytest.mark.git
def test_the_commit(measured: Any, checkout: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # of a hook, say: of another repository
    assert measured.commit(str(checkout), NAMES) == {"commit": head, "changes": 0}
    (checkout / "results").mkdir()
    (checkout / "results" / "records.jsonl").write_text("{}")  # no source, and not in git
    assert measured.commit(str(checkout), NAMES)["changes"] == 0
    (checkout / "helper.py").write_text("one = 2\n")
    (checkout / "more.py").write_text("")  # a source that git does not know
    app = measured.commit(str(checkout), [*NAMES, "more.py"])
    assert app == {"commit": head, "changes": 2}
    other = checkout.parent / "copied"  # sources that git does not know have none
    other.mkdir()
    (other / "app.py").write_text("")
    assert measured.commit(str(other), ["app.py"]) == {}  # the commit around it says nothing of it
    (tmp_path / "app.py").write_text("")  # outside of git
    assert measured.commit(str(tmp_path), ["app.py"]) == {}
    assert measured.commit(str(tmp_path / "gone"), ["app.py"]) == {}


def test_the_hash(measured: Any, tmp_path: Path, monkeypatch: Patch) -> None:
    hashes = []
    for place, text in (("a", "one = 1\n"), ("b", "one = 1\n"), ("c", "one = 2\n")):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "app.py").write_text("import helper\n")
        (folder / "helper.py").write_text(text)
        app = measured.digest({str(folder): NAMES})
        assert app["files"] == 2 and len(app["sources"]) == 64
        hashes.append(app["sources"])
    assert hashes[0] == hashes[1] != hashes[2]
    assert measured.digest({str(tmp_path / "a"): ["app.py", "gone.py"]}) == {}
    monkeypatch.setattr(measured, "MOST_BYTES", 10)
    assert measured.digest({str(tmp_path / "a"): NAMES}) == {}


def test_every_package_once(measured: Any, tmp_path: Path, monkeypatch: Patch) -> None:
    for place, release in (("second", "1.0"), ("first", "2.0")):
        info = tmp_path / place / f"Tiny_Rank-{release}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: Tiny_Rank\nVersion: {release}\n")
        monkeypatch.syspath_prepend(str(tmp_path / place))
    (tmp_path / "first" / "left-3.0.dist-info").mkdir()  # of one that was removed
    found = measured.measured({})
    assert "app" not in found
    assert [name for name in found["packages"] if name.startswith("tiny")] == ["tiny-rank==2.0"]
    assert not any(package.startswith("left") for package in found["packages"])
    assert any(package.startswith("pytest==") for package in found["packages"])
    assert found["packages"] == sorted(found["packages"])
