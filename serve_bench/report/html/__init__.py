"""A run as one HTML page that needs nothing else: core/document.py says what it is made of, SHEETS
which kind of run fills it how; frame.py lays it out and brings the library of its charts.

Rule: nothing here is imported by the other reports.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, TypeAlias

from serve_bench.core.document import Document
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result

# --------------------------------------------------------------------------------------------------
# Which kind of run fills a page how.
#
# Rule: no kind is drawn as another one: a command without a page of its own is an error.

SheetOf: TypeAlias = Callable[..., Document]

SHEETS: Final = {
    "micro": ("micro", "page_sheet"),
    "recsys": ("micro", "page_sheet"),
    "run": ("micro", "page_sheet"),
    "load": ("load", "load_sheet"),
    "sweep": ("ladder", "ladder_sheet"),
    "press": ("press", "press_sheet"),
    "rpc": ("rpc", "rpc_sheet"),
    "scale": ("scale", "scale_sheet"),
    "ranker": ("ranker", "ranker_sheet"),
    "versus": ("versus", "versus_document"),
}
"""By command: the folder of its kind, and the function of its page.py, loaded when needed."""

PUBLISHED: Final = frozenset({"micro", "recsys", "run", "sweep", "press", "rpc", "scale"})
"""Commands whose page can have published figures beside."""


def sheet_of(result: Result, where: str | None, published: bool = False) -> Document:
    """The page of a run, filled from its records. `where`: its folder, as it is shown; `published`:
    with published figures beside, where there are any.

    Raises BadInput for a command that has no page, and what the figures of that kind raise.
    """
    command = result.run.command
    if command not in SHEETS:
        raise BadInput(
            f"--format html: a run of {command!r} has no page; those of {', '.join(SHEETS)} have"
        )
    kind, name = SHEETS[command]
    fill: SheetOf = getattr(import_module(f"serve_bench.report.{kind}.page"), name)
    return fill(result, where, published) if command in PUBLISHED else fill(result, where)
