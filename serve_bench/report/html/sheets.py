"""Which kind of run fills a page how.

Rule: no kind is drawn as another one: a command without a page of its own is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, TypeAlias

from serve_bench.errors import BadInput
from serve_bench.report.html.parts import Sheet
from serve_bench.result import Result

SheetOf: TypeAlias = Callable[..., Sheet]

SHEETS: Final = {
    "micro": ("of_page", "page_sheet"),
    "recsys": ("of_page", "page_sheet"),
    "run": ("of_page", "page_sheet"),
    "load": ("of_load", "load_sheet"),
    "sweep": ("of_ladder", "ladder_sheet"),
    "press": ("of_press", "press_sheet"),
    "rpc": ("of_rpc", "rpc_sheet"),
    "scale": ("of_scale", "scale_sheet"),
    "ranker": ("of_ranker", "ranker_sheet"),
    "versus": ("of_versus", "versus_sheet"),
}
"""By command: the module beside this one and the function in it, loaded when it is needed."""

PUBLISHED: Final = frozenset({"micro", "recsys", "run", "sweep", "press", "rpc", "scale"})
"""Commands whose page can have published figures beside."""


def sheet_of(result: Result, where: str | None, published: bool = False) -> Sheet:
    """The page of a run, filled from its records. `where`: its folder, as it is shown; `published`:
    with published figures beside, where there are any.

    Raises BadInput for a command that has no page, and what the figures of that kind raise.
    """
    command = result.run.command
    if command not in SHEETS:
        raise BadInput(
            f"--format html: a run of {command!r} has no page; those of {', '.join(SHEETS)} have"
        )
    module, name = SHEETS[command]
    fill: SheetOf = getattr(import_module(f"{__package__}.{module}"), name)
    return fill(result, where, published) if command in PUBLISHED else fill(result, where)
