"""The page of a run of rows: `micro`, and `run` for an app of the user's own.

Rule: all is taken from the Page that the other forms are drawn from, so that none says more. This
module sets the order of the parts; what is in each belongs to page_table.py, page_details.py,
page_charts.py, page_found.py and page_own_app.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.comparison import CONFIDENCE, FEWEST
from serve_bench.analysis.statistics import FEWEST as FEWEST_LAUNCHES
from serve_bench.analysis.statistics import LIKE
from serve_bench.benchmarks.micro.page_charts import (
    cpu_charts,
    ends_of,
    latencies,
    throughput,
    windows,
)
from serve_bench.benchmarks.micro.page_details import cpu_tables, details, evidence
from serve_bench.benchmarks.micro.page_found import causes, found
from serve_bench.benchmarks.micro.page_own_app import best_cell, with_app
from serve_bench.benchmarks.micro.page_panels import Names, names_of
from serve_bench.benchmarks.micro.page_table import matrix
from serve_bench.benchmarks.parts import about_run
from serve_bench.benchmarks.parts.page import Entry, Page, page_of
from serve_bench.benchmarks.parts.pieces import whole_run
from serve_bench.core.document import (
    Block,
    Document,
    Folded,
    Picture,
    Prose,
    ReportOptions,
    Section,
    sentences,
)
from serve_bench.core.result import Result

OWN: Final = "run"
"""The command for an app of the user's own."""

_RAW: Final = ".raw.txt"
"""How the raw stacks of a profile end; their flamegraph lies beside, as .svg."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of rows says, with the published figures of the no-op matrix beside if wanted."""
    where, published = options.where, options.published
    page = page_of(result, published=published, where=where)
    names = names_of(page)
    own = result.run.command == OWN
    sections = [
        Section("results", "Results", (*matrix(page, names), *details(page, names))),
        best_cell(page, names) if own else None,
        throughput(page, names),
        latencies(page, names),
        windows(page, names),
        _cpu(page, names),
        profiles(page, names),
        about_run.method(result, (*about_run.GENERAL_FORMULAS, *formulas(page, own))),
    ]
    asked = about_run.asked(result.run)
    return Document(
        title=title_of(result, own),
        command=result.run.command,
        run=with_app(asked, result) if own else asked,
        machine=about_run.machine(result.run),
        findings=sentences(found(page, names)),
        doubts=tuple(whole_run(page.warnings, page.failures)),
        sections=tuple(one for one in sections if one is not None),
        where=where,
        argv=result.run.argv,
    )


def title_of(result: Result, own: bool) -> str:
    """Names the run; of an own app the app too, without its folder."""
    app = result.run.suite.get("app")
    what = f" {app['target'].rpartition('/')[2]}" if own and isinstance(app, dict) else ""
    return f"serve-bench {result.run.command}{what}, run {result.run.id}"


def _cpu(page: Page, names: Names) -> Section | None:
    told = causes(page)
    said = (Prose((told,)),) if told else ()
    blocks = (*said, *cpu_charts(page, names), *cpu_tables(page), *evidence(page, names))
    return Section("cpu", "CPU by process, and what limited each row", blocks) if blocks else None


# ---------------------------------------------------------------------------------- profiles


def profiles(page: Page, names: Names) -> Section | None:
    """The flamegraphs of the profiled rows, the first row's open; None where none was profiled."""
    entries = [one for one in page.entries if any(trial.profiles for trial in one.line.trials)]
    blocks: list[Block] = []
    for at, entry in enumerate(entries):
        pictures = tuple(_pictures(entry, names))
        blocks += pictures if at == 0 else (Folded(names.whole(entry), pictures),)
    return Section("profiles", "Flamegraphs", tuple(blocks)) if blocks else None


def _pictures(entry: Entry, names: Names) -> Iterator[Picture]:
    for trial in entry.line.trials:
        for one in trial.profiles:
            path = str(one.get("path", ""))
            if "failed" in one or not path:
                continue
            who = f"{one['role']} {one['pid']}"
            yield Picture(
                f"{names.whole(entry)}: {who}",
                f"{path.removesuffix(_RAW)}.svg",
                f"flamegraph of {who} while {names.whole(entry)} was loaded: the wider a frame, "
                "the more samples had it on the stack",
            )


# ---------------------------------------------------------------------------------- formulas


def formulas(page: Page, own: bool) -> Iterator[tuple[str, str, str]]:
    """What these figures rest on beside the formulas of all runs: name, formula, source."""
    if any(_over_launches(entry) for entry in page.entries):
        yield (
            f"{100 * CONFIDENCE:g} % interval over launches",
            f"mean ± t({0.5 + CONFIDENCE / 2:g}, k - 1) x s / sqrt(k); s: the std over the means "
            f"of k launches, k >= {FEWEST}",
            "Student: The probable error of a mean. Biometrika 6(1), 1908; docs/ab.md",
        )
    if page.base is not None:
        yield (
            "ratio",
            f"mean requests/s of a row / mean requests/s of the same row under {page.base}",
            "GLOSSARY.md",
        )
    if any(entry.limited for entry in page.entries):
        yield (
            "CPU of a role",
            "100 x CPU time of its processes / length of the windows; the mean over launches",
            "serve_bench/core/usage.py; docs/verdicts.md",
        )
    if own:
        yield (
            "not clearly slower",
            f"best <= {1 + LIKE:g} x other, or best - other < 2 x sqrt(e_best^2 + e_other^2); e: "
            f"std over launches / sqrt(launches) of {FEWEST_LAUNCHES} launches or more, else std "
            "over windows / sqrt(windows)",
            "serve_bench/analysis/statistics.py",
        )


def _over_launches(entry: Entry) -> bool:
    ends = None if entry.rate is None else ends_of(entry.rate)
    return ends is not None and ends.over == "launches"
