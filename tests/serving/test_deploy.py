"""What must be started (`serve run`, commands of the Dockerfile) is in tests/integration."""

import ast
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # comes with Ray

from serve_bench.cli.program import load_command
from serve_bench.core.app_spec import APPS_PACKAGE
from serve_bench.core.variants import BUILT_IN_VARIANTS
from tests.cases import cases, sure

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
FILES: Final = sorted(file.name for file in DEPLOY.iterdir() if file.is_file())
OPTIMIZED: Final = BUILT_IN_VARIANTS["optimized"].env

STRINGS: Final = {"*": str}

#: The fields in use, each as documented: KubeRay API reference, package ray.io/v1 (kuberay
#: repository, docs/reference/api.md); for the pod, the Kubernetes API v1.28 that it refers to.
META: Final = {"name": str, "namespace": str, "labels": STRINGS, "annotations": STRINGS}
CONTAINER: Final = {
    **{"name": str, "image": str, "env": [{"name": str, "value": str}]},
    "ports": [{"containerPort": int, "name": str}],
    "resources": {"requests": STRINGS, "limits": STRINGS},
}
POD: Final = {"metadata": META, "spec": {"containers": [CONTAINER]}}
HEAD_GROUP: Final = {"template": POD, "rayStartParams": STRINGS}
WORKERS: Final = {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}
CLUSTER: Final = {
    **{"rayVersion": str, "headGroupSpec": HEAD_GROUP},
    "workerGroupSpecs": [{**WORKERS, **HEAD_GROUP}],
}
SPEC: Final = {"serveConfigV2": str, "rayClusterConfig": CLUSTER}
KUBERAY: Final = {"apiVersion": str, "kind": str, "metadata": META, "spec": SPEC}

#: Anyscale docs, "Service API Reference" (ServiceConfig) and "Compute Config API Reference"
#: (ComputeConfig, HeadNodeConfig, WorkerNodeGroupConfig); the same in its client 0.26.112.
NODE: Final = {"instance_type": str, "resources": {"*": object}}
ANYSCALE: Final = {
    **dict.fromkeys(("name", "image_uri", "containerfile", "ray_version", "working_dir"), str),
    "compute_config": {
        "head_node": NODE,
        "worker_nodes": [{**NODE, "name": str, "min_nodes": int, "max_nodes": int}],
    },
    "env_vars": STRINGS,
    "applications": [object],
}


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def undocumented(value: Any, known: Any, path: str = "") -> Iterator[str]:
    """List places of a manifest whose field is not documented, or that hold another type."""
    kind = known if isinstance(known, type) else type(known)
    if kind is not object and type(value) is not kind:
        yield f"{path}: {value!r} is not {kind.__name__}"
    elif isinstance(known, list):
        for number, item in enumerate(value):
            yield from undocumented(item, known[0], f"{path}[{number}]")
    elif isinstance(known, dict):
        for name, item in value.items():
            if name in known or "*" in known:
                yield from undocumented(item, known.get(name, known.get("*")), f"{path}.{name}")
            else:
                yield f"{path}.{name}: no such field"


def containers(manifest: Any) -> list[Any]:
    """List the containers of a RayService, the head's first."""
    cluster = manifest["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"]["containers"][0] for group in groups]


def environment_of(container: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def arguments_of_the_app() -> dict[str, str]:
    """app.ARGUMENTS, read without importing Ray."""
    for node in ast.parse((DEPLOY / "app.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARGUMENTS":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError("deploy/app.py has no ARGUMENTS")


@pytest.mark.ray
def test_the_config_is_what_ray_takes_and_names_what_the_app_has() -> None:
    from ray.serve.schema import ServeDeploySchema

    from serve_bench.serving.apps import recsys

    given = read("serve_config.yaml")
    config = ServeDeploySchema.model_validate(given)
    # Ray's schema drops what it does not know, and says nothing.
    assert config.model_dump(mode="json", exclude_unset=True) == given
    (app,) = config.applications
    assert app.import_path == "app:recsys_app" and app.route_prefix == "/"
    assert config.http_options.port == 8000
    deployments = {deployment.name: deployment for deployment in app.deployments}
    assert set(deployments) == {recsys.INGRESS, recsys.MEASURED}
    rankers = deployments[recsys.MEASURED].num_replicas
    assert isinstance(rankers, int)
    assert deployments[recsys.INGRESS].num_replicas == recsys.INGRESS_PER_RANKER * rankers
    for deployment in deployments.values():
        assert deployment.max_ongoing_requests == recsys.MAX_ONGOING_REQUESTS
    assert deployments[recsys.MEASURED].user_config == {
        "max_batch_size": recsys.MAX_BATCH_SIZE,
        "batch_wait_timeout_s": recsys.BATCH_WAIT_TIMEOUT_S,
    }


def test_the_manifests_have_documented_fields_alone() -> None:
    config = read("serve_config.yaml")
    assert yaml.safe_load(read("rayservice.yaml")["spec"]["serveConfigV2"]) == config
    assert read("anyscale-service.yaml")["applications"] == config["applications"]
    assert list(undocumented(read("rayservice.yaml"), KUBERAY)) == []
    assert list(undocumented(read("anyscale-service.yaml"), ANYSCALE)) == []


def test_the_cluster_of_the_rayservice_fits_the_app() -> None:
    manifest = read("rayservice.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    head, worker = containers(manifest)
    assert head["image"] == worker["image"]
    port = read("serve_config.yaml")["http_options"]["port"]
    assert {"containerPort": port, "name": "serve"} in head["ports"]
    # Every replica's process imports the app, wherever it runs: both must see one environment.
    assert environment_of(head) == environment_of(worker) == {"RECSYS_NUM_GPUS": "1"}
    for container in (head, worker):
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert int(worker["resources"]["limits"]["nvidia.com/gpu"]) >= 1
    # The flags in comments make the variant optimized.
    flag = re.compile(r"# (?=(?:- \{name: )?RAY_SERVE_)")
    wanted = {"RECSYS_NUM_GPUS": "1", **OPTIMIZED}
    manifest = yaml.safe_load(flag.sub("", (DEPLOY / "rayservice.yaml").read_text()))
    assert [environment_of(container) for container in containers(manifest)] == [wanted, wanted]
    service = yaml.safe_load(flag.sub("", (DEPLOY / "anyscale-service.yaml").read_text()))
    assert service["env_vars"] == wanted
    # There is one version of Ray everywhere.
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    base = re.search(r"^ARG BASE=rayproject/ray:([\d.]+)-", dockerfile, re.M)
    version = read("rayservice.yaml")["spec"]["rayClusterConfig"]["rayVersion"]
    assert version == sure(base).group(1)
    pins = (ROOT / "requirements.lock").read_text().splitlines()
    assert f"ray=={version}" in {line.split()[0] for line in pins if "==" in line}


@pytest.mark.ray
def test_the_environment_reaches_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in arguments_of_the_app():
        monkeypatch.delenv(name, raising=False)
    app = load_file("app.py")
    given = {
        "RECSYS_RANKER": "tuned",
        "RECSYS_DEVICE": "cpu",
        "RECSYS_NUM_GPUS": "0.5",
        "RECSYS_NUM_CPUS": "2",
        "RECSYS_THREADS": "3",
        "RECSYS_SEED": "4",
        "RECSYS_TABLE_ROWS": "50",
        "RECSYS_ROWS_PER_REQUEST": "8",
    }
    assert set(given) == set(app.ARGUMENTS)
    assert app.arguments({**dict.fromkeys(given, ""), "HOME": "/x"}) == {}
    service = app.build(app.arguments(given))
    ranker = service._bound_deployment.init_args[0]._bound_deployment
    kind, shape, device, threads, seed = ranker.init_args
    assert (kind, device, threads, seed) == ("tuned", "cpu", 3, 4)
    assert (shape.table_rows, shape.rows_per_request, shape.sparse_features) == (50, 8, 26)
    options = ranker.ray_actor_options
    assert (options["num_gpus"], options["num_cpus"]) == (0.5, 2.0)
    with pytest.raises(ValueError, match="ranker: 'fast' is not allowed"):
        app.build(app.arguments({"RECSYS_RANKER": "fast"}))


def load_file(name: str) -> Any:
    """Load a Python file of deploy/ as a module, executed anew."""
    spec = importlib.util.spec_from_file_location(f"deploy_{Path(name).stem}", DEPLOY / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def locustfile(monkeypatch: pytest.MonkeyPatch) -> Any:
    """deploy/locustfile.py beside a locust that has its names and does nothing."""
    stub: Any = ModuleType("locust")
    stub.FastHttpUser, stub.task, stub.constant = object, lambda function: function, lambda s: s
    monkeypatch.setitem(sys.modules, "locust", stub)
    monkeypatch.setenv("RECSYS_ROWS_PER_REQUEST", "4")
    return load_file("locustfile.py")


def asked_of(locustfile: Any, status: int, body: str) -> tuple[list[Any], list[str]]:
    """Ask a client that gives this answer, as the load's users do; return what it calls wrong."""
    asked: list[Any] = []
    failures: list[str] = []
    answer = SimpleNamespace(status_code=status, text=body, json=lambda: json.loads(body))
    answer.failure = failures.append

    def get(path: str, **options: Any) -> Any:
        asked.append((path, options))
        return nullcontext(answer)

    locustfile.RecsysUser.recommend(SimpleNamespace(client=SimpleNamespace(get=get)))
    return asked, failures


def test_the_load_takes_a_right_answer(locustfile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from serve_bench.serving.apps.dlrm_shape import Shape

    ((path, options),), failures = asked_of(locustfile, 200, '{"scores": [0.0, 0.25, 0.5, 1.0]}')
    assert failures == [] and path == "/" and options["catch_response"] is True
    assert 0 <= options["params"]["user_id"] < locustfile.USERS
    monkeypatch.setenv("RECSYS_ROWS_PER_REQUEST", "")
    assert load_file("locustfile.py").CANDIDATES == Shape().rows_per_request == 32


@cases(
    "status, body, why",
    (500, '{"scores": [0.1, 0.2, 0.3, 0.4]}', "status 500"),
    (0, "", "status 0"),
    (200, "<html>", "not JSON: <html>"),
    (200, '{"scores": null}', "not 4 scores"),
    (200, '{"scores": [0.1, 0.2, 0.3]}', "not 4 scores"),
    (200, '{"scores": [0.1, 0.2, 0.3, 1.5]}', "a score is no probability"),
    (200, '{"scores": [0.1, 0.2, 0.3, NaN]}', "a score is no probability"),
    (200, '{"scores": [0.1, 0.2, 0.3, "0.4"]}', "a score is no probability"),
)
def test_the_load_finds_a_wrong_answer(locustfile: Any, status: int, body: str, why: str) -> None:
    _, (failure,) = asked_of(locustfile, status, body)
    assert failure.startswith(why)


README: Final = (DEPLOY / "README.md").read_text()
COMMANDS: Final = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def test_the_readme_lists_every_file_and_every_variable_and_no_other_is_named() -> None:
    known = {*arguments_of_the_app(), *OPTIMIZED}
    for name in FILES:
        text = (DEPLOY / name).read_text()
        assert set(re.findall(r"\b(?:RECSYS|RAY_SERVE)_[A-Z_]+\b", text)) <= known, name
    listed = re.findall(r"^\| `([\w.-]+)` \|", README, re.MULTILINE)
    files = {name for name in FILES if name != "README.md"}
    assert set(listed) == files | set(arguments_of_the_app())
    assert len(listed) == len(set(listed))


def test_the_paths_and_names_in_the_readmes_commands_exist() -> None:
    programs = {shlex.split(line)[0] for line in COMMANDS}
    assert {"serve", "docker", "kubectl", "anyscale", "locust", "serve-bench"} <= programs
    for line in COMMANDS:
        for word in shlex.split(line):
            if re.fullmatch(r"deploy/\S+", word):
                assert (ROOT / word).exists(), line
            elif re.fullmatch(r"[\w-]+\.(yaml|py)", word):
                assert (DEPLOY / word).exists(), line
    service = f"service/{read('rayservice.yaml')['metadata']['name']}-serve-svc"
    assert any(service in shlex.split(line) for line in COMMANDS)
    assert APPS_PACKAGE not in README
    (load,) = (shlex.split(line)[1:] for line in COMMANDS if line.startswith("serve-bench "))
    assert not load_command(load[0]).make_context(load[0], load[1:]).args
