"""The command line: all commands, and what an error of one becomes. Exit codes go out here.

A kind of run brings its options in `benchmarks/<kind>/options.py`, the others have theirs beside
this file. They are imported when a command is named, and what runs it when it is called: `--help`
knows all commands from benchmarks/commands.py.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from serve_bench import __version__
from serve_bench.benchmarks.commands import COMMANDS
from serve_bench.cli import BAD_INPUT, FAILED, INTERRUPTED, OK, find, print_note
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.secrets import hide

#: typer carries its own click and exports this one of its errors; its base is what a parser raises.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


START: Final = """\
Three commands to begin with:

  serve-bench run my_module:app --route /      # your own Serve app
  serve-bench micro --quick                    # Serve itself, with a no-op app
  serve-bench load http://127.0.0.1:8000/      # a URL that is up

All commands: serve-bench --help. The options of one: serve-bench run --help"""
"""Printed where no command is named."""


class _Grouped(TyperGroup):
    """All commands, listed by their groups. Without rich: its import slows the start."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: Any = {name: None for commands in COMMANDS.values() for name in commands}
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command of this name."""
        return load_command(cmd_name) if cmd_name in self.commands else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the few options."""
        self.format_commands(ctx, formatter)
        records = [get_param.get_help_record(ctx) for get_param in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        wide = max(map(len, self.commands))
        for group, commands in COMMANDS.items():
            with formatter.section(group):
                formatter.write_dl(
                    [(name.ljust(wide), help) for name, (_, help) in commands.items()]
                )


app = typer.Typer(
    name="serve-bench",
    cls=_Grouped,
    help="Benchmark and profile Ray Serve; each number carries the evidence for it.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)


@cache
def load_command(name: str) -> Any:
    """Import a command, or a group of them, as typer parses it."""
    (place,) = (commands[name][0] for commands in COMMANDS.values() if name in commands)
    file = f"{place}.options" if place.startswith("benchmarks") else place
    return find(f"{file}:{name}")


#: A word of an error that nobody reads to its end: a path is shorter.
_LONG: Final = re.compile(r"\S{400,}")


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"serve-bench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(START)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the CLI and exit. Bad input is one line and exit code 2, a failed run exit code 1."""
    if sys.stderr is None:  # closed by the caller: print would take stdout in its place
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the end
    sys.stdout, sys.stderr = lasting(sys.stdout), lasting(sys.stderr)
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


class _Terminal(io.FileIO):
    """A terminal. One that was closed takes nothing: a run must still end, and keep its records."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(content)


def lasting(stream: Any) -> Any:
    """Return a stream that fails neither on what it cannot show nor as a closed terminal."""
    if isinstance(stream, io.TextIOWrapper):
        if stream.isatty():
            terminal = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
            stream = io.TextIOWrapper(terminal, stream.encoding, line_buffering=True)
        stream.reconfigure(errors="replace")
        write = stream.write
        stream.write = lambda text: write(hide(text))  # with nothing in it that may be a secret
    return stream


def run(argv: Sequence[str]) -> int:
    """Run the CLI with these arguments. Returns the exit code."""
    try:
        outcome = app(list(argv), standalone_mode=False, prog_name="serve-bench")
        if sys.stdout is not None:  # closed by the caller (`>&-`): Python has none then
            sys.stdout.flush()
        return int(outcome or OK)
    except BadInput as error:
        line = str(error).replace("\n", "\\n")  # of a name: a refusal is one line
        return _say(f"serve-bench: {line}", BAD_INPUT)
    except RunFailed as error:
        return _say("\n".join([f"serve-bench: {error}", *error.detail]), FAILED)
    except _UsageError as error:
        return _say(f"serve-bench: {_explain_usage(error)}", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _say("serve-bench: interrupted", INTERRUPTED)
    except BrokenPipeError:  # `serve-bench report ... | head`
        _drop_stdout()
        return OK
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_stdout()
        return _say("serve-bench: the output cannot be written: no space left", FAILED)


def _drop_stdout() -> None:
    """Discard what is still in the buffer: it must not fail when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain_usage(error: Any) -> str:
    message = " ".join(error.format_message().split())
    if near := getattr(error, "possibilities", None):  # of an option that there is not
        message = f"{error.message}; did you mean {near[0]}?"
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "serve-bench"
    return f"{message.removesuffix('.')} (see `{path} --help`)"


def _say(text: str, code: int) -> int:
    if code == BAD_INPUT:
        text = _LONG.sub(lambda word: f"{word[0][:40]}... ({len(word[0])} characters)", text)
    print_note(text)
    return code
