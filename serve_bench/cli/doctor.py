"""`serve-bench doctor`: is this machine fit to measure on?"""

from __future__ import annotations

import sys

import typer

from serve_bench.cli.command import Options, command, flag


class DoctorOptions(Options):
    """The options of `doctor`."""

    order = ("as_json", "python")

    as_json: bool = flag(False, "Print every check as JSON.", "--json")
    python: str | None = flag(None, "Look at the Ray and torch of this interpreter [its own].")


@command(DoctorOptions, "House-keeping")
def doctor(options: DoctorOptions) -> int:
    """Check whether this machine is fit to measure on.

    Where it is not, doctor says what to do.

    The last line is the verdict: fit, usable with doubts, or not now (a failure, or other work
    takes half of the cores). doctor starts and changes nothing. Exit code 1 for a failure, else 0.

    Example: serve-bench doctor
    """
    from serve_bench.analysis.checks import fit
    from serve_bench.cli.flag_values import check_texts
    from serve_bench.doctor import Machine, diagnose
    from serve_bench.observing.host import fingerprint
    from serve_bench.report.doctor import data, text
    from serve_bench.report.terminal import terminal

    check_texts({"python": options.python})
    host = fingerprint()  # the load before we add to it
    sections = diagnose(
        Machine(python=options.python), lambda line: print(line, file=sys.stderr, flush=True)
    )
    if options.as_json:
        typer.echo(data(sections, host), nl=False)
    else:
        width, color = terminal(sys.stdout)
        typer.echo(text(sections, host, width=width, color=color), nl=False, color=color)
    return 0 if fit(sections) else 1
