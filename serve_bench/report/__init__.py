"""Reports: a Result as text, in one of several forms.

Rule: a report sees data only. All forms are drawn from one Page (page.py), so that none can say
more, or leave out more, than another. Figures come from analysis/statistics.py, doubts from
analysis/checks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.comparing import VERSUS, of_versus
from serve_bench.analysis.comparing.parts import Comparing
from serve_bench.benchmarks.ladder.summary import ladder_lines
from serve_bench.benchmarks.press.summary import settings_of
from serve_bench.core.errors import BadInput, visible
from serve_bench.core.result import Result
from serve_bench.report.classic import classic
from serve_bench.report.csv import csv_text
from serve_bench.report.ladder.tables import ladder_fields
from serve_bench.report.ladder.text import ladder_json, ladder_text
from serve_bench.report.load.text import load_text
from serve_bench.report.micro.own_app_text import best_text, own_text
from serve_bench.report.page import Page, page_of
from serve_bench.report.press.forms import press_csv, press_json
from serve_bench.report.press.tables import classic_press
from serve_bench.report.press.text import press_text
from serve_bench.report.ranker.text import ranker_json, ranker_text
from serve_bench.report.records_json import json_text
from serve_bench.report.rpc.csv_form import rpc_csv
from serve_bench.report.rpc.json_form import rpc_json
from serve_bench.report.rpc.printed_form import classic_rpc
from serve_bench.report.rpc.text import rpc_text
from serve_bench.report.scale.csv_form import scale_csv
from serve_bench.report.scale.json_form import classic_scale, scale_json
from serve_bench.report.scale.text import scale_text
from serve_bench.report.terminal import terminal_text
from serve_bench.report.versus.forms import versus_csv
from serve_bench.report.versus.json_form import versus_json

DRAWN: Final[dict[str, Callable[[Page], str]]] = {
    "classic": classic,
    "json": json_text,
    "csv": csv_text,
}
FORMATS: Final = ("table", *DRAWN, "markdown")

COMPARED: Final = tuple(name for name in FORMATS if name != "classic")
"""Forms of a comparison: nothing like it was published in the classic one."""


def render(
    result: Result,
    format: str = "table",
    *,
    published: bool = False,
    where: str | None = None,
    width: int = 80,
    color: bool = False,
    exclude_connect: bool = False,
) -> str:
    """A run as text that ends with a newline.

    `published` sets published figures beside the measured ones. `where` is the place of the
    records, as it is shown. `width` (characters) and `color` are for the table alone; see
    `table.terminal()`. The table of a single load is its summary. `exclude_connect` is for a press
    run as table or markdown: figures without the time to connect stand beside. Raises BadInput for
    an unknown format, FormatError for damaged records. Control characters in names are written out.
    """
    if format not in FORMATS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMATS)}")
    if result.run.command == VERSUS and format in COMPARED:
        places = (where,) if where else ()
        return render_comparing(of_versus(result), format, places, width, color)
    found = _rendered(result, format, published, where, width, exclude_connect)
    if isinstance(found, str):
        return visible(found)
    from serve_bench.report.table import table  # rich, needed here alone

    return table(found, width=width, color=color)


def _rendered(
    result: Result,
    format: str,
    published: bool,
    where: str | None,
    width: int,
    exclude_connect: bool,
) -> str | Page:
    """The text with names as they are, or the page of the table that has colours."""
    if format == "markdown":
        from serve_bench.report.markdown import markdown  # sentences of the page, needed here alone

        return markdown(result, published, where, exclude_connect)
    if format == "table" and result.run.command == "load":
        return load_text(result, where, width)
    if result.run.command == "ranker" and format in ("table", "json"):
        return (
            ranker_text(result, where, width) if format == "table" else ranker_json(result, where)
        )
    if result.run.command == VERSUS:
        return f"{VERSUS} has no published classic form: --format table shows it\n"
    if result.run.command == "rpc":
        return _rpc(result, format, published, where, width)
    if result.run.command == "scale":
        return _scale(result, format, published, where, width)
    if result.run.suite.get("ladder") is not None:
        if result.run.command == "press":
            return _press(result, format, published, where, width, exclude_connect)
        return _ladders(result, format, published, where, width)
    if result.run.command == "run" and format == "table":
        return own_text(result, where, width)
    page = page_of(result, published=published, where=where)
    if result.run.command == "run" and (best := best_text(page)) is not None:
        page = replace(page, notes=(best, *page.notes))
    return page if format == "table" else DRAWN[format](page)


def render_comparing(
    comparing: Comparing,
    format: str = "table",
    where: Sequence[str] = (),
    width: int = 80,
    color: bool = False,
) -> str:
    """A comparison as text that ends with a newline. `where`: the folders of its records.

    Raises BadInput for a form that it does not have.
    """
    if format not in COMPARED:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(COMPARED)}")
    if format == "json":
        return visible(versus_json(comparing, where))
    if format == "csv":
        return visible(versus_csv(comparing))
    from serve_bench.report.versus.page import comparison_document  # what only people read

    document = comparison_document(comparing, where)
    if format == "markdown":
        from serve_bench.report.comment import document_comment

        return visible(document_comment(document))
    return terminal_text(document, width, color)


def _press(
    result: Result, format: str, published: bool, where: str | None, width: int, exclude: bool
) -> str:
    """A press run in any form."""
    if format == "table":
        return press_text(result, published, where, width, exclude)
    if format == "json":
        return press_json(result, published, where)
    if format == "csv":
        return press_csv(result, published)
    return classic_press(settings_of(result))


def _rpc(result: Result, format: str, published: bool, where: str | None, width: int) -> str:
    """A run of rpc in any form."""
    if format == "table":
        return rpc_text(result, published, where, width)
    if format == "json":
        return rpc_json(result, published, where)
    return rpc_csv(result) if format == "csv" else classic_rpc(result)


def _scale(result: Result, format: str, published: bool, where: str | None, width: int) -> str:
    """A run of scale in any form."""
    if format == "table":
        return scale_text(result, published, where, width)
    if format == "json":
        return scale_json(result, published, where)
    return scale_csv(result, published) if format == "csv" else classic_scale(result)


def _ladders(result: Result, format: str, published: bool, where: str | None, width: int) -> str:
    """A run of ladders in any form; nothing like it was published in the classic one."""
    if format == "table":
        return ladder_text(result, published, where, width)
    if format == "json":
        return ladder_json(result, published, where)
    if format == "classic":
        return f"{result.run.command} has no published classic form: --format table shows it\n"
    page, ladders = page_of(result, published=published, where=where), ladder_lines(result)
    return csv_text(page, lambda entry: ladder_fields(ladders, entry))
