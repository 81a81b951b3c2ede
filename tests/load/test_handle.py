"""The client of a handle, its requests and exceptions; its load: integration/test_protocols.py."""

import ray
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from serve_bench.load.handle_client import arguments, class_of, size_of
from tests.cases import cases

JSON = (("Content-Type", "application/json; charset=utf-8"),)


def test_a_method_gets_the_body_as_its_argument() -> None:
    assert arguments(b"", ()) == ()
    assert arguments(b"{}", ()) == (b"{}",)
    assert arguments(b'{"n": 1}', JSON) == ({"n": 1},)
    assert arguments(b"1", (("content-type", "text/plain"),)) == (b"1",)
    assert arguments(b"1", (("content-type", "application/jsonl"),)) == (b"1",)
    assert [size_of(body) for body in (b"abc", "ab", 7, None, [1])] == [3, 2, 0, 0, 0]


@cases(
    "error, name",
    (BackPressureError(num_queued_requests=1, max_queued_requests=1), "rejected"),
    (DeploymentUnavailableError(DeploymentID("D")), "reset"),
    (ray.exceptions.ActorDiedError(), "reset"),
    (ray.exceptions.TaskCancelledError(), "reset"),
    (KeyError("x"), "exception"),
    (TimeoutError(), "exception"),  # of the app: that of a request is the client's own
)
def test_exceptions_have_classes(error: Exception, name: str) -> None:
    assert class_of(error) == name
