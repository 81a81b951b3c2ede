"""What the report of a comparison says, of easy numbers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.analysis.comparing import floors_of, of_runs, of_versus
from serve_bench.core.facts import HopTimes, WaterfallFacts
from serve_bench.core.result import Failure, Launch, result_of
from serve_bench.view.comparison import view_comparison
from tests.records import AT, ROWS, failure_of
from tests.rendering import render, render_comparing
from tests.versus_records import micro_result, one_launch, rates, sliced, versus_result, versus_run

ROW = ROWS[2]
TWINS = ("default (A)", "default (B)")
FAILURE = Failure("trial", "no answer within 5 s", AT, variant="optimized", round=3)


def test_a_failure_is_said_once() -> None:
    result = versus_result({ROW: rates(580.0, 520.0)}, b={"failed": 3}, others=[FAILURE])
    assert render(result, verbose=True).count(FAILURE.message) == 1
    before = micro_result({ROW: [580, 590, 570]})
    after = micro_result({ROW: [290, 305]}, "after", variants=("optimized",), others=[FAILURE])
    assert render_comparing(of_runs(before, after)).count(FAILURE.message) == 1
    result = versus_result()
    struck = replace(result, failures=(failure_of(result.trials[3], "raylet 7 ended"),))
    assert render(struck).count("raylet 7 ended") == 1


def test_a_comparison_fits_a_screen() -> None:
    result = versus_result({ROW: rates(580.0, 590.0, wobble=9.0)}, b={"failed": 3})
    lines = render(result).splitlines()
    assert "inconclusive" in lines[0] and len(lines) <= 25 and max(map(len, lines)) <= 80


def test_the_floor_raises_thresholds_and_is_said() -> None:
    noise = of_versus(versus_result({ROW: rates(580.0, 580.0, wobble=15.0)}, labels=TWINS))
    floors, run = floors_of(noise), noise.sides[0].run.id
    found = of_versus(versus_result({ROW: rates(580.0, 520.0)}, floors=floors, noise=run))
    raised = floors["throughput"]
    assert raised > 0.1
    assert view_comparison(found).comparisons[0].value("alarm_threshold") == raised
    text = " ".join(render_comparing(found).split())
    assert f"Noise floor of run {run}: throughput {100 * raised:.3g} %" in text


def test_commit_sources_and_packages_of_each_side_and_what_differs_are_said() -> None:
    result = versus_result()
    code = {
        "default": ({"commit": "abc1234" + "0" * 33, "changes": 0, "sources": "9" * 64}, "6.33"),
        "optimized": ({"commit": "def5678" + "0" * 33, "changes": 2, "sources": "7" * 64}, "7.1"),
    }

    def proof(launch: Launch) -> dict[str, Any]:
        app, protobuf = code[launch.variant.name]
        packages = ["click==8.3", "keyring==1.0", f"protobuf=={protobuf}"]
        return {**launch.proof, "app": app, "packages": packages}

    launches = tuple(replace(launch, proof=proof(launch)) for launch in result.launches)
    verdict, _, b = json.loads(render(replace(result, launches=launches), "json"))["points"]
    assert verdict["dims"]["differs"] == [
        "app commit abc1234 -> def5678 (2 uncommitted changes)",
        "app sources 99999999 -> 77777777",
        "protobuf 6.33 -> 7.1",
    ]
    # No secret, despite its name.
    assert b["dims"]["launches"][0]["proof"]["packages"][1] == "keyring==1.0"


def test_rounds_that_failed_are_missing_aloud() -> None:
    run = versus_run()
    kept = [at for at in run.plan if not (at.variant == "optimized" and at.round > 4)]
    trials = [sliced(at, 580.0 if at.variant == "default" else 6800.0) for at in kept]
    text = " ".join(render(result_of([run, *trials])).split())
    assert "11.7 times as fast as default (11.7 to 11.7): improved, 4 of 6 rounds" in text
    assert "! 4 of 6 rounds measured" in text
    nothing = result_of([run, one_launch("default", 1)])
    assert "inconclusive, throughput not measured, 0 of 6 rounds" in render(nothing, "markdown")


def test_the_hop_in_which_the_difference_is() -> None:
    """B waits 10 ms longer at the router, and a hop that it lacks is a hop of 0 ms."""

    def fall(at: int, router: float, **more: float) -> WaterfallFacts:
        hops = {"router": router + at / 10, "user code": 5.0, **more}
        times = {name: HopTimes(mean=round(ms * 1e6)) for name, ms in hops.items()}
        return WaterfallFacts(total=HopTimes(mean=round(sum(hops.values()) * 1e6)), hops=times)

    plain = versus_result({ROWS[0]: rates(325.0, 300.0)})
    falls = {"default": lambda at: fall(at, 1.0, proxy=2.0), "optimized": lambda at: fall(at, 11.0)}
    trials = [replace(trial, waterfall=falls[trial.variant](trial.round)) for trial in plain.trials]
    result = result_of([plain.run, *plain.launches, *trials])
    text = " ".join(render(result, width=120).split())
    assert "B takes 8.00 ms more than A, 10.0 of them router (10.0 to 10.0)" in text
    rows = view_comparison(of_versus(result)).comparisons
    router = next(row for row in rows if row.dims.get("hop") == "router")
    assert router.value("hop_grown") == pytest.approx(10e6)
    assert not any("hop" in row.dims for row in view_comparison(of_versus(plain)).comparisons)
