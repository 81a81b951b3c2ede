"""Rounds as figures: rates over all rounds, errors by class, doubts, and what can be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.pytest_plugin.counted_rounds import (
    ALIKE,
    RoundFigures,
    RoundsTarget,
    figures_of,
    unlike,
)
from tests.rounds import round_of

LOAD = Load(Request("http://127.0.0.1:8000/best?user=3"), connections=8, count=100)
OWN = RoundsTarget("app.py:app", "default", "2.60.0", {"Shop": 1}, {})


def figures(
    *rounds: object, served: RoundsTarget = OWN, warmup: Warmup | None = None
) -> RoundFigures:
    results = [round_of(LOAD, one) if isinstance(one, float) else one for one in rounds]
    return figures_of(LOAD, results, warmup, served, {"id": "abc"})  # type: ignore[arg-type]


def test_the_rate_is_over_all_rounds_and_not_a_mean_of_rates() -> None:
    found = figures(1.0, 3.0)
    assert found.requests_per_s == pytest.approx(200 / 4.0)
    assert found.round_s == (1.0, 3.0) and found.rounds == 2 and found.completed == 200


def test_the_rate_is_of_what_was_answered_in_the_time_it_is_over() -> None:
    found = figures(replace(round_of(LOAD, 1.0), in_windows=Counts(100, 60, {}, 40)))
    assert found.completed == 60 and found.requests_per_s == pytest.approx(60.0)


def test_latencies_are_of_all_rounds_in_milliseconds() -> None:
    found = figures(
        round_of(LOAD, 1.0, latency_ms=1.0),
        round_of(LOAD, 1.0, latency_ms=1.0),
        round_of(LOAD, 1.0, latency_ms=9.0),
    )
    assert found.p50_ms == pytest.approx(1.0, rel=0.01)
    assert found.p99_ms == pytest.approx(9.0, rel=0.01)
    assert found.max_ms == pytest.approx(9.0, rel=0.01)


def test_errors_are_added_up_by_class() -> None:
    found = figures(
        round_of(LOAD, 1.0, failed={"status": 2, "timeout": 0}),
        round_of(LOAD, 1.0, failed={"status": 1, "reset": 4}),
    )
    assert found.errors == {"status": 3, "reset": 4} and found.failed == 7


@pytest.mark.parametrize(("bound", "says"), [(1, False), (2, True), (3, True)])
def test_the_client_counts_as_the_limit_when_it_was_in_most_rounds(bound: int, says: bool) -> None:
    rounds = [round_of(LOAD, 1.0, client_bound=at < bound) for at in range(3)]
    found = figures(*rounds)
    assert found.client_bound is says
    assert found.client_reasons == (("never idle",) if says else ())
    assert [line for line in found.lines() if line.startswith("warning: ")] == (
        ["warning: the client was the limit: never idle"] if says else []
    )


def test_a_warm_up_that_did_not_settle_is_a_doubt_and_none_is_not() -> None:
    unsettled = figures(1.0, warmup=Warmup(5.0, False, 10))
    assert unsettled.doubts() == ["the rate was not steady after 5.0 s of warm-up"]
    assert figures(1.0).doubts() == [] and figures(1.0).steady is None
    unjudged = figures(1.0, warmup=Warmup(5.0, False, 10, judged=False))
    assert unjudged.doubts() == [
        "the warm-up of 5.0 s had too few requests to tell whether the rate had settled"
    ]


def test_what_is_stored_is_plain_and_names_what_was_loaded() -> None:
    told = figures(1.0).to_json()
    assert (told["path"], told["method"], told["requests"]) == ("/best?user=3", "GET", 100)
    assert (told["variant"], told["ray"], told["replicas"]) == ("default", "2.60.0", {"Shop": 1})
    assert "round_s" not in told and set(ALIKE) <= set(told)


def test_a_url_of_others_has_no_variant() -> None:
    found = figures(1.0, served=RoundsTarget("http://127.0.0.1:8000/"))
    assert found.variant is None and found.replicas is None
    assert len(found.lines()) == 2


@pytest.mark.parametrize(
    ("name", "other"), [("requests", 50), ("connections", 1), ("variant", "haproxy"), ("path", "/")]
)
def test_rounds_that_differ_in_more_than_their_time_are_not_compared(
    name: str, other: object
) -> None:
    now = figures(1.0)
    stored = {**now.to_json(), name: other, "requests_per_s": 1.0}
    assert unlike(now.to_json(), stored) == [f"{name} {other}, here {now.to_json()[name]}"]


def test_rounds_of_another_time_host_or_ray_are_compared() -> None:
    now = figures(1.0)
    later = replace(now, requests_per_s=1.0, ray="2.50.0", host={"id": "other"})
    assert unlike(now.to_json(), later.to_json()) == []
    assert unlike(now.to_json(), {}) == []


def test_the_lines_fit_a_terminal() -> None:
    found = figures(round_of(LOAD, 1.0, failed={"status": 20}, client_bound=True))
    assert max(len(line) for line in found.lines()) <= 76
