"""Forms of a report: a Document as text for a terminal, Markdown, a page, pictures.

Rule: a form knows no kind of run.
"""

from __future__ import annotations

from typing import Final

FORMATS: Final = ("table", "classic", "json", "csv", "markdown")

COMPARED: Final = tuple(name for name in FORMATS if name != "classic")
"""Forms of a comparison: nothing like it was published in the classic one."""
