"""`serve-bench press`: a scoring service under 1 to 3,000 clients, a number of requests from each.

A service of `--url` takes the same request as ours: POST, JSON, samples of two strings each
(docs/press.md shows one). Any answer with status 200 counts.
"""

from __future__ import annotations

from dataclasses import replace

from serve_bench.benchmarks.press.options import PressOptions
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.request import add_all_flags, services_of
from serve_bench.cli.rows import read_content, suite_of
from serve_bench.cli.show import check_target
from serve_bench.core.app_spec import bodies
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder
from serve_bench.core.plan import JSON, Suite
from serve_bench.load.connection import lacking_descriptors, lacking_ports
from serve_bench.load.workers import usable_cores
from serve_bench.spec.suite import read_services

QUICK_CLIENTS = "1,10,20,50,100,200"

SAMPLES = 15
"""Samples of a request to `--url`."""


def _check_log(options: PressOptions) -> None:
    log = options.log_requests
    if log is None:
        return
    check_target(log, "--log-requests")
    if options.load_on is not None:
        raise BadInput("--log-requests: needs the load of this host; not with --load-on")
    if log.exists():
        raise BadInput(f"--log-requests: {log} exists already; it takes a new file")


def _check_reach(ladder: Ladder | None) -> None:
    assert ladder is not None, "a press test climbs a ladder"
    most = max(ladder.steps or (ladder.ceiling,))
    lacking = lacking_descriptors(most) or lacking_ports(most)
    if lacking is not None:
        raise BadInput(f"--clients: {lacking}")


class PressRun(SuiteExperiment[PressOptions]):
    """A ladder of clients for each cell of a file, or for --url as the file loads it."""

    def __init__(self, options: PressOptions) -> None:
        super().__init__(options)
        _check_log(options)

    def suite(self) -> Suite:
        options = self.options
        if options.app is not None and options.suite != "press":
            raise BadInput("--app: a suite names its app; it goes with the shipped suite press")
        if options.quick and "clients" in options.given:
            raise BadInput(f"--quick: stands for --clients {QUICK_CLIENTS}; give one of the two")
        shipped = options.app == "noop" and options.suite == "press"
        content = read_content("press_noop" if shipped else options.suite)
        if options.suite == "press":
            content = content.set(
                "cell.num_replicas", max(1, usable_cores() // 2), "--num-replicas"
            )
        content = content.set("cell.rows_per_request", options.samples, "--samples")
        content = content.set("load.users", QUICK_CLIENTS if options.quick else None, "--quick")
        content = add_all_flags(content, options)
        if not options.url:
            return suite_of(content)
        cell = {"rows_per_request": options.samples or SAMPLES, "sparse_features": 2}
        services = services_of(content, options.url)
        for name, asked in services.items():
            headers, posted = (*JSON, *asked.headers), bodies(cell)
            request = replace(asked, method="POST", headers=headers, bodies=posted)
            services[name] = replace(request, expect_status=(200,))
        suite = read_services(content, services)
        _check_reach(suite.ladder)
        return suite

    def check(self, suite: Suite) -> None:
        if suite.app.bodies is None or suite.requests_per_client is None:
            raise BadInput(
                f'--suite: {self.options.suite} needs app = "press" or "press_noop", and '
                "requests_per_client and users in its [load]"
            )
        _check_reach(suite.ladder)
