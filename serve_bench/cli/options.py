"""Options that several commands have, in groups: spelling, type, default and help, each once.

A command names those that it has in its `order`. An option stands here when it means the same in
all commands; a command whose help or default differs declares the field again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from serve_bench.cli.command import Options, flag

if TYPE_CHECKING:
    from serve_bench.cli.show import ReportRequest


#: Flags that go with --resume: they change what is looked at and shown, not what is measured.
WITH_RESUME = frozenset(
    """resume format published perf_metrics dry_run profile no_sample serve_metrics log_requests
    exclude_connect threshold gate fail_on noise""".split()
)

#: Flags that go with --url: nothing is launched.
WITH_URL = frozenset(
    """url header users clients requests_per_client samples timeout_ms max_row_seconds duration
    quick out log_requests exclude_connect format published perf_metrics no_sample load_on
    load_nodes""".split()
)


#: Parts of the order of parameters that commands share.
MATRIX = ("max_batch_size", "max_concurrent_queries", "num_replicas", "batch_wait_timeout_s")
MODEL = ("ranker", "device", "threads", "table_rows", "gpu_fraction")
RUN = ("no_sample", "load_on", "load_nodes", "serve_metrics", "dry_run")


class FormatOptions(Options):
    """How a run is reported."""

    format: str = flag("table", "table, classic, markdown, csv or json.", "--format", "-f")
    published: bool = flag(False, "Set the published figures beside.")
    perf_metrics: Path | None = flag(
        None, "Write the perf_metrics JSON of Ray's release tooling here."
    )
    exclude_connect: bool = flag(False, "Also totals without opening connections.")

    def report_request(self) -> ReportRequest:
        """How the run is to be reported. Raises BadInput unless it can be."""
        from serve_bench.cli.show import ReportRequest

        request = ReportRequest(
            self.format, self.published, self.perf_metrics, self.exclude_connect
        )
        request.check()
        return request


class RunOptions(FormatOptions):
    """Where a run is kept, and whether it is a new one. `with_resume`: parameters that go with
    --resume."""

    with_resume: ClassVar[frozenset[str]] = WITH_RESUME

    suite: str = flag("", "A suite file, or the name of a shipped one.")
    out: Path | None = flag(None, "Folder of the run [results/<time>].")
    resume: Path | None = flag(None, "Go on with the run in this folder, by its own plan.")
    no_sample: bool = flag(False, "Do not sample CPU and memory beside the load.")
    dry_run: bool = flag(False, "Print the plan and its expected time.")


class VariantOptions(RunOptions):
    """How clusters are started."""

    variant: str | None = flag(None, "default, haproxy, optimized, or of the suite; with commas.")
    env: list[str] | None = flag(None, "NAME=VALUE for every variant; repeatable.")


class LoadOnOptions(Options):
    """Where a load comes from."""

    load_on: str | None = flag(
        None, "ray: load from nodes of that cluster; or HOST:PORT of another one."
    )
    load_nodes: int | None = flag(None, "With --load-on: from so many nodes [all].")
    serve_metrics: bool = flag(False, "Serve's own metrics too; about 1 s a row more.")


class SuiteOptions(VariantOptions, LoadOnOptions):
    """A suite of cells and rows, measured on launched clusters."""

    launches: int | None = flag(None, "Fresh clusters of each variant, each the whole plan [1].")


class RowOptions(SuiteOptions):
    """Rows that are known beforehand, and their length."""

    clients: str | None = flag(None, "Rows: N aiohttp clients, raw:N connections [raw:100].")
    windows: int | None = flag(None, "Windows a row [10].")
    window_seconds: float | None = flag(None, "Seconds a window [1].")
    quick: bool = flag(False, "3 windows of 0.5 s a row.")
    profile: str | None = flag(None, "Repeat each row with py-spy on proxy, replica, controller.")


class LadderOptions(SuiteOptions):
    """A load that grows, on launched clusters or on services that are there already."""

    users: str | None = flag(None, "auto, published, or numbers with commas [auto].")
    duration: float | None = flag(None, "Seconds of each step [20].")
    url: list[str] | None = flag(None, "NAME=URL of a service that is there already; repeatable.")
    header: list[str] | None = flag(None, "For --url: 'Name: value'.", "-H", "--header")
    quick: bool = flag(False, "Steps of 3 s, no refinement around the best.")


class VariedOptions(Options):
    """Requests that differ from one to the next."""

    paths: str | None = flag(
        None, "Paths with queries, one a line, asked for in turn.", metavar="FILE"
    )
    headers: str | None = flag(None, "JSON objects, one a line: headers in turn.", metavar="FILE")
    draw: str | None = flag(None, "Several bodies, paths or headers: cycle or random [cycle].")


class OwnAppOptions(VariedOptions):
    """An app of the user's own, and the requests to it."""

    option: list[str] | None = flag(
        None, "Deployment.option=values, with commas; repeatable: all combinations."
    )
    app_name: str | None = flag(
        None, "Name of the app within Serve [default]; of a config file, which one."
    )
    route: str | None = flag(None, "Path that the load asks for [/].")
    method: str | None = flag(None, "HTTP method [GET; POST with a body].")
    header: list[str] | None = flag(None, "'Name: value'; repeatable.", "-H", "--header")
    body: str | None = flag(None, "Request body: text, or @FILE.")
    expect_status: str | None = flag(
        None, "Status codes that are no failure, with commas [any 2xx]."
    )
    request_timeout_s: float | None = flag(None, "Serve gives a request up after so long [never].")
