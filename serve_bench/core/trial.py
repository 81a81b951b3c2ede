"""From a row to the load that it asks for, and from what a load measured to the record of a trial.

Pure: nothing here drives anything.
"""

from __future__ import annotations

from typing import Final

from serve_bench.core.app_spec import AppSpec
from serve_bench.core.axes import body_bytes
from serve_bench.core.load_result import HISTOGRAMS, LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Metric, PlannedTrial, Row, Trial
from serve_bench.core.scenario import Cell, Suite

#: Histograms of a load that enter a Trial when they hold anything.
_HISTOGRAMS = HISTOGRAMS

#: A load by count ends with its last response; this bounds one against a server that hangs.
LONGEST_QUERY_S = 30.0


#: What bodies of an app are; FastAPI takes no others for JSON.
JSON: Final = (("content-type", "application/json"),)

#: How long a row that was cut off waits for the responses to what it had sent.
CUT_DRAIN_S: Final = 2.0


def load_of(suite: Suite, row: Row, url: str, cell: Cell) -> Load:
    """The load of a row on a cell, against a server at `url` (without a path)."""
    return Load(
        request_of(suite.app, row, url, cell),
        client="aiohttp" if row.client == "aiohttp" else "raw",
        connections=row.connections,
        processes=row.processes,
        count=suite.requests,
        each=row.requests_each,
        timeout_s=suite.timeout_s,
    )


def request_of(app: AppSpec, row: Row, url: str, cell: Cell) -> Request:
    """What a row asks of an app at `url`, and what its response must be."""
    if app.own is not None:
        return app.own.asked.request(url)
    size = body_bytes(row.data_size)
    bodies = app.bodies(cell) if app.bodies is not None else ()
    return Request(
        url=url + app.route,
        method="POST" if size or bodies else "GET",
        headers=JSON if bodies else (),
        body=b"a" * size,
        bodies=bodies,
        expect_status=(200,),
        expect_body=app.answer,
        paths=app.paths,
    )


def timing_of(suite: Suite, row: Row) -> Timing:
    """The suite's warm-up and windows; a number of requests is one window, as long as it takes."""
    if row.requests_each is not None:
        return row_timing(suite.max_row_s)
    if suite.requests is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_QUERY_S * suite.requests)
    return Timing(
        warmup_min_s=suite.warmup_min_s,
        warmup_max_s=suite.warmup_max_s,
        windows=suite.windows,
        window_s=suite.window_s,
    )


def row_timing(max_row_s: float) -> Timing:
    """A row of so many requests a client: no warm-up, one window that `max_row_s` cuts off."""
    return Timing(0.0, 0.0, windows=1, window_s=max_row_s, drain_s=CUT_DRAIN_S)


def settled_of(result: LoadResult) -> dict[str, float | int | bool | None]:
    """What settling found, for the record of a deploy."""
    return {
        "seconds": round(result.warmup.seconds + result.duration_s, 4),
        "steady": result.warmup.steady,
        "judged": result.warmup.judged,
        "completed": result.total.completed,
        "failed": result.total.failed_total,
        "p50_ns": result.latency.percentile(0.5),
    }


def trial_of(
    planned: PlannedTrial, launch: str, started_at: str, result: LoadResult, total_s: float
) -> Trial:
    """The record of a load that was driven; `total_s` is the whole time it took, start to end.

    Of a row of so many requests a client the rate is that of the press test: connecting counts.
    """
    window_s = result.window_s if result.windows else result.duration_s
    throughput = tuple(count / window_s for count in result.windows) or (result.rate,)
    flags = {}
    if planned.row.requests is not None:
        whole_s = result.connecting_s + result.duration_s
        throughput = (result.completed_in_windows / whole_s if whole_s > 0 else 0.0,)
        flags = {"cut": result.ended_in_windows < planned.row.requests}
    metrics = {"throughput": Metric("requests/s", "higher", windows=throughput)}
    for name in _HISTOGRAMS:
        histogram = getattr(result, name)
        if histogram.count or name == "latency":
            metrics[name] = Metric("ns", "lower", histogram=histogram.encode())
    evidence = result.to_json()
    kept = ("verdict", "workers", "status_codes", "bytes_received", "retried", "reconnects")
    known = ("in_windows", "mean_in_flight")
    client = {name: evidence[name] for name in (*kept, "total", "notes")}
    client |= {name: evidence[name] for name in known if evidence[name] is not None}
    if result.nodes:
        client["nodes"] = evidence["nodes"]
    return Trial(
        key=planned.key,
        launch=launch,
        round=planned.round,
        variant=planned.variant,
        cell=planned.cell,
        row=planned.row,
        started_at=started_at,
        window_s=window_s,
        warmup=result.warmup,
        metrics=metrics,
        counts=result.measured,
        client=client,
        seconds={
            "total": round(total_s, 4),
            "connect": round(result.time_to_connect_s, 4),
            "connecting": round(result.connecting_s, 6),
            "warmup": round(result.warmup.seconds, 4),
            "measured": round(result.duration_s, 6),
        },
        flags=flags,
    )


def row_of(load: Load) -> Row:
    """The row that a load of its own makes."""
    things = "client" if load.client == "aiohttp" else "connection"
    label = f"{load.connections} {things}{'' if load.connections == 1 else 's'}"
    return Row(
        label=label,
        client=load.client,
        connections=load.connections,
        processes=load.processes,
        loop="open" if load.open_loop else "closed",
        rate_per_s=load.rate,
        data_size=str(max(len(body) for body in load.request.all_bodies)),
    )
