"""The recommendation app end to end: `recsys [--rounds 7] [--connections 200] [--published DIR]`.

One cluster holds all apps at once, each on a route of its own, so that the same HAProxy and the
same host serve them; one is loaded at a time, in an order that is drawn for each round. Prints
requests/s, CPU a request by deployment, and the ratios within each round with their median. DIR is
the folder `recsys` of the published benchmark: its app is run as it is, and once more silenced.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import statistics
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from serve_bench.core.app_spec import APPS_PACKAGE
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.proof import role_of
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import drive_load
from serve_bench.serving.launch_spec import (
    PORTS_PER_REPLICA,
    LaunchSpec,
    child_environment,
    free_block,
)
from serve_bench.serving.strays import marks, new_run, reap

PLAIN, TUNED, PUBLISHED, SILENCED = "plain", "tuned", "published", "published-silenced"
QUIET = {"log_level": "WARNING", "enable_access_log": False}
MAX_BATCH_SIZE, BATCH_WAIT_TIMEOUT_S = 100, 0.05  # as published, where the app has them fixed
UP_S = 120.0
APPS = Path(__file__).resolve().parent.parent / "serve_bench" / "serving" / "apps"
REPLICA = re.compile(r"ray::ServeReplica:([\w-]+):(\w+)")
USERS = (0, 7, 8, 123_456_789)

Ratio = tuple[str, str]
"""Whose rate is divided by whose."""


@dataclass(frozen=True)
class Window:
    """What one app did in one round: requests/s, and CPU in microseconds a request by process."""

    rate: float
    cpu_us: Mapping[str, float]


# -- the cluster ----------------------------------------------------------------------------------


def ours(ranker: str, threads: int, batch_size: int = MAX_BATCH_SIZE) -> dict[str, Any]:
    """An app of this project, as a Serve config has it."""
    batching = {"max_batch_size": batch_size, "batch_wait_timeout_s": BATCH_WAIT_TIMEOUT_S}
    return {
        "name": ranker,
        "route_prefix": f"/{ranker}",
        "import_path": f"{APPS_PACKAGE}.recsys:build",
        "args": {"ranker": ranker, "device": "cpu", "threads": threads},
        "deployments": [{"name": "Ranker", "user_config": batching}],
    }


def published(name: str, folder: Path, threads: int, path: str) -> dict[str, Any]:
    """The published app, without a GPU. `path`: the cluster's PYTHONPATH, which it needs too."""
    found: dict[str, Any] = {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": "app:entrypoint",
        "runtime_env": {
            "env_vars": {"PYTHONPATH": f"{folder}:{path}", "OMP_NUM_THREADS": str(threads)}
        },
        "deployments": [{"name": "ranker_deployment", "ray_actor_options": {"num_gpus": 0}}],
    }
    if name == SILENCED:
        found["logging_config"] = QUIET
    return found


def start(spec: LaunchSpec) -> str:
    """Starts Ray and Serve with this process as their driver; gives the address of the HTTP port.

    `Serving` holds one app at a time, and nobody but a cluster's own driver may join it.
    """
    ports = free_block(5 + 2 * PORTS_PER_REPLICA * spec.most_replicas)
    for part in ("r", "h", "p", spec.counts_folder.name):
        (spec.directory / part).mkdir(parents=True)
    (spec.directory / "p" / APPS_PACKAGE).symlink_to(APPS)
    environment = child_environment(spec, ports)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)

    import ray
    from ray import serve

    ray.init(
        address="local",
        include_dashboard=False,
        num_cpus=spec.logical_cpus,
        _temp_dir=str(spec.directory / "r"),
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    serve.start(proxy_location="HeadOnly", http_options={"host": spec.host, "port": ports[0]})
    return f"http://{spec.host}:{ports[0]}"


def deploy(apps: Sequence[Mapping[str, Any]], base: str) -> None:
    """Deploys all apps together; waits until each is running."""
    from ray import serve
    from ray.serve.context import _get_global_client
    from ray.serve.schema import ServeDeploySchema

    client = _get_global_client()
    assert client is not None, "Serve has started"
    at = urlsplit(base)
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": at.hostname, "port": at.port},
        "applications": list(apps),
    }
    client.deploy_apps(ServeDeploySchema.model_validate(config))
    deadline = time.monotonic() + UP_S
    while True:
        apps_now = serve.status().applications
        told = {name: str(app.status.value) for name, app in apps_now.items()}
        if len(told) == len(apps) and set(told.values()) == {"RUNNING"}:
            return
        if time.monotonic() > deadline or "DEPLOY_FAILED" in told.values():
            why = " ".join(app.message for app in apps_now.values())
            raise SystemExit(f"bench: apps are {told}: {why}")
        time.sleep(0.2)


def scores(url: str, user: int) -> list[float]:
    with urllib.request.urlopen(f"{url}/?user_id={user}", timeout=30) as response:
        found: list[float] = json.loads(response.read())["scores"]
    return found


def check_scores(base: str) -> None:
    """Exits unless both rankers serve the same scores: or the comparison means nothing."""
    for user in USERS:
        pairs = zip(scores(f"{base}/{PLAIN}", user), scores(f"{base}/{TUNED}", user), strict=True)
        if max(abs(one - other) for one, other in pairs) >= 1e-5:
            raise SystemExit(f"bench: plain and tuned score user {user} differently")


# -- measurement ----------------------------------------------------------------------------------


def cpu_by_part(app: str) -> dict[str, float]:
    """CPU seconds so far of the app's replicas, by deployment, and of HAProxy."""
    seconds: dict[str, float] = defaultdict(float)
    for process in psutil.Process().children(recursive=True):
        try:
            title, times = " ".join(process.cmdline()), process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        match = REPLICA.match(title)
        part = match.group(2) if match and match.group(1) == app else None
        part = "haproxy" if role_of(title) == "haproxy" else part
        if part is not None:
            seconds[part] += times.user + times.system
    return seconds


def window(base: str, run_id: str, app: str, connections: int, seconds: float) -> Window:
    """One load of one app."""
    url = f"{base}/{app}/?user_id=7"
    load = Load(Request(url), client="raw", connections=connections)
    before = cpu_by_part(app)
    result: LoadResult = drive_load(
        load, Timing(0.5, 1.0, windows=1, window_s=seconds), mark=marks(run_id)
    )
    if result.measured.failed:
        raise SystemExit(f"bench: {app}: failures {result.measured.failed}")
    after, done = cpu_by_part(app), result.total.completed
    cpu = {part: (after[part] - before[part]) / done * 1e6 for part in after}
    return Window(result.rate, cpu | {"client": result.cpu_s / done * 1e6})


def show(found: Mapping[str, Sequence[Window]], ratios: Sequence[Ratio]) -> None:
    """Prints the medians, then each ratio in every round."""
    print(f"\n{'app':20}{'requests/s':>11}   CPU us a request")
    for app, rows in found.items():
        parts = {
            part: statistics.median(row.cpu_us.get(part, 0.0) for row in rows)
            for part in sorted(rows[0].cpu_us)
        }
        rate = statistics.median(row.rate for row in rows)
        text = ", ".join(f"{part} {value:,.0f}" for part, value in parts.items())
        print(f"{app:20}{rate:11,.0f}   {text}; in all {sum(parts.values()):,.0f}")
    for above, below in ratios:
        rounds = [a.rate / b.rate for a, b in zip(found[above], found[below], strict=True)]
        each = " ".join(f"{value:.2f}" for value in rounds)
        print(f"{above} / {below}: median {statistics.median(rounds):.2f}, rounds {each}")


def main() -> None:
    """Starts the cluster, measures, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", default="200", help="one number or several, by commas")
    parser.add_argument("--variant", default="optimized", choices=list(BUILT_IN_VARIANTS))
    parser.add_argument("--threads", type=int, default=1, help="of torch in each ranker")
    parser.add_argument("--batch-size", type=int, help=f"{MAX_BATCH_SIZE}; not with --published")
    parser.add_argument("--published", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1, help="of the order within a round")
    asked = parser.parse_args()
    if asked.batch_size is not None and asked.published is not None:
        parser.error("--batch-size: not with --published, whose batch size is fixed")
    if asked.published is not None and not (asked.published / "app.py").is_file():
        parser.error(f"--published: no app.py in {asked.published}")
    batch_size = asked.batch_size or MAX_BATCH_SIZE
    draw = random.Random(asked.seed)
    names, ratios = [PLAIN, TUNED], [(TUNED, PLAIN)]
    if asked.published is not None:
        names += [PUBLISHED, SILENCED]
        ratios += [(PLAIN, PUBLISHED), (PLAIN, SILENCED), (SILENCED, PUBLISHED)]
    run_id = new_run()
    variant = BUILT_IN_VARIANTS[asked.variant]
    spec = LaunchSpec(variant, run_id, "1", Path("ray.log"), most_replicas=16)
    try:
        base = start(spec)
        path = str(spec.directory / "p")
        apps = [ours(name, asked.threads, batch_size) for name in names[:2]]
        apps += [published(n, asked.published.resolve(), asked.threads, path) for n in names[2:]]
        deploy(apps, base)
        check_scores(base)
        for connections in map(int, asked.connections.split(",")):
            print(
                f"{asked.variant}, {connections} connections, {asked.threads} threads, "
                f"batches of {batch_size}",
                flush=True,
            )
            for name in names:  # the first load after a deploy is slower
                window(base, run_id, name, connections, 1.0)
            found: dict[str, list[Window]] = {name: [] for name in names}
            for _ in range(asked.rounds):
                for name in draw.sample(names, len(names)):
                    found[name].append(window(base, run_id, name, connections, asked.seconds))
            show(found, ratios)
    finally:
        reap(run_id)


if __name__ == "__main__":
    main()
