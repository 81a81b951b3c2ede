"""Without Ray: what would start a cluster is a stand-in that writes down what it was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serve_bench.core.app_spec import AppSpec
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.pytest_plugin import target as kept_cluster
from serve_bench.pytest_plugin.target import KeptCluster, resolved_target
from serve_bench.serving import strays
from serve_bench.serving.launch_spec import LaunchSpec
from serve_bench.serving.own_apps import place_of
from serve_bench.serving.server import Deployed, LaunchFailed
from tests.cases import refusal

OPTIONS = ("num_replicas", "max_ongoing_requests")


@dataclass
class FakeServing:
    """What KeptCluster uses of Serving. `refuses`: targets whose deploy fails."""

    spec: LaunchSpec
    fails: bool = False
    refuses: tuple[str, ...] = ()
    deploys: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    apps: list[AppSpec] = field(default_factory=list)
    proofs: int = 0
    closed: int = 0
    url: str = "http://127.0.0.1:1234"
    versions: Mapping[str, str] = field(default_factory=lambda: {"ray": "2.60.0"})

    def start(self) -> None:
        if self.fails:
            raise LaunchFailed("Ray did not start")

    def deploy(self, app: AppSpec, cell: Mapping[str, Any]) -> Deployed:
        self.apps.append(app)
        self.deploys.append((app.import_path, dict(cell)))
        if app.import_path in self.refuses:
            raise LaunchFailed("the app is DEPLOY_FAILED")
        replicas = [{"deployment": "Shop", "pid": 1}, {"deployment": "Shop", "pid": 2}]
        return Deployed(0.1, False, {"replicas": replicas})

    def prove(self) -> dict[str, Any]:
        self.proofs += 1
        return {"port": 1234}

    def alive(self) -> bool:
        return not self.fails

    def casualties(self) -> list[str]:
        return []

    def close(self) -> strays.Reaped:
        self.closed += 1
        return strays.Reaped(1, 0.1)


@dataclass
class Stage:
    made: list[FakeServing] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    fails: bool = False
    refuses: tuple[str, ...] = ()
    replicas: int = 1

    def serving(self, spec: LaunchSpec) -> FakeServing:
        self.made.append(FakeServing(spec, self.fails, self.refuses))
        return self.made[-1]

    def own_app(
        self, target: str, where: str, *, folders: tuple[str, ...], arguments: dict[str, Any]
    ) -> OwnApp:
        self.imports.append(target)
        folder, import_path = place_of(target, where)
        return OwnApp(target, import_path, folder, (OwnDeployment("Shop", self.replicas),), OPTIONS)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    stage = Stage()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept_cluster, "Serving", stage.serving)
    monkeypatch.setattr(kept_cluster, "own_app", stage.own_app)
    monkeypatch.setattr(kept_cluster, "check_options", lambda *_, **__: None)
    monkeypatch.setattr(kept_cluster, "check_interpreter", lambda _: None)
    stdin = SimpleNamespace(close=lambda: None)
    closed = SimpleNamespace(stdin=stdin, wait=lambda *_: 0, poll=lambda: None)
    monkeypatch.setattr(strays, "start_warden", lambda *_: closed)
    return stage


@pytest.fixture
def cluster(stage: Stage, tmp_path: Path) -> Any:
    for folder in ("", "a", "b"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "shop.py").write_text("app = 1\n")
    (tmp_path / "other.py").write_text("app = 1\n")
    (tmp_path / "a" / "only_a.py").write_text("app = 1\n")
    folders = (tmp_path, tmp_path / "a")
    cluster = KeptCluster(BUILT_IN_VARIANTS["default"], folders, tmp_path / "log")
    yield cluster
    run = cluster.mark.get(strays.RUN_MARK)
    cluster.close()
    assert run is None or not strays.run_directory(run).exists()


def test_one_cluster_and_one_proof_for_all_apps(cluster: KeptCluster, stage: Stage) -> None:
    assert cluster.url is None and cluster.mark == {} and cluster.casualties() == []
    assert stage.made == [] and not cluster.proof
    for target in ("shop.py:app", "other.py:app", "only_a.py:app"):
        assert cluster.deploy(target, {}, Asked()) == "http://127.0.0.1:1234"
    (serving,) = stage.made
    assert [path for path, _ in serving.deploys] == ["shop:app", "other:app", "only_a:app"]
    assert serving.proofs == 1 and cluster.proof == {"port": 1234}
    assert dict(cluster.replicas) == {"Shop": 2} and cluster.ray == "2.60.0"
    assert cluster.mark[strays.RUN_MARK] == serving.spec.run_id
    assert cluster.close() == () and cluster.close() == ()
    assert serving.closed == 1 and cluster.url is None


def test_what_is_in_force_is_not_deployed_again(cluster: KeptCluster, stage: Stage) -> None:
    two = {"Shop.num_replicas": 2}
    for options in ({}, {}, two, two, {}):
        cluster.deploy("shop.py:app", options, Asked())
    assert [cell for _, cell in stage.made[0].deploys] == [{}, two, {}]
    assert len(stage.imports) == 1
    cluster.deploy("shop.py:app", two, Asked("/best", "POST", (), b"[1]"))
    app = stage.made[0].apps[-1]  # what must be answered goes with the deploy
    assert app.own_app is not None and app.own_app.asked == Asked("/best", "POST", (), b"[1]")


def test_what_is_refused_starts_nothing(cluster: KeptCluster, stage: Stage) -> None:
    for options in ({"Shp.num_replicas": 1}, {"Shop.num_replicas": 0}):
        said = refusal(cluster.deploy, "shop.py:app", options, Asked())
        assert said.startswith("serve_target: ") and stage.made == []


def test_a_later_app_lies_in_a_folder(cluster: KeptCluster, stage: Stage, tmp_path: Path) -> None:
    for folder, name in (("b", "first"), ("c", "late")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text("app = 1\n")
    cluster.deploy(f"{tmp_path}/b/first.py:app", {}, Asked())
    assert stage.made[0].spec.folders[-1] == str(tmp_path / "b")
    with pytest.raises(BadInput, match="add it to pythonpath, in the configuration of pytest"):
        cluster.deploy(f"{tmp_path}/c/late.py:app", {}, Asked())
    (tmp_path / "a" / "shop.py").write_text("app = 2\n")  # which another hides
    with pytest.raises(BadInput, match=r"shop.py comes first under the same name"):
        cluster.deploy(f"{tmp_path}/a/shop.py:app", {}, Asked())


def test_what_did_not_come_up_is_not_tried_again(cluster: KeptCluster, stage: Stage) -> None:
    stage.fails = True
    for target in ("shop.py:app", "other.py:app"):
        with pytest.raises(RunFailed, match="Ray did not start"):
            cluster.deploy(target, {}, Asked())
    assert len(stage.made) == 1


def test_an_app_that_fails_leaves_the_cluster_to_others(cluster: KeptCluster, stage: Stage) -> None:
    stage.refuses = ("other:app",)
    cluster.deploy("shop.py:app", {}, Asked())
    with pytest.raises(RunFailed, match="DEPLOY_FAILED"):
        cluster.deploy("other.py:app", {}, Asked())
    assert cluster.url is None  # neither is in force
    cluster.deploy("shop.py:app", {}, Asked())
    assert [path for path, _ in stage.made[0].deploys] == ["shop:app", "other:app", "shop:app"]


def test_an_app_larger_than_the_first_is_refused(cluster: KeptCluster, stage: Stage) -> None:
    cluster.deploy("shop.py:app", {"Shop.num_replicas": 20}, Asked())
    assert stage.made[0].spec.most_replicas == 20 and stage.made[0].spec.logical_cpus >= 22
    with pytest.raises(BadInput, match=r"asks for 21 replicas and 21 CPUs of Ray; .* largest app"):
        cluster.deploy("shop.py:app", {"Shop.num_replicas": 21}, Asked())


def test_a_file_is_looked_for_in_the_folders_and_must_be_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "both.py").write_text("")
    (tmp_path / "b" / "one.py").write_text("")
    folders = (tmp_path / "a", tmp_path / "b")
    assert resolved_target("one.py:app", folders) == f"{tmp_path}/b/one.py:app"
    assert resolved_target("../b/one.py:app", folders) == f"{tmp_path}/b/one.py:app"
    assert resolved_target("pkg.one:app", folders) == "pkg.one:app"
    assert resolved_target(f"{tmp_path}/a/both.py:app", folders) == f"{tmp_path}/a/both.py:app"
    with pytest.raises(BadInput, match=r"both.py may be .*/a/both.py and .*/b/both.py: say which"):
        resolved_target("both.py:app", folders)
