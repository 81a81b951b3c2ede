"""`serve-bench compare`: two stored runs, one against the other, with a verdict."""

from __future__ import annotations

from pathlib import Path

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.gate import GateOptions, read_flags


class CompareOptions(GateOptions):
    """The options of `compare`."""

    order = (
        *("run_a", "run_b", "threshold", "gate", "fail_on", "noise", "variant_a", "variant_b"),
        *("force", "format", "output"),
    )

    run_a: Path = argument("Folder of a run: the base.", metavar="RUN_A")
    run_b: Path = argument("Folder of the run that is held against it.", metavar="RUN_B")
    variant_a: str | None = flag(None, "Of RUN_A this variant [those of the same name].")
    variant_b: str | None = flag(None, "Of RUN_B this variant [those of the same name].")
    force: bool = flag(False, "Compare unlike hosts, Ray versions and suites too.")
    format: str = flag("table", "table, markdown, csv, json or html.", "--format", "-f")
    output: str | None = flag(
        None, "Of html: this file, or - [compare.html here].", "--output", "-o"
    )


@command(CompareOptions)
def compare(options: CompareOptions) -> int:
    """Compare two stored runs: regressed, improved, same or inconclusive, row by row.

    Launches are what is compared, at least three a side: micro --launches 3. On one machine
    serve-bench versus is far less noisy.

    Example: serve-bench compare results/before results/after --fail-on regressed
    """
    import sys

    from serve_bench.analysis.comparing import of_runs
    from serve_bench.analysis.comparing.model import GATE
    from serve_bench.analysis.ratios import THRESHOLD
    from serve_bench.cli.report import place_of_page, write_comparison
    from serve_bench.cli.show import render_comparing
    from serve_bench.core.errors import BadInput
    from serve_bench.report import COMPARED
    from serve_bench.store import read

    html, format, output = options.format == "html", options.format, options.output
    if not html and format not in COMPARED:
        allowed = ", ".join((*COMPARED, "html"))
        raise BadInput(f"--format: {format!r} is not allowed; it takes {allowed}")
    if output is not None and not html:
        raise BadInput("--output: goes with --format html; other forms are printed")
    asked = read_flags(options)
    to = place_of_page(output, Path("compare.html")) if html else None
    where = (str(options.run_a), str(options.run_b))
    results = (read(options.run_a), read(options.run_b))
    comparing = of_runs(
        *results,
        THRESHOLD if asked.threshold is None else asked.threshold,
        GATE if asked.metrics is None else asked.metrics,
        asked.noise,
        force=options.force,
        chosen=(options.variant_a, options.variant_b),
        where=where,
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
    text = render_comparing(comparing, format, where, width, color)
    print(text, end="", flush=True)
    return asked.close(comparing)
