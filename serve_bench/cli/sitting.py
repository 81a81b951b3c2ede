"""What every command that measures does around its runner: request, folder, marks, signals, end.

Rule: nothing here knows what is measured. A runner works off its plan, appends to the folder and
returns whether anything failed. Ctrl-C and a full disk end it, and what it has is reported.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

import typer

from serve_bench import __version__
from serve_bench.cli import FAILED, INTERRUPTED, print_note
from serve_bench.cli.exits import close_host, close_slo
from serve_bench.cli.options import UNSAMPLED, RunOptions
from serve_bench.cli.progress import Display
from serve_bench.core.errors import BadInput, visible
from serve_bench.core.figures import counted
from serve_bench.core.plan import Cell, LaunchPlan, duration_text, label_of
from serve_bench.core.redaction import differs, hide_env_value, hide_option, hide_suite
from serve_bench.core.result import PlannedTrial, Result, Resume, Run
from serve_bench.core.slo import parse_slo
from serve_bench.core.suite_facts import SuiteFacts
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.observing.host import CpuWatch, fingerprint
from serve_bench.runner.load_source import LoadOn, LocalLoads, NodeLoads
from serve_bench.runner.requests_file import requests_file
from serve_bench.runner.runner import Journal, Plan, run
from serve_bench.serving.launch_spec import ignored_environment
from serve_bench.serving.strays import Marked
from serve_bench.store import RunFolder, StoreError, check_new, now_iso, read

# The first record of a run: its request, the tool and the host.
#
# Rule: the command line is made of the parsed options, however they were spelt and joined.
# core/redaction.py decides what of a value is kept.


def run_record(
    folder: RunFolder,
    command: str,
    plan: tuple[PlannedTrial, ...] = (),
    suite: Mapping[str, Any] | None = None,
    watch: CpuWatch | None = None,
) -> Run:
    """Make the record of a run that begins now. `watch`: of the use of the host before it."""
    host = fingerprint(watch=watch)
    return Run(
        id=folder.path.name,
        argv=command_line(),
        command=command,
        started_at=now_iso(),
        tool_version=__version__,
        git_commit=host.git_commit,
        suite=hide_suite(suite or {}),
        plan=plan,
        host=host,
    )


def command_line() -> tuple[str, ...]:
    """Return the command that runs as words to keep, with long names; empty outside of one."""
    # typer has brought its own click since 0.16, and used the package click before.
    click = typer.Context.__mro__[1].__module__.rpartition(".")[0]
    context = importlib.import_module(f"{click}.globals").get_current_context(silent=True)
    chain = []
    while context is not None:
        chain.append(context)
        context = context.parent
    words: list[str] = []
    for process in reversed(chain):
        words += [
            *([process.info_name] if process.parent is not None else []),
            *_list_words(process),
        ]
    return tuple(words)


def long_name(spellings: Sequence[str]) -> str:
    """Return the name of an option that is shown: its first long one."""
    return next((spelling for spelling in spellings if spelling.startswith("--")), spellings[0])


def _list_words(context: Any) -> Iterator[str]:
    """Yield the parameters of one command that stood on its command line."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params.get(parameter.name)
        if isinstance(value, bool):
            yield long_name(parameter.opts if value else parameter.secondary_opts)
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            text = hide_option(parameter.name, str(item))
            if parameter.param_type_name == "argument":
                yield text
                continue
            flag = long_name(parameter.opts)
            yield from [f"{flag}={text}"] if text.startswith("-") else [flag, text]


# A sitting: a folder, a mark on all processes, a runner with its plan, a report, an exit code.


@dataclass(frozen=True)
class Place:
    """The folder of a run, the id in the mark of its processes, and the source of its load."""

    folder: Path
    run_id: str
    source: LocalLoads | NodeLoads


@dataclass(frozen=True)
class Sitting:
    """What to measure now: a new run, or the rest of an earlier one."""

    suite: Mapping[str, Any]  # of the whole run, for its record
    plan: Sequence[PlannedTrial]  # of the whole run, for its record
    work: Callable[[Place], Plan[Any, Any]]  # the plan of what is left
    earlier: Result | None = None
    command: str = ""  # set by `sit`
    out: Path | None = None  # where the run is kept; set by `sit`
    left: bool = True  # whether anything is left
    rounds: int | None = None  # the last that is now planned of a resumed run; None: as before
    load_on: LoadOn | None = None  # nodes that the load comes from; None: this host
    again: str | None = None  # words of the command that resumes it; None: it cannot be
    set_env: str | None = "use --env to set it"  # for what launches leave out; None: no launch
    log_requests: Path | None = None
    plain: bool = False  # progress in lines, on a terminal too
    letters: Mapping[str, str] = field(default_factory=dict)  # names in progress for long variants
    watch: CpuWatch | None = None  # of the use of the host before it
    disposable: bool = False  # its folder goes where nothing was measured


@dataclass(frozen=True)
class Outcome:
    """The end of a sitting."""

    folder: Path
    result: Result
    failed: bool
    interrupted: bool  # by Ctrl-C, SIGTERM or SIGHUP
    kept: bool = True  # the folder is there


def sit(sitting: Sitting, options: RunOptions, show: Callable[[Result, Path], int]) -> int:
    """Measure and show a run; call it within `signals`. Raises BadInput before anything starts.

    Returns the exit code: that of `show`, unless a part is missing."""
    if options.strict_host and options.no_sample:
        raise BadInput(UNSAMPLED)
    watch = sitting.watch
    if watch is None and not options.no_sample:
        watch = CpuWatch(0.2)  # others are seen in its trials, too
    out, plain = options.resume or options.out, options.live == "plain"
    sitting = replace(sitting, command=options.command, out=out, plain=plain, watch=watch)
    outcome = outcome_of(sitting)
    code = show(outcome.result, outcome.folder) if outcome.kept else 0
    return _close(sitting, outcome, code, strict_host=options.strict_host)


def outcome_of(sitting: Sitting) -> Outcome:
    """Measure a run; call it within `signals`. Every process of the run is gone when it returns.

    Raises BadInput when the folder cannot be made or resumed."""
    earlier = sitting.earlier
    if earlier is not None and not sitting.left:
        assert sitting.out is not None, "a resumed run has a folder"
        return Outcome(sitting.out, earlier, failed=False, interrupted=False)
    with (
        _open_folder(sitting) as folder,
        requests_file(sitting.log_requests) as requests,
        run_mark() as run_id,
    ):
        for name in ignored_environment() if sitting.set_env is not None else ():
            print_note(f"note: {name} of the shell is left out; {sitting.set_env}")
        log = folder.path / "logs" / "nodes.log"  # Ray's own output
        nodes = sitting.load_on
        source = LocalLoads() if nodes is None else NodeLoads(nodes, run_id, log)
        display = Display(plain=sitting.plain, letters=sitting.letters)
        with display, contextlib.closing(source):
            work = sitting.work(Place(folder.path, run_id, source))
            if (notice := long_notice(work)) is not None:
                print_note(notice)
            journal = Journal(folder, display, requests)
            interrupted = _work_off(work, journal, next_launch(folder.path))
        result = read(folder.path)
        if (lost := journal.unwritten) is not None:
            interrupted = interrupted or isinstance(lost.ended, KeyboardInterrupt)
            measured = [trial for trial in lost.trials if not trial.flags.profiled]
            trials = {trial.key: trial for trial in (*result.trials, *measured)}
            failures = (*result.failures, *(fault.failure() for fault in lost.faults))
            result = replace(result, trials=tuple(trials.values()), failures=failures)
        kept = bool(result.trials) or not sitting.disposable
        if not kept:
            folder.discard()
    return Outcome(folder.path, result, journal.failed, interrupted, kept)


LONG_S: Final = 120.0
"""A run that takes longer says so before it starts."""


def long_notice(plan: Plan[Any, Any]) -> str | None:
    """Say how long a plan takes, if that is more than LONG_S."""
    expected_s = (plan.expected_s(0, None) if plan.launches else None) or 0.0
    return f"note: this takes about {duration_text(expected_s)}" if expected_s > LONG_S else None


def _open_folder(sitting: Sitting) -> RunFolder:
    """Open the folder of the run, and write its Run record, or a Resume."""
    if sitting.earlier is not None and sitting.out is not None:
        folder, earlier = RunFolder.resume(sitting.out)
        keys = {planned.key for planned in (*earlier.run.plan, *earlier.plan)}
        added = tuple(planned for planned in sitting.plan if planned.key not in keys)
        about = (command_line(), now_iso(), __version__, fingerprint(watch=sitting.watch))
        folder.append(Resume(*about, sitting.rounds, added))
    else:
        folder = RunFolder.create(sitting.out, now=datetime.now(UTC))
        asked = (sitting.command, tuple(sitting.plan), sitting.suite)
        folder.append(run_record(folder, *asked, sitting.watch))
    return folder


def _work_off(plan: Plan[Any, Any], journal: Journal, first_launch: int) -> bool:
    """Run a plan to its end. Returns True where Ctrl-C, SIGTERM or SIGHUP came first."""
    try:
        run(plan, journal, first_launch)
    except KeyboardInterrupt:
        return True
    except StoreError as error:  # a full disk: what is there is reported all the same
        print_note(f"serve-bench: {error}")
        journal.failed = True
    return False


def _close(sitting: Sitting, outcome: Outcome, code: int, *, strict_host: bool) -> int:
    """Return the exit code of a run, where `code` is that of its report.

    Prints on stderr what misses its SLO or spoils the host, and how to resume it."""
    result = outcome.result
    incomplete = outcome.failed or bool(result.missing)
    if result.trials and not outcome.interrupted:
        code = max(code, close_slo(result))
        code = max(code, close_host(result)) if strict_host else code
    if not outcome.interrupted and not incomplete:
        return code
    how = "what is recorded is shown; a run of services cannot be resumed"
    if not outcome.kept:
        how = "nothing was measured"
    if sitting.again is not None:
        how = f"resume: serve-bench {sitting.again} --resume {outcome.folder}"
        if named_by(result.run.asked):
            how = f"resume: the same command line with --resume {outcome.folder} instead of --out"
    if not outcome.interrupted and not result.trials:
        way = "start a new run" if sitting.again is None else how
        print_note(f"nothing was measured: fix the failure, then {way}")
        return code or FAILED
    if outcome.interrupted:
        print_note(f"interrupted; {how}")
        return INTERRUPTED
    print_note(f"incomplete; {how}")
    return code or FAILED  # a broken gate is the verdict, whatever else failed


def next_launch(folder: Path) -> int:
    """Return the number of the next launch: above the highest log, since none is overwritten."""
    logs = (re.fullmatch("launch-([0-9]+)", log.stem) for log in folder.glob("logs/launch-*.log"))
    return max((int(log[1]) for log in logs if log is not None), default=0) + 1


# The request of a run, new or resumed, and its plan on a dry run.


class SuiteRequest(Protocol):
    """What a run measures, as it records it."""

    def to_json(self) -> dict[str, Any]: ...


def list_launches(
    launches: Iterable[LaunchPlan],
    describe: Callable[[Sequence[PlannedTrial]], Iterable[str]],
    label: Callable[[Cell], Mapping[str, object]] = label_of,
) -> Iterator[str]:
    """Yield the launches of a plan: environment, cells, and what `describe` says of their rows.

    `label`: how a cell is named."""
    for launch in launches:
        yield f"launch {launch.variant.name}, round {launch.round}"
        for flag, value in launch.variant.env.items():
            yield f"    {flag}={hide_env_value(flag, value)}"
        for cell, rows in launch.cells:
            yield from [f"  {settings_text(named)}"] if (named := label(cell)) else []
            yield from (f"    {row}" for row in describe(rows))


def settings_text(settings: Mapping[str, object]) -> str:
    """Write the settings of a cell in one line of a plan."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def print_plan(lines: Iterable[str], out: Path | None = None, slo: str | None = None) -> int:
    """Print the plan of a dry run. Returns the exit code. BadInput where `out` is no new folder."""
    check_new(out)
    for line in (*lines, *([f"slo: {parse_slo(slo).text}"] if slo is not None else [])):
        typer.echo(visible(line))
    return 0


def done(earlier: Result | None) -> list[str]:
    """List the keys of the trials that a stored run has, without those that failures are about."""
    if earlier is None:
        return []
    doubted = {failure.key for failure in earlier.failures}
    return [trial.key for trial in earlier.trials if trial.key not in doubted]


def needs_flags(folder: Path, earlier: Result, flags: Sequence[str]) -> bool:
    """Return whether a resumed run needs its flags again.

    It does where its record names what we would run, write to or connect to. `flags`: those of the
    command line. Raises BadInput where they are missing, or not needed."""
    names = named_by(earlier.run.asked)
    if names and not flags:
        raise BadInput(
            f"--resume: {folder} names {', '.join(names)}, which must be given again: repeat the "
            "command line with --resume instead of --out"
        )
    if flags and not names:
        raise BadInput(f"--resume follows the stored plan; it does not go with {', '.join(flags)}")
    if "--out" in flags:
        raise BadInput("--out: not allowed with --resume; the run keeps its folder")
    return bool(names)


def named_by(asked: SuiteFacts) -> list[str]:
    """List what a stored suite would have us run, write to or connect to, in words.

    It is used only once the user has named it again."""
    flags = {pair for variant in BUILT_IN_VARIANTS.values() for pair in variant.env.items()}
    names = []
    for variant in (*asked.variants, *(side.variant for side in asked.sides)):
        if variant.python is not None:
            names.append(f"the interpreter {variant.python}")
        names += [f"the environment {pair[0]}" for pair in variant.env.items() if pair not in flags]
        options = [name for name in variant.http_options if name != "request_timeout_s"]
        names += [f"the HTTP option {name}" for name in options]
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=-]*", variant.name):
            names.append(f"the variant {variant.name!r}")
    with_apps = [part for part in (asked, *asked.sides) if not isinstance(part.app, str)]
    names += [f"the app {part.target}" for part in with_apps]
    for address in (asked.address, asked.load_on and asked.load_on.address):
        if address is not None:
            names.append(f"the Ray cluster {address}")
    if asked.output_file_path is not None:
        names.append(f"the file {asked.output_file_path}")
    if asked.master_addr is not None and not _is_loopback(asked.master_addr):
        names.append(f"the address {asked.master_addr}")
    return list(dict.fromkeys(names))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@contextlib.contextmanager
def whole_suite() -> Iterator[None]:
    """Raise BadInput where a stored suite is damaged, or was changed by hand."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the stored suite cannot be resumed: {error}") from None


def check_same(folder: Path, earlier: Result, suite: Mapping[str, Any]) -> None:
    """Raise BadInput where the suite of the flags is not the stored one."""
    with whole_suite():
        other = differs(earlier.run.suite, suite)
    if other is not None:
        raise BadInput(f"--resume: this is not the run in {folder}: {other}")


# The mark of a run, and signals.


@contextlib.contextmanager
def run_mark() -> Iterator[str]:
    """Yield a run id with its directory and warden; whatever the run started is gone afterwards."""
    run = Marked.begin()
    try:
        for stray, reaped in run.swept.items():
            ended = f"ended {counted(reaped.killed, 'process', 'processes')}"
            what = ended if reaped.killed else "removed the directory"
            print_note(f"note: {what} of dead run {stray}")
        yield run.run_id
    finally:
        _, died = run.end()
        if died:
            print_note("note: the process that cleans up after a killed run had died")


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """End a run on SIGTERM and SIGHUP as on Ctrl-C; a second signal does not break the ending.

    A signal that the parent ignores (nohup, a script with &) stays ignored."""
    former = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }

    def interrupt(number: int, frame: FrameType | None) -> None:
        for signal_number in former:
            signal.signal(signal_number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in former:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
