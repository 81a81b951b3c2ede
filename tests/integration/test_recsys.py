"""The recommendation service on a real Ray: declarative deploys, both rankers, small tables."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_bench.app_spec import APPS_PACKAGE
from serve_bench.apps.dlrm_features import FORMS, features
from serve_bench.apps.dlrm_shape import Shape
from serve_bench.counts import counts_of
from serve_bench.launch_spec import LaunchSpec
from serve_bench.server import Serving
from serve_bench.strays import new_run
from serve_bench.variants import BUILT_IN_VARIANTS

pytestmark = [pytest.mark.ray, pytest.mark.torch]

SHAPE = Shape(table_rows=200, sparse_features=6)
SEED = 5
USERS = range(200)


def spec_of(ranker: str, batch_size: int, wait_s: float) -> dict[str, Any]:
    """What the cluster child is told, in the form of app_spec.deploy_spec."""
    sizes = {"table_rows": SHAPE.table_rows, "sparse_features": SHAPE.sparse_features}
    user_config = {"max_batch_size": batch_size, "batch_wait_timeout_s": wait_s}
    return {
        "name": "recsys",
        "import_path": f"{APPS_PACKAGE}.recsys:build",
        "route_prefix": "/recsys",
        "ready_path": "/recsys/?user_id=0",
        "measured": "Ranker",
        "args": {"ranker": ranker, "seed": SEED, "device": "cpu", "threads": 1, **sizes},
        "deployments": [
            {"name": "Ranker", "num_replicas": 1, "user_config": user_config},
            {"name": "Ingress", "num_replicas": 2},
        ],
        "expect": {
            "max_batch_size": batch_size,
            "queue_max_batch_size": batch_size,
            "batch_wait_timeout_s": wait_s,
            "ranker": ranker,
            "device": "cpu",
            "threads": 1,
        },
        "expect_replicas": 1,
        "timeout_s": 90.0,
    }


def scores_alone(ranker: str) -> Any:
    from serve_bench.apps import dlrm

    model: Any = dlrm.build(ranker, SHAPE, "cpu", SEED)
    form = FORMS[ranker]
    return np.array(model.score([form(*features(user, SHAPE, SEED)) for user in USERS]))


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, None


def served(url: str) -> Any:
    """The scores of all users, asked for by 24 at once; no other answer than 200."""
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(get, [f"{url}?user_id={user}" for user in USERS]))
    assert {status for status, _ in answers} == {200}
    return np.array([content["scores"] for _, content in answers])


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    spec = LaunchSpec(BUILT_IN_VARIANTS["default"], new_run(), "1", tmp_path / "log")
    with Serving(spec) as one:
        one.start()
        yield one


@pytest.mark.timeout(300)
def test_both_rankers_serve_the_scores_of_the_model(serving: Serving) -> None:
    for ranker in ("plain", "tuned"):
        serving._ask("deploy", spec_of(ranker, 50, 0.05), 180)
        url = f"{serving.url}/recsys/"
        assert np.abs(served(url) - scores_alone(ranker)).max() < 1e-5
        counts = serving.counts()
        assert sum(one.requests for one in counts.values()) >= len(USERS)
    pid = max(counts)  # of the second ranker
    batches = counts[pid].batches
    requests = sum(size * number for size, number in batches.items())
    assert requests == counts[pid].requests == len(USERS) + 1  # and the one that asked for ready
    assert requests / sum(batches.values()) > 1.5
    folder = serving.spec.counts_folder
    forward = counts_of((folder.parent / f"{folder.name}-forward-ns" / str(pid)).read_bytes())
    assert forward.batches.keys() == batches.keys()
    assert forward.requests == sum(forward.batches.values()) > 0
    for bad in ("?user_id=x", "?user_id=1.5", ""):
        assert get(url + bad) == (422, None)
    answer = serving._ask("deploy", spec_of("tuned", 1, 0.0), 180)
    assert answer["in_place"] and answer["proof"]["replicas"][0]["pid"] == pid
    assert np.abs(served(url) - scores_alone("tuned")).max() < 1e-5
    after = serving.counts()[pid].batches
    assert after[1] - batches.get(1, 0) >= len(USERS)
    assert {k: v for k, v in after.items() if k > 1} == {k: v for k, v in batches.items() if k > 1}
