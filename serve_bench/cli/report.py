"""`serve-bench report`: the tables of a run, made anew from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, or its records.jsonl.")],
    format: Annotated[
        str, typer.Option("--format", "-f", help="table, classic, markdown, csv or json.")
    ] = "table",
    published: Annotated[
        bool, typer.Option("--published", help="Set the published figures beside.")
    ] = False,
    perf_metrics: Annotated[
        Path | None,
        typer.Option(help="Also write the perf_metrics JSON of Ray's release tooling here."),
    ] = None,
) -> None:
    """Print the report of a finished or broken-off run.

    Example: serve-bench report results/20260102-030405 --format markdown
    """
    from serve_bench.cli.show import (
        check_format,
        check_target,
        print_report,
        write_perf_metrics,
    )
    from serve_bench.store import read

    check_format(format)
    if perf_metrics is not None:
        check_target(perf_metrics, "--perf-metrics")
    result = read(folder)
    print_report(result, format, folder, published=published)
    if perf_metrics is not None:
        write_perf_metrics(result, perf_metrics)
