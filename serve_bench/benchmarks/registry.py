"""The kinds of run, one line each: the folder of its modules by the command that makes it.

A folder has `lens.py` with LENS, by which its runs are looked at, some also `condensed`. They are
imported when they are needed. Nothing else in the package compares the command of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.store import read
from serve_bench.store.search import search

if TYPE_CHECKING:
    from serve_bench.core.result import Result, Run
    from serve_bench.view.document import Document, ReportOptions
    from serve_bench.view.lens import Lens, RunLook


@dataclass(frozen=True)
class Benchmark:
    """A kind of run. `folder`: of its modules, below benchmarks/. `condenses`: its lens has
    `condensed`, since its trials are no rows to compare. `classic`: its figures were published
    in a form of their own, which its lens writes."""

    folder: str
    condenses: bool = False
    classic: bool = False

    @property
    def lens(self) -> Lens:
        """How its runs are looked at; the figures of its own are declared with it."""
        return cast("Lens", self._import("lens").LENS)

    def look(self, result: Result, options: ReportOptions) -> RunLook:
        """A run of this kind through its lens. Raises FormatError for damaged records."""
        from serve_bench.view.lens import look

        return look(result, options, self.lens)

    def condensed(self, result: Result) -> Result:
        """A run of this kind with the rows that are compared. Raises FormatError."""
        return self._import("lens").condensed(result) if self.condenses else result

    def _import(self, module: str) -> Any:
        return import_module(f"serve_bench.benchmarks.{self.folder}.{module}")


BENCHMARKS: Final[dict[str, Benchmark]] = {
    **dict.fromkeys(("run", "trace", "micro", "noop"), Benchmark("micro", classic=True)),
    "load": Benchmark("load"),
    "capacity": Benchmark("capacity", condenses=True),
    "soak": Benchmark("soak", condenses=True),
    **dict.fromkeys(("sweep", "recsys"), Benchmark("ladder")),
    "press": Benchmark("press", classic=True),
    "rpc": Benchmark("rpc"),
    "scale": Benchmark("scale"),
    "versus": Benchmark("versus"),
    "tax": Benchmark("tax"),
    "timeline": Benchmark("timeline", condenses=True),
}
"""By command."""


def benchmark_of(run: Run) -> Benchmark:
    """The kind of a run. Raises BadInput for a command that this version does not know."""
    if run.command not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise BadInput(f"a run of {run.command!r} cannot be shown; those of {known} can")
    return BENCHMARKS[run.command]


def read_rows(path: Path, like: Run | None = None) -> Result:
    """A stored run as `compare` and `history` read it; one of another command than `like`, with
    which it has no row in common, as it is. Raises BadInput in one line."""
    result = read(path)
    kind = BENCHMARKS.get(result.run.command)
    if kind is None or (like is not None and like.command != result.run.command):
        return result
    try:
        return kind.condensed(result)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def newest_run(place: Path) -> Path:
    """The folder of the run that began last. BadInput where there is none."""
    runs, _ = search([place])
    return max(runs, key=lambda folder: runs[folder].run.started_at)


def index_of(place: Path, note: Callable[[str], None]) -> Document:
    """The index of the runs in a folder, each with its first finding. BadInput without any. `note`:
    is told how many are read, since that takes a tenth of a second each."""
    from serve_bench.view.document import ReportOptions
    from serve_bench.view.index import index_row, index_runs

    runs, unreadable = search([place])
    note(f"reading {counted(len(runs), 'run')}")
    skipped, rows = [f"{run.folder}: {run.reason}" for run in unreadable], []
    for folder in sorted(runs, key=lambda folder: runs[folder].run.started_at, reverse=True):
        result, page = runs[folder], folder / "report.html"
        seen = [warning.message.removesuffix(": passed over") for warning in result.warnings]
        skipped += [f"{folder}: {message}" for message in seen]
        link = quote(os.path.relpath(page if page.exists() else folder, place))
        try:
            look = benchmark_of(result.run).look(result, ReportOptions(str(folder)))
            rows.append(index_row(look, os.path.relpath(folder, place), link))
        except BadInput as error:
            skipped.append(f"{folder}: {error}")
    return index_runs(rows, str(place), skipped)


def run_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON of every kind of run, with the figures of all of them."""
    from serve_bench.view.schema import make_schema

    assert all(kind.lens for kind in BENCHMARKS.values())  # their figures are declared now
    return make_schema()
