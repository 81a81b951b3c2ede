"""What an interpreter tells of an app: the real child program, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.benchmarks.own_app.facts import check_options, own_app, place_of
from serve_bench.core.errors import BadInput

APP = """
from ray import serve
print("loading")

@serve.deployment(ray_actor_options={"num_cpus": 0.5}, user_config={"boost": 1.0})
class Ranker:
    pass

@serve.deployment(num_replicas=3)
class Shop:
    def __init__(self, ranker):
        self.ranker = ranker

@serve.deployment(num_replicas="auto")
class Auto:
    pass

places = {"accelerator_type": "T4", "resources": {"node:__internal_head__": 0.001}}

@serve.deployment(ray_actor_options=places)
class Kind:
    pass

app = Shop.bind(Ranker.bind())
auto = Auto.bind()
kind = Kind.bind()
def build(args): return app
number = 3
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP)
    return file


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop", "it takes module:app or path/file.py:app"),
        ("shop:a-b", "it takes module:app or path/file.py:app"),
        (":app", "it takes module:app or path/file.py:app"),
        ("gone.py:app", "gone.py: there is no such file"),
        ("a/b:app", "neither a module nor a file that ends with .py"),
        ("1.py:app", "there is no such file"),
    ],
)
def test_what_names_no_app(target: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        place_of(target, "--a")
    assert str(caught.value).startswith("--a: ") and says in str(caught.value)


def test_a_file_is_found_beside_its_folder(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_of(f"{shop}:app", "x") == (str(shop.parent), "shop:app")
    monkeypatch.chdir(shop.parent)
    assert place_of("shop:app", "x") == (str(shop.parent), "shop:app")


def test_a_current_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadInput, match=r"TARGET: a:b: the current folder, .*, was deleted"):
        place_of("a:b", "TARGET")


def test_a_file_that_hides_ray_is_named(shop: Path) -> None:
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
@pytest.mark.parametrize(
    ("more", "name", "says"),
    [
        ("", "number", "number (int) is not an application of Serve"),
        ("", "Shop", "bind it, as app = Shop.bind()"),
        ("", "nothing", "has no 'nothing'; it has "),
        (
            "def model(args): return Shop.bind(args['model'])",
            "model",
            "model is a builder, which gets no arguments here, and raised KeyError: 'model' ",
        ),
        ("import nowhere", "app", "ModuleNotFoundError: No module named 'nowhere' (shop.py, line "),
        ("1 +", "app", "SyntaxError: invalid syntax (shop.py, line "),
        ("raise SystemExit(3)", "app", "its import ended the interpreter"),
    ],
)
def test_what_is_wrong_is_told_as_the_apps_own(shop: Path, more: str, name: str, says: str) -> None:
    shop.write_text(APP + more + "\n")
    with pytest.raises(BadInput) as caught:
        own_app(f"{shop}:{name}", "TARGET")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_an_interpreter_that_is_none(shop: Path) -> None:
    with pytest.raises(BadInput, match="TARGET: python /nowhere/python: no such file"):
        own_app(f"{shop}:app", "TARGET", python="/nowhere/python")
