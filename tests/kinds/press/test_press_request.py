"""The press requests: what a load posts, what the app reads of it, what the child is told."""

import base64
import json
import sys
from typing import Any

import pytest

from serve_bench.core.app_spec import app_named, bodies, deploy_spec
from serve_bench.core.axes import cell_defaults
from serve_bench.serving.apps.press_samples import MOST_SAMPLES, NoRequest, hashed, read
from tests import places
from tests.cases import cases

NAMES = ("user", "item")


def cell_of(app: str = "press", **settings: Any) -> dict[str, Any]:
    """Make a cell of the published test: 15 samples of two features."""
    shape = {"rows_per_request": 15, "sparse_features": 2}
    return {**cell_defaults(app), **shape, **settings}


def test_a_load_posts_different_requests_which_are_the_same_in_every_run() -> None:
    asked = bodies(cell_of())
    assert len(asked) == len(set(asked)) == 1000
    code = (
        "from serve_bench.core.app_spec import bodies\n"
        "cell = {'rows_per_request': 15, 'sparse_features': 2}\n"
        "print(bodies(cell, 3)[2].decode())"
    )
    other = places.execute(sys.executable, "-c", code, check=True)
    assert other.stdout.encode().strip() == asked[2]
    assert bodies(cell_of(seed=1)) != asked
    samples = [read(body, NAMES) for body in asked]
    assert {len(sample) for sample in samples} == {15}
    assert all(len({user for user, _ in sample}) == 1 for sample in samples)
    assert len({user for sample in samples for user, _ in sample}) > 990
    assert len({item for sample in samples for _, item in sample}) > 10_000


NO_JSON = (b"", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000)
LONG = [1] * (MOST_SAMPLES + 1)
NO_LIST = ([], {}, *({"samples": value} for value in ([], {"user": "1"}, LONG)))
SAMPLE = {"user": "a", "item": "b"}


@cases(
    "body, said",
    *((body, "the body is no JSON") for body in NO_JSON),
    *((json.dumps(body).encode(), "samples: a list of 1 to 1000") for body in NO_LIST),
    (b'{"samples": ["a"]}', "samples[0]: exactly user, item are needed"),
    (b'{"samples": [{"user": "a"}]}', "samples[0]: exactly user, item"),
    (json.dumps({"samples": [{**SAMPLE, "x": "c"}]}).encode(), "samples[0]: exactly"),
    (b'{"samples": [{"user": "a", "it": "b"}]}', "samples[0].item: a text is needed"),
    (json.dumps({"samples": [SAMPLE, {**SAMPLE, "user": 1}]}).encode(), "samples[1].user: a text"),
)
def test_what_is_no_request_is_one_line(body: bytes, said: str) -> None:
    with pytest.raises(NoRequest) as refused:
        read(body, NAMES)
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)


def test_features_are_hashed_alike_in_every_process() -> None:
    samples = read(
        b'{"samples": [{"user": "u", "item": "i"}, {"user": "i", "item": "\\ud800"}]}', NAMES
    )
    dense, ids = hashed(samples, dense_features=2, table_rows=1000)
    # crc32 of "u", "i" and of the three bytes of a lone surrogate: as every zlib gives them.
    assert ids == [[0xF26D6A3E % 1000, 0xE66C3671 % 1000], [0xE66C3671 % 1000, 0x1DC4A528 % 1000]]
    assert all(0 <= number < 1 for row in dense for number in row)
    assert len({number for row in dense for number in row}) == 4


def test_the_child_is_told_level_queue_callable_and_what_to_post_first() -> None:
    app = app_named("press", "test")
    cell = cell_of(log_level="ERROR", max_queued_requests=48, callable="sync", device="cpu")
    spec = deploy_spec(app, cell)
    (press,) = spec["deployments"]
    assert press["logging_config"] == {"log_level": "ERROR", "enable_access_log": False}
    assert press["max_queued_requests"] == 48
    assert press["name"] == spec["checks"][0]["deployment"] == "Press"
    assert spec["system_log_level"] == "ERROR"
    assert base64.b64decode(spec["ready"]["body"]) == bodies(cell)[0]
    assert spec["ready"]["method"] == "POST"
    asked = {"log_level": "ERROR", "callable": "sync", "max_queued_requests": 48, "device": "cpu"}
    assert spec["checks"][0]["expect"].items() >= asked.items()
    assert spec["args"].items() >= {"features": ["user", "item"], "debug": False}.items()
    info = deploy_spec(app, {**cell, "log_level": "INFO"})
    assert info["args"] == spec["args"]  # changed in place
    assert info["deployments"][0]["logging_config"]["enable_access_log"]
    assert deploy_spec(app, {**cell, "log_level": "DEBUG"})["args"] != spec["args"]  # anew


def test_a_process_raises_its_limit_of_open_files() -> None:
    code = (
        "import resource, sys\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from start import raise_open_files\n"
        "told = raise_open_files()\n"
        "soft, after = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "print(told == soft > 256, after == hard)\n"
    )
    done = places.execute(sys.executable, "-c", code, places.CLUSTER, check=True)
    assert done.stdout.split() == ["True", "True"]
