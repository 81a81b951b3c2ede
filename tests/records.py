"""Small records with easy numbers, for the tests of everything that reads a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from msgspec import to_builtins

from serve_bench.benchmarks.rpc.latencies import Episodes
from serve_bench.benchmarks.rpc.spec import LISTS, RpcSpec, World
from serve_bench.core.facts import HostFacts, TrialFlags, TrialSeconds
from serve_bench.core.histogram import Histogram, HistogramFacts
from serve_bench.core.load_result import Counts, Warmup, WorkerReport
from serve_bench.core.plan import list_trials, plan_trial
from serve_bench.core.result import (
    Failure,
    JsonObject,
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
from serve_bench.core.schema import built
from serve_bench.core.traffic import Row
from serve_bench.store import RunFolder, read
from tests.places import FORMATS

AT = "2026-01-02T03:04:05+00:00"
ROWS = (
    Row("single client", "aiohttp", 1, 1),
    Row("8 clients", "aiohttp", 8, 1),
    Row("100 connections", "raw", 100, 1),
)


def cell(batch: int = 1, queries: int = 1, replicas: int = 1) -> dict[str, int]:
    return {"max_batch_size": batch, "max_ongoing_requests": queries, "num_replicas": replicas}


def planned(
    variant: str = "default", row: Row = ROWS[0], round_: int = 1, of: dict[str, int] | None = None
) -> PlannedTrial:
    where = of or cell()
    return plan_trial(variant, round_, where, row)


def run(*plan: PlannedTrial) -> Run:
    return Run(
        id="r1",
        argv=("serve-bench", "micro"),
        command="micro",
        started_at=AT,
        tool_version="0.1.0",
        plan=plan,
        host=HostFacts(cpu="Test CPU", load_1m=0.1),
    )


def launch(variant: str = "default", round_: int = 1) -> Launch:
    """Make a launch of a variant, whose id is `<variant>-<round>`."""
    return Launch(
        id=f"{variant}-{round_}",
        variant=VariantUsed(variant),
        round=round_,
        started_at=AT,
        proof={
            "port": 8000,
            "port_owner": {"pid": 7, "name": "ray::ProxyActor", "role": "proxy"},
            "flags": {},
            "versions": {"ray": "2.60.0"},
        },
    )


def trial(
    of: PlannedTrial,
    *windows: float,
    window_s: float = 1.0,
    done: int | None = None,
    failed: Mapping[str, int] | None = None,
    in_flight: int = 0,
    latency: HistogramFacts | None = None,
    profiled: bool = False,
    client: JsonObject | None = None,
    **more: Any,
) -> Trial:
    """Make a measured trial with a rate for each window.

    `done`: the completed requests, where they are not those of the windows; `more`: other fields of
    the record.
    """
    rates = windows or (100.0, 110.0, 90.0)
    metrics = {"throughput": Metric("requests/s", "higher", windows=rates)}
    if latency is not None:
        metrics["latency"] = Metric("ns", "lower", histogram=latency)
    ended = round(window_s * sum(rates)) if done is None else done
    errors = dict(failed or {})
    made = Trial(
        **{**vars(of), "launch": f"{of.variant}-{of.round}", "started_at": AT},
        window_s=window_s,
        warmup=Warmup(1.0, True, ended),
        metrics=metrics,
        counts=Counts(ended + sum(errors.values()) + in_flight, ended, errors, in_flight),
        seconds=TrialSeconds(),
        flags=TrialFlags(profiled=profiled),
    )
    return changed(made, client=client or {}, **more)


R = TypeVar("R", bound=Record)


def changed(record: R, **fields: Any) -> R:
    """Replace fields of the record; their objects may be plain content, as in a file."""
    kinds = get_type_hints(type(record), include_extras=True)
    for name, value in fields.items():
        if isinstance(value, dict):
            fields[name] = built(kinds[name], to_builtins(value, str_keys=True), name)
    return replace(record, **fields)


def worker(connections: int) -> dict[str, Any]:
    """Make a load worker with so many connections, as a record has it."""
    return asdict(WorkerReport(1, connections, 0.1, None, None, 1.0, "timerfd"))


def store_run(folder: Path, result: Result) -> Path:
    records: list[Record] = [result.run, *result.launches, *result.trials, *result.failures]
    with RunFolder.create(folder, now=datetime.now(UTC)) as run:
        for record in records:
            run.append(record)
    return folder


PRESS_CELL = {
    **cell(queries=64),
    "ranker": "tuned",
    "device": "cpu",
    "rows_per_request": 15,
    "sparse_features": 2,
    "table_rows": 1000,
    "width": 16,
    "max_queued_requests": 48,
    "log_level": "ERROR",
}


def press_trial(  # noqa: PLR0913 - what a test varies
    clients: int,
    qps: float,
    *,
    run: int = 1,
    round_: int = 1,
    variant: str = "default",
    of: Mapping[str, Any] | None = None,
    failed: Mapping[str, int] | None = None,
    cut: int = 0,
    lost: int = 0,
    cpu: float | None = 90.0,
    gpu: float | None = None,
) -> Trial:
    """100 requests of each client at `qps`, a twentieth of the time spent on connecting.

    `run` counts from 2 where a step is measured again. `cut` requests were not answered in time,
    `lost` are missing without a word; `cpu` is that of one replica (a proxy uses half of it, a load
    worker 20 %); None: nothing was sampled. In a closed loop the latency is what Little's law makes
    it.
    """
    again = f", run {run}" if run > 1 else ""
    label = f"{clients} client{'' if clients == 1 else 's'}{again}"
    row = Row(label, "raw", clients, requests_each=100, run=run)
    where = dict(PRESS_CELL if of is None else of)
    errors = dict(failed or {})
    done = (row.requests or 0) - sum(errors.values()) - cut - lost
    total_s = done / qps
    measured_s = 0.95 * total_s
    histogram = Histogram.of([round(1e9 * measured_s * clients / done)] * done)
    processes = [
        {"pid": 1, "role": "proxy", "title": "ray::ProxyActor", "cpu_percent": (cpu or 0.0) / 2},
        {"pid": 2, "role": "replica", "title": "ray::ServeReplica:app:Press", "cpu_percent": cpu},
        {"pid": 3, "role": "load_worker", "title": "load", "cpu_percent": 20.0},
        {"pid": 4, "role": "serve_bench", "title": "tool", "cpu_percent": 1.0},
    ]
    usage = {
        "host": {"cores": 4, "cpu_percent": 30.0 + 1.5 * (cpu or 0.0), "steal_percent": 0.0},
        "processes": processes if where else processes[2:],
        "gpus": [] if gpu is None else [{"device": 0, "use_percent": gpu}],
    }
    at = plan_trial(variant, round_, where, row)
    return trial(
        at,
        qps,
        window_s=measured_s,
        done=done,
        failed=errors,
        in_flight=cut,
        latency=histogram.encode(),
        warmup=Warmup(0.0, True, 0),
        seconds={"connecting": total_s - measured_s, "measured": measured_s, "total": total_s},
        flags=TrialFlags(cut=bool(cut)),
        usage={} if cpu is None else usage,
    )


def press_result(
    *trials: Trial,
    suite: Mapping[str, Any] | None = None,
    others: Sequence[Record] = (),
    command: str = "press",
) -> Result:
    """Make a run of these trials: with the launches that they need."""
    steps = list(dict.fromkeys(trial.row.connections for trial in trials))
    cells = list({str(trial.cell): dict(trial.cell) for trial in trials if trial.cell}.values())
    about = {
        "app": "press",
        "cells": cells,
        "ladder": {"steps": steps},
        "requests_per_client": 100,
        "max_row_s": 60.0,
        "timeout_s": 200.0,
        **(suite or {}),
    }
    records: list[Record] = [replace(run(), command=command, suite=about)]
    launches = dict.fromkeys((trial.variant, trial.round) for trial in trials if trial.cell)
    return result_of([*records, *(launch(*place) for place in launches), *trials, *others])


def stored(name: str) -> Result:
    """Read a run that is kept in tests/formats."""
    return read(FORMATS / f"2-{name}.jsonl")


def failure_of(of: Trial, message: str) -> Failure:
    where: dict[str, Any] = {name: getattr(of, name) for name in ("key", "variant", "round")}
    return Failure("trial", message, AT, cell=of.cell, row=of.row, **where)


def rpc_world(size: int = 10, batch: bool = True, **other: Any) -> World:
    """Make a world as published, on a CPU with one thread."""
    given: dict[str, Any] = {"state_size": "10-20-10", "nlayers": 5, "out_features": 10} | other
    return World(size, batch, device="cpu", threads=1, **given)


def rpc_suite(
    worlds: Sequence[World] = (), backends: Sequence[Any] = ("torch",), **other: Any
) -> RpcSpec:
    given: dict[str, Any] = {"episodes": 3, "steps": 4, "output_file_path": "benchmark_report.json"}
    cells = [asdict(world) for world in worlds or [rpc_world()]]
    lists = {name: tuple(dict.fromkeys(cell[name] for cell in cells)) for name in LISTS}
    return RpcSpec(backend=tuple(backends), **{**lists, **given, **other})


def rpc_trial(
    world: World,
    agent_us: Sequence[float] = (2000.0,),
    observer_us: Sequence[float] = (3000.0,),
    *,
    backend: str = "torch",
    suite: RpcSpec | None = None,
    cpu: tuple[float, float, float] | None = (40.0, 30.0, 5.0),
    host: float = 90.0,
) -> Trial:
    """Three episodes, each with these latencies in the agent and of every observer (us).

    `cpu`: of the agent, of all observers and of a raylet; None: nothing was sampled. The host has
    two cores, of which `host` % are busy.
    """
    observers, episodes = world.observers, Episodes(world.batch_size)
    calls = 3 * observers * len(observer_us)
    span_ns = round(1e3 * sum(observer_us))  # each observer calls without a pause
    for _ in range(3):
        episodes.add(
            {
                "agent_ns": [round(1e3 * time) for time in agent_us],
                "observer_ns": [[round(1e3 * time) for time in observer_us]] * observers,
                "began_ns": 0,
                "ended_ns": span_ns,
            }
        )
    agent, observer, other = cpu or (0.0, 0.0, 0.0)
    roles = [("agent", agent), *[("observer", observer / observers)] * observers, ("raylet", other)]
    processes = [
        {"pid": pid, "role": role, "title": role, "cpu_percent": percent}
        for pid, (role, percent) in enumerate(roles, 1)
    ]
    usage = {"host": {"cores": 2, "cpu_percent": host}, "processes": processes, "gpus": []}
    cell, _, (row,) = (suite or rpc_suite([world], [backend])).cell(world)
    return trial(
        plan_trial(backend, 1, cell, row),
        window_s=span_ns / 1e9,
        done=calls,
        client={"memory_bytes": 20_000_000 * world.world_size},
        metrics=episodes.metrics(),
        usage={} if cpu is None else usage,
    )


def rpc_result(suite: RpcSpec, *trials: Trial, others: Sequence[Record] = ()) -> Result:
    argv = ("serve-bench", "rpc")
    about = replace(
        run(*list_trials(suite.plan())), argv=argv, command="rpc", suite=suite.to_json()
    )
    return result_of([about, *trials, *others])
