"""What is done with each row, fresh and resumed, and how long it takes."""

from dataclasses import replace

import pytest

from serve_bench.core.plan import Suite, expected_s, plan
from serve_bench.core.result import Failure, PlannedTrial, Result, Trial, result_of
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.runner.agenda import PROFILING_S, Agenda, rest_of
from tests.records import AT, run, trial

KEPT = ({"role": "replica", "pid": 1, "path": "x", "samples": 9},)
FAILED = ({"role": "replica", "pid": 1, "failed": "was idle"},)


def suite() -> Suite:
    flags = Overrides(
        variants=("default",), matrix={"max_ongoing_requests": (1, 100)}, clients=("1", "raw:100")
    )
    return read_suite({}, "x.toml", flags)


ROWS = [row for launch in plan(suite()) for _, rows in launch.cells for row in rows]


def earlier(*records: Trial | Failure) -> Result:
    return result_of([run(*ROWS), *records])


def work_of(agenda: Agenda) -> list[list[tuple[PlannedTrial, bool]]]:
    """What is done in each cell: rows, and whether they are profiled."""
    return [agenda.of(rows) for launch in agenda.launches for _, rows in launch.cells]


def test_a_fresh_run_measures_each_cell_and_then_profiles_it() -> None:
    launches = plan(suite())
    ((_, rows), _) = launches[0].cells
    assert Agenda(suite(), launches).of(rows) == [(rows[0], False), (rows[1], False)]
    assert Agenda(suite(), launches, profile=True).of(rows) == [
        *((rows[0], False), (rows[1], False)),
        *((rows[0], True), (rows[1], True)),
    ]
    loads = Agenda(suite(), launches, profile=True).loads()
    assert [profiled for _, profiled in loads] == [False, False, True, True] * 2


def test_the_time_left_counts_profiled_repetitions() -> None:
    launches = plan(suite())
    plain, both = Agenda(suite(), launches), Agenda(suite(), launches, profile=True)
    assert plain.expected_s() == pytest.approx(expected_s(suite(), launches))
    rows_s = sum(plain.expected_load_s(False, planned.row) for planned in ROWS)
    assert both.expected_s() == pytest.approx(plain.expected_s() + rows_s + 4 * PROFILING_S)
    behind = replace(both, measured=frozenset(row.key for row in ROWS))
    assert behind.expected_s() == pytest.approx(both.expected_s() - rows_s)
    assert plain.expected_s([]) == 0


def test_resuming_does_what_is_missing_alone() -> None:
    measured = [trial(row) for row in ROWS[:3]]
    with_stacks = replace(trial(ROWS[0], profiled=True), profiles=KEPT)
    without_stacks = replace(trial(ROWS[1], profiled=True), profiles=FAILED)
    run_before = earlier(*measured, with_stacks, without_stacks)
    plain = rest_of(run_before, suite(), profile=False)
    assert work_of(plain) == [[(ROWS[3], False)]]
    both = rest_of(run_before, suite(), profile=True)
    assert work_of(both) == [
        [(ROWS[1], True)],
        [(ROWS[3], False), (ROWS[2], True), (ROWS[3], True)],
    ]
    assert [profiled for _, profiled in both.loads()] == [True, False, True, True]


def test_a_row_in_doubt_is_measured_again_and_a_whole_run_leaves_nothing() -> None:
    measured = [trial(row) for row in ROWS]
    doubt = Failure("worker", "a worker died", AT, key=ROWS[2].key)
    again = rest_of(earlier(*measured, doubt), suite(), profile=False)
    assert work_of(again) == [[(ROWS[2], False)]]
    assert rest_of(earlier(*measured), suite(), profile=False).launches == ()
    profiles = [replace(trial(row, profiled=True), profiles=KEPT) for row in ROWS]
    assert rest_of(earlier(*measured, *profiles), suite(), profile=True).launches == ()
    # A profile that was broken off is recorded again.
    broken_off = replace(profiles[1], flags={**profiles[1].flags, "interrupted": True})
    before = earlier(*measured, profiles[0], broken_off, *profiles[2:])
    assert work_of(rest_of(before, suite(), profile=True)) == [[(ROWS[1], True)]]
