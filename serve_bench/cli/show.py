"""Reports on stdout: the checks of what was asked, and the writing of files beside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.result import Result
from serve_bench.report import FORMATS, render
from serve_bench.store.files import check_reachable, why, write_whole


@dataclass(frozen=True)
class Shown:
    """How a run is to be reported: its format, what is set beside, and files that are written."""

    format: str = "table"
    published: bool = False
    perf_metrics: Path | None = None
    exclude_connect: bool = False

    def check(self) -> None:
        """BadInput unless the report can be had. To be called before anything starts."""
        check_format(self.format)
        if self.perf_metrics == Path("-"):  # stdout has the report
            raise BadInput("--perf-metrics: - is not allowed; it takes a file")
        if self.perf_metrics is not None:
            check_target(self.perf_metrics, "--perf-metrics")

    def show(self, result: Result, folder: Path) -> None:
        """Prints the report, writes the files. RunFailed when one cannot be written."""
        print_report(
            result,
            self.format,
            folder,
            published=self.published,
            exclude_connect=self.exclude_connect,
        )
        if self.perf_metrics is not None:
            write_perf_metrics(result, self.perf_metrics)


def check_format(format: str) -> None:
    """BadInput unless the report can be had in this format."""
    if format not in FORMATS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMATS)}")


def check_target(path: Path, flag: str) -> None:
    """BadInput unless a new file can be written at this path: nothing measured is overwritten."""
    check_reachable(path, flag)
    if path.is_dir():
        raise BadInput(f"{flag}: {path} is a folder; it takes a file")
    if path.exists() and not path.is_char_device() and not path.is_fifo():
        raise BadInput(f"{flag}: {path} exists already; nothing is overwritten")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{flag}: the folder of {path} does not exist")


def print_report(
    result: Result,
    format: str,
    folder: Path,
    *,
    published: bool = False,
    exclude_connect: bool = False,
) -> None:
    """Prints a report on stdout, and on stderr what was passed over while reading."""
    text = report_text(result, format, folder, published=published, exclude_connect=exclude_connect)
    print(text, end="", flush=True)


def report_text(
    result: Result,
    format: str,
    folder: Path,
    *,
    to_file: bool = False,
    published: bool = False,
    exclude_connect: bool = False,
) -> str:
    """A report as stdout takes it, or a file: without colours. On stderr stands what was passed
    over while reading."""
    for warning in result.warnings:
        print(f"warning: {warning.message}", file=sys.stderr)
    width, color = 80, False
    if format == "table" and not to_file:
        from serve_bench.report.table import terminal

        width, color = terminal(sys.stdout)
    return render(
        result,
        format,
        published=published,
        where=str(folder),
        width=width,
        color=color,
        exclude_connect=exclude_connect,
    )


def write_perf_metrics(result: Result, path: Path) -> None:
    """Writes the perf_metrics JSON. RunFailed when the file cannot be written."""
    from serve_bench.report.perf_metrics import perf_metrics

    try:
        write_whole(path, perf_metrics(result))
    except OSError as error:
        raise RunFailed(f"{path}: cannot be written: {why(error)}") from None
