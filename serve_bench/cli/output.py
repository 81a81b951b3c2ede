"""Lines on stdout that are no report: plans, lists of processes.

Rule: on a terminal they fit it, as reports do; in a pipe or a file each stays one line, to be
searched.
"""

from __future__ import annotations

import sys

import typer


def width_here() -> int | None:
    """Columns that lines on stdout may take; None: any number."""
    if sys.stdout is None or not sys.stdout.isatty():  # None: closed by the caller
        return None
    from serve_bench.report.terminal import terminal

    return terminal(sys.stdout)[0]


def say(text: str) -> None:
    """Prints a line, folded where it is too wide; what follows is indented a little more."""
    from serve_bench.core.errors import visible
    from serve_bench.report.columns import wrapped

    text = visible(text)
    width, bare = width_here(), text.lstrip()
    if width is None:
        typer.echo(text)
        return
    for line in wrapped(bare, width, indent=len(text) - len(bare)):
        typer.echo(line)
