"""What a record holds beside its figures: facts of a host, a launch, a deploy, a load and a suite.

Each class describes a JSON object of a record; where a dataclass is such an object, it stands in
its place. A field may be missing unless it is `Required`; one that is not listed is kept, and no
reader looks into it. The store checks every object of a file by FACTS, so readers rely on types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeAlias, TypedDict

from msgspec import Meta

from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.histogram import HistogramFacts
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import ClientVerdict, Counts, TokenCounts, WorkerReport
from serve_bench.core.load_spec import Stage
from serve_bench.core.numbers import Amount, Connections, Count, Positive, Share, Signed
from serve_bench.core.own_app import AskedFacts, Beside, OwnDeployment, OwnGrpc
from serve_bench.core.result import (
    Deploy,
    Failure,
    Launch,
    Record,
    Resume,
    Row,
    Run,
    Trial,
    VariantUsed,
)
from serve_bench.core.soak import SoakSpec
from serve_bench.core.timeline import Timeline

StatusCode: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{1,3}$")]


class CellFacts(TypedDict, total=False):
    """The axes of a cell that readers compute with. Options of an own app stand beside."""

    num_replicas: Count
    max_batch_size: Count
    max_ongoing_requests: Count
    max_queued_requests: Signed
    batch_wait_timeout_s: Amount
    ingress_per_ranker: Count
    gpu_fraction: Amount
    threads: Count
    rows_per_request: Count
    dense_features: Count
    sparse_features: Count
    table_rows: Count
    width: Count
    seed: Count
    bottom: str
    top: str
    ranker: str
    device: str
    callable: str
    log_level: str
    body_type: str
    url: str
    # of rpc
    world_size: Count
    batch: bool
    state_size: str
    nlayers: Count
    out_features: Count
    policy_ms: Amount | None
    # of scale
    workload: str
    fanout: Count
    length: Count
    deployments: Count
    hops: Count


class PlannedFacts(TypedDict, total=False):
    """Of a planned trial what `result.PlannedTrial` leaves open."""

    cell: CellFacts


class HostFacts(TypedDict, total=False):
    """The host of a run: `observing.host.fingerprint`."""

    id: str | None
    cpu: str | None
    logical_cores: Count | None
    physical_cores: Count | None
    usable_cores: Count | None
    cpu_quota_cores: Amount | None
    memory_bytes: Count | None
    memory_limit_bytes: Count | None
    kernel: str | None
    busy_cores: Amount | None
    load_1m: Amount | None
    load_5m: Amount | None
    load_15m: Amount | None
    governor: str | None
    python: str | None
    ray: str | None
    tool: str | None


class ProcessUsage(TypedDict, total=False):
    """What a process used in a trial: % of one core, MB; None where the readings do not tell."""

    pid: Required[Count]
    role: Required[str]
    title: str
    cpu_percent: Signed | None
    seen_s: Amount
    pss_mb: Amount | None
    private_mb: Amount | None
    threads: Count | None
    descriptors: Count | None
    busiest_thread_percent: Signed | None
    busiest_thread_wait_percent: Signed | None
    run_queue_wait_percent: Signed | None


class HostUsage(TypedDict, total=False):
    """CPU of all cores together in a trial, and what a hypervisor took."""

    cores: Count
    cpu_percent: Signed | None
    steal_percent: Signed | None
    free_mb: Amount | None


class GpuProcess(TypedDict, total=False):
    pid: Count
    memory_mb: Amount | None
    use_percent: Amount | None


class GpuUsage(TypedDict, total=False):
    """What ran on a GPU in a trial."""

    device: Required[Count]
    use_percent: Amount | None
    processes: list[GpuProcess]


class OtherProgram(TypedDict, total=False):
    """A program that is not of the run: its processes, the busiest of them, % of a core."""

    program: Required[str]
    pid: Required[Count]
    processes: Required[Count]
    cpu_percent: Required[Amount]


class OthersUsage(TypedDict, total=False):
    """What programs used that are not of the run; `typical_percent`: the median over time."""

    typical_percent: Required[Amount | None]
    programs: Required[list[OtherProgram]]


class TrialUsage(TypedDict, total=False):
    """Of a trial: the host, its processes and GPUs (usage.py)."""

    host: HostUsage
    processes: list[ProcessUsage]
    others: OthersUsage
    gpus: list[GpuUsage]


class PortOwner(TypedDict):
    """The process that listens on the HTTP port."""

    pid: Count
    name: str
    role: str


class ProcessFacts(TypedDict, total=False):
    """A process of a launch."""

    pid: Count
    role: str
    title: str


class OpenPort(TypedDict, total=False):
    """A port that the network can reach."""

    role: str | None
    address: str
    port: Count


class ProxyFacts(TypedDict, total=False):
    """A proxy of a cluster of several nodes: `benchmarks.scale.cluster`."""

    node_id: Required[str]
    node_ip: Required[str]
    hostname: str
    host: str
    port: Count | None
    pid: Count | None
    status: Required[str]
    shared_with: list[str]
    why: str | None


class AppSources(TypedDict, total=False):
    """The code of a user's app: serving/cluster/measured.py. `changes`: files that are not as in
    the commit; `sources`: a hash of the modules (`files` of them) that Python imports of it."""

    commit: str
    changes: Count
    sources: str
    files: Count


class LaunchProof(TypedDict, total=False):
    """What is engaged in a launch; see proof.py. Flags and environment are by role, then name."""

    port: Count | None
    port_owner: PortOwner | None
    processes: list[ProcessFacts]
    flags: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, Mapping[str, str | None]]
    versions: Mapping[str, str | None]
    http_options: Mapping[str, Any]
    open_files: Count | None
    open_to_network: list[OpenPort]
    proxies: list[ProxyFacts]
    master_port: Count | None
    app: AppSources
    packages: list[str]  # name==version


class FirstRequest(TypedDict, total=False):
    """The first answer of a proxy after a deploy."""

    ms: Required[Amount]
    status: Count


class ReplicaFacts(TypedDict, total=False):
    """What a replica tells of itself; options of the user's own app stand beside."""

    pid: Count
    app: str
    deployment: str
    node_id: str
    max_ongoing_requests: Count | None
    max_queued_requests: Signed | None
    device: str | None
    device_name: str | None
    log_level: str | None


class DeployProof(TypedDict, total=False):
    """What is in force after a deploy."""

    replicas: list[ReplicaFacts]
    first_request: FirstRequest | None
    log_level: Mapping[str, Any]
    agent: Count
    observers: list[Count]


class SettledFacts(TypedDict, total=False):
    """What one client saw after a deploy, until it was served steadily (`plan.settled_of`)."""

    seconds: Amount
    steady: bool
    judged: bool | None
    completed: Count
    failed: Count
    p50_ns: Count | None
    error: str


class LastHeard(TypedDict):
    """What a node that was lost had told last."""

    completed: Count
    failed: Count
    age_s: Amount


class NodeFacts(TypedDict, total=False):
    """A node's share of a load (`nodes.node_fact`). Times in ns, rates in 1/s."""

    node: Required[str]
    ip: Required[str]
    hostname: Required[str]
    url: Required[str]
    client: Required[str]
    connections: Required[Connections]
    seconds: Required[Amount]
    completed: Required[Count]
    failed: Required[Mapping[str, Count]]
    rate: Required[Amount]
    connection_rate_mean: Amount | None
    connection_rate_max: Amount | None
    bytes_received: Count | None
    latency_ns: Required[Mapping[str, Amount | None]]
    latency_lower_bounds: list[str]
    lost: str | None
    last_heard: LastHeard
    client_bound: bool | None
    usage: TrialUsage | None


class RequestFacts(TypedDict, total=False):
    """The request of a load: how many paths and sets of headers it has, not which."""

    url: str
    method: str
    paths: Count
    header_sets: Count


class LoadFacts(TypedDict, total=False):
    """The load that was asked for: `load_spec.Load` as an object."""

    request: RequestFacts
    client: str
    connections: Connections
    processes: Count | None
    timeout_s: Amount
    rate: Amount | None
    arrivals: str
    stages: list[Stage]
    ramp: bool
    count: Count | None
    max_connections: Connections | None
    each: Count | None
    seed: Signed


SliceMethod: TypeAlias = Literal["slices", "windows"]


class SlicesFacts(TypedDict, total=False):
    """How the row of a side was loaded in turn with the other, and each of its slices."""

    method: Required[SliceMethod]
    slice_s: Required[Amount]
    connections: Required[Connections]
    chosen_drain_s: Required[Amount]
    why: Required[str]
    drain_s: Amount
    seed: Signed
    length_s: Required[list[Amount]]
    completed: Required[list[Count]]
    failed: Required[list[Count]]
    requests: Count
    cpu_s: Mapping[str, Amount]
    idle_cores: Mapping[str, Signed]
    idle_all_cores: Signed


class ClientFacts(TypedDict, total=False):
    """What the client of a trial tells beside its figures. Which fields there are depends on the
    client: a load, slices of `versus`, rpc."""

    verdict: ClientVerdict
    client_bound: bool
    reasons: list[str]
    workers: list[WorkerReport]
    status_codes: Mapping[StatusCode, Count] | None
    bytes_received: Count | None
    retried: Count
    reconnects: Count
    total: Counts
    notes: list[str]
    in_windows: Counts
    mean_in_flight: Amount | None
    busy_s: Amount
    drained: Count
    stretched: str
    bare: Count
    seen: Mapping[str, str]
    waited: Count
    events: Count
    merged: Count
    tokens: TokenCounts
    nodes: list[NodeFacts]
    skew_s: Signed | None
    asked: LoadFacts
    slices: SlicesFacts
    batch_size: Count
    agent_pid: Count
    observer_pids: list[Count]
    processes: Count
    memory_bytes: Count | None
    policy: str
    versions: Mapping[str, str | None]
    raw: str


class DeploymentLimits(TypedDict, total=False):
    """Replicas of a deployment, what each takes at once, how many requests may wait (-1: any). Of
    one that Serve scales: to how many at `most`, how many `ran` within the windows, one number
    after the other, and how many Serve `wanted` at their end."""

    replicas: Count
    each: Count
    queued: Signed
    most: Count
    ran: list[Count]
    wanted: Count


Place: TypeAlias = tuple[str, str, str, Amount]
"""What, line, function, and the mean number of requests there."""


class PoolFacts(TypedDict):
    """A pool of threads in a replica."""

    threads: Count
    working: Amount
    full: Amount


class BatchQueueFacts(TypedDict):
    """A queue of `serve.batch` in a replica. `ended`: with what error its loop did."""

    most: Count
    wait_s: Amount
    waiting: Amount
    running: Amount
    held: Amount
    ended: NotRequired[str]


class CallFacts(TypedDict):
    """Calls of a deployment that a request makes: how many, and how many of them at once."""

    a_request: Amount
    at_once: Amount


class ReplicaWaits(TypedDict, total=False):
    """What requests in a replica waited in: serving/cluster/look.py."""

    pid: Count
    app: Required[str]
    deployment: Required[str]
    looks: Required[Count]
    max_ongoing: Count | None
    ongoing: Amount | None
    served: Count
    mean_ms: Amount | None
    places: list[Place]
    own: list[Place]
    threads: list[Place]
    loop: list[tuple[str, Amount]]
    pools: Mapping[str, PoolFacts]
    batches: Mapping[str, BatchQueueFacts]
    calls: CallFacts


class WaitsFacts(TypedDict, total=False):
    """A further load, looked at from inside the replicas: runner/extra_loads.py."""

    why_not: str
    seconds: Amount
    rate: Amount
    p50_ms: Amount | None
    alone_p50_ms: Amount | None
    replicas: list[ReplicaWaits]


Group: TypeAlias = Mapping[str, Signed] | Literal["stale"]


class ServeMetricsFacts(TypedDict, total=False):
    """What Serve's own metrics grew by: observing/inside.py."""

    status: str
    why: str
    deployments: Mapping[str, Group]
    routers: Mapping[str, Group]
    http: Group
    levels: Mapping[str, Signed | Literal["stale"]]


class TracedCall(TypedDict):
    """A call that a traced request made, with those below: analysis/waterfall.py. `spans`: hop,
    begin since the request was due, length, ns."""

    deployment: str
    total_ns: Count
    spans: list[tuple[str, Count, Count]]
    calls: list[TracedCall]


class TracedRequestFacts(TracedCall):
    trace: str
    due_unix_ns: Count


class WaterfallFacts(TypedDict, total=False):
    """Where the time of traced requests went. `failed`: how many, by hop; `total`, `hops`: ns."""

    traced: Count
    unseen: Count
    failed: Mapping[str, Count]
    cut: Count
    lost_marks: Count
    total: Mapping[str, Count]
    hops: Mapping[str, Mapping[str, Count]]
    haproxy_ms: Mapping[str, Amount]
    timers: Mapping[str, Positive]
    requests: list[TracedRequestFacts]


class ProfileFacts(TypedDict, total=False):
    """The stacks of a process, or why there are none. `path` is relative to the run's folder."""

    pid: Required[Count]
    role: Required[str]
    title: Required[str]
    path: str
    samples: Count
    errors: Count
    seconds: Amount
    rate: Count
    notes: list[str]
    failed: str


class ProbeSlices(TypedDict, total=False):
    """What the bounds of a probe count, in slices of time by when requests were due."""

    slice_s: Positive
    began_s: Amount
    bounds: Mapping[str, BoundCounts]


class BoundCounts(TypedDict):
    """Of each slice the requests of a bound, and those that violate it (of a mean: ns)."""

    of: list[Amount]
    bad: list[Amount]


class ReplicaChange(TypedDict, total=False):
    """What Serve says of the replicas of a deployment from a moment on."""

    at_s: Required[Signed]
    deployment: Required[str]
    wanted: Required[Count | None]
    starting: Required[Count]
    running: Required[Count]
    draining: Required[Count]
    pids: list[Count]


class LifeFacts(TypedDict):
    """When a process came and went; None: before the first, after the last reading."""

    pid: Count
    role: str
    title: str
    from_s: Signed | None
    to_s: Signed | None


class FaultFacts(TypedDict, total=False):
    """A fault of a timeline: when it was done, and when it was over (a deploy in force, a stopped
    process that goes on)."""

    fault: Required[str]
    text: str
    at_s: Amount | None
    done_s: Amount | None
    pid: Count | None
    why_not: str


class CourseFacts(TypedDict, total=False):
    """A load second by second: analysis/course.py."""

    due: list[Count]
    sent: list[Count]
    answered: list[Count]
    ended: list[Count]
    waiting: list[Count]
    failed: Mapping[str, list[Count]]
    latency: list[HistogramFacts | None]
    lost: list[tuple[Signed, Signed | None, str]]
    losses: Count
    cpu: Mapping[str, list[Amount | None]]
    lives: list[LifeFacts]
    changes: list[ReplicaChange]
    faults: list[FaultFacts]
    after_s: Amount
    why_not: str


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
    Deploy: {"cell": CellFacts, "proof": DeployProof, "settled": SettledFacts},
    Failure: {"cell": CellFacts | None},
    Trial: {
        "cell": CellFacts,
        "client": ClientFacts,
        "usage": TrialUsage,
        "serve_metrics": ServeMetricsFacts,
        "forward": Mapping[str, tuple[Count, Count]],
        "limits": Mapping[str, DeploymentLimits],
        "waits": WaitsFacts,
        "waterfall": WaterfallFacts,
        "profiles": list[ProfileFacts],
        "slices": ProbeSlices,
        "course": CourseFacts,
    },
}
"""What the objects of a record hold beside its figures: the store checks it, and keeps fields that
these types do not know."""
