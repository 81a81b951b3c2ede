"""What `serve-bench versus` does once its flags are understood: plan, run, report, gate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from serve_bench.benchmarks.versus.bench import PairPlan
from serve_bench.benchmarks.versus.duet import halves
from serve_bench.benchmarks.versus.measure import chosen_of
from serve_bench.benchmarks.versus.request import (
    RoundPlan,
    VersusSuite,
    duration,
    expected_s,
    misleading,
    versus_plan,
)
from serve_bench.benchmarks.versus.slicing import turns_words
from serve_bench.cli.progress import make_observer
from serve_bench.cli.say import say
from serve_bench.cli.sitting import (
    FAILED,
    INTERRUPTED,
    again_of,
    check_same,
    must_name,
    next_launch,
    run_folder,
    run_mark,
    signals,
    tell_ignored,
    whole_suite,
    work_off,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.kept import kept_setting, kept_text, kept_value
from serve_bench.core.result import Result
from serve_bench.runner.runner import Runner
from serve_bench.runner.url import Service
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.store import read

if TYPE_CHECKING:
    from serve_bench.cli.options import Gate

COMMAND: Final = "versus"

OVERRUN: Final = 1.1
"""A budget is planned with, not enforced: beyond so many times of it that is said."""


def resumed(
    folder: Path, asked: Sequence[str], anew: Callable[[], VersusSuite]
) -> tuple[VersusSuite, Result]:
    """The plan of a stored run, and what is measured of it. `asked`: flags of a plan that were
    given; `anew`: the plan that they ask for, where the record names what we would run. Raises
    BadInput."""
    earlier = read(folder)
    if earlier.run.command != COMMAND:
        raise BadInput(f"--resume: {folder} holds a run of {earlier.run.command}")
    if must_name(folder, earlier, asked):
        suite = anew()
        check_same(folder, earlier, {**suite.to_json(), **_judged(earlier)})
        return suite, earlier
    with whole_suite():
        suite = VersusSuite.from_json(earlier.run.suite)
    if suite.urls is not None:
        raise BadInput(
            f"--resume: {folder} holds a run of --url, whose headers are not kept: start a new one"
        )
    if suite.cores_each is not None and suite.cores_each != len(halves()[0]):
        raise BadInput(f"--resume: {folder} is a duet of {suite.cores_each} cores a side")
    for side in suite.sides:
        check_interpreter(side.variant)
    return suite, earlier


def _check_load(suite: VersusSuite, earlier: Result) -> None:
    """BadInput where what is measured would be loaded otherwise than its row says."""
    every = [one for plan in versus_plan(suite) for one in plan.pairings]
    for place, how in chosen_of(every, earlier.trials).items():
        if how.connections != how.asked_connections:
            raise BadInput(
                f"--resume: {place} of this run was loaded with {how.connections} connections, as "
                "version 0.1 did: start a new one"
            )


def _judged(earlier: Result) -> dict[str, Any]:
    """What verdicts were held against, which may be another the next time."""
    names = ("threshold", "gate", "floors", "noise")
    return {name: earlier.run.suite[name] for name in names if name in earlier.run.suite}


def run(
    suite: VersusSuite,
    out: Path | None,
    format: str,
    gate: Gate,
    *,
    services: tuple[Service, Service] | None = None,
    earlier: Result | None = None,
    dry_run: bool = False,
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    doubted = {failure.key for failure in earlier.failures} if earlier else set()
    gate.check_rounds(suite.rounds, f"--rounds {suite.rounds}")
    done = [one.key for one in earlier.trials if one.key not in doubted] if earlier else []
    rounds = versus_plan(suite, done)
    if earlier is not None and rounds:
        _check_load(suite, earlier)
    if dry_run:
        print_plan(suite, rounds)
        return 0
    for line in suite.gave_up:
        print(f"note: to fit into {duration(suite.budget_s or 0.0)}: {line}", file=sys.stderr)
    for line in misleading(suite):
        print(f"note: {line}", file=sys.stderr)
    if services is not None:
        print(
            "note: rounds of services that are up already are repetitions alone: how far one "
            "launch differs from the next is not in the interval",
            file=sys.stderr,
        )
    began_s = time.monotonic()
    with signals():  # to the end: a second Ctrl-C must not take the report away
        folder, failed, interrupted = _measure(suite, rounds, out, services, earlier)
        took_s = time.monotonic() - began_s
        if suite.budget_s is not None and took_s > OVERRUN * suite.budget_s:
            print(
                f"note: it took {duration(took_s)} of a budget of {duration(suite.budget_s)}: "
                "launches or loads took longer here than the plan reckons",
                file=sys.stderr,
            )
        result = read(folder)
        code = _show(result, folder, format, gate)
    again = again_of(COMMAND, folder, result)
    kept = "what was measured is kept and shown; a run of --url cannot be gone on with"
    how = f"go on with: {again}" if services is None else kept
    if interrupted:
        print(f"interrupted; {how}", file=sys.stderr)
        return INTERRUPTED
    if failed or result.missing:
        print(f"incomplete; {how}", file=sys.stderr)
        return code or FAILED  # a broken gate is the verdict, whatever else failed
    return code


def _show(result: Result, folder: Path, format: str, gate: Gate) -> int:
    """Prints the report, and what breaks the gate: of one and the same comparison. Returns the exit
    code of the gate."""
    from serve_bench.analysis.comparing import of_versus
    from serve_bench.cli.show import render_comparing
    from serve_bench.report.terminal import terminal

    for warning in result.warnings:
        print(f"warning: {warning.message}", file=sys.stderr)
    comparing = of_versus(result, gate.threshold, gate.metrics, gate.noise)
    width, color = terminal(sys.stdout) if format == "table" else (80, False)
    print(render_comparing(comparing, format, (str(folder),), width, color), end="", flush=True)
    return gate.close(comparing)


def _measure(
    suite: VersusSuite,
    rounds: tuple[RoundPlan, ...],
    out: Path | None,
    services: tuple[Service, Service] | None,
    earlier: Result | None,
) -> tuple[Path, bool, bool]:
    """The run's folder, whether anything failed, and whether it was interrupted."""
    if earlier is not None and not rounds:
        assert out is not None, "a run that is gone on with has a folder"
        return out, False, False
    every = [one for plan in versus_plan(suite) for one in plan.pairings]
    planned = [one for at in every for one in at.planned]
    resumes = earlier is not None
    with (
        run_folder(COMMAND, out, planned, suite.to_json(), resumes=resumes) as folder,
        run_mark() as run_id,
    ):
        if services is None:
            tell_ignored("--a-env, --b-env set it")
        first = next_launch(folder.path)
        with make_observer() as observer:
            chosen = chosen_of(every, earlier.trials) if earlier is not None else {}
            pairs = PairPlan(suite, rounds, folder.path, run_id, services, chosen)
            runner = Runner(pairs, folder, observer, first_launch=first)
            interrupted = work_off(runner)
    return folder.path, runner.failed, interrupted


def print_plan(suite: VersusSuite, rounds: tuple[RoundPlan, ...]) -> None:
    """The plan, and about how long it takes. Starts nothing."""
    for letter, side in zip("AB", suite.sides, strict=True):
        if suite.urls is not None:
            say(f"{letter}: {side.label}, {kept_text(suite.urls[side.label])}")
            continue
        say(f"{letter}: {side.label}, app {side.app.name}")
        for flag, value in side.variant.env.items():
            say(f"    {flag}={kept_value(flag, value)}")
        if side.variant.python is not None:
            say(f"    python {side.variant.python}")
        for name, setting in side.settings.items():
            say(f"    {name}={kept_setting(name, setting)}")
    for cell in suite.cells:
        label = suite.label(cell)
        if label:
            say("cell: " + ", ".join(f"{name}={value}" for name, value in label.items()))
        for row in suite.rows:
            turns = turns_words(suite.pairing, row.loop == "open", suite.side_s, suite.slice_s)
            say(f"    {row.label} ({row.client}): {turns}")
    if not rounds:
        say("nothing is left to be measured")
        return
    for plan in rounds:
        first, second = (suite.sides[number].label for number in plan.order)
        how = "loaded" if suite.urls is not None else "launched"
        say(f"round {plan.round}: {first} is {how} first, then {second}")
    for line in misleading(suite):
        say(f"note: {line}")
    for line in suite.gave_up:
        say(f"to fit into {duration(suite.budget_s or 0.0)}: {line}")
    count = len(rounds)
    loads = f"in turn and {suite.steady_s:g} s alone"
    loads = loads if suite.pairing != "duet" else "at once, pinned"
    say(
        f"{count} round{'' if count == 1 else 's'}, {suite.side_s:g} s a side and row {loads}; "
        f"about {duration(expected_s(suite, rounds))} in all"
    )
