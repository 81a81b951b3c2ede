"""What `serve-bench flags` does once its flags are understood: plan, measure, report."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.factorial import design, rounds_for, sees
from serve_bench.benchmarks.flags.command import FlagsOptions
from serve_bench.benchmarks.flags.facts import factorial_of
from serve_bench.benchmarks.flags.request import (
    LETTERS,
    FlagsSuite,
    label,
)
from serve_bench.benchmarks.versus.drive import content as versus_content
from serve_bench.benchmarks.versus.drive import sitting_of
from serve_bench.benchmarks.versus.flags import alike, rounds_in_all, whole_rounds
from serve_bench.benchmarks.versus.request import (
    QUICK_STEADY_S,
    RoundPlan,
    Side,
    expected_s,
    versus_plan,
)
from serve_bench.benchmarks.versus.summary import percent
from serve_bench.cli.flag_values import plain_lines, seconds_of
from serve_bench.cli.sitting import done, print_plan, request_of, sit
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.redaction import kept_value
from serve_bench.core.result import Result
from serve_bench.core.variants import parse_env
from serve_bench.report import COMPARED
from serve_bench.serving.launch_spec import check_interpreter

SIDE_S: Final = 8.0
"""Of a side in a round: launches differ more than what more seconds would lessen."""

SPREADS: Final = (0.01, 0.03)
"""Of a round's log ratio, for which a plan says what it sees."""


def run(options: FlagsOptions) -> int:
    """Measures, prints the report, and returns the exit code. Raises BadInput before it begins."""
    from serve_bench.cli.show import ReportRequest, check_format

    check_format(options.format, COMPARED)
    report = ReportRequest(options.format)
    suite, earlier = request_of(
        options,
        from_flags=lambda: _from_flags(options),
        from_record=FlagsSuite.from_json,
        content=_content,
    )
    if earlier is not None:
        check_interpreter(suite.versus.sides[0].variant)
        planned = len(suite.factorial.design)
        rounds = rounds_in_all(options.rounds, earlier, planned)
        suite = replace(suite, versus=replace(suite.versus, rounds=rounds))
    every = _plan(suite)
    left = _plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(_plan_lines(suite, left), options.out)
    for line in _notes(suite):
        print(f"note: {line}", file=sys.stderr)
    sitting = sitting_of(
        suite.versus,
        left,
        options.resume or options.out,
        earlier,
        budget_s=suite.versus.budget_s if earlier is None else None,
        plan=every,
        command="flags",
        content=suite.to_json(),
    )

    return sit(
        replace(sitting, set_env="--env tells what it does", plain=plain_lines(options.live)),
        report.close,
    )


def _content(suite: FlagsSuite, earlier: Result) -> dict[str, Any]:
    """What is held against the suite of a stored run, to go on with it."""
    free = versus_content(suite.versus, earlier)
    stored = earlier.run.suite.get("factorial")
    drawn = FlagsSuite.from_json(earlier.run.suite).factorial.design if stored else ()
    whole = replace(suite, factorial=replace(suite.factorial, design=drawn)).to_json()
    return {**free, "factorial": whole["factorial"]}


def _from_flags(options: FlagsOptions) -> FlagsSuite:
    """The suite of the flags. Raises BadInput."""
    asked = None if options.resume is not None else whole_rounds(options.rounds)
    common = alike(options, "3", options.side, option=options.option, python=options.python)
    if common.pairing != "slices":
        raise BadInput("--pairing: flags takes slices in turn")
    on = common.sides[0]
    print("reading what Serve makes of the flags", file=sys.stderr, flush=True)
    factorial = factorial_of(
        on.variant, parse_env(options.env or (), "--env"), not options.no_pairs, options.seed
    )
    terms, _ = factorial.terms
    rounds = asked or rounds_for(terms)
    if rounds <= len(terms):
        raise BadInput(
            f"--rounds: {rounds} is not allowed; {len(terms)} effects take "
            f"{len(terms) + 1} or more{'' if options.no_pairs else ', or --no-pairs'}"
        )
    rounds_of = design(factorial.points, terms, rounds, options.seed)
    off = replace(on, variant=replace(on.variant, name="none", env={}))
    versus = replace(
        common,
        sides=(replace(off, label="none"), replace(on, label=label("1" * len(factorial.factors)))),
        rounds=rounds,
        looks=False,
        side_s=common.side_s if options.quick else SIDE_S,
        steady_s=QUICK_STEADY_S,
        budget_s=None if options.budget is None else seconds_of(options.budget, "--budget"),
    )
    suite = FlagsSuite(versus, replace(factorial, design=rounds_of))
    ends = suite.side(factorial.points[0]), suite.side(factorial.points[-1])
    return replace(suite, versus=replace(versus, sides=ends))


def _plan(suite: FlagsSuite, finished: list[str] | None = None) -> tuple[RoundPlan, ...]:
    rounds = suite.rounds

    def sides(number: int) -> tuple[Side, Side]:
        first, second = rounds[number - 1]
        return suite.side(first), suite.side(second)

    return versus_plan(suite.versus, finished or (), sides)


def _notes(suite: FlagsSuite) -> Iterator[str]:
    """What is known of the plan before it begins."""
    untold = suite.factorial.terms[1]
    for term in untold:
        name = suite.factorial.name(term)
        yield f"{name} cannot be measured: of the two, one never goes without the other"
    terms = suite.factorial.terms[0]
    for sd in SPREADS:
        effect = sees(suite.rounds, terms, sd)
        if effect is not None:
            yield (
                f"where rounds differ by {percent(sd)}, a flag that makes "
                f"{percent(math.expm1(effect))} is named in 8 of 10 runs"
            )


def _plan_lines(suite: FlagsSuite, left: tuple[RoundPlan, ...]) -> Iterator[str]:
    """The plan of a dry run, and about how long it takes."""
    side = suite.versus.sides[0]
    yield f"app {side.app.name}"
    for letter, factor in zip(LETTERS, suite.factorial.factors, strict=False):
        pairs = (f"{name}={kept_value(name, value)}" for name, value in factor.env.items())
        yield f"{letter}: {' '.join(pairs)}"
    for row in suite.versus.rows:
        yield f"    {row.label} ({row.client})"
    for plan in left:
        first, second = (plan.sides[number].label for number in plan.order)
        yield f"round {plan.round}: {first} is launched first, then {second}"
    yield from (f"note: {line}" for line in _notes(suite))
    terms = suite.factorial.terms[0]
    single = sum(len(term) == 1 for term in terms)
    takes = duration_text(expected_s(suite.versus, left))
    yield (
        f"{single} flags and {len(terms) - single} pairs in {len(left)} rounds, "
        f"{suite.versus.side_s:g} s a side and row; about {takes} in all"
    )
