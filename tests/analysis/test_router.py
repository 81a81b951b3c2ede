"""The wait of Serve's router: which rates fit it, and where it holds."""

from dataclasses import replace

from serve_bench.analysis.verdict.router import router_wait_s, router_words
from serve_bench.core.result import VariantUsed
from tests import records
from tests.cases import cases


@cases(
    "rate, replicas, wait_s, named",
    (16.0, 4, 0.5, True),
    (13.0, 4, 0.5, True),
    (100.0, 60, 0.5, True),  # 50 tasks at most
    (85.0, 4, 0.5, False),
    (16.0, 4, 0.025, False),
    (0.0, 0, 0.5, False),
    (16.0, 4, None, False),
)
def test_a_rate_of_the_router(
    rate: float, replicas: int, wait_s: float | None, named: bool
) -> None:
    """2 tasks a replica, each of which gives a request in 0.5 s."""
    assert (router_words(rate, replicas, wait_s) is not None) is named


@cases(
    "env, wait_s",
    ({}, 0.5),
    ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "0.025"}, 0.025),
    ({"RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "none"}, None),
    ({"RAY_SERVE_ENABLE_HA_PROXY": "1"}, None),
    ({"RAY_SERVE_ENABLE_HA_PROXY": "0"}, 0.5),
)
def test_the_wait_is_that_of_the_launch(env: dict[str, str], wait_s: float | None) -> None:
    other = records.launch("other")
    one = replace(other, variant=VariantUsed("mine", env=env))
    assert router_wait_s([other, one], "mine") == wait_s
    assert router_wait_s([one], "none") is None
