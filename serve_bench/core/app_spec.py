"""What the tool must know of each app without importing it: import path, route, what it answers.

`deploy_spec` turns a cell into a request to the cluster child. Rule: settings that Serve can change
in place go to `deployments`; what needs a rebuild goes to `args`.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.core.axes import AXES, MODEL_APPS, REQUEST_APPS, Value, nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import OwnApp, checks_of, deployments_of, nest

# The requests of the press test: JSON of samples with string features. Pure.
#
# Rule: made of the cell alone, so that a load is the same in every run; sent in turn, so that
# no request finds always the same rows of the tables in the caches of the CPU.

COUNT: Final = 1000
"""Bodies of a load, as many as the users of the other services."""

PRESS_USERS: Final = 1_000_000
ITEMS: Final = 100_000
"""How many of them there are to draw from."""

_AS_PUBLISHED: Final = ("user", "item")


def feature_names(sparse_features: int) -> tuple[str, ...]:
    """Name the features of a sample: two as published, else f0, f1 ..."""
    if sparse_features == len(_AS_PUBLISHED):
        return _AS_PUBLISHED
    return tuple(f"f{number}" for number in range(sparse_features))


def bodies(cell: Mapping[str, Value], count: int = COUNT) -> tuple[bytes, ...]:
    """Make the JSON bodies of a load of this cell, each for one user and several items.

    The first feature is the same in all samples of a body, the others differ."""
    names = feature_names(int(cell["sparse_features"]))
    return _draw_bodies(int(cell["rows_per_request"]), names, int(cell.get("seed", 0)), count)


@functools.lru_cache(maxsize=8)  # called once per trial
def _draw_bodies(samples: int, names: tuple[str, ...], seed: int, count: int) -> tuple[bytes, ...]:
    draw = random.Random(seed)
    first, *others = names

    def make_body() -> bytes:
        user = f"{first}_{_draw_below(draw, PRESS_USERS)}"
        rows = [
            {first: user} | {name: f"{name}_{_draw_below(draw, ITEMS)}" for name in others}
            for _ in range(samples)
        ]
        return json.dumps({"samples": rows}).encode()

    return tuple(make_body() for _ in range(count))


def _draw_below(draw: random.Random, end: int) -> int:
    """Draw with `random()`, which alone is promised to be the same in every version of Python."""
    return int(draw.random() * end)


#: The package name under which the child finds the folder `apps` (a link in its own directory, so
#: that nothing else of the tool gets on the path of the variant's interpreter).
APPS_PACKAGE: Final = "serve_bench_apps"

#: A replica takes 1 to 3 s to start on a busy 2-core host (measured: 8 in 8 s); ten times that.
DEPLOY_TIMEOUT_S: Final = 60.0
DEPLOY_TIMEOUT_PER_REPLICA_S: Final = 10.0


#: The users that a load of a recommendation service asks for in turn, as the published load did:
#: always the same one would find its embeddings in the caches of the CPU.
USERS: Final = range(1, 1001)

#: As published; each takes far more at once than a ranker scores.
INGRESS_CONCURRENCY: Final = 1000

#: The deployment of the no-op app that passes requests on.
FORWARDER: Final = "Forwarder"

#: Silences the access log, as Ray's own benchmark does; it is a line per request.
_QUIET: Final = {"log_level": "WARNING", "enable_access_log": False}


@dataclass(frozen=True)
class AppSpec:
    """An app: where its builder is, its route, the deployment that a cell's settings apply to.

    `bodies`: of a cell, what a load posts in turn; None: it sends GET, without a body."""

    name: str
    import_path: str
    route: str  # requested until it answers
    measured: str
    answer: bytes | None  # the body of every response; None: not always the same
    prefix: str | None = None  # the route of the app, where `route` has more
    paths: tuple[str, ...] = ()  # requested in turn by a load; empty: the route
    front: str | None = None  # the deployment that HTTP meets; None: the measured one
    bodies: Callable[[Mapping[str, Value]], tuple[bytes, ...]] | None = None
    own_app: OwnApp | None = None  # the user's, and none of those that come with the tool

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders in which Python must find the app, besides our own."""
        return () if self.own_app is None else self.own_app.folders

    def cpus(self, cell: Mapping[str, Value]) -> float:
        """Count the logical CPUs of Ray for its replicas: one each, unless its code says more."""
        return float(self.replicas(cell)) if self.own_app is None else self.own_app.cpus(cell)

    def to_json(self) -> Any:
        """Return its name or, of the user's own app, all that is known."""
        return self.name if self.own_app is None else self.own_app.to_json()

    def replicas(self, cell: Mapping[str, Value]) -> int:
        """Count the replicas of all deployments in this cell."""
        if self.own_app is not None:
            return self.own_app.replicas(cell)
        measured = int(cell["num_replicas"])
        beside = measured * int(cell.get("ingress_per_ranker", 0))
        return measured + beside + (1 if cell.get("intermediate_handle") else 0)


APPS: Final[dict[str, AppSpec]] = {
    "noop": AppSpec("noop", f"{APPS_PACKAGE}.noop:build", "/noop", "NoOp", b"ok"),
    **{
        name: AppSpec(
            name,
            f"{APPS_PACKAGE}.recsys:{builder}",
            f"/{name}/?user_id=0",
            "Ranker",
            None,
            prefix=f"/{name}",
            paths=tuple(f"/{name}/?user_id={user}" for user in USERS),
            front=front,
        )
        for name, builder, front in (("ranker", "one_tier", None), ("recsys", "build", "Ingress"))
    },
    **{
        name: AppSpec(
            name,
            f"{APPS_PACKAGE}.{name}:build",
            "/press/",  # FastAPI redirects from the route without its end
            "Press",
            None,
            prefix="/press",
            bodies=bodies,
        )
        for name in ("press", "press_noop")
    },
}


def app_named(name: str, where: str) -> AppSpec:
    """Return the built-in app of that name. Raises BadInput."""
    if name not in APPS:
        raise BadInput(f"{where}: unknown app {name!r}{nearest(name, APPS)}")
    return APPS[name]


def own_spec(app: OwnApp) -> AppSpec:
    """Describe the user's own app as one that can be deployed and loaded."""
    route = app.asked.route
    return AppSpec(
        app.target, app.import_path, route, app.ingress, answer=None, prefix=app.prefix, own_app=app
    )


def app_from_json(data: Any) -> AppSpec:
    """Build an app from what `AppSpec.to_json` gave. Raises BadInput."""
    return app_named(data, "suite") if isinstance(data, str) else own_spec(OwnApp.from_json(data))


def check_cell(cell: Mapping[str, Value]) -> None:
    """Raise BadInput on a cell whose settings do not go together."""
    handler, size = cell.get("callable", "async"), int(cell["max_batch_size"])
    if handler != "async" and size > 1:
        needs = f"with it, max_batch_size ({size}) must be 1, or the callable async"
        raise BadInput(f"--callable {handler}: serve.batch takes coroutines alone; {needs}")


def deploy_spec(app: AppSpec, cell: Mapping[str, Value]) -> dict[str, Any]:
    """Describe to the child how to deploy this cell and prove that it is up. Raises BadInput."""
    own_app = app.own_app
    return {
        "import_path": app.import_path,
        "route_prefix": app.route if app.prefix is None else app.prefix,
        "own": own_app is not None,
        "config": {},
        "beside": [],
        "system_log_level": cell.get("log_level"),  # None: as Serve has it
        "timeout_s": DEPLOY_TIMEOUT_S + DEPLOY_TIMEOUT_PER_REPLICA_S * app.replicas(cell),
        **(_deploy_built_in(app, cell) if own_app is None else _deploy_own(own_app, cell)),
    }


def _deploy_built_in(app: AppSpec, cell: Mapping[str, Value]) -> dict[str, Any]:
    check_cell(cell)
    replicas = int(cell["num_replicas"])
    options = {axis.option: cell[axis.name] for axis in AXES.values() if axis.name in cell}
    set_options = nest({option: value for option, value in options.items() if option is not None})
    measured = {"name": app.measured, "logging_config": _QUIET, **set_options}
    deployments: list[dict[str, Any]] = [measured]
    if app.front is not None and "ingress_per_ranker" in cell:
        count = replicas * int(cell["ingress_per_ranker"])
        front = {"name": app.front, "num_replicas": count, "logging_config": _QUIET}
        deployments.append({**front, "max_ongoing_requests": INGRESS_CONCURRENCY})
    if cell.get("intermediate_handle") and "intermediate_max_ongoing_requests" in cell:
        most = cell["intermediate_max_ongoing_requests"]
        deployments.append({"name": FORWARDER, "max_ongoing_requests": most})
    if "log_level" in cell:
        measured["logging_config"] = {
            "log_level": str(cell["log_level"]),
            "enable_access_log": cell["log_level"] in ("DEBUG", "INFO"),  # its lines are of INFO
        }
    expect: dict[str, Value] = {
        "max_ongoing_requests": measured["max_ongoing_requests"],
        **measured["user_config"],
        "queue_max_batch_size": cell["max_batch_size"],
    }
    for name in ("ranker", "device", "threads", "log_level", "callable", "max_queued_requests"):
        if name in cell and cell[name] != "auto":
            expect[name] = cell[name]
    bodies = None if app.bodies is None else app.bodies(cell)
    return {
        "name": app.name,
        "ready": {
            "path": app.route,
            "method": "GET" if bodies is None else "POST",
            "headers": {} if bodies is None else {"Content-Type": "application/json"},
            "body": None if bodies is None else _base64(bodies[0]),
            "statuses": [200],
        },
        "args": _collect_args(cell),
        "deployments": deployments,
        "checks": [
            {"deployment": app.measured, "replicas": replicas, "expect": expect, "told": {}}
        ],
    }


#: Keys of an application that reach the child outside of its config.
OF_SPEC: Final = ("name", "import_path", "route_prefix", "args", "deployments")


def _deploy_own(app: OwnApp, cell: Mapping[str, Value]) -> dict[str, Any]:
    request, first = app.asked, app.request("http://localhost").turns[0]
    return {
        "name": app.name,
        "ready": None  # Serve's word has to do: the app may have nothing for HTTP
        if request.call is not None
        else {
            "path": request.route,
            "method": request.method,
            "headers": dict(first[2]),
            "body": _base64(first[1]) if first[1] else None,
            "statuses": list(request.expect_status),  # none: any 2xx
            "grpc": None if app.grpc is None else app.grpc.methods[request.route],
        },
        "args": app.arguments(cell),
        "config": {k: v for k, v in app.config.items() if k not in OF_SPEC},
        # Serve says "by handle only" with null; "" is no route to it.
        "beside": [
            {**neighbour.config, "route_prefix": neighbour.config["route_prefix"] or None}
            for neighbour in app.beside
        ],
        "deployments": deployments_of(app, cell),
        "checks": checks_of(app, cell),
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _collect_args(cell: Mapping[str, Value]) -> dict[str, Any]:
    """Collect the arguments of the app's builder; a change of them starts the replicas anew."""
    args: dict[str, Any] = {}
    if "body_type" in cell:
        args["body_type"] = str(cell["body_type"])
        args["intermediate_handle"] = "1" if cell["intermediate_handle"] else "0"
    if "ranker" in cell:
        names = (axis.name for axis in AXES.values() if axis.apps in (MODEL_APPS, REQUEST_APPS))
        args |= {name: cell[name] for name in names if name != "gpu_fraction"}
        if cell["device"] == "cuda":
            args["num_gpus"] = float(cell["gpu_fraction"])
    if "callable" in cell:
        args["callable"] = str(cell["callable"])
        args["features"] = list(feature_names(int(cell["sparse_features"])))
        # A replica of Serve asks once, at its start, whether Serve writes its lines of DEBUG
        # (Ray 2.60): with another level than that, it has to start anew.
        args["debug"] = cell["log_level"] == "DEBUG"
    return args
