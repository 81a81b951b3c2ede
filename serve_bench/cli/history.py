"""`serve-bench history`: stored runs of one suite over time, and where they step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.gate import (
    GateOptions,
    check_fail_on,
    close_gate,
    metric_names,
    read_threshold,
)
from serve_bench.cli.options import VERBOSE_HELP

if TYPE_CHECKING:
    from serve_bench.analysis.history.model import History

FORMS: Final = ("table", "markdown", "csv", "json", "html")
FEWEST_LAST: Final = 2
PAGE: Final = "history.html"

MADE_BY: Final = "serve-bench history"
"""Stands in a picture: by this an earlier one is known, which a new one may replace."""

MOST_CHARTS: Final = 60
"""Of a picture: one of more would be beyond what programs open as a PNG."""


class HistoryOptions(GateOptions):
    """The options of `history`."""

    order = (
        *("dirs", "metric", "variant", "cell", "row", "last", "threshold", "fail_on", "force"),
        *("format", "output", "plot", "verbose"),
    )

    dirs: list[Path] = argument(
        "One or more folders of runs, or folders that hold some.", metavar="DIR..."
    )
    metric: str = flag("throughput", "Metrics: throughput, p50, p99, cpu, ttft_p99, itl_p99.")
    variant: str | None = flag(None, "Show this variant alone.")
    cell: str | None = flag(None, "Show this cell alone, such as bs1-ongoing10000-rep8.")
    row: str | None = flag(None, "Show this row alone, such as '100 connections'.")
    last: int | None = flag(None, "Show only the newest N runs of each suite.")
    fail_on: str | None = flag(
        None,
        "Exit code 3 on: step (step, drift, outlier, or run that cannot be judged), regressed "
        "(worse only).",
    )
    force: bool = flag(False, "Put runs of unlike hosts into one history.")
    format: str = flag("table", "Form: table, markdown, csv, json or html.", "--format", "-f")
    output: str | None = flag(
        None,
        "Write it here, - is stdout [stdout; of html: history.html here].",
        *("--output", "-o"),
        metavar="FILE",
    )
    verbose: bool = flag(False, VERBOSE_HELP, "--verbose", "-v")
    plot: Path | None = flag(None, "Draw it too, into this file: .png or .svg.")


@command(HistoryOptions, "Compare")
def history(options: HistoryOptions) -> int:
    """Show the runs of a suite over time, and what changed.

    Each suite and host has its own history. A step takes four runs; a single bad run is reported as
    an outlier.

    Example: serve-bench history results --metric throughput,p99 --fail-on step
    """
    format, output, plot = options.format, options.output, options.plot
    from serve_bench.analysis.history import FAIL_ON, history_of
    from serve_bench.analysis.history.model import Chosen, PassedOver, Stored
    from serve_bench.analysis.ratios import THRESHOLD
    from serve_bench.benchmarks.registry import read_rows
    from serve_bench.core.errors import BadInput
    from serve_bench.store.search import search

    if format not in FORMS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMS)}")
    check_fail_on(options.fail_on, FAIL_ON)
    if options.last is not None and options.last < FEWEST_LAST:
        raise BadInput(f"--last: {options.last} is not allowed; it takes {FEWEST_LAST} or more")
    metrics = tuple(dict.fromkeys(metric_names(options.metric, "--metric")))
    threshold = THRESHOLD if options.threshold is None else read_threshold(options.threshold)
    if format == "html" and output is None:
        output = PAGE
    to = None if output is None or output == "-" else Path(output)
    _check_files(format, to, plot)
    runs, unreadable = search(options.dirs, read_rows)
    whole = history_of(
        [Stored(str(folder), result) for folder, result in runs.items()],
        [PassedOver(str(one.folder), one.reason, one.written_at) for one in unreadable],
        metrics=metrics,
        threshold=threshold,
        chosen=Chosen(options.variant, options.cell, options.row, options.last),
        force=options.force,
    )
    width, color = 80, False
    if format == "table" and to is None:
        from serve_bench.report.terminal import terminal

        width, color = terminal(sys.stdout)
    text = render_history(whole, format, width, color, options.verbose)
    if to is None:
        print(text, end="", flush=True)
    else:
        _write(to, text)
    if plot is not None:
        _draw(whole, plot)
    return _close(whole, options.fail_on)


def render_history(
    history: History,
    format: str = "table",
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """A history as text that ends with a newline, one document after the other. BadInput where the
    page's library of charts is missing."""
    from serve_bench.benchmarks.history.document import documents
    from serve_bench.benchmarks.history.exports import history_csv, history_json
    from serve_bench.core.errors import visible
    from serve_bench.report import FORMS, Layout

    if format == "json":
        return visible(history_json(history))
    if format == "csv":
        return history_csv(history)
    if format == "html":
        from serve_bench.report.page import html_text

        return html_text(documents(history))
    layout = Layout(width, color, verbose, documents=len(history.groups))
    return "\n".join(FORMS[format](one, layout) for one in documents(history))


def _draw(history: History, plot: Path) -> None:
    """Draws the charts of all groups. BadInput for more of them than a picture holds."""
    from serve_bench.benchmarks.history.document import documents
    from serve_bench.core.errors import BadInput
    from serve_bench.report.picture import charts_of, picture

    every = documents(history)
    count = sum(len(charts_of(one)) for one in every)
    if count > MOST_CHARTS:
        raise BadInput(
            f"--plot: {count} charts; a picture holds up to {MOST_CHARTS}: choose by --variant,"
            " --cell or --row"
        )
    _write(plot, picture(every, plot.suffix[1:], MADE_BY))


def _check_files(format: str, output: Path | None, plot: Path | None) -> None:
    """BadInput unless the files can be written. A page replaces a page of serve-bench, a plot
    one of this command; nothing else is overwritten."""
    from serve_bench.cli.report import is_page
    from serve_bench.cli.show import check_target
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import check_writable, same_file, why

    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise BadInput(f"--plot: {plot} is not allowed; it takes a file that ends in .png or .svg")
    if output is not None and not (format == "html" and output.is_file() and is_page(output)):
        check_target(output, "--output")
    if plot is not None:
        _check_plot(plot)
    if output is not None and plot is not None and same_file(output, plot):
        raise BadInput(f"--output and --plot: both are {plot}")
    for spelt, path in (("--output", output), ("--plot", plot)):
        try:
            if path is not None and not path.is_char_device() and not path.is_fifo():
                check_writable(path)
        except OSError as error:
            raise BadInput(f"{spelt}: {path}: cannot be written: {why(error)}") from None


def _check_plot(plot: Path) -> None:
    """BadInput where another file than an earlier plot stands."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.picture import is_made_by
    from serve_bench.store.files import check_reachable, why

    check_reachable(plot, "--plot")
    if not plot.is_file():
        return
    try:
        with plot.open("rb") as file:
            ours = is_made_by(file.read(5000), MADE_BY)
    except OSError as error:
        raise BadInput(f"--plot: {plot}: cannot be read: {why(error)}") from None
    if not ours:
        raise BadInput(
            f"--plot: {plot} exists and is no plot of serve-bench history; nothing is overwritten"
        )


def _write(path: Path, content: str | bytes) -> None:
    from serve_bench.store.files import write_output

    write_output(path, content)
    print(f"wrote {path}", file=sys.stderr)


def _close(history: History, fail_on: str | None) -> int:
    """Prints on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    from serve_bench.benchmarks.history.summary import gap_lines, news_lines

    if fail_on is None:
        return 0
    lines = [
        line
        for group in history.groups
        for word, line in news_lines(group)
        if word in (("regressed",) if fail_on == "regressed" else ("regressed", "improved"))
    ]
    return close_gate([*lines, *(f"not judged: {text}" for text in gap_lines(history))])
