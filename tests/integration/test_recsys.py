"""The recommendation service on a real Ray: declarative deploys, both rankers, small tables."""

from __future__ import annotations

import json
import re
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
BAD = ("?user_id=x", "?user_id=1.5", "?user_id=", "?user_id=7e0", "?user=7", "")

#: Each is 7 to FastAPI, and only the first is what the ingress of `tuned` answers itself.
SEVENS = ("?user_id=7", "?user_id=07", "?user_id=%2B7", "?user_id=7.0", "?user_id=7&x=1")


def spec_of(ranker: str, batch_size: int, wait_s: float, route: str = "/recsys") -> dict[str, Any]:
    """What the cluster child is told, in the form of app_spec.deploy_spec."""
    sizes = {"table_rows": SHAPE.table_rows, "sparse_features": SHAPE.sparse_features}
    user_config = {"max_batch_size": batch_size, "batch_wait_timeout_s": wait_s}
    return {
        "name": "recsys",
        "import_path": f"{APPS_PACKAGE}.recsys:build",
        "route_prefix": route,
        "ready_path": f"{route.rstrip('/')}/?user_id=0",
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
            assert response.headers["content-type"] == "application/json"
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def answered_directly(url: str) -> bool:
    """Whether it was not FastAPI that wrote the scores: it writes some with 17 digits, not 9."""
    with urllib.request.urlopen(url, timeout=60) as response:
        numbers = re.findall(rb"[0-9.]{3,}", response.read())
    return max(map(len, numbers)) <= 13


def served(url: str) -> Any:
    """The scores of all users, asked for by 24 at once; no other answer than 200."""
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(get, [f"{url}?user_id={user}" for user in USERS]))
    assert {status for status, _ in answers} == {200}
    return np.array([content["scores"] for _, content in answers])


@pytest.fixture
def optimized(tmp_path: Path) -> Iterator[Serving]:
    spec = LaunchSpec(BUILT_IN_VARIANTS["optimized"], new_run(), "1", tmp_path / "log")
    with Serving(spec) as one:
        one.start()
        yield one


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
        assert answered_directly(url + "?user_id=7") == (ranker == "tuned")
        counts = serving.counts()
        assert sum(one.requests for one in counts.values()) >= len(USERS)
    pid = max(counts)  # of the second ranker
    batches = counts[pid].batches
    requests = sum(size * number for size, number in batches.items())
    assert requests == counts[pid].requests == len(USERS) + 2  # and the two before and after
    assert requests / sum(batches.values()) > 1.5
    folder = serving.spec.counts_folder
    forward = counts_of((folder.parent / f"{folder.name}-forward-ns" / str(pid)).read_bytes())
    assert forward.batches.keys() == batches.keys()
    assert forward.requests == sum(forward.batches.values()) > 0
    for bad in BAD:
        status, content = get(url + bad)
        (detail,) = json.loads(content)["detail"]
        assert (status, detail["loc"]) == (422, ["query", "user_id"])
    answer = serving._ask("deploy", spec_of("tuned", 1, 0.0), 180)
    assert answer["in_place"] and answer["proof"]["replicas"][0]["pid"] == pid
    assert np.abs(served(url) - scores_alone("tuned")).max() < 1e-5
    after = serving.counts()[pid].batches
    assert after[1] - batches.get(1, 0) >= len(USERS)
    assert {k: v for k, v in after.items() if k > 1} == {k: v for k, v in batches.items() if k > 1}


def scope(query: bytes, **other: Any) -> dict[str, Any]:
    usual = {"type": "http", "method": "GET", "root_path": "/recsys", "path": "/recsys/"}
    return usual | {"query_string": query} | other


@pytest.mark.parametrize(
    ("asked", "user"),
    [
        (scope(b"user_id=7"), 7),
        (scope(b"user_id=-12"), -12),
        (scope(b"user_id=0", path="/", root_path=""), 0),
        (scope(b"user_id=999999999999999999"), 10**18 - 1),
        (scope(b"user_id=-0"), None),
        (scope(b"user_id=07"), None),
        (scope(b"user_id=7\n"), None),
        (scope(b"user_id=7&user_id=8"), None),
        (scope(b"user_id=" + b"9" * 19), None),
        (scope("user_id=\u0667".encode()), None),
        (scope(b""), None),
        (scope(b"user_id=7", method="HEAD"), None),
        (scope(b"user_id=7", path="/recsys/docs"), None),
        ({"type": "lifespan"}, None),
    ],
)
def test_only_the_usual_request_is_answered_without_fastapi(
    asked: dict[str, Any], user: int | None
) -> None:
    from serve_bench.apps.recsys import usual_user

    assert usual_user(asked) == user


@pytest.mark.timeout(300)
def test_both_ingresses_answer_alike(optimized: Serving) -> None:
    told: dict[str, list[tuple[int, Any]]] = {}
    for ranker, route in (("plain", "/recsys"), ("tuned", "/recsys"), ("tuned", "/")):
        optimized._ask("deploy", spec_of(ranker, 50, 0.0, route), 180)
        url = f"{optimized.url}{route.rstrip('/')}/"
        assert get(url + "nothing")[0] == 404
        sevens = [get(url + query) for query in SEVENS]
        assert {status for status, _ in sevens} == {200}
        scores = np.array([content["scores"] for _, content in sevens])
        assert np.abs(scores - scores_alone(ranker)[7]).max() < 1e-5
        direct = [answered_directly(url + query) for query in SEVENS]
        assert direct == [ranker == "tuned", False, False, False, False]
        told[ranker + route] = [get(url + query) for query in BAD]
    first, *others = told.values()
    assert {status for status, _ in first} == {422}
    assert all(other == first for other in others)


@pytest.mark.timeout(300)
def test_what_serve_refuses_is_answered_alike(optimized: Serving) -> None:
    """A ranker that takes one request, and lets one wait: the rest is 503, as Serve has it."""
    for ranker in ("plain", "tuned"):
        spec = spec_of(ranker, 50, 0.2)
        spec["deployments"][0] |= {"max_ongoing_requests": 1, "max_queued_requests": 1}
        optimized._ask("deploy", spec, 180)
        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(get, [f"{optimized.url}/recsys/?user_id=7"] * 24))
        assert {status for status, _ in answers} == {200, 503}
