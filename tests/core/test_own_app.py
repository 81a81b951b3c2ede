import base64
import contextlib
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.app_spec import app_from_json, deploy_spec, own_spec
from serve_bench.core.chat import Completions, Lengths
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.own_app import (
    Asked,
    MethodKind,
    Option,
    OwnApp,
    OwnDeployment,
    OwnGrpc,
    argument_key,
    checks_of,
    deployments_of,
    limits_of,
    option_named,
    option_values,
    read_options,
)
from serve_bench.core.plan import Suite, label_of, request_of
from serve_bench.core.redaction import hide_suite
from serve_bench.core.request_spec import Request
from serve_bench.core.result import VariantUsed
from serve_bench.core.secrets import hash_value
from serve_bench.doctor.software import ask_interpreter
from serve_bench.load.driver import drive_load
from serve_bench.nodes.crew import NodeCrew, NodesFailed
from serve_bench.runner import model_needs
from serve_bench.serving import strays
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.spec.request import RequestKeys, ServeKeys, read_option_table
from serve_bench.spec.suite import Around
from tests.cases import cases, refusal, sure
from tests.load.loads import TIMING
from tests.places import program
from tests.records import ROWS
from tests.servers import serving
from tests.suites import suite_with

OPTIONS = ("num_replicas", "max_ongoing_requests", "ray_actor_options.num_cpus", "user_config.*")
RANKER = OwnDeployment("Ranker", 2, 0.5, {"ray_actor_options": {"num_cpus": 0.5, "num_gpus": 0}})
SHOP = OwnApp(
    "shop.py:app", "shop:app", "/where", (RANKER, OwnDeployment("Shop", 1)), OPTIONS, Asked("/best")
)
SCALED = OwnApp("a:b", "a:b", "/", (OwnDeployment("One", None, 2.0),), OPTIONS)


@cases(
    "text, values",
    ("1,2", (1, 2)),
    ("0.5, 1", (0.5, 1)),
    ("true,False", (True, False)),
    ("auto", ("auto",)),
    ("1_0,١", ("1_0", "١")),  # digits that Python would take, and no person means
    ("-1", (-1,)),
    ("", ("",)),
)
def test_values_are_read_as_they_are_meant(text: str, values: tuple[Option, ...]) -> None:
    assert option_values(text) == values
    assert [type(value) for value in option_values(text)] == [type(value) for value in values]


@cases(
    "name, says",
    ("Rankr.num_replicas", "no deployment 'Rankr'; did you mean 'Ranker'?"),
    ("Ranker.num_replica", "Ranker takes no option 'num_replica'; did you mean 'num_replicas'"),
    ("Ranker.user_config.", "takes no option 'user_config.'"),
    ("num_replicas", "it takes Deployment.option=values, such as Shop.num_replicas=1,2"),
)
def test_an_unknown_option_names_the_nearest(name: str, says: str) -> None:
    for known in ("Ranker.num_replicas", "Shop.user_config.boost"):
        assert option_named(SHOP, known, "--option") == known
    said = refusal(option_named, SHOP, name, "--option")
    assert said.startswith("--option: ") and says in said


@cases(
    "asked, says",
    ([("Ranker.num_replicas", (1,)), ("Ranker.num_replicas", (2,))], "is given twice"),
    ([("Ranker.num_replicas", (1, 1))], "1 is given twice"),
    ([("Ranker.num_replicas", (True,))], "it takes whole numbers from 1"),
    ([("Ranker.max_ongoing_requests", ("",))], "at least one value is needed"),
)
def test_values_that_make_no_cell(asked: list[tuple[str, tuple[Option, ...]]], says: str) -> None:
    assert says in refusal(read_options, SHOP, asked, "--option")
    found = read_options(SHOP, [("Ranker.user_config.x", (1, 1.0))], "--option")
    assert found == {"Ranker.user_config.x": (1, 1.0)}  # which are two values


def test_a_table_keeps_what_the_code_has_in_it() -> None:
    cell: dict[str, Option] = {"Ranker.ray_actor_options.num_cpus": 1, "Ranker.num_replicas": 3}
    ranker, shop = deployments_of(SHOP, cell)
    options = {"num_cpus": 1, "num_gpus": 0}
    assert ranker == {"name": "Ranker", "num_replicas": 3, "ray_actor_options": options}
    assert shop == {"name": "Shop"}
    assert RANKER.tables["ray_actor_options"]["num_cpus"] == 0.5  # and is itself as it was
    # One that Serve scales is fixed at a number.
    table = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 4}}
    app = replace(SCALED, deployments=(OwnDeployment("One", None, 2.0, table), RANKER))
    assert app.fixed_replicas() == {"One.num_replicas": 4} and not SHOP.fixed_replicas()
    deployment, ranker = deployments_of(app, app.fixed_replicas())
    assert deployment == {"name": "One", "num_replicas": 4, "autoscaling_config": None}
    assert "autoscaling_config" not in ranker


def test_what_is_checked_of_each_deployment() -> None:
    cell: dict[str, Option] = {
        "Ranker.num_replicas": 3,
        "Ranker.ray_actor_options.num_cpus": 1,
        "Shop.user_config.boost": 2,
        "Shop.health_check_period_s": 5,
    }
    ranker, shop = checks_of(SHOP, cell)
    assert (ranker["deployment"], ranker["replicas"], ranker["told"]) == ("Ranker", 3, {})
    assert ranker["expect"] == {"ray_actor_options.num_cpus": 1}
    assert shop["replicas"] == 1 and shop["expect"] == {"user_config.boost": 2}
    assert shop["told"] == {"health_check_period_s": 5}  # no replica tells it
    # Replicas and CPUs of a cell.
    assert (SHOP.replicas({}), SHOP.cpus({})) == (3, 2.0)
    more: dict[str, Option] = {"Ranker.num_replicas": 4, "Ranker.ray_actor_options.num_cpus": 2}
    assert (SHOP.replicas(more), SHOP.cpus(more)) == (5, 9.0)
    assert (SCALED.replicas({}), SCALED.cpus({})) == (1, 2.0)
    assert checks_of(SCALED, {})[0]["replicas"] is None  # Serve says how many
    assert checks_of(SCALED, {"One.num_replicas": 2})[0]["replicas"] == 2
    slots = (("Ranker", 10), ("Ranker", 10), ("Shop", 5), ("Old", None))  # Serve does not tell
    proof = [{"deployment": name, "max_ongoing_requests": most} for name, most in slots]
    counted = {name: (limit.replicas, limit.each) for name, limit in limits_of(proof).items()}
    assert counted == {"Ranker": (2, 10), "Shop": (1, 5)}
    app = own_spec(SHOP)
    spec = deploy_spec(app, {"Ranker.num_replicas": 1})
    assert (spec["import_path"], spec["own"], spec["system_log_level"]) == ("shop:app", True, None)
    ready = spec["ready"]
    assert (ready["path"], ready["method"], ready["headers"]) == ("/best", "GET", {})
    assert (ready["body"], ready["statuses"], ready["grpc"]) == (None, [], None)
    assert app.folders == ("/where",)


def test_arguments_of_a_builder_are_options_of_a_cell() -> None:
    listed: list[tuple[str, tuple[Option, ...]]] = [("args.word", ("b", "c"))]
    assert read_options(SHOP, listed, "--option") == dict(listed)
    more = (replace(RANKER, num_replicas=4), OwnDeployment("Shop", 1))
    built = {argument_key({"word": "c", "n": 1}): more}
    app = replace(SHOP, config={"args": {"word": "b", "n": 1}}, built=built)
    cells: list[dict[str, Option]] = [{"args.word": "b"}, {"args.word": "c"}]
    assert [app.replicas(cell) for cell in cells] == [3, 5]
    assert [checks_of(app, cell)[0]["replicas"] for cell in cells] == [2, 4]
    spec = deploy_spec(own_spec(app), cells[1])
    assert (spec["args"], spec["deployments"][0]) == ({"word": "c", "n": 1}, {"name": "Ranker"})
    assert stored(app) == app


def stored(app: OwnApp) -> OwnApp:
    """Read the app back from a record, to be shown and not to be sent."""
    return sure(app_from_json(json.loads(json.dumps(own_spec(app).to_json()))).own_app)


def test_a_load_asks_as_the_user_said() -> None:
    asked = Asked("/rank", "POST", (("X-A", "1"),), b"[1]", (200, 204))
    request = request_of(own_spec(replace(SHOP, asked=asked)), ROWS[0], "http://127.0.0.1:8", {})
    assert (request.url, request.method) == ("http://127.0.0.1:8/rank", "POST")
    assert (request.body, request.expect_body) == (b"[1]", None)
    assert (request.headers, request.expect_status) == ((("X-A", "1"),), (200, 204))
    # An app of gRPC is asked by a call that names it.
    methods: dict[str, MethodKind] = {"/a.B/One": "unary-unary", "/a.B/Many": "unary-stream"}
    asked = Asked("/a.B/Many", "POST", body=b"m")
    grpc = OwnGrpc(("b_pb2_grpc.add_b",), methods)
    app = own_spec(replace(SHOP, asked=asked, grpc=grpc, config={"name": "shop"}))
    request = request_of(app, ROWS[0], "http://127.0.0.1:9", {})
    assert (request.url, request.method) == ("http://127.0.0.1:9/a.B/Many", "POST")
    assert (request.headers, request.body) == ((("application", "shop"),), b"m")
    ready = deploy_spec(app, {})["ready"]
    assert (ready["grpc"], ready["headers"]) == ("unary-stream", {"application": "shop"})
    plain = replace(SHOP, asked=replace(asked, body=b""), grpc=grpc)
    assert stored(plain) == plain
    other = replace(asked, headers=(("Application", "x"),))
    named = replace(SHOP, asked=other, grpc=grpc).request("http://h")
    assert named.headers == (("Application", "x"),)


@cases(
    "route, protocol, says",
    ("/a.B/Non", "grpc", "/a.B/Non is no method of the servicers; they have /a.B/One, /a.B/M"),
    ("/a.B/In", "grpc", "/a.B/In takes a stream of messages; loads send one each"),
    ("/a.B/Many", "grpc", "/a.B/Many streams its response: it is grpc-stream"),
    ("/a.B/One", "grpc-stream", "/a.B/One has one response: it is grpc"),
)
def test_a_method_has_a_protocol(route: str, protocol: str, says: str) -> None:
    grpc = OwnGrpc(
        ("b.add",),
        {"/a.B/One": "unary-unary", "/a.B/Many": "unary-stream", "/a.B/In": "stream-unary"},
    )
    assert says in refusal(replace(SHOP, asked=Asked(route), grpc=grpc).check_call, protocol)


def test_it_comes_back_from_a_record_without_values_of_headers_queries_and_bodies() -> None:
    assert label_of({"Ranker.num_replicas": 2}) == {"Ranker.num_replicas": 2}
    assert stored(SHOP) == SHOP and app_from_json("noop").name == "noop"
    sets = ((("model", "m1"),), (("model", "m2"),))
    more: dict[str, Any] = {"bodies": (b'{"password": 1}', b"{}"), "header_sets": sets}
    secret = (("Authorization", "secret"),)
    asked = Asked("/a", "POST", secret, paths=("/a", "/b?x=1"), **more)
    kept = own_spec(replace(SHOP, asked=asked)).to_json()
    assert "secret" not in str(kept) and "Authorization" in str(kept)
    assert kept["asked"]["bodies_count"] == 2 and kept["asked"]["bodies"].startswith("sha256:")
    assert hide_suite({"app": kept})["app"] == json.loads(json.dumps(kept))  # makes no other hash
    read = stored(replace(SHOP, asked=asked)).asked
    assert read.headers == (("Authorization", hash_value("secret")),) and read.bodies == ()
    assert read.paths == ("/a", f"/b?x={hash_value('1')}")
    assert read.header_sets == tuple((("model", hash_value(name)),) for name in ("m1", "m2"))


def test_what_is_asked_of_a_new_deploy_is_the_first_request_of_the_load() -> None:
    chat = Completions("m", Lengths(20, 5), Lengths(10))
    app = replace(SHOP, asked=Asked("/v1/chat/completions", "POST", chat=chat))
    assert stored(app) == app  # chats are drawn again
    request = request_of(own_spec(app), ROWS[0], "http://h", {})
    assert request.bodies == chat.bodies() and len(request.bodies) == 1000
    ready = deploy_spec(own_spec(app), {})["ready"]
    assert base64.b64decode(ready["body"]) == request.bodies[0]
    sets = ((("serve_multiplexed_model_id", "m1"),), (("serve_multiplexed_model_id", "m2"),))
    asked = Asked("/a", paths=("/a", "/b?x=1"), header_sets=sets, draw="random")
    config = {"name": "shop", "route_prefix": "/a"}
    spec = deploy_spec(own_spec(replace(SHOP, asked=asked, config=config)), {})
    assert (spec["name"], spec["route_prefix"], spec["ready"]["path"]) == ("shop", "/a", "/a")
    assert spec["ready"]["headers"] == {"serve_multiplexed_model_id": "m1"}
    assert spec["own"] and deploy_spec(own_spec(SHOP), {})["name"] == "default"


def test_what_no_replica_could_be_placed_with_is_refused() -> None:
    gpu = OwnDeployment("Gpu", 2, 1.0, {}, num_gpus=1.0)
    app = replace(SHOP, target="a:b", deployments=(gpu,), gpus=0.0)
    tpu = replace(gpu, num_gpus=0.0, resources=("tpu",))
    kind = OwnDeployment("Kind", 1, resources=("accelerator_type:T4",))
    t4: dict[str, Option] = {"Plain.ray_actor_options.accelerator_type": "T4"}
    gpus = "TARGET: a:b: Gpu asks Ray for 1 GPU in all (num_gpus), and this host has no GPU: "
    for deployment, cell, said in (
        (gpu, {"Gpu.num_replicas": 1}, gpus),
        (tpu, {}, "Gpu asks Ray for the resource 'tpu'"),
        (kind, {}, "for the resource 'accelerator_type:T4', which"),
        (OwnDeployment("Plain", 1), t4, "for the resource 'accelerator_type:T4', which"),
    ):
        asks = replace(app, deployments=(deployment,))
        assert said in refusal(asks.check_room, [cell, {}], "TARGET")
    # Ray gives some by itself; one that does not tell has what is asked for.
    app.check_room([{"Gpu.ray_actor_options.num_gpus": 0}], "TARGET")
    here = OwnDeployment("Here", 1, resources=("node:__internal_head__",))
    for deployment, has in ((gpu, 2.0), (gpu, None), (here, 0.0), (kind, 1.0), (kind, None)):
        replace(app, deployments=(deployment,), gpus=has).check_room([{}], "TARGET")


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current folder lie modules that make this file when they are run."""
    made = tmp_path / "ran"
    (tmp_path / "serve_bench").mkdir()
    for name in ("json.py", "csv.py", "psutil.py", "serve_bench/__init__.py"):
        (tmp_path / name).write_text(f"open({str(made)!r}, 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    return made


def _warden() -> None:
    run_id = strays.new_run()
    warden = strays.start_warden(run_id)
    sure(warden.stdin).close()
    assert warden.wait(20) == 0


def _workers() -> None:
    with serving() as server:
        load = Load(Request(server.url), connections=1, count=5)
        assert drive_load(load, TIMING).total.completed == 5


def _launch() -> None:
    with contextlib.suppress(BadInput):  # without Ray
        check_interpreter(VariantUsed("x", python=sys.executable))


STARTS: dict[str, Callable[[], object]] = {
    "warden": _warden,
    "workers": _workers,
    "doctor": lambda: ask_interpreter(sys.executable),
    "launch": _launch,
    "torch": lambda: model_needs._probe.__wrapped__(sys.executable),
}


@pytest.mark.parametrize("start", STARTS)
def test_nothing_of_the_current_folder_is_run(start: str, ran: Path) -> None:
    STARTS[start]()
    assert not ran.exists()


def test_the_program_of_the_nodes_runs_nothing_beside_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    python = program(tmp_path / "python", f'echo "$PWD $*" > {log}')
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        address = f"127.0.0.1:{cluster.getsockname()[1]}"
        crew = NodeCrew(address, "ab12cd", tmp_path / "logs" / "x.log", python=str(python))
        with pytest.raises(NodesFailed, match="ended during join"):
            crew.start()
    assert log.read_text() == "/ -u -P -m serve_bench.nodes\n"


APP = own_spec(OwnApp("a:b", "a:b", "/", (OwnDeployment("One", 1),), ("num_replicas", "x")))


@cases(
    "data, says",
    ({"request": {"rout": "/"}}, "s.toml: request: unknown key 'rout'; did you mean 'route'?"),
    ({"request": {"headers": {"a:b": "c"}}}, "request.headers: header name 'a:b' is not allowed"),
    ({"request": {"route": "/", "paths_file": "p"}}, "paths_file: is asked for instead of s.toml"),
    ({"app_name": ""}, "s.toml: app_name: '' is not allowed"),
)
def test_what_is_wrong_with_the_keys_of_a_request(data: dict[str, Any], says: str) -> None:
    def read(content: Content) -> None:
        for spec in (RequestKeys, ServeKeys):
            spec.check_keys(content)
            spec.read(content)

    assert says in refusal(read, Content("s.toml", data))


@cases(
    "table, says",
    ({"One": {"x": 1}}, "s.toml: options: write 'One' with its option in quotes"),
    ({"One.x": [[1]]}, "s.toml: options: One.x: [1] is not allowed; it takes plain"),
)
def test_what_is_wrong_with_a_table_of_options(table: dict[str, Any], says: str) -> None:
    assert says in refusal(read_option_table, Content("s.toml", {"options": table}))


def test_all_combinations_and_replicas_change_last() -> None:
    options = {"One.num_replicas": (1, 2), "One.x": (3, 4)}
    rest = {"load": {"clients": ["raw:100"]}}
    suite = suite_with(rest, "s.toml", Around(app=APP, options=options))
    made = [(cell["One.num_replicas"], cell["One.x"]) for cell in suite.cells]
    assert made == [(1, 3), (2, 3), (1, 4), (2, 4)]
    assert [row.label for row in suite.rows] == ["100 connections"]
    # Without options there is the app as it is, and HTTP options go to every variant.
    http: dict[str, Any] = {"request_timeout_s": 5.0}
    around = Around(app=APP, http_options=http)
    suite = suite_with(rest, "s", around, variant=["default", "optimized"])
    assert suite.cells == ({},) and Suite.from_json(suite.to_json()) == suite
    assert [variant.http_options for variant in suite.variants] == [http] * 2
    # The axes and bodies of our apps are none of it.
    for key in ("cell", "cells", "matrix"):
        with pytest.raises(BadInput, match=f"s: {key}: is for the apps that come with the tool"):
            suite_with({key: {}}, "s", Around(app=APP))
    with pytest.raises(BadInput, match="the app a:b has a body of its own"):
        suite_with({"load": {"data_size": "large"}}, "s", Around(app=APP))
