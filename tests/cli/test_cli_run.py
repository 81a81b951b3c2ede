"""`serve-bench run`: what is refused before anything starts, and the plan that it makes."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serve_bench.benchmarks.own_app.command import OwnRunOptions
from serve_bench.benchmarks.own_app.flags import own_suite
from serve_bench.cli.program import run
from serve_bench.cli.rows import row_overrides
from serve_bench.core.load_spec import Streaming
from serve_bench.core.plan import Suite, load_of
from serve_bench.core.suite import Overrides
from serve_bench.store import RECORDS_FILE, RunFolder
from tests import places, records
from tests.cases import cases

OWN = places.FORMATS / "2-run.jsonl"

ROOT = places.TOP
EXAMPLE = ROOT / "examples" / "own_app"
MICRO = ROOT / "scenarios" / "micro.toml"
TEXT = ROOT / "examples" / "grpc" / "text.py"
Refuses = Callable[[str, str], None]
GRPC_FILE = '[serve]\ngrpc_servicers = ["c.d"]\n[load]\nprotocol = "grpc"'
SERVICED = "a:b --protocol grpc --grpc-servicer c.d"


@cases(
    "flags, says",
    ("", "TARGET: name an app (module:app, path/file.py:app) or a suite file"),
    ("shop", "TARGET: 'shop' is not allowed; it takes module:app or path/file.py:app"),
    ("gone.py:app", "TARGET: gone.py: there is no such file"),
    ("gone.toml", "gone.toml: cannot be read: no such file"),
    ("a:b --route best", "--route: 'best' does not begin with /"),
    ("a:b --route /é", "--route: a space, control or non-ASCII character in '/é'"),
    ("a:b --route=", "--route: '' is not allowed; it takes a value"),
    ("a:b --headers gone", "--headers: gone cannot be read: no such file"),
    ("a:b --draw random", "--draw: give --bodies, --paths or --headers with two or more"),
    ("a:b --expect-status 100", "--expect-status must be 200 to 599, got 100"),
    ("a:b --request-timeout-s 0", "--request-timeout-s: 0.0 is not allowed"),
    ("a:b word", "NAME=VALUE: 'word' is not allowed; it takes name=value"),
    ("a:b --arg word=", "--arg: 'word=' is not allowed; it takes name=value"),
    (f"{MICRO} word=a", "word=a: "),
    ("a:b --option x", "--option: 'x' is not allowed; it takes Deployment.option="),
    ("a:b --resume x", "x: no such folder"),
    (f"--resume {OWN}", "names the environment OMP_NUM_THREADS, the app "),
    (f"{MICRO} --app-name x", "--app-name: "),
    (f"{MICRO} --expect-status 200", "--expect-status: "),
    (f"{MICRO} --grpc-servicer a.b", "--grpc-servicer: "),
    (f"{MICRO} --bodies x", "--bodies: "),
    (f"{MICRO} --openai --model m", "--openai: "),
    ("a:b --openai", "--openai: give --model, or bodies of your own (--bodies)"),
    ("a:b --openai --model m --protocol http,stream", "--openai: is a stream, not http,stream"),
    ("a:b --grpc-servicer c.d", "--grpc-servicer: goes with --protocol grpc or grpc-stream"),
    ("a:b --protocol grpc", "--protocol grpc: give --grpc-servicer, the function that adds"),
    ("a:b --protocol grpc --grpc-servicer add", "--grpc-servicer: 'add' is not allowed"),
    (f"{SERVICED} --grpc-servicer c.d", "--grpc-servicer: c.d is given twice"),
    (SERVICED, "--route: the path '/' names no method of gRPC"),
    (f"{SERVICED} --route /x.Y/Z --expect-status 200", "--expect-status: has no use with"),
    (f"{SERVICED} --route /x.Y/Z -H x-bin:1", "--header x-bin: is no name of metadata of gRPC"),
    ("a:b --protocol grpc --grpc-servicer=", "--grpc-servicer: '' is not allowed"),
    ("a:b --call x", "--call: goes with --protocol handle"),
    ("a:b --protocol handle --call x.y", "--call: 'x.y' is not allowed; it takes the name"),
    ("a:b --protocol handle --route /x", "--route: has no use with --protocol handle"),
    ("a:b --protocol handle --expect-status 200", "--expect-status: has no use with"),
    ("a:b --protocol handle --call caf\u00e9", "is not allowed; it takes the name of a method"),
    ("a:b --protocol handle -H x:1", "--header: x: a handle has none but content-type"),
    ("a:b --protocol handle --body 1x -H content-type:application/json", "--body: is no JSON"),
    ("a:b --protocol handle --grpc-servicer c.d", "--grpc-servicer: goes with --protocol grpc"),
)
def test_bad_input_is_one_line(flags: str, says: str, refuses: Refuses) -> None:
    refuses(f"run {flags}", says)


@pytest.fixture
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not the current one, which must stay empty."""
    return tmp_path_factory.mktemp("beside")


@cases(
    "told, says",
    ('route = "/e x"', "s.toml: request.route: a space, control or non-ASCII character in"),
    ('method = "PO1"', "s.toml: request: method must be capital letters"),
    ('body_file = "none"', "s.toml: request.body_file: "),
    ('bodies_file = "none"', "s.toml: request.bodies_file: "),
    ('[serve]\ngrpc_servicers = "c.d"', "s.toml: serve.grpc_servicers: goes with --protocol"),
    (f'method = "PUT"\n{GRPC_FILE}', "s.toml: request.method: has no use with --protocol grpc"),
)
def test_bad_suites_are_named(told: str, says: str, refuses: Refuses, beside: Path) -> None:
    (beside / "s.toml").write_text(f'app = "a:b"\n[request]\n{told}\n')
    refuses(f"run {beside / 's.toml'}", f"{beside}/{says}")


def test_files_of_bodies(refuses: Refuses, beside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses("run a:b --body @/dev/zero", "--body: /dev/zero is no regular file")
    monkeypatch.setattr("serve_bench.cli.flag_values.MOST_BYTES", 3)
    (beside / "body").write_bytes(b"1234")
    refuses(f"run a:b --body @{beside / 'body'}", "has 4 bytes; allowed: 3")


def test_files_of_paths_and_headers_are_told_by_their_line(refuses: Refuses, beside: Path) -> None:
    (beside / "p").write_text("/a\n\n# none\nb\n")
    paths, headers = beside / "p", beside / "h"
    refuses(f"run a:b --paths {paths}", f"--paths: {paths}, line 4: 'b' does not begin")
    (beside / "h").write_text('{"x": "1"}\n{"x": 2}\n')
    refuses(f"run a:b --headers {headers}", f"{headers}, line 2: is not allowed; it takes")
    (beside / "h").write_text("# nothing\n")
    refuses(f"load http://h/ --headers {beside / 'h'}", "holds no headers; it takes an object of")
    (beside / "p").write_text("/a\n")
    refuses(f"run a:b --paths {paths} --route /x", "--paths: is asked for instead of --route")
    (beside / "s.toml").write_text('app = "a:b"\n[request]\npaths_file = "p"\nroute = "/"\n')
    refuses(f"run {beside / 's.toml'}", "s.toml: request: give route or paths_file, not both")


def test_a_plan_refuses_the_folder_that_the_run_would(refuses: Refuses, beside: Path) -> None:
    (beside / "file").touch()
    plan = f"run {MICRO} --dry-run --out"
    refuses(f"{plan} {beside}", "is not empty; name a new folder")
    refuses(f"{plan} {beside / 'file'}", "is a file; a run needs a new or empty folder")
    refuses(f"{plan} {beside / 'file' / 'a'}", "cannot make a folder for the run")
    refuses(f"{plan} /proc/x", "/proc/x: cannot make a folder for the run")
    assert run([*plan.split(), str(beside / "a" / "b")]) == 0
    assert not (beside / "a").exists()


def test_a_run_of_another_command_is_not_gone_on_with(refuses: Refuses, beside: Path) -> None:
    goes_on = {
        "versus": ("micro", "run", "sweep", "recsys", "press"),
        "press": ("rpc",),
        "rpc": ("micro",),
        "load": ("micro",),
        "micro": ("versus",),
    }
    for stored, commands in goes_on.items():
        place = beside / stored
        with RunFolder.create(place, now=datetime.now(UTC)) as folder:
            folder.append(replace(records.run(), command=stored, suite={"urls": {}}))
        before = (place / RECORDS_FILE).read_bytes()
        for command in commands:
            refuses(f"{command} --resume {place}", f"{place} holds a run of {stored}")
        assert (place / RECORDS_FILE).read_bytes() == before


@pytest.mark.ray
def test_the_plan_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(EXAMPLE / "shop.toml"), "--quick", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "Ranker.num_replicas=2, Ranker.max_ongoing_requests=10, " in out
    assert "4 trials of 3 x 0.5 s on 1 cluster" in out
    flags = ["--option", "Ranker.num_replicas=1,2,4", "--clients", "raw:8,1"]
    assert run(["run", str(EXAMPLE / "shop.toml"), *flags, "--dry-run"]) == 0
    assert "6 trials of 5 x 1 s on 1 cluster" in capsys.readouterr().out


@pytest.mark.ray
def test_bodies_are_those_of_a_file_or_chats(tmp_path: Path) -> None:
    (tmp_path / "bodies").write_text('{"n": 1}\n\n{"n": 2}\n')
    file = str(tmp_path / "bodies")
    for words in (OwnRunOptions(bodies=file), OwnRunOptions(bodies=file, body='{"n": 0}')):
        suite = own_suite(f"{EXAMPLE / 'shop.py'}:app", words, Overrides())
        assert suite is not None and suite.app.own is not None
        asked = suite.app.own.asked
        assert asked.bodies[-2:] == (b'{"n": 1}', b'{"n": 2}') and asked.method == "POST"
        assert asked.headers == (("content-type", "application/json"),)
        request = load_of(suite, suite.rows[0], "http://127.0.0.1:1", {}).request
        assert request.all_bodies == asked.bodies
    chat = OwnRunOptions(openai=True, model="m", input_tokens="20,5", route="/v1")
    shop = own_suite(f"{EXAMPLE / 'shop.py'}:app", chat, row_overrides(chat))
    assert shop is not None and shop.streaming == Streaming(openai=True)
    assert [row.label for row in shop.rows] == ["100 connections, stream"]
    request = load_of(shop, shop.rows[0], "http://127.0.0.1:1", {}).request
    assert request.url == "http://127.0.0.1:1/v1/chat/completions" and len(request.bodies) == 1000
    stored = json.loads(json.dumps(shop.to_json()))
    assert json.loads(json.dumps(Suite.from_json(stored).to_json())) == stored


GRPC = f"run {TEXT}:app --protocol grpc"


@pytest.mark.ray
@cases(
    "flags, says",
    ("text_grpc.add --route /examples.Text/Upper", "text_grpc.add: the module has no 'add'"),
    ("no_grpc.add --route /examples.Text/Upper", "no_grpc.add: ModuleNotFoundError: No module"),
    ("text_grpc.grpc --route /examples.Text/Upper", "text_grpc.grpc: is no function but"),
    ("os.getcwd --route /examples.Text/Upper", "os.getcwd: TypeError: posix.getcwd() takes no"),
    ("operator.is_ --route /examples.Text/Upper", "operator.is_: adds no method of a service"),
    ("text_grpc.add_text --route /examples.Text/Up", "they have /examples.Text/Upper, /examp"),
    ("text_grpc.add_text --route /examples.Text/Words", "Words streams its response: it"),
    (
        "text_grpc.add_text --route /examples.Text/Upper -H application:x",
        "--header: application: 'x' is not the app that is loaded, which is 'default'",
    ),
    (
        'text_grpc.add_text --route /examples.Text/Upper --body "a',
        "--body: no google.protobuf.StringValue, serialized or as JSON: Failed to load JSON",
    ),
)
def test_a_servicer_is_tried_at_once(flags: str, says: str, refuses: Refuses) -> None:
    refuses(f"{GRPC} --grpc-servicer {flags}", says)


@pytest.mark.ray
def test_the_plan_of_an_app_of_grpc(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("text.py", "text_grpc.py"):
        (tmp_path / name).write_text((TEXT.parent / name).read_text())
    (tmp_path / "s.toml").write_text(
        'app = "text.py:app"\n[request]\nroute = "/examples.Text/Words"\n[serve]\n'
        'grpc_servicers = ["text_grpc.add_text"]\n[load]\nprotocol = "grpc-stream"\n'
    )
    assert run(["run", str(tmp_path / "s.toml"), "--quick", "--dry-run"]) == 0
    assert "100 connections, grpc-stream (grpc)" in capsys.readouterr().out
    (tmp_path / "c.yaml").write_text(
        "applications: [{name: text, route_prefix: /t, import_path: 'text:app'}]\n"
        "grpc_options: {port: 9000, grpc_servicer_functions: [text_grpc.add_text]}\n"
    )
    words = ["run", str(tmp_path / "c.yaml"), "--dry-run"]
    assert run([*words, "--protocol", "grpc", "--route", "/examples.Text/Upper"]) == 0
    captured = capsys.readouterr()
    assert "100 connections, grpc (grpc)" in captured.out
    assert captured.err.splitlines()[0].endswith("has no effect here: grpc_options.port")
    assert run(words) == 0
    unused = "grpc_options.port, grpc_options.grpc_servicer_functions"
    assert unused in capsys.readouterr().err


@pytest.mark.ray
def test_an_option_that_a_deployment_lacks_names_the_nearest(refuses: Refuses) -> None:
    message = "Ranker takes no option 'num_replica'; did you mean 'num_replicas'?"
    refuses(f"run {EXAMPLE / 'shop.py'}:app --option Ranker.num_replica=1,2", message)


@pytest.mark.ray
def test_arguments_of_a_builder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from ray import serve\n@serve.deployment\ndef front(request): ...\n"
        "def build(args): return front.options(num_replicas=len(args['a'] + args['b'])).bind()\n"
    )
    target = f"{tmp_path}/app.py:build"
    assert run(["run", target, "a=x,y", "--arg", "b=u,v", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "args.a=x,y, args.b=u" in out and "args.a=x,y, args.b=v" in out
    (tmp_path / "s.toml").write_text('app = "app.py:build"\n[options]\n"args.b" = ["u", "v"]\n')
    assert run(["run", f"{tmp_path}/s.toml", "a=x", "--dry-run"]) == 0
    assert "args.b=v, args.a=x" in capsys.readouterr().out
    sides = ["--a", target, "--a-option", "args.a=x", "--b", target, "--b-option", "args.a=yy"]
    both = [word for side in "ab" for word in (f"--{side}-option", "args.b=u")]
    assert run(["versus", *sides, *both, "--dry-run"]) == 0
    assert run(["versus", *sides, *both[:2], "--dry-run"]) == 2
    assert "app.py:build is a builder, and raised KeyError: 'b'" in capsys.readouterr().err
