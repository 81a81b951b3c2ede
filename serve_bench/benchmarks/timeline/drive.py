"""What `serve-bench timeline` does with its flags: plan, measure, report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from serve_bench.benchmarks.own_app.flags import own_suite
from serve_bench.benchmarks.timeline.bench import LOOK_S, TimelineClusters, UrlTimeline
from serve_bench.benchmarks.timeline.command import TimelineOptions
from serve_bench.cli import print_note
from serve_bench.cli.flag_values import content_of, header_of, statuses_of
from serve_bench.cli.gate import close_gate
from serve_bench.cli.rows import add_flags
from serve_bench.cli.show import ReportRequest
from serve_bench.cli.sitting import Place, Sitting, done, launch_lines, print_plan, request_of, sit
from serve_bench.core.axes import read_table
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import LaunchPlan, Suite, duration_text, label_of, plan, without
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import PlannedTrial, Result, Row, trial_key
from serve_bench.core.schema import plain
from serve_bench.core.slo import check_limits, parse_slo, read_slo
from serve_bench.core.timeline import (
    ERRORS_ALONE,
    NODE,
    Timeline,
    TimelineTable,
    check_faults,
    timeline_of,
)
from serve_bench.observing.inside import Inside
from serve_bench.observing.processes import behind
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.load_source import LocalLoads
from serve_bench.runner.runner import Plan
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.serving.strays import marks
from serve_bench.store.files import read_toml, shipped

#: Flags that go with --url: nothing is launched.
WITH_URL: Final = frozenset(
    """url stages ramp after method header body expect_status arrivals connections launches out
    dry_run live slo fail_on strict_host format""".split()
)


@dataclass(frozen=True)
class UrlTimelineSuite:
    """A Serve that is up already, and the load on it."""

    urls: Mapping[str, str]
    timeline: Timeline
    launches: int = 1
    timeout_s: float = 30.0
    name: str = "timeline"


def run(options: TimelineOptions) -> int:
    """Measures, prints the report, and returns the exit code. Raises BadInput before it begins."""
    report = options.report_request()
    if options.url is not None:
        return _url(options, report)
    suite, earlier = request_of(
        options, from_flags=lambda: _suite(options), from_record=Suite.from_json
    )
    timeline = suite.timeline
    if timeline is None:
        raise BadInput("the stored suite cannot be resumed: suite.timeline is missing")
    # A launch for each cell: replicas that an earlier load has called for would serve the next.
    launches = tuple(
        replace(planned, cells=(cell,))
        for planned in without(plan(suite), done(earlier))
        for cell in planned.cells
    )
    if options.dry_run:
        return print_plan(_plan_lines(suite, timeline, launches), None if earlier else options.out)

    def work(place: Place) -> Plan[Any, Any]:
        assert isinstance(place.source, LocalLoads)
        inside = Inside(place.folder, marks(place.run_id), children_every_s=LOOK_S)
        return TimelineClusters(
            Agenda(suite, launches),
            place.run_id,
            place.folder,
            inside=inside,
            raylets=timeline.nodes,
            timeline=timeline,
            slo=parse_slo(timeline.slo),
        ).plan()

    for variant in suite.variants:
        check_interpreter(variant)
    sitting = Sitting(
        suite.to_json(),
        [at for one in plan(suite) for _, trials in one.cells for at in trials],
        work,
        earlier,
        left=bool(launches),
        again="timeline",
    )
    return sit(sitting, options, partial(_show, report, options.fail_on))


def _show(report: ReportRequest, fail_on: str | None, result: Result, folder: Path) -> int:
    report.show(looked := report.report(result, folder))
    return close_gate(looked.view.faults) if fail_on == "slo" else 0


# From flags to a suite.


def _timeline(options: TimelineOptions, table: Mapping[str, Any], file: str) -> Timeline:
    keys = {name: value for name, value in table.items() if name != "stages"}
    stages, where = table.get("stages"), f"{file}: timeline."
    given = {
        "after": options.after,
        "arrivals": options.arrivals,
        "connections": options.connections,
        "nodes": options.nodes,
        "faults": options.fault or None,
        "ramp": options.ramp or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if options.stages is not None:
        stages = options.stages
    if options.stages is not None or given or not table:
        where = "--"
    where_faults = "--fault" if options.fault else f"{file}: timeline.faults"
    return timeline_of(
        stages, **{**keys, **given}, slo=_slo(options), where=where, where_faults=where_faults
    )


def _slo(options: TimelineOptions) -> str:
    return ERRORS_ALONE if options.slo is None else read_slo(options.slo).source


def _suite(options: TimelineOptions) -> Suite:
    if options.target is None:
        raise BadInput("TARGET: name an app (module:app, path/file.py:app), a suite, or --url")
    target, slo = options.target, options.slo
    table: TimelineTable = {}
    if re.fullmatch(r"\w+", target):
        target = str(_shipped(target))
    if target.endswith(".toml"):
        data = read_toml(Path(target))
        table = read_table(TimelineTable, data.get("timeline", {}), f"{target}: timeline")
        slo = slo if slo is not None else data.get("slo")
        if slo is not None and not isinstance(slo, str):
            raise BadInput(f"{target}: slo: {slo!r} is not allowed; it takes text")
    timeline = _timeline(options, table, target)
    if slo is not None:
        where = "--slo" if options.slo is not None else f"{target}: slo"
        timeline = replace(timeline, slo=read_slo(slo, where).source)
    with_flags = partial(add_flags, options=options)
    suite = own_suite(target, options, with_flags, timeline=True)
    if suite is None or suite.app.own is None:
        raise BadInput(
            f"TARGET: {target} measures an app that comes with the tool; timeline takes your own, "
            "or a suite of its own"
        )
    names = [one.name for one in suite.app.own.deployments]
    check_faults(timeline.faults, names, "--fault" if options.fault else f"{target}: faults")
    where = "--slo" if options.slo else f"{target}: slo"
    check_limits(parse_slo(timeline.slo), suite.timeout_s, where)
    return replace(
        suite,
        rows=(_row(timeline),),
        windows=timeline.seconds,
        window_s=1.0,
        slo=None,
        timeline=timeline,
        launches=options.launches or suite.launches,
    )


def _shipped(name: str) -> Path:
    folder = shipped("scenarios")
    known = sorted(
        one.stem for one in folder.glob("*.toml") if "\n[timeline]" in one.read_text("utf-8")
    )
    if name not in known:
        raise BadInput(
            f"TARGET: {name!r} is no suite of timeline; it takes an app (module:app, "
            f"path/file.py:app), a suite file (.toml), or {', '.join(known)}"
        )
    return folder / f"{name}.toml"


def _row(timeline: Timeline) -> Row:
    return Row(timeline.source, "raw", timeline.connections, loop="open")


def _plan_lines(
    suite: Suite, timeline: Timeline, launches: tuple[LaunchPlan, ...]
) -> Iterator[str]:
    yield f"SLO of each second: {parse_slo(timeline.slo).text}"
    at_s = 0.0
    for stage in timeline.stages:
        yield f"{at_s:g} to {at_s + stage.duration_s:g} s: {stage.rate:g} requests/s"
        at_s += stage.duration_s
    if timeline.ramp:
        yield "the rate moves linearly from each stage to the next"
    if timeline.after_s:
        yield f"then {timeline.after_s:g} s without load"
    for fault in timeline.faults:
        yield f"fault: {fault.text}"
        if fault.target == NODE:
            yield f"    nodes: {timeline.nodes}, all on this host"
    for launch in launches:
        cells = ((label_of(cell), [timeline.source]) for cell, _ in launch.cells)
        yield from launch_lines(launch.variant.name, launch.round, cells, launch.variant.env)
    each_s = timeline.seconds + timeline.after_s + 15.0
    count = len(launches)
    yield (
        f"{count} launch{'' if count == 1 else 'es'}, each on a cluster of its own; about "
        f"{duration_text(count * each_s)} in all"
    )


def _url(options: TimelineOptions, report: ReportRequest) -> int:
    if options.fault:
        raise BadInput(
            "--fault: is done to an app and a cluster that this run starts, not to --url"
        )
    options.check_url(WITH_URL)
    timeline = _timeline(options, {}, "")
    body = b"" if options.body is None else content_of(options.body, "--body")
    url = options.url or ""
    try:
        request = Request(
            url,
            (options.method or ("POST" if body else "GET")).upper(),
            tuple(header_of(one) for one in options.header or ()),
            body,
            expect_status=statuses_of(options.expect_status),
        )
        load = Load(request)
    except SpecError as error:
        raise BadInput(f"--url: {str(error).removeprefix('url: ')}") from None
    check_limits(parse_slo(timeline.slo), load.timeout_s)
    count = options.launches or 1
    suite = UrlTimelineSuite({"url": request.url}, timeline, count)
    row = _row(timeline)
    planned = tuple(
        PlannedTrial(trial_key("url", round_, {}, row.label), round_, "url", {}, row)
        for round_ in range(1, count + 1)
    )
    if options.dry_run:
        slo = parse_slo(timeline.slo).text
        lines = [f"{timeline.source} against {request.url}, {counted(count, 'time')}"]
        lines.append(f"SLO of each second: {slo}; {timeline.seconds} s each")
        return print_plan(lines, options.out)
    if not behind(request.url):
        print_note(
            "note: no Serve of this host answers there: replicas and CPU of the server are not "
            "known"
        )

    def work(place: Place) -> Plan[Any, Any]:
        return UrlTimeline(
            load,
            planned,
            timeline,
            parse_slo(timeline.slo),
            place.folder,
            place.run_id,
            lambda: behind(request.url),
        ).plan()

    sitting = Sitting(plain(suite), planned, work, set_env=None)
    return sit(sitting, options, partial(_show, report, options.fail_on))
