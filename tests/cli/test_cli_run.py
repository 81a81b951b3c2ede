import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.benchmarks.own_app.options import OwnRunOptions
from serve_bench.cli.targets import target_suite
from serve_bench.core.load_spec import Streaming
from serve_bench.core.plan import Suite, load_of
from serve_bench.core.result import Result
from serve_bench.store import RECORDS_FILE
from tests import places, records
from tests.cases import Call, Patch, Refuses, cases, sure

EXAMPLE = places.TOP / "examples" / "own_app"
MICRO = places.TOP / "scenarios" / "micro.toml"
TEXT = places.TOP / "examples" / "grpc" / "text.py"
GRPC_FILE = '[serve]\ngrpc_servicers = ["c.d"]\n[load]\nprotocol = "grpc"'


@cases(
    "lines, says",
    ('route = "/e x"', "s.toml: request.route: a space, control or non-ASCII character in"),
    ('body = "@none"', "s.toml: request.body: "),
    (r'body = "@a\u0000"', "s.toml: request.body: '"),
    ("body = 2020-01-01", "s.toml: request.body: datetime.date(2020, 1, 1) is not allowed"),
    ('paths_file = "p"\nroute = "/"', "s.toml: request.paths_file: is asked for instead of"),
    ('[serve]\ngrpc_servicers = "c.d"', "s.toml: serve.grpc_servicers: goes with --protocol"),
    (f'method = "PUT"\n{GRPC_FILE}', "s.toml: request.method: has no use with --protocol grpc"),
)
def test_bad_suites_are_named(lines: str, says: str, refuses: Refuses, beside: Path) -> None:
    (beside / "s.toml").write_text(f'app = "a:b"\n[request]\n{lines}\n')
    refuses(f"run {beside / 's.toml'}", f"{beside}/{says}")


@cases(
    "flag, content, says",
    ("bodies", "x" * 100, " has 100 bytes; allowed: 99"),
    ("paths", "/a\n\n# none\nb\n", ", line 4: 'b' does not begin with /"),
    ("paths", "/a\x0c\x1d/b\n/\udcff", ", line 1: a space, control or non-ASCII"),
    ("paths", "/a\n/\udcff", ", line 2: a space, control or non-ASCII character"),
    ("headers", '{"x": "1"}\n{"x": 2}\n', ", line 2: is not allowed; it takes an object of"),
    ("headers", "# nothing\n", " holds no headers; it takes an object of"),
    ("requests-file", "GET /a\nX-A: 1", ", line 2: method must be capital"),
    ("requests-file", '{"path": "/", "header": {}}', ", line 1: is not allowed; it takes GET "),
    ("requests-file.har", "[]", ": is no HAR; it takes the JSON that"),
    (
        "requests-file.har",
        '{"log": {"entries": [{"request": {"url": "ws:"}}]}}',
        ": holds no request",
    ),
    ("requests-file.har", '{"log": {"entries": [{}]}}', ", log.entries[0]: is no HAR; it takes"),
)
def test_files_of_requests_are_told_by_their_line(
    flag: str, content: str, says: str, refuses: Refuses, beside: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("serve_bench.cli.request.MOST_BYTES", 99)
    file, flag = beside / flag, flag.removesuffix(".har")
    file.write_text(content, errors="surrogateescape")
    refuses(f"load http://h/ --{flag} {file} --out run", f"--{flag}: {file}{says}")


def test_a_plan_refuses_what_the_run_would(refuses: Refuses, call: Call, beside: Path) -> None:
    (beside / "file").touch()
    plan = f"run {MICRO} --dry-run --out"
    refuses(f"{plan} {beside}", "is not empty; name a new folder")
    refuses(f"{plan} {beside / 'file' / 'a'}", "cannot make a folder for the run")
    call(*plan.split(), beside / "a" / "b")
    assert not (beside / "a").exists()


def test_a_run_of_another_command_is_not_gone_on_with(refuses: Refuses, beside: Path) -> None:
    goes_on = {
        "versus": ("micro", "run", "sweep", "recsys", "press"),
        **{"press": ("rpc",), "rpc": ("micro",), "load": ("micro",), "micro": ("versus",)},
    }
    for stored, commands in goes_on.items():
        run = replace(records.run(), command=stored, suite={"urls": {}})
        place = records.store_run(beside / stored, Result(run))
        before = (place / RECORDS_FILE).read_bytes()
        for command in commands:
            refuses(f"{command} --resume {place}", f"{place} holds a run of {stored}")
        assert (place / RECORDS_FILE).read_bytes() == before


@pytest.mark.ray
def test_the_plan_of_the_example(call: Call) -> None:
    plan = ("run", EXAMPLE / "shop.toml", "--dry-run")
    out, _ = call(*plan, "--quick")
    assert "Ranker.num_replicas=2, Ranker.max_ongoing_requests=10, " in out
    assert "4 trials of 3 x 0.5 s on 1 cluster" in out
    out, _ = call(*plan, "--option", "Ranker.num_replicas=1,2,4", "--clients", "raw:8,1")
    assert "6 trials of 5 x 1 s on 1 cluster" in out


@pytest.mark.ray
def test_bodies_are_those_of_a_file_or_chats(tmp_path: Path) -> None:
    (tmp_path / "bodies").write_text('{"n": 1}\n\n{"n": 2}\n')
    file, target = str(tmp_path / "bodies"), f"{EXAMPLE / 'shop.py'}:app"
    for words in ({"bodies": file}, {"bodies": file, "body": ['{"n": 0}']}):
        suite = target_suite(OwnRunOptions.of(words), target)
        asked = sure(suite.app.own_app).asked
        assert asked.bodies[-2:] == (b'{"n": 1}', b'{"n": 2}') and asked.method == "POST"
        assert asked.headers == (("content-type", "application/json"),)
        request = load_of(suite, suite.rows[0], "http://127.0.0.1:1", {}).request
        assert request.all_bodies == asked.bodies
    chat = {"openai": True, "model": "m", "input_tokens": "20,5", "route": "/v1"}
    shop = target_suite(OwnRunOptions.of(chat), target)
    assert shop.streaming == Streaming(openai=True)
    assert [row.label for row in shop.rows] == ["100 connections, stream"]
    request = load_of(shop, shop.rows[0], "http://127.0.0.1:1", {}).request
    assert request.url == "http://127.0.0.1:1/v1/chat/completions" and len(request.bodies) == 1000
    stored = json.loads(json.dumps(shop.to_json()))
    assert json.loads(json.dumps(Suite.from_json(stored).to_json())) == stored


@pytest.mark.ray
@cases(
    "servicer, flags, says",
    ("text_grpc.add", "Upper", "text_grpc.add: the module has no 'add'"),
    ("no_grpc.add", "Upper", "no_grpc.add: ModuleNotFoundError: No module"),
    ("text_grpc.grpc", "Upper", "text_grpc.grpc: is no function but"),
    ("os.getcwd", "Upper", "os.getcwd: TypeError: posix.getcwd() takes no"),
    ("operator.is_", "Upper", "operator.is_: adds no method of a service"),
    ("text_grpc.add_text", "Up", "they have /examples.Text/Upper, /examp"),
    ("text_grpc.add_text", "Upper -H application:x", "which is 'default'"),
    ("text_grpc.add_text", 'Upper --body "a', "serialized or as JSON: Failed to load JSON"),
)
def test_a_servicer_is_tried(servicer: str, flags: str, says: str, refuses: Refuses) -> None:
    line = f"run {TEXT}:app --protocol grpc --grpc-servicer {servicer}"
    refuses(f"{line} --route /examples.Text/{flags}", says)


@pytest.mark.ray
def test_the_plan_of_an_app_of_grpc(call: Call, tmp_path: Path) -> None:
    for name in ("text.py", "text_grpc.py"):
        (tmp_path / name).write_text((TEXT.parent / name).read_text())
    (tmp_path / "s.toml").write_text(
        'app = "text.py:app"\n[request]\nroute = "/examples.Text/Words"\n[serve]\n'
        'grpc_servicers = ["text_grpc.add_text"]\n[load]\nprotocol = "grpc-stream"\n'
    )
    out, _ = call("run", tmp_path / "s.toml", "--quick", "--dry-run")
    assert "100 connections, grpc-stream (grpc)" in out
    (tmp_path / "c.yaml").write_text(
        "applications: [{name: text, route_prefix: /t, import_path: 'text:app'}]\n"
        "grpc_options: {port: 9000, grpc_servicer_functions: [text_grpc.add_text]}\n"
    )
    words = ("run", tmp_path / "c.yaml", "--dry-run")
    out, err = call(*words, "--protocol", "grpc", "--route", "/examples.Text/Upper")
    assert "100 connections, grpc (grpc)" in out
    assert err.splitlines()[0].endswith("has no effect here: grpc_options.port")
    assert "grpc_options.port, grpc_options.grpc_servicer_functions" in call(*words)[1]


@pytest.mark.ray
def test_arguments_of_a_builder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from ray import serve\n@serve.deployment\ndef front(request): ...\n"
        "def build(args): return front.options(num_replicas=len(args['a'] + args['b'])).bind()\n"
    )
    target = f"{tmp_path}/app.py:build"
    out, _ = call("run", target, "a=x,y", "--arg", "b=u,v", "--dry-run")
    assert "args.a=x,y, args.b=u" in out and "args.a=x,y, args.b=v" in out
    (tmp_path / "s.toml").write_text('app = "app.py:build"\n[options]\n"args.b" = ["u", "v"]\n')
    assert "args.b=v, args.a=x" in call("run", f"{tmp_path}/s.toml", "a=x", "--dry-run")[0]
    sides = ["--a", target, "--a-option", "args.a=x", "--b", target, "--b-option", "args.a=yy"]
    both = [word for side in "ab" for word in (f"--{side}-option", "args.b=u")]
    call("versus", *sides, *both, "--dry-run")
    _, err = call("versus", *sides, *both[:2], "--dry-run", code=2)
    assert "app.py:build is a builder, and raised KeyError: 'b'" in err
