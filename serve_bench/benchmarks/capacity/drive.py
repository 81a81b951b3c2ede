"""What `serve-bench capacity` does with its flags: plan, search, report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.capacity.launch import Searches
from serve_bench.benchmarks.capacity.bench import (
    CapacityClusters,
    UrlCapacities,
    expected_s,
    search_s,
)
from serve_bench.benchmarks.capacity.command import CapacityOptions
from serve_bench.benchmarks.ladder.flags import load_of, services_of, traffic_of
from serve_bench.benchmarks.own_app.command import OF_OWN_APPS
from serve_bench.benchmarks.own_app.flags import own_suite
from serve_bench.cli import print_note
from serve_bench.cli.flag_values import seconds_of
from serve_bench.cli.gate import close_gate, read_share
from serve_bench.cli.rows import overrides, suite_of
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, launch_lines, print_plan, request_of, sit
from serve_bench.core.axes import axis_named
from serve_bench.core.capacity import BUDGET_S, LAUNCHES, MOST_LAUNCHES, CapacitySearch, closed_row
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_DURATION_S, MAX_RATE, Streaming
from serve_bench.core.own_app import Option, option_values
from serve_bench.core.plan import LaunchPlan, Suite, duration_text, label_of, plan, rows_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import PlannedTrial, Result, Traffic, trial_key
from serve_bench.core.schema import plain
from serve_bench.core.slo import Slo, check_limits, parse_slo, read_slo
from serve_bench.observing.inside import Inside
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.load_source import LocalLoads
from serve_bench.runner.runner import Plan
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.serving.strays import marks
from serve_bench.view.rows import front_of

QUICK_LAUNCH_S: Final = 60.0
QUICK_PRECISION: Final = 0.1

LEAST_LAUNCH_S: Final = 10.0
"""Of a search: a few probes of three seconds."""

#: Flags that go with --url: nothing is launched.
WITH_URL: Final = frozenset(
    """url method header body slo protocol events event_timeout arrivals start connections launches
    launch_time precision budget quick need out no_sample strict_host dry_run live
    format""".split()
)


TIMEOUT_S: Final = 30.0
"""Of a request to a running service."""


@dataclass(frozen=True)
class UrlSuite:
    """Services that run already, and the search for each."""

    urls: Mapping[str, str]
    capacity: CapacitySearch
    timeout_s: float
    name: str = "capacity"
    streaming: Streaming | None = None


def run(options: CapacityOptions) -> int:
    """Measures, prints the report, and returns the exit code. Raises BadInput before it begins."""
    report = options.report_request()
    if options.url:
        return _urls(options)
    suite, earlier = request_of(
        options, from_flags=lambda: _suite(options), from_record=Suite.from_json, content=_content
    )
    if suite.capacity is None:
        raise BadInput("the stored suite cannot be resumed: suite.capacity is missing")
    if earlier is not None:
        budget_s = _budget_s(options, len(suite.cells) * len(suite.variants))
        suite = replace(suite, capacity=replace(suite.capacity, budget_s=budget_s))
    searches = _searches(suite, earlier)
    launches = _left(suite, searches, earlier)
    if options.dry_run:
        return print_plan(_plan_lines(suite, launches), None if earlier else options.out)

    def work(place: Place) -> Plan[Any, Any]:
        assert isinstance(place.source, LocalLoads)
        inside = Inside(
            place.folder,
            marks(place.run_id),
            sample=not options.no_sample,
            metrics=options.serve_metrics,
        )
        agenda = Agenda(suite, launches)
        return CapacityClusters(
            agenda, place.run_id, place.folder, inside=inside, searches=searches
        ).plan()

    for variant in suite.variants:
        check_interpreter(variant)
    for line in _short_budget(searches.asked, _round_s(suite, launches), "launches"):
        print_note(f"serve-bench: {line}")
    sitting = Sitting(
        suite.to_json(),
        [at for one in plan(suite) for _, trials in one.cells for at in trials],
        work,
        earlier,
        left=bool(launches),
        rounds=None if earlier is None else suite.launches,
        again="capacity",
    )

    return sit(sitting, options, partial(_show, report))


def _show(report: ReportRequest, result: Result, folder: Path) -> int:
    report.show(looked := report.report(result, folder))
    return close_gate(looked.view.faults)


# From flags to a suite.


def _slo(options: CapacityOptions) -> Slo:
    if options.slo is None:
        raise BadInput("--slo: say what has to hold, such as --slo p99=50ms,errors=0.1%")
    return read_slo(options.slo, metrics=options.slo_metrics())


def _asked(options: CapacityOptions, slo: Slo) -> CapacitySearch:
    launches = options.launches or LAUNCHES
    quick = options.quick and "--precision" not in options.changed()
    search = CapacitySearch(
        slo.source,
        arrivals="poisson" if options.arrivals == "poisson" else "constant",
        precision=QUICK_PRECISION if quick else read_share(options.precision, "--precision"),
        launches=launches,
        most_launches=1 if launches == 1 else MOST_LAUNCHES,
        budget_s=_budget_s(options, 1),
        start=options.start,
        need=None if options.need is None else _rate(options.need, "--need"),
        connections=options.connections,
    )
    if options.launch_time is not None:
        seconds = seconds_of(options.launch_time, "--launch-time")
        if not LEAST_LAUNCH_S <= seconds <= MAX_DURATION_S:
            raise BadInput(f"--launch-time: must be {LEAST_LAUNCH_S:g}s or more")
        return replace(search, launch_s=seconds)
    return replace(search, launch_s=QUICK_LAUNCH_S) if options.quick else search


def _budget_s(options: CapacityOptions, cells: int) -> float:
    """The budget of the flag, else BUDGET_S for each cell and variant, or service."""
    return cells * BUDGET_S if options.budget is None else seconds_of(options.budget, "--budget")


def _rate(text: str, flag: str) -> float:
    number = text.strip().removesuffix("/s").strip()
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= MAX_RATE:
        raise BadInput(f"{flag}: {text!r} is not allowed; it takes a rate such as 2000/s")
    return rate


def _suite(options: CapacityOptions) -> Suite:
    slo = _slo(options)
    asked = _asked(options, slo)
    if options.target is None:
        raise BadInput("TARGET: name an app (module:app, path/file.py:app), a suite, or --url")
    flags = overrides(options)
    named = re.fullmatch(r"\w+", options.target) is not None
    suite = None if named else own_suite(options.target, options, flags)
    if suite is None:
        wrong = [name for name in OF_OWN_APPS if name != "option" and getattr(options, name)]
        if wrong:
            flag = wrong[0].replace("_", "-")
            raise BadInput(f"--{flag}: {options.target} measures an app that comes with the tool")
        flags = replace(flags, matrix=_matrix(options.option or ()))
        try:
            suite = suite_of(options.target, flags)
        except BadInput as error:
            raise BadInput(str(error).replace("--suite:", "TARGET:")) from None
    suite = _scaled(suite, options)
    if suite.places is not None:
        raise BadInput(f"TARGET: {options.target} has rows of its own, and no load that grows")
    check_limits(slo, suite.timeout_s)
    traffic = rows_of(suite)[0].traffic
    asked = replace(asked, budget_s=_budget_s(options, len(suite.cells) * len(suite.variants)))
    return replace(
        suite,
        rows=(closed_row(asked.connections, traffic),),
        ladder=None,
        requests_per_client=None,
        requests=None,
        launches=asked.most_launches,
        slo=None,
        capacity=asked,
    )


def _scaled(suite: Suite, options: CapacityOptions) -> Suite:
    """The suite with its replicas as --replicas has them. Raises BadInput."""
    app = suite.app.own
    if options.replicas is None or (app is not None and options.replicas == "auto"):
        return suite
    fixed = {} if app is None else app.fixed_replicas()
    if app is None or not fixed:
        raise BadInput(f"--replicas: {options.target} has no deployment that Serve scales")
    cells = tuple({**fixed, **cell} for cell in suite.cells)
    app.check_room(cells, "--replicas")
    return replace(suite, cells=cells)


def _content(suite: Suite, earlier: Result) -> dict[str, Any]:
    """What is held against the suite of a stored run, to go on with it: all but the budget."""
    content = suite.to_json()
    stored = earlier.run.suite.get("capacity") or {}
    return {**content, "capacity": {**content["capacity"], "budget_s": stored.get("budget_s")}}


def _matrix(listed: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """`num_replicas=1,2` of an app that comes with the tool. Raises BadInput."""
    matrix: dict[str, tuple[Any, ...]] = {}
    for text in listed:
        name, equals, values = text.partition("=")
        if not equals:
            raise BadInput(f"--option: {text!r} is not allowed; it takes axis=values, with commas")
        axis = axis_named(name.strip(), "--option")
        if axis.scope != "deploy":
            raise BadInput(f"--option: {axis.name} is no option of a deployment")
        matrix[axis.name] = tuple(
            axis.kind.read(_number(one.strip()), f"--option: {axis.name}")
            for one in values.split(",")
        )
    return matrix


def _number(text: str) -> Option:
    return option_values(text)[0]


# The launches that are left, and the plan of a dry run.


def _searches(suite: Suite, earlier: Result | None) -> Searches:
    assert suite.capacity is not None
    traffic, front = suite.rows[0].traffic, front_of(suite.to_json())
    return Searches(suite.capacity, parse_slo(suite.capacity.slo), traffic, front, earlier)


def _left(suite: Suite, searches: Searches, earlier: Result | None) -> tuple[LaunchPlan, ...]:
    """The launches of the plan whose cells are not searched to their end; none where that is
    enough, and nothing failed."""
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


def _plan_lines(suite: Suite, launches: Sequence[LaunchPlan]) -> Iterator[str]:
    asked = suite.capacity
    assert asked is not None
    yield f"SLO: {parse_slo(asked.slo).text}"
    text = f"closed loop of {asked.connections} connections, then open-loop probes"
    for launch in launches:
        if launch.round > max(asked.launches, launches[0].round):
            break
        cells = ((label_of(cell), [text]) for cell, _ in launch.cells)
        yield from launch_lines(launch.variant.name, launch.round, cells, launch.variant.env)
    if asked.most_launches > asked.launches:
        yield f"further launches until the interval is at most {100 * asked.precision:g} % wide"
    least = duration_text(expected_s(asked, launches))
    yield f"{asked.launch_s:g} s of probes a cell and launch; about {least}{_most(asked)}"
    yield from _short_budget(asked, _round_s(suite, launches), "launches")


def _urls(options: CapacityOptions) -> int:
    report = options.report_request()
    options.check_url(WITH_URL)
    traffic = traffic_of(options)
    slo = _slo(options)
    asked = _asked(options, slo)
    services = services_of(options.url or (), options.header or (), users=False)
    asked = replace(asked, budget_s=_budget_s(options, len(services)))
    urls = {one.name: one.request.url for one in services}
    loads = {service.name: load_of(options, service.request, TIMEOUT_S) for service in services}
    suite = UrlSuite(urls, asked, TIMEOUT_S, streaming=loads[services[0].name].streaming)
    check_limits(slo, suite.timeout_s)
    searches = Searches(asked, slo, traffic)
    if options.dry_run:
        return print_plan(_url_lines(suite, slo), options.out)

    for line in _short_budget(asked, len(services) * search_s(asked), "searches"):
        print_note(f"serve-bench: {line}")

    def work(place: Place) -> Plan[Any, Any]:
        assert isinstance(place.source, LocalLoads)
        sample = not options.no_sample
        return UrlCapacities(
            loads, searches, place.folder, place.run_id, sample, place.source
        ).plan()

    sitting = Sitting(
        plain(suite),
        [
            _first(name, round_, asked, traffic)
            for round_ in range(1, asked.most_launches + 1)
            for name in urls
        ],
        work,
        set_env=None,
    )

    return sit(sitting, options, partial(_show, report))


def _first(service: str, round_: int, asked: CapacitySearch, traffic: Traffic) -> PlannedTrial:
    row = closed_row(asked.connections, traffic)
    return PlannedTrial(trial_key(service, round_, {}, row.label), round_, service, {}, row)


def _url_lines(suite: UrlSuite, slo: Slo) -> Iterator[str]:
    asked = suite.capacity
    yield f"SLO: {slo.text}"
    for name, url in suite.urls.items():
        yield f"{name}: {hide_in_text(url)}"
    searches = asked.launches * len(suite.urls)
    least = duration_text(searches * search_s(asked))
    yield f"{searches} searches, {asked.launch_s:g} s of probes each; about {least}{_most(asked)}"
    yield from _short_budget(asked, len(suite.urls) * search_s(asked), "searches")


def _round_s(suite: Suite, launches: Sequence[LaunchPlan]) -> float:
    assert suite.capacity is not None
    first = [launch for launch in launches if launch.round == launches[0].round]
    return expected_s(replace(suite.capacity, launches=1), first)


def _short_budget(asked: CapacitySearch, round_s: float, launches: str) -> Iterator[str]:
    if asked.budget_s is None or not round_s:
        return
    rounds = max(1, int(asked.budget_s // round_s))
    if rounds < asked.launches:
        lacks = f"no interval over {launches}" if rounds == 1 else "a wide interval"
        budget = duration_text(asked.budget_s)
        yield f"a budget of {budget} is for about {rounds} of {asked.launches} {launches}: {lacks}"


def _most(asked: CapacitySearch) -> str:
    return "" if asked.budget_s is None else f"; budget {duration_text(asked.budget_s)}"
