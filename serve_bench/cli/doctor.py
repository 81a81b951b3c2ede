"""`serve-bench doctor`: is this machine fit to measure on?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Every check as data.")] = False,
    python: Annotated[
        str | None,
        typer.Option(help="Look at the Ray and torch of this interpreter [its own]."),
    ] = None,
) -> int:
    """Say whether this machine is fit to measure on, and what to do where it is not.

    Nothing is started or changed. Exit code 1 when nothing can be measured here, else 0.

    Example: serve-bench doctor
    """
    from serve_bench.analysis.checks import fit
    from serve_bench.cli.flags import check_texts
    from serve_bench.doctor import Place, diagnose
    from serve_bench.observing.host import fingerprint
    from serve_bench.report.doctor import data, text
    from serve_bench.report.terminal import terminal

    check_texts({"python": python})
    host = fingerprint()  # the load before we add to it
    sections = diagnose(Place(python=python), lambda said: print(said, file=sys.stderr, flush=True))
    if as_json:
        typer.echo(data(sections, host), nl=False)
    else:
        width, color = terminal(sys.stdout)
        typer.echo(text(sections, host, width=width, color=color), nl=False, color=color)
    return 0 if fit(sections) else 1
