from __future__ import annotations

import pytest

from serve_bench.analysis.checks import STATUSES, Check, CheckGroup, CheckStatus, counts, fit


def test_what_is_wrong_says_what_to_do() -> None:
    for status in ("warning", "failure", "absent"):
        with pytest.raises(ValueError, match=f"it: {status} without advice"):
            Check("it", status, "so and so")
    assert Check("it", "ok", "so").advice == Check("it", "unknown", "why").advice == ""


def test_a_failure_alone_makes_a_machine_unfit() -> None:
    def section(*statuses: CheckStatus) -> CheckGroup:
        return CheckGroup("s", tuple(Check("it", one, "value", "do") for one in statuses))

    assert fit([section("ok", "warning", "unknown", "absent")])
    assert not fit([section("ok"), section("failure")])
    assert counts([section("ok", "ok"), section("warning")]) == {
        "ok": 2,
        "warning": 1,
        "failure": 0,
        "unknown": 0,
        "absent": 0,
    }
    assert tuple(counts([])) == STATUSES
