"""`serve-bench micro`: the matrix on the no-op app or a DLRM ranker; `noop`: a warm endpoint."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import typer

from serve_bench.analysis.statistics import CENSORED, LATENCY, distribution, latency_figures, merged
from serve_bench.benchmarks.micro.options import MicroOptions, NoopOptions
from serve_bench.cli.exits import close_slo
from serve_bench.cli.experiment import SuiteExperiment, check_load, sitting_of
from serve_bench.cli.rows import add_flags, read_content, suite_of, targets_of
from serve_bench.cli.sitting import outcome_of, signals
from serve_bench.core.errors import RunFailed
from serve_bench.core.figures import bound_sign
from serve_bench.core.plan import Suite, plan, request_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Trial
from serve_bench.core.traffic import HANDLES
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.load_source import read_load_on
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.serving.launch_spec import check_port
from serve_bench.serving.server import Serving
from serve_bench.view.inside import describe_profiled


def _wait_while_alive(serving: Serving) -> None:
    """Wait until KeyboardInterrupt. Raises RunFailed when the cluster ends by itself."""
    while serving.alive() and serving.broken() is None:
        time.sleep(0.2)
    why = serving.broken() if serving.alive() else None
    why = why or "the cluster process ended by itself"
    raise RunFailed(f"{why}: nothing is served any more", (f"log: {serving.spec.log}",))


def latency_text(trial: Trial) -> str:
    """Render the latency of the warm-up queries in the shape of the published script, in ms."""
    answered, given_up = merged([trial], LATENCY), merged([trial], CENSORED)
    figures: dict[str, float | None] = {}
    if answered.count or given_up.count:
        whole = distribution(answered, given_up)
        shares = (0.5, 0.9, 0.95, 0.99)
        figures = {"mean": whole["mean"], "std": whole["std"], "min": answered.joined(given_up).min}
        figures |= zip(("p50", "p90", "p95", "p99"), latency_figures([trial], shares), strict=True)
        figures["max"] = whole["max"]
    lines = [
        f"warm-up queries: 1 {trial.row.client} client, sequential, variant {trial.variant}, "
        f"{trial.counts.failed_total} errors",
        f"    count {answered.count}",
    ]
    lines += [
        f"    {name:5} {bound_sign(value) + format(value / 1e6, '.3f'):>8} ms"
        for name, value in figures.items()
        if value is not None
    ]
    return "\n".join(lines)


def describe_service(serving: Serving, url: str) -> str:
    """Render the URL, and the pids of what serves it."""
    by_role: dict[str, list[str]] = {}
    for process in serving.processes():
        by_role.setdefault(process.role, []).append(str(process.pid))
    shown = ("haproxy", "haproxy_manager", "proxy", "fallback_proxy", "replica", "controller")
    pids = [f"    {role:16} {' '.join(by_role[role])}" for role in shown if role in by_role]
    return "\n".join([f"url: {url}", f"pids (variant {serving.spec.variant.name}):", *pids])


def describe_load(protocol: str, request: Request) -> str:
    """Render a command line to paste, for protocols that few other programs speak."""
    if protocol in HANDLES:
        _, application, method = urlsplit(request.url).path.split("/")
        how = ".options(stream=True)" if protocol == "handle-stream" else ""
        call = f"serve.get_app_handle({application!r}){how}.{method}.remote({request.body!r})"
        return f"call it in a driver or a deployment of this cluster:\n    {call}"
    words = ["serve-bench load", shlex.quote(request.url), "--protocol", protocol]
    for name, value in request.headers:
        words += ["-H", shlex.quote(f"{name}: {value}")]
    if request.body:
        words += ["-b", shlex.quote(request.body.decode())]
    return f"load it:\n    {' '.join(words)} -c 100 -d 10s"


def describe_loads(serving: Serving, route: str, body_type: str) -> str:
    """Render command lines to paste, for other load tools."""
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


class MicroRun(SuiteExperiment[MicroOptions]):
    """The rows of each cell."""

    def suite(self) -> Suite:
        content = add_flags(read_content(self.options.suite), self.options)
        return suite_of(content.set("app", self.options.app, "--app"))


def noop(options: NoopOptions) -> int:
    """Serve the no-op app and warm it up. Returns the exit code."""
    suite = suite_of(add_flags(read_content("noop"), options))
    profile = targets_of(options.profile)
    load_on = read_load_on(options.load_on, options.load_nodes)
    suite = replace(suite, requests=options.num_queries, load_on=load_on)
    trace = 0.0 if options.trace else None
    check_load(suite, trace)
    check_port(options.host, options.port)

    def ready(serving: Serving, trials: Sequence[Trial]) -> None:
        """Print the latency, the URL and the pids; with --blocking, how to load it, and wait."""
        for trial in trials:
            typer.echo(latency_text(trial))
        row = suite.rows[0]
        request = request_of(suite.app, row, serving.url_of(row), suite.cells[0])
        typer.echo(describe_service(serving, request.url))
        if options.blocking and trials:
            plain = row.protocol == "http"
            typer.echo(
                describe_loads(serving, suite.app.route, options.given.get("body_type", "response"))
                if plain
                else describe_load(row.protocol, request)
            )
            typer.echo("serving until Ctrl-C or SIGTERM")
            sys.stdout.flush()
            _wait_while_alive(serving)

    clusters = partial(ServedClusters, host=options.host, port=options.port, after_cell=ready)
    sitting = sitting_of(
        Agenda(suite, plan(suite), bool(profile)),
        clusters,
        sample=not options.no_sample,
        metrics=options.serve_metrics,
        profile=profile,
        trace=trace,
    )
    with signals():
        outcome = outcome_of(replace(sitting, command="noop", out=options.out))
    for trial in outcome.result.profiled:
        for line in describe_profiled(trial, outcome.result):
            typer.echo(f"profiled, variant {trial.variant}: {line}")
    typer.echo(f"records: {outcome.folder}")
    if outcome.failed or (outcome.interrupted and not outcome.result.trials):
        return 130 if outcome.interrupted else 1
    return close_slo(outcome.result)
