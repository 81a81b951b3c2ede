"""What a timeline is asked for: stages of an open loop, and faults on its clock. Pure words.

Rule: times count from the first second of the first stage. What is checked here needs no app; that
a target is there is checked by `check_faults`, before anything starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import MAX_DURATION_S, Arrivals, Stage
from serve_bench.core.numbers import Amount, Connections, Count, Positive

FaultAction: TypeAlias = Literal["kill", "stop", "deploy"]
ACTIONS: Final[tuple[str, ...]] = ("kill", "stop", "deploy")

REPLICA, PROXY, CONTROLLER, NODE = "replica", "proxy", "controller", "node"
TARGETS: Final = (REPLICA, PROXY, CONTROLLER, NODE)
"""What is killed or stopped. `proxy`: the process that serves the HTTP port, of variants with
HAProxy that; `node`: a raylet beside the head with all that runs on it."""

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
    """What is done to the service, `at_s` after the begin of the first stage.

    `target`: one of TARGETS; of a deploy IN_PLACE, or empty for new replicas. `deployment`: of a
    replica, if one is named. `for_s`: how long a process is stopped (SIGSTOP).
    """

    action: FaultAction
    at_s: Amount
    target: str = ""
    deployment: str | None = None
    for_s: Positive | None = None

    @property
    def source(self) -> str:
        """As it is written on a command line."""
        target = ":".join(part for part in (self.target, self.deployment) if part)
        lasts = "" if self.for_s is None else f"+{self.for_s:g}s"
        return f"{self.action}{f':{target}' if target else ''}@{self.at_s:g}s{lasts}"

    @property
    def text(self) -> str:
        """`kill a replica of Shop at 30 s`."""
        at = f"at {self.at_s:g} s"
        if self.action == "deploy":
            return f"deploy {'in place' if self.target else 'new replicas'} {at}"
        of = "" if self.deployment is None else f" of {self.deployment}"
        article = "the" if self.target in (PROXY, CONTROLLER) else "a"
        lasts = "" if self.for_s is None else f" for {self.for_s:g} s"
        return f"{self.action} {article} {self.target}{of} {at}{lasts}"


@dataclass(frozen=True)
class Timeline:
    """A load over time. `after_s`: how long the service is observed behind the last stage;
    `connections` of the open loop at first, `most_connections` at most; `nodes`: raylets of the
    cluster, all on this host; `slo`: what has to hold in each second, as core/slo.py reads it."""

    stages: tuple[Stage, ...]
    ramp: bool = False
    arrivals: Arrivals = "constant"
    after_s: Amount = 0.0
    faults: tuple[PlannedFault, ...] = ()
    connections: Connections = CONNECTIONS
    most_connections: Connections = MOST_CONNECTIONS
    nodes: Count = 1
    slo: str = ERRORS_ALONE

    @property
    def seconds(self) -> int:
        """Whole seconds of all stages."""
        return math.ceil(sum(stage.duration_s for stage in self.stages) - 1e-9)

    @property
    def begins(self) -> tuple[float, ...]:
        """When each stage begins, s."""
        lengths = [stage.duration_s for stage in self.stages]
        return tuple(accumulate(lengths[:-1], initial=0.0))

    @property
    def source(self) -> str:
        """The stages as they are written on a command line."""
        text = ",".join(f"{stage.rate:g}:{stage.duration_s:g}s" for stage in self.stages)
        return f"{text} ramp" if self.ramp else text


def seconds_of(text: str, where: str, zero: bool = False) -> float:
    """A time such as 500ms, 10s, 2m or 0.5, in seconds. `where`: what a message names.

    Raises BadInput.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?", text.strip(), re.ASCII)
    units = {"ms": 1e-3, "m": 60, "h": 3600, "d": 86_400}
    seconds = float(match[1]) * units.get(match[2], 1) if match else -1
    if seconds < 0 or (seconds == 0 and not zero):
        takes = f"a time {'0 or more' if zero else 'above 0'}, such as 500ms, 10s or 2m"
        raise BadInput(f"{where}: {text!r} is not allowed; it takes {takes}")
    if seconds > MAX_DURATION_S:
        most = f"{MAX_DURATION_S / 3600:g}h"
        raise BadInput(f"{where}: {text[:20]!r} is not allowed; it takes at most {most}")
    return seconds


def stages_of(text: str | None, where: str = "--stages") -> tuple[Stage, ...]:
    """`RATE:DURATION,...` as stages. Raises BadInput or SpecError."""
    stages = []
    for part in text.split(",") if text is not None else ():
        rate, colon, duration = part.partition(":")
        try:
            number = float(rate)
        except ValueError:
            number, colon = 0.0, ""
        if not colon:
            raise BadInput(f"{where}: {part!r} is not allowed; it takes RATE:DURATION, as 100:30s")
        stages.append(Stage(number, seconds_of(duration, where)))
    return tuple(stages)


def parse_fault(text: str, where: str) -> PlannedFault:
    """A fault of a text such as `kill:replica@30s`. Raises BadInput in one line."""
    what, sign, when = text.strip().partition("@")
    action, _, target = what.partition(":")
    if not sign or action not in ACTIONS:
        raise BadInput(f"{where}: {text!r} is not allowed; it takes {EXAMPLE}")
    at, plus, lasts = when.partition("+")
    at_s = seconds_of(at, f"{where}: {text}", zero=True)
    for_s = seconds_of(lasts, f"{where}: {text}") if plus else None
    target, named_one, deployment = target.partition(":")
    if action == "deploy":
        if target not in ("", IN_PLACE) or deployment or plus:
            takes = f"it takes deploy@60s or deploy:{IN_PLACE}@60s"
            raise BadInput(f"{where}: {text!r} is not allowed; {takes}")
        return PlannedFault("deploy", at_s, target)
    allowed = TARGETS if action == "kill" else STOPPABLE
    if target not in allowed or (named_one and (target != REPLICA or not deployment)):
        takes = f"{action} takes {', '.join(allowed)}, or {REPLICA}:DEPLOYMENT"
        raise BadInput(f"{where}: {text!r}: {target or 'no target'} is not allowed; {takes}")
    if (action == "stop") != bool(plus):
        need = "takes how long, as stop:replica@30s+5s" if action == "stop" else "has no duration"
        raise BadInput(f"{where}: {text!r}: {action} {need}")
    named: Any = action
    return PlannedFault(named, at_s, target, deployment or None, for_s)


def check_faults(faults: Sequence[PlannedFault], deployments: Collection[str], where: str) -> None:
    """BadInput where a fault names a deployment that the app lacks."""
    for fault in faults:
        if fault.deployment is not None and fault.deployment not in deployments:
            lacks = f"{fault.deployment}{nearest(fault.deployment, deployments)}"
            raise BadInput(f"{where}: {fault.source}: the app has no deployment {lacks}")
