"""What-if of sweep and scale curve: predictions where a model holds, else why there are none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from serve_bench.analysis.climb import Climb
from serve_bench.analysis.statistics import Spread
from serve_bench.analysis.usl import UslCurve
from serve_bench.benchmarks.ladder.summary import ladder_lines
from serve_bench.benchmarks.parts.what_if import PREDICTED, point_of
from serve_bench.benchmarks.scale.summary import scale_summary
from serve_bench.cli.show import render
from serve_bench.core.ladder import Ladder
from serve_bench.core.result import Result, Trial, result_of
from tests.records import cell, run, trial
from tests.scale_records import curve_trials, planned, scale_result, scale_suite, scale_trial, usage
from tests.sheet_parts import chart, drawn, is_sound, ladder_sheet, sheet
from tests.verdict_trials import serving
from tests.versus_records import latency_of

USERS = (1, 2, 5, 10, 20, 40)
LAW = UslCurve(0.95 / 100, 0.05 / 100, 0.002 / 100)
RATES = {users: LAW.at(users) for users in USERS}
FULL_PROXY = serving((98, 1, 95), (62, 1, 60), host=175, cores=8)


def climbed(
    variant: str, at: int, rates: Mapping[int, float], seen: Mapping[str, Any]
) -> list[Trial]:
    climb = Climb(Ladder(steps=tuple(rates)), variant, at, cell(queries=10000))
    return [
        replace(
            trial(climb.planned(users), 0.99 * rate, 1.01 * rate, latency=latency_of(rate, users)),
            usage=seen,
        )
        for users, rate in rates.items()
    ]


def sweep(
    *launches: Mapping[int, float],
    seen: Mapping[str, Any] | None = None,
    variants: tuple[str, ...] = ("default",),
) -> Result:
    """A sweep that came to its end in each of these launches."""
    suite = {"ladder": asdict(Ladder(steps=tuple(launches[0])))}
    trials = [
        one
        for variant in variants
        for at, rates in enumerate(launches, 1)
        for one in climbed(variant, at, rates, seen or {})
    ]
    return result_of([replace(run(), command="sweep", suite=suite), *trials])


def what_if(result: Result, *, verbose: bool = False) -> str:
    """The text under the heading, on one line."""
    shown = render(result, width=200, verbose=verbose)
    _, heading, text = shown.partition("\nWhat if\n")
    return " ".join(text.partition("\n\n")[0].split()) if heading else ""


def test_a_sweep_predicts_its_peak_and_what_the_proxy_costs() -> None:
    text = what_if(sweep(RATES, seen=FULL_PROXY))
    assert text.startswith("prediction (USL): at most 740 requests/s at 22 users (95 %: ")
    # The best step is 20 users, 738 requests/s, the replica at 62 % of a core.
    assert "prediction: with the proxy at half its CPU per request at most 1,070 to 1,190" in text
    assert "then replica CPU limits" in text
    assert "prediction: with 2 replicas at most 738 to 753 requests/s" in text


def test_the_json_has_the_same_at_the_end_of_each_ladder() -> None:
    result = sweep(RATES, seen=FULL_PROXY)
    (made,) = json.loads(render(result, "json"))["ladders"]
    assert list(made)[-2:] == ["usl", "what_if"]
    usl, (half, twice) = made["usl"], made["what_if"]
    assert usl["holds"]
    assert usl["kappa"]["value"] == pytest.approx(0.002, rel=1e-3)
    assert usl["kappa"]["low"] < 0.002 < usl["kappa"]["high"]
    assert usl["peak"]["value"] == pytest.approx(math.sqrt(0.95 / 0.002), rel=1e-3)
    assert usl["reach"] == 80
    assert half["change"] == {"of": "proxy CPU", "demand": 0.5, "replicas": 1.0, "cores": 1.0}
    assert half["low_requests_per_s"] == pytest.approx(0.9 * half["measured_requests_per_s"] / 0.62)
    assert half["limits"] == ["replica CPU"]
    assert half["next"]["name"] == "proxy CPU"
    assert twice["doubts"][0] == "that adds nothing: proxy CPU is full already"
    for one in (usl, half, twice):
        assert one["text"] in what_if(result)


def test_the_curve_is_in_the_chart_of_requests() -> None:
    page = ladder_sheet(sweep(RATES, seen=FULL_PROXY))
    made = chart(page, "Requests/s over users")
    line = drawn(made, PREDICTED)
    assert [at for at, _ in line] == [*USERS, 80]
    assert dict(line)[80] == pytest.approx(LAW.at(80), rel=1e-3)
    is_sound(page)


def test_what_no_model_holds_for_says_why_further_down() -> None:
    flat = {users: min(100.0 * users, 800.0) for users in (1, 2, 4, 8, 16, 32)}
    result = sweep(flat)
    assert what_if(result) == ""  # nothing is predicted, so it is no result
    text = what_if(result, verbose=True)
    assert "no prediction (USL): the model does not hold: at 16 users it is 14 % off" in text
    assert (
        "no prediction: no CPU of the server limits this row (unclear: CPU was not sampled)" in text
    )
    (made,) = json.loads(render(result, "json"))["ladders"]
    assert (made["usl"]["holds"], made["usl"]["peak"]) == (False, None)
    assert made["what_if"][0]["low_requests_per_s"] is None
    page = ladder_sheet(result)
    assert PREDICTED not in as_series(chart(page, "Requests/s over users"))


def as_series(made: Any) -> list[str]:
    return list(made.drawing.series)


def test_several_ladders_each_by_its_name() -> None:
    result = sweep(RATES, seen=FULL_PROXY, variants=("default", "optimized"))
    text = what_if(result)
    assert text.count("prediction (USL)") == 2
    assert "default: prediction (USL)" in text
    assert "optimized: prediction (USL)" in text


def test_launches_give_the_error_of_a_point() -> None:
    other = {users: 1.04 * rate for users, rate in RATES.items()}
    (ladder,) = ladder_lines(sweep(RATES, other))
    (point, *_) = ladder.usl.points
    assert point.df == 1
    assert point.rate == pytest.approx(102)
    assert point.error == pytest.approx(2 / 102)  # the std of 100 and 104 over the root of 2
    windows = Spread("requests/s", "higher", 50.0, 5.0, 4, 1, None)
    assert point_of(3, [50.0], windows).error == 0.1
    assert point_of(3, [50.0], None).error == 0.0


def curve(rates: Mapping[int, float], **about: Any) -> Result:
    """A run of scale curve with one launch of each size."""
    suite = scale_suite("curve", replicas=tuple(rates))
    trials = []
    for size, rate in rates.items():
        (one,) = curve_trials(replace(suite, replicas=(size,)), {"throughput": (rate, 0.0)})
        trials.append(replace(one, **about))
    return scale_result(suite, *trials)


def test_a_curve_predicts_more_replicas_than_were_measured() -> None:
    law = UslCurve(0.97 / 100, 0.03 / 100, 0.0)
    made = curve({n: law.at(n) for n in (1, 2, 4, 8)})
    (part,) = scale_summary(made).variants
    assert part.usl.holds
    expected = f"prediction (USL): {law.at(16):,.0f} requests/s at 16 replicas (95 %: "
    assert expected.replace("1,103", "1,100") in what_if(made)
    (of_json,) = json.loads(render(made, "json"))["variants"]
    assert list(of_json)[-2:] == ["usl", "what_if"]
    assert of_json["usl"]["peak"]["high"] is None  # infinite
    page = sheet(made, None)
    assert [at for at, _ in drawn(chart(page, "Throughput"), PREDICTED)] == [1, 2, 4, 8, 16]
    is_sound(page)


def test_a_curve_bounds_its_best_size() -> None:
    made = curve({1: 100.0, 2: 110.0, 4: 105.0}, usage=usage(proxy=99.0, host=120.0))
    (part,) = scale_summary(made).variants
    assert part.best is not None
    assert part.best.replicas == 2
    assert "prediction: with the proxy at half its CPU per request at most 200 to 222" in what_if(
        made
    )


def test_only_a_curve_of_scale_has_predictions() -> None:
    suite = scale_suite("single")
    made = scale_result(suite, scale_trial(planned(suite)[0], usage=usage(proxy=99.0)))
    assert what_if(made, verbose=True) == ""
    (of_json,) = json.loads(render(made, "json"))["variants"]
    assert "usl" not in of_json
