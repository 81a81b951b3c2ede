"""Options that several commands have, each declared once: spelling, type and help.

Rule: an option stands here when it means the same in all commands; defaults stay with the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

# What is measured.
Axis: TypeAlias = Annotated[str | None, typer.Option(help="One or more, with commas.")]
Concurrency: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-concurrent-queries",
        "--max-ongoing-requests",
        help="One or more, with commas: requests that one replica takes at once.",
    ),
]
BatchWait: TypeAlias = Annotated[
    str | None, typer.Option(help="How long serve.batch waits to fill a batch, seconds [0].")
]
Variants: TypeAlias = Annotated[
    str | None, typer.Option(help="default, haproxy, optimized, or of the suite; with commas.")
]
Env: TypeAlias = Annotated[
    list[str] | None, typer.Option("--env", help="NAME=VALUE for every variant; repeatable.")
]
Suite: TypeAlias = Annotated[str, typer.Option(help="A suite file, or the name of a shipped one.")]
Launches: TypeAlias = Annotated[
    int | None, typer.Option(help="Fresh clusters of each variant, each the whole plan [1].")
]

# What is asked, where requests differ.
Paths: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Paths with queries, one a line, asked for in turn."),
]
HeaderSets: TypeAlias = Annotated[
    str | None,
    typer.Option("--headers", metavar="FILE", help="JSON objects, one a line: headers in turn."),
]
Draw: TypeAlias = Annotated[
    str | None, typer.Option(help="Several bodies, paths or headers: cycle or random [cycle].")
]

# Rows and their length.
Windows: TypeAlias = Annotated[int | None, typer.Option(help="Windows a row [10].")]
WindowSeconds: TypeAlias = Annotated[float | None, typer.Option(help="Seconds a window [1].")]
QuickWindows: TypeAlias = Annotated[bool, typer.Option("--quick", help="3 windows of 0.5 s a row.")]
ProfileRows: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Repeat each row with py-spy on proxy, replica, controller."),
]

# The model.
Ranker: TypeAlias = Annotated[
    str | None, typer.Option(help="Of the model: plain, tuned or both [plain].")
]
Device: TypeAlias = Annotated[
    str | None, typer.Option(help="Of the model: auto, cpu or cuda [auto].")
]
Threads: TypeAlias = Annotated[
    str | None, typer.Option(help="Of torch in each ranker, on a CPU [1].")
]
TableRows: TypeAlias = Annotated[
    str | None, typer.Option(help="Rows of each table of the model [100000].")
]
GpuFraction: TypeAlias = Annotated[
    str | None, typer.Option(help="Of a GPU for each ranker replica [1].")
]

# A load that grows.
Users: TypeAlias = Annotated[
    str | None, typer.Option(help="auto, published, or numbers with commas [auto].")
]
StepSeconds: TypeAlias = Annotated[float | None, typer.Option(help="Seconds of each step [20].")]
Urls: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="NAME=URL of a service that is there already; repeatable.")
]
Headers: TypeAlias = Annotated[
    list[str] | None, typer.Option("-H", "--header", help="For --url: 'Name: value'.")
]
QuickSteps: TypeAlias = Annotated[
    bool, typer.Option("--quick", help="Steps of 3 s, no refinement around the best.")
]
ServeMetrics: TypeAlias = Annotated[
    bool, typer.Option("--serve-metrics", help="Serve's own metrics too; about 1 s a row more.")
]

# The run and its report.
Out: TypeAlias = Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")]
ResumeFrom: TypeAlias = Annotated[
    Path | None, typer.Option(help="Go on with the run in this folder, by its own plan.")
]
LoadOn: TypeAlias = Annotated[
    str | None,
    typer.Option(help="ray: load from nodes of that cluster; or HOST:PORT of another one."),
]
LoadNodes: TypeAlias = Annotated[
    int | None, typer.Option(help="With --load-on: from so many nodes [all].")
]
NoSample: TypeAlias = Annotated[
    bool, typer.Option("--no-sample", help="Do not sample CPU and memory beside the load.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and its expected time.")
]
Format: TypeAlias = Annotated[
    str, typer.Option("--format", "-f", help="table, classic, markdown, csv or json.")
]
Published: TypeAlias = Annotated[
    bool, typer.Option("--published", help="Set the published figures beside.")
]
PerfMetrics: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write the perf_metrics JSON of Ray's release tooling here.")
]
