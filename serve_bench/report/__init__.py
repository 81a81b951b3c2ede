"""Forms of a report: a Document as text for a terminal, Markdown, a page, pictures.

Rule: a form knows no kind of run. What needs a library is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from serve_bench.core.errors import visible
from serve_bench.report.comment import comment
from serve_bench.view.document import Document


@dataclass(frozen=True)
class Layout:
    """How a text is laid out. `width`: characters of a line; `verbose`: with what few readers
    need; `wide`: tables with all their columns, however wide."""

    width: int = 80
    color: bool = False
    verbose: bool = False
    wide: bool = False


PLAIN: Final = Layout()
"""Of files, and of what is not a terminal."""


def _table(document: Document, layout: Layout) -> str:
    from serve_bench.report.terminal import terminal_text

    return terminal_text(document, layout)


FORMS: Final[dict[str, Callable[[Document, Layout], str]]] = {
    "table": _table,
    "markdown": lambda document, _: visible(comment(document)),
}
"""A document as text that ends with a newline, by the name of the form."""

FORMATS: Final = ("table", "classic", "json", "csv", *(name for name in FORMS if name != "table"))
"""All that `--format` takes; those that are no form of a document are data of a kind of run."""

COMPARED: Final = tuple(name for name in FORMATS if name != "classic")
"""Those of a comparison, and of runs whose figures were not published in the classic form."""
