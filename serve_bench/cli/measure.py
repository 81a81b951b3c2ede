"""What every measuring command does around the runner: folder, marks, signals, the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import typer

from serve_bench import __version__
from serve_bench.agenda import Agenda, rest_of
from serve_bench.axes import MODEL_APPS
from serve_bench.cli.flamegraphs import draw_profiles
from serve_bench.cli.plots import draw_plots
from serve_bench.cli.progress import make_observer
from serve_bench.cli.run_record import recorded, run_record
from serve_bench.cli.show import Shown
from serve_bench.errors import BadInput
from serve_bench.host import fingerprint
from serve_bench.inside import Inside
from serve_bench.ladder import LEAST_GAIN
from serve_bench.launch_spec import check_interpreter, ignored_environment
from serve_bench.load_place import FromNodes, Here, LoadOn, read_load_on
from serve_bench.model_needs import with_device
from serve_bench.profiling import parse_targets
from serve_bench.pyspy import py_spy
from serve_bench.report.inside import facts, profiling_costs
from serve_bench.requests_file import requests_file
from serve_bench.result import Result, Resume, Trial
from serve_bench.rights import why_not_allowed
from serve_bench.runner import Runner, now_iso
from serve_bench.scenario import Suite, label_of, plan
from serve_bench.server import Serving
from serve_bench.shipped import read_toml, suite_file
from serve_bench.store import RunFolder, StoreError, read
from serve_bench.strays import marks, new_run, reap, start_warden, sweep
from serve_bench.suite import Overrides, read_suite

FAILED, INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Sitting:
    """What is to be measured now: a fresh run, or the rest of an earlier one."""

    command: str
    suite: Suite
    out: Path | None
    earlier: Result | None = None
    sample: bool = True  # CPU, memory and GPU beside each load
    metrics: bool = False  # Serve's own metrics around each load
    profile: tuple[str, ...] = ()  # targets of a profiled repetition of each row
    load_on: LoadOn | None = None  # the nodes of a Ray cluster; None: this host

    @property
    def agenda(self) -> Agenda:
        """What is done with each row."""
        if self.earlier is not None:
            return rest_of(self.earlier, self.suite, bool(self.profile))
        return Agenda(self.suite, plan(self.suite), bool(self.profile))


def fresh(command: str, suite_name: str, flags: Overrides, out: Path | None) -> Sitting:
    """A new run from a suite and flags. Raises BadInput before anything is started."""
    file = suite_file(suite_name)
    suite = read_suite(
        read_toml(file), str(file) if file.name != f"{suite_name}.toml" else file.name, flags
    )
    if suite.app.name in MODEL_APPS:  # torch takes seconds to load
        print("asking torch which device it has", file=sys.stderr, flush=True)
    return Sitting(command, with_device(suite), out)


def resumed(folder: Path, asked: list[str]) -> Sitting:
    """The rest of a stored run, by its own plan."""
    if asked:
        raise BadInput(f"--resume follows the stored plan; it does not go with {', '.join(asked)}")
    earlier = read(folder)
    if "urls" in earlier.run.suite:
        raise BadInput(
            f"--resume: {folder} holds a run of --url, whose headers are not kept: start a new one"
        )
    if earlier.run.command in ("rpc", "scale", "ranker", "load", "versus"):
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
    told = dict(earlier.run.suite)
    load_on = told.pop("load_on", None)
    suite = Suite.from_json(told)
    place = None if load_on is None else LoadOn(**load_on)
    return Sitting(earlier.run.command, suite, folder, earlier, load_on=place)


def _inside(sitting: Sitting, folder: RunFolder, run_id: str) -> Inside:
    return Inside(
        folder.path,
        marks(run_id),
        sample=sitting.sample,
        profile=sitting.profile,
        metrics=sitting.metrics,
    )


def looking_inside(
    sitting: Sitting, profile: str | None, no_sample: bool, serve_metrics: bool
) -> Sitting:
    """The sitting with what `--profile`, `--no-sample` and `--serve-metrics` ask for.

    Raises BadInput on an unknown target, without py-spy, or where it may not look into processes.
    """
    targets = parse_targets(profile, "--profile") if profile is not None else ()
    if targets:
        py_spy()
        reason = why_not_allowed(os.getpid())
        if reason is not None:
            raise BadInput(f"--profile: {reason}")
    return replace(sitting, sample=not no_sample, profile=targets, metrics=serve_metrics)


def loading_on(sitting: Sitting, text: str | None, nodes: int | None) -> Sitting:
    """The sitting with what `--load-on` and `--load-nodes` ask for; a resumed one has its own.

    Raises BadInput.
    """
    asked = read_load_on(text, nodes)
    return sitting if asked is None else replace(sitting, load_on=asked)


def print_plan(sitting: Sitting) -> None:
    """The plan, and about how long it takes. Starts nothing."""
    suite, agenda = sitting.suite, sitting.agenda
    for launch in agenda.launches:
        typer.echo(f"launch {launch.variant.name}, round {launch.round}")
        for flag, value in launch.variant.env.items():
            typer.echo(f"    {flag}={value}")
        for cell, trials in launch.cells:
            typer.echo("  " + ", ".join(f"{k}={v}" for k, v in label_of(cell).items()))
            if suite.ladder is not None:
                typer.echo(f"    {ladder_text(suite)}")
                continue
            for trial, profiled in agenda.of(trials):
                again = ", profiled" if profiled else ""
                typer.echo(f"    {trial.row.label} ({trial.row.client}{again})")
    count, loads = len(agenda.launches), agenda.loads()
    clusters = f"{count} cluster{'' if count == 1 else 's'}"
    again = f", {sum(loads)} of them profiled repetitions" if any(loads) else ""
    guess = "about " if suite.ladder is not None and suite.ladder.steps is None else ""
    length = f"{suite.windows} x {suite.window_s:g} s"
    if suite.requests_per_client is not None:
        length = f"{suite.requests_per_client} requests a client, {suite.max_row_s:g} s at most,"
    every = f"{len(loads)} trial{'' if len(loads) == 1 else 's'}"
    typer.echo(
        f"{guess}{every} of {length} on {clusters}{again}; "
        f"about {_duration(agenda.expected_s())} in all"
    )


def ladder_text(suite: Suite) -> str:
    """The ladder of a suite in one line."""
    ladder, noun = suite.ladder, "users" if suite.requests_per_client is None else "clients"
    assert ladder is not None, "asked of a suite with a ladder"
    again = f"; one that falls {ladder.runs} times" if ladder.runs > 1 else ""
    if ladder.steps is not None:
        return f"{noun}: {', '.join(str(one) for one in ladder.steps)}{again}"
    then = f"; then up to {ladder.refinements} steps around the best" if ladder.refinements else ""
    return (
        f"{noun}: from {ladder.start} up, until two steps gain less than {100 * LEAST_GAIN:.0f} %, "
        f"at most {ladder.ceiling}{then}{again}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@dataclass(frozen=True)
class Outcome:
    """What came of a sitting. `interrupted`: by Ctrl-C, SIGTERM or SIGHUP."""

    folder: Path
    result: Result
    failed: bool
    interrupted: bool


def run(sitting: Sitting, shown: Shown, *, log_requests: Path | None = None) -> int:
    """Measures what is planned, prints the report, and returns the exit code.

    `log_requests`: a new file for every request of a row of so many requests.
    """
    shown.check()
    with signals():  # to the end: a second Ctrl-C must not take the table away
        if sitting.earlier is not None and not sitting.agenda.launches:
            outcome = Outcome(sitting.out or Path(), sitting.earlier, False, False)
        else:
            outcome = _measure(sitting, log_requests=log_requests)
        shown.show(outcome.result, outcome.folder)
        draw_profiles(outcome.folder, outcome.result.profiled)
        draw_plots(outcome.folder, outcome.result, published=shown.published)
    again = f"serve-bench {sitting.command} --resume {outcome.folder}"
    again += f" --profile {','.join(sitting.profile)}" if sitting.profile else ""
    if outcome.interrupted:
        print(f"interrupted; go on with: {again}", file=sys.stderr)
        return INTERRUPTED
    if outcome.failed or outcome.result.missing:
        print(f"incomplete; go on with: {again}", file=sys.stderr)
        return FAILED
    return 0


def measure(
    sitting: Sitting,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    after_cell: Callable[[Serving, Sequence[Trial]], None] | None = None,
) -> Outcome:
    """Works off the plan, and says what profiling cost, since no report follows. Within `signals`.

    Every process of the run is gone when it returns.
    """
    outcome = _measure(sitting, host=host, port=port, after_cell=after_cell)
    draw_profiles(outcome.folder, outcome.result.profiled)
    costs = profiling_costs(outcome.result)
    for trial in outcome.result.profiled:
        for line in facts(trial, costs):
            typer.echo(f"profiled, variant {trial.variant}: {line}")
    return outcome


def _measure(
    sitting: Sitting,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    after_cell: Callable[[Serving, Sequence[Trial]], None] | None = None,
    log_requests: Path | None = None,
) -> Outcome:
    for variant in sitting.suite.variants:
        check_interpreter(variant)
    with _folder(sitting) as folder, requests_file(log_requests) as requests, run_mark() as run_id:
        for name in ignored_environment():
            print(f"note: {name} of the shell is left out; use --env to set it", file=sys.stderr)
        interrupted = False
        with make_observer() as observer:
            runner = Runner(
                agenda=sitting.agenda,
                folder=folder,
                run_id=run_id,
                observer=observer,
                first_launch=_next_launch(folder.path),
                host=host,
                port=port,
                after_cell=after_cell,
                inside=_inside(sitting, folder, run_id),
                requests=requests,
                place=place_of(sitting.load_on, folder.path, run_id),
            )
            try:
                runner.run()
            except KeyboardInterrupt:
                interrupted = True
            except StoreError as error:  # a full disk: what is there is reported all the same
                print(f"serve-bench: {error}", file=sys.stderr)
                runner.failed = True
    return Outcome(folder.path, read(folder.path), runner.failed, interrupted)


def place_of(asked: LoadOn | None, folder: Path, run_id: str) -> Here | FromNodes:
    """Where the load of a run comes from; what Ray says goes to a log in its folder."""
    return Here() if asked is None else FromNodes(asked, run_id, folder / "logs" / "nodes.log")


def _next_launch(folder: Path) -> int:
    """Launch logs are never overwritten, so the next number is one above the highest."""
    numbers = [int(log.stem.removeprefix("launch-")) for log in folder.glob("logs/launch-*.log")]
    return max(numbers, default=0) + 1


@contextlib.contextmanager
def _folder(sitting: Sitting) -> Iterator[RunFolder]:
    """The open folder of the run, with its Run or Resume record written."""
    if sitting.earlier is not None and sitting.out is not None:
        folder, _ = RunFolder.resume(sitting.out)
        argv = recorded(sys.argv[1:])
        folder.append(Resume(argv, now_iso(), __version__, fingerprint()))
    else:
        folder = RunFolder.create(sitting.out, now=datetime.now(UTC))
        planned = tuple(t for one in plan(sitting.suite) for _, ts in one.cells for t in ts)
        told = sitting.suite.to_json()
        if sitting.load_on is not None:
            told |= {"load_on": asdict(sitting.load_on)}
        folder.append(run_record(folder, sitting.command, planned, told))
    with folder:
        yield folder


@contextlib.contextmanager
def run_mark() -> Iterator[str]:
    """A run id with its directory and warden; whatever the run started is gone afterwards."""
    for stray, reaped in sweep().items():
        print(f"note: ended {reaped.killed} processes of dead run {stray}", file=sys.stderr)
    run_id = new_run()
    warden = start_warden(run_id)
    try:
        yield run_id
    finally:
        reap(run_id)
        if warden.poll() is not None:
            print("note: the process that cleans up after a killed run had died", file=sys.stderr)
        if warden.stdin is not None:
            warden.stdin.close()
        warden.wait()


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
