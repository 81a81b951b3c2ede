import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from serve_bench.benchmarks.own_app.options import OwnRunOptions
from serve_bench.benchmarks.versus import command as versus_command
from serve_bench.benchmarks.versus.options import VersusOptions
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.cli import sides as cli_sides
from serve_bench.cli.gate import Gate
from serve_bench.cli.request import add_all_flags, read_request
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Rounds
from serve_bench.core.load_spec import Timing
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment, OwnGrpc
from serve_bench.core.redaction import differs, hide_suite
from serve_bench.core.request_spec import Request
from serve_bench.core.secrets import hash_value
from serve_bench.core.variants import SETS
from serve_bench.runner import in_turn
from serve_bench.spec.sides import Times
from serve_bench.store import read
from tests import servers
from tests.cases import Call, Patch, cases
from tests.places import begin
from tests.servers import KnownServer, serving

BOTH: dict[str, Any] = {"a": "default", "b": ["optimized"]}
GRPC: dict[str, Any] = {"protocol": "grpc", "grpc_servicer": ["b_pb2_grpc.add_b"]}
URLS: dict[str, Any] = {"a": "old=http://127.0.0.1:8000/x", "b": ["new=http://127.0.0.1:8001/x"]}


def asked(*gate: Gate, **options: Any) -> tuple[Any, Any]:
    return versus_command.read_versus(VersusOptions.of(options), *gate or [Gate()])


def planned(*gate: Gate, **options: Any) -> VersusSpec:
    suite, requests = asked(*gate, **options)
    assert isinstance(suite, VersusSpec) and not requests
    return suite


def test_two_variants_of_the_shipped_suite() -> None:
    suite = planned(**BOTH)
    assert [side.label for side in suite.sides] == ["default", "optimized"]
    assert suite.sides[1].variant.env["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "1"
    assert [side.app.name for side in suite.sides] == ["noop", "noop"]
    assert (suite.rounds, suite.side_s, suite.steady_s) == (20, 16.0, 2.0)
    assert [row.label for row in suite.rows] == ["100 connections"]
    quick = planned(**BOTH, quick=True)
    assert (quick.rounds, quick.side_s, quick.steady_s) == (3, 4.0, 1.0)
    assert planned(**BOTH, quick=True, rounds=Rounds(9)).rounds == 9
    # Rows are those of the clients named.
    suite = planned(**BOTH, clients="8,raw:20", rate=30.0)
    labels = [row.label for row in suite.rows]
    assert labels == ["8 clients at 30 a second", "20 connections at 30 a second"]
    assert all(row.loop == "open" and row.rate_per_s == 30.0 for row in suite.rows)
    # A against itself, and a budget that is a limit alone.
    suite = planned(a="optimized", aa=True)
    assert suite.aa and [side.label for side in suite.sides] == ["optimized (A)", "optimized (B)"]
    assert suite.sides[0].unnamed == suite.sides[1].unnamed
    assert planned(**BOTH, budget_s=600.0) == replace(planned(**BOTH), budget_s=600.0)


def test_sides_differ_by_flags_options_and_interpreter_under_labels_that_say_so() -> None:
    suite = planned(
        a="default",
        b=["default"],
        b_env=["RAY_x=1"],
        a_option=["num_replicas=2"],
        b_option=["max_ongoing_requests=5"],
        b_python=sys.executable,
    )
    labels = ["default+num_replicas=2", "default+RAY_x=1+max_ongoing_requests=5"]
    assert [side.label for side in suite.sides] == labels
    assert suite.sides[0].settings == {"num_replicas": 2}
    assert suite.sides[1].variant.env == {"RAY_x": "1"}
    assert suite.sides[1].variant.python == sys.executable
    assert suite.label(*suite.cells) == {"max_batch_size": 1}


def test_any_number_of_sides_and_one_without_each_flag() -> None:
    suite = planned(a="default", b=["haproxy", "optimized"], b_option=["num_replicas=2"])
    letters = {"haproxy+num_replicas=2": "B1", "optimized+num_replicas=2": "B2"}
    assert suite.letters == {"default": "A", **letters}
    three, requests = asked(**(URLS | {"b": [*URLS["b"], "http://h/"]}))
    assert [*three.letters.values()] == ["A", "B1", "B2"] and len(requests) == 3
    first, *others = planned(a="optimized", each_flag=True).sides
    assert len(others) == 7 and first.label == "optimized"
    taken = {side.label.removeprefix("optimized-"): side.variant.env for side in others}
    assert "RAY_SERVE_ENABLE_HA_PROXY" not in taken["RAY_SERVE_ENABLE_HA_PROXY"]
    for flag, value in SETS["RAY_SERVE_THROUGHPUT_OPTIMIZED"].items():
        assert taken[flag] == {**first.variant.env, flag: value}
    off = planned(a="default", a_env=["X=1", "RAY_SERVE_THROUGHPUT_OPTIMIZED=0"], each_flag=True)
    assert [side.variant.env.get("X") for side in off.sides[1:]] == [None, "1"]


@pytest.mark.usefixtures("_few_cores")
def test_sides_that_do_not_fit_are_said_before_the_start(call: Call, tmp_path: Path) -> None:
    out, _ = call("versus", "--a", "optimized", "--each-flag", "--quick", "--dry-run")
    turns = "A, B1, B2; A, B3, B4; A, B5, B6; A, B7"
    assert f"allow 3 clusters at once: rounds have in turn {turns}" in out
    assert "round 12: A, B7 are launched in this order" in out and "12 rounds" in out
    line = ("versus", "--a", "default", "--b", "haproxy", "--b", "optimized", "--dry-run")
    out, _ = call(*line, "--fail-on", "regressed", "--rounds", "3")
    assert "round 2: B2, B1, A are" in out and "at once" not in out
    assert "never break" in call(*line, "--fail-on", "slower", "--rounds", "2", code=2)[1]


@pytest.fixture
def _few_cores(monkeypatch: Patch) -> None:
    monkeypatch.setattr(versus_command, "usable_cores", lambda: 2)
    monkeypatch.setattr(versus_command, "free_memory_bytes", lambda: 1 << 40)


def own_app(word: str) -> OwnApp:
    """Describe an app of the user's with one deployment, as its interpreter would."""
    folder = word.rpartition("/")[0] or "."
    return OwnApp(word, "app:app", folder, (OwnDeployment("One", 1),), ("num_replicas",))


def imported(monkeypatch: Patch) -> list[tuple[Any, ...]]:
    """Record what is asked of interpreters, which are not: word, place, interpreter and request."""
    seen: list[tuple[Any, ...]] = []

    def import_app(*words: Any) -> OwnApp:
        word, _, _, request, servicers, _ = words
        seen.append(words[:4])
        app = replace(own_app(word), asked=request)
        if servicers is not None:
            app = replace(app, grpc=OwnGrpc(servicers.functions, {"/a.B/C": "unary-unary"}))
        return app

    monkeypatch.setattr(cli_sides, "import_app", import_app)
    monkeypatch.setattr(cli_sides, "check_options", lambda *_: None)
    return seen


def test_a_word_may_name_an_app(monkeypatch: Patch) -> None:
    seen = imported(monkeypatch)
    request: dict[str, Any] = {"route": "/rank", "body": ["[1]"], "header": ["X-A: 1"]}
    suite = planned(a="pr/app.py:app", b=["optimized,base:app"], **request)
    assert [ask[:3] for ask in seen] == [("pr/app.py:app", "--a", None), ("base:app", "--b", None)]
    headers = (("X-A", "1"), ("content-type", "application/json"))
    assert {ask[3] for ask in seen} == {Asked("/rank", "POST", headers, b"[1]")}
    assert [side.label for side in suite.sides] == ["pr/app.py:app", "optimized,base:app"]
    assert [side.variant.name for side in suite.sides] == ["default", "optimized"]
    assert suite.cells == ({},)
    assert [side.app.folders for side in suite.sides] == [("pr",), (".",)]
    again = planned(a="pr/app.py:app", b=["base:app"])
    assert VersusSpec.stored(again.to_json()) == again
    # It is asked by gRPC too.
    imported(monkeypatch)
    suite = planned(a="a:app", b=["b:app"], route="/a.B/C", **GRPC)
    assert [row.label for row in suite.rows] == ["100 connections, grpc"]
    servicer = OwnGrpc(("b_pb2_grpc.add_b",), {"/a.B/C": "unary-unary"})
    assert [side.app.own_app and side.app.own_app.grpc for side in suite.sides] == [servicer] * 2
    assert VersusSpec.stored(json.loads(json.dumps(suite.to_json()))) == suite


Varied: TypeAlias = dict[str, Any]
BODIES = ('{"a": 1}', '{"a": "a-secret-body"}')


@pytest.fixture
def varied(tmp_path: Path) -> Varied:
    """Files of requests that differ: seven paths, two bodies, three sets of headers."""
    lines = {
        "paths": [f"/item?id={k}" for k in range(7)],
        "bodies": BODIES,
        "headers": [json.dumps({"x-user": f"secret-user-{k}"}) for k in range(3)],
    }
    for name, content in lines.items():
        (tmp_path / name).write_text("\n".join(content))
    return {name: str(tmp_path / name) for name in lines}


def test_requests_that_differ_are_those_of_run(monkeypatch: Patch, varied: Varied) -> None:
    seen = imported(monkeypatch)
    varied |= {"header": ["X-A: 1"], "expect_status": "200,404", "draw": "random"}
    varied["request_timeout_s"] = 40.0
    suite = planned(a="a:app", b=["optimized,b:app"], **varied)
    options = OwnRunOptions.of({"target": "a:app", **varied})
    request = read_request(add_all_flags(Content("run"), options), "http")
    assert [ask[3] for ask in seen] == [request] * 2
    assert [*map(len, (request.paths, request.bodies, request.header_sets))] == [7, 2, 3]
    assert [side.variant.http_options for side in suite.sides] == [{"request_timeout_s": 40.0}] * 2
    assert suite.timeout_s == 45.0
    # What the record keeps, and what --resume refuses to change.
    kept = hide_suite(suite.to_json())
    assert "secret" not in json.dumps(kept)
    for name, other, words in (
        ("draw", "cycle", 'sides.0.app.asked.draw is "cycle", and was "random"'),
        ("bodies", varied["headers"], "sides.0.app.asked.bodies is "),
        ("header", ["X-A: 2"], "sides.0.app.asked.headers.0.1 is "),
        ("request_timeout_s", 9.0, "sides.0.variant.http_options.request_timeout_s is 9.0, and"),
    ):
        again = planned(a="a:app", b=["optimized,b:app"], **(varied | {name: other}))
        assert str(differs(kept, again.to_json())).startswith(words)
    assert differs(kept, suite.to_json()) is None


def test_options_of_deployments_hide_passwords(monkeypatch: Patch) -> None:
    imported(monkeypatch)
    suite = planned(a="a:app", b=["a:app"], b_option=["One.num_replicas=2"])
    assert [dict(side.settings) for side in suite.sides] == [{}, {"One.num_replicas": 2}]
    assert [side.label for side in suite.sides] == ["a:app", "a:app+One.num_replicas=2"]
    suite = planned(a="a:app", b=["a:app"], b_option=["One.user_config.db=redis://:pw@h"])
    hidden = f"a:app+One.user_config.db=redis://{hash_value(':pw')}@h"
    assert [side.label for side in suite.sides] == ["a:app", hidden]
    assert hide_suite(suite.to_json())["sides"][1]["label"] == hidden


@cases(
    "given, message",
    ({"a": "a:app", "b": ["optimized"]}, "--b: optimized is built-in app noop; the other side"),
    ({**BOTH, "paths": "x"}, "--paths: noop measures an app that comes with the tool"),
    ({"a": "a:app", "b": ["b:app"], "app": "noop"}, "--app: noop: the sides name apps of your own"),
    ({"a": "a:app", "b": ["a:app"], "b_option": ["Two.x=2"]}, "a:app has no deployment 'Two'"),
)
def test_no_option_of_an_own_app(given: dict[str, Any], message: str, monkeypatch: Patch) -> None:
    imported(monkeypatch)
    with pytest.raises(BadInput, match=message):
        planned(**given)


def test_two_services_that_are_up() -> None:
    suite, requests = asked(**URLS, header=["X-A: 1"])
    assert suite.urls == {"old": "http://127.0.0.1:8000/x", "new": "http://127.0.0.1:8001/x"}
    assert [*requests] == [Request(u, headers=(("X-A", "1"),)) for u in (suite.urls or {}).values()]
    opened, requests = asked(**URLS, rate=5.0, body="[1]", method="put", expect_status="204")
    assert [row.rate_per_s for row in opened.rows] == [5.0]
    assert requests[1] == replace(requests[0], url="http://127.0.0.1:8001/x")
    assert requests[1].method == "PUT" and requests[1].expect_status == (204,)
    keys = [trial.key for trial in suite.plan()[0].pairings[0].planned]
    assert keys == ["old/r1/app/100-connections", "new/r1/app/100-connections"]
    unnamed, _ = asked(a="http://127.0.0.1:8000/", b=["http://h/x?k=secret"])
    assert unnamed.sides[0].label == "127.0.0.1:8000" and "secret" not in unnamed.sides[1].label
    twins, same = asked(a=URLS["a"], aa=True)
    assert [side.label for side in twins.sides] == ["old (A)", "old (B)"]
    assert same[0] == same[1] and set(twins.urls or ()) == {"old (A)", "old (B)"}
    _, (once, many) = asked(a=URLS["a"], audit="cache", body=["1", "2"])
    assert (once.bodies, many.bodies) == ((b"1",), (b"1", b"2"))
    with pytest.raises(BadInput, match="--audit: takes requests that differ"):
        asked(a=URLS["a"], audit="cache")


def test_throughput_and_cpu_are_gated_but_for_services_whose_processes_are_not_known() -> None:
    assert planned(**BOTH).gate == ("throughput", "cpu")
    assert planned(Gate(metrics=("throughput",)), **BOTH).gate == ("throughput",)
    assert asked(**URLS)[0].gate == ("throughput",)
    with pytest.raises(BadInput, match=r"^--gate: cpu: nothing is known of the processes of s"):
        asked(Gate(metrics=("throughput", "cpu")), **URLS)


@cases(
    "given, message",
    ({"a": "default"}, "--b: is missing; .*; A against itself is --aa"),
    ({**BOTH, "b": ["x:y,default"]}, "--b: 'x:y,default' is not allowed; it takes VAR"),
    ({**BOTH, "b_env": ["RAY_ADDRESS=1"]}, "--b-env: RAY_ADDRESS is set by serve-bench"),
    ({**BOTH, "a_option": ["x"]}, "--a-option: 'x' is not allowed; it takes NAME=VALUE"),
    ({**BOTH, "b_option": ["replica=2"]}, "--b-option: unknown key 'replica'; did you mean"),
    ({**BOTH, "b_option": ["width=1"]}, "--b-option: width is no option of the app noop"),
    ({**BOTH, "b_option": ["num_replicas=1", "num-replicas=2"]}, "--b-option: num_replicas"),
    ({**BOTH, "slice_s": 0.1, "rate": 5.0}, "--slice: an open loop .--rate. cannot be sliced"),
    ({**BOTH, "aa": True}, "--aa: runs A against itself; it does not go with --b"),
    ({"a": "optimized", "aa": True, "each_flag": True}, "--aa: .* does not go with --each-flag"),
    ({"a": "default", "each_flag": True}, "--each-flag: default has no flag to be taken away"),
    ({"a": "default", "audit": "cache"}, "--audit: is for your own app, or a service"),
    ({**BOTH, "suite": "press_noop"}, "load.users|unknown key|compares rows"),
)
def test_bad_input_names_the_flag(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        planned(**given)
    assert "\n" not in str(refused.value)


SHORT = ("--quick", "--clients", "raw:2")


@pytest.fixture(autouse=True)
def _quickly(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    if request.node.get_closest_marker("alone") is None:
        return
    monkeypatch.setattr(VersusSpec, "quick", Times(3, 0.3, 0.2))
    monkeypatch.setattr(in_turn, "WARMING", Timing(0.1, 0.3, 1, 0.05))


@pytest.fixture
def two() -> Iterator[tuple[KnownServer, KnownServer]]:
    """Measure the second, which takes four times as long."""
    with serving(delay_s=0.003) as fast, serving(delay_s=0.012) as slow:
        yield fast, slow


def urls(fast: KnownServer, slow: KnownServer) -> list[str]:
    return ["versus", "--a", f"old={fast.url}", "--b", f"new={slow.url}"]


@pytest.mark.alone
def test_a_regression_is_told_and_breaks_the_gate(
    two: tuple[KnownServer, KnownServer], tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / "run"
    flags = ("-H", "X-Key: secret", "--fail-on", "regressed", "--out", folder)
    out, err = call(*urls(*two), *SHORT, *flags, code=3)
    assert "regressed" in out and "gate" in err
    result = read(folder)
    assert result.complete and len(result.trials) == 6 and not result.launches
    assert result.run.suite["urls"] == {"old": two[0].url, "new": two[1].url}
    assert "secret" not in (folder / "records.jsonl").read_text()
    assert all(b"X-Key: secret" in entry.head for entry in two[1].log)
    assert "regressed" in call("report", folder)[0]  # the same records, without a gate
    _, err = call("versus", "--resume", folder, code=2)
    assert "whose headers are not kept" in err


@pytest.mark.alone
def test_both_services_get_the_same_requests_in_the_same_order(
    two: tuple[KnownServer, KnownServer], tmp_path: Path, call: Call, varied: Varied
) -> None:
    flags = [word for name, file in varied.items() for word in (f"--{name}", file)]
    line = [*urls(*two), "--quick", "--clients", "raw:1,1", *flags, "-H", "X-Key: secret-key"]
    call(*line, "--method", "PUT", "--rounds", "2", "--out", tmp_path / "run")
    turns = [(f"/item?id={k}", BODIES[k % 2].encode()) for k in range(7)]
    for server in two:
        assert {exchange.method for exchange in server.log} == {"PUT"}
        heads = [exchange.head for exchange in server.log]
        assert all(b"X-Key: secret-key" in head for head in heads)
        users = Counter(re.findall(rb"secret-user-(\d)", b"".join(heads)))
        assert users.keys() == {b"0", b"1", b"2"}
    for more, fewer in zip(*(server.asked for server in two), strict=True):  # a load for each
        length = min(len(more), len(fewer))
        assert length > 1 and more[:length] == fewer[:length]
        places, first = [turns.index(turn) for turn in more], turns.index(more[0])
        assert places == [(first + k) % 7 for k in range(len(more))]
    begins = {part[0] for part in two[0].asked}
    assert len(begins) > 1
    suite = read(tmp_path / "run").run.suite
    assert suite["request"]["bodies_count"] == 2 and len(suite["request"]["header_sets"]) == 3
    assert "secret" not in (tmp_path / "run" / "records.jsonl").read_text()


@pytest.mark.alone
def test_a_side_that_fails(tmp_path: Path, call: Call) -> None:
    with serving() as good, serving(servers.always("error500")) as bad:
        versus = ("versus", *SHORT, "--a", f"a={good.url}", "--b")
        _, err = call(*versus, "b=http://127.0.0.1:1/", "--out", tmp_path / "run", code=1)
        flags = ("--rounds", "1", "--out", tmp_path / "wrong")
        call(*versus, f"b={bad.url}", *flags, code=1)
    assert "nothing was measured" in err
    result = read(tmp_path / "run")
    assert not result.trials and len(result.failures) == 6
    (failure,) = read(tmp_path / "wrong").failures
    assert "no request succeeded" in failure.message and failure.variant == "b"


@pytest.mark.alone
@pytest.mark.long
def test_ctrl_c_keeps_rounds(two: tuple[KnownServer, KnownServer], tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begin(sys.executable, "-m", "serve_bench", *urls(*two), *SHORT, "--out", out)
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if line.startswith("[2/6]"):
            break
    process.send_signal(signal.SIGINT)
    rest, errors = process.stdout.read(), process.stderr.read()
    assert process.wait(20) == 130
    assert "interrupted" in errors and "1 of 3" in rest
    result = read(out)
    assert [trial.round for trial in result.trials] == [1, 1]
    assert {failure.message for failure in result.failures} <= {"interrupted"}
    assert len(result.missing) == 4
