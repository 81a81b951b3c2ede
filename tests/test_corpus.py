"""What machines read of the stored runs, and help, plans and refusals, is byte for byte as kept.

Where a change is meant, `scripts/corpus write` keeps the new outputs; the commit
says why they changed. scripts/corpus.py says what is kept.
"""

from __future__ import annotations

import functools

import pytest

from scripts.corpus import Output, cases, differences, outputs_of, read_corpus

EVERY = list(cases())
GROUPS = [
    # Of the stored runs one is enough for `make test`.
    pytest.param(one, marks=[pytest.mark.long] if one[:2] == "1-" and one != "1-micro" else [])
    for one in dict.fromkeys(case.group for case in EVERY)
]


@functools.cache
def kept() -> dict[str, Output]:
    return read_corpus()


@pytest.mark.parametrize("group", GROUPS)
def test_outputs_are_as_kept(group: str) -> None:
    some = [case for case in EVERY if case.group == group]
    lines = [
        line for name, now in outputs_of(some) for line in differences(kept()[name], now, name)
    ]
    assert not lines, "\n".join(lines[:200])


def test_every_case_is_kept_and_no_other() -> None:
    assert {case.name for case in EVERY} == kept().keys()
    assert len(EVERY) == len({case.name for case in EVERY})


def test_a_difference_is_seen() -> None:
    old, new = Output(0, "p99 12 ms\n", ""), Output(2, "p99 13 ms\n", "")
    lines = list(differences(old, new, "x"))
    assert "x: exit code 0 is now 2" in lines and "-p99 12 ms" in lines and "+p99 13 ms" in lines
    assert list(differences(old, old, "x")) == []
