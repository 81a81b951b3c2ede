"""What every measuring command does around the runner: folder, marks, signals, the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer

from serve_bench.benchmarks.parts.inside import facts, profiling_costs
from serve_bench.cli.progress import make_observer
from serve_bench.cli.record import draw_profiles
from serve_bench.cli.say import say
from serve_bench.cli.show import Shown, draw_plots
from serve_bench.cli.sitting import (
    FAILED,
    again_of,
    check_same,
    code_of,
    must_name,
    next_launch,
    run_folder,
    run_mark,
    signals,
    tell_ignored,
    whole_suite,
    work_off,
)
from serve_bench.core.axes import MODEL_APPS
from serve_bench.core.errors import BadInput
from serve_bench.core.kept import kept_value
from serve_bench.core.ladder import LEAST_GAIN
from serve_bench.core.plan import Suite, label_of, plan
from serve_bench.core.result import Result, Trial
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.observing.inside import Inside
from serve_bench.observing.profiler import parse_targets, py_spy, why_not_allowed
from serve_bench.runner.agenda import Agenda, rest_of
from serve_bench.runner.load_place import FromNodes, Here, LoadOn, read_load_on
from serve_bench.runner.model_needs import with_device
from serve_bench.runner.requests_file import requests_file
from serve_bench.runner.runner import Runner
from serve_bench.runner.served import ServedPlan
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import marks
from serve_bench.store import RunFolder, check_new, read
from serve_bench.store.files import read_toml, suite_file


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


def resumed(command: str, folder: Path, asked: list[str], anew: Callable[[], Sitting]) -> Sitting:
    """The rest of a stored run of this command, by its own plan. `asked`: flags of a plan that were
    given; `anew`: the run that they ask for, where the stored one has to be named again. Raises
    BadInput."""
    earlier = read(folder)
    if earlier.run.command != command:
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
    if must_name(folder, earlier, asked):
        sitting = anew()
        load_on = None if sitting.load_on is None else asdict(sitting.load_on)
        check_same(folder, earlier, {**sitting.suite.to_json(), "load_on": load_on})
        return replace(sitting, out=folder, earlier=earlier)
    if "urls" in earlier.run.suite:
        raise BadInput(
            f"--resume: {folder} holds a run of --url, whose headers are not kept: start a new one"
        )
    told = dict(earlier.run.suite)
    load_on = told.pop("load_on", None)
    with whole_suite():
        suite = Suite.from_json(told)
        place = None if load_on is None else LoadOn(**load_on)
    return Sitting(command, suite, folder, earlier, load_on=place)


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
    """The plan, and about how long it takes. Starts nothing. Raises BadInput on a folder that the
    run would not take."""
    if sitting.earlier is None:
        check_new(sitting.out)
    suite, agenda = sitting.suite, sitting.agenda
    for launch in agenda.launches:
        say(f"launch {launch.variant.name}, round {launch.round}")
        for flag, value in launch.variant.env.items():
            say(f"    {flag}={kept_value(flag, value)}")
        for cell, trials in launch.cells:
            say("  " + ", ".join(f"{k}={v}" for k, v in label_of(cell).items()))
            if suite.ladder is not None:
                say(f"    {ladder_text(suite)}")
                continue
            for trial, profiled in agenda.of(trials):
                again = ", profiled" if profiled else ""
                say(f"    {trial.row.label} ({trial.row.client}{again})")
    count, loads = len(agenda.launches), agenda.loads()
    clusters = f"{count} cluster{'' if count == 1 else 's'}"
    again = f", {sum(loads)} of them profiled repetitions" if any(loads) else ""
    guess = "about " if suite.ladder is not None and suite.ladder.steps is None else ""
    length = f"{suite.windows} x {suite.window_s:g} s"
    if suite.requests_per_client is not None:
        length = f"{suite.requests_per_client} requests a client, {suite.max_row_s:g} s at most,"
    every = f"{len(loads)} trial{'' if len(loads) == 1 else 's'}"
    say(
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
    again = again_of(sitting.command, outcome.folder, outcome.result)
    again += f" --profile {','.join(sitting.profile)}" if sitting.profile else ""
    incomplete = outcome.failed or bool(outcome.result.missing)
    if incomplete and not outcome.interrupted and not outcome.result.trials:
        print("nothing was measured: mend what failed, and start anew", file=sys.stderr)
        return FAILED
    return code_of(again, interrupted=outcome.interrupted, incomplete=incomplete)


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
    planned = [at for one in plan(sitting.suite) for _, trials in one.cells for at in trials]
    told = sitting.suite.to_json()
    if sitting.load_on is not None:
        told |= {"load_on": asdict(sitting.load_on)}
    resumes = sitting.earlier is not None
    with (
        run_folder(sitting.command, sitting.out, planned, told, resumes=resumes) as folder,
        requests_file(log_requests) as requests,
        run_mark() as run_id,
    ):
        tell_ignored()
        with make_observer() as observer:
            served = ServedPlan(
                sitting.agenda,
                run_id,
                folder.path,
                host=host,
                port=port,
                after_cell=after_cell,
                inside=_inside(sitting, folder, run_id),
                place=place_of(sitting.load_on, folder.path, run_id),
            )
            first = next_launch(folder.path)
            runner = Runner(served, folder, observer, first_launch=first, requests=requests)
            interrupted = work_off(runner)
    return Outcome(folder.path, read(folder.path), runner.failed, interrupted)


def place_of(asked: LoadOn | None, folder: Path, run_id: str) -> Here | FromNodes:
    """Where the load of a run comes from; what Ray says goes to a log in its folder."""
    return Here() if asked is None else FromNodes(asked, run_id, folder / "logs" / "nodes.log")
