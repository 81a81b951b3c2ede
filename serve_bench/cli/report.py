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
    exclude_connect: Annotated[
        bool, typer.Option("--exclude-connect", help="Of press: also without opening connections.")
    ] = False,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw the plots of a run into its folder anew.")
    ] = False,
) -> None:
    """Print the report of a finished or broken-off run.

    Example: serve-bench report results/20260102-030405 --format markdown
    """
    from serve_bench.cli.plots import draw_plots
    from serve_bench.cli.show import Shown
    from serve_bench.store import read

    shown = Shown(format, published, perf_metrics, exclude_connect)
    shown.check()
    result = read(folder)
    shown.show(result, folder)
    if plot:
        draw_plots(
            folder if folder.is_dir() else folder.parent, result, published=published, asked=True
        )
