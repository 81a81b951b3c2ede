"""Reports on stdout: the checks of what was asked, the files and the plots beside."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from serve_bench.analysis.comparing import VERSUS, of_versus
from serve_bench.analysis.comparing.parts import Comparing
from serve_bench.benchmarks.registry import benchmark_of
from serve_bench.core.document import ReportOptions
from serve_bench.core.errors import BadInput, visible
from serve_bench.core.result import Result
from serve_bench.report import COMPARED, FORMATS, FORMS, Layout
from serve_bench.store.files import check_reachable, write_output

# --------------------------------------------------------------------------------------------------
# Reports on stdout: the checks of what was asked, and the writing of files beside.


@dataclass(frozen=True)
class Shown:
    """How a run is to be reported: its format, what is set beside, and files that are written."""

    format: str = "table"
    published: bool = False
    perf_metrics: Path | None = None
    exclude_connect: bool = False
    verbose: bool = False

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
            verbose=self.verbose,
        )
        if self.perf_metrics is not None:
            write_perf_metrics(result, self.perf_metrics)

    def tell(self, result: Result, folder: Path) -> int:
        """Shows a run that has just been measured, and draws what is drawn of it into its folder.
        The exit code."""
        self.show(result, folder)
        if result.profiled:
            from serve_bench.cli.record import draw_profiles

            draw_profiles(folder, result.profiled)
        draw_plots(folder, result, published=self.published)
        return 0


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
    verbose: bool = False,
) -> None:
    """Prints a report on stdout, and on stderr what was passed over while reading."""
    text = report_text(
        result,
        format,
        folder,
        published=published,
        exclude_connect=exclude_connect,
        verbose=verbose,
    )
    print(text, end="", flush=True)


def report_text(
    result: Result,
    format: str,
    folder: Path,
    *,
    to_file: bool = False,
    published: bool = False,
    exclude_connect: bool = False,
    verbose: bool = False,
) -> str:
    """A report as stdout takes it, or a file: without colours. On stderr stands what was passed
    over while reading."""
    for warning in result.warnings:
        print(f"warning: {warning.message}", file=sys.stderr)
    width, color = 80, False
    if format == "table" and not to_file:
        from serve_bench.report.terminal import terminal

        width, color = terminal(sys.stdout)
    return render(
        result,
        format,
        published=published,
        where=str(folder),
        width=width,
        color=color,
        exclude_connect=exclude_connect,
        verbose=verbose,
    )


def write_perf_metrics(result: Result, path: Path) -> None:
    """Writes the perf_metrics JSON. RunFailed when the file cannot be written."""
    from serve_bench.benchmarks.parts.perf_metrics import perf_metrics

    write_output(path, perf_metrics(result))


# --------------------------------------------------------------------------------------------------
# A run, or a comparison, as text in one of the forms.


def render(
    result: Result,
    format: str = "table",
    *,
    published: bool = False,
    where: str | None = None,
    width: int = 80,
    color: bool = False,
    exclude_connect: bool = False,
    verbose: bool = False,
) -> str:
    """A run as text that ends with a newline; see ReportOptions.

    `width` (characters), `color` and `verbose` are for the table alone; see terminal.py. Raises
    BadInput for an unknown format, FormatError for damaged records. Control characters in names are
    written out.
    """
    if format not in FORMATS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMATS)}")
    options = ReportOptions(where, published, exclude_connect)
    if result.run.command == VERSUS and format in COMPARED:
        places = (where,) if where else ()
        return render_comparing(of_versus(result), format, places, width, color, verbose)
    benchmark = benchmark_of(result.run)
    if format == "json":
        return visible(benchmark.forms.json_text(result, options))
    if format == "csv":
        return visible(benchmark.forms.csv_text(result, options))
    if format == "classic":
        return visible(benchmark.forms.classic_text(result, options))
    document = benchmark.telling.document(result, options)
    return FORMS[format](document, Layout(width, color, verbose))


def render_comparing(
    comparing: Comparing,
    format: str = "table",
    where: Sequence[str] = (),
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """A comparison as text that ends with a newline. `where`: the folders of its records.

    Raises BadInput for a form that it does not have.
    """
    from serve_bench.benchmarks.versus import forms
    from serve_bench.benchmarks.versus.document import comparison_document

    if format not in COMPARED:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(COMPARED)}")
    if format == "json":
        return visible(forms.versus_json(comparing, where))
    if format == "csv":
        return visible(forms.versus_csv(comparing))
    document = comparison_document(comparing, where)
    return FORMS[format](document, Layout(width, color, verbose))


# --------------------------------------------------------------------------------------------------
# The picture of a run, of those kinds that have one: PNG and SVG in its folder, where the extra
# `plot` is there.


def draw_plots(
    folder: Path, result: Result, *, published: bool = False, asked: bool = False
) -> list[Path]:
    """Draws the charts of the run's picture: requests/s and latency over clients of ladders, the
    four metrics of rpc over the x axis, each quantity of a curve of scale over replicas.

    Without vl-convert-python one line says so; of a run that has no picture only if one was asked
    for. Raises RunFailed when a file cannot be written, BadInput where the record names no command.
    """
    from serve_bench.report.picture import KINDS, charts_of, picture

    command = result.run.command
    if not re.fullmatch("[a-z-]+", command):  # the record may come from elsewhere: it is no path
        raise BadInput(f"{folder}: {command!r} is no command of serve-bench")
    document = benchmark_of(result.run).telling.document(result, ReportOptions(None, published))
    if not charts_of(document):
        if asked or (document.picture is not None and result.trials):
            print("no plot: the run holds no figure to draw", file=sys.stderr)
        return []
    if find_spec("vl_convert") is None:
        print("no plot: pip install 'serve-bench[plot]', then report --plot", file=sys.stderr)
        return []
    places = []
    for kind in KINDS:
        place = folder / f"{command}.{kind}"
        write_output(place, picture([document], kind))
        places.append(place)
    print(f"plots: {', '.join(str(place) for place in places)}", file=sys.stderr)
    return places
