"""The recommendation service on a real Ray: declarative deploys, both rankers, small tables."""

import re
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from serve_bench.core.app_spec import app_named, deploy_spec
from serve_bench.core.axes import Value, cell_defaults
from serve_bench.core.usage import counts_of
from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.serving.server import Serving
from tests.cases import cases
from tests.integration.conftest import get, until
from tests.serving.test_dlrm import scores_of

pytestmark = [pytest.mark.ray, pytest.mark.torch]

SHAPE = Shape(table_rows=200, sparse_features=6)
SEED = 5
USERS = range(200)
BAD = ("?user_id=x", "?user_id=1.5", "?user_id=", "?user_id=7e0", "?user=7", "")

#: Each is 7 to FastAPI, and only the first is what the ingress of `tuned` answers itself.
SEVENS = ("?user_id=7", "?user_id=07", "?user_id=%2B7", "?user_id=7.0", "?user_id=7&x=1")


def spec_of(ranker: str, batch_size: int, wait_s: float, route: str = "/recsys") -> dict[str, Any]:
    """Describe the app with small tables to the cluster child."""
    cell: dict[str, Value] = {
        **{**cell_defaults("recsys"), "ranker": ranker, "seed": SEED, "device": "cpu"},
        **{"table_rows": SHAPE.table_rows, "sparse_features": SHAPE.sparse_features},
        **{"max_batch_size": batch_size, "batch_wait_timeout_s": wait_s},
    }
    spec = deploy_spec(app_named("recsys", "test"), cell)
    spec["ready"]["path"] = f"{route.rstrip('/')}/?user_id=0"
    return {**spec, "route_prefix": route}


def answered_directly(url: str) -> bool:
    """Whether it was not FastAPI that wrote the scores: it writes some with 17 digits, not 9."""
    with urllib.request.urlopen(url, timeout=60) as response:
        numbers = re.findall(rb"[0-9.]{3,}", response.read())
    return max(map(len, numbers)) <= 13


def served(url: str) -> Any:
    """Get the scores of all users, asked for by 24 at once; no other answer than 200."""
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(get, [f"{url}?user_id={user}" for user in USERS]))
    assert {status for status, _ in answers} == {200}
    return np.array([content["scores"] for _, content in answers])


def test_both_rankers_serve_and_refuse_alike(shared_serving: Callable[[str], Serving]) -> None:
    optimized = shared_serving("optimized")
    answers = []
    for ranker in ("plain", "tuned"):
        pid = scores_are_right(optimized, ranker)
        answers.append(sevens_and_bad_ones(optimized, ranker, "/recsys"))
        if ranker == "tuned":
            batch_size_changes_in_place(optimized, pid)
        refuses_as_serve_does(optimized, ranker)
    optimized._ask("deploy", spec_of("tuned", 50, 0.0, "/"), 180)
    answers.append(sevens_and_bad_ones(optimized, "tuned", "/"))
    first, *others = answers
    assert [status for status, _ in first] == [422] * len(BAD)
    for _, content in first:
        (detail,) = content["detail"]
        assert detail["loc"] == ["query", "user_id"]
    assert all(other == first for other in others)


def scores_are_right(serving: Serving, ranker: str) -> int:
    """Those of the model, in batches, all of them counted; the pid of the ranker."""
    answer = serving._ask("deploy", spec_of(ranker, 50, 0.05), 180)
    pid = int(answer["proof"]["replicas"][0]["pid"])
    url = f"{serving.url}/recsys/"
    assert np.abs(served(url) - scores_of(ranker, SHAPE, USERS, SEED)).max() < 1e-5
    assert answered_directly(url + "?user_id=7") == (ranker == "tuned")
    counts = serving.counts()[pid]
    requests = sum(size * number for size, number in counts.batches.items())
    assert requests == counts.requests == len(USERS) + 2  # and the two before and after
    assert requests / sum(counts.batches.values()) > 1.5
    folder = serving.spec.counts_folder
    forward = counts_of((folder.parent / f"{folder.name}-forward-ns" / str(pid)).read_bytes())
    assert forward.batches.keys() == counts.batches.keys()
    assert forward.requests == sum(forward.batches.values()) > 0
    return pid


def sevens_and_bad_ones(serving: Serving, ranker: str, route: str) -> list[tuple[int, Any]]:
    """All that is 7 is answered as it must be, by whom it must be. Returns the answers to BAD."""
    url = f"{serving.url}{route.rstrip('/')}/"
    assert get(url + "nothing")[0] == 404
    sevens = [get(url + query) for query in SEVENS]
    assert {status for status, _ in sevens} == {200}
    scores = np.array([content["scores"] for _, content in sevens])
    assert np.abs(scores - scores_of(ranker, SHAPE, USERS, SEED)[7]).max() < 1e-5
    direct = [answered_directly(url + query) for query in SEVENS]
    assert direct == [ranker == "tuned", False, False, False, False]
    return [get(url + query) for query in BAD]


def refuses_as_serve_does(serving: Serving, ranker: str) -> None:
    """Ask a ranker that takes one request, and lets one wait: the rest is 503."""
    spec = spec_of(ranker, 50, 0.2)
    spec["deployments"][0] |= {"max_ongoing_requests": 1, "max_queued_requests": 1}
    spec["checks"][0]["expect"]["max_ongoing_requests"] = 1
    serving._ask("deploy", spec, 180)

    def statuses() -> set[int]:
        with ThreadPoolExecutor(24) as pool:
            answers = pool.map(get, [f"{serving.url}/recsys/?user_id=7"] * 24)
            return {status for status, _ in answers}

    assert until(lambda: statuses() == {200, 503}, 15)  # the ingress is told after it


def batch_size_changes_in_place(serving: Serving, pid: int) -> None:
    """To 1, for the same replica, which then forms no batch."""
    answer = serving._ask("deploy", spec_of("tuned", 1, 0.0), 180)
    assert answer["in_place"] and answer["proof"]["replicas"][0]["pid"] == pid
    before = serving.counts()[pid].batches
    off = served(f"{serving.url}/recsys/") - scores_of("tuned", SHAPE, USERS, SEED)
    assert np.abs(off).max() < 1e-5
    after = serving.counts()[pid].batches
    assert after[1] - before.get(1, 0) >= len(USERS)
    assert {k: v for k, v in after.items() if k > 1} == {k: v for k, v in before.items() if k > 1}


@cases(
    "query, other, user",
    (b"user_id=7", {}, 7),
    (b"user_id=-12", {}, -12),
    (b"user_id=0", {"path": "/", "root_path": ""}, 0),
    (b"user_id=999999999999999999", {}, 10**18 - 1),
    *((b"user_id=" + wrong, {}, None) for wrong in (b"-0", b"07", b"7\n", b"7&user_id=8")),
    *((b"user_id=" + wrong, {}, None) for wrong in (b"9" * 19, "\u0667".encode())),
    (b"", {}, None),
    (b"user_id=7", {"method": "HEAD"}, None),
    (b"user_id=7", {"path": "/recsys/docs"}, None),
    (b"", {"type": "lifespan"}, None),
)
def test_the_path_without_fastapi(query: bytes, other: dict[str, Any], user: int | None) -> None:
    from serve_bench.serving.apps.recsys import usual_user

    usual = {"type": "http", "method": "GET", "root_path": "/recsys", "path": "/recsys/"}
    assert usual_user({**usual, "query_string": query, **other}) == user
