"""How long a slice is, by what was seen to drain; the connections are those of the row."""

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from serve_bench.core.facts import SlicesFacts
from serve_bench.core.forms import LONGEST_SLICE_S
from serve_bench.core.schema import built
from serve_bench.spec import slicing
from tests.cases import cases


def settle(
    drain: Callable[[float], float], slice_s: float | None = None
) -> tuple[slicing.Slicing, int]:
    """Choose for 100 connections of a service whose drain depends on the slice; count the looks."""
    looks: list[slicing.DrainSample] = []
    while not isinstance(next_ := slicing.choose(100, looks, slice_s), slicing.Slicing):
        assert not looks or next_ != looks[-1].slice_s
        looks.append(slicing.DrainSample(next_, drain(next_)))
    return next_, len(looks)


@cases(
    "drain_s, slice_s, looks",
    *((0.0, 0.05, 1), (0.007, 0.05, 1), (0.011, 0.08, 1), (0.02, 0.14, 2)),
    (100 / 1000, 0.7, 2),  # 100 connections to a server of 1,000 a second
    *((100 / 350, LONGEST_SLICE_S, 2), (LONGEST_SLICE_S / slicing.DRAINS, LONGEST_SLICE_S, 2)),
)
def test_slices_grow_with_the_drain(drain_s: float, slice_s: float, looks: int) -> None:
    """A length far above that of the slices that were seen is looked at itself."""
    chosen, seen = settle(lambda _: drain_s)
    assert (chosen.method, chosen.connections) == ("slices", 100)
    assert chosen.slice_s == pytest.approx(slice_s) and seen == looks
    assert chosen.slice_s >= slicing.DRAINS * chosen.drain_s
    assert (chosen.why == "") is (slice_s == slicing.SHORTEST_S)


def test_a_drain_that_grows_with_the_slice_is_looked_at_again_but_not_for_ever() -> None:
    """A slice as long as a request waits may be cut just when all are answered."""
    chosen, looks = settle(lambda slice_s: 0.0125 if slice_s < 0.09 else 0.014)
    assert chosen.slice_s == pytest.approx(0.1) and looks == 2
    _, looks = settle(lambda slice_s: min(0.39, 0.3 * slice_s))  # it would be so for ever
    assert looks <= slicing.MOST_LOOKS
    # What drains for too long is loaded in windows.
    chosen, looks = settle(lambda _: 0.5)
    assert (chosen.method, chosen.connections, looks) == ("windows", 100, 1)
    assert chosen.slice_s == pytest.approx(slicing.DRAINS * 0.5)
    assert "a slice would take 3.5 s" in chosen.why and "three times the noise" in chosen.why


def test_a_named_length_is_kept_and_said_to_be_short() -> None:
    enough, _ = settle(lambda _: 0.02, slice_s=0.1)
    assert (enough.slice_s, enough.connections, enough.why) == (0.1, 100, "")
    short, _ = settle(lambda _: 0.1, slice_s=0.1)
    assert (short.slice_s, short.connections) == (0.1, 100)
    assert "as asked" in short.why and short.short([short.drain_s])


def test_pairs_fill_the_time_and_a_round_whose_drains_have_grown_is_short() -> None:
    assert slicing.Slicing("slices", 0.05, 100, drain_s=0.03).pairs(8.0) == 100
    assert slicing.Slicing("slices", 2.0, 1, drain_s=0.3).pairs(2.0) == 2  # never one
    assert slicing.in_windows(4, 0.0, "why").pairs(8.0) == 8
    sliced = slicing.Slicing("slices", 0.05, 100, drain_s=0.008)
    assert not sliced.short((0.001, 0.0099)) and sliced.short((0.001, 0.0101))
    assert not replace(sliced, method="windows").short((9.0, 9.0))


def test_a_choice_comes_back_from_a_trial() -> None:
    chosen = slicing.Slicing("slices", 0.1, 20, 0.016, "fewer")
    facts = {**asdict(chosen), "chosen_drain_s": 0.016, "drain_s": 0.02}
    facts |= dict.fromkeys(("begun_s", "length_s", "completed", "failed"), ())
    assert slicing.slicing_from(built(SlicesFacts, facts, "slices")) == chosen
