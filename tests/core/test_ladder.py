from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import (
    Ladder,
    Next,
    Rung,
    Stop,
    decide,
    find_shape,
    merged,
    read_ladder,
    rung_above,
)
from serve_bench.spec.suite_keys import SuiteKeys
from tests.cases import cases, sure


def climb(
    ladder: Ladder, served: Callable[[int], float], most: int = 200
) -> tuple[list[Rung], list[str], Stop]:
    """Climb a ladder on a server whose throughput is a function of the clients."""
    measured: list[Rung] = []
    whys: list[str] = []
    while len(measured) < most:
        decision = decide(ladder, measured)
        if isinstance(decision, Stop):
            return measured, whys, decision
        assert isinstance(decision, Next)
        measured.append(Rung(decision.clients, served(decision.clients)))
        whys.append(decision.why)
    raise AssertionError(f"no end after {most} steps")


def saturating(limit: float, per_client: float) -> Callable[[int], float]:
    return lambda clients: min(limit, per_client * clients)


PLAIN = Ladder(refinements=0)
LOW = Ladder(ceiling=60, refinements=0)


@cases(
    "ladder, served, clients, why",
    (Ladder(steps=(5, 1, 9)), saturating(100, 100), [5, 1, 9], "the list is measured"),
    (PLAIN, saturating(1000, 10), [10, 15, 20, 30, 40, 50, 75, 100, 150, 200], "less than 2 %"),
    (LOW, saturating(1e9, 10), [10, 15, 20, 30, 40, 50, 60], "the ceiling of 60 clients"),
    (Ladder(ceiling=3), saturating(100, 10), [3], "the ceiling of 3 clients is reached"),
)
def test_the_steps_of_a_ladder_and_its_end(
    ladder: Ladder, served: Callable[[int], float], clients: list[int], why: str
) -> None:
    measured, whys, stop = climb(ladder, served)
    assert [step.clients for step in measured] == clients and why in stop.why
    assert (set(whys) == {"listed"}) == (ladder.steps is not None)


def test_one_step_without_gain_does_not_end_it() -> None:
    measured, _, _ = climb(PLAIN, lambda n: 150.0 if n == 20 else min(400.0, n * 10.0))
    assert max(step.clients for step in measured) > 40
    assert sure(find_shape(measured).best).throughput == 400
    # Two small gains that add up are still measured against the best before.
    steps = [Rung(10, 100.0), Rung(15, 101.0), Rung(20, 102.5)]
    assert isinstance(decide(PLAIN, steps), Stop)
    assert decide(PLAIN, [*steps[:2], Rung(20, 104.0)]) == Next(30, "grow")
    # A server that serves nothing ends it soon.
    measured, _, _ = climb(Ladder(), lambda clients: 0.0)
    assert len(measured) == 3
    assert find_shape(measured)[1:] == (None, None, ())


def test_refinement_looks_around_the_best() -> None:
    measured, whys, _ = climb(Ladder(), lambda clients: 1000.0 - abs(clients - 120) * 4)
    refined = [step.clients for step, why in zip(measured, whys, strict=True) if why == "refine"]
    assert 1 <= len(refined) <= 4
    assert all(75 < clients < 200 for clients in refined)
    assert abs(sure(find_shape(measured).best).clients - 120) <= 5


def test_knee_best_and_collapse() -> None:
    steps = [Rung(10, 500.0), Rung(20, 949.0), Rung(30, 950.0), Rung(40, 1000.0), Rung(50, 990.0)]
    assert find_shape(steps).knee == Rung(30, 950.0)  # the first step at 95 %
    equal = [Rung(30, 5.0), Rung(10, 5.0), Rung(20, 5.0)]
    assert find_shape(equal).best == Rung(10, 5.0)  # the fewest
    # A collapse is a later step more than 20 % below the best.
    steps = [Rung(10, 700.0), Rung(20, 1000.0), Rung(30, 800.0), Rung(40, 799.0), Rung(50, 300.0)]
    assert find_shape(steps).collapses == (Rung(40, 799.0), Rung(50, 300.0))
    assert find_shape([Rung(1, 10.0), Rung(10, 1000.0)]).collapses == ()
    steps = [Rung(10, 100.0), Rung(20, 10.0), Rung(20, 99.0), Rung(20, 98.0)]
    assert merged(steps) == (Rung(10, 100.0), Rung(20, 98.0))  # by their median
    assert find_shape(steps).collapses == ()


@cases(
    "rates, runs, next_",
    ([100, 79], 3, "repeat"),
    ([100, 79, 90], 3, "repeat"),  # its first run decides
    ([100, 79, 90, 10], 3, "listed"),
    ([100, 81], 3, "listed"),
    ([100, 79], 1, "listed"),
    ([0, 0], 3, "listed"),
    ([100, 0], 3, "listed"),  # nothing was served
)
def test_a_step_that_fell_is_measured_again(rates: list[float], runs: int, next_: str) -> None:
    clients = [10, *[20] * (len(rates) - 1)]
    steps = [Rung(at, rate) for at, rate in zip(clients, rates, strict=True)]
    move = decide(Ladder(steps=(10, 20, 30), runs=runs), steps)
    assert isinstance(move, Next)
    assert (move.why, move.clients) == (next_, 20 if next_ == "repeat" else 30)


@cases("clients, above", (1, 2), (3, 5), (7, 10), (10, 15), (75, 100), (100, 150), (99, 100))
def test_rungs(clients: int, above: int) -> None:
    assert rung_above(clients) == above


def test_auto_and_lists_are_read_and_what_is_no_ladder_is_refused() -> None:
    assert [read_ladder([step], "") for step in ("auto", "7")] == [Ladder(), Ladder(steps=(7,))]
    for text in ("", "0", "-1", "1.5", "ten", "1,,2", "1000001", "²", "auto,1", "2,published"):
        with pytest.raises(BadInput, match=r"--users: '.*' is not allowed; it takes auto"):
            keys = SuiteKeys.read(Content("f.toml").set("load.users", text, "--users"))
            read_ladder(keys.users, "--users")


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=60),
    st.integers(1, 5000),
    st.integers(1, 100),
    st.integers(0, 6),
)
def test_every_ladder_ends(noise: list[float], ceiling: int, start: int, refinements: int) -> None:
    ladder = Ladder(start=start, ceiling=ceiling, refinements=refinements)
    measured, whys, _ = climb(ladder, lambda clients: noise[clients % len(noise)], most=60)
    clients = [step.clients for step in measured]
    assert len(set(clients)) == len(clients)
    assert max(clients) <= ceiling
    assert whys.count("refine") <= refinements
    grown = [step for step, why in zip(clients, whys, strict=True) if why == "grow"]
    assert grown == sorted(grown)


@given(st.dictionaries(st.integers(1, 1000), st.floats(0.1, 1e6), min_size=1))
def test_knee_best_and_collapse_hold_together(found: dict[int, float]) -> None:
    steps = [Rung(clients, throughput) for clients, throughput in found.items()]
    _, best, knee, lower = find_shape(steps)
    top, bend = sure(best), sure(knee)
    assert top.throughput == max(found.values())
    assert bend.clients <= top.clients and bend.throughput > 0.95 * top.throughput * (1 - 1e-9)
    for step in lower:
        assert step.clients > top.clients and step.throughput < 0.8 * top.throughput
