"""Every number that the reports of the stored runs give is the one that is kept in tests/corpus.

Where a change is meant, `scripts/corpus write` keeps the numbers of now and prints those that are
gone; the commit lists them and says why.
"""

from __future__ import annotations

import json

import pytest

from scripts.corpus import (
    Difference,
    compare_run,
    format_numbers,
    list_runs,
    parse_numbers,
    read_json,
    read_text,
)


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


def test_elements_are_named_and_long_lists_summarized() -> None:
    rows = [
        {"row": {"label": "8 clients"}, "p50": {"unit": "ns", "value": 12345678, "count": 3}},
        {"row": {"label": "raw"}, "windows": list(range(10)), "steady": True, "name": None},
    ]
    assert list(
        read_json({"rows": rows, "host": {"kernel": "Linux", "cores": 2}}, "json:", "")
    ) == [
        ("json: / rows / [8 clients] / p50", "value 1.23457e+07 ns"),
        ("json: / rows / [8 clients] / p50", "count 3"),
        ("json: / rows / [raw]", "windows 10 of sum 45, 0 to 9"),
    ]
    assert sorted(read_json(json.loads(json.dumps({"rows": rows[::-1]})), "json:", "")) == sorted(
        read_json({"rows": rows}, "json:", "")
    )


def test_numbers_of_text_stand_behind_the_first_words_of_their_line() -> None:
    text = (
        "Rows\nload  req/s\nnoop  1,234 ± 5.6\nRay 2.60.0, p50 at 08:15\n\ncommand serve-bench x 3"
    )
    assert list(read_text(text)) == [("text: Rows", "noop: 1,234 5.6")]
