"""How long a slice is and on how many connections, by what was seen to drain."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from serve_bench.load_result import Slice
from serve_bench.slicing import (
    DRAINS,
    LONGEST_S,
    SHORTEST_S,
    STRETCHED_S,
    Look,
    Slicing,
    Wanted,
    choose,
    drain_of,
    first_look,
    in_windows,
    slicing_from,
)


def settle(asked: int, drain: Callable[[int], float], **wish: object) -> tuple[Slicing, int]:
    """What is chosen for a service whose drain depends on the connections; and after how many
    looks."""
    looks: list[Look] = []
    wanted = first_look(asked, wish.get("slice_s"))  # type: ignore[arg-type]
    while True:
        looks.append(Look(wanted.connections, wanted.slice_s, drain(wanted.connections)))
        found = choose(asked, looks, **wish)  # type: ignore[arg-type]
        if isinstance(found, Slicing):
            return found, len(looks)
        assert 1 <= found.connections <= wanted.connections
        assert found != wanted
        wanted = found


def queue(rate: float) -> Callable[[int], float]:
    """A server that works off what is sent, one after the other."""
    return lambda connections: connections / rate


@pytest.mark.parametrize(
    ("drain_s", "slice_s", "looks"),
    [(0.0, 0.05, 1), (0.007, 0.05, 1), (0.011, 0.08, 1), (0.014, 0.1, 2)],
)
def test_a_slice_is_fifty_milliseconds_or_longer_by_its_drain(
    drain_s: float, slice_s: float, looks: int
) -> None:
    """A length far above that of the slices that were seen is looked at itself."""
    found, seen = settle(100, lambda connections: drain_s)
    assert (found.method, found.connections, seen) == ("slices", 100, looks)
    assert found.slice_s == pytest.approx(slice_s)
    assert (found.why == "") is (slice_s == SHORTEST_S)


@pytest.mark.parametrize("rate", [350.0, 1000.0, 80.0])
def test_a_slow_queue_gets_fewer_connections(rate: float) -> None:
    found, looks = settle(100, queue(rate))
    assert found.method == "slices" and looks == 2
    assert 1 <= found.connections < 100 == found.asked_connections
    assert found.slice_s <= STRETCHED_S and found.slice_s >= DRAINS * found.drain_s
    assert f"{found.connections} connection" in found.why and "instead of 100" in found.why


def test_a_drain_that_grows_with_the_slice_is_looked_at_again() -> None:
    """A slice as long as a request waits may be cut just when all are answered."""
    seen = [Look(15, 0.05, 0.0125)]
    wanted = choose(15, seen)
    assert wanted == Wanted(15, 0.09)
    found = choose(15, [*seen, Look(15, 0.09, 0.014)])
    assert isinstance(found, Slicing) and found.slice_s == pytest.approx(0.1)


def test_named_connections_are_kept_and_the_slice_grows() -> None:
    found, _ = settle(100, queue(400.0), named=True)
    assert (found.method, found.connections) == ("slices", 100)
    assert STRETCHED_S < found.slice_s <= LONGEST_S
    assert found.slice_s >= DRAINS * found.drain_s and "1.75 s" in found.why


def test_the_longest_slice_holds_just_as_many_drains_as_it_must() -> None:
    found, _ = settle(100, lambda connections: LONGEST_S / DRAINS, named=True)
    assert (found.method, found.slice_s) == ("slices", LONGEST_S)


def test_fewer_connections_are_not_taken_where_the_request_itself_is_slow() -> None:
    found, looks = settle(100, lambda connections: 0.1)
    assert looks == 2  # the second showed that it is in vain
    assert (found.method, found.connections) == ("slices", 100)
    assert found.slice_s == pytest.approx(0.7)


@pytest.mark.parametrize("wish", [{}, {"named": True}])
def test_what_drains_for_too_long_is_loaded_in_windows(wish: dict[str, object]) -> None:
    found, looks = settle(8, lambda connections: 0.5, **wish)
    assert (found.method, found.connections) == ("windows", 8)
    assert found.slice_s == pytest.approx(DRAINS * 0.5)
    assert "a slice would take 3.5 s" in found.why and "three times the noise" in found.why
    assert looks <= 2


def test_a_named_length_is_kept_and_connections_are_given_up_for_it() -> None:
    found, _ = settle(100, queue(1000.0), slice_s=0.1)
    assert found.slice_s == 0.1 and found.connections == 20 and "at most 100 ms" in found.why
    both, _ = settle(100, queue(1000.0), slice_s=0.1, named=True)
    assert (both.slice_s, both.connections) == (0.1, 100)
    assert "as asked" in both.why and both.short([both.drain_s])


def test_looking_ends() -> None:
    """A drain that shrinks a little less than in step would be looked at for ever."""
    found, looks = settle(10_000, lambda connections: 3.0 * (connections / 10_000) ** 0.6)
    assert looks <= 6 and found.method in ("slices", "windows")


def test_pairs_fill_the_time_and_are_never_one() -> None:
    sliced = Slicing("slices", 0.05, 100, 100, drain_s=0.03)
    assert sliced.pairs(8.0) == 100
    assert Slicing("slices", 2.0, 1, 1, drain_s=0.3).pairs(2.0) == 2
    assert in_windows(4, 0.0, "why").pairs(8.0) == 8


def test_a_round_whose_drains_have_grown_is_short() -> None:
    sliced = Slicing("slices", 0.05, 100, 100, drain_s=0.008)
    assert not sliced.short((0.001, 0.0099)) and sliced.short((0.001, 0.0101))
    assert not replace(sliced, method="windows").short((9.0, 9.0))


def test_a_drain_is_what_a_slice_took_beyond_its_length() -> None:
    lengths = [(0, 0.06), (0, 0.07), (0, 0.20), (1, 0.05), (1, 0.049)]
    slices = [Slice(side, k, 0.0, length, 1, 0, 0.0) for k, (side, length) in enumerate(lengths)]
    assert drain_of(slices, 0, 0.05) == pytest.approx(0.02)
    assert drain_of(slices, 1, 0.05) == 0.0
    assert drain_of([], 0, 0.05) == 0.0


def test_a_choice_comes_back_from_a_trial() -> None:
    chosen = Slicing("slices", 0.1, 20, 100, 0.016, "fewer")
    told = json.loads(json.dumps(chosen.to_json())) | {"chosen_drain_s": 0.016, "drain_s": 0.02}
    assert slicing_from(told) == chosen
    assert slicing_from({}) is None
