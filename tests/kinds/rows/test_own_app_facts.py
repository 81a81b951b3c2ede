"""What an interpreter tells of an app: the real child program, without a cluster."""

import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.api_pb2 import Mixin

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.own_app import Asked, Option, OwnApp
from serve_bench.serving.own_apps import check_options, own_app, place_of, with_arguments
from serve_bench.spec.request import Servicers
from tests.cases import Patch, cases
from tests.load.loads import run_here

APP = """
from ray import serve
print("loading")
places = {"accelerator_type": "T4", "resources": {"node:__internal_head__": 0.001}}
@serve.deployment(ray_actor_options={"num_cpus": 0.5}, user_config={"boost": 1.0})
class Ranker: pass
@serve.deployment(num_replicas=3)
class Shop:
    __init__ = lambda self, ranker: None; __call__ = print
@serve.deployment(num_replicas="auto")
class Auto: __call__ = print
@serve.deployment(ray_actor_options=places)
class Kind: __call__ = print
app = Shop.bind(Ranker.bind())
auto = Auto.bind()
kind = Kind.bind()
def build(args): return app
number = 3
"""


TYPED = """
from pydantic import BaseModel
class Words(BaseModel):
    word: str
    copies: int = 1
def typed(words: Words): return Shop.options(num_replicas=words.copies).bind(words.word)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP)
    return file


NO_TARGET: Final = "it takes module:app or path/file.py:app"
NO_VALUES: Final = "got no arguments (options args.NAME=VALUE)"


@cases(
    "target, says",
    *((target, NO_TARGET) for target in ("shop", "shop:a-b", ":app")),
    *((target, "there is no such file") for target in ("gone.py:app", "1.py:app")),
    ("a/b:app", "neither a module nor a file that ends with .py"),
    ("http://h:8000/", "http://h:8000/ is a service that is up already: load, capacity, "),
)
def test_what_names_no_app(target: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        place_of(target, "--a")
    assert str(caught.value).startswith("--a: ") and says in str(caught.value)


def test_a_file_is_found_beside_its_folder(shop: Path, monkeypatch: Patch) -> None:
    assert place_of(f"{shop}:app", "x") == (str(shop.parent), "shop:app")
    monkeypatch.chdir(shop.parent)
    assert place_of("shop:app", "x") == (str(shop.parent), "shop:app")
    assert place_of("shop.app", "x") == (str(shop.parent), "shop:app")  # as Serve has it too
    assert place_of("shop.py", "x") == (str(shop.parent), "shop:")


def test_a_file_of_a_package_is_found_from_above_it(tmp_path: Path) -> None:
    for name in ("pkg/__init__.py", "pkg/apps/__init__.py", "pkg/apps/my-app.py", "a.b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    place = (str(tmp_path), "pkg.apps.my-app:app")
    assert place_of(f"{tmp_path}/pkg/apps/my-app.py:app", "x") == place
    assert place_of(f"{tmp_path}/pkg/__init__.py:app", "x") == (str(tmp_path), "pkg:app")
    with pytest.raises(BadInput, match="Python cannot import a file with a dot in its name"):
        place_of(f"{tmp_path}/a.b.py:app", "x")


def test_a_current_folder_that_was_deleted(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadInput, match=r"TARGET: a:b: the current folder, .*, was deleted"):
        place_of("a:b", "TARGET")


def test_a_python_in_which_ray_is_not_found(shop: Path) -> None:
    with pytest.raises(BadInput, match="TARGET: python /nowhere/python: no such file"):
        own_app(f"{shop}:app", "TARGET", python="/nowhere/python")
    (shop.parent / "ray.py").write_text("")
    with pytest.raises(BadInput, match=r"TARGET: .*/ray\.py hides Ray, which has the same name"):
        own_app(f"{shop}:app", "TARGET")


@pytest.mark.ray
def test_an_app_is_told_as_its_serve_sees_it(shop: Path) -> None:
    app = own_app(f"{shop}:app", "x")
    ranker, ingress = app.deployments
    assert (ranker.name, ranker.num_replicas, ranker.num_cpus) == ("Ranker", 1, 0.5)
    assert (ingress.name, ingress.num_replicas) == ("Shop", 3)
    assert ranker.tables["user_config"] == {"boost": 1.0}
    assert {"num_replicas", "ray_actor_options.num_cpus", "user_config.*"} <= set(app.options)
    assert own_app(f"{shop}:build", "x").deployments == app.deployments  # a builder of it
    (auto,) = own_app(f"{shop}:auto", "x").deployments
    assert auto.num_replicas is None
    (of_a_kind,) = own_app(f"{shop}:kind", "x").deployments
    assert of_a_kind.resources == ("accelerator_type:T4", "node:__internal_head__")
    check_options(app, [{"Ranker.num_replicas": 2}], "--option")
    with pytest.raises(BadInput, match="--option: Ranker: max_ongoing_requests='many': "):
        check_options(app, [{"Ranker.max_ongoing_requests": "many"}], "--option")


@pytest.mark.ray
def test_its_own_modules_are_told_and_none_that_is_installed_below_its_folder(shop: Path) -> None:
    (shop.parent / "parts").mkdir()
    (shop.parent / "parts" / "__init__.py").write_text("import planted\n")
    (shop.parent / "unused.py").write_text("")
    site = shop.parent / ".venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "planted.py").write_text("")
    shop.write_text("import parts\n" + APP)
    app = own_app(f"{shop}:app", "x", folders=[str(site)])
    assert app.sources == ("parts/__init__.py", "shop.py")
    assert app.modules == {str(shop.parent): ["parts/__init__.py", "shop.py"]}


@pytest.mark.ray
@cases(
    "more, name, says",
    ("", "number", "number (int) is not an application of Serve"),
    ("", "Shop", "constructor takes ranker: bind it, as app = Shop.bind(...)"),
    ("", "nothing", "has no 'nothing'; it has "),
    ("def model(args): return args['x']", "model", f"{NO_VALUES}, and raised KeyError: 'x' (sho"),
    ("def fails(): return 1 / 0", "fails", "fails is a builder, and raised ZeroDivisionError"),
    ("def none(): pass", "none", "none() gives NoneType, and not an application of Serve"),
    (TYPED, "typed", "and raised ValidationError: word: Field required"),
    ("import fastapi\nweb = fastapi.FastAPI()", "web", "web is an app of FastAPI, and no appl"),
    ("e = serve.deployment(type('Empty', (), {})).bind()", "e", "e: Empty has no method to be c"),
    ("", "", "has 3 applications; name one: app, auto, kind"),
    ("del app, auto, kind", "", "no application; name a deployment or builder after a colon: Ran"),
    ("del app, auto, kind\ndef add(a, b): 0\ndef z(): 0", "", "Shop, Auto, Kind, build, z"),
    ("globals().clear()", "", "shop.py:: has no application; make one: app"),
    ("import shop.part", "app", "No module named 'shop.part'; 'shop' is not a package"),
    ("import nowhere", "app", "ModuleNotFoundError: No module named 'nowhere' (shop.py, line "),
    ("1 +", "app", "SyntaxError: invalid syntax (shop.py, line "),
    ("raise SystemExit(3)", "app", "its import ended the interpreter"),
)
def test_what_is_wrong_is_told_as_the_apps_own(shop: Path, more: str, name: str, says: str) -> None:
    shop.write_text(APP + more + "\n")
    with pytest.raises(BadInput) as caught:
        own_app(f"{shop}:{name}", "TARGET")
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.ray
@cases(
    "line, says",
    ("serve.run(app)", r"calls serve.run, and nothing .*: name the app that it gets \(app = ...\)"),
    ("if not ray.is_initialized(): ray.init()", "ray.init, and .*: put it under if __name__ =="),
    ("serve.start(detached=True)", "calls serve.start"),
    ("serve.get_app_handle('x').remote()", "calls serve.get_app_handle"),
    ("ray.put(1)", "calls ray.put, and .*: do it in the constructor of a deployment, or"),
    ("ray.remote(Plain).options(num_cpus=0).remote()", "calls Plain.remote"),
    ("ray.remote(lambda: 1).remote()", "calls <lambda>.remote"),
    ("try: ray.get([])\nexcept BaseException: raise SystemExit(0)", "calls ray.get"),
    ("urlopen('http://localhost:8000/')", "connects to port 8000, Serve's HTTP port"),
    ("subprocess.run(['ray', 'start', '--head'])", "runs the program ray"),
)
def test_an_import_starts_nothing(shop: Path, monkeypatch: Patch, line: str, says: str) -> None:
    monkeypatch.setenv("TMPDIR", str(shop.parent))  # where Ray has its sessions
    imports = "import ray, subprocess\nfrom urllib.request import urlopen\nclass Plain: pass\n"
    shop.write_text(f"{APP}{imports}{line}\n")
    number = len(shop.read_text().splitlines()) - line.count("\n")
    with pytest.raises(BadInput, match=rf"shop\.py:app: shop\.py, line {number}, .*{says}"):
        own_app(f"{shop}:app", "TARGET")
    assert not (shop.parent / "ray").exists()


@pytest.mark.ray
def test_what_serve_takes_is_built_alike(shop: Path, monkeypatch: Patch) -> None:
    """A builder with arguments, a deployment that needs none, the only application of a file."""
    from serve_bench.serving.apps import own

    monkeypatch.syspath_prepend(str(shop.parent))
    shop.write_text(f"{APP}{TYPED}del auto, kind\n")
    file = shop.rename(shop.parent / "my-shop.py")
    words = {"word": "a", "copies": "2"}
    for name, arguments, made in (
        ("typed", words, [("Shop", 2)]),
        ("Auto", {}, [("Auto", None)]),
        ("", {}, [("Ranker", 1), ("Shop", 3)]),
    ):
        app = own_app(f"{file}:{name}", "x", arguments=arguments)
        assert [(part.name, part.num_replicas) for part in app.deployments] == made
        assert app.import_path == f"my-shop:{name or 'app'}"
        built = own.build({"import_path": app.import_path, "args": arguments})
        assert built._bound_deployment.name == app.ingress


@pytest.mark.ray
def test_deployments_are_those_of_the_arguments_of_a_cell(shop: Path) -> None:
    shop.write_text(APP + TYPED)
    app = own_app(f"{shop}:typed", "x", arguments={"word": "a", "copies": "1"})
    cells: list[dict[str, Option]] = [{"args.copies": "1"}, {"args.copies": "3"}]
    app = with_arguments(app, cells, "x")
    assert [app.replicas(cell) for cell in cells] == [1, 3]
    shop.write_text(f"{APP}def either(args): return Auto.bind() if args['n'] == '1' else app\n")
    app = own_app(f"{shop}:either", "x", arguments={"n": "1"})
    with pytest.raises(BadInput, match=r'\{"n": "2"\} makes the deployments Ranker, Shop, and not'):
        with_arguments(app, [{"args.n": "2"}], "x")


@pytest.mark.ray
def test_the_module_form_of_a_file_is_named_where_its_imports_need_it(tmp_path: Path) -> None:
    """In a folder without __init__.py, and in a package whose files import what lies beside."""
    (tmp_path / "ns" / "apps").mkdir(parents=True)
    file = tmp_path / "ns" / "apps" / "echo.py"
    for text, init, form in (
        ("import ns.words", False, f"ns.apps.echo:app, in the folder {tmp_path}"),
        ("from .words import x", False, f"apps.echo:app, in the folder {tmp_path / 'ns'}"),
        ("import words", True, f"echo:app, in the folder {file.parent}"),
    ):
        file.write_text(text)
        for name in ("__init__.py", "words.py") if init else ():
            (file.parent / name).touch()
        with pytest.raises(BadInput) as caught:
            own_app(f"{file}:app", "x")
        assert str(caught.value).endswith(f"; name it as a module, {form}")


SERVICE = """
import grpc
from google.protobuf.api_pb2 import Mixin
def add(servicer, server):
    form = Mixin.FromString, Mixin.SerializeToString
    methods = {"Find": grpc.unary_unary_rpc_method_handler(servicer.Find, *form)}
    handler = grpc.method_handlers_generic_handler("a.Mixins", methods)
    server.add_generic_rpc_handlers((handler,))
"""


@pytest.mark.ray
def test_bodies_of_grpc_may_be_json_of_their_message(shop: Path) -> None:
    (shop.parent / "service.py").write_text(SERVICE)

    def find(*bodies: bytes) -> OwnApp:
        asked = Asked("/a.Mixins/Find", "POST", bodies=bodies)
        return own_app(f"{shop}:app", "x", None, asked, Servicers(("service.add",), "x"))

    seen = []

    class Service:
        def Find(self, request: Mixin, context: grpc.ServicerContext) -> Mixin:
            seen.append(request.name)
            return request

    app = find(b'{"name": "a"}', Mixin(name="b").SerializeToString())
    server = grpc.server(ThreadPoolExecutor(1))
    runpy.run_path(f"{shop.parent}/service.py")["add"](Service(), server)
    url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    result = run_here(Load(app.request(url), client="grpc", connections=1, count=4))
    server.stop(None)
    assert result.measured.completed == 4 and seen == ["a", "b"] * 2
    for body, why in ((b'{"nmae": "a"}', 'has no field named "nmae"'), (b'{"name"', "load JSON")):
        with pytest.raises(BadInput, match=why) as caught:
            find(b"", body)
        line = str(caught.value)
        assert line.startswith("--body: no google.protobuf.Mixin, serialized or as JSON: ")
        assert "\n" not in line
