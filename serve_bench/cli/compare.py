"""`serve-bench compare`: two stored runs, one against the other, with a verdict."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serve_bench.benchmarks.registry import read_rows
from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.gate import GateOptions, read_flags, read_share
from serve_bench.cli.options import VERBOSE_HELP
from serve_bench.cli.report import place_of_page, write_comparison
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result

if TYPE_CHECKING:
    from serve_bench.analysis.comparing import Spreads
    from serve_bench.analysis.ratios import RunSpread


class CompareOptions(GateOptions):
    order = """run_a run_b threshold gate fail_on noise variant_a variant_b session_sd force
        format output verbose"""

    run_a: Path = argument("Folder of a run, which is the base.", metavar="RUN_A")
    run_b: Path = argument("Folder of the run that is compared with it.", metavar="RUN_B")
    variant_a: str | None = flag(None, "Compare this variant of RUN_A [those of the same name].")
    variant_b: str | None = flag(
        None, "Compare it with this variant of RUN_B [those of the same name]."
    )
    session_sd: str | None = flag(
        None, "Spread between runs of the suite, such as 3% [that of runs beside both]."
    )
    force: bool = flag(False, "Compare unlike hosts, Ray versions and suites too.")
    format: str = flag("table", "Form: table, markdown, csv, json or html.", "--format", "-f")
    verbose: bool = flag(False, VERBOSE_HELP, "--verbose", "-v")
    output: str | None = flag(
        None, "Write the page to this file, - is stdout [compare.html here].", "--output", "-o"
    )


@command(CompareOptions, "Compare")
def compare(options: CompareOptions) -> int:
    """Compare two stored runs, with a verdict for each row.

    A verdict is regressed, slower, improved, faster, same or inconclusive.

    At least three launches a side: micro --launches 3. How far runs differ from one night to the
    next is in the interval; serve-bench versus avoids it.

    Example: serve-bench compare results/before results/after --fail-on regressed
    """
    import sys

    from serve_bench.analysis.comparing import of_runs
    from serve_bench.analysis.comparing.model import GATE
    from serve_bench.analysis.ratios import THRESHOLD, RunSpread
    from serve_bench.cli.show import check_format, render_comparing
    from serve_bench.report import COMPARED

    html, format, output = options.format == "html", options.format, options.output
    check_format(format, (*COMPARED, "html"))
    if output is not None and not html:
        raise BadInput("--output: goes with --format html; other forms are printed")
    asked = read_flags(options)
    to = place_of_page(output, Path("compare.html")) if html else None
    given = None
    if options.session_sd is not None:
        given = RunSpread(read_share(options.session_sd, "--session-sd"))
    where = (str(options.run_a), str(options.run_b))
    results = (read_rows(options.run_a), read_rows(options.run_b))
    spreads = _spreads(options, given, *results)
    comparing = of_runs(
        *results,
        THRESHOLD if asked.threshold is None else asked.threshold,
        GATE if asked.metrics is None else asked.metrics,
        asked.noise,
        force=options.force,
        chosen=(options.variant_a, options.variant_b),
        where=where,
        spreads=spreads,
    )
    most = max(min(row.planned) for row in comparing.rows)
    launches = f"{most} launch{'' if most == 1 else 'es'} a side"
    asked.check_rounds(most, f"{launches} (measure with --launches 3)")
    for letter, result in zip("AB", results, strict=True):
        for warning in result.warnings:
            print(f"warning: {letter}: {warning.message}", file=sys.stderr)
    if html:
        write_comparison(comparing, where, to)
        return asked.close(comparing)
    width, color = 80, False
    if format == "table":
        from serve_bench.report.terminal import terminal

        width, color = terminal(sys.stdout)
    text = render_comparing(comparing, format, where, width, color, options.verbose)
    print(text, end="", flush=True)
    return asked.close(comparing)


NEWEST: Final = 60
"""Runs of a folder that are read at most to tell how far runs differ."""


def _spreads(options: CompareOptions, given: RunSpread | None, a: Result, b: Result) -> Spreads:
    """How far runs of the suite differ: as given, or from the runs beside both."""
    from serve_bench.analysis.comparing.pooled import measure_spreads
    from serve_bench.analysis.comparing.values import NAMES, rows_of
    from serve_bench.analysis.statistics import variants
    from serve_bench.store.search import beside

    if given is not None:
        each = dict.fromkeys(NAMES, given)
        return {(name, place): each for name in variants(a) for place in rows_of(a, name)}
    alike = partial(read_rows, like=a.run)
    homes = [
        (path if path.is_dir() else path.parent).resolve().parent
        for path in (options.run_a, options.run_b)
    ]
    stored = {
        place: result
        for folder in dict.fromkeys(homes)
        for place, result in beside(folder, NEWEST, alike).items()
    }
    return measure_spreads(a, b, list(stored.values()))
