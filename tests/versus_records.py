"""Runs of versus and pairs of stored runs, with easy numbers, for the tests of comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.comparing import of_runs
from serve_bench.analysis.comparing.model import Comparing
from serve_bench.analysis.comparing.values import NAMES, rows_of
from serve_bench.analysis.ratios import RunSpread
from serve_bench.analysis.statistics import variants
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.core.facts import HostFacts
from serve_bench.core.histogram import Histogram, HistogramFacts, slot
from serve_bench.core.load_result import Warmup
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import (
    Launch,
    Metric,
    PlannedTrial,
    Record,
    Result,
    Run,
    Trial,
    VariantUsed,
    result_of,
)
from serve_bench.core.traffic import Row
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.spec.sides import Side
from tests.records import AT, ROWS, cell, launch, trial

HOST: Final = HostFacts(
    id="aaaaaaaaaaaa",
    cpu="Test CPU",
    machine="x86_64",
    logical_cores=4,
    usable_cores=4,
    memory_bytes=16 << 30,
    kernel="Linux 6.8.0-45-generic",
    load_1m=0.1,
    python="3.11.9",
    ray="2.60.0",
    tool="0.1.0",
)

UNBOUND = {"client_bound": False, "reasons": []}
"""The verdict on a client that kept up."""

#: A wobble of rounds, in percent: by and large nothing.
WOBBLE = (0.0, 1.0, -1.0, 0.5, -0.5, 0.2)

Rates = Sequence[Sequence[float]]
"""Of the sides, in each round."""


def rates(a: float, b: float, rounds: int = 6, wobble: float = 1.0) -> list[tuple[float, float]]:
    """Requests/s of A and B in each round; B wobbles against A."""
    return [(a, b * (1 + wobble * WOBBLE[at % 6] / 100)) for at in range(rounds)]


def one_launch(
    label: str, round_: int, variant: str = "default", versions: Mapping[str, str] | None = None
) -> Launch:
    """Make a launch of a side; its owner is the proxy that the variant's flags ask for."""
    plain, versions = launch(label, round_), versions or {"ray": "2.60.0", "python": "3.11.9"}
    proof = {**plain.proof, "versions": {**versions}}
    if variant != "default":
        proof["port_owner"] = {"pid": 7, "name": "haproxy", "role": "haproxy"}
    used = replace(BUILT_IN_VARIANTS[variant], name=label)
    return replace(plain, variant=used, proof=proof)


def latency_of(rate: float, connections: int, count: int = 1000) -> HistogramFacts:
    """By Little's law; one in fifty takes four times as long."""
    if not count:
        return Histogram().encode()
    slow = count // 50
    middle = round(1e9 * connections / rate / (1 + 3 * slow / count))
    histogram = Histogram.of([middle, 4 * middle] if slow else [middle])
    histogram.counts[slot(middle)] += count - slow - 1
    histogram.counts[slot(4 * middle)] += max(0, slow - 1)
    return histogram.encode()


def sliced(
    at: PlannedTrial,
    rate: float,
    *,
    cpu_us: float | None = 500.0,
    steady: float | None = 1.0,
    failed: int = 0,
    verdict: Mapping[str, Any] | None = None,
    flags: Mapping[str, bool] | None = None,
) -> Trial:
    """Make a side in slices of 50 ms at `rate`; a steady load has `steady` times that rate."""
    count, length_s = 80, 0.05
    done = [round(rate * length_s)] * count
    lengths = [requests / rate for requests in done]
    metrics = {
        "throughput": Metric("requests/s", "higher", windows=(rate,) * count),
        "latency": Metric("ns", "lower", histogram=latency_of(rate, at.row.connections, sum(done))),
    }
    if steady is not None:
        metrics["steady_throughput"] = Metric("requests/s", "higher", windows=(steady * rate,) * 4)
    if cpu_us is not None:
        metrics["server_cpu"] = Metric("s", "lower", windows=(sum(done) * cpu_us / 1e6,))
    slices = {
        "method": "slices",
        "slice_s": length_s,
        "connections": at.row.connections,
        "chosen_drain_s": 0.004,
        "why": "",
        "drain_s": 0.004,
        "begun_s": [0.1 * number for number in range(count)],
        "length_s": lengths,
        "completed": done,
        "failed": [failed] + [0] * (count - 1),
    }
    return trial(
        at,
        window_s=length_s,
        done=sum(done),
        failed={"reset": failed} if failed else {},
        client={"slices": slices, "verdict": {**UNBOUND, **(verdict or {})}},
        metrics=metrics,
        warmup=Warmup(1.0, True, 100),
        flags=flags or {},
    )


def versus_run(
    labels: Sequence[str] = ("default", "optimized"),
    rows: Sequence[Row] = ROWS[2:],
    rounds: int = 6,
    **suite: Any,
) -> Run:
    of = cell(1, 10000, 8)
    bare = [label.removesuffix(" (A)").removesuffix(" (B)") for label in labels]
    used = (BUILT_IN_VARIANTS.get(name, VariantUsed(name)) for name in bare)
    sides = map(Side, labels, used)
    whole = VersusSpec(
        "micro",
        tuple(sides),
        (of,),
        tuple(rows),
        rounds,
        side_s=4.0,
        steady_s=2.0,
        aa=bare[0] == bare[1],
        gate=("throughput",),
    )
    plan = tuple(
        plan_trial(label, round_, of, row)
        for round_ in range(1, rounds + 1)
        for row in rows
        for label in labels
    )
    argv = ("versus", "--a", bare[0], "--b", bare[1])
    about = whole.to_json() | suite
    return Run("20260102T030405Z", argv, "versus", AT, "0.1.0", suite=about, plan=plan, host=HOST)


def versus_result(
    by_row: Mapping[Row, Rates] | None = None,
    *,
    labels: Sequence[str] = ("default", "optimized"),
    a: Mapping[str, Any] | None = None,
    b: Mapping[str, Any] | None = None,
    others: Sequence[Record] = (),
    **suite: Any,
) -> Result:
    """Make a run of versus with these rates; `a` and `b` go to `sliced` of A and others."""
    rows = by_row or {ROWS[2]: rates(580.0, 6850.0)}
    rounds = max(len(values) for values in rows.values())
    run = versus_run(labels, list(rows), rounds=rounds, **suite)
    records: list[Record] = [run]
    bare = [side["variant"]["name"] for side in run.suite["sides"]]
    for round_ in range(1, rounds + 1):
        for label, name in zip(labels, bare, strict=True):
            known = name if name in BUILT_IN_VARIANTS else "default"
            records.append(one_launch(label, round_, known))
        for row, values in rows.items():
            if round_ <= len(values):
                givens = (a, *[b] * (len(labels) - 1))
                for label, rate, given in zip(labels, values[round_ - 1], givens, strict=True):
                    at = plan_trial(label, round_, run.suite["cells"][0], row)
                    records.append(sliced(at, rate, **(given or {})))
    return result_of([*records, *others])


def measured(
    at: PlannedTrial,
    rate: float,
    *,
    cpu_percent: float | None = 90.0,
    failed: int = 0,
    verdict: Mapping[str, Any] | None = None,
    flags: Mapping[str, bool] | None = None,
    steal: float = 0.0,
) -> Trial:
    """Make a trial of micro: ten windows of 1 s about `rate`, replica and proxy sampled."""
    windows = tuple(rate * (1 + 0.01 * (1 - 2 * (number % 2))) for number in range(10))
    done = round(10 * rate)
    processes = [
        {"pid": 1, "role": "proxy", "title": "ray::ProxyActor", "cpu_percent": cpu_percent},
        {"pid": 2, "role": "replica", "title": "ray::ServeReplica:a:B", "cpu_percent": cpu_percent},
        {"pid": 3, "role": "controller", "title": "c", "cpu_percent": 7.0},
    ]
    host = {"cores": 4, "cpu_percent": 200.0, "steal_percent": steal}
    usage = {"host": host, "processes": processes, "gpus": []}
    return trial(
        at,
        *windows,
        done=done,
        failed={"reset": failed} if failed else {},
        latency=latency_of(rate, at.row.connections, done),
        client={"verdict": {**UNBOUND, **(verdict or {})}},
        warmup=Warmup(1.0, True, 100),
        seconds={"total": 10.0, "measured": 10.0},
        flags=flags or {},
        usage={} if cpu_percent is None else usage,
    )


def micro_run(id: str = "before", **suite: Any) -> Run:
    about = {"name": "micro", "app": "noop", "windows": 10, "window_s": 1.0, "launches": 3}
    argv = ("micro", "--launches", "3")
    return Run(id, argv, "micro", AT, "0.1.0", suite=about | suite, host=HOST)


def micro_result(
    by_row: Mapping[Row, Sequence[float]],
    id: str = "before",
    *,
    variants: Sequence[str] = ("default",),
    versions: Mapping[str, str] | None = None,
    of: Mapping[str, Any] | None = None,
    others: Sequence[Record] = (),
    run: Run | None = None,
    **about: Any,
) -> Result:
    """Make a run of micro: of each row a rate for each launch, the same for all variants."""
    where = of or cell(1, 10000, 8)
    records: list[Record] = [run or micro_run(id)]
    for round_ in range(1, max(map(len, by_row.values())) + 1):
        for variant in variants:
            known = variant if variant in BUILT_IN_VARIANTS else "default"
            records.append(one_launch(variant, round_, known, versions))
            for row, values in by_row.items():
                if round_ <= len(values):
                    at = plan_trial(variant, round_, where, row)
                    records.append(measured(at, values[round_ - 1], **about))
    return result_of([*records, *others])


def alike_runs(a: Result, b: Result, *flags: Any, **named: Any) -> Comparing:
    """Two stored runs of a suite whose runs do not differ from one to the next."""
    steady = dict.fromkeys(NAMES, RunSpread(0.0))
    spreads = {(name, place): steady for name in variants(a) for place in rows_of(a, name)}
    return of_runs(a, b, *flags, spreads=spreads, **named)
