"""`serve-bench history`: stored runs over time, the newest of each suite against those before."""

from __future__ import annotations

from pathlib import Path

from serve_bench.analysis.history import History, PassedOver, build_history
from serve_bench.analysis.ratios import THRESHOLD
from serve_bench.benchmarks.history.exports import EXPORTS, export
from serve_bench.benchmarks.history.lens import documents, history_json, late_runs
from serve_bench.cli.gate import Gate, metric_names
from serve_bench.cli.other_tools import read_stored
from serve_bench.cli.report import check_plot, target_of, write_plot, write_text
from serve_bench.cli.show import print_warnings, render
from serve_bench.cli.stored import HistoryOptions
from serve_bench.core.errors import BadInput, visible
from serve_bench.report import PLAIN, Layout
from serve_bench.store.files import same_file
from serve_bench.store.search import search
from serve_bench.view.csv import json_of


def render_history(history: History, form: str = "table", layout: Layout = PLAIN) -> str:
    """Render a history as text that ends with a newline. BadInput for what `form` cannot hold."""
    if form in EXPORTS:
        return visible(export(history, form))
    return render(form, documents(history), lambda: json_of(history_json(history)), layout=layout)


def close_history(history: History, fail_on: str | None) -> int:
    """Print on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    gaps = [f"{group.name}: {gap}" for group in history.groups for gap in group.gaps]
    comparings = (group.comparison for group in history.groups)
    return Gate(fail_on=fail_on).close(*comparings, gaps=[*gaps, *late_runs(history)])


def history(options: HistoryOptions) -> int:
    """Show the history of stored runs. Returns the exit code."""
    form, output, plot = options.format, options.output, options.plot
    metrics = tuple(dict.fromkeys(metric_names(options.metric, "--metric")))
    check_plot(plot, None)
    to = target_of(output, Path("history.html") if form == "html" else None)
    if to is not None and plot is not None and same_file(to, plot):
        raise BadInput(f"--output and --plot: both are {plot}")
    runs, unreadable = search(options.dirs, read_stored)
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
    layout = Layout(verbose=options.verbose, fitted=to is None)
    write_text(to, render_history(whole, form, layout))
    if plot is not None:
        write_plot(plot, [*documents(whole)])
    return close_history(whole, options.fail_on)
