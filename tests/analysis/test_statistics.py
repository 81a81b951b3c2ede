from collections.abc import Sequence
from dataclasses import replace

import pytest

from serve_bench.analysis.statistics import Line, best, spread, summarize
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Record, result_of
from tests.cases import cases
from tests.records import ROWS, cell, planned, run, trial

FIRST = planned()


def lines_of(*records: Record) -> tuple[Line, ...]:
    return summarize(result_of(records))


def test_mean_and_std_are_those_of_the_published_benchmark() -> None:
    # 90, 100, 110: mean 100; variance with ddof 0 is (100 + 0 + 100) / 3.
    figures = spread({1: (90.0, 100.0, 110.0)})
    assert figures.value == 100.0
    assert figures.std == pytest.approx((200 / 3) ** 0.5)
    assert (figures.windows, figures.launches, figures.launch_std) == (3, {1: 100.0}, None)
    # Means 100 and 120: mean of launches 110, std over launches (ddof 1) 14.14; windows within
    # a launch spread by 10 and 20: the root of the mean variance is sqrt((100 + 400) / 2).
    figures = spread({1: (90.0, 110.0), 2: (100.0, 140.0)})
    assert figures.value == 110.0
    assert figures.launch_std == pytest.approx(200**0.5)
    assert figures.std == pytest.approx(250**0.5)
    assert (figures.windows, figures.launches) == (4, {1: 100.0, 2: 120.0})


def test_percentiles_come_from_the_merged_histograms_of_all_launches() -> None:
    first, second = planned(round_=1), planned(round_=2)
    ms = 1_000_000
    fast = Histogram.of([1 * ms] * 50).encode()
    slow = Histogram.of([2 * ms] * 40 + [5 * ms] * 10).encode()
    (line,) = lines_of(run(first, second), trial(first, latency=fast), trial(second, latency=slow))
    found = line.distributions["latency"]
    assert (found["count"], found["max"], line.status) == (100, 5 * ms, "measured")
    shares = tuple(found[name] for name in ("p50", "p90", "p99", "mean"))
    assert shares == pytest.approx((1 * ms, 2 * ms, 5 * ms, 1.8 * ms), rel=0.001)
    (line,) = lines_of(run(FIRST), trial(FIRST, latency=Histogram().encode()))
    assert line.distributions == {}  # an empty histogram gives none


def test_what_was_not_measured_has_a_line_all_the_same() -> None:
    second = planned(round_=2)
    missing = planned(row=ROWS[1])
    whole, none = lines_of(run(FIRST, missing), trial(FIRST))
    assert (whole.status, none.status) == ("measured", "not measured")
    assert none.keys == (missing.key,)
    assert none.spreads == {} and none.completed == 0
    (part,) = lines_of(run(FIRST, second), trial(FIRST))
    assert part.status == "partly measured"
    (line,) = lines_of(run(), trial(FIRST, 7.0))  # without a plan
    assert (line.status, line.spreads["throughput"].value) == ("measured", 7.0)


def test_a_profiled_trial_enters_no_mean() -> None:
    plain, profiled = lines_of(run(FIRST), trial(FIRST, 100.0), trial(FIRST, 1.0, profiled=True))
    assert plain.spreads["throughput"].value == 100.0
    assert (profiled.status, profiled.spreads["throughput"].value) == ("profiled", 1.0)
    assert profiled.ratio is None
    # The ratio is to the first variant, row by row.
    plan = [planned(name, row) for name in ("default", "optimized") for row in ROWS[:2]]
    records = [trial(at, rate) for at, rate in zip(plan, (100.0, 200.0, 300.0, 100.0), strict=True)]
    assert [line.ratio for line in lines_of(run(*plan), *records)] == [None, None, 3.0, 0.5]
    # Without the base, or with a base of 0, there is no ratio.
    assert lines_of(run(*plan), *records[2:])[2].ratio is None
    zero = [trial(plan[0], 0.0), trial(plan[2], 5.0)]
    assert lines_of(run(plan[0], plan[2]), *zero)[1].ratio is None
    # Failures are added by class, the most frequent first.
    first, second = planned(round_=1), planned(round_=2)
    failing = trial(first, failed={"reset": 1, "timeout": 1, "status": 0})
    (line,) = lines_of(run(first, second), failing, trial(second, failed={"timeout": 4}))
    assert list(line.failed.items()) == [("timeout", 5), ("reset", 1)] and line.errors == 6


def lines(*rates: Sequence[float], failed: int | None = None) -> tuple[Line, ...]:
    """Make a cell for each sequence of rates, one per launch; that at index `failed` had errors."""
    trials = []
    for at, launches in enumerate(rates):
        for round_, rate in enumerate(launches, 1):
            of = planned(of=cell(replicas=at + 1), round_=round_)
            errors = {"status": 3} if at == failed else None
            trials.append(trial(of, rate, rate, failed=errors))
    return summarize(result_of([run(), *trials]))


def replicas(line: Line) -> int:
    return int(line.cell["num_replicas"])


@cases(
    "rates, failed, found",
    (([100.0], [96.0], [95.0], [50.0]), None, [1, 2]),  # 100 <= 1.05 * 96, and not 1.05 * 95
    (([100.0, 101.0, 99.0], [80.0, 81.0, 79.0]), None, [1]),
    (([80, 100, 120], [70, 80, 90]), None, [1, 2]),  # launches that differ
    (([80.0, 120.0], [70.0, 90.0]), None, [1]),  # with two it is the windows that tell
    (([100.0], [300.0]), 1, [1]),  # another has no errors
    (([100.0], [300.0]), None, [2]),
    (([100.0],), None, []),
    ((), None, []),
)
def test_cells_that_cannot_be_told_from_the_best(
    rates: tuple[list[float], ...], failed: int | None, found: list[int]
) -> None:
    assert [replicas(line) for line in best(lines(*rates, failed=failed))] == found
    first, second, third = lines([100.0], [300.0], [200.0])  # never that of a broken cluster
    assert best([first, replace(second, broken=True), third])[0] is third
    # Windows that spread keep cells from being told apart.
    rough = result_of([run(), trial(planned(of=cell(replicas=1)), 40.0, 56.0, 70.0)])
    other = trial(planned(of=cell(replicas=2)), 33.0, 47.0, 60.0)
    alike = best(summarize(replace(rough, trials=(*rough.trials, other))))
    assert [replicas(line) for line in alike] == [1, 2]
