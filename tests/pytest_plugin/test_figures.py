"""Rounds as figures: rates over all rounds, errors by class, warnings."""

from dataclasses import replace

import pytest

from serve_bench.core.load_result import Counts, LoadResult
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.pytest_plugin.benchmark import RoundFigures, Served, compute_figures
from tests.cases import cases
from tests.rounds import round_of

LOAD = Load(Request("http://127.0.0.1:8000/best?user=3"), connections=8, count=100)


def figures(*rounds: LoadResult) -> RoundFigures:
    return compute_figures(LOAD, rounds, Served("http://127.0.0.1:8000/"), {"id": "abc"})


def test_latencies_are_of_all_rounds_in_milliseconds() -> None:
    found = figures(*(round_of(LOAD, 1.0, latency_ms=ms) for ms in (1.0, 1.0, 9.0)))
    assert found.p50_ms == pytest.approx(1.0, rel=0.01)
    assert found.p99_ms == pytest.approx(9.0, rel=0.01)
    assert found.max_ms == pytest.approx(9.0, rel=0.01)
    # The rate is of what was answered in the time.
    found = figures(replace(round_of(LOAD, 1.0), in_windows=Counts(100, 60, {}, 40)))
    assert found.completed == 60 and found.requests_per_s == pytest.approx(60.0)


@cases("bound, limited", (1, False), (2, True), (3, True))
def test_the_client_is_the_limit_if_in_most_rounds(bound: int, limited: bool) -> None:
    rounds = [round_of(LOAD, 1.0, client_bound=number < bound) for number in range(3)]
    found = figures(*rounds)
    assert found.client_bound is limited
    assert found.client_reasons == (("never idle",) if limited else ())
    assert any(line.startswith("warning: ") for line in found.lines()) is limited
