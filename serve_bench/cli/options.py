"""Options that several commands have, in groups: spelling, type, default and help, each once.

A command names those that it has in its `order`. An option stands here when it means the same in
all commands; a command whose help or default differs declares the field again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from serve_bench.cli.command import Options

if TYPE_CHECKING:
    from serve_bench.cli.show import Shown

Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None

Clients: TypeAlias = Annotated[
    Text, typer.Option(help="Rows: N aiohttp clients, raw:N connections [raw:100].")
]
Out: TypeAlias = Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")]
NoSample: TypeAlias = Annotated[
    bool, typer.Option("--no-sample", help="Do not sample CPU and memory beside the load.")
]
Published: TypeAlias = Annotated[
    bool, typer.Option("--published", help="Set the published figures beside.")
]
ExcludeConnect: TypeAlias = Annotated[
    bool, typer.Option("--exclude-connect", help="Also totals without opening connections.")
]
Urls: TypeAlias = Annotated[
    Texts, typer.Option(help="NAME=URL of a service that is there already; repeatable.")
]

SuiteName: TypeAlias = Annotated[
    str, typer.Option(help="A suite file, or the name of a shipped one.")
]

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


class ReportOptions(Options):
    """How a run is shown."""

    format: Annotated[
        str, typer.Option("--format", "-f", help="table, classic, markdown, csv or json.")
    ] = "table"
    published: Published = False
    perf_metrics: Annotated[
        Path | None,
        typer.Option(help="Write the perf_metrics JSON of Ray's release tooling here."),
    ] = None
    exclude_connect: ExcludeConnect = False

    def shown(self) -> Shown:
        """How the run is to be shown. Raises BadInput unless it can be."""
        from serve_bench.cli.show import Shown

        shown = Shown(self.format, self.published, self.perf_metrics, self.exclude_connect)
        shown.check()
        return shown


class RunOptions(ReportOptions):
    """Where a run is kept, and whether it is a new one."""

    suite: SuiteName = ""
    out: Out = None
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, by its own plan.")
    ] = None
    no_sample: NoSample = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its expected time.")
    ] = False


class VariantOptions(RunOptions):
    """How clusters are started."""

    variant: Annotated[
        Text, typer.Option(help="default, haproxy, optimized, or of the suite; with commas.")
    ] = None
    env: Annotated[
        Texts, typer.Option("--env", help="NAME=VALUE for every variant; repeatable.")
    ] = None


class LoadOnOptions(Options):
    """Where a load comes from."""

    load_on: Annotated[
        Text,
        typer.Option(help="ray: load from nodes of that cluster; or HOST:PORT of another one."),
    ] = None
    load_nodes: Annotated[
        int | None, typer.Option(help="With --load-on: from so many nodes [all].")
    ] = None
    serve_metrics: Annotated[
        bool,
        typer.Option("--serve-metrics", help="Serve's own metrics too; about 1 s a row more."),
    ] = False


class SuiteOptions(VariantOptions, LoadOnOptions):
    """A suite of cells and rows, measured on launched clusters."""

    launches: Annotated[
        int | None, typer.Option(help="Fresh clusters of each variant, each the whole plan [1].")
    ] = None


class RowOptions(SuiteOptions):
    """Rows that are known beforehand, and their length."""

    clients: Clients = None
    windows: Annotated[int | None, typer.Option(help="Windows a row [10].")] = None
    window_seconds: Annotated[float | None, typer.Option(help="Seconds a window [1].")] = None
    quick: Annotated[bool, typer.Option("--quick", help="3 windows of 0.5 s a row.")] = False
    profile: Annotated[
        Text, typer.Option(help="Repeat each row with py-spy on proxy, replica, controller.")
    ] = None


class LadderOptions(SuiteOptions):
    """A load that grows, on launched clusters or on services that are there already."""

    users: Annotated[Text, typer.Option(help="auto, published, or numbers with commas [auto].")] = (
        None
    )
    duration: Annotated[float | None, typer.Option(help="Seconds of each step [20].")] = None
    url: Urls = None
    header: Annotated[Texts, typer.Option("-H", "--header", help="For --url: 'Name: value'.")] = (
        None
    )
    quick: Annotated[
        bool, typer.Option("--quick", help="Steps of 3 s, no refinement around the best.")
    ] = False


class VariedOptions(Options):
    """Requests that differ from one to the next."""

    paths: Annotated[
        Text,
        typer.Option(metavar="FILE", help="Paths with queries, one a line, asked for in turn."),
    ] = None
    headers: Annotated[
        Text,
        typer.Option(
            "--headers", metavar="FILE", help="JSON objects, one a line: headers in turn."
        ),
    ] = None
    draw: Annotated[
        Text, typer.Option(help="Several bodies, paths or headers: cycle or random [cycle].")
    ] = None


class OwnAppOptions(VariedOptions):
    """An app of the user's own, and what is asked of it."""

    option: Annotated[
        Texts,
        typer.Option(help="Deployment.option=values, with commas; repeatable: all combinations."),
    ] = None
    app_name: Annotated[
        Text,
        typer.Option(help="Name of the app within Serve [default]; of a config file, which one."),
    ] = None
    route: Annotated[Text, typer.Option(help="Path that the load asks for [/].")] = None
    method: Annotated[Text, typer.Option(help="HTTP method [GET; POST with a body].")] = None
    header: Annotated[Texts, typer.Option("-H", "--header", help="'Name: value'; repeatable.")] = (
        None
    )
    body: Annotated[Text, typer.Option(help="Request body: text, or @FILE.")] = None
    expect_status: Annotated[
        Text, typer.Option(help="Status codes that are no failure, with commas [any 2xx].")
    ] = None
    request_timeout_s: Annotated[
        float | None, typer.Option(help="Serve gives a request up after so long [never].")
    ] = None
