"""`serve-bench history`: stored runs over time, the newest of each suite against those before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from serve_bench.benchmarks.registry import read_rows
from serve_bench.cli.command import MOST, argument, command, flag
from serve_bench.cli.gate import FAIL_ON, Gate, GateOptions, metric_names
from serve_bench.cli.options import format_flag
from serve_bench.cli.report import check_plot, place_of_page, target_of, write_plot, write_text
from serve_bench.core.errors import BadInput, visible
from serve_bench.report import PLAIN, Layout
from serve_bench.store.files import same_file
from serve_bench.view.csv import json_of

if TYPE_CHECKING:
    from serve_bench.analysis.history import History

TOLD: Final = ("table", "markdown", "json", "html")
PAGE: Final = "history.html"


class HistoryOptions(GateOptions):
    order = """dirs metric variant cell row last threshold fail_on force format output plot
        verbose"""

    dirs: list[Path] = argument("Folders of runs, or folders that hold some.", metavar="DIR...")
    metric: str = flag("throughput", "Metrics: throughput, p50, p99, cpu, ttft_p99, itl_p99.")
    variant: str | None = flag(None, "Show this variant alone.")
    cell: str | None = flag(None, "Show this cell alone, such as bs1-ongoing10000-rep8.")
    row: str | None = flag(None, "Show this row alone, such as '100 connections'.")
    last: int = flag(10, "Compare the newest run with so many before it.", takes=(1, MOST))
    fail_on: str | None = flag(
        None, "End with exit code 3 on: regressed, slower, inconclusive; not judged.", takes=FAIL_ON
    )
    force: bool = flag(False, "Put runs of unlike hosts into one history.")
    format: str = format_flag(*TOLD, "otava", "otava-config", "bencher", "github-action-benchmark")
    output: str | None = flag(None, "Write it here [-; html: history.html].", "--output", "-o")
    plot: Path | None = flag(None, "Draw it too, into this file: .png or .svg.")


@command(HistoryOptions)
def history(options: HistoryOptions) -> int:
    """Show stored runs over time, and judge the newest.

    Each app, suite and host has its own history. The newest run is compared with those before it,
    which from four on tell how far runs differ.

    Example: serve-bench history results --metric throughput,p99 --fail-on regressed
    """
    from serve_bench.analysis.history import PassedOver, build_history
    from serve_bench.analysis.ratios import THRESHOLD
    from serve_bench.benchmarks.history.lens import documents
    from serve_bench.cli.show import layout_for, print_warnings
    from serve_bench.store.search import search

    form, output, plot = options.format, options.output, options.plot
    metrics = tuple(dict.fromkeys(metric_names(options.metric, "--metric")))
    check_plot(plot, None)
    to = place_of_page(output, Path(PAGE)) if form == "html" else target_of(output)
    if to is not None and plot is not None and same_file(to, plot):
        raise BadInput(f"--output and --plot: both are {plot}")
    runs, unreadable = search(options.dirs, read_rows)
    for folder, result in runs.items():
        print_warnings(result, str(folder))
    chosen = {"variant": options.variant, "cell": options.cell, "row": options.row}
    whole = build_history(
        {str(folder): result for folder, result in runs.items()},
        [PassedOver(str(run.folder), run.reason, run.written_at) for run in unreadable],
        metrics=metrics,
        threshold=THRESHOLD if options.threshold is None else options.threshold,
        chosen={name: value for name, value in chosen.items() if value is not None},
        last=options.last,
        force=options.force,
    )
    write_text(to, render_history(whole, form, layout_for(form, to is not None, options.verbose)))
    if plot is not None:
        write_plot(plot, [*documents(whole)])
    return close_history(whole, options.fail_on)


def render_history(history: History, form: str = "table", layout: Layout = PLAIN) -> str:
    """A history as text that ends with a newline, one document after the other. BadInput for what
    a form of another tool cannot hold, and where the page's library of charts is missing."""
    from serve_bench.benchmarks.history.exports import EXPORTS, export
    from serve_bench.benchmarks.history.lens import documents, history_json
    from serve_bench.cli.show import render

    if form in EXPORTS:
        return visible(export(history, form))
    return render(form, documents(history), lambda: json_of(history_json(history)), layout=layout)


def close_history(history: History, fail_on: str | None) -> int:
    """Prints on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    from serve_bench.benchmarks.history.lens import late_runs

    gaps = [f"{group.name}: {gap}" for group in history.groups for gap in group.gaps]
    comparings = (group.comparison for group in history.groups)
    return Gate(fail_on=fail_on).close(*comparings, gaps=[*gaps, *late_runs(history)])
