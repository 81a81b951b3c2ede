"""The kinds of run, one line each: the folder of its modules by the command that makes it.

A folder has `command.py` with the command, a function or a group of typer, by its name;
`document.py` with `document(result, options)`, which says what a run says to people; and
`exports.py` with `json_text` and `csv_text`, which machines read, and of kinds with a published
form `classic_text`; some have `condensed.py`. They are imported when they are needed. Nothing else
in the package compares the command of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from serve_bench.core.errors import BadInput, FormatError
from serve_bench.store import read

if TYPE_CHECKING:
    from serve_bench.core.document import Document, ReportOptions
    from serve_bench.core.result import Result, Run


class DocumentModule(Protocol):
    """A `document.py`. Its function raises FormatError for damaged records."""

    def document(self, result: Result, options: ReportOptions) -> Document:
        """What the run says."""


class ExportsModule(Protocol):
    """A `exports.py`. Each text ends with a newline; the functions raise FormatError for damaged
    records."""

    def json_text(self, result: Result, options: ReportOptions) -> str:
        """The figures of the run."""

    def csv_text(self, result: Result, options: ReportOptions) -> str:
        """A line for each row, a header first."""


class ClassicModule(Protocol):
    """An `exports.py` of a kind whose figures were published in a form of their own."""

    def classic_text(self, result: Result, options: ReportOptions) -> str:
        """The figures in that form, which ends with a newline. Raises FormatError."""


class CondensedModule(Protocol):
    """A `condensed.py`."""

    def condensed(self, result: Result) -> Result:
        """The run with trials that are rows to compare. Raises FormatError for damaged records."""


@dataclass(frozen=True)
class Benchmark:
    """A kind of run. `folder`: of its modules, below benchmarks/; `pages` and `data`: of its
    `document.py` and `exports.py`, where it has those of another kind. `condenses`: it has a
    `condensed.py`, since its trials are no rows to compare. `classic`: its figures were published
    in a form of their own, which its exports write."""

    folder: str
    pages: str | None = None
    data: str | None = None
    condenses: bool = False
    classic: bool = False

    def command(self, name: str) -> Any:
        """Its command of that name: a function, or a group of typer."""
        return getattr(self._module(self.folder, "command"), name)

    @property
    def telling(self) -> DocumentModule:
        """Its module `document`."""
        return cast(DocumentModule, self._module(self.pages or self.folder, "document"))

    @property
    def exports(self) -> ExportsModule:
        """Its module `exports`."""
        return cast(ExportsModule, self._module(self.data or self.folder, "exports"))

    def classic_text(self, result: Result, options: ReportOptions) -> str:
        """The published form of a run of this kind, which has one. Raises FormatError."""
        return cast(ClassicModule, self.exports).classic_text(result, options)

    def condensed(self, result: Result) -> Result:
        """A run of this kind with the rows that are compared. Raises FormatError."""
        if not self.condenses:
            return result
        module = cast(CondensedModule, self._module(self.folder, "condensed"))
        return module.condensed(result)

    def _module(self, folder: str, name: str) -> object:
        return import_module(f"serve_bench.benchmarks.{folder}.{name}")


ROWS: Final = Benchmark("micro", classic=True)
"""A matrix of cells, each with some rows."""

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "run": Benchmark("own_app", pages=ROWS.folder, data=ROWS.folder, classic=True),
    "trace": Benchmark("own_app", pages=ROWS.folder, data=ROWS.folder, classic=True),
    "micro": ROWS,
    "noop": ROWS,
    "load": Benchmark("load", data=ROWS.folder),
    "capacity": Benchmark("capacity", condenses=True),
    "soak": Benchmark("soak", condenses=True),
    "sweep": Benchmark("ladder"),
    "recsys": Benchmark("ladder"),
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
