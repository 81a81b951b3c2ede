"""Every number that the reports of the stored runs give is the one that is kept in tests/corpus.

Where a change is meant, `scripts/corpus write` keeps the numbers of now and prints those that are
gone; the commit lists them and says why.
"""

import pytest

from scripts.corpus import Difference, compare_run, format_numbers, list_runs, parse_numbers


@pytest.mark.parametrize("name", list_runs())
def test_no_number_of_a_stored_run_is_gone(name: str) -> None:
    difference = compare_run(name)
    assert not difference.gone, str(difference)
    assert difference.kept


def test_a_changed_and_a_lost_number_are_seen_and_the_order_is_not() -> None:
    kept = [("text: Rows", "noop: 1 2"), ("text: Rows", "press: 3")]
    assert not Difference(kept, kept[::-1]).gone
    difference = Difference(kept, [("text: Rows", "noop: 1 3"), kept[1]])
    assert difference.gone == [kept[0]] and difference.new == [("text: Rows", "noop: 1 3")]
    assert Difference([kept[0], kept[0]], [kept[0]]).gone == [kept[0]]
    assert list(parse_numbers(format_numbers(kept))) == kept
