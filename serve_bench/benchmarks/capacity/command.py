"""`serve-bench capacity TARGET`: the highest arrival rate at which an SLO is met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.capacity.launch import Searches
from serve_bench.benchmarks.capacity.bench import CapacityClusters, expected_s
from serve_bench.benchmarks.capacity.options import CapacityOptions
from serve_bench.cli import print_note
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.sitting import list_launches
from serve_bench.cli.targets import target_suite
from serve_bench.core.capacity import BUDGET_S, MOST_LAUNCHES, CapacitySearch, closed_row
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import LaunchPlan, Suite, duration_text, label_of, plan, rows_of
from serve_bench.core.result import Result
from serve_bench.core.schema import built
from serve_bench.core.slo import check_limits, parse_slo
from serve_bench.core.spec import take_fields
from serve_bench.core.suite_facts import SuiteFacts
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.view.lens import View

QUICK_LAUNCH_S: Final = 60.0
QUICK_PRECISION: Final = 0.1


class CapacityExperiment(SuiteExperiment[CapacityOptions]):
    """A search for the highest rate on each launch, whose probes follow from one another."""

    part = "capacity"

    def suite(self) -> Suite:
        options = self.options
        if options.slo is None:
            raise BadInput("--slo: say what has to hold, such as --slo p99=50ms,errors=0.1%")
        parse_slo(options.slo)  # refused before an app is imported
        suite = _fix_replicas(target_suite(options), options)
        assert suite.slo is not None, "it is that of the flag"
        asked = _read_search(options, suite.slo)
        if suite.places is not None:
            raise BadInput(f"TARGET: {options.target} has rows of its own, and no load that grows")
        check_limits(parse_slo(suite.slo), suite.timeout_s)
        return replace(
            suite,
            rows=(closed_row(asked.connections, rows_of(suite)[0].traffic),),
            ladder=None,
            requests_per_client=None,
            requests=None,
            launches=asked.most_launches,
            slo=None,
            capacity=asked,
        )

    def prepare(self, asked: Suite, earlier: Result | None) -> Suite:
        """Set the budget of the command line, in a resumed run too."""
        if asked.capacity is not None:
            usual_s = len(asked.cells) * len(asked.variants) * BUDGET_S
            budget_s = self.options.budget_s or usual_s
            asked = replace(asked, capacity=replace(asked.capacity, budget_s=budget_s))
        return super().prepare(asked, earlier)

    def content(self, asked: Suite, earlier: Result) -> Mapping[str, Any]:
        """Return all but the budget, which a resumed run may change."""
        content = asked.to_json()
        stored = earlier.run.suite.get("capacity") or {}
        return {**content, "capacity": {**content["capacity"], "budget_s": stored.get("budget_s")}}

    def clusters(self, **fields: Any) -> ServedClusters:
        return CapacityClusters(**fields, searches=self.searches)

    def plan_agenda(self, suite: Suite, earlier: Result | None) -> Agenda:
        searches = find_searches(suite, earlier)
        self.searches = searches
        return Agenda(suite, launches_left(suite, searches, earlier))

    def plan_lines(self) -> Iterator[str]:
        return plan_lines(self.asked, self.agenda.launches)

    def begin(self) -> None:
        for line in _short_budget(self.asked, self.agenda.launches):
            print_note(f"serve-bench: {line}")

    def breaches(self, view: View) -> Sequence[str]:
        return view.faults


def _search_in(suite: Suite) -> CapacitySearch:
    assert suite.capacity is not None, "it has been checked"
    return suite.capacity


def _read_search(options: CapacityOptions, slo: str) -> CapacitySearch:
    quick = {"precision": QUICK_PRECISION, "launch_s": QUICK_LAUNCH_S} if options.quick else {}
    known = {**quick, **take_fields(CapacitySearch, options), "slo": slo}
    return CapacitySearch(**known, most_launches=1 if options.launches == 1 else MOST_LAUNCHES)


def _fix_replicas(suite: Suite, options: CapacityOptions) -> Suite:
    """Return the suite with the number of replicas of --replicas. Raises BadInput."""
    app = suite.app.own_app
    if options.replicas is None or (app is not None and options.replicas == "auto"):
        return suite
    fixed = {} if app is None else app.fixed_replicas()
    if app is None or not fixed:
        raise BadInput(f"--replicas: {options.target} has no deployment that Serve scales")
    cells = tuple({**fixed, **cell} for cell in suite.cells)
    app.check_room(cells, "--replicas")
    return replace(suite, cells=cells)


# The launches that are left, and the plan of a dry run.


def find_searches(suite: Suite, earlier: Result | None) -> Searches:
    """Return the searches of a run, with what an earlier sitting knows."""
    asked = _search_in(suite)
    traffic, front = suite.rows[0].traffic, built(SuiteFacts, suite.to_json(), "suite").front
    return Searches(asked, parse_slo(asked.slo), traffic, front, earlier)


def launches_left(
    suite: Suite, searches: Searches, earlier: Result | None
) -> tuple[LaunchPlan, ...]:
    """Return the launches with open searches; none where a run without failures has settled."""
    stop = None if earlier is None or earlier.failures else earlier.stop
    if stop is not None and stop.why == "settled":
        return ()
    launches = []
    for launch in plan(suite):
        cells = tuple(
            (cell, rows)
            for cell, rows in launch.cells
            if not searches.finished(launch.variant.name, launch.round, label_of(cell))
        )
        if cells:
            launches.append(replace(launch, cells=cells))
    return tuple(launches)


def plan_lines(suite: Suite, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    """Describe the launches that are made in any case, and what a budget does not buy."""
    asked = _search_in(suite)
    yield f"SLO: {parse_slo(asked.slo).text}"
    text = f"closed loop of {asked.connections} connections, then open-loop probes"
    last = max(asked.launches, launches[0].round) if launches else 0
    first = [launch for launch in launches if launch.round <= last]
    yield from list_launches(first, lambda _: [text])
    if asked.most_launches > asked.launches:
        yield f"further launches until the interval is at most {100 * asked.precision:g} % wide"
    least = duration_text(expected_s(suite, asked, launches))
    most = "" if asked.budget_s is None else f"; budget {duration_text(asked.budget_s)}"
    yield f"{asked.launch_s:g} s of probes a cell and launch; about {least}{most}"
    yield from _short_budget(suite, launches)


def _short_budget(suite: Suite, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    """Say for how many launches the budget is, where these are fewer than asked for."""
    asked = _search_in(suite)
    first = [launch for launch in launches if launch.round == launches[0].round]
    round_s = expected_s(suite, replace(asked, launches=1), first)
    if asked.budget_s is None or not round_s:
        return
    rounds = max(1, int(asked.budget_s // round_s))
    if rounds < asked.launches:
        what = "searches" if suite.services else "launches"
        lacks = f"no interval over {what}" if rounds == 1 else "a wide interval"
        budget = duration_text(asked.budget_s)
        yield f"a budget of {budget} is for about {rounds} of {asked.launches} {what}: {lacks}"
