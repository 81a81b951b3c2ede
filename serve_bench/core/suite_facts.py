"""What a run was to measure, as its record holds it, and the objects that the store checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Required, TypedDict

from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.facts import (
    CellFacts,
    DeployProof,
    HostFacts,
    LaunchProof,
    ProfileFacts,
    ServeMetricsFacts,
    WaterfallFacts,
)
from serve_bench.core.ladder import Ladder
from serve_bench.core.numbers import Amount, Connections, Count, Share, Signed
from serve_bench.core.own_app import AskedFacts, Beside, OwnDeployment, OwnGrpc
from serve_bench.core.result import Deploy, Failure, Launch, Record, Resume, Run, Trial, VariantUsed
from serve_bench.core.soak import SoakSpec
from serve_bench.core.timeline import Timeline
from serve_bench.core.traffic import Row


class PlannedFacts(TypedDict, total=False):
    """Of a planned trial what `result.PlannedTrial` leaves open."""

    cell: CellFacts


class AppFacts(TypedDict, total=False):
    """An app of the user's own: `own_app.OwnApp` as an object."""

    target: Required[str]
    import_path: Required[str]
    folder: str
    deployments: Required[list[OwnDeployment]]
    options: list[str]
    asked: Required[AskedFacts]
    config: Mapping[str, Any]
    beside: list[Beside]
    gpus: Amount | None
    sources: list[str]
    grpc: OwnGrpc | None


class SideFacts(TypedDict, total=False):
    """A side of `versus`."""

    label: Required[str]
    variant: Required[VariantUsed]
    app: str | AppFacts
    settings: Mapping[str, Any]


class SuiteFacts(TypedDict, total=False):
    """What a run was to measure. Which fields there are depends on the command; to go on with a
    run, its own kind of suite is read (`benchmarks/*/request.py`)."""

    name: str
    app: str | AppFacts
    variants: list[VariantUsed]
    cells: list[CellFacts]
    rows: list[Row]
    windows: Count | None
    window_s: Amount | None
    warmup_min_s: Amount | None
    warmup_max_s: Amount | None
    warmup_s: Amount | None
    side_s: Amount
    slice_s: Amount | None
    launches: Count
    rounds: Count
    seed: Signed
    requests: Count | None
    requests_each: Count | None
    requests_per_client: Count | None
    ladder: Ladder | None
    max_row_s: Amount
    timeout_s: Amount
    load_on: Mapping[str, Any] | None
    sample: bool | None
    sides: list[SideFacts]
    aa: bool
    threshold: Share
    gate: list[str]
    floors: Mapping[str, Amount]
    noise: str | None
    budget_s: Amount | None
    urls: Mapping[str, str] | None
    capacity: CapacitySearch | None
    timeline: Timeline | None
    soak: SoakSpec | None
    slo: str | None
    worlds: list[CellFacts]
    x_axis: str
    master_addr: str
    master_port: Count
    episodes: Count
    steps: Count
    seconds: Amount | None
    policy_ms: Amount | None
    output_file_path: str | None
    workload: str
    replicas: list[Count]
    deployments: Count
    hops: Count
    size: Count
    connections: Connections
    clients: Count
    nodes: Count
    address: str | None
    timing: Mapping[str, Amount | None]


FACTS: Final[Mapping[type[Record], Mapping[str, Any]]] = {
    Run: {"suite": SuiteFacts, "plan": list[PlannedFacts], "host": HostFacts},
    Resume: {"host": HostFacts},
    Launch: {"proof": LaunchProof},
    Deploy: {"cell": CellFacts, "proof": DeployProof},
    Failure: {"cell": CellFacts | None},
    Trial: {
        "cell": CellFacts,
        "serve_metrics": ServeMetricsFacts,
        "forward": Mapping[str, tuple[Count, Count]],
        "waterfall": WaterfallFacts,
        "profiles": list[ProfileFacts],
    },
}
"""What the objects of a record hold beside its figures: the store checks it, and keeps fields that
these types do not know."""
