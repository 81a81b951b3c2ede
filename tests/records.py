"""Small records with easy numbers, for the tests of everything that reads a run."""

from __future__ import annotations

from serve_bench.result import (
    Counts,
    Launch,
    Metric,
    PlannedTrial,
    Row,
    Run,
    Trial,
    VariantUsed,
    Warmup,
    trial_key,
)

AT = "2026-01-02T03:04:05+00:00"
ROWS = (
    Row("single client", "aiohttp", 1, 1),
    Row("8 clients", "aiohttp", 8, 1),
    Row("100 connections", "raw", 100, 1),
)


def cell(batch: int = 1, queries: int = 1, replicas: int = 1) -> dict[str, int]:
    """A cell of the micro matrix."""
    return {
        "max_batch_size": batch,
        "max_concurrent_queries": queries,
        "num_replicas": replicas,
    }


def planned(
    variant: str = "default",
    row: Row = ROWS[0],
    round_: int = 1,
    of: dict[str, int] | None = None,
) -> PlannedTrial:
    """A planned trial, its key made the usual way."""
    where = of or cell()
    return PlannedTrial(trial_key(variant, round_, where, row.label), round_, variant, where, row)


def run(*plan: PlannedTrial) -> Run:
    """The first record of a run."""
    return Run(
        id="r1",
        argv=("serve-bench", "micro"),
        command="micro",
        started_at=AT,
        tool_version="0.1.0",
        plan=plan,
        host={"cpu": "Test CPU", "cores": 4, "load_1m": 0.1},
    )


def launch(variant: str = "default", round_: int = 1) -> Launch:
    """A launch of a variant, whose id is `<variant>-<round>`."""
    return Launch(
        id=f"{variant}-{round_}",
        variant=VariantUsed(variant),
        round=round_,
        started_at=AT,
        seconds={"ray_init": 3.0, "serve_start": 1.5},
        proof={
            "port": 8000,
            "port_owner": {"pid": 7, "name": "ray::ProxyActor", "role": "proxy"},
            "flags": {"proxy": {"RAY_SERVE_ENABLE_HA_PROXY": False}},
            "environment": {"proxy": {}},
            "versions": {"ray": "2.60.0"},
        },
    )


def trial(
    of: PlannedTrial,
    *windows: float,
    failed: dict[str, int] | None = None,
    latency: dict[str, object] | None = None,
    profiled: bool = False,
    steady: bool = True,
    client: dict[str, object] | None = None,
) -> Trial:
    """A measured trial with a rate for each 1 s window."""
    rates = windows or (100.0, 110.0, 90.0)
    metrics = {"throughput": Metric("requests/s", "higher", windows=rates)}
    if latency is not None:
        metrics["latency"] = Metric("ns", "lower", histogram=latency)
    done = round(sum(rates))
    errors = failed or {}
    return Trial(
        key=of.key,
        launch=f"{of.variant}-{of.round}",
        round=of.round,
        variant=of.variant,
        cell=of.cell,
        row=of.row,
        started_at=AT,
        window_s=1.0,
        warmup=Warmup(1.0, steady, done),
        metrics=metrics,
        counts=Counts(sent=done + sum(errors.values()), completed=done, failed=errors, in_flight=0),
        client=client or {},
        flags={"profiled": True} if profiled else {},
    )
