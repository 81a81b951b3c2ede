import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from serve_bench.analysis.comparing import broken, floors_of, of_runs, of_versus
from serve_bench.analysis.comparing.model import Compared, Comparing, describe_change, row_title
from serve_bench.analysis.comparing.values import SideRow, place_of, read_values, rows_of
from serve_bench.analysis.comparing.work import compare_work
from serve_bench.analysis.ratios import Hypothesis, judge, paired
from serve_bench.cli.gate import Gate
from serve_bench.core.facts import ClientFacts, ServeMetricsFacts, TrialFlags, TrialSeconds
from serve_bench.core.figures import ratio_text
from serve_bench.core.histogram import Histogram
from serve_bench.core.result import Better, Metric, Resume, result_of
from serve_bench.core.traffic import Row
from serve_bench.view.comparison import view_comparison
from serve_bench.view.verdict_words import describe_comparing, headline
from tests.cases import cases, sure
from tests.records import ROWS, cell, changed, planned, press_trial
from tests.scale_records import scale_node
from tests.versus_records import measured, micro_result, rates, sliced, versus_result, versus_run

ROW = ROWS[2]
AT = planned("default", ROW, 1, cell(1, 10000, 8))
TWINS = ("default (A)", "default (B)")
BOUND = {"client_bound": True, "reasons": ["never idle"]}


def against(
    rate_a: float, rate_b: float, rounds: int = 6, wobble: float = 1.0, **given: Any
) -> Comparing:
    return of_versus(versus_result({ROW: rates(rate_a, rate_b, rounds, wobble)}, **given))


def test_the_value_of_a_sliced_launch_is_all_requests_over_all_time() -> None:
    trial = sliced(AT, 1000.0, cpu_us=250.0)
    for second_s, rate in ((0.1, 200.0), (0.3, 100.0)):  # not the mean of 100 and 300 by chance
        slices = sure(trial.client.slices)
        slices = structs.replace(slices, completed=(10, 30), length_s=(0.1, second_s))
        found = read_values(replace(trial, client=ClientFacts(slices=slices)))
        assert found["throughput"] == pytest.approx(rate)
    cpu_s = trial.metrics["server_cpu"].windows or (0.0,)
    assert found["cpu"] == pytest.approx(1e9 * cpu_s[0] / 40)
    # Percentiles are those of the launch.
    histogram = Histogram.of([1_000_000] * 98 + [9_000_000] * 2).encode()
    metrics = {"latency": Metric("ns", "lower", None, histogram)}
    found = read_values(replace(sliced(AT, 1000.0), metrics=metrics))
    assert (found["p50"], found["p99"]) == pytest.approx((1e6, 9e6), rel=1e-3)
    assert "cpu" not in found


def test_the_value_of_a_launch_in_windows_is_their_mean_and_the_cpu_of_the_way() -> None:
    plain = measured(AT, 500.0, cpu_percent=80.0)
    found = read_values(plain)
    assert found["throughput"] == pytest.approx(500.0)
    # Proxy and replica, 80 % of a core each, for 10 s and 5,000 requests; no controller.
    assert found["cpu"] == pytest.approx(1e9 * 2 * 0.8 * 10 / 5000)
    unknown = measured(AT, 500.0, cpu_percent=None), sliced(AT, 500.0, cpu_us=None)
    for trial in (*unknown, changed(plain, client={"nodes": [scale_node()]})):
        assert "cpu" not in read_values(trial)
    for rate in (0.0, math.nan, math.inf):  # which is no rate
        none = replace(plain, metrics={"throughput": Metric("requests/s", "higher", (rate,))})
        assert "throughput" not in read_values(none)
    # One that completed nothing has none.
    trial = measured(AT, 500.0)
    trial = replace(trial, counts=replace(trial.counts, completed=0, in_flight=100))
    assert read_values(replace(trial, client=ClientFacts())) == {}
    waiting = replace(
        trial,  # all that were answered began before the windows
        client=structs.replace(trial.client, in_windows=replace(trial.counts, completed=40)),
        seconds=TrialSeconds(connect=0.1, warmup=3.0, total=7.6, measured=0.0),
    )
    assert read_values(waiting)["throughput"] == pytest.approx(500.0)
    for connections, share in ((100, 1.0), (2500, 0.0)):  # due after 0.2 s, after 5 s
        late = replace(waiting, row=replace(waiting.row, connections=connections))
        assert SideRow({}, late.row, trials=(late,)).failed_share == share


def test_a_step_that_was_measured_again_counts_by_its_median() -> None:
    trials = [press_trial(30, qps, run=at) for at, qps in enumerate((200.0, 90.0, 100.0), 1)]
    result = replace(versus_result(), run=replace(versus_run(), plan=()), trials=tuple(trials))
    ((place, row),) = rows_of(result, "default").items()
    assert place == place_of(trials[0]) and place.row == "30 clients"
    assert row.values["throughput"][1] == pytest.approx(100.0)
    plain = versus_result()
    slow = replace(plain.trials[0], flags=TrialFlags(profiled=True), metrics={})  # is no value
    result = result_of([plain.run, *plain.launches, *plain.trials, slow])
    assert of_versus(result).rows == of_versus(plain).rows


def test_ratios_are_made_within_rounds() -> None:
    """The machine is twice as fast in every second round: the ratio does not notice."""
    drift = [(500.0 * f, 450.0 * f) for f in (1, 2, 1, 2, 1, 2)]
    (row,) = of_versus(versus_result({ROW: drift})).rows
    line = row.line("throughput")
    assert line.judged.word == "regressed"
    assert line.ratio == pytest.approx(0.9)
    assert sure(line.judged.interval).se == pytest.approx(0.0, abs=1e-9)
    assert line.a == pytest.approx(500 * math.sqrt(2))


def test_a_round_counts_only_when_both_sides_were_measured() -> None:
    run = versus_run()
    missing = {("default", 2), ("optimized", 5)}
    measured = (at for at in run.plan if (at.variant, at.round) not in missing)
    trials = [sliced(at, 500.0 if at.variant == "default" else 400.0) for at in measured]
    (row,) = of_versus(result_of([run, *trials])).rows
    assert list(row.line("throughput").a_values) == [1, 3, 4, 6]
    assert (row.planned, row.measured) == ((6, 6), (4, 4))
    # A metric that one side lacks is left out of that round.
    first, *others = (result := versus_result()).trials
    first = replace(first, metrics={"throughput": first.metrics["throughput"]})
    (row,) = of_versus(replace(result, trials=(first, *others))).rows
    assert [len(row.line(name).a_values) for name in ("cpu", "throughput")] == [5, 6]
    # What was planned and never measured is a row.
    found = of_versus(result_of([versus_run(rows=ROWS)]))
    assert [row.row for row in found.rows] == [row.label for row in ROWS]
    assert {line.judged.why for _, line in found.pairs} == {"not measured"}
    assert found.word == "inconclusive"


def test_the_same_is_no_proof_where_the_client_was_the_limit_on_both_sides() -> None:
    both = against(500.0, 500.0, a={"verdict": BOUND}, b={"verdict": BOUND})
    lone = against(500.0, 500.0, b={"verdict": BOUND})
    (row,) = both.rows
    assert [line.judged.word for line in row.lines] == ["inconclusive"] * 3 + ["same"]  # CPU
    assert "client was the limit on both sides" in row.line("throughput").judged.why
    assert lone.word == "same"
    assert {(doubt.side, doubt.code) for doubt in lone.rows[0].doubts} == {("B", "client-bound")}
    # A difference that shows through a client at its limit stands.
    assert against(500.0, 300.0, a={"verdict": BOUND}, b={"verdict": BOUND}).word == "regressed"


@cases(
    "a, b, side, word",
    (500.0, 800.0, "b", "regressed"),  # of what is left, most is fast
    (500.0, 500.0, "b", "regressed"),
    (500.0, 300.0, "b", "regressed"),
    (500.0, 800.0, "a", "improved"),
    (500.0, 300.0, "a", "inconclusive"),
)
def test_a_side_that_fails_cannot_win(a: float, b: float, side: str, word: str) -> None:
    failing: dict[str, Any] = {side: {"failed": 500}}
    found = against(a, b, **failing)
    assert found.word == word
    (line,) = (line for _, line in found.pairs if line.gated)
    if (side, word) != ("b", "regressed") or b >= a:
        right = line.judged.word == "improved" == word
        assert right or "requests failed: figures invalid" in line.judged.why


def test_few_errors_are_a_doubt_and_no_more() -> None:
    found = against(500.0, 500.0, b={"failed": 3})
    assert found.word == "same" and not found.rows[0].worse
    (doubt,) = found.rows[0].doubts
    assert (doubt.side, doubt.code, doubt.launches, doubt.of) == ("B", "errors", 6, 6)
    assert doubt.message == "18 requests failed (0.15 %): 18 reset"
    for flag in ("cut", "short_slices"):
        (doubt,) = against(500.0, 500.0, a={"flags": {flag: True}}).rows[0].doubts
        assert doubt.code == flag.replace("_", "-")


def test_slices_are_not_judged_as_windows() -> None:
    result = versus_result()
    swinging = Metric("requests/s", "higher", (100.0, 1000.0) * 40)
    trials, windows = [], []
    for trial in result.trials:
        trials.append(replace(trial, metrics={**trial.metrics, "throughput": swinging}))
        slices = structs.replace(sure(trial.client.slices), method="windows")
        windows.append(replace(trials[-1], client=ClientFacts(slices=slices)))
    assert of_versus(replace(result, trials=tuple(trials))).rows[0].doubts == ()
    doubts = of_versus(replace(result, trials=tuple(windows))).rows[0].doubts
    assert "unsteady-windows" in {doubt.code for doubt in doubts}
    # What slices do is a ratio with an interval.
    result = versus_result({ROW: rates(500.0, 450.0)}, a={"steady": 1.25}, b={"steady": None})
    (row,) = of_versus(result).rows
    assert row.in_slices == {"A": {at: pytest.approx(0.8) for at in range(1, 7)}, "B": {}}
    shown = view_comparison(of_versus(result)).comparisons[0].values["in_slices.A"]
    assert [shown.value, shown.low, shown.high] == pytest.approx([0.8] * 3)


@cases("b, wobble, settled", (500.0, 0.1, True), (440.0, 1.0, True), (497.0, 9.0, False))
def test_settled_once_every_gated_figure_is(b: float, wobble: float, settled: bool) -> None:
    rows = {ROWS[0]: rates(500.0, 500.0, wobble=0.1), ROWS[1]: rates(500.0, b, wobble=wobble)}
    result = versus_result(rows, looks=True, gate=["throughput"])
    assert of_versus(result).settled is settled
    # A run with looks has wider intervals, by the rounds of its first plan.
    plain = versus_result({ROW: rates(500.0, 498.0, wobble=3.0)})
    looks = versus_result({ROW: rates(500.0, 498.0, wobble=3.0)}, looks=True)
    lines = (of_versus(result).rows[0].line("throughput") for result in (plain, looks))
    once, again = (sure(line.judged.interval) for line in lines)
    assert (once.planned, again.planned) == (None, 6) and again.half > 1.1 * once.half


def test_a_metric_that_is_never_measured_does_not_keep_a_run_going() -> None:
    """As CPU per request, where replicas come and go. Two rounds are never enough."""
    gated: dict[str, Any] = {"looks": True, "gate": ["throughput", "cpu"]}
    blind: dict[str, Any] = {"cpu_us": None}
    result = versus_result({ROW: rates(500.0, 440.0)}, a=blind, b=blind, **gated)
    assert of_versus(result).settled and of_versus(result).word == "regressed"
    few = versus_result({ROW: rates(500.0, 440.0, rounds=2)}, a=blind, b=blind, **gated)
    assert not of_versus(few).settled


def test_other_work_is_said_before_the_ratio_and_only_where_it_is_done() -> None:
    def side(requests: float, unloads: float, size: int = 200) -> SideRow:
        group = {"requests": requests, "model_loads": 6 + unloads, "model_unloads": unloads}
        metrics = ServeMetricsFacts(deployments={"default#Models": {**group, "model_places": 1.0}})
        facts: Any = {"status_codes": {"200": 1000}, "bytes_received": 1000 * size}
        client = structs.replace(sliced(AT, 1000.0).client, **facts)
        trial = replace(sliced(AT, 1000.0), client=client, serve_metrics=metrics)
        return SideRow({}, ROW, trials=(trial,), ingress="Models")

    loads = "repeated model loads in Models 6.05 against 304 per 1,000 requests"
    assert next(compare_work(side(2147, 13), side(537, 163))) == loads
    assert not [*compare_work(side(1980, 0), side(7313, 0))]  # the first loads are none
    assert not [*compare_work(side(99, 0), side(99, 50))]  # of few requests nothing is said
    (text,) = compare_work(side(500, 0), side(500, 0, 6500))
    assert text == "bytes of an answer 200 against 6,500"
    found = against(500.0, 100.0)
    found = replace(found, rows=(replace(found.rows[0], work=(loads,)),))
    words = f"100 connections: A and B do other work: {loads}"
    assert next(describe_comparing(found)) == words


def test_two_groups_of_launches_are_said_where_both_sides_have_them() -> None:
    def groups(slow_a: str, slow_b: str) -> str:
        slow = [(0.885 if n in slow_a else 1.0, 0.885 if n in slow_b else 1.0) for n in "012345678"]
        values = [(a * (500 + n / 4), b * (502 - n / 4)) for n, (a, b) in enumerate(slow)]
        return of_versus(versus_result({ROW: values}, labels=TWINS)).rows[0].groups

    words = groups("1458", "023")
    assert words.startswith("launches come in two groups, 13 % apart, on both sides (3 of 9 of B")
    assert words.endswith("within the groups B/A is 1.001 and 1.000")
    assert not groups("", "") and not groups("1458", "") and not groups("145", "0")


def test_an_odd_launch_is_named_once_with_its_round_and_side() -> None:
    values = [(500.0 + at, 501.0 - at) for at in range(7)]
    values[3] = (503.0, 352.0)
    (row,) = of_versus(versus_result({ROW: values})).rows
    (odd,) = (doubt for doubt in row.doubts if doubt.code == "odd-launch")
    assert (odd.side, odd.launches, odd.of) == ("B", 1, 7)
    assert odd.message == "round 4: throughput 0.708 x the median of its launches"
    steady = of_versus(versus_result({ROW: [value for value in values if value[1] > 400]}))
    assert all(doubt.code != "odd-launch" for doubt in steady.rows[0].doubts)


def test_the_noise_floor_is_the_farther_end() -> None:
    noise = against(500.0, 500.0, wobble=3.0, labels=TWINS)
    interval = sure(noise.rows[0].line("throughput").judged.interval)
    floors = floors_of(noise)
    assert floors["throughput"] == max(1 - interval.low, interval.high - 1)
    result = versus_result({ROW: rates(500.0, 490.0, wobble=0.1)}, threshold=0.015)
    plain, floored = of_versus(result), Gate(noise=noise).judge(result)
    assert (plain.word, floored.word) == ("regressed", "inconclusive")  # never the same
    assert "not one beyond the noise floor of" in floored.pairs[0][1].judged.why
    assert " needed" not in headline(floored)  # a change is proven
    alike = versus_result({ROW: rates(500.0, 500.0, wobble=0.1)}, threshold=0.015, floors=floors)
    assert of_versus(alike).word == "same"
    assert floored.pairs[0][1].judged.threshold == floors["throughput"]
    # Of several rows the noisiest is the floor.
    rows = {ROWS[at]: rates(500.0, 500.0, wobble=wobble) for at, wobble in ((0, 1.0), (1, 4.0))}
    both = floors_of(of_versus(versus_result(rows, labels=TWINS)))
    noisier = floors_of(of_versus(versus_result({ROWS[1]: rows[ROWS[1]]}, labels=TWINS)))
    assert both["throughput"] == noisier["throughput"]


def test_what_breaks_the_gate_is_named() -> None:
    pairs = rates(500.0, 800.0), rates(500.0, 490.0, wobble=15.0), rates(500.0, 400.0)
    found = of_versus(versus_result(dict(zip(ROWS, pairs, strict=True))))
    (line,) = broken(found, "regressed")
    assert line.startswith("regressed: 100 connections: 20 % slower (19.")
    words = [line.split(" ")[:3] for line in broken(found, "inconclusive")]
    assert words == [["inconclusive:", "8", "clients:"], ["regressed:", "100", "connections:"]]
    result = versus_result({ROW: rates(500.0, 500.0)}, b={"cpu_us": 900.0})
    assert broken(of_versus(result), "inconclusive") == []  # only what is gated
    (line,) = broken(Gate(metrics=("throughput", "cpu")).judge(result), "regressed")
    assert line.startswith("regressed: 100 connections: 80 % more CPU per request (80 to 80 %)")


def test_requests_that_fail_on_b_alone_break_it_whatever_the_figures_say() -> None:
    faster = against(500.0, 900.0, b={"failed": 2000})
    (line,) = broken(faster, "regressed")
    assert "36 % of B's requests failed, 0 % of A's" in line
    assert headline(faster).startswith("optimized against default: regressed, 36 % of B's")
    assert broken(against(500.0, 900.0, a={"failed": 2000}, b={"failed": 2000}), "regressed") == []
    assert against(500.0, 400.0, rounds=2, b={"failed": 2000}).word == "inconclusive"
    # So do launches that B alone lost.
    before = micro_result({ROWS[0]: [320, 330, 325]})
    after = micro_result({ROWS[0]: [320, 330, 325]}, "after")
    plan = tuple(planned("default", ROWS[0], at, cell(1, 10000, 8)) for at in (1, 2, 3))
    lost = replace(after, run=replace(after.run, plan=plan), trials=after.trials[:1])
    found = of_runs(before, lost)
    (line,) = broken(found, "regressed")
    assert "measured in 1 of 3 launches of B, in 3 of 3 of A" in line
    assert found.word == "regressed" and broken(of_runs(lost, after), "regressed") == []
    # And a B that answers nothing.
    result = versus_result({ROW: rates(500.0, 500.0)})
    of_b = (trial for trial in result.trials if trial.variant == "optimized")
    none: dict[str, Any] = {"completed": 0, "failed": {"status": 900}}
    trials = (replace(trial, counts=replace(trial.counts, **none)) for trial in of_b)
    found = of_versus(replace(result, trials=(*result.trials[::2], *trials)))
    assert found.word == "regressed" and "100 % of B's requests failed" in headline(found)
    assert broken(found, "regressed") != []


def test_sides_are_compared_where_they_were_measured_beside_each_other() -> None:
    """A resumed round is measured anew on both; this one was cut off behind A."""
    first = versus_result({ROW: rates(500.0, 500.0)})
    again = Resume((), "2026-01-03T03:04:05+00:00"), first.trials[2]
    result = versus_result({ROW: rates(500.0, 500.0)}, others=again)
    assert [trial.variant for trial in result.trials if trial.round == 2] == ["default"]
    assert of_versus(result).rows[0].measured == (5, 5) and len(result.missing) == 1


@cases("a, b, breaks", (60, 3000, True), (60, 70, False), (3, 60, True))
def test_where_both_fail_b_is_worse_from_twice_the_share_on(a: int, b: int, breaks: bool) -> None:
    found = against(500.0, 400.0, a={"failed": a}, b={"failed": b})
    assert bool(found.rows[0].worse) == breaks
    assert bool(broken(found, "regressed")) == (breaks or found.word == "regressed")


@cases(
    "metric, ratios, text",
    ("throughput", (0.84, 0.86, 0.88), "14 % slower than A (8.9 to 18.8 %)"),
    ("throughput", (11.0, 12.0, 13.0), "12.0 times as fast as A (9.728 to 14.7)"),
    ("throughput", (0.9, 1.0, 1.1), "between 22.3 % slower and 27.9 % faster"),
    ("p99", (1.13, 1.14, 1.15), "14 % slower at p99 than A (11.5 to 16.5 %)"),
    ("ttft_p50", (0.24, 0.25, 0.26), "4.002 times as fast at TTFT p50 as A (3.623 to 4.421)"),
    ("cpu", (0.7, 0.7, 0.7), "30 % less CPU per request than A (30 to 30 %)"),
    ("cpu", (1.8, 2.0, 2.2), "99.3 % more CPU per request than A (55.3 % more to 2.558 times as"),
    ("p50", (1.0, 1.0, 1.0), "unchanged at p50"),
)
def test_changes_have_a_direction(metric: str, ratios: tuple[float, ...], text: str) -> None:
    better: Better = "higher" if metric == "throughput" else "lower"
    (judged,) = judge([Hypothesis(paired([math.log(ratio) for ratio in ratios]), better)])
    values = dict(enumerate(ratios, 1))
    found = Compared(metric, "", better, dict.fromkeys(values, 1.0), values, judged, True)
    assert describe_change(found, "A").startswith(text)


def test_rows_are_named_by_what_tells_them_apart() -> None:
    twin = Row("8 clients", "raw", 8)
    found = of_versus(versus_result({ROWS[1]: rates(5.0, 5.0), twin: rates(5.0, 5.0)}))
    titles = [row_title(found, row) for row in found.rows]
    assert titles == ["8 clients (aiohttp)", "8 clients (raw)"]
    values = (None, math.nan, math.inf, 1234.5, 11.84, 1.0, 0.1234, 0.0123)
    texts = ["-", "-", "inf", "1,234", "11.8", "1.000", "0.123", "0.012"]
    assert [ratio_text(value) for value in values] == texts
