from dataclasses import replace

from serve_bench.analysis.checks import TRIAL_CHECKS
from serve_bench.core.failed_requests import failures, failures_of, why_failed
from tests.cases import cases
from tests.records import planned, trial


@cases(
    "failed, statuses, start",
    ({"status": 205}, {408: 205}, "205 with status 408"),
    ({"status": 3, "timeout": 12}, {200: 90, 500: 3}, "12 timed out, 3 with status 500"),
    ({"status": 5}, {500: 2, 404: 3}, "3 with status 404, 2 with status 500"),
    ({"rejected": 1200}, {503: 1200}, "1,200 rejected with status 503"),
    ({"rejected": 2, "status": 1}, {503: 2, 500: 1}, "2 rejected with status 503, 1 with"),
    ({"rejected": 9}, {429: 9}, "9 rejected with status 429"),
    ({"rejected": 9, "status": 2}, {429: 7, 503: 2, 500: 2}, "9 rejected with status 503 or 4"),
    ({"rejected": 9}, {14: 9}, "9 rejected"),
    ({"status": 4}, {200: 4}, "4 with status 200"),  # another was expected
    ({"status": 4}, {200: 9, 404: 1}, "4 with another status (seen: 200, 404)"),
    ({"status": 4}, {}, "4 with another status"),
    ({"connect": 1, "node": 2, "reset": 0}, {}, "2 lost with their node, 1 without a connec"),
    ({"reset": 0}, {200: 9}, ""),
)
def test_counts_and_statuses(failed: dict[str, int], statuses: dict[int, int], start: str) -> None:
    said = failures(failed, statuses)
    assert said.startswith(start) and bool(said) == bool(start)


def test_over_trials_statuses_are_added_up_as_they_were_stored() -> None:
    lone = trial(planned(), failed={"status": 2}, client={"status_codes": {"500": 2, "200": 5}})
    other = trial(planned(), failed={"reset": 1})
    assert failures_of([lone, lone, other]) == "4 with status 500, 1 reset"
    client = {"status_codes": {"500": 2}, "seen": {"500": "HTTP/1.1 500 No: x", "reset": "y"}}
    of_two = trial(planned(), failed={"status": 2, "timeout": 1}, client=client)
    assert failures_of([of_two]) == "2 with status 500 (such as: HTTP/1.1 500 No: x), 1 timed out"


@cases(
    "failed, statuses, rate, why",
    ({"status": 2}, {"408": 2}, 0.0, "no request succeeded: 2 with status 408"),
    ({"status": 2}, {"408": 2}, 2.0, "no request that began in the windows succeeded: 2 with"),
    ({}, {}, 0.0, "no request succeeded: none was answered in time"),
    ({}, {}, 2.0, None),  # they wait for longer than the drain
    ({"rejected": 9}, {"503": 9}, 0.0, "no request succeeded: 9 rejected with status 503"),
    # By design, beside answers, however many: as where one of these began in the windows.
    ({"rejected": 9}, {"503": 9, "200": 2}, 2.0, None),
    ({"rejected": 3, "status": 2}, {"503": 3, "500": 2}, 2.0, "no request that began in the "),
)
def test_a_row_without_a_completed_request(
    failed: dict[str, int], statuses: dict[str, int], rate: float, why: str | None
) -> None:
    asked = trial(planned(), 0.0, rate, failed=failed, client={"status_codes": statuses})
    row = replace(asked, counts=replace(asked.counts, completed=0, sent=9))
    said = why_failed(row)
    assert said is None if why is None else said is not None and said.startswith(why)
    assert why_failed(asked) is None or not rate
    if failed:  # which contradicts no rate beside it
        (warning,) = (hit for check in TRIAL_CHECKS for hit in check(row) if hit.code == "errors")
        assert ("that began in the windows failed: " in warning.message) is (rate > 0)
