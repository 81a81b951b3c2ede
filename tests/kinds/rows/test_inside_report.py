"""CPU by process under a cell, and what profiling cost: from records made by hand."""

from dataclasses import replace
from typing import Any

from serve_bench.core.facts import ProfileFacts
from serve_bench.core.result import Trial, result_of
from serve_bench.view.document import Chart
from serve_bench.view.inside import describe_profiled, usage_table
from tests.records import ROWS, changed, launch, planned, run, trial
from tests.rendering import render
from tests.sheet_parts import make_sheet, part, select


def usage(*processes: tuple[str, float | None], host: float = 150.0) -> dict[str, Any]:
    """Processes by role and CPU; load workers have no proportional memory."""
    facts = [
        {"pid": pid, "role": role, "cpu_percent": cpu, "pss_mb": None if "load" in role else 10.0}
        for pid, (role, cpu) in enumerate(processes, 1)
    ]
    return {"host": {"cores": 2, "cpu_percent": host}, "processes": facts}


REPLICAS = usage(
    *(("replica", 60.0), ("replica", 20.0), ("proxy", 95.0), ("log_monitor", 0.2)),
    *(("load_worker", 12.0), ("raylet", None)),
)


def measured(seen: dict[str, Any], *, profiled: bool = False, rate: float = 100) -> Trial:
    made = trial(planned(row=ROWS[0]), rate, rate, rate, profiled=profiled)
    return changed(made, usage=seen)


def test_what_is_on_the_way_of_a_request_is_never_a_part_of_the_rest() -> None:
    shares = {"proxy": 0.4, "replica": 0.2, "child_of_replica": 0.1, "raylet": 0.9, "gcs": 0.8}
    table = usage_table("CPU", {"CPU": [measured(usage(*shares.items()))]})
    names = [row.cells[0] for row in table.rows]
    beside = ["the rest", "others on the host", "host, all processes"]
    assert names == ["proxy", "replica", "child of replica", *beside]


def test_a_reading_that_goes_back_is_no_part_below_zero() -> None:
    plan = [planned(row=row) for row in ROWS[:2]]
    trials = [
        changed(trial(of, 100, 100, 100), usage=usage(("proxy", cpu)))
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
