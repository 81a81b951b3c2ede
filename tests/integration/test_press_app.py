"""The press apps on a real Ray: handlers, log levels, batches, full queues."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest

from serve_bench.core.app_spec import app_named, bodies
from serve_bench.core.axes import Value, cell_defaults
from serve_bench.core.variants import BUILT_IN_VARIANTS, with_env
from serve_bench.serving.apps.dlrm_features import FORMS, as_scores
from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.serving.apps.press_samples import hashed, read
from serve_bench.serving.server import Deployed, LaunchFailed, Serving
from tests.integration.conftest import get, launched

pytestmark = [pytest.mark.ray]

REQUEST: dict[str, Value] = {"rows_per_request": 15, "sparse_features": 2}
SIZES: dict[str, Value] = {
    "dense_features": 1,
    "width": 16,
    "table_rows": 500,
    "bottom": "32,16",
    "top": "32,16",
}
SMALL: dict[str, Value] = {**cell_defaults("press"), **REQUEST, **SIZES, "device": "cpu", "seed": 3}
NOOP: dict[str, Value] = {**cell_defaults("press_noop"), **REQUEST}
BODIES = bodies(SMALL, 60)
BAD = (b"", b"[]", b'{"samples": []}', b'{"samples": [{"user": "a", "item": 1}]}')


@pytest.fixture(scope="module")
def on_the_loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """For two tests. A plain function holds up the loop here; handlers that await do not."""
    variant = with_env(BUILT_IN_VARIANTS["default"], {"RAY_SERVE_RUN_SYNC_IN_THREADPOOL": "0"})
    with launched(variant, tmp_path_factory.mktemp("loop") / "log") as serving:
        yield serving


def deploy(serving: Serving, cell: dict[str, Value], **settings: Any) -> Deployed:
    app = "press" if "ranker" in cell else "press_noop"
    return serving.deploy(app_named(app, "test"), {**cell, **settings})


def post(serving: Serving, body: bytes) -> tuple[int, Any]:
    return get(f"{serving.url}/press/", body)


def post_all(serving: Serving) -> list[tuple[int, Any]]:
    """Of 20 at once, in the order asked."""
    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(lambda body: post(serving, body), BODIES))


def lines(serving: Serving, component: str) -> list[str]:
    """All that Serve's processes of a kind have logged in this launch."""
    files = serving.spec.directory.glob(f"r/session_2*/logs/serve/{component}_*.log")
    return [line for file in files for line in file.read_text().splitlines()]


def logged(serving: Serving, *words: str) -> tuple[Counter[str], int]:
    """Count lines with these words, and all, by component, once what is written late has come."""
    seen: list[str] = []
    while seen != (now := lines(serving, "replica") + lines(serving, "proxy")):
        seen = now
        time.sleep(0.5)
    found = {
        f"{name}: {word}": sum(word in line for line in lines(serving, name))
        for name in ("replica", "proxy")
        for word in words
    }
    return Counter(found), len(seen)


def scores_alone(ranker: str) -> Any:
    from serve_bench.serving.apps import dlrm

    shape = Shape.from_args(SMALL)
    model: Any = dlrm.build(ranker, shape, "cpu", int(SMALL["seed"]))

    def payload(body: bytes) -> Any:
        dense, ids = hashed(read(body, ("user", "item")), 1, shape.table_rows)
        return FORMS[ranker](np.array(dense, np.float32), np.array(ids, np.int32))

    answers = model.answers([payload(body) for body in BODIES])
    return np.array([as_scores(part) if isinstance(part, bytes) else part for part in answers])


@pytest.mark.torch
def test_every_handler_gives_the_same_scores(shared_serving: Callable[[str], Serving]) -> None:
    serving = shared_serving("default")
    right = scores_alone("plain")
    assert np.abs(right - scores_alone("tuned")).max() < 1e-5
    assert len({round(score, 6) for row in right for score in row}) > 400
    for settings in (
        {"callable": "async", "ranker": "plain"},
        {"max_batch_size": 8, "batch_wait_timeout_s": 0.02},
        {"callable": "sync", "ranker": "plain"},
        {"callable": "fastapi-def", "ranker": "tuned"},
        {"callable": "async", "ranker": "tuned", "max_batch_size": 8},
    ):
        done = deploy(serving, SMALL, **settings)
        # What a batch is, is changed in place; what a handler or a ranker is, is made anew.
        assert done.in_place == (list(settings) == ["max_batch_size", "batch_wait_timeout_s"])
        assert ("first_request" in done.proof) != done.in_place
        (replica,) = done.proof["replicas"]
        assert replica.items() >= settings.items()
        pid, before = replica["pid"], serving.counts()[replica["pid"]]
        answers = post_all(serving)
        assert {status for status, _ in answers} == {200}
        scores = np.array([content["scores"] for _, content in answers])
        assert np.abs(scores - right).max() < 1e-5
        for body in BAD:
            status, content = post(serving, body)
            assert status == 422 and list(content) == ["detail"] and "\n" not in content["detail"]
        counts = serving.counts()[pid]
        assert counts.requests - before.requests == len(BODIES)
        earlier = before.batches
        scored = {size: n - earlier.get(size, 0) for size, n in counts.batches.items()}
        assert sum(size * number for size, number in scored.items()) == len(BODIES)
        assert (len(BODIES) / sum(scored.values()) > 1.5) == ("max_batch_size" in settings)
        forward = serving.forward_ns()[pid]
        assert forward.requests == sum(forward.batches.values()) > 0


def full_queue(serving: Serving, **settings: Any) -> Counter[int]:
    """Statuses of 20 at once where a replica takes one, each 0.1 s, and one may wait."""
    slow = {"max_batch_size": 4, "batch_wait_timeout_s": 0.1, "max_ongoing_requests": 1}
    done = deploy(serving, NOOP, **slow, max_queued_requests=1, **settings)
    assert done.proof["replicas"][0]["max_queued_requests"] == 1
    return Counter(status for status, _ in post_all(serving))


@pytest.mark.ci
def test_behind_haproxy_all_is_the_same(shared_serving: Callable[[str], Serving]) -> None:
    serving = shared_serving("optimized")
    done = deploy(serving, NOOP, callable="sync", log_level="DEBUG")
    levels = done.proof["log_level"]
    assert levels == {
        **dict.fromkeys(("proxy", "fallback_proxy", "controller"), "DEBUG"),
        "replicas": ["DEBUG"],
    }
    (pid,) = (replica["pid"] for replica in done.proof["replicas"])
    assert done.proof["first_request"]["status"] == 200 and serving.counts()[pid].requests == 1
    assert post_all(serving) == [(200, {"samples": 15})] * len(BODIES)
    assert serving.counts()[pid].requests == len(BODIES) + 1
    done = deploy(serving, NOOP, callable="fastapi-def", log_level="ERROR")
    assert post_all(serving) == [(200, {"samples": 15})] * len(BODIES)
    assert post(serving, b"x") == (422, {"detail": "the body is no JSON"})
    (pid,) = (replica["pid"] for replica in done.proof["replicas"])
    assert serving.counts()[pid].requests == len(BODIES) + 1
    assert set(full_queue(serving)) == {200, 503}
    for process in serving.processes():
        if process.role in ("replica", "proxy", "haproxy_manager", "haproxy"):
            assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] >= serving.open_files


APP_INFO = ("answered in",)
APP_DEBUG = ("received ", "read 15 samples", "prepared 15 samples", "answer of ")
SERVE_INFO = "POST /press 200"
SERVE_DEBUG = "Started executing request"


@pytest.mark.long
def test_what_is_logged_is_what_the_level_says(on_the_loop: Serving) -> None:
    serving = on_the_loop
    words = (*APP_INFO, *APP_DEBUG, SERVE_INFO, SERVE_DEBUG)
    asked = len(BODIES)
    info = {f"replica: {word}" for word in (*APP_INFO, SERVE_INFO)} | {f"proxy: {SERVE_INFO}"}
    debug = info | {f"replica: {word}" for word in (*APP_DEBUG, SERVE_DEBUG)}
    no_words = set[str]()
    by_level = {"INFO": info, "ERROR": no_words, "DEBUG": debug, "WARNING": no_words}
    for level, expected in by_level.items():
        done = deploy(serving, NOOP, log_level=level)
        assert done.in_place == (level == "ERROR")  # to and from DEBUG replicas start anew
        levels = {"proxy": level, "controller": level, "replicas": [level]}
        assert done.proof["log_level"] == levels
        if not done.in_place:
            first = done.proof["first_request"]
            assert first["status"] == 200 and first["ms"] > 0 and first["polls"] >= 0
            pid = done.proof["replicas"][0]["pid"]
            assert serving.counts()[pid].requests == 1  # and it is the first
        before, lines_before = logged(serving, *words)
        assert post_all(serving) == [(200, {"samples": 15})] * asked
        after, lines_after = logged(serving, *words)
        assert after - before == Counter(dict.fromkeys(expected, asked)), level
        assert (lines_after == lines_before) == (not expected), level


@pytest.mark.ci
def test_a_full_queue_is_503_and_a_blocking_handler_needs_its_threads(on_the_loop: Serving) -> None:
    statuses = full_queue(on_the_loop)
    assert set(statuses) == {200, 503} and statuses[200] >= 2
    assert deploy(on_the_loop, NOOP).in_place  # without a limit again
    assert {status for status, _ in post_all(on_the_loop)} == {200}
    with pytest.raises(LaunchFailed) as refused:
        deploy(on_the_loop, NOOP, callable="sync")
    said = " ".join([str(refused.value), *refused.value.detail])
    assert re.search("callable sync: .* needs RAY_SERVE_RUN_SYNC_IN_THREADPOOL=1", said)
