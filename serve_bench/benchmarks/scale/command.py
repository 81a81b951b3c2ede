"""`serve-bench scale`: Ray's nightly Serve benchmarks, on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from serve_bench.benchmarks.scale.bench import ScaleBench
from serve_bench.benchmarks.scale.needs import check_needs
from serve_bench.benchmarks.scale.options import ScaleOptions
from serve_bench.benchmarks.scale.spec import ScaleSpec, read_scale, stored_scale
from serve_bench.cli.experiment import ListedExperiment
from serve_bench.cli.rows import add_suite_flags, read_content
from serve_bench.cli.sitting import list_launches
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result


class ScaleExperiment(ListedExperiment[ScaleOptions, ScaleSpec]):
    """The sizes of a workload, on our own clusters or on one that is there already."""

    bench = ScaleBench

    def __init__(self, options: ScaleOptions) -> None:
        super().__init__(options)
        self.again = f"scale {options.workload}"

    def read(self) -> ScaleSpec:
        options = self.options
        return read_scale(
            options.workload,
            add_suite_flags(read_content(options.suite), options),
            options.given,
            quick=options.quick,
            address=options.address,
            sample=not options.no_sample,
        )

    def restore(self, stored: Mapping[str, Any]) -> ScaleSpec:
        return stored_scale(stored)

    def prepare(self, asked: ScaleSpec, earlier: Result | None) -> ScaleSpec:
        if asked.workload != self.options.workload:
            held = f"{self.options.resume} holds a run of scale {asked.workload}"
            raise BadInput(f"--resume: {held}")
        self.set_env = "use --env to set it" if asked.address is None else None
        return super().prepare(check_needs(asked), earlier)

    def plan_lines(self) -> Iterator[str]:
        spec = self.asked
        yield from list_launches(
            self.launches,
            lambda rows: [f"{planned.row.label} ({planned.row.client})" for planned in rows],
            dict,
        )
        if not self.launches:
            yield "nothing is left to be measured"
            return
        where = f"the one at {spec.address}" if spec.address else "started for each launch"
        nodes = f", {spec.nodes} raylets on this machine" if spec.nodes > 1 else ""
        yield f"cluster: {where}{nodes}; at most {spec.warmup:g} s of warm-up before a row"
        length = f"{spec.windows} windows of {spec.window_s:g} s"
        about = duration_text(spec.expected_s(self.launches))
        yield f"{length} for each row of throughput; about {about} in all"
