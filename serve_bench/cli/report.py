"""`serve-bench report`: the report of stored runs, in any form, and the page of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from os.path import isdir, isfile
from pathlib import Path

from serve_bench.analysis.comparing import of_runs
from serve_bench.benchmarks.registry import index_of, newest_run, read_rows, run_schema
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate, read_flags
from serve_bench.cli.show import SIDES, ReportRequest, check_target, print_warnings, render, text_of
from serve_bench.cli.stored import ReportCommandOptions
from serve_bench.core.errors import BadInput
from serve_bench.report import FORMS, Layout
from serve_bench.report.page import MADE_BY, Folder, folder_of, html_text
from serve_bench.report.picture import KINDS, charts_of, picture
from serve_bench.store import RECORDS_FILE, RESULTS, read
from serve_bench.store.files import (
    check_reachable,
    check_writable,
    same_file,
    why,
    write_output,
    write_whole,
)
from serve_bench.view.comparison import comparison_document
from serve_bench.view.csv import json_of, pick
from serve_bench.view.document import Document
from serve_bench.view.lens import RunLook


def _show_index(place: Path, options: ReportCommandOptions) -> int:
    """List the runs of a folder, newest first."""
    of_index = ("folders", "format", "output", "verbose", "wide")
    if given := options.changed(lambda option: option.name not in of_index):
        raise BadInput(f"{', '.join(given)}: is for a run; {place} holds runs, which are listed")
    if not (html := options.format == "html") and options.format not in FORMS:
        forms = f"it takes {', '.join(FORMS)}, html"
        raise BadInput(f"--format: {options.format!r} is not for an index; {forms}")
    to = target_of(options.output, place / PAGE if html else None)
    layout = Layout(verbose=options.verbose, wide=options.wide, fitted=to is None)
    document = index_of(place, print_note)
    write_text(to, render(options.format, [document], layout=layout))
    return 0


def check_plot(plot: Path | None, chart: str | None) -> None:
    """Raise BadInput unless the picture can be written. Call it before anything is read."""
    if plot is None:
        if chart is not None:
            raise BadInput("--chart: chooses charts of --plot FILE, which is not there")
        return
    if plot.suffix not in KINDS:
        raise BadInput(f"--plot: {plot} is not allowed; it takes a file in {' or '.join(KINDS)}")
    check_target(plot, "--plot")


def write_plot(plot: Path, documents: Sequence[Document], chart: str | None = None) -> None:
    """Draw the charts of these documents, or those with `chart` in their title."""
    write_output(plot, picture(documents, charts_of(documents, chart), plot.suffix))
    print_note(f"wrote {plot}")


def target_of(output: str | None, page: Path | None = None) -> Path | None:
    """Return where a report goes; None for stdout. Raises BadInput.

    A report in words is a new file; a `page` of that name, without --output, replaces a page of
    serve-bench and nothing else."""
    to = page if output is None else Path(output)
    if to is None or output == "-":
        return None
    if page is None:
        check_target(to, "--output")
        return to
    check_reachable(to, "--output")
    if to.is_dir():
        raise BadInput(f"--output: {to} is a folder; it takes a file")
    if to.is_char_device() or to.is_fifo():
        return to
    try:
        if to.exists():
            with to.open("rb") as file:
                if MADE_BY.encode() not in file.read(500):
                    why_not = "exists and is no page of serve-bench; nothing is overwritten"
                    raise BadInput(f"--output: {to} {why_not}")
        check_writable(to)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    return to


# `serve-bench report --format html`.

PAGE = "report.html"


def _make_page(places: Sequence[Path], reports: Sequence[RunLook]) -> str:
    """Make the page of runs, by folders or records files; of two their comparison first."""
    documents, folders = [], []
    if len(reports) == SIDES:
        try:
            documents, folders = [_compare(places)], [Folder()]
        except BadInput as error:  # each run by itself is in the page too
            print_note(f"not compared: {error}")
    for place, report in zip(places, reports, strict=True):
        file = place.name if place.is_file() else RECORDS_FILE
        documents.append(report.document)
        folders.append(folder_of(_find_home(place), report.document, file))
    return html_text(documents, folders)


def _compare(places: Sequence[Path]) -> Document:
    """Compare two runs, however unlike. BadInput where there is nothing to compare."""
    where = str(places[0]), str(places[1])
    a, b = map(read_rows, places)
    return comparison_document(of_runs(a, b, where=where, force=True), where)


def _find_home(place: Path) -> Path:
    return place if place.is_dir() else place.parent


def write_text(to: Path | None, text: str) -> None:
    """Write a report, and print its place; None: to stdout. BadInput when it cannot be."""
    if to is None:
        print(text, end="", flush=True)
        return
    content = text.encode("utf-8", "replace")
    try:
        write_whole(to, content)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    print_note(f"wrote {to} ({len(content) / 1000:,.0f} kB)")


def report(options: ReportCommandOptions) -> int:
    """Print or write the report of runs. Returns the exit code."""
    if options.schema:
        write_text(target_of(options.output), json_of(run_schema()))
        return 0

    html, output = options.format == "html", options.output
    folders = options.folders or [newest_run(RESULTS)]
    if len(folders) == 1 and isdir(folders[0]) and not isfile(folders[0] / RECORDS_FILE):
        return _show_index(folders[0], options)
    asked = pick(options, *(field.name for field in fields(ReportRequest)))
    request = ReportRequest(**asked | ({"format": "table"} if html else {}))
    request.check(len(folders), html)
    to = None if html else target_of(output)
    if options.plot is not None or options.chart is not None:
        check_plot(options.plot, options.chart)
    results = [read(folder) for folder in folders]
    if html:
        usual = (_find_home(folders[0]) if len(folders) == 1 else Path()) / PAGE
        to = target_of(output, usual)
    if to is not None and options.perf_metrics is not None and same_file(to, options.perf_metrics):
        raise BadInput(f"--output and --perf-metrics: both are {options.perf_metrics}")
    for folder, result in zip(folders, results, strict=True):
        print_warnings(result, str(folder) if len(folders) > 1 else "")
    gate, comparing = Gate(), None
    judges = ("threshold", "gate", "fail_on", "noise")
    given = [f"--{name.replace('_', '-')}" for name in judges if getattr(options, name) is not None]
    if given:
        if len(folders) > 1 or not results[0].run.two_sided:
            raise BadInput(f"{', '.join(given)}: for the report of one run of versus")
        gate = read_flags(options)
        comparing = gate.judge(results[0])
    placed = zip(results, folders, strict=True)
    reports = [request.report(result, folder, comparing) for result, folder in placed]
    if options.plot is not None:  # a chart that is not there is refused before anything is printed
        write_plot(options.plot, [report.document for report in reports], options.chart)
    layout = Layout(verbose=request.verbose, wide=request.wide, fitted=to is None)
    if html:
        text = _make_page(folders, reports)
    elif len(reports) == SIDES:
        text = render(request.format, [_compare(folders)], layout=layout)
    else:
        text = text_of(reports[0], request.format, layout)
    write_text(to, text)
    request.write_beside(reports[0].page.result)
    return 0 if comparing is None else gate.close(*comparing.split())
