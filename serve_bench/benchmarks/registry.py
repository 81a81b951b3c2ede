"""The kinds of run, one line each: the folder of its modules by the command that makes it.

A folder has `document.py` with `document(result, options)`, which says what a run says to people;
and `exports.py` with `json_text`, which machines read, and of kinds with a published form
`classic_text`; some have `condensed.py`. They are imported when they are needed. Nothing else
in the package compares the command of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.core.figures import counted
from serve_bench.store import read
from serve_bench.store.search import search

if TYPE_CHECKING:
    from serve_bench.core.result import Result, Run
    from serve_bench.view.document import Document, ReportOptions
    from serve_bench.view.lens import RunLook


@dataclass(frozen=True)
class Benchmark:
    """A kind of run. `folder`: of its modules, below benchmarks/; `pages` and `data`: of its
    `document.py` and `exports.py`, where it has those of another kind. `condenses`: it has a
    `condensed.py`, since its trials are no rows to compare. `classic`: its figures were published
    in a form of their own, which its exports write. `lens`: it has a `lens.py` in their place."""

    folder: str
    pages: str | None = None
    data: str | None = None
    condenses: bool = False
    classic: bool = False
    lens: bool = False

    def document(self, result: Result, options: ReportOptions) -> Document:
        """What a run of this kind says. Raises FormatError for damaged records."""
        if self.lens:
            return self._look(result, options).document()
        make = self._of_module(self.pages or self.folder, "document", "document")
        return cast("Document", make(result, options))

    def text(self, form: str, result: Result, options: ReportOptions) -> str:
        """A run of this kind for programs (json), or in the published form (classic), where it has
        one; ends with a newline. Raises FormatError for damaged records."""
        if self.lens:
            return cast(str, getattr(self._look(result, options), f"{form}_text")())
        write = self._of_module(self.data or self.folder, "exports", f"{form}_text")
        return cast(str, write(result, options))

    def condensed(self, result: Result) -> Result:
        """A run of this kind with the rows that are compared. Raises FormatError."""
        if not self.condenses:
            return result
        return cast("Result", self._of_module(self.folder, "condensed", "condensed")(result))

    def _look(self, result: Result, options: ReportOptions) -> RunLook:
        from serve_bench.view.lens import look

        return look(result, options, self._of_module(self.folder, "lens", "LENS"))

    def _of_module(self, folder: str, module: str, name: str) -> Any:
        return getattr(import_module(f"serve_bench.benchmarks.{folder}.{module}"), name)


ROWS: Final = Benchmark("micro", classic=True, lens=True)
"""A matrix of cells, each with some rows."""

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "run": ROWS,
    "trace": ROWS,
    "micro": ROWS,
    "noop": ROWS,
    "load": Benchmark("load", lens=True),
    "capacity": Benchmark("capacity", condenses=True, lens=True),
    "soak": Benchmark("soak", condenses=True, lens=True),
    "sweep": Benchmark("ladder", lens=True),
    "recsys": Benchmark("ladder", lens=True),
    "press": Benchmark("press", classic=True, lens=True),
    "rpc": Benchmark("rpc", lens=True),
    "scale": Benchmark("scale", lens=True),
    "versus": Benchmark("versus", lens=True),
    "tax": Benchmark("tax", lens=True),
    "timeline": Benchmark("timeline", condenses=True, lens=True),
}
"""By command."""


def benchmark_of(run: Run) -> Benchmark:
    """The kind of a run. Raises BadInput for a command that this version does not know."""
    if run.command not in BENCHMARKS:
        raise BadInput(
            f"a run of {run.command!r} cannot be shown; those of {', '.join(BENCHMARKS)} can"
        )
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
    except FormatError as error:
        raise BadInput(f"{path}: {error}") from None


def newest_run(place: Path) -> Path:
    """The folder of the run that began last. BadInput where there is none."""
    runs, _ = search([place])
    return max(runs, key=lambda folder: runs[folder].run.started_at)


def index_of(place: Path, note: Callable[[str], None]) -> Document:
    """The index of the runs in a folder, each with its first finding. BadInput without any. `note`:
    is told how many are read, since that takes a tenth of a second each."""
    from serve_bench.view.document import ReportOptions
    from serve_bench.view.index import IndexedRun, index_runs

    runs, unreadable = search([place])
    note(f"reading {counted(len(runs), 'run')}")
    skipped, indexed = [f"{run.folder}: {run.reason}" for run in unreadable], []
    for folder, result in runs.items():
        try:
            document = benchmark_of(result.run).document(result, ReportOptions(str(folder)))
            indexed.append(IndexedRun(str(folder), result, document.findings[0]))
        except (BadInput, FormatError) as error:
            skipped.append(f"{folder}: {error}")
    return index_runs(indexed, str(place), skipped)
