"""Which cell is the best, and which are not clearly slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serve_bench.analysis.statistics import Line, best, summarize
from serve_bench.core.result import result_of
from tests.records import cell, planned, run, trial


def lines(*rates: Sequence[float], failed: int | None = None) -> tuple[Line, ...]:
    """A cell for each sequence of rates, one rate a launch; that at index `failed` had errors."""
    trials = []
    for at, launches in enumerate(rates):
        for round_, rate in enumerate(launches, 1):
            of = planned(of=cell(replicas=at + 1), round_=round_)
            errors = {"status": 3} if at == failed else None
            trials.append(trial(of, rate, rate, failed=errors))
    return summarize(result_of([run(), *trials]))


def replicas(line: Line) -> int:
    return int(line.cell["num_replicas"])


def test_a_row_of_a_broken_cluster_is_never_the_best() -> None:
    first, second, third = lines([100.0], [300.0], [200.0])
    found = best([first, replace(second, broken=True), third])
    assert found is not None and found.line is third


def test_cells_within_five_percent_are_like_it() -> None:
    found = best(lines([100.0], [96.0], [95.0], [50.0]))
    assert found is not None and replicas(found.line) == 1
    assert [replicas(one) for one in found.like] == [2]  # 100 <= 1.05 * 96, and not 1.05 * 95


def test_launches_that_differ_keep_cells_from_being_told_apart() -> None:
    apart, close = ([100.0, 101.0, 99.0], [80.0, 81.0, 79.0]), ([80, 100, 120], [70, 80, 90])
    found = best(lines(*apart))
    assert found is not None and found.alone
    found = best(lines(*close))
    assert found is not None and not found.alone


def test_with_two_launches_it_is_the_windows_that_tell() -> None:
    found = best(lines([80.0, 120.0], [70.0, 90.0]))  # each launch with two equal windows
    assert found is not None and found.alone


def test_windows_that_spread_keep_cells_from_being_told_apart() -> None:
    rough = result_of([run(), trial(planned(of=cell(replicas=1)), 40.0, 56.0, 70.0)])
    other = trial(planned(of=cell(replicas=2)), 33.0, 47.0, 60.0)
    found = best(summarize(replace(rough, trials=(*rough.trials, other))))
    assert found is not None and replicas(found.line) == 1
    assert not found.alone


def test_a_row_with_errors_is_not_the_best_while_another_has_none() -> None:
    found = best(lines([100.0], [300.0], failed=1))
    assert found is not None and replicas(found.line) == 1
    assert best(lines([100.0], [300.0], failed=None)) is not None


def test_one_row_has_no_best() -> None:
    assert best(lines([100.0])) is None
    assert best(()) is None
