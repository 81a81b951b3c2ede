"""A config file of Serve: which application is loaded, where it is found, what is not used."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serve_bench.core.app_spec import app_from_json, deploy_spec, own_spec
from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import Asked, Beside, OwnApp, OwnDeployment
from serve_bench.core.plan import request_of
from serve_bench.serving.own_apps import app_of_config, check_options, read_config
from serve_bench.spec.serve_config import ServeConfig
from tests import places
from tests.cases import cases
from tests.records import ROWS

CONTENT: dict[str, Any] = {
    "proxy_location": "EveryNode",
    "http_options": {"host": "0.0.0.0", "port": 80, "request_timeout_s": 20, "root_path": ""},
    "applications": [
        {
            **{"name": "helper", "route_prefix": "/helper", "import_path": "one:build"},
            "args": {"word": "x"},
        },
        {
            **{"name": "shop", "route_prefix": "/shop", "import_path": "two:app"},
            "runtime_env": {"env_vars": {"A": "1"}, "pip": ["x"], "working_dir": "code"},
            "deployments": [{"name": "Shop", "num_replicas": 2, "user_config": {"a": 1}}],
        },
        {"import_path": "three:app"},
    ],
}


def config() -> ServeConfig:
    return ServeConfig.of(CONTENT, "c.yaml", "/home/me", "TARGET")


def test_what_has_no_effect_is_told_and_the_rest_is_used() -> None:
    found = config()
    assert found.http_options == {"request_timeout_s": 20}
    unused = ["proxy_location", "http_options.host", "http_options.port", "shop.runtime_env.pip"]
    assert list(found.unused) == unused
    assert found.apps[1].config["runtime_env"] == {"env_vars": {"A": "1"}}
    assert (found.apps[2].name, found.apps[2].prefix) == ("default", "/")
    said = found.notices(found.apps[0], False)
    assert said[0].startswith("the load goes to helper (the first; --app-name or --route names")
    assert said[1] == f"c.yaml: has no effect here: {', '.join(unused)}"


@cases(
    "name, route, chosen",
    (None, None, "helper"),
    ("shop", None, "shop"),
    (None, "/shop/a?b=1", "shop"),
    (None, "/shop", "shop"),
    (None, "/shopping", "default"),  # no part of /shop
    ("shop", "/shop?x", "shop"),
)
def test_the_app_that_is_loaded(name: str | None, route: str | None, chosen: str) -> None:
    assert config().choose(name, route).name == chosen


def test_what_leads_to_no_app() -> None:
    with pytest.raises(BadInput, match=r"^--app-name: c.yaml has no application 'shp'; did you m"):
        config().choose("shp", None)
    with pytest.raises(BadInput, match=r"^--route: '/helper' does not lead to the application 's"):
        config().choose("shop", "/helper")


def test_an_app_is_found_in_its_folder_then_here_then_beside_the_file() -> None:
    helper, shop, _ = config().apps
    assert shop.folder("/here", lambda path: path == "/home/me/code", "TARGET") == "/home/me/code"
    with pytest.raises(BadInput, match="shop: working_dir: there is no folder /home/me/code"):
        shop.folder("/here", lambda path: False, "TARGET")
    both = {"/here/one.py", "/home/me/one.py"}
    assert helper.folder("/here", both.__contains__, "TARGET") == "/here"
    assert helper.folder("/here", {"/home/me/one.py"}.__contains__, "TARGET") == "/home/me"
    assert helper.folder("/here", lambda path: False, "TARGET") == "/here"  # a package, say


FILE = """
http_options: {request_timeout_s: 20}
applications:
  - name: helper
    route_prefix: /helper
    import_path: one:build
    args: {word: hello}
    deployments: [{name: Helper, num_replicas: 2, ray_actor_options: {num_cpus: 0.5, num_gpus: 1}}]
  - {name: shop, route_prefix: /shop, import_path: two.app}
"""
ONE = """
from ray import serve
@serve.deployment
class Helper: __call__ = print
def build(args): return Helper.bind(args["word"])
"""
TWO = """
from ray import serve
@serve.deployment(max_ongoing_requests=7)
class Shop: __call__ = print
app = Shop.bind()
"""


@pytest.mark.ray
def test_a_file_is_read_by_serve_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real child program, without a cluster, reads it, builds it and lists its deployments."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("c.yaml", FILE), ("one.py", ONE), ("two.py", TWO)):
        (tmp_path / name).write_text(text)
    found = read_config("c.yaml", "TARGET")
    asked = Asked("/shop/a", paths=("/shop/a", "/shop/b"), header_sets=((("x", "1"),),))
    app = app_of_config(found, "shop", "TARGET", None, asked)
    assert (app.name, app.prefix, app.replicas({}), app.cpus({})) == ("shop", "/shop", 3, 2.0)
    (helper,) = app.beside
    assert (helper.deployments[0].num_gpus, helper.config["args"]) == (1.0, {"word": "hello"})
    if app.gpus is not None and app.gpus < 1:
        with pytest.raises(BadInput, match=r"for 2 GPUs .* no GPU: num_gpus: 0 in the file"):
            app.check_room([{}], "TARGET")
    loaded = app_of_config(found, "helper", "TARGET", None, Asked("/helper"))
    check_options(loaded, [{"Helper.max_ongoing_requests": 3}], "--option")  # a builder with args
    spec = deploy_spec(own_spec(app), {"Shop.max_ongoing_requests": 3})
    assert (spec["name"], spec["route_prefix"]) == ("shop", "/shop")
    assert spec["beside"][0]["import_path"] == "one:build"
    assert spec["deployments"] == [{"name": "Shop", "max_ongoing_requests": 3}]
    request = request_of(own_spec(app), ROWS[0], "http://127.0.0.1:8", {})
    assert request.paths == ("/shop/a", "/shop/b") and request.header_sets == ((("x", "1"),),)
    read = app_from_json(own_spec(app).to_json()).own_app
    assert read is not None and read.beside == app.beside


def test_an_application_beside_that_has_no_route_is_told_to_serve_as_such() -> None:
    helper_of_file, shop_of_file, _ = CONTENT["applications"]
    content = [dict(shop_of_file), {**helper_of_file, "route_prefix": None}]
    shop, helper = ServeConfig.of({"applications": content}, "c.yaml", "/me", "TARGET").apps
    made = (OwnDeployment("Shop", 1),)
    beside = Beside({"import_path": "one:build", **helper.config}, "/me", made)
    app = OwnApp("c.yaml: shop", "two:app", "/me", made, (), config=shop.config, beside=(beside,))
    spec = deploy_spec(own_spec(app), {})
    assert (spec["route_prefix"], spec["beside"][0]["route_prefix"]) == ("/shop", None)


@pytest.mark.ray
def test_what_is_no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe, file = describing(monkeypatch), tmp_path / "c.yaml"
    path, env = "import_path: a:b", "applications[0].runtime_env"
    for text, says in {
        "a: [": "is no YAML: ",
        "a: 1": "is no config file of Serve: it has no list of applications",
        "applications: [{name: a}]": "applications[0].import_path: Field required",
        f"applications: [{{{path}, runtime_env: text}}]": f"{env}: 'text' is no table",
        f"applications: [{{{path}, runtime_env: {{env_vars: x}}}}]": f"{env}.env_vars: 'x' is no ",
    }.items():
        file.write_text(text)
        with pytest.raises(describe.Refusal) as caught:
            describe.read_file(str(file))
        assert str(caught.value).startswith(says)


def test_a_file_that_names_no_deployment_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    describe = describing(monkeypatch)
    monkeypatch.setattr(describe, "list_deployments", lambda *_: [SimpleNamespace(name="Shop")])
    with pytest.raises(describe.Refusal, match="has no deployment 'Shp'; it has Shop"):
        describe.describe_all(None, "default", [{"name": "Shp"}])


def describing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the child program as a module; it imports nothing of ours."""
    place = places.TOP / "serve_bench" / "serving" / "cluster"
    monkeypatch.syspath_prepend(str(place))
    return importlib.import_module("describe")
