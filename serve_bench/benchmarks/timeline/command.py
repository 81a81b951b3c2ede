"""`serve-bench timeline TARGET`: a load over time, second by second, and what changes under it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from serve_bench.benchmarks.timeline.bench import LOOK_S, WARMUP_S, TimelineBench
from serve_bench.benchmarks.timeline.options import TimelineOptions
from serve_bench.cli import print_note
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.sitting import list_launches
from serve_bench.cli.targets import named_target, target_suite
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import counted
from serve_bench.core.plan import Suite, duration_text
from serve_bench.core.result import Result
from serve_bench.core.slo import check_limits, parse_slo, read_slo
from serve_bench.core.timeline import ERRORS_ALONE, NODE, Timeline, check_faults
from serve_bench.core.traffic import Row
from serve_bench.observing.processes import behind
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.store.files import read_toml, shipped
from serve_bench.view.lens import View


class TimelineExperiment(SuiteExperiment[TimelineOptions]):
    """An open loop in stages on each launch; seconds out of the SLO break the gate."""

    part = "timeline"
    children_every_s = LOOK_S

    def clusters(self, **fields: Any) -> ServedClusters:
        """Make the clusters, each with the nodes of the timeline."""
        timeline = self.asked.timeline
        assert timeline is not None, "it has been checked"
        beside_s = timeline.after_s + WARMUP_S
        return ServedClusters(
            **fields, bench=TimelineBench, raylets=timeline.nodes, beside_s=beside_s
        )

    def suite(self) -> Suite:
        options = self.options
        target = "" if options.urls else _find_suite(named_target(options))
        content = Content(target, {"timeline": {}}, {"timeline.stages": "--stages"})
        if target.endswith(".toml"):
            content = Content(target, read_toml(Path(target)))
        content = Timeline.add_flags(content, options.given)
        content = content.set("slo", options.slo, "--slo")
        Timeline.check_keys(content)
        where = content.where("slo")
        slo = read_slo(content.text("slo", ERRORS_ALONE), where).source
        timeline = Timeline.read(content, slo=slo)
        suite = target_suite(options, target, timeline=True)
        if suite.app.own_app is not None:
            names = [deployment.name for deployment in suite.app.own_app.deployments]
            check_faults(timeline.faults, names, content.where("timeline.faults"))
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
        )

    def plan_agenda(self, suite: Suite, earlier: Result | None) -> Agenda:
        """Plan a launch for each cell: replicas that a load has called for would serve the next."""
        left = super().plan_agenda(suite, earlier).launches
        launches = [replace(launch, cells=(cell,)) for launch in left for cell in launch.cells]
        return Agenda(suite, tuple(launches))

    def plan_lines(self) -> Iterator[str]:
        agenda, timeline = self.agenda, self.asked.timeline
        assert timeline is not None, "it has been checked"
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

    def begin(self) -> None:
        if not all(behind(request.url) for request in self.asked.services.values()):
            print_note(
                "note: no Serve of this host answers there: replicas and CPU of the server are not "
                "known"
            )

    def breaches(self, view: View) -> Sequence[str]:
        return view.faults if self.options.fail_on == "slo" else ()


def _find_suite(target: str) -> str:
    """Return the target, or the suite of timeline that it names. Raises BadInput."""
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
