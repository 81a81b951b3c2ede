"""Reports of runs: on stdout, and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve_bench.analysis.comparing.model import Comparing
from serve_bench.benchmarks.registry import CLASSIC, find_lens
from serve_bench.cli import print_note
from serve_bench.core.axes import suggest
from serve_bench.core.errors import BadInput, visible
from serve_bench.core.result import Result
from serve_bench.report import COMPARED, FORMATS, FORMS, PLAIN, Layout
from serve_bench.store.files import check_reachable, write_output
from serve_bench.view.csv import csv_text
from serve_bench.view.document import Document, ReportOptions
from serve_bench.view.lens import RunLook
from serve_bench.view.waterfall import trace_text


def text_of(run: RunLook, format: str, layout: Layout) -> str:
    """Write a run as text that ends with a newline, with control characters in names escaped.

    Raises BadInput for a format that the run does not have."""
    allowed = FORMATS if run.result.run.command in CLASSIC else COMPARED
    if format not in allowed:
        takes = f"it takes {', '.join(allowed)}{suggest(format, allowed)}"
        raise BadInput(f"--format: {format!r} is not allowed; {takes}")
    if format == "classic":
        return visible(run.classic_text())
    return render(format, [run.document], run.json_text, [run.result.run.id], layout)


def render(
    format: str,
    documents: Iterable[Document],
    data: Callable[[], str] = str,
    runs: Sequence[str] = (),
    layout: Layout = PLAIN,
) -> str:
    """Render documents in a form, one after the other, as text that ends with a newline.

    `data`: makes their JSON; `runs`: the id of each, for CSV. BadInput without the page's
    library."""
    if format == "json":
        return visible(data())
    if format == "html":
        from serve_bench.report.page import html_text  # a load does not wait for it

        return html_text([*documents])
    if format == "csv":  # one header
        texts = [csv_text(document, run) for document, run in zip(documents, runs, strict=True)]
        return visible(texts[0] + "".join(text.partition("\n")[2] for text in texts[1:]))
    if format == "markdown":
        from serve_bench.report.comment import comment  # nor for those of all forms

        return "\n".join(visible(comment(document)) for document in documents)
    from serve_bench.report.terminal import terminal_text

    return "\n".join(terminal_text(document, layout) for document in documents)


def print_warnings(result: Result, of: str = "") -> None:
    """Print on stderr what was passed over while reading a run, `of` this folder."""
    for warning in result.warnings:
        print_note(f"warning: {of}{': ' if of else ''}{warning.message}")


SIDES: Final = 2  # runs that are compared


@dataclass(frozen=True)
class ReportRequest:
    """How a run is to be reported: its format, what it shows besides, and the files it writes."""

    format: str = "table"
    published: bool = False
    perf_metrics: Path | None = None
    exclude_connect: bool = False
    verbose: bool = False
    wide: bool = False
    trace_out: Path | None = None

    def check(self, runs: int = 1, html: bool = False) -> None:
        """Raise BadInput unless the report of `runs` runs and the files beside it can be made.

        Call it before anything starts."""
        most = SIDES if self.format in FORMS else 1
        if runs > most and not html:
            raise BadInput(f"--format {self.format}: takes at most {most}; there are {runs} runs")
        of_one_run = ("perf_metrics", "trace_out", "published", "exclude_connect")
        for name in of_one_run if runs > 1 else ():
            if getattr(self, name) and not (html and name == "published"):
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(f"{flag}: takes the records of one run; there are {runs}")
        if html and self.exclude_connect:
            raise BadInput("--exclude-connect: is not for --format html")
        for path, flag in ((self.perf_metrics, "--perf-metrics"), (self.trace_out, "--trace-out")):
            if path == Path("-"):  # stdout has the report
                raise BadInput(f"{flag}: - is not allowed; it takes a file")
            if path is not None:
                check_target(path, flag)

    def report(self, result: Result, folder: Path, comparing: Comparing | None = None) -> RunLook:
        """Look at a run for its report. BadInput names the run whose records are damaged."""
        options = ReportOptions(str(folder), self.published, self.exclude_connect, comparing)
        try:
            return find_lens(result.run.command).look(result, options)
        except BadInput as error:
            raise BadInput(f"{folder}: {error}") from None

    def show(self, report: RunLook) -> None:
        """Print the report and warnings, write the files. RunFailed when one cannot be written."""
        print_warnings(report.page.result)
        layout = Layout(verbose=self.verbose, wide=self.wide, fitted=True)
        print(text_of(report, self.format, layout), end="", flush=True)
        self.write_beside(report.page.result)

    def write_beside(self, result: Result) -> None:
        """Write the files beside a report. RunFailed when one cannot be written."""
        if self.perf_metrics is not None:
            from serve_bench.benchmarks.perf_metrics import perf_metrics  # nor for all kinds

            write_output(self.perf_metrics, perf_metrics(result))
        if self.trace_out is not None:
            if text := trace_text(result):
                write_output(self.trace_out, text)
            else:
                print_note("note: --trace-out: the records have no traced request")

    def close(self, result: Result, folder: Path) -> int:
        """Report a run that has just been measured. Returns the exit code."""
        self.show(self.report(result, folder))
        return 0


def check_target(path: Path, flag: str) -> None:
    """Raise BadInput unless a new file can be written here: nothing measured is overwritten."""
    check_reachable(path, flag)
    if path.is_dir():
        raise BadInput(f"{flag}: {path} is a folder; it takes a file")
    if path.exists() and not path.is_char_device() and not path.is_fifo():
        raise BadInput(f"{flag}: {path} exists already; nothing is overwritten")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{flag}: the folder of {path} does not exist")
