"""The page of a run of ladders: its figures are those of the JSON, knees and collapses marked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from serve_bench.analysis.climb import Climb
from serve_bench.benchmarks.parts.charts import AT_LEAST
from serve_bench.core.histogram import Histogram
from serve_bench.core.ladder import Ladder
from serve_bench.core.result import Metric, Result, Trial, result_of
from serve_bench.report.vega import vega
from tests.records import cell as cell_of
from tests.records import launch, run, trial
from tests.sheet_parts import as_lines, chart, is_sound, ladder_sheet, section

RATES = {10: 100.0, 20: 180.0, 30: 196.0, 40: 200.0, 50: 150.0}
LADDER = Ladder(steps=tuple(RATES))


def steps(
    variant: str = "default", rates: Mapping[int, float] = RATES, replicas: int = 1, **about: Any
) -> list[Trial]:
    """Steps of two windows each; latencies as Little's law has them, p99 three times p50."""
    climb = Climb(LADDER, variant, 1, cell_of(replicas=replicas))
    out = []
    for users, rate in rates.items():
        ns = round(1e9 * users / rate)
        histogram = Histogram.of([ns] * 97 + [3 * ns] * 3).encode()
        windows = (0.9 * rate, 1.1 * rate)
        out.append(trial(climb.planned(users), *windows, latency=histogram, **about))
    return out


def result(*trials: Trial, others: Any = (), command: str = "sweep") -> Result:
    plan = [
        climb.planned(users)
        for climb in (Climb(LADDER, "default", 1, cell_of()),)
        for users in RATES
        if any(one.variant == "default" for one in trials)
    ]
    suite = {"ladder": asdict(LADDER), "name": "micro"}
    begun = replace(run(*plan), suite=suite, command=command)
    return result_of([begun, launch(), *trials, *others])


def test_without_a_sound_step_no_figure_is_claimed() -> None:
    made = result(*steps(rates=dict.fromkeys(RATES, 0.0001), failed={"reset": 50}))
    sheet = ladder_sheet(made, None)
    is_sound(sheet)
    assert "No valid step: there is no knee and no best." in as_lines(sheet.findings)
    begun = ladder_sheet(result(*steps(rates={10: 100.0})), None)
    assert "No ladder is complete: there is no knee and no best." in as_lines(begun.findings)
    nothing = ladder_sheet(result(), None)
    is_sound(nothing)
    assert section(nothing, "throughput") is None


def test_a_latency_that_is_only_a_lower_bound_has_an_arrow_that_is_explained() -> None:
    """With 50 users a tenth of the requests got no answer in 30 s."""
    made = steps()
    given_up = Histogram.of([30_000_000_000] * 10).encode()
    metrics = {**made[-1].metrics, "censored": Metric("ns", "lower", histogram=given_up)}
    made[-1] = replace(made[-1], metrics=metrics)
    latency = chart(ladder_sheet(result(*made), None), "Latency over users")
    marked = [(one["x"], one["group"]) for one in vega(latency)["data"]["values"] if "least" in one]
    assert marked == [(50, "p99")]
    assert AT_LEAST in latency.caption and "p99: " in latency.words and "> 30,000" in latency.words
    sound = chart(ladder_sheet(result(*steps()), None), "Latency over users")
    assert "datum.least" not in json.dumps(vega(sound)) and AT_LEAST not in sound.caption
