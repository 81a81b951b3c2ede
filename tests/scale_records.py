"""Small records of `serve-bench scale` with easy numbers: nodes, trials of each workload, a run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from serve_bench.benchmarks.scale import spec
from serve_bench.benchmarks.scale.lens import merge_sizes
from serve_bench.core.histogram import Histogram
from serve_bench.core.plan import list_trials
from serve_bench.core.result import (
    Failure,
    Metric,
    PlannedTrial,
    Record,
    Result,
    Trial,
    VariantUsed,
    result_of,
)
from serve_bench.view.frame import ViewRow
from tests.records import AT, run, trial
from tests.sheet_parts import view_of

MS = 1_000_000


def scale_suite(
    workload: str = "single", variants: Sequence[str] = ("default",), **other: Any
) -> spec.ScaleSpec:
    """Make a small run; four replicas, three windows of 1 s."""
    given: dict[str, Any] = {"replicas": (4,), "duration": 3.0, "warmup": 5.0, **other}
    kind = spec.WORKLOADS[workload]
    if (size := given.pop("size", None)) is not None and issubclass(kind, spec.GraphSpec):
        given[kind.size_option] = size
    return kind(variants=tuple(map(VariantUsed, variants)), **given)


def planned(
    suite: spec.ScaleSpec, *, variant: str = "default", round_: int = 1, replicas: int | None = None
) -> list[PlannedTrial]:
    place = (variant, round_, suite.replicas[0] if replicas is None else replicas)
    plan = list_trials(suite.plan())
    return [row for row in plan if (row.variant, row.round, row.cell["num_replicas"]) == place]


def scale_node(
    at: int = 1, latencies_ms: Sequence[float] = (10.0,), **other: Any
) -> dict[str, Any]:
    """Make a node's report: 300 requests in 3 s over 10 connections, and their 30,720 bytes."""
    histogram = Histogram.of(round(MS * time) for time in latencies_ms)
    shares = dict(zip((50, 75, 90, 99), histogram.percentiles((0.5, 0.75, 0.9, 0.99)), strict=True))
    facts: dict[str, Any] = {
        **{"node": f"{at:04x}", "ip": f"10.1.0.{at}", "hostname": f"host{at}"},
        **{"url": "http://127.0.0.1:8000/serve_bench_single", "client": "raw", "connections": 10},
        **{"seconds": 3.0, "completed": 300, "failed": {}, "rate": 100.0},
        **{"connection_rate_mean": 10.0, "connection_rate_max": 20.0, "bytes_received": 30_720},
        "latency_ns": {
            "mean": MS * sum(latencies_ms) / len(latencies_ms),
            "max": MS * max(latencies_ms),
            **{f"p{share}": value for share, value in shares.items()},
        },
        **{"lost": None, "client_bound": False, "usage": None},
    }
    return facts | other


def lost_node(at: int, why: str = "no word for 5 s", **other: Any) -> dict[str, Any]:
    """Cut off a node: nothing of it is known but its last report."""
    unknown = ("connection_rate_mean", "connection_rate_max", "client_bound")
    nothing: dict[str, Any] = {
        **dict.fromkeys(unknown),
        **{"completed": 0, "failed": {"node": 57}, "rate": 0.0, "bytes_received": 0, "lost": why},
        "latency_ns": dict.fromkeys(("mean", "max", "p50", "p75", "p90", "p99")),
        "last_heard": {"completed": 47, "failed": 0, "age_s": 5.25},
    }
    return scale_node(at, **(nothing | other))


def scale_trial(
    of: PlannedTrial,
    nodes: Iterable[Mapping[str, Any]] | None = None,
    *,
    windows: Sequence[float] | None = None,
    latencies_ms: Sequence[float] | None = None,
    metrics: Mapping[str, tuple[str, float]] | None = None,
    failed: Mapping[str, int] | None = None,
    completed: int | None = None,
    **other: Any,
) -> Trial:
    """Make a trial of these nodes, or of none.

    The rates of the nodes add up to three windows alike; latencies are 100 ms, as Little's law has
    it for 10 connections and 100 requests/s of each node, unless others are given; an empty list:
    no histogram. `metrics`: name -> (unit, value), of a curve.
    """
    loaded = [dict(node) for node in nodes or ()]
    heard_rate = sum(node["rate"] for node in loaded if not node["lost"])
    rates = tuple(windows) if windows else (heard_rate or 100.0,) * 3
    done = round(sum(rates)) if completed is None else completed
    errors = Counter(failed or {})
    for node in loaded:
        errors.update(node["failed"])
    found = {"throughput": Metric("requests/s", "higher", windows=rates)}
    times = [100.0] * done if latencies_ms is None else latencies_ms
    if times:
        histogram = Histogram.of(round(MS * time_) for time_ in times)
        found["latency"] = Metric("ns", "lower", histogram=histogram.encode())
    for name, (unit, value) in (metrics or {}).items():
        found[name] = Metric(unit, "lower", windows=(value,))
    at = spec.on_nodes(of, len(loaded)) if len(loaded) > 1 else of
    about = {"metrics": found, "client": {"nodes": loaded}, **other}
    return trial(at, done=done, failed=errors, **about)


def graph_trials(suite: spec.ScaleSpec, **where: Any) -> list[Trial]:
    """Make the four rows of a graph: rates of windows, latencies in ms; Little's law between."""
    rows = planned(suite, **where)
    handle = ((90.0, 100.0, 110.0), (40.0, 60.0))
    http = ((45.0, 50.0, 55.0), (80.0, 120.0))
    out = []
    assert isinstance(suite, spec.GraphSpec)
    for (rates, times), plan in ((handle, rows[:2]), (http, rows[2:])):
        in_flight = [3000.0 * suite.clients / sum(rates)] * round(sum(rates))
        out.append(scale_trial(plan[0], windows=rates, latencies_ms=in_flight))
        slow = list(times) * 40
        out.append(scale_trial(plan[1], windows=(50.0,), latencies_ms=slow, completed=80))
    return out


def curve_trials(
    suite: spec.ScaleSpec,
    laws: Mapping[str, tuple[float, float]],
    *,
    variant: str = "default",
    round_: int = 1,
) -> list[Trial]:
    """Make a trial of each size; `laws`: by quantity a and b of a n^b, `throughput` among them.

    The latency is what Little's law makes of that: of 100 requests two take three times as long as
    the others.
    """
    units = {
        **{"deploy_time": "s", "memory_per_replica": "MB", "cpu_per_request": "us"},
        **{"controller_loop": "ms", "teardown_time": "s"},
    }
    out = []
    assert isinstance(suite, spec.LoadedSpec)
    for size in suite.replicas:
        values = {name: a * size**b for name, (a, b) in laws.items()}
        rate = values.get("throughput", 100.0)
        time_ms = 1000.0 * suite.connections / rate / 1.04
        (of,) = planned(suite, variant=variant, round_=round_, replicas=size)
        metrics = {name: (unit, values[name]) for name, unit in units.items() if name in values}
        node = scale_node(rate=rate)
        done = round(3 * rate)
        times = ([time_ms] * 49 + [3 * time_ms]) * (done // 50)
        out.append(scale_trial(of, [node], latencies_ms=times, metrics=metrics, completed=done))
    return out


def sizes_of(result: Result) -> list[ViewRow]:
    return [*merge_sizes(view_of(result).rows)]


def points_of(result: Result, kind: str) -> list[ViewRow]:
    """Derive the points of a run: its nodes, or how a curve grows."""
    return [point for point in view_of(result).points if point.dims["point"] == kind]


def one_launch(workload: str = "single", nodes: Sequence[Any] = (), **about: Any) -> Result:
    """Make a run of one launch of one size, loaded from these nodes or from one."""
    suite = scale_suite(workload)
    (of,) = planned(suite)
    return scale_result(suite, scale_trial(of, nodes or [scale_node()], **about))


def scale_result(suite: spec.ScaleSpec, *trials: Trial, others: Sequence[Record] = ()) -> Result:
    """Make a run with a failure for each trial that is invalid, as the bench writes it."""
    argv = ("serve-bench", "scale", suite.workload)
    about = replace(
        run(*list_trials(suite.plan())), argv=argv, command="scale", suite=suite.to_json()
    )
    invalid = [
        Failure("trial", f"invalid: {why}", AT, trial.key, variant=trial.variant, round=trial.round)
        for trial in trials
        if (why := spec.why_invalid(trial)) is not None
    ]
    return result_of([about, *trials, *invalid, *others])
