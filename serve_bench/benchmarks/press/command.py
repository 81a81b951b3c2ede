"""`serve-bench press`: a scoring service under 1 to 3,000 clients, each with so many requests.

A service of `--url` takes the same request as ours: POST, JSON, so many samples of two strings each
(docs/press.md shows one). Any answer with status 200 counts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from serve_bench.benchmarks.press.options import PressOptions
from serve_bench.cli.experiment import measure
from serve_bench.cli.rows import add_flags, keys_of, read_content, suite_of, url_suite
from serve_bench.cli.show import check_target
from serve_bench.core.app_spec import bodies
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, Ladder, parse_ladder
from serve_bench.core.plan import JSON, Suite
from serve_bench.load.connection import lacking_descriptors, lacking_ports
from serve_bench.load.workers import usable_cores
from serve_bench.spec.content import Content

QUICK_CLIENTS = "1,10,20,50,100,200"

#: Of `--url`, where no suite says it.
SAMPLES, EACH, TIMEOUT_MS = 15, 100, 200_000.0


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


def _clients(options: PressOptions) -> tuple[str | None, str]:
    """The numbers of clients that flags ask for, and which flag does."""
    if options.clients is not None and options.quick:
        raise BadInput(f"--quick: stands for --clients {QUICK_CLIENTS}; give one of the two")
    return (QUICK_CLIENTS, "--quick") if options.quick else (options.clients, "--clients")


def _content(options: PressOptions) -> Content:
    if options.app is not None and options.suite != "press":
        raise BadInput("--app: a suite names its app; it goes with the shipped suite press")
    shipped = options.app == "noop" and options.suite == "press"
    content = read_content("press_noop" if shipped else options.suite)
    if options.suite == "press":
        content = content.set("cell.num_replicas", max(1, usable_cores() // 2), "--num-replicas")
    content = content.set("cell.rows_per_request", options.samples, "--samples")
    users, place = _clients(options)
    return add_flags(content.set("load.users", users, place), options)


def _url_suite(options: PressOptions) -> Suite:
    users, place = _clients(options)
    ladder = parse_ladder(users or "published", place, max(PRESS), PRESS)
    _check_reach(ladder)
    suite = url_suite(options, replace(ladder, runs=COLLAPSE_RUNS))
    posted = bodies({"rows_per_request": options.samples or SAMPLES, "sparse_features": 2})
    services = {
        name: replace(request, method="POST", headers=(*JSON, *request.headers), bodies=posted)
        for name, request in suite.services.items()
    }
    keys = keys_of(options, requests_per_client=EACH, timeout_ms=TIMEOUT_MS)
    return replace(
        suite,
        services=services,
        requests_per_client=keys.requests_per_client,
        max_row_s=keys.max_row_seconds,
        timeout_s=keys.timeout_ms / 1000.0,
    )


def press(options: PressOptions) -> int:
    """Measures a ladder of clients for each cell. Returns the exit code."""
    _check_log(options)

    def suite() -> Suite:
        return suite_of(_content(options))

    def check(suite: Suite) -> None:
        if suite.app.bodies is None or suite.requests_per_client is None:
            raise BadInput(
                f'--suite: {options.suite} needs app = "press" or "press_noop", and '
                "requests_per_client and users in its [load]"
            )
        _check_reach(suite.ladder)

    return measure(options, partial(_url_suite, options) if options.url else suite, check)
