"""How failed requests are told: counts, classes and statuses that cannot be mixed up."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from serve_bench.core.failed_requests import failures, failures_of, none_succeeded
from tests.records import planned, trial


@pytest.mark.parametrize(
    ("failed", "statuses", "told"),
    [
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
    ],
)
def test_counts_classes_and_statuses(
    failed: dict[str, int], statuses: dict[int, int], told: str
) -> None:
    said = failures(failed, statuses)
    assert said.startswith(told) and bool(said) == bool(told)


def test_over_trials_statuses_are_added_up_as_they_were_stored() -> None:
    one = trial(planned(), failed={"status": 2}, client={"status_codes": {"500": 2, "200": 5}})
    other = trial(planned(), failed={"reset": 1})
    assert failures_of([one, one, other]) == "4 with status 500, 1 reset"


def test_what_was_seen_follows_its_class_or_status() -> None:
    client = {"status_codes": {"500": 2}, "seen": {"500": "HTTP/1.1 500 No: x", "reset": "y"}}
    of_two = trial(planned(), failed={"status": 2, "timeout": 1}, client=client)
    assert failures_of([of_two]) == "2 with status 500 (such as: HTTP/1.1 500 No: x), 1 timed out"


def test_a_trial_without_a_completed_request() -> None:
    rejected = trial(planned(), failed={"status": 2}, client={"status_codes": {"408": 2}})
    rejected = replace(rejected, counts=replace(rejected.counts, completed=0))
    assert none_succeeded(rejected) == "no request succeeded: 2 with status 408"
    within = asdict(replace(rejected.counts, completed=2))
    before = replace(rejected, client={**rejected.client, "in_windows": within})
    assert none_succeeded(before).startswith("no request that began in the windows succeeded: 2 ")
    silent = replace(rejected, counts=replace(rejected.counts, failed={}))
    assert none_succeeded(silent) == "no request succeeded: none was answered in time"
