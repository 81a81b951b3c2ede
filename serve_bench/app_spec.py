"""What the tool must know of each app without importing it: import path, route, what it answers.

`deploy_spec` turns a cell into what the cluster child is told. Rule: settings that Serve can change
in place go to `deployments`; what needs a rebuild goes to `args`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.axes import Value
from serve_bench.errors import BadInput

#: The package name under which the child finds the folder `apps` (a link in its own directory, so
#: that nothing else of ours gets on the path of the variant's interpreter).
APPS_PACKAGE: Final = "serve_bench_apps"

#: A replica takes 1 to 3 s to start on a busy 2-core host (measured: 8 in 8 s); ten times that.
DEPLOY_TIMEOUT_S: Final = 60.0
DEPLOY_TIMEOUT_PER_REPLICA_S: Final = 10.0


@dataclass(frozen=True)
class AppSpec:
    """An app: where its builder is, its route, the deployment that a cell's settings apply to."""

    name: str
    import_path: str
    route: str
    measured: str
    answer: bytes | None


APPS: Final[dict[str, AppSpec]] = {
    "noop": AppSpec("noop", f"{APPS_PACKAGE}.noop:build", "/noop", "NoOp", b"ok"),
}


def app_named(name: str, where: str) -> AppSpec:
    """The app of that name, or BadInput."""
    if name not in APPS:
        raise BadInput(f"{where}: unknown app {name!r}; allowed: {', '.join(APPS)}")
    return APPS[name]


def deploy_spec(app: AppSpec, cell: Mapping[str, Value]) -> dict[str, Any]:
    """What the child needs to deploy this cell and to prove that it is in force."""
    replicas = int(cell["num_replicas"])
    batch_size = int(cell["max_batch_size"])
    wait_s = float(cell["batch_wait_timeout_s"])
    concurrency = int(cell["max_concurrent_queries"])
    return {
        "name": app.name,
        "import_path": app.import_path,
        "route_prefix": app.route,
        "ready_path": app.route,
        "measured": app.measured,
        "args": {
            "body_type": str(cell["body_type"]),
            "intermediate_handle": "1" if cell["intermediate_handle"] else "0",
        },
        "deployments": [
            {
                "name": app.measured,
                "num_replicas": replicas,
                "max_ongoing_requests": concurrency,
                "user_config": {"max_batch_size": batch_size, "batch_wait_timeout_s": wait_s},
                # Ray's own benchmark silences the access log too; it is a line per request.
                "logging_config": {"log_level": "WARNING", "enable_access_log": False},
            }
        ],
        "expect": {
            "max_ongoing_requests": concurrency,
            "max_batch_size": batch_size,
            "queue_max_batch_size": batch_size,
            "batch_wait_timeout_s": wait_s,
        },
        "expect_replicas": replicas,
        "timeout_s": DEPLOY_TIMEOUT_S + DEPLOY_TIMEOUT_PER_REPLICA_S * replicas,
    }
