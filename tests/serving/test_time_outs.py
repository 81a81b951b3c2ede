"""Read from the sources, since no run shows all that may give no answer."""

import ast
import importlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import pytest

from tests.places import CLUSTER, TOP

PACKAGE: Final = TOP / "serve_bench"

#: Calls that take a time-out, by the end of their name, and how many arguments come before it.
BOUNDED: Final = {
    ".result": 0,
    ".wait": 0,
    ".communicate": 1,
    ".urlopen": 2,
    "_DIRECT.open": 2,
    ".create_connection": 1,
    ".HTTPConnection": 2,
    "ray.get": 9,
    "ray.wait": 9,
    "subprocess.run": 9,
    "subprocess.check_output": 9,
}

#: `Child.wait` is bounded itself.
OURS: Final = ("child.wait", "self._routes.wait")

#: Calls of Ray and Serve that take no time-out: `in_time` gives them one. `serve.run` is of a world
#: of rpc alone, which its parent ends.
ENDLESS: Final = frozenset(
    """serve.status serve.run_many serve_client().get_serve_details state.nodes table.jobs
    serve_client().deploy_apps serve_client().delete_apps client.update_global_logging_config
    ray.util.list_named_actors ray.get_actor""".split()
)


def calls(tree: ast.AST, inside: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.Call, Any]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Call):
            yield child, (*inside, tree)
        yield from calls(child, (*inside, tree))


def without_end(source: str) -> list[str]:
    """List the calls of a module that may wait for ever."""
    found = []
    all_calls = list(calls(ast.parse(source)))
    in_time = [call for call, _ in all_calls if ast.unparse(call.func) == "in_time"]
    asked = {ast.unparse(argument) for call in in_time for argument in call.args}
    for call, inside in all_calls:
        name = ast.unparse(call.func)
        if name in ENDLESS:
            names = {node.name for node in inside if isinstance(node, ast.FunctionDef)}
            bounded = bool(names & asked) or any(node in in_time for node in inside)
        else:
            before = next((n for end, n in BOUNDED.items() if name.endswith(end)), -1)
            named = {keyword.arg for keyword in call.keywords} & {"timeout", "timeout_s"}
            awaited = isinstance(inside[-1], ast.Await)
            bounded = awaited or name.endswith(OURS) or len(call.args) > before or bool(named)
        if not bounded:
            found.append(f"{call.lineno}: {name}")
    return found


def test_every_question_has_a_time_out() -> None:
    asked = "ray.get(x)\nserve.status()\nprocess.wait()\nray.get(x, timeout=3)"
    asked += "\nin_time(CONTROLLER, lambda: serve.status().applications)"
    assert without_end(asked) == ["1: ray.get", "2: serve.status", "3: process.wait"]
    sources = {file: file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}
    wrong = {str(file): without_end(source) for file, source in sources.items()}
    assert not {file: lines for file, lines in wrong.items() if lines}


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CLUSTER))
    return importlib.import_module("actors")


def test_a_question_that_gets_no_answer_is_given_up(actors: Any) -> None:
    over = threading.Event()
    with pytest.raises(actors.Refused, match=r"controller gave no answer in 0\.01 s"):
        actors.in_time(actors.CONTROLLER, over.wait, 0.01)
    over.set()
    assert actors.in_time(actors.CONTROLLER, lambda: 3) == 3
    with pytest.raises(TimeoutError, match="of its own"):
        actors.in_time(actors.CONTROLLER, Mock(side_effect=TimeoutError("of its own")))


def test_a_look_asks_replicas_that_run(actors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    look: Any = importlib.import_module("look")
    states = {"SERVE_REPLICA::a#A#1": "RUNNING", "SERVE_REPLICA::a#A#2": "STARTING"}
    replicas = [{"actor_name": name, "state": state} for name, state in states.items()]
    details = {"applications": {"a": {"deployments": {"A": {"replicas": replicas}}}}}
    client = SimpleNamespace(get_serve_details=lambda: details)
    monkeypatch.setattr(actors, "serve_client", lambda: client)
    monkeypatch.setattr(actors, "serve_actors", lambda: [(name, name) for name in states])
    monkeypatch.setattr(actors, "put", lambda question, actor: actor)
    monkeypatch.setattr(actors, "answers", lambda references: [{"of": row} for row in references])
    assert look._ask_all(None) == [{"of": "SERVE_REPLICA::a#A#1"}]
