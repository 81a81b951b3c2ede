"""`serve-bench report`: the tables of a run, made anew from its records."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.options import ReportOptions

if TYPE_CHECKING:
    from serve_bench.analysis.comparing.parts import Comparing
    from serve_bench.cli.show import ReportRequest, RunReport
    from serve_bench.core.document import Block, Document
    from serve_bench.report.page import Folder, Kept


class ReportCommandOptions(ReportOptions):
    """The options of `report`."""

    order = (
        *("folders", "format", "output", "published", "perf_metrics", "exclude_connect"),
        *("verbose", "plot"),
    )

    folders: list[Path] = argument(
        "Folder of a run, or its records.jsonl; or several.", metavar="RUN..."
    )
    format: str = flag("table", "table, classic, markdown, csv, json or html.", "--format", "-f")
    output: str | None = flag(
        None,
        "Write it here, - is stdout [stdout; of html: report.html in the run's folder, of several "
        "runs in this one].",
        *("--output", "-o"),
        metavar="FILE",
    )
    perf_metrics: Path | None = flag(
        None, "Also write the perf_metrics JSON of Ray's release tooling here."
    )
    exclude_connect: bool = flag(False, "Of press: also without opening connections.")
    verbose: bool = flag(False, "Of a table: also what few readers need.", "--verbose", "-v")
    plot: bool = flag(False, "Draw the plots of a run into its folder anew.")


@command(ReportCommandOptions)
def report(options: ReportCommandOptions) -> None:
    """Print the report of a finished or broken-off run, or write it as one HTML page.

    Example: serve-bench report results/20260102-030405 --format html
    """
    from serve_bench.cli.show import ReportRequest, draw_plots, write_perf_metrics
    from serve_bench.store import read

    html, folders, output = options.format == "html", options.folders, options.output
    published, perf_metrics = options.published, options.perf_metrics
    request = ReportRequest(
        "table" if html else options.format,
        published,
        perf_metrics,
        options.exclude_connect,
        options.verbose,
    )
    _check(request, len(folders), html)
    to = None if html else _target(output)
    _check_apart(output, perf_metrics, folders, html)
    reports = [request.report(read(folder), folder) for folder in folders]
    if html:
        write_page(list(zip(folders, reports, strict=True)), output)
        if perf_metrics is not None:
            write_perf_metrics(reports[0].result, perf_metrics)
    elif to is not None or len(reports) > 1:
        _show_all(request, reports, to)
    else:
        request.show(reports[0])
    if options.plot:
        for folder, one in zip(folders, reports, strict=True):
            draw_plots(folder if folder.is_dir() else folder.parent, one, required=True)


def _check(request: ReportRequest, runs: int, html: bool) -> None:
    """BadInput unless the report can be had. The message names html too, which this command alone
    has."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report import FORMATS

    if request.format not in FORMATS:
        allowed = ", ".join((*FORMATS, "html"))
        raise BadInput(f"--format: {request.format!r} is not allowed; it takes {allowed}")
    if runs > 1 and request.perf_metrics is not None:
        raise BadInput(f"--perf-metrics: takes the records of one run; there are {runs}")
    if html and request.exclude_connect:
        raise BadInput("--exclude-connect: is not for --format html")
    request.check()


def _check_apart(
    output: str | None, perf_metrics: Path | None, folders: list[Path], html: bool
) -> None:
    """BadInput where the report and the perf_metrics would go to one file."""
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


def _show_all(request: ReportRequest, reports: list[RunReport], to: Path | None) -> None:
    """Several runs one after the other, or what goes to a file. RunFailed when a file cannot be
    written."""
    from serve_bench.cli.show import write_perf_metrics

    texts = [request.text(report, to_file=to is not None) for report in reports]
    text = _joined(texts, request.format)
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text(to, text)
    if request.perf_metrics is not None:
        write_perf_metrics(reports[0].result, request.perf_metrics)


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


# --------------------------------------------------------------------------------------------------
# `serve-bench report --format html`: reads what a page needs of the folders, and writes the page.
#
# Rule: a page replaces a page of serve-bench, and nothing else.

PAGE = "report.html"


def write_page(runs: Sequence[tuple[Path, RunReport]], output: str | None) -> None:
    """Writes the page of these runs, each with its folder (or records file), and says where.

    `output`: a file, - for stdout, None for report.html in the run's folder, of several runs in the
    present one. Raises BadInput where vl_convert is missing, or the page cannot be written there.
    """
    from serve_bench.report.page import LIMIT, html_text, size_text

    homes = [_home(place) for place, _ in runs]
    to = place_of_page(output, usual_place([place for place, _ in runs]))
    for _, report in runs:
        for warning in report.result.warnings:
            print(f"warning: {warning.message}", file=sys.stderr)
    sheets = [report.document for _, report in runs]
    base = Path() if to is None else to.parent
    folders = [
        _folder(home, sheet, base, place.name if place.is_file() else None)
        for home, sheet, (place, _) in zip(homes, sheets, runs, strict=True)
    ]
    text = html_text(sheets, folders=folders)
    size = len(text.encode())
    if size > LIMIT:
        print(f"note: the page has {size_text(size)}: that much data to draw", file=sys.stderr)
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text(to, text)


def usual_place(places: Sequence[Path]) -> Path:
    """Where the page of these runs goes unless it is said: into the folder of the one run, of
    several into the present one."""
    return (_home(places[0]) if len(places) == 1 else Path()) / PAGE


def _home(place: Path) -> Path:
    return place if place.is_dir() else place.parent


def write_comparison(comparing: Comparing, where: tuple[str, str], to: Path | None) -> None:
    """Writes the page of two stored runs; None: to stdout. Raises BadInput as `write_page`."""
    from serve_bench.benchmarks.versus.document import comparison_document
    from serve_bench.report.page import html_text

    text = html_text([comparison_document(comparing, where)])
    if to is None:
        print(text, end="", flush=True)
    else:
        write_text(to, text)


def write_text(to: Path, text: str) -> None:
    """Writes a report, and says where. BadInput when it cannot be written."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.page import size_text
    from serve_bench.store.files import why, write_whole

    content = text.encode("utf-8", "replace")
    try:
        write_whole(to, content)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    print(f"wrote {to} ({size_text(len(content))})", file=sys.stderr)


def place_of_page(output: str | None, usual: Path) -> Path | None:
    """Where a page goes: `output`, or `usual`; None for stdout (-). BadInput where there is another
    file, or none can be written."""
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import check_reachable, check_writable, why

    if output == "-":
        return None
    to = usual if output is None else Path(output)
    check_reachable(to, "--output")
    if to.is_dir():
        raise BadInput(f"--output: {to} is a folder; it takes a file")
    if to.is_char_device() or to.is_fifo():
        return to
    if to.exists() and not is_page(to):
        raise BadInput(
            f"--output: {to} exists and is no page of serve-bench; nothing is overwritten"
        )
    try:
        check_writable(to)
    except OSError as error:
        raise BadInput(f"{to}: cannot be written: {why(error)}") from None
    return to


def is_page(path: Path) -> bool:
    """Whether a file is a page that serve-bench made. BadInput where it cannot be read."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.page import MADE_BY
    from serve_bench.store.files import why

    try:
        with path.open("rb") as file:
            return MADE_BY.encode() in file.read(500)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {why(error)}") from None


def _folder(home: Path, sheet: Document, base: Path, records: str | None) -> Folder:
    """What stands in the folder of a run; contents of what could find room alone."""
    from serve_bench.report.page import Folder
    from serve_bench.store import RECORDS_FILE

    blocks = (block for section in sheet.sections for block in section.blocks)
    return Folder(
        records=_kept(home, records or RECORDS_FILE, base),
        pictures={path: _kept(home, path, base) for path in _pictures(blocks)},
    )


def _pictures(blocks: Iterator[Block]) -> Iterator[str]:
    """The paths of all pictures, of what is folded too, in their order."""
    from serve_bench.core.document import Folded, Picture

    for block in blocks:
        if isinstance(block, Picture):
            yield block.path
        elif isinstance(block, Folded):
            yield from _pictures(iter(block.blocks))


def _kept(home: Path, path: str, base: Path) -> Kept:
    """A file of a run. What records name outside of its folder is never read: they may come from
    elsewhere."""
    from urllib.parse import quote

    from serve_bench.report.page import LIMIT, Kept

    file = home / path
    href = quote(os.path.relpath(file, base))
    if ":" in href.partition("/")[0]:
        href = f"./{href}"
    try:
        if not file.resolve().is_relative_to(home.resolve()) or not file.is_file():
            return Kept(href, None)
        size = file.stat().st_size
        return Kept(href, size, file.read_bytes() if size < LIMIT else None)
    except (OSError, ValueError):  # cannot be read; a name that no file can have
        return Kept(href, None)
