from collections.abc import Sequence
from typing import Any

import pytest

from serve_bench.analysis.slo import Judgement, RowSlo, judge
from serve_bench.analysis.statistics import CENSORED, LATENCY, LowerBound
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Metric, Trial
from serve_bench.core.slo import Objective, parse_slo
from tests.cases import cases
from tests.records import planned, trial

MS = 1_000_000


def measured(
    *latencies_ms: float,
    failed: dict[str, int] | None = None,
    timeouts_ms: Sequence[float] = (),
    in_flight: int = 0,
) -> Trial:
    """Make a trial with these answers; `timeouts_ms`: waits of those that had none."""
    metrics = {"throughput": Metric("requests/s", "higher", windows=(1.0,))}
    for name, values in ((LATENCY, latencies_ms), (CENSORED, timeouts_ms)):
        if values:
            histogram = Histogram.of(round(value * MS) for value in values)
            metrics[name] = Metric("ns", "lower", histogram=histogram.encode())
    within = {"sent": 0, "completed": 0, "failed": {}, "in_flight": 0}
    about: dict[str, Any] = {"failed": failed, "in_flight": in_flight, "metrics": metrics}
    return trial(planned(), done=len(latencies_ms), client={"in_windows": within}, **about)


def judged(text: str, *trials: Trial) -> Judgement:
    return judge(parse_slo(text), trials)[0]


@cases(
    "text, met, value, margin, words",
    ("p50=20ms", True, 10e6, 0.5, "p50 10 ms is within 20 ms (+50.0 %)"),
    ("p99=20ms", False, 30e6, -0.5, "p99 30 ms is above 20 ms (-50.0 %)"),
    ("p90=12.5ms", True, 10e6, 0.2, "p90 10 ms is within 12.5 ms (+20.0 %)"),
    ("mean=10ms", False, 11e6, -0.1, "mean 11 ms is above 10 ms"),
    ("errors=10%", True, 0.1, 0.0, "errors 10 % is within 10 % (+0.000 %)"),
    ("errors=5%", False, 0.1, -1.0, "errors 10 % is above 5 % (-100 %)"),
    ("errors=0", False, 0.1, None, "errors 10 % is above 0 %"),
    ("errors.status=5%", True, 0.04, 0.2, "errors.status 4 % is within 5 % (+20.0 %)"),
    ("goodput=80%@10ms", True, 0.855, 0.055, "goodput 85.5 % is not below 80 % (+5.50 points)"),
    ("goodput=90%@29ms", False, 0.855, -0.045, "goodput 85.5 % is below 90 % (-4.50 points)"),
    ("goodput=90%@31ms", True, 0.9, 0.0, "goodput 90 % is not below 90 % (+0.000 points)"),
)
def test_figures_are_those_of_all_launches(
    text: str, met: bool, value: float, margin: float | None, words: str
) -> None:
    """180 answers of 200 requests: 171 in 10 ms, 9 in 30 ms; 8 with a status, 12 reset."""
    first = measured(*[10.0] * 95, failed={"status": 5})
    second = measured(*[10.0] * 76, *[30.0] * 9, failed={"status": 3, "reset": 12})
    judgement = judged(text, first, second)
    assert judgement.met is met and judgement.word == ("met" if met else "missed")
    assert judgement.value == pytest.approx(value, rel=0.001)
    assert judgement.margin == (None if margin is None else pytest.approx(margin, abs=0.001))
    assert judgement.text.startswith(words)


@cases(
    "text, met, words",
    ("p99=50ms", False, "p99 > 100 ms is above 50 ms (-100"),
    ("p99=1s", None, "p99 depends on 5 requests without an answer"),
    ("p90=1s", True, "p90 20 ms is within 1 s"),
    ("mean=5ms", False, "mean > 16 ms is above 5 ms"),
    ("mean=1s", None, "mean depends on 5 requests without an answer"),
)
def test_a_lower_bound_is_missed_or_not_judged(text: str, met: bool | None, words: str) -> None:
    """95 of 100 are answered: percentiles up to p95 are known, the mean and those above are not."""
    judgement = judged(
        text, measured(*[10.0] * 80, *[20.0] * 15, timeouts_ms=[100.0] * 5, failed={"timeout": 5})
    )
    assert judgement.met is met and judgement.text.startswith(words)
    assert isinstance(judgement.value, LowerBound) == (text != "p90=1s")


@cases(
    "text, of, why",
    ("p99=1s", [measured(*[1.0] * 99)], "p99 needs 100 requests, 99 were measured"),
    ("p99.9=1s", [measured(*[1.0] * 120)] * 8, "p99.9 needs 1,000 requests, 960 were measured"),
    ("p50=1s", [measured(failed={"reset": 9})], "no request was answered"),
    ("goodput=5%@1s", [measured()], "no request was measured"),
    ("errors=1%", [measured()], "no request was measured"),
    ("p50=1s", [], "not measured"),
    ("itl_p50=1s", [measured(1.0)], "no itl was measured"),
)
def test_what_the_trials_cannot_decide_is_not_judged(text: str, of: list[Trial], why: str) -> None:
    found = judged(text, *of)
    assert found.word == "not judged" and found.met is found.value is found.margin is None
    assert found.text == found.why_not == why and found.value_text == found.margin_text == "-"


def test_of_requests_without_an_answer_and_values_just_above_the_limit() -> None:
    trial = measured(*[10.0] * 90, failed={"timeout": 4}, in_flight=6)
    assert judged("errors=10%", trial).value == pytest.approx(0.1)
    assert judged("errors.timeout=10%", trial).value == pytest.approx(0.04)
    assert judged("goodput=50%@1s", trial).value == pytest.approx(0.9)
    objective = Objective("p99", "percentile", 50e6, share=0.99)
    assert Judgement(objective, 50.02e6, False, -0.0004).value_text == "50.02 ms"
    assert Judgement(objective, 61.234e6, False, -0.2).value_text == "61.2 ms"
    # The 90th of 100 took 10 ms or, were two endless, 12 ms: a lower bound may be met.
    trial = measured(*[10.0] * 89, *[12.0] * 9, timeouts_ms=[1.0] * 2)
    near, far = judged("p90=11ms", trial), judged("p90=12.1ms", trial)
    assert (near.met, far.met) == (None, True)
    assert isinstance(far.value, LowerBound) and far.margin is None
    assert far.text == "p90 > 10 ms is within 12.1 ms"


def test_a_row_is_as_its_worst_objective() -> None:
    trials = [measured(*[10.0] * 99, failed={"status": 1})]

    def row(text: str) -> RowSlo:
        return RowSlo("row", judge(parse_slo(text), trials))

    assert row("p50=20ms,errors=2%").word == "met"
    assert row("p50=20ms,errors=1%").worst.objective.name == "errors"  # nothing of it is left
    assert row("p50=20ms,p99=1s").word == "not judged"
    missed = row("p50=5ms,p90=4ms,p99=1s")
    assert missed.word == "missed" and missed.worst.objective.name == "p90"
    assert row("errors=0,p99=1s").word == "missed"
