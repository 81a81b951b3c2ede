"""`serve-bench compare`: stored runs, one against the other, with a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from serve_bench.analysis.comparing import Spreads, of_runs
from serve_bench.analysis.comparing.match import RunPair, few, pair_runs
from serve_bench.analysis.comparing.model import GATE, Comparing
from serve_bench.analysis.comparing.pooled import measure_spreads
from serve_bench.analysis.comparing.values import NAMES, describe_errors, rows_of
from serve_bench.analysis.ratios import THRESHOLD, RunSpread
from serve_bench.analysis.statistics import variants
from serve_bench.benchmarks.registry import read_rows
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate, read_flags
from serve_bench.cli.other_tools import read_stored
from serve_bench.cli.report import target_of, write_text
from serve_bench.cli.show import print_warnings, render
from serve_bench.cli.stored import CompareOptions
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.report import Layout
from serve_bench.store.search import beside, search
from serve_bench.view.comparison import comparison_document, comparison_json
from serve_bench.view.csv import json_of

NEWEST: Final = 60  # runs of a folder, at most, that show how far runs differ


def _pair_sides(options: CompareOptions) -> tuple[list[RunPair], list[str], list[str]]:
    """Pair runs to compare; say why others are not. BadInput if no run of a side is readable."""
    sides, left = [], []
    for place in (options.run_a, options.run_b):
        runs, unreadable = search([place], read_stored)
        if not runs:
            raise BadInput(unreadable[0].reason)
        sides.append({str(folder): run for folder, run in runs.items()})
        left += [run.reason for run in unreadable]
    (a, b), where = sides, (str(options.run_a), str(options.run_b))
    if where[0] in a and where[1] in b:
        return [RunPair("", where, (a[where[0]], b[where[1]]), ())], [], []
    chosen = options.variant_a or options.variant_b
    if options.run_a.resolve() == options.run_b.resolve() and not chosen:
        raise BadInput(f"{where[0]} and {where[1]} are the same runs: name two folders")
    pairs, unlike, alone = pair_runs(a, b, options.force)
    return pairs, [*left, *unlike], alone


def _compare_pairs(
    options: CompareOptions, gate: Gate, pairs: Sequence[RunPair], left: list[str]
) -> Iterator[tuple[Comparing, tuple[str, str]]]:
    """Yield each pair that can be compared, with its folders; say in `left` why others cannot."""
    for pair in pairs:
        try:
            comparing = of_runs(
                *pair.runs,
                THRESHOLD if gate.threshold is None else gate.threshold,
                GATE if gate.metrics is None else gate.metrics,
                gate.noise,
                force=options.force,
                chosen=(options.variant_a, options.variant_b),
                where=pair.where,
                spreads=_find_spreads(pair, options.session_sd),
            )
            notes = (*comparing.notes, *pair.notes)
            warnings = (*comparing.warnings, *describe_errors(*pair.runs))
            yield replace(comparing, of=pair.of, notes=notes, warnings=warnings), pair.where
        except BadInput as error:
            left.append(str(error))


def _find_spreads(pair: RunPair, session_sd: float | None) -> Spreads:
    """Return how far runs of the suite differ: as given, or from the runs beside both."""
    a, b = pair.runs
    if session_sd is not None:
        given = dict.fromkeys(NAMES, RunSpread(session_sd))
        return {(name, place): given for name in variants(a) for place in rows_of(a, name)}
    alike = partial(read_rows, like=a.run)
    places = [path if path.is_dir() else path.parent for path in map(Path, pair.where)]
    homes = dict.fromkeys(place.resolve().parent for place in places)
    stored = [beside(home, NEWEST, alike) for home in homes]
    return measure_spreads(a, b, [run for runs in stored for run in runs.values()])


def compare(options: CompareOptions) -> int:
    """Compare stored runs. Returns the exit code."""
    form, html = options.format, options.format == "html"
    gate = read_flags(options)
    to = target_of(options.output, Path("compare.html") if html else None)
    pairs, left, alone = _pair_sides(options)
    done = list(_compare_pairs(options, gate, pairs, left))
    skipped = [*left, *alone]
    if not done:
        raise BadInput("; ".join(few(skipped)))
    comparings = [comparing for comparing, _ in done]
    for comparing in comparings:
        most = max(min(row.planned) for row in comparing.rows)
        launches = f"{counted(most, 'launch', 'launches')} a side"
        gate.check_rounds(most, f"{launches} (measure with --launches 3)")
    for pair in pairs:
        for letter, result in zip("AB", pair.runs, strict=True):
            print_warnings(result, letter)
    for text in skipped:
        print_note(f"warning: not compared: {text}")

    def data() -> str:
        """Write one object; a list of pairs unless just two runs were named."""
        objects = [comparison_json(*pair) for pair in done]
        named = not skipped and not comparings[0].of
        return json_of(objects[0] if named else {"pairs": objects, "not_compared": skipped})

    documents = (comparison_document(*pair) for pair in done)
    runs = [comparing.sides[1].run.id for comparing in comparings]
    layout = Layout(verbose=options.verbose, fitted=to is None)
    write_text(to, render(form, documents, data, runs, layout))
    return gate.close(*comparings, gaps=skipped if gate.fail_on == "inconclusive" else left)
