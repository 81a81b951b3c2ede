"""`serve-bench noop`: a warmed-up no-op endpoint, for one's own load tool or py-spy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.result import Trial
    from serve_bench.serving.server import Serving


def noop(
    blocking: Annotated[
        bool, typer.Option("--blocking", help="Stay up until Ctrl-C or SIGTERM.")
    ] = False,
    num_replicas: Annotated[str, typer.Option(help="Replicas.")] = "8",
    num_queries: Annotated[int, typer.Option(help="Sequential warm-up queries.")] = 500,
    max_concurrent_queries: Annotated[
        str,
        typer.Option(
            "--max-concurrent-queries",
            "--max-ongoing-requests",
            help="Requests that one replica takes at once.",
        ),
    ] = "10000",
    max_batch_size: Annotated[str, typer.Option(help="1 means no batching.")] = "1",
    batch_wait_timeout_s: Annotated[
        str, typer.Option(help="How long serve.batch waits to fill a batch, seconds.")
    ] = "0",
    body_type: Annotated[
        str, typer.Option(help="response (Content-Length) or str (chunked, as published).")
    ] = "response",
    intermediate_handle: Annotated[
        bool, typer.Option("--intermediate-handle", help="Put a forwarding deployment in front.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP port; 0 for any free one.")] = 8000,
    variant: Annotated[str, typer.Option(help="default, haproxy or optimized.")] = "default",
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the variant; repeatable.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Repeat the warm-up with py-spy on proxy, replica, controller; with commas."
        ),
    ] = None,
    no_sample: Annotated[
        bool, typer.Option("--no-sample", help="Do not sample CPU and memory beside the load.")
    ] = False,
    serve_metrics: options.ServeMetrics = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")] = None,
) -> int:
    """Deploy the no-op at /noop, fire the warm-up queries, print their latency and how to load it.

    Example: serve-bench noop --blocking --num-replicas 8 --variant optimized
    """
    from serve_bench.cli import measure
    from serve_bench.cli.sitting import signals
    from serve_bench.core.axes import AXES, parse_env
    from serve_bench.core.errors import BadInput
    from serve_bench.core.suite import Overrides
    from serve_bench.serving.launch_spec import check_port

    if not 1 <= num_queries <= 10_000_000:
        raise BadInput(f"--num-queries: {num_queries} is not allowed; it takes 1 to 10000000")
    given = {
        "num_replicas": num_replicas,
        "max_concurrent_queries": max_concurrent_queries,
        "max_batch_size": max_batch_size,
        "batch_wait_timeout_s": batch_wait_timeout_s,
        "body_type": body_type,
        "intermediate_handle": intermediate_handle,
    }
    settings = {
        name: AXES[name].read(value, f"--{name.replace('_', '-')}") for name, value in given.items()
    }
    flags = Overrides(variants=(variant,), env=parse_env(env or [], "--env"), settings=settings)
    sitting = measure.fresh("noop", "noop", flags, out)
    sitting = replace(sitting, suite=replace(sitting.suite, requests=num_queries))
    sitting = measure.looking_inside(sitting, profile, no_sample, serve_metrics)
    sitting = measure.loading_on(sitting, load_on, load_nodes)
    check_port(host, port)

    def ready(serving: Serving, trials: Sequence[Trial]) -> None:
        for trial in trials:
            typer.echo(latency_text(trial))
        typer.echo(where_it_is(serving, sitting.suite.app.route))
        if blocking and trials:
            typer.echo(how_to_load(serving, sitting.suite.app.route, body_type))
            typer.echo("serving until Ctrl-C or SIGTERM")
            sys.stdout.flush()
            _wait_while_alive(serving)

    with signals():
        outcome = measure.measure(sitting, host=host, port=port, after_cell=ready)
    typer.echo(f"records: {outcome.folder}")
    if outcome.failed or (outcome.interrupted and not outcome.result.trials):
        return 130 if outcome.interrupted else 1
    return 0


def _wait_while_alive(serving: Serving) -> None:
    """Returns never but by KeyboardInterrupt; RunFailed when the cluster ends by itself."""
    import time

    from serve_bench.core.errors import RunFailed

    while serving.alive() and serving.broken() is None:
        time.sleep(0.2)
    why = serving.broken() if serving.alive() else None
    why = why or "the cluster process ended by itself"
    raise RunFailed(f"{why}: nothing is served any more", (f"log: {serving.spec.log}",))


def latency_text(trial: Trial) -> str:
    """The latency of the warm-up queries in the shape of the published script, in ms."""
    from serve_bench.analysis.statistics import (
        CENSORED,
        LATENCY,
        distribution,
        latency_figures,
        merged,
    )
    from serve_bench.benchmarks.parts.texts import bound_sign

    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    figures: dict[str, float | None] = {}
    if answered.count or given_up.count:
        whole = distribution(trial.metrics[LATENCY], answered, given_up)
        shares = (0.5, 0.9, 0.95, 0.99)
        figures = {"mean": whole.mean, "std": whole.std, "min": answered.joined(given_up).min}
        figures |= zip(("p50", "p90", "p95", "p99"), latency_figures([trial], shares), strict=True)
        figures["max"] = whole.max
    lines = [
        f"warm-up queries: 1 aiohttp client, sequential, variant {trial.variant}, "
        f"{trial.counts.failed_total} errors",
        f"    count {answered.count}",
    ]
    lines += [
        f"    {name:5} {bound_sign(value) + format(value / 1e6, '.3f'):>8} ms"
        for name, value in figures.items()
        if value is not None
    ]
    return "\n".join(lines)


def where_it_is(serving: Serving, route: str) -> str:
    """The URL, and the pids of what serves it."""
    by_role: dict[str, list[str]] = {}
    for process in serving.processes():
        by_role.setdefault(process.role, []).append(str(process.pid))
    shown = ("haproxy", "haproxy_manager", "proxy", "fallback_proxy", "replica", "controller")
    pids = [f"    {role:16} {' '.join(by_role[role])}" for role in shown if role in by_role]
    return "\n".join(
        [f"url: {serving.url}{route}", f"pids (variant {serving.spec.variant.name}):", *pids]
    )


def how_to_load(serving: Serving, route: str, body_type: str) -> str:
    """Command lines to paste."""
    url = serving.url + route
    # ab speaks HTTP/1.0 and waits for ever for the end of a chunked answer on a kept connection.
    keep = "-k " if body_type == "response" else ""
    return "\n".join(
        [
            "load it (100 to 200 connections suffice to profile throughput):",
            f"    wrk -c 100 -t 2 -d 10s --latency {url}",
            f"    ab {keep}-c 100 -n 20000 {url}",
            f"    hey -c 100 -z 10s {url}",
            f"    oha -c 100 -z 10s {url}",
            f"    locust --headless -u 100 -r 100 -t 10s --host {serving.url} -f locustfile.py",
            "where locustfile.py holds:",
            "    from locust import FastHttpUser, task",
            "    class User(FastHttpUser):",
            "        @task",
            f"        def get(self): self.client.get({route!r})",
        ]
    )
