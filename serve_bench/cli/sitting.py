"""What every command that measures does around its runner: folder, marks, signals, the end.

Rule: nothing here knows what is measured. A runner works off its plan, appends to the folder and
says whether anything failed; Ctrl-C and a full disk end it, and what it has is reported.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

import typer

from serve_bench import __version__
from serve_bench.core.axes import BUILT_IN_VARIANTS
from serve_bench.core.errors import BadInput
from serve_bench.core.kept import (
    differs,
    kept_body,
    kept_header,
    kept_pair,
    kept_suite,
    kept_text,
    named_by,
)
from serve_bench.core.result import PlannedTrial, Result, Resume, Run
from serve_bench.observing.host import fingerprint, git_commit
from serve_bench.serving.launch_spec import ignored_environment
from serve_bench.serving.strays import Marked, sweep
from serve_bench.store import RunFolder, StoreError, now_iso

# --------------------------------------------------------------------------------------------------
# The first record of a run: what was asked for, by which tool, on which host.
#
# Rule: the command line is made anew from the options as they were parsed, however they were spelt
# and joined; what of a value is kept is core/kept.py's affair.

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


# --------------------------------------------------------------------------------------------------

FAILED: Final = 1
INTERRUPTED: Final = 130


class Working(Protocol):
    """A runner: works off its plan. `failed`: something of it is not measured."""

    failed: bool

    def run(self) -> bool: ...


@contextlib.contextmanager
def run_folder(
    command: str,
    out: Path | None,
    plan: Sequence[PlannedTrial],
    told: Mapping[str, Any],
    *,
    resumes: bool = False,
) -> Iterator[RunFolder]:
    """The open folder of a run, with its Run record written, or that of a Resume.

    Raises BadInput when it cannot be made or gone on with.
    """
    if resumes and out is not None:
        folder, _ = RunFolder.resume(out)
        folder.append(Resume(command_line(), now_iso(), __version__, fingerprint()))
    else:
        folder = RunFolder.create(out, now=datetime.now(UTC))
        folder.append(run_record(folder, command, tuple(plan), told))
    with folder:
        yield folder


def must_name(folder: Path, earlier: Result, asked: Sequence[str]) -> bool:
    """Whether a run that is gone on with has to be made anew from its flags: where its record names
    what we would run, write to or connect to. Raises BadInput where `asked`, the flags that were
    given, are none then, or some without need."""
    named = _named(earlier)
    if named and not asked:
        raise BadInput(
            f"--resume: the record in {folder} names {', '.join(named)}; that is used only when "
            "you name it again: give the command line of the run, --resume in the place of --out"
        )
    if asked and not named:
        raise BadInput(f"--resume follows the stored plan; it does not go with {', '.join(asked)}")
    if "--out" in asked:
        raise BadInput("--out: a run that is gone on with stays in its folder: leave it out")
    return bool(named)


def _named(result: Result) -> list[str]:
    flags = {name: one.env for name, one in BUILT_IN_VARIANTS.items()}
    with whole_suite():
        return named_by(result.run.suite, flags)


@contextlib.contextmanager
def whole_suite() -> Iterator[None]:
    """BadInput where a stored suite is not made as suites are: a hand has changed it."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the stored suite cannot be gone on with: {error}") from None


def again_of(command: str, folder: Path, result: Result) -> str:
    """How to go on with a run, in words for a person."""
    if _named(result):
        return f"the same command line, with --resume {folder} in the place of --out"
    return f"serve-bench {command} --resume {folder}"


def check_same(folder: Path, earlier: Result, suite: Mapping[str, Any]) -> None:
    """BadInput where a run that was named again is not the stored one."""
    with whole_suite():
        other = differs(earlier.run.suite, suite)
    if other is not None:
        raise BadInput(f"--resume: this is not the run in {folder}: {other}")


def next_launch(folder: Path) -> int:
    """Launch logs are never overwritten, so the next number is one above the highest."""
    logs = (re.fullmatch("launch-([0-9]+)", log.stem) for log in folder.glob("logs/launch-*.log"))
    return max((int(log[1]) for log in logs if log is not None), default=0) + 1


def work_off(runner: Working) -> bool:
    """Runs it to its end; True where Ctrl-C, SIGTERM or SIGHUP came first."""
    try:
        runner.run()
    except KeyboardInterrupt:
        return True
    except StoreError as error:  # a full disk: what is there is reported all the same
        print(f"serve-bench: {error}", file=sys.stderr)
        runner.failed = True
    return False


def tell_ignored(flags: str = "use --env to set it") -> None:
    """Says which names of the shell no launch gets."""
    for name in ignored_environment():
        print(f"note: {name} of the shell is left out; {flags}", file=sys.stderr)


def code_of(again: str, *, interrupted: bool, incomplete: bool) -> int:
    """The exit code of a run, and on stderr the command line that goes on with it."""
    if interrupted:
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        return INTERRUPTED
    if incomplete:
        print(f"incomplete; go on with: {again}", file=sys.stderr)
        return FAILED
    return 0


@contextlib.contextmanager
def run_mark() -> Iterator[str]:
    """A run id with its directory and warden; whatever the run started is gone afterwards."""
    for stray, reaped in sweep().items():
        ended = f"ended {reaped.killed} process{'' if reaped.killed == 1 else 'es'}"
        what = ended if reaped.killed else "removed the directory"
        print(f"note: {what} of dead run {stray}", file=sys.stderr)
    run = Marked.begin()
    try:
        yield run.run_id
    finally:
        _, died = run.end()
        if died:
            print("note: the process that cleans up after a killed run had died", file=sys.stderr)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does; a second signal does not break the ending.

    Whoever ignores a signal (nohup, a script that starts us with &) has it ignored.
    """
    former = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in former:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in former:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
