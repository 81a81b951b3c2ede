"""What a run of rows says (micro, noop, run): table, sentences, charts, counts of replicas."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.perf_metrics import perf_metrics
from serve_bench.core.app_spec import own_spec
from serve_bench.core.facts import ProfileFacts
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts
from serve_bench.core.own_app import Asked, OwnApp, OwnDeployment
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Record,
    Result,
    Run,
    Trial,
    result_of,
)
from serve_bench.core.traffic import Row
from serve_bench.core.usage import BATCH_SIZE, ReplicaCounts, ReplicaRequests, counts_of, grown
from serve_bench.view.charts import Point
from serve_bench.view.document import Chart, Document, Facts, Number, Table, cell_text
from serve_bench.view.inside import describe_profiled, describe_trial, usage_table
from serve_bench.view.row_charts import draw_histogram
from serve_bench.view.rows import make_page
from tests.records import AT, ROWS, cell, changed, launch, planned, run, stored, trial, worker
from tests.rendering import render
from tests.sheet_parts import as_lines, at, make_sheet, names, opened, part, select
from tests.verdict_trials import process, usage

LATENCY = Histogram.of([1_000_000] * 899 + [2_000_000] * 90 + [9_000_000] * 11).encode()


def sheet(*records: Record) -> Document:
    return make_sheet(result_of(records))


def drawn(of: Document, name: str) -> list[Point]:
    """List the points of all charts of a section."""
    charts = select(part(of, name), Chart)
    return [point for chart in charts for point in chart.points]


def findings(*records: Record) -> list[str]:
    return list(as_lines(sheet(*records).findings))


def test_intervals_are_over_launches_else_over_windows() -> None:
    for rates, ends in (((100, 110, 120), (100, 120)), ((100,), (100 - 8.165, 100 + 8.165))):
        plan = [planned(row=ROWS[2], round_=at) for at in range(1, len(rates) + 1)]
        pairs = zip(plan, rates, strict=True)
        trials = [trial(at, rate - 10, rate, rate + 10) for at, rate in pairs]
        of = sheet(run(*plan), *(launch(round_=at.round) for at in plan), *trials)
        (point,) = drawn(of, "throughput")
        assert (point.low, point.high) == pytest.approx(ends, rel=1e-4)
        assert len({point.series for point in drawn(of, "windows")}) == len(rates)
    of = sheet(run(planned()), trial(planned(), 50.0))
    assert drawn(of, "throughput")[0].low is None
    assert not drawn(of, "windows"), "a single window has neither a spread nor a course"


def test_a_matrix_is_a_heat_map_for_each_load() -> None:
    plan = [
        planned(variant, row, of=cell(batch, 1, replicas))
        for row in ROWS[1:]
        for variant in ("default", "optimized")
        for batch in (1, 8, 64)
        for replicas in (1, 2)
    ]
    trials = [trial(of, 10.0 * at) for at, of in enumerate(plan, 1)]
    of = sheet(run(*plan), launch("default"), launch("optimized"), *trials)
    charts = select(part(of, "throughput"), Chart)
    titles = ["Requests/s: 100 connections", "Requests/s: 8 clients"]
    assert [chart.title for chart in charts] == titles, "the fastest first"
    first, *_, last = charts[1].points
    assert (first.x, first.series, first.value) == ("1", "num_replicas 1, default", 10.0)
    assert (last.x, last.series, last.value) == ("64", "num_replicas 2, optimized", 120.0)
    few = [planned(of=cell(*of)) for of in ((1, 1, 1), (8, 1, 2), (64, 1, 3))]
    of = sheet(run(*few), launch("default"), *(trial(of, 10.0) for of in few))
    (chart,) = select(part(of, "throughput"), Chart)
    assert chart.kind == "dots", "most cells of a matrix would be empty"


def test_the_histogram_of_a_load_is_bars_of_signs_the_last_one_open() -> None:
    (table,) = draw_histogram(Histogram.decode(LATENCY))
    shown = [(*map(cell_text, row.cells[:2]), len(row.cells[2].text)) for row in table.rows]
    assert (shown[0], shown[-1]) == (("to 3.00 ms", "989", 40), ("to 9.00 ms", "0", 0))
    assert not [*draw_histogram(Histogram.of([]))]


def test_a_throughput_that_collapses_with_more_clients_is_named() -> None:
    plan = [planned(row=Row(f"{at} connections", "raw", at, 1)) for at in (1, 5, 20)]

    def found(*rates: float) -> str:
        trials = [trial(at, rate) for at, rate in zip(plan, rates, strict=True)]
        return " ".join(findings(run(*plan), launch(), *trials))

    fell, rises = found(9.4, 5.2, 2.0), found(5.2, 9.4, 9.0)
    assert "collapses with more clients, from 9.400 requests/s with 1 to 5.200 with 5" in fell
    # Nine counts differ by chance as much; what collapses is not called alike beside it.
    assert "Not clearly slower" not in fell
    assert "collapse" not in rises and "20 connections (9.000)" in rises


APP = OwnApp(
    "shop.py:app",
    "shop:app",
    "/",
    (OwnDeployment("Ranker", 1), OwnDeployment("Shop", 1)),
    ("num_replicas",),
    Asked("/rank", "POST", (), b"[1, 2]"),
)


def own_trial(replicas: int, queries: int, *rates: float) -> Trial:
    of = {"Ranker.num_replicas": replicas, "Ranker.max_ongoing_requests": queries}
    at = plan_trial("default", 1, of, ROWS[2])
    return trial(at, *rates, latency=LATENCY)


def own_run(*trials: Trial, app: OwnApp = APP) -> Result:
    about = replace(run(), command="run", suite={"app": own_spec(app).to_json()})
    return result_of([about, launch(), *trials])


def test_an_own_app_has_a_row_a_cell_and_names_the_best_first() -> None:
    rates = {(1, 10): (100.0, 110.0), (2, 10): (200.0, 200.0), (2, 20): (195.0, 205.0)}
    of = make_sheet(own_run(*(own_trial(*axes, *rate) for axes, rate in rates.items())))
    best, close = as_lines(of.findings)[:2]
    assert best.startswith("Ranker.num_replicas 2, Ranker.max_ongoing_requests 10 has the highest")
    assert "200.0 ± 0.0 requests/s, p50 1.00 ms, p99 9.00 ms" in best
    assert close == "Not clearly slower: Ranker.max_ongoing_requests 20 (200.0)."
    table = opened(part(of, "results"), Table)[0]
    heads = ["num_replicas Ranker", "max_ongoing_requests Ranker"]
    assert [column.full_name for column in table.columns[:2]] == heads
    texts = [tuple(map(cell_text, row.cells[:2])) for row in table.rows]
    assert texts == [("1", "10"), ("2", "10"), ("2", "20")]


def test_where_nothing_was_completed_there_is_no_limit_but_the_status() -> None:
    failed = changed(
        own_trial(1, 10, 0.0, 0.0),
        counts=Counts(9, 0, {"status": 9}, 0),
        client={"status_codes": {"408": 9}},
        usage={"host": {"cores": 2, "cpu_percent": 20.0}, "processes": []},
    )
    (entry,) = make_page(own_run(failed)).rows
    text = " ".join(render(own_run(failed), width=200).split())
    assert entry.limited is None and "9 of 9 requests failed: 9 with status 408" in text
    assert "unclear" not in text and "measure longer" not in text


def test_the_front_is_that_of_the_application_which_is_loaded() -> None:
    """Two applications of a config file have an ingress of one name: `b` is loaded, and burns."""
    uses = [process(1, "proxy", 20, wait=1)]
    uses += [process(2, "replica", 2, wait=1, of="a:Ingress")]
    uses += [process(3, "replica", 97, wait=1, of="b:Ingress")]
    made = (OwnDeployment("Ingress", 1),)
    app = OwnApp("c.yaml: b", "b:app", "/", made, (), config={"name": "b"})
    at = changed(own_trial(1, 10, 100.0), usage=usage(*uses, host=130), slots={"Ingress": 5})
    (entry,) = make_page(own_run(at, app=app)).rows
    assert entry.limited is not None
    assert entry.limited.figures == "Ingress: replica CPU 97 % of a core"


def test_a_file_holds_requests_and_then_batches_by_size() -> None:
    content = struct.pack("=5Q", 70, 10, 0, 20, 0)
    for torn in (b"", b"\1\2\3"):
        assert counts_of(content + torn) == ReplicaCounts(70, {1: 10, 3: 20})
    assert counts_of(b"") == ReplicaCounts(0, {})


def test_what_grew_names_replicas_that_took_nothing_but_none_of_an_earlier_cell() -> None:
    before = {1: ReplicaCounts(5, {2: 1}), 2: ReplicaCounts(7), 3: ReplicaCounts(9, {4: 2})}
    after = {**before, 1: ReplicaCounts(15, {2: 4, 8: 1}), 4: ReplicaCounts(3, {1: 3})}
    found = grown(before, after, replicas=[1, 2])
    assert found.requests == {1: 10, 2: 0, 4: 3}  # 3 is of an earlier cell, 4 came and ended
    assert found.batches == {1: 3, 2: 3, 8: 1}
    assert found.by_replica == {"replica 1": 10, "replica 2": 0, "replica 4": 3}
    none = grown({}, {}, replicas=[1, 2])  # an app that does not count leaves nothing, not zero
    assert none == ReplicaRequests() and none.by_replica == {} and none.batch_sizes is None


def test_sizes_are_kept_exactly_and_are_no_latency_for_the_release_tooling() -> None:
    metric = ReplicaRequests({}, {1: 5, 16: 10, 1000: 2}).batch_sizes
    assert metric is not None and metric.unit == "requests" and metric.histogram is not None
    kept = Histogram.decode(metric.histogram)
    assert (kept.count, kept.max, kept.unit) == (17, 1000, "requests")
    assert kept.mean == pytest.approx((5 + 160 + 2000) / 17)
    metrics = perf_metrics(result_of([run(planned(of=cell(16))), launch(), row({8: 100}, {})]))
    assert "batch_size" not in metrics


def row(sizes: dict[int, int], served: dict[str, int]) -> Trial:
    metric = ReplicaRequests({}, sizes).batch_sizes
    made = replace(trial(planned(of=cell(16))), served=served)
    return made if metric is None else replace(made, metrics={**made.metrics, BATCH_SIZE: metric})


def test_an_uneven_spread_is_told_and_a_usual_one_is_not() -> None:
    for usual in ((500, 600), (3, 0)):  # the last are too few to say
        assert not [*describe_trial(row({}, dict(zip("ab", usual, strict=True))))]
    (said,) = describe_trial(row({}, {"replica 1": 900, "replica 2": 100}))
    assert said == ("uneven: of 2 replicas the busiest took 90 % of the requests, the idlest 10 %")
    # A row in which a replica ended has no cause.
    page = make_page(stored("micro-failures"))
    ended = [entry for entry in page.rows if any("ended" in f.message for f in entry.failures)]
    assert ended and all(entry.limited and entry.limited.cause == "unclear" for entry in ended)


def used(*processes: tuple[str, float | None]) -> dict[str, Any]:
    """Make processes by role and CPU; load workers have no proportional memory."""
    facts = [
        {"pid": pid, "role": role, "cpu_percent": cpu, "pss_mb": None if "load" in role else 10.0}
        for pid, (role, cpu) in enumerate(processes, 1)
    ]
    return {"host": {"cores": 2, "cpu_percent": 150.0}, "processes": facts}


REPLICAS = used(
    *(("replica", 60.0), ("replica", 20.0), ("proxy", 95.0), ("log_monitor", 0.2)),
    *(("load_worker", 12.0), ("raylet", None)),
)


def measured(seen: dict[str, Any], *, profiled: bool = False, rate: float = 100) -> Trial:
    made = trial(planned(row=ROWS[0]), rate, rate, rate, profiled=profiled)
    return changed(made, usage=seen)


def test_what_is_on_the_way_of_a_request_is_never_a_part_of_the_rest() -> None:
    shares = {"proxy": 0.4, "replica": 0.2, "child_of_replica": 0.1, "raylet": 0.9, "gcs": 0.8}
    table = usage_table("CPU", {"CPU": [measured(used(*shares.items()))]})
    names = [row.cells[0].text for row in table.rows]
    beside = ["the rest", "others on the host", "host, all processes"]
    assert names == ["proxy", "replica", "child of replica", *beside]


def test_a_reading_that_goes_back_is_no_part_below_zero() -> None:
    plan = [planned(row=row) for row in ROWS[:2]]
    trials = [
        changed(trial(of, 100, 100, 100), usage=used(("proxy", cpu)))
        for of, cpu in zip(plan, (9.0, -9.0), strict=True)
    ]
    document = make_sheet(result_of([run(*plan), launch(), *trials]))
    (chart,) = select(part(document, "cpu-charts"), Chart)
    parts = [(point.series, point.value) for point in chart.points]
    others = "others on the host"
    assert parts == [("proxy", 9.0), (others, 141.0), (others, 150.0)]


def test_what_profiling_cost_is_told_of_the_same_launch_alone() -> None:
    path = "profiles/k/replica-7.raw.txt"
    stacks_of = ProfileFacts(role="replica", pid=7, title="replica", path=path, samples=9)
    slow = replace(measured(REPLICAS, profiled=True, rate=40), profiles=(stacks_of,))
    result = result_of([run(planned()), launch(), measured(REPLICAS), slow])
    cost, stacks = describe_profiled(slow, result)
    assert cost == "cost of profiling 1 process: 100.0 -> 40.0 requests/s (-60 %), same launch"
    assert stacks == "stacks (samples) in profiles/k: replica 7 (9)"
    assert list(describe_profiled(replace(slow, launch="default-9"), result)) == [stacks]


def test_doubts_of_the_profiled_row_stay_with_it() -> None:
    bad = {"verdict": {"client_bound": True, "reasons": ["only the profiled one"]}}
    slow = changed(measured(REPLICAS, profiled=True), client=bad)
    text = render(result_of([run(planned()), launch(), measured(REPLICAS), slow]))
    assert text.count("only the profiled one") == 1
    assert text.index("profiled") < text.index("only the profiled one")


MS = 1_000_000
URL = "http://127.0.0.1:1/x"
PLANNED = PlannedTrial("k", 1, "url", {"url": URL}, Row("10 connections", "raw", 10))
CLIENT = {"bytes_received": 2_000_000, "status_codes": {"200": 100}}


def load(*windows: float, waits: Histogram | None = None, **changes: Any) -> Trial:
    """Make a load whose latencies are easy; of `waits` no request was ever answered."""
    given_up = waits is not None
    answered = Histogram() if given_up else Histogram.of([1 * MS] * 90 + [2 * MS] * 9 + [50 * MS])
    made = trial(PLANNED, *windows, latency=answered.encode(), client=CLIENT)
    if waits is not None:
        censored = Metric("ns", "lower", histogram=waits.encode())
        made = replace(made, metrics={**made.metrics, "censored": censored})
    return changed(made, **changes)


def load_sheet(*trials: Trial, failures: tuple[Failure, ...] = ()) -> Document:
    run = Run("id", ("load", URL), "load", AT, "0", plan=(PLANNED,))
    return make_sheet(result_of([run, *trials, *failures]))


def load_facts(*windows: float, **changes: Any) -> dict[str, str]:
    of = load_sheet(load(*windows, **changes))
    blocks = [block for name in ("results", "requests") for block in part(of, name)]
    return {name: text for block in select(blocks, Facts) for name, text in block.pairs}


COUNTS = Counts(sent=103, completed=100, failed={"timeout": 2, "reset": 1}, in_flight=0)


def test_the_times_of_a_load_that_was_never_answered_are_lower_bounds() -> None:
    hung = load(0.0, 0.0, waits=Histogram.of([3000 * MS] * 10), counts=Counts(10, 0, {}, 10))
    (table, *_) = select(part(load_sheet(hung), "results"), Table)
    p99 = table.rows[0].cells[at(table, "p99")]
    assert isinstance(p99, Number) and p99.text.startswith("> ")
    assert p99.value == pytest.approx(3000, rel=1e-3)


def test_every_request_is_accounted_for() -> None:
    shown = load_facts(40.0, 60.0, counts=COUNTS)
    assert shown["requests"] == "103 sent = 100 completed + 3 failed + 0 unanswered"
    assert shown["errors"] == "2 timed out, 1 reset"
    assert not {"not sent", "status"} & shown.keys(), "all that came was 200"
    codes = load_facts(40.0, 60.0, client={**CLIENT, "status_codes": {"200": 99, "503": 1}})
    assert codes["status"] == "200: 99, 503: 1"
    counts = replace(COUNTS, sent=104, in_flight=1, unsent=7)
    shown = load_facts(40.0, 60.0, counts=counts)
    assert shown["requests"] == "104 sent = 100 completed + 3 failed + 1 unanswered"
    assert shown["not sent"].startswith("7 were due")
    carried = load_facts(40.0, 60.0, counts=replace(COUNTS, carried_in=10))
    assert carried["requests"].startswith("10 carried in + 103 sent = ")


def test_an_open_loop_that_grew_has_the_connections_that_it_came_to() -> None:
    row = replace(PLANNED.row, loop="open", rate_per_s=100.0)
    grown = {**CLIENT, "workers": [worker(70), worker(60)]}
    run = Run("id", ("load", URL), "load", AT, "0", plan=(replace(PLANNED, row=row),))
    of = make_sheet(result_of([run, load(40.0, 60.0, row=row, client=grown)]))
    assert as_lines(of.findings)[0].startswith("10 connections, grown to 130 (raw): 50.00 ")


def test_nothing_answered_is_no_crash() -> None:
    empty = load(0.0, waits=Histogram(), counts=Counts(5, 0, {"connect": 5}, 0))
    of = load_sheet(empty, failures=(Failure("trial", "no request succeeded", AT, key="k"),))
    assert as_lines(of.findings)[0] == "Something failed: no request succeeded."
    assert load_facts(0.0, counts=empty.counts)["errors"] == "5 without a connection"
    assert "latency" not in names(of)
