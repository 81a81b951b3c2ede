"""What a timeline is: stages of an open loop, and faults on its clock. Pure words.

Rule: times count from the first second of the first stage. That the deployment of a fault is there
is checked by `check_faults`, once the app is known and before anything starts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from msgspec import Meta

from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Duration, Instant, Stages, write_stages
from serve_bench.core.load_spec import Arrivals
from serve_bench.core.numbers import Amount, Connections, Positive
from serve_bench.core.spec import Opt, Spec, read_value

FaultAction: TypeAlias = Literal["kill", "stop", "deploy"]
ACTIONS: Final[tuple[str, ...]] = ("kill", "stop", "deploy")

REPLICA, PROXY, CONTROLLER, NODE = "replica", "proxy", "controller", "node"
TARGETS: Final = (REPLICA, PROXY, CONTROLLER, NODE)
"""What is killed or stopped. `proxy`: the process that serves the HTTP port, of variants with
HAProxy that; `node`: a raylet other than the head with all that runs on it."""

IN_PLACE: Final = "in-place"
"""The target of a deploy by which replicas stay."""

STOPPABLE: Final = (REPLICA, PROXY, CONTROLLER)

MOST_S: Final = 6 * 3600.0
"""Longest stages together: each second is a row of the records."""

EXAMPLE: Final = "kill:replica@30s, stop:replica@30s+5s or deploy@60s"

ERRORS_ALONE: Final = "errors=1%"
"""The SLO where none is given."""

CONNECTIONS: Final = 100
MOST_CONNECTIONS: Final = 4_000
"""Of the open loop, at first and at most: as many requests can be unanswered at once."""


@dataclass(frozen=True)
class PlannedFault:
    """What is done to the service."""

    action: FaultAction
    at_s: Amount  # after the begin of the first stage
    target: str = ""  # one of TARGETS; of a deploy IN_PLACE, or "" for new replicas
    deployment: str | None = None  # of a replica, if one is named
    for_s: Positive | None = None  # how long a process is stopped (SIGSTOP)

    @property
    def source(self) -> str:
        """The fault as it is written on a command line."""
        target = ":".join(part for part in (self.target, self.deployment) if part)
        lasts = "" if self.for_s is None else f"+{self.for_s:g}s"
        return f"{self.action}{f':{target}' if target else ''}@{self.at_s:g}s{lasts}"

    @property
    def text(self) -> str:
        """The fault in words: `kill a replica of Shop at 30 s`."""
        when = f"at {self.at_s:g} s"
        if self.action == "deploy":
            return f"deploy {'in place' if self.target else 'new replicas'} {when}"
        of = "" if self.deployment is None else f" of {self.deployment}"
        article = "the" if self.target in (PROXY, CONTROLLER) else "a"
        lasts = "" if self.for_s is None else f" for {self.for_s:g} s"
        return f"{self.action} {article} {self.target}{of} {when}{lasts}"


def read_fault(text: str) -> PlannedFault:
    """Parse `kill:replica@30s`. Raises ValueError, or BadInput that says why it is no fault."""
    what, sign, when = text.partition("@")
    action, _, target = what.partition(":")
    if not sign or action not in ACTIONS:
        raise ValueError(text)
    moment, plus, lasts = when.partition("+")
    at_s = read_value(Instant, moment, text)
    for_s = read_value(Duration, lasts, text) if plus else None
    target, named_one, deployment = target.partition(":")
    if action == "deploy":
        if target not in ("", IN_PLACE) or deployment or plus:
            takes = f"it takes deploy@60s or deploy:{IN_PLACE}@60s"
            raise BadInput(f"{text!r} is not allowed; {takes}")
        return PlannedFault("deploy", at_s, target)
    allowed = TARGETS if action == "kill" else STOPPABLE
    if target not in allowed or (named_one and (target != REPLICA or not deployment)):
        takes = f"{action} takes {', '.join(allowed)}, or {REPLICA}:DEPLOYMENT"
        raise BadInput(f"{text!r}: {target or 'no target'} is not allowed; {takes}")
    if (action == "stop") != bool(plus):
        need = "takes how long, as stop:replica@30s+5s" if action == "stop" else "has no duration"
        raise BadInput(f"{text!r}: {action} {need}")
    named: Any = action
    return PlannedFault(named, at_s, target, deployment or None, for_s)


@dataclass(frozen=True, kw_only=True)
class Timeline(Spec):
    """A load over time, and what is done to the service meanwhile."""

    table: ClassVar[str] = "timeline"

    stages: Annotated[Stages, Opt("Load over time, such as 50:20s,500:30s,50:40s")] = ()
    ramp: Annotated[bool, Opt("Move the rate linearly from each stage to the next")] = False
    faults: Annotated[
        list[PlannedFault],
        Opt(
            "Fault, such as kill:replica@30s; repeatable",
            "FAULT",
            ("--fault",),
            read=read_fault,
            takes=EXAMPLE,
            launched=True,
        ),
    ] = field(default_factory=list)
    after_s: Annotated[
        Instant,
        Opt(
            "Watch replicas for so long behind the last stage",
            spellings=("--after",),
            key="timeline.after",
        ),
    ] = 0.0
    arrivals: Annotated[Arrivals, Opt("Arrivals: constant or poisson")] = "constant"
    connections: Annotated[
        int, Meta(ge=1, le=MOST_CONNECTIONS), Opt("Connections at first; up to 4000 as needed")
    ] = CONNECTIONS
    most_connections: Connections = MOST_CONNECTIONS  # of the open loop
    nodes: Annotated[
        int, Meta(ge=1, le=8), Opt("Nodes of the cluster, all on this host", launched=True)
    ] = 1
    slo: str = ERRORS_ALONE  # what has to hold in each second

    def checked(self, places: Mapping[str, str]) -> Self:
        place, whole_s = places["stages"], sum(stage.duration_s for stage in self.stages)
        if not self.stages:
            raise BadInput(f"{place}: say the load over time, as 50:20s,500:30s,50:40s")
        if self.stages[0].rate <= 0:
            raise BadInput(f"{place}: the first stage warms up too: its rate is above 0")
        if whole_s > MOST_S:
            raise BadInput(f"{place}: take {whole_s:g} s; {MOST_S:g} s is the most")
        for fault in self.faults:
            wrong = f"{places['faults']}: {fault.source}: "
            if fault.at_s >= whole_s:
                raise BadInput(f"{wrong}the load is over by then, after {whole_s:g} s")
            if fault.target == NODE and self.nodes < 2:
                raise BadInput(f"{wrong}the cluster has one node; --nodes 2 gives two")
        return replace(self, faults=sorted(self.faults, key=lambda fault: fault.at_s))

    @property
    def seconds(self) -> int:
        """Whole seconds of all stages."""
        return math.ceil(sum(stage.duration_s for stage in self.stages) - 1e-9)

    @property
    def begins(self) -> tuple[float, ...]:
        """When each stage begins, in seconds."""
        lengths = [stage.duration_s for stage in self.stages]
        return tuple(accumulate(lengths[:-1], initial=0.0))

    @property
    def source(self) -> str:
        """The stages as they are written on a command line."""
        text = write_stages(self.stages)
        return f"{text} ramp" if self.ramp else text


def check_faults(faults: Sequence[PlannedFault], deployments: Collection[str], where: str) -> None:
    """Raise BadInput where a fault names a deployment that the app lacks."""
    for fault in faults:
        if fault.deployment is not None and fault.deployment not in deployments:
            lacks = f"{fault.deployment}{nearest(fault.deployment, deployments)}"
            raise BadInput(f"{where}: {fault.source}: the app has no deployment {lacks}")
