"""What `serve-bench timeline` is asked for, by flags and the table [timeline] of a suite file.

Pure. Rule: that the deployment of a fault is there is checked by `check_faults` of
core/timeline.py, once the app is known and before anything starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_DURATION_S, Arrivals
from serve_bench.core.request_spec import SpecError
from serve_bench.core.timeline import (
    CONNECTIONS,
    ERRORS_ALONE,
    MOST_CONNECTIONS,
    MOST_S,
    NODE,
    Timeline,
    parse_fault,
    stages_of,
)
from serve_bench.spec.base import Opt, Spec
from serve_bench.spec.content import Content
from serve_bench.spec.forms import Time


@dataclass(frozen=True, kw_only=True)
class TimelineKeys(Spec):
    """A load over time, and what is done to the service meanwhile."""

    table: ClassVar[str] = "timeline"

    stages: Annotated[
        str | None, Opt("Load over time, such as 50:20s,500:30s,50:40s", "RATE:DURATION,...")
    ] = None
    ramp: Annotated[bool, Opt("Move the rate linearly from each stage to the next")] = False
    fault: Annotated[
        list[str] | None,
        Opt(
            "Fault, such as kill:replica@30s; repeatable",
            "FAULT",
            key="timeline.faults",
            launched=True,
        ),
    ] = None
    after: Annotated[
        Annotated[Time, Meta(ge=0, le=MAX_DURATION_S)],
        Opt("Watch replicas for so long behind the last stage"),
    ] = 0.0
    arrivals: Annotated[Arrivals, Opt("Arrivals: constant or poisson")] = "constant"
    connections: Annotated[
        int, Meta(ge=1, le=MOST_CONNECTIONS), Opt("Connections at first; up to 4000 as needed")
    ] = CONNECTIONS
    nodes: Annotated[
        int, Meta(ge=1, le=8), Opt("Nodes of the cluster, all on this host", launched=True)
    ] = 1


def read_timeline(content: Content, slo: str = ERRORS_ALONE) -> Timeline:
    """The timeline of a suite file and flags over it. `slo`: of each second. Raises BadInput."""
    options = TimelineKeys.options().values()
    content.check_keys([option.key.removeprefix("timeline.") for option in options], "timeline")
    keys = TimelineKeys.read(content)
    place, faulty = content.where("timeline.stages"), content.where("timeline.faults")
    if keys.stages is None:
        raise BadInput(f"{place}: say the load over time, as 50:20s,500:30s,50:40s")
    try:
        stages = stages_of(keys.stages, place)
    except SpecError as error:
        raise BadInput(f"{place}: {str(error).removeprefix('stages: ')}") from None
    if stages[0].rate <= 0:
        raise BadInput(f"{place}: the first stage warms up too: its rate is above 0")
    whole_s = sum(stage.duration_s for stage in stages)
    if whole_s > MOST_S:
        raise BadInput(f"{place}: take {whole_s:g} s; {MOST_S:g} s is the most")
    faults = tuple(parse_fault(text, faulty) for text in keys.fault or ())
    for fault in faults:
        wrong = f"{faulty}: {fault.source}: "
        if fault.at_s >= whole_s:
            raise BadInput(f"{wrong}the load is over by then, after {whole_s:g} s")
        if fault.target == NODE and keys.nodes < 2:
            raise BadInput(f"{wrong}the cluster has one node; --nodes 2 gives two")
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    load = (stages, keys.ramp, keys.arrivals, keys.after, ordered, keys.connections)
    return Timeline(*load, nodes=keys.nodes, slo=slo)
