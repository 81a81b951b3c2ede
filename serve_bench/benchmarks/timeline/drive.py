"""What `serve-bench timeline` says of its runs: a load over time, and the faults on its clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve_bench.benchmarks.own_app.flags import named_target, target_suite
from serve_bench.benchmarks.timeline.bench import LOOK_S, WARMUP_S, TimelineBench
from serve_bench.benchmarks.timeline.command import TimelineOptions
from serve_bench.cli import print_note
from serve_bench.cli.experiment import RowsRequest, SuiteExperiment, list_launches
from serve_bench.cli.rows import add_flags
from serve_bench.core.axes import read_table
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import Suite, duration_text
from serve_bench.core.result import Result, Row
from serve_bench.core.slo import check_limits, parse_slo, read_slo
from serve_bench.core.timeline import (
    ERRORS_ALONE,
    NODE,
    Timeline,
    TimelineTable,
    check_faults,
    timeline_of,
)
from serve_bench.observing.processes import behind
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.store.files import read_toml, shipped

if TYPE_CHECKING:
    from serve_bench.view.lens import View


class TimelineRun(SuiteExperiment[TimelineOptions]):
    """An open loop in stages on each launch; seconds out of the SLO break the gate."""

    part = "timeline"
    children_every_s = LOOK_S

    def read_suite(self) -> Suite:
        options = self.options
        target = "" if options.urls else _file(named_target(options))
        table: TimelineTable = {}
        slo, where = options.slo, "--slo"
        if target.endswith(".toml"):
            data = read_toml(Path(target))
            table = read_table(TimelineTable, data.get("timeline", {}), f"{target}: timeline")
            if slo is None:
                slo, where = data.get("slo"), f"{target}: slo"
            if slo is not None and not isinstance(slo, str):
                raise BadInput(f"{where}: {slo!r} is not allowed; it takes text")
        source = ERRORS_ALONE if slo is None else read_slo(slo, where).source
        timeline = _timeline(options, table, target, source)
        suite = target_suite(options, partial(add_flags, options=options), target, timeline=True)
        if suite.app.own is not None:
            names = [deployment.name for deployment in suite.app.own.deployments]
            place = "--fault" if options.fault else f"{target}: faults"
            check_faults(timeline.faults, names, place)
        elif not suite.services:
            raise BadInput(
                f"TARGET: {target} measures an app that comes with the tool; timeline takes your "
                "own, or a suite of its own"
            )
        check_limits(parse_slo(timeline.slo), suite.timeout_s, where)
        return replace(
            suite,
            rows=(Row(timeline.source, "raw", timeline.connections, loop="open"),),
            windows=timeline.seconds,
            window_s=1.0,
            slo=None,
            timeline=timeline,
            launches=options.launches or suite.launches,
        )

    def agenda(self, request: RowsRequest, earlier: Result | None) -> Agenda:
        """A launch for each cell: replicas that a load has called for would serve the next."""
        left = super().agenda(request, earlier).launches
        launches = [replace(launch, cells=(cell,)) for launch in left for cell in launch.cells]
        return Agenda(request.suite, tuple(launches))

    def plan_lines(self, agenda: Agenda) -> Iterator[str]:
        timeline = _timeline_in(agenda.suite)
        yield f"SLO of each second: {parse_slo(timeline.slo).text}"
        for begin_s, stage in zip(timeline.begins, timeline.stages, strict=True):
            yield f"{begin_s:g} to {begin_s + stage.duration_s:g} s: {stage.rate:g} requests/s"
        if timeline.ramp:
            yield "the rate moves linearly from each stage to the next"
        if timeline.after_s:
            yield f"then {timeline.after_s:g} s without load"
        for fault in timeline.faults:
            yield f"fault: {fault.text}"
            if fault.target == NODE:
                yield f"    nodes: {timeline.nodes}, all on this host"
        yield from list_launches(agenda.launches, lambda _: [timeline.source])
        beside_s, where = 15.0, ", each on a cluster of its own"
        if agenda.suite.services:
            beside_s, where = WARMUP_S, ""
        count = len(agenda.launches)
        about = duration_text(count * (timeline.seconds + timeline.after_s + beside_s))
        yield f"{counted(count, 'launch', 'launches')}{where}; about {about} in all"

    def check_targets(self, agenda: Agenda) -> None:
        if not all(behind(request.url) for request in agenda.suite.services.values()):
            print_note(
                "note: no Serve of this host answers there: replicas and CPU of the server are not "
                "known"
            )

    def clusters(self, request: RowsRequest) -> Callable[..., ServedClusters]:
        timeline = _timeline_in(request.suite)
        beside_s = timeline.after_s + WARMUP_S
        made = partial(ServedClusters, bench=TimelineBench, raylets=timeline.nodes)
        return partial(made, beside_s=beside_s)

    def breaches(self, view: View) -> Sequence[str]:
        return view.faults if self.options.fail_on == "slo" else ()


def _timeline_in(suite: Suite) -> Timeline:
    assert suite.timeline is not None, "it has been checked"
    return suite.timeline


def _timeline(options: TimelineOptions, table: Mapping[str, Any], file: str, slo: str) -> Timeline:
    keys = {name: value for name, value in table.items() if name != "stages"}
    stages, where = table.get("stages"), f"{file}: timeline."
    names = ("after", "arrivals", "connections", "nodes", "ramp")
    given = {name: getattr(options, name) for name in names} | {"faults": options.fault or None}
    given = {k: v for k, v in given.items() if v is not None and v is not False}
    if options.stages is not None:
        stages = options.stages
    if options.stages is not None or given or not table:
        where = "--"
    where_faults = "--fault" if options.fault else f"{file}: timeline.faults"
    return timeline_of(stages, **{**keys, **given}, slo=slo, where=where, where_faults=where_faults)


def _file(target: str) -> str:
    """The target, or the suite of timeline that it names. Raises BadInput."""
    if re.fullmatch(r"\w+", target) is None:
        return target
    folder = shipped("scenarios")
    known = sorted(
        file.stem for file in folder.glob("*.toml") if "\n[timeline]" in file.read_text("utf-8")
    )
    if target not in known:
        raise BadInput(
            f"TARGET: {target!r} is no suite of timeline; it takes an app (module:app, "
            f"path/file.py:app), a suite file (.toml), or {', '.join(known)}"
        )
    return str(folder / f"{target}.toml")
