"""What `serve-bench versus` does once its flags are understood: plan, run, report, gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from serve_bench.analysis.comparing import describe_noise, of_versus
from serve_bench.analysis.ratios import FEWEST
from serve_bench.benchmarks.versus.bench import Pairs
from serve_bench.benchmarks.versus.flags import rounds_in_all
from serve_bench.benchmarks.versus.measure import chosen_of
from serve_bench.benchmarks.versus.request import RoundPlan, VersusSuite, expected_s, versus_plan
from serve_bench.benchmarks.versus.slicing import turns_words
from serve_bench.cli import print_note
from serve_bench.cli.flag_values import share_of
from serve_bench.cli.gate import Gate
from serve_bench.cli.report import judged_by
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, done, print_plan, request_of, settings_text, sit
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import client_of, duration_text
from serve_bench.core.redaction import hide_env_value, hide_in_text, hide_settings
from serve_bench.core.result import Result
from serve_bench.runner.runner import Plan
from serve_bench.runner.service import Service
from serve_bench.serving.launch_spec import check_interpreter, check_tracing
from serve_bench.view.verdict_words import stop_text

if TYPE_CHECKING:
    from serve_bench.benchmarks.versus.command import VersusOptions

#: What may be another the next time: what verdicts are held against, and how long it goes on.
FREE: Final = ("threshold", "gate", "floors", "noise", "rounds", "budget_s")


def request(
    options: VersusOptions, from_flags: Callable[[], VersusSuite]
) -> tuple[VersusSuite, Result | None]:
    """The suite of the flags, or that of the run to resume with what is measured of it. Raises
    BadInput."""
    suite, earlier = request_of(
        options, from_flags=from_flags, from_record=VersusSuite.from_json, content=content
    )
    if earlier is None:
        return suite, None
    for side in suite.sides:
        check_interpreter(side.variant)
    planned = VersusSuite.from_json(earlier.run.suite).rounds
    return replace(suite, rounds=rounds_in_all(options.rounds, earlier, planned)), earlier


def content(suite: VersusSuite, earlier: Result) -> dict[str, Any]:
    """What is held against the suite of a stored run, to go on with it: all but what is FREE."""
    free = {name: earlier.run.suite[name] for name in FREE}
    return {**suite.to_json(), **free}


def run(
    suite: VersusSuite,
    options: VersusOptions,
    gate: Gate,
    *,
    services: tuple[Service, Service] | None = None,
    earlier: Result | None = None,
) -> int:
    """Measures what is planned, prints the report, and returns the exit code."""
    gate.check_rounds(suite.rounds, f"--rounds {suite.rounds}")
    trace = _trace(suite, options.trace)
    rounds = versus_plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(plan_lines(suite, rounds))
    if earlier is not None and earlier.stop is not None and not rounds:
        print_note(f"note: nothing to measure: {stop_text(earlier.stop)}; --rounds +6 adds rounds")
    if services is not None:
        print_note(
            "note: running services are not launched: the interval excludes the spread between "
            "launches"
        )
    letters = {side.label: letter for letter, side in zip("AB", suite.sides, strict=True)}
    print_note("note: " + ", ".join(f"{letter} is {label}" for label, letter in letters.items()))
    every = [one for plan in versus_plan(suite) for one in plan.pairings]
    budget_s = suite.budget_s if earlier is None else None

    def work(place: Place) -> Plan[Any, Any]:
        chosen = chosen_of(every, earlier.trials) if earlier is not None else {}
        pairs = Pairs(suite, rounds, place.folder, place.run_id, services, chosen, budget_s, trace)
        return pairs.plan()

    sitting = Sitting(
        suite.to_json(),
        [one for at in every for one in at.planned],
        work,
        earlier,
        left=bool(rounds),
        rounds=None if earlier is None else suite.rounds,
        again=None if services is not None else "versus",
        set_env=None if services is not None else "--a-env, --b-env set it",
        letters=letters,
    )

    def show(result: Result, folder: Path) -> int:
        return _show(result, folder, options.format, gate)

    return sit(sitting, options, show)


def _trace(suite: VersusSuite, text: str | None) -> float | None:
    share = share_of(text)
    if share is not None:
        if not any(client_of(row) == "raw" for row in suite.rows):
            raise BadInput("--trace: is for rows of the raw client (--clients raw:8)")
        for side in suite.sides:
            check_tracing(side.variant)
    return share


def _show(result: Result, folder: Path, format: str, gate: Gate) -> int:
    """Prints the report, and what breaks the gate: of one and the same comparison. Returns the exit
    code of the gate."""
    request, judged = ReportRequest(format), judged_by(result, gate)
    for text in describe_noise(result, gate.noise):
        print_note(f"warning: {text}")
    request.show(request.report(judged, folder))
    return gate.close(of_versus(judged))


def plan_lines(suite: VersusSuite, rounds: tuple[RoundPlan, ...]) -> Iterator[str]:
    """The plan of a dry run, and about how long it takes."""
    for letter, side in zip("AB", suite.sides, strict=True):
        if suite.urls is not None:
            yield f"{letter}: {side.label}, {hide_in_text(suite.urls[side.label])}"
            continue
        yield f"{letter}: {side.label}, app {side.app.name}"
        for flag, value in side.variant.env.items():
            yield f"    {flag}={hide_env_value(flag, value)}"
        if side.variant.python is not None:
            yield f"    python {side.variant.python}"
        for name, setting in side.settings.items():
            yield f"    {name}={hide_settings(setting)}"
    for cell in suite.cells:
        label = suite.label(cell)
        if label:
            yield f"cell: {settings_text(label)}"
        for row in suite.rows:
            turns = turns_words(row.loop == "open", suite.side_s, suite.slice_s)
            yield f"    {row.label} ({row.client}): {turns}"
    if not rounds:
        yield "nothing is left to be measured"
        return
    for plan in rounds:
        first, second = (suite.sides[number].label for number in plan.order)
        how = "loaded" if suite.urls is not None else "launched"
        yield f"round {plan.round}: {first} is {how} first, then {second}"
    count = len(rounds)
    loads = f"in turn and {suite.steady_s:g} s alone"
    most = duration_text(expected_s(suite, rounds))
    number, takes = f"{count} round{'' if count == 1 else 's'}", f"about {most} in all"
    fewest = max(1, FEWEST - rounds[0].round + 1)
    if suite.looks and count > fewest:
        number = f"{fewest} to {count} rounds, until the verdict is final"
        takes = f"about {duration_text(expected_s(suite, rounds[:fewest]))} to {most}"
    limit = "" if suite.budget_s is None else f"; budget {duration_text(suite.budget_s)}"
    yield f"{number}, {suite.side_s:g} s a side and row {loads}; {takes}{limit}"
