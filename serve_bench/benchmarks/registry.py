"""The kinds of run: the folder of its lens by the command that makes it.

Rule: a lens is imported when it is needed; the figures of its kind are declared with it. Nothing
else in the package compares the command of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.result import Result, Run
from serve_bench.store import read
from serve_bench.store.search import search
from serve_bench.view.document import Document, ReportOptions
from serve_bench.view.figures import FIGURES
from serve_bench.view.index import index_row, index_runs
from serve_bench.view.lens import Lens
from serve_bench.view.published import read_reference

FOLDERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("run", "trace", "micro", "noop"), "micro"),
    **dict.fromkeys(("sweep", "recsys"), "ladder"),
    **{name: name for name in "load capacity soak press rpc scale versus tax timeline".split()},
}
"""Below benchmarks/, by command."""

CLASSIC: Final = ("run", "trace", "micro", "noop", "press")
"""Commands whose figures were published in a form of their own, which their lens writes."""


def find_lens(command: str) -> Lens:
    """Import the lens of a command. BadInput for one that this version does not know."""
    if command not in FOLDERS:
        raise BadInput(f"a run of {command!r} cannot be shown; those of {', '.join(FOLDERS)} can")
    module = import_module(f"serve_bench.benchmarks.{FOLDERS[command]}.lens")
    return cast("Lens", module.LENS)


def read_rows(path: Path, like: Run | None = None) -> Result:
    """Read a stored run for `compare` and `history`, by its lens. Raises BadInput in one line."""
    result = read(path)
    command = result.run.command
    if command not in FOLDERS or (like is not None and like.command != command):
        return result  # it has no row in common with `like`
    try:
        return find_lens(command).compared(result)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def newest_run(place: Path) -> Path:
    """Return the folder of the run that began last. BadInput where there is none."""
    runs, _ = search([place])
    return max(runs, key=lambda folder: runs[folder].run.started_at)


def index_of(place: Path, note: Callable[[str], None]) -> Document:
    """Make the index of the runs in a folder, each with its first finding. BadInput without any."""
    runs, unreadable = search([place])
    note(f"reading {counted(len(runs), 'run')}")  # that takes a tenth of a second each
    skipped, rows = [f"{run.folder}: {run.reason}" for run in unreadable], []
    for folder in sorted(runs, key=lambda folder: runs[folder].run.started_at, reverse=True):
        result, page = runs[folder], folder / "report.html"
        seen = [warning.message.removesuffix(": passed over") for warning in result.warnings]
        skipped += [f"{folder}: {message}" for message in seen]
        link = quote(os.path.relpath(page if page.exists() else folder, place))
        try:
            look = find_lens(result.run.command).look(result, ReportOptions(str(folder)))
            rows.append(index_row(look, os.path.relpath(folder, place), link))
        except BadInput as error:
            skipped.append(f"{folder}: {error}")
    return index_runs(rows, str(place), skipped)


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of all kinds of run: a shipped file, with the figures of each."""
    assert all(map(find_lens, FOLDERS))  # their figures are declared now
    schema: dict[str, Any] = deepcopy(read_reference("run.schema.json"))
    # Each member of a family, such as `batch_size_mean.Ranker`, has its unit and meaning.
    schema["$defs"]["figures"]["patternProperties"] = {
        rf"^{name}(\..+)?$": {
            "$ref": "#/$defs/value",
            "title": figure.title,
            "description": figure.meaning,
            "properties": {"unit": {"const": figure.unit}},
        }
        for name, figure in sorted(FIGURES.items())
    }
    return schema
