"""The options of commands on stored runs: `serve-bench report`, `compare` and `history`."""

from __future__ import annotations

from typing import Annotated

from serve_bench.cli.command import MISSING, MOST, FilePath, argument, flag
from serve_bench.cli.options import FAIL_ON, FormatOptions, GateOptions, format_flag
from serve_bench.cli.panels import Command
from serve_bench.core.forms import Threshold
from serve_bench.core.spec import Opt
from serve_bench.report import COMPARED, FORMATS


class ReportCommandOptions(FormatOptions, GateOptions):
    """Print the report of a run, or write it as one HTML page.

    The run may be complete or interrupted. Two runs are compared, however unlike; those of a folder
    are listed.

    --threshold, --gate, --fail-on and --noise judge a run of versus again.

    Example: serve-bench report results/20260102-030405 --format html
    """

    order = """folders format output published perf_metrics trace_out exclude_connect threshold
        gate fail_on noise verbose wide plot chart schema"""

    folders: list[FilePath] | None = argument(
        None,
        "Runs, records.jsonl files, or a folder of runs [newest in results].",
        metavar="[RUN]...",
    )
    format: str = format_flag(*FORMATS, "html")
    output: str | None = flag(
        None, "Write it here [-: stdout; html: report.html in the run's folder].", "--output", "-o"
    )
    wide: bool = flag(False, "Tables with all their columns, however wide.")
    plot: FilePath | None = flag(None, "Draw a picture too, .svg or .png: finding and main chart.")
    chart: Annotated[
        str | None, Opt("Draw charts with these words in their title; '' draws all", empty=True)
    ] = None
    schema: bool = flag(False, "Print the JSON Schema of --format json, and nothing else.")


report = Command(ReportCommandOptions, "cli.report:report")


class CompareOptions(GateOptions):
    """Compare two stored runs, with a verdict for each row.

    Of folders of runs, those of one app and suite are compared. CSV of locust and JSON of
    pytest-benchmark are read too.

    A verdict is regressed, slower, improved, faster, same or inconclusive.

    At least three launches a side: micro --launches 3. How far runs differ from one night to the
    next is in the interval; serve-bench versus avoids it.

    Example: serve-bench compare results/before results/after --fail-on regressed
    """

    order = """run_a run_b threshold gate fail_on noise variant_a variant_b session_sd force
        format output verbose"""

    run_a: FilePath = argument(MISSING, "Folder of a run or several, as the base.", metavar="RUN_A")
    run_b: FilePath = argument(MISSING, "Folder of what is compared with it.", metavar="RUN_B")
    variant_a: str | None = flag(None, "Compare this variant of RUN_A [of the same name].")
    variant_b: str | None = flag(None, "Compare it with this variant of RUN_B [the same].")
    session_sd: Threshold | None = flag(None, "Spread between runs [of the runs beside both].")
    force: bool = flag(False, "Compare unlike hosts, Ray versions and suites too.")
    format: str = format_flag(*COMPARED, "html")
    output: str | None = flag(None, "Write it here [-; html: compare.html].", "--output", "-o")


compare = Command(CompareOptions, "cli.compare:compare")


class HistoryOptions(GateOptions):
    """Show stored runs over time, and judge the newest.

    Each app, suite and host has its own history. The newest run is compared with those before it,
    which from four on tell how far runs differ.

    Example: serve-bench history results --metric throughput,p99 --fail-on regressed
    """

    order = """dirs metric variant cell row last threshold fail_on force format output plot
        verbose"""

    dirs: list[FilePath] = argument(
        MISSING, "Folders with runs; JSON files of perf_metrics.", metavar="DIR..."
    )
    metric: str = flag("throughput", "Metrics: throughput, p50, p99, cpu, ttft_p99, itl_p99.")
    variant: str | None = flag(None, "Show this variant alone.")
    cell: str | None = flag(None, "Show this cell alone, such as bs1-ongoing10000-rep8.")
    row: str | None = flag(None, "Show this row alone, such as '100 connections'.")
    last: int = flag(10, "Compare the newest run with so many before it.", takes=(1, MOST))
    fail_on: str | None = flag(
        None, "End with exit code 3 on: regressed, slower, inconclusive; not judged.", takes=FAIL_ON
    )
    force: bool = flag(False, "Put runs of unlike hosts into one history.")
    format: str = format_flag(
        *"table markdown json html otava otava-config bencher github-action-benchmark".split()
    )
    output: str | None = flag(None, "Write it here [-; html: history.html].", "--output", "-o")
    plot: FilePath | None = flag(None, "Draw it too, into this file: .png or .svg.")


history = Command(HistoryOptions, "cli.history:history")
