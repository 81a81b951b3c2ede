"""The first record of a run: what was asked for, by which tool, on which host.

Rule: the command line is made anew from the options as they were parsed, however they were spelt
and joined; what of a value is kept is kept.py's affair.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import typer

from serve_bench import __version__
from serve_bench.core.kept import kept_body, kept_header, kept_pair, kept_suite, kept_text
from serve_bench.core.result import PlannedTrial, Run
from serve_bench.observing.host import fingerprint, git_commit
from serve_bench.store import RunFolder
from serve_bench.store.clock import now_iso

#: How the values of an option are kept; of all others as a text in which an address may stand.
KEPT: Final[Mapping[str, Callable[[str], str]]] = {
    "header": kept_header,
    "body": kept_body,
    "expect_body": kept_body,
    **dict.fromkeys(("env", "a_env", "b_env", "option", "a_option", "b_option"), kept_pair),
}


def run_record(
    folder: RunFolder,
    command: str,
    plan: tuple[PlannedTrial, ...] = (),
    suite: Mapping[str, Any] | None = None,
) -> Run:
    """The record of a run that begins now."""
    return Run(
        id=folder.path.name,
        argv=command_line(),
        command=command,
        started_at=now_iso(),
        tool_version=__version__,
        git_commit=git_commit(),
        suite=kept_suite(suite or {}),
        plan=plan,
        host=fingerprint(),
    )


def command_line() -> tuple[str, ...]:
    """The command that runs, as words that may be kept: options that were given, by their long
    names. Empty outside of a command."""
    # typer has brought its own click since 0.16, and used the package click before.
    click = typer.Context.__mro__[1].__module__.rpartition(".")[0]
    context = importlib.import_module(f"{click}.globals").get_current_context(silent=True)
    chain = []
    while context is not None:
        chain.append(context)
        context = context.parent
    words: list[str] = []
    for one in reversed(chain):
        words += [*([one.info_name] if one.parent is not None else []), *_given(one)]
    return tuple(words)


def _given(context: Any) -> Iterator[str]:
    """The parameters of one command that stood on its command line."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params.get(parameter.name)
        if isinstance(value, bool):
            yield max(parameter.opts if value else parameter.secondary_opts, key=len)
            continue
        kept = KEPT.get(parameter.name, kept_text)
        for each in value if isinstance(value, list | tuple) else [value]:
            if parameter.param_type_name == "argument":
                yield kept(str(each))
                continue
            flag, text = max(parameter.opts, key=len), kept(str(each))
            yield from [f"{flag}={text}"] if text.startswith("-") else [flag, text]
