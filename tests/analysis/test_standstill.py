"""A service that answers no more from some moment on: two states, of which none has a mean."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from serve_bench.analysis.checks import TRIAL_CHECKS
from serve_bench.analysis.statistics import MAIN, silent_from, summarize
from serve_bench.analysis.verdict import limited_by, worth_a_look
from serve_bench.benchmarks.timeline.summary import _drops
from serve_bench.core.result import Trial, result_of
from tests.records import run
from tests.verdict_trials import IDLE, measured

BEFORE = [50.0, 48.0, 52.0, 19.0]
"""The service stops in the last of these windows."""


def stopped(*rates: float, failed: int = 8, latency_ms: float = 160.0) -> Trial:
    """Windows of 1 s with these rates; so many requests had no answer."""
    trial = measured(8, 50, IDLE, latency_ms=latency_ms, failed=failed)
    metric = replace(trial.metrics[MAIN], windows=rates)
    return replace(trial, metrics={**trial.metrics, MAIN: metric})


STOPPED = stopped(*BEFORE, *[0.0] * 6)


@pytest.mark.parametrize(
    ("trial", "window"),
    [
        (STOPPED, 4),
        (stopped(*BEFORE, 0.0), None),  # the next answer may be due
        (stopped(*BEFORE, *[0.0] * 6, failed=0), None),  # all were answered after the windows
        (stopped(*BEFORE, *[0.0] * 6, latency_ms=4000), None),  # responses that take so long
        (stopped(*BEFORE, *[0.0] * 5, 1.0), None),
        (stopped(*[0.0] * 6), None),
        # Of a load over time nothing was due in the last five seconds.
        (replace(STOPPED, course={"due": [50] * 5 + [0] * 5}), None),
        (replace(STOPPED, course={"due": [50] * 10}), 4),
    ],
)
def test_from_when_on_nothing_succeeds(trial: Trial, window: int | None) -> None:
    assert silent_from(trial) == window


def test_the_rate_is_of_the_time_before_and_a_warning_says_so() -> None:
    (line,) = summarize(result_of([run(), STOPPED]))
    assert line.spreads[MAIN].mean == 50 and line.spreads[MAIN].windows == 3
    warnings = {one.code: one.message for check in TRIAL_CHECKS for one in check(STOPPED)}
    assert warnings["standstill"] == "no request succeeded from second 4 to the end (6 s)"
    assert "unsteady-windows" not in warnings


def test_the_verdict_says_where_all_requests_wait() -> None:
    assert worth_a_look(STOPPED) and not worth_a_look(replace(STOPPED, usage={}))
    assert limited_by(STOPPED).text == "unclear: no request succeeded from second 4 to the end"
    queue = {"most": 8, "wait_s": 0.01, "waiting": 0.0, "running": 0.0, "held": 7.0}
    replica = {
        **{"app": "app", "deployment": "NoOp", "looks": 16, "ongoing": 8.0, "served": 0},
        "places": [["serve.batch Model.predict", "model.py:9", "Model.__call__", 8.0]],
        "batches": {"predict": {**queue, "ended": "KeyError: 'size'"}},
    }
    trial = replace(STOPPED, waits={"seconds": 0.8, "replicas": [replica]})
    verdict = limited_by(trial)
    assert (verdict.cause, verdict.confidence) == ("app wait", "medium")
    assert verdict.figures == (
        "a standstill from second 4 to the end: the batch queue of predict, in which 8 requests "
        "wait at model.py:9: Serve's loop that makes its batches ended with KeyError: 'size'"
    )
    launch = SimpleNamespace(
        trial=replace(trial, course={"due": [50] * 10, "ended": [50] * 4 + [0] * 6}),
        transient=SimpleNamespace(out=()),
    )
    one: Any = SimpleNamespace(launches=[launch])
    assert list(_drops(one)) == [f"it is limited by {verdict.text}"]
