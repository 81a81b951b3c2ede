"""From a row to the load that it asks for, and from what a load measured to the record of a trial.

Pure: nothing here drives anything.
"""

from __future__ import annotations

from serve_bench.axes import body_bytes
from serve_bench.load_result import LoadResult
from serve_bench.load_spec import Load, Timing
from serve_bench.request_spec import Request
from serve_bench.result import Metric, PlannedTrial, Row, Trial
from serve_bench.scenario import Suite

#: Histograms of a load that enter a Trial when they hold anything; the first two always hold some.
_HISTOGRAMS = ("latency", "service_time", "send_lag", "pickup", "failed_latency")

#: A load by count ends with its last response; this bounds one against a server that hangs.
LONGEST_QUERY_S = 30.0


def load_of(suite: Suite, row: Row, url: str) -> Load:
    """The load of a row against a server at `url` (without a path)."""
    size = body_bytes(row.data_size)
    request = Request(
        url=url + suite.app.route,
        method="POST" if size else "GET",
        body=b"a" * size,
        expect_status=(200,),
        expect_body=suite.app.answer,
        paths=suite.app.paths,
    )
    return Load(
        request,
        client="aiohttp" if row.client == "aiohttp" else "raw",
        connections=row.connections,
        processes=row.processes,
        count=suite.requests,
    )


def timing_of(suite: Suite) -> Timing:
    """The suite's warm-up and windows; a number of requests is one window, as long as it takes."""
    if suite.requests is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_QUERY_S * suite.requests)
    return Timing(
        warmup_min_s=suite.warmup_min_s,
        warmup_max_s=suite.warmup_max_s,
        windows=suite.windows,
        window_s=suite.window_s,
    )


def trial_of(
    planned: PlannedTrial, launch: str, started_at: str, result: LoadResult, total_s: float
) -> Trial:
    """The record of a load that was driven; `total_s` is the whole time it took, start to end."""
    window_s = result.window_s if result.windows else result.duration_s
    throughput = tuple(count / window_s for count in result.windows) or (result.rate,)
    metrics = {"throughput": Metric("requests/s", "higher", windows=throughput)}
    for name in _HISTOGRAMS:
        histogram = getattr(result, name)
        if histogram.count or name == "latency":
            metrics[name] = Metric("ns", "lower", histogram=histogram.encode())
    evidence = result.to_json()
    kept = ("verdict", "workers", "status_codes", "bytes_received", "retried", "reconnects")
    client = {name: evidence[name] for name in (*kept, "total", "notes")}
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
            "warmup": round(result.warmup.seconds, 4),
            "measured": round(result.duration_s, 4),
        },
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
