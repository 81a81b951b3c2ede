"""`serve-bench press`: a scoring service under 1 to 3,000 clients, each with so many requests.

A service of `--url` takes the same request as ours: POST, JSON, so many samples of two strings each
(docs/press.md shows one). Any answer with status 200 counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from serve_bench.cli.command import command, flag
from serve_bench.cli.experiment import measure
from serve_bench.cli.options import RUN, LadderOptions, format_flag
from serve_bench.cli.rows import add_flags, choose_suite, keys_of, read_content, suite_of, url_suite
from serve_bench.cli.show import check_target
from serve_bench.core.app_spec import bodies
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS, PRESS, Ladder, parse_ladder
from serve_bench.core.plan import JSON, Suite
from serve_bench.load.connection import lacking_descriptors, lacking_ports
from serve_bench.load.workers import usable_cores
from serve_bench.report import FORMATS
from serve_bench.serving.apps.press_samples import MOST_SAMPLES
from serve_bench.spec.content import Content

QUICK_CLIENTS = "1,10,20,50,100,200"

#: Of `--url`, where no suite says it.
SAMPLES, EACH, TIMEOUT_MS = 15, 100, 200_000.0


class PressOptions(LadderOptions):
    command = "press"
    order = f"""clients requests_per_client samples log_level device variant callable app
        timeout_ms max_row_seconds num_replicas max_ongoing_requests max_queued_requests ranker
        max_batch_size batch_wait_timeout_s threads table_rows gpu_fraction launches env url
        header quick log_requests exclude_connect suite out resume trace {RUN} slo format
        published perf_metrics trace_out"""

    suite: str = flag("press")
    format: str = format_flag(*FORMATS, "toml")
    clients: str | None = flag(None, "Numbers of clients, published or auto [published: 1-3000].")
    requests_per_client: int | None = flag(None, "Requests of each client [100].")
    samples: int | None = flag(None, "Samples in a request [15].", takes=(1, MOST_SAMPLES))
    app: str | None = flag(
        None, "App: ranker (DLRM) or noop, which reads requests [ranker].", takes=("ranker", "noop")
    )
    timeout_ms: float | None = flag(None, "Longest time of a request [200000].")
    max_row_seconds: float | None = flag(None, "Longest time of a row [60].")
    quick: bool = flag(False, "Measure 1 to 200 clients.")
    log_requests: Path | None = flag(None, "Write requests as CSV: client, start, latency, status.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Levels of logging are taken in lower case too."""
        if levels := values.get("log_level"):
            values = {**values, "log_level": levels.upper()}
        return super().of(values)


@command(PressOptions)
def press(options: PressOptions) -> int:
    """Load a scoring service with 1 to 3,000 clients.

    Gives requests/s, knee, collapse and the cost of logging.

    Example: serve-bench press --quick --log-level DEBUG,ERROR --published
    """

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

    services = partial(_url_suite, options)
    return measure(options, choose_suite(options, suite, services), check)


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
