"""Forms of a report: a Document as text for a terminal, Markdown, a page, pictures.

A form knows no kind of run, and is imported when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Layout:
    """How a text is laid out."""

    width: int = 80  # characters of a line
    color: bool = False
    verbose: bool = False  # with what few readers need
    wide: bool = False  # tables with all their columns, however wide
    fitted: bool = False  # width and colour are those that stdout can have


PLAIN: Final = Layout()
"""Of files, and of what is not a terminal."""

FORMS: Final = ("table", "markdown")
"""Those that a document has as text."""

FORMATS: Final = ("table", "classic", "json", "csv", "markdown")
"""All that `--format` takes; those that are no form of a document are data of a kind of run."""

COMPARED: Final = tuple(name for name in FORMATS if name != "classic")
"""Those of a comparison, and of runs whose figures were not published in the classic form."""
