from serve_bench.core.result import Failure, Record, Resume, cell_slug, result_of, trial_key
from tests.cases import cases
from tests.records import AT, ROWS, cell, planned, run, trial

FIRST, SECOND = planned(row=ROWS[0]), planned(row=ROWS[1])
RESUME = Resume(argv=("serve-bench",), started_at=AT)


def test_a_profiled_trial_neither_replaces_nor_counts_as_measured() -> None:
    result = result_of([run(FIRST), trial(FIRST, 1.0), RESUME, trial(FIRST, 2.0)])
    assert [one.metrics["throughput"].windows for one in result.trials] == [(2.0,)]  # the latest
    result = result_of([run(FIRST, SECOND), trial(FIRST, 1.0), trial(FIRST, 9.0, profiled=True)])
    assert [one.metrics["throughput"].windows for one in result.trials] == [(1.0,)]
    assert len(result.profiled) == 1
    alone = result_of([run(FIRST), trial(FIRST, 9.0, profiled=True)])
    assert alone.missing == (FIRST,)


def test_complete_needs_every_trial_and_no_failure() -> None:
    result = result_of([run(FIRST, SECOND, third := planned(row=ROWS[2])), trial(SECOND)])
    assert result.missing == (FIRST, third) and not result.complete
    assert result_of([run(FIRST), trial(FIRST)]).complete
    worker = Failure("worker", "worker 1 died", AT, key=FIRST.key)
    assert not result_of([run(FIRST), worker, trial(FIRST)]).complete
    # A launch that broke off is mended by measuring the rest.
    failure = Failure("launch", "the cluster ended", AT, variant="default", round=1)
    start: list[Record] = [run(FIRST, SECOND), trial(FIRST), failure, RESUME]
    assert result_of(start).failures == (failure,)
    assert result_of([*start, trial(SECOND)]).complete
    left = Failure("teardown", "1 process left", AT)  # is never mended
    assert result_of([run(FIRST), left, RESUME, trial(FIRST)]).failures == (left,)


@cases(
    "failure",
    Failure("trial", "no answer", AT, key=FIRST.key),
    Failure("launch", "no start", AT, variant="default", round=1),
    Failure("deploy", "no replica", AT, variant="default", round=1, cell=cell()),
    ids=lambda failure: failure.what,
)
def test_a_failure_is_mended_only_by_measuring_after_a_resume(failure: Failure) -> None:
    same_sitting = result_of([run(FIRST), failure, trial(FIRST)])
    assert same_sitting.failures == (failure,)
    resumed = result_of([run(FIRST), failure, RESUME, trial(FIRST)])
    assert (resumed.failures, resumed.mended) == ((), (failure,))
    halfway = result_of([run(FIRST, SECOND), failure, RESUME, trial(SECOND)])
    assert halfway.failures == (failure,)


def test_keys_are_stable_and_tell_cells_apart() -> None:
    assert trial_key("default", 1, cell(1, 10000, 8), "100 connections") == (
        "default/r1/bs1-ongoing10000-rep8/100-connections"
    )
    assert cell_slug({"num_replicas": 2, "b": 1, "a": "x"}) == "rep2-a=x-b=1"
    assert cell_slug({}) == "app"
    assert cell_slug({**cell(), "body_type": "str"}) == "bs1-ongoing1-rep1-body_type=str"
