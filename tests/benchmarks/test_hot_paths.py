"""Hot paths of a load: recording, framing, accounting, pacing.

A round is a fixed count of operations, and no time is asserted: compare two versions with
`pytest-benchmark compare`. What is asserted is that the work was done.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from serve_bench.core.load_spec import Stage
from serve_bench.core.request_spec import Request
from serve_bench.load import http1
from serve_bench.load.pacing import due_times
from serve_bench.load.tally import Shared, Tally
from tests.cases import cases
from tests.servers import CHUNKED, OK

OPERATIONS = 10_000
ROUNDS = 20

VALUES = [((k * 7919) % 5_000_000) + 50_000 for k in range(OPERATIONS)]

Bench = Callable[[Callable[[], Any]], int]


@pytest.fixture
def rounds(benchmark: Any) -> Bench:
    """Run a function for a fixed number of rounds; return how many operations were done."""

    def run(work: Callable[[], Any]) -> int:
        calls = 0

        def counted() -> None:
            nonlocal calls
            calls += 1
            work()

        benchmark.extra_info["operations"] = OPERATIONS
        benchmark.pedantic(counted, rounds=ROUNDS, warmup_rounds=2)
        return calls * OPERATIONS

    return run


def test_account_for_a_success(rounds: Bench) -> None:
    tally = Tally(Shared.create(1), 0, 1, 1 << 40, None, lambda: ([], []))

    def work() -> None:
        for value in VALUES:
            tally.sent += 1
            tally.success(0, 10, value, 200)

    assert rounds(work) == tally.completed
    tally.close()


@cases("check", False, True, ids=["unchecked", "body-checked"])
@cases("response", OK, CHUNKED, ids=["length", "chunked"])
def test_frame(rounds: Bench, response: bytes, check: bool) -> None:
    framer = http1.make_framer(Request("http://h/", expect_body=b"ok" if check else None))
    plain = 0

    def work() -> None:
        nonlocal plain
        feed = framer.parser.feed_data
        for _ in range(OPERATIONS):
            feed(response)
            plain += framer.done == http1.PLAIN
            framer.done = http1.WAITING

    assert rounds(work) == plain


@cases("arrivals, ramp", ("constant", False), ("poisson", False), ("constant", True))
def test_pace(rounds: Bench, arrivals: Any, ramp: bool) -> None:
    stages = [Stage(1000.0, 1.0), Stage(50_000.0, 100.0)]
    times: list[int] = []

    def work() -> None:
        times[:] = islice(due_times(stages, arrivals, ramp), OPERATIONS)

    assert rounds(work) >= len(times) == OPERATIONS
    assert times == sorted(times)
