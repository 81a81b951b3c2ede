"""`serve-bench report`: the tables of a run, made anew from its records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.cli.show import Shown
    from serve_bench.core.result import Result


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folder of a run, or its records.jsonl; or several."),
    ],
    format: Annotated[
        str,
        typer.Option("--format", "-f", help="table, classic, markdown, csv, json or html."),
    ] = "table",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write it here, - is stdout [stdout; of html: report.html in the run's folder, "
            "of several runs in this one].",
        ),
    ] = None,
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
    """Print the report of a finished or broken-off run, or write it as one HTML page.

    Example: serve-bench report results/20260102-030405 --format html
    """
    from serve_bench.cli.plots import draw_plots
    from serve_bench.cli.show import Shown, write_perf_metrics
    from serve_bench.store import read

    html = format == "html"
    shown = Shown("table" if html else format, published, perf_metrics, exclude_connect)
    _check(shown, len(folders), html)
    to = None if html else _target(output)
    _check_apart(output, perf_metrics, folders, html)
    results = [(folder, read(folder)) for folder in folders]
    if html:
        from serve_bench.cli.report_html import write_page

        write_page(results, output, published)
        if perf_metrics is not None:
            write_perf_metrics(results[0][1], perf_metrics)
    elif to is not None or len(results) > 1:
        _show_all(shown, results, to)
    else:
        folder, result = results[0]
        shown.show(result, folder)
    if plot:
        for folder, result in results:
            place = folder if folder.is_dir() else folder.parent
            draw_plots(place, result, published=published, asked=True)


def _check(shown: Shown, runs: int, html: bool) -> None:
    """BadInput unless the report can be had. The message names html too, which this command alone
    has."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report import FORMATS

    if shown.format not in FORMATS:
        allowed = ", ".join((*FORMATS, "html"))
        raise BadInput(f"--format: {shown.format!r} is not allowed; it takes {allowed}")
    if runs > 1 and shown.perf_metrics is not None:
        raise BadInput(f"--perf-metrics: takes the records of one run; there are {runs}")
    if html and shown.exclude_connect:
        raise BadInput("--exclude-connect: is not for --format html")
    shown.check()


def _check_apart(
    output: str | None, perf_metrics: Path | None, folders: list[Path], html: bool
) -> None:
    """BadInput where the report and the perf_metrics would go to one file."""
    from serve_bench.cli.report_html import usual_place
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import same_file

    if perf_metrics is None or output == "-" or (output is None and not html):
        return
    to = usual_place(folders) if output is None else Path(output)
    if same_file(to, perf_metrics):
        raise BadInput(f"--output and --perf-metrics: both are {perf_metrics}")


def _target(output: str | None) -> Path | None:
    """Where a report in words goes, None for stdout. BadInput where no new file can be written."""
    from serve_bench.cli.show import check_target

    if output is None or output == "-":
        return None
    check_target(Path(output), "--output")
    return Path(output)


def _show_all(shown: Shown, results: list[tuple[Path, Result]], to: Path | None) -> None:
    """Several runs one after the other, or what goes to a file. RunFailed when a file cannot be
    written."""
    from serve_bench.cli.show import report_text, write_perf_metrics

    texts = [
        report_text(
            result,
            shown.format,
            folder,
            to_file=to is not None,
            published=shown.published,
            exclude_connect=shown.exclude_connect,
        )
        for folder, result in results
    ]
    text = _joined(texts, shown.format)
    if to is None:
        print(text, end="", flush=True)
    else:
        from serve_bench.cli.report_html import write_text

        write_text(to, text)
    if shown.perf_metrics is not None:
        write_perf_metrics(results[0][1], shown.perf_metrics)


def _joined(texts: list[str], format: str) -> str:
    """Reports of several runs as one text: a list in JSON, one header for equal columns in CSV
    (each line names its run), otherwise a blank line between. One report stays as it is."""
    if len(texts) == 1:
        return texts[0]
    if format == "json":
        return "[\n" + ",\n".join(text.rstrip("\n") for text in texts) + "\n]\n"
    if format != "csv":
        return "\n".join(texts)
    out: list[str] = []
    former = ""
    for text in texts:
        header, _, lines = text.partition("\n")
        if header != former:
            out.append(("\n" if out else "") + header + "\n")
        out.append(lines)
        former = header
    return "".join(out)
