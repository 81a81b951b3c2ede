"""What a record holds besides its figures: facts of a host, a launch, a deploy, a load and a suite.

Each class describes a JSON object of a record; where a dataclass is such an object, it stands in
its place. A reader passes over a field that is not listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from serve_bench.core.axes import AXES
from serve_bench.core.histogram import HistogramFacts
from serve_bench.core.load_spec import LoadShape
from serve_bench.core.numbers import Amount, Connections, Count, Positive, Signed

T = TypeVar("T")

StatusCode: TypeAlias = Annotated[int, Meta(ge=0, le=999)]


CELL_KINDS: Final[Mapping[str, Any]] = {
    **{name: axis.kind for name, axis in AXES.items()},
    # of rpc and scale, and of a service that was up already
    **dict.fromkeys(("world_size", "nlayers", "out_features", "fanout", "length"), Count),
    **dict.fromkeys(("deployments", "hops"), Count),
    **dict.fromkeys(("workload", "state_size", "url"), str),
    **{"batch": bool, "policy_ms": Amount | None},
}
"""The types of what readers compute with in a cell. Options of a user's app are not among them."""


if TYPE_CHECKING:
    Maybe: TypeAlias = T | None
else:
    Maybe = Annotated[T, "What a record leaves out where it is not known; a null is refused."]


class RecordPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object of a record."""


class HostFacts(RecordPart, frozen=True, omit_defaults=False):
    """The host of a run, by `observing.host.fingerprint`. None: not reported, or no limit."""

    id: str | None = None
    cpu: str | None = None
    logical_cores: Count | None = None
    physical_cores: Count | None = None
    usable_cores: Count | None = None
    cpu_quota_cores: Amount | None = None
    memory_bytes: Count | None = None
    memory_limit_bytes: Count | None = None
    kernel: str | None = None
    machine: str | None = None
    busy_cores: Amount | None = None
    load_1m: Amount | None = None
    load_5m: Amount | None = None
    load_15m: Amount | None = None
    governor: str | None = None
    python: str | None = None
    ray: str | None = None
    tool: str | None = None
    git_commit: str | None = None


class ProcessUsage(RecordPart, frozen=True):
    """What a process used in a trial: % of one core, MB; None where readings do not show it."""

    pid: Count
    role: str
    title: str = ""
    cpu_percent: Signed | None = None
    cpu_percent_max: Signed | None = None
    seen_s: Maybe[Amount] = None
    rss_mb: Amount | None = None
    pss_mb: Amount | None = None
    private_mb: Amount | None = None
    threads: Count | None = None
    descriptors: Count | None = None
    busiest_thread: str | None = None
    busiest_thread_percent: Signed | None = None
    busiest_thread_wait_percent: Signed | None = None
    run_queue_wait_percent: Signed | None = None
    turns_per_s: Signed | None = None


class HostUsage(RecordPart, frozen=True):
    """CPU of all cores together in a trial, and what a hypervisor took."""

    cores: Maybe[Count] = None
    cpu_percent: Signed | None = None
    cpu_percent_max: Signed | None = None
    steal_percent: Signed | None = None
    throttled_percent: Amount | None = None  # periods of a CPU quota that used it up
    free_mb: Amount | None = None


class GpuProcess(RecordPart, frozen=True):
    pid: Maybe[Count] = None
    memory_mb: Amount | None = None
    use_percent: Amount | None = None


class GpuReading(RecordPart, frozen=True):
    """One look at a GPU. What it does not report is None."""

    device: Count
    use_percent: Amount | None
    memory_mb: Amount | None
    processes: tuple[GpuProcess, ...]


class GpuUsage(RecordPart, frozen=True):
    """What ran on a GPU in a trial."""

    device: Count
    use_percent: Amount | None = None
    use_percent_max: Amount | None = None
    memory_mb_max: Amount | None = None
    processes: tuple[GpuProcess, ...] = ()


class OtherProgram(RecordPart, frozen=True):
    """A program that is not of the run: its processes, the busiest of them, % of a core."""

    program: str
    pid: Count
    processes: Count
    cpu_percent: Amount


class OthersUsage(RecordPart, frozen=True):
    """What programs used that are not of the run; `typical_percent`: the median over time."""

    typical_percent: Amount | None
    programs: tuple[OtherProgram, ...]


class TrialUsage(RecordPart, frozen=True):
    """What the host, its processes and its GPUs used in a trial: usage.py."""

    interval_s: Amount | None = None  # mean distance of the readings
    own_cpu_percent: Signed | None = None  # of the sampling itself
    host: HostUsage = HostUsage()
    processes: tuple[ProcessUsage, ...] = ()
    others: Maybe[OthersUsage] = None
    gpus: tuple[GpuUsage, ...] = ()


@dataclass(frozen=True)
class Counts:
    """The accounting of some requests: those of the windows, or all within a stretch of the load.

    Always: carried_in + sent == completed + sum(failed) + in_flight. `sent` counts requests
    begun, also one whose connection could not be made. `carried_in` were in flight when the stretch
    began, `in_flight` are so at its end. `unsent` were due (open loop) and still waited for a free
    connection at its end. Requests of the windows are followed to the end of the drain: those that
    are in flight then are unanswered, and none is carried in.
    """

    sent: Count
    completed: Count
    failed: Mapping[str, Count]
    in_flight: Count
    carried_in: Count = 0
    unsent: Count = 0

    @property
    def failed_total(self) -> int:
        """All failures, of any class."""
        return sum(self.failed.values())

    @property
    def balanced(self) -> bool:
        """Whether the identity above holds."""
        return self.carried_in + self.sent == self.completed + self.failed_total + self.in_flight


@dataclass(frozen=True)
class Warmup:
    """The load before the first window."""

    seconds: Amount
    steady: bool  # whether the rate had settled
    completed: Count
    judged: bool | None = None  # whether requests sufficed to judge; None: fixed length or end


@dataclass(frozen=True)
class WorkerReport:
    """One worker process over the measured part.

    `non_idle`: (running + waiting for a CPU) / wall, of the thread that sends and receives.
    `run_queue_wait`: the waiting part alone. None where the kernel has no schedstat.
    """

    pid: Count
    connections: Connections
    cpu_s: Amount
    non_idle: Amount | None
    run_queue_wait: Amount | None
    max_rss_mb: Amount
    timer: str


@dataclass(frozen=True)
class ClientVerdict:
    """Whether the client, not the server, set the figures; and the evidence.

    Means over the requests; None where they cannot be measured (gRPC, handles, TLS)."""

    client_bound: bool
    reasons: tuple[str, ...]
    non_idle: Amount | None = None
    run_queue_wait: Amount | None = None
    pickup_p50_ns: Count | None = None
    latency_p50_ns: Count | None = None
    added_ns: Amount | None = None  # by the client to the latency, without waits for a connection
    mean_latency_ns: Amount | None = None  # of that latency


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of some requests, as their service counts them."""

    requests: Count
    prompt: Count
    answer: Count


class PortOwner(RecordPart, frozen=True):
    """The process that listens on the HTTP port."""

    name: str
    role: str


class NodeProxy(RecordPart, frozen=True):
    """A node of a cluster that is alive, and its HTTP proxy."""

    node_id: str
    node_ip: str
    status: str  # as Serve calls it, "NONE" without one
    hostname: str = ""
    host: str = ""  # where it listens
    port: Count = 0
    pid: Count | None = None  # of its actor, on its node
    why: str | None = None  # a remark on it, in a line
    shared_with: tuple[str, ...] = ()  # nodes at the same address: the kernel deals out connections

    @property
    def healthy(self) -> bool:
        """Whether Serve calls it healthy; `shared_with` says whether it can be reached alone."""
        return self.status == "HEALTHY"

    @property
    def url(self) -> str:
        """Its address as seen from its own node, without a path."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class AppSources(RecordPart, frozen=True):
    """The code of a user's app: serving/cluster/measured.py."""

    commit: str = ""
    changes: Count = 0  # files that differ from the commit
    sources: str = ""  # a hash of the modules that Python imports of it


class LaunchProof(RecordPart, frozen=True):
    """What readers use of the proof of a launch: proof.py. Flags, environment: by role and name."""

    port: Count | None = None
    port_owner: PortOwner | UnsetType | None = UNSET  # None: nobody listens; UNSET: no HTTP
    flags: Mapping[str, Mapping[str, Any]] = {}
    environment: Mapping[str, Mapping[str, str | None]] = {}
    versions: Mapping[str, str | None] = {}
    proxies: tuple[NodeProxy, ...] = ()
    app: AppSources = AppSources()
    packages: tuple[str, ...] = ()  # name==version


class SettledFacts(RecordPart, frozen=True):
    """What one client saw after a deploy, until it was served steadily (`plan.settled_of`)."""

    seconds: Maybe[Amount] = None
    steady: bool = False
    judged: bool | None = None
    completed: Count = 0
    failed: Count = 0
    p50_ns: Count | None = None
    error: str = ""

    @property
    def settled(self) -> bool:
        """Whether one client was served steadily, or was served but too slowly to judge that."""
        return self.p50_ns is not None if self.judged is False else self.steady


class LastHeard(RecordPart, frozen=True):
    """The last report of a node that was lost."""

    completed: Count
    failed: Count
    age_s: Amount


class NodeFacts(RecordPart, frozen=True, kw_only=True):
    """A node's share of a load (`nodes.node_fact`). Times in ns, rates in 1/s."""

    node: str
    ip: str
    hostname: str
    url: str
    client: str
    connections: Connections
    seconds: Amount
    completed: Count
    failed: Mapping[str, Count]
    rate: Amount
    connection_rate_mean: Amount | None = None
    connection_rate_max: Amount | None = None
    bytes_received: Count | None = None
    latency_ns: Mapping[str, Amount | None]
    latency_lower_bounds: tuple[str, ...] = ()
    lost: str | None = None
    last_heard: Maybe[LastHeard] = None
    client_bound: bool | None = None
    usage: TrialUsage | None = None


class RequestFacts(RecordPart, frozen=True):
    """The request of a load: how many paths and sets of headers it has, not which."""

    url: str = ""
    method: str = ""
    paths: Count = 0
    header_sets: Count = 0


@dataclass(frozen=True, kw_only=True)
class LoadFacts(LoadShape):
    """The load that was requested."""

    request: RequestFacts = field(default_factory=RequestFacts)


SliceMethod: TypeAlias = Literal["slices", "windows"]


class SlicesFacts(RecordPart, frozen=True, kw_only=True):
    """How the row of a side was loaded in turn with the other, and each of its slices."""

    method: SliceMethod
    slice_s: Amount
    connections: Connections
    chosen_drain_s: Amount
    why: str
    drain_s: Amount
    seed: Maybe[Signed] = None
    begun_s: tuple[Amount, ...]
    length_s: tuple[Amount, ...]
    completed: tuple[Count, ...]
    failed: tuple[Count, ...]
    requests: Maybe[Count] = None
    cpu_s: Mapping[str, Amount] = {}
    idle_cores: Mapping[str, Signed] = {}
    idle_all_cores: Maybe[Signed] = None


class ClientFacts(RecordPart, frozen=True):
    """What the client of a trial reports besides its figures.

    Which fields there are depends on the client: a load, slices of `versus`, rpc. `in_windows` is
    the account of what happened within the windows, while `Trial.counts` follows each request of
    the windows to its end."""

    verdict: Maybe[ClientVerdict] = None
    workers: tuple[WorkerReport, ...] = ()
    status_codes: Mapping[StatusCode, Count] = {}
    bytes_received: Count | None = None
    retried: Count = 0
    reconnects: Count = 0
    total: Maybe[Counts] = None  # the whole load, with warm-up and drain
    notes: tuple[str, ...] = ()
    in_windows: Maybe[Counts] = None
    mean_in_flight: Amount | None = None  # requests, mean over the windows
    busy_s: Maybe[Amount] = None  # time in flight of all requests within the windows
    drained: Count = 0  # requests that ended after the windows: lower bounds of latency
    stretched: str = ""  # how windows differ from those asked for, in words
    bare: Count = 0  # streams that ended with `[DONE]` without `data:`
    seen: Mapping[str, str] = {}  # of failed requests, by class or unexpected status
    waited: Maybe[Count] = None  # requests due while no connection was free (open loop)
    events: Count = 0  # of streams, within the windows
    merged: Count = 0  # of these, in the same read as the one before
    tokens: Maybe[TokenCounts] = None  # of requests completed in windows, where counted
    nodes: tuple[NodeFacts, ...] = ()  # the share of each, where several loaded (nodes.py)
    skew_s: Signed | None = None  # no two of them began to measure further apart
    asked: LoadFacts = LoadFacts()
    slices: Maybe[SlicesFacts] = None
    batch_size: Maybe[Count] = None
    agent_pid: Maybe[Count] = None
    observer_pids: tuple[Count, ...] = ()
    processes: Maybe[Count] = None
    memory_bytes: Count | None = None
    policy: str = ""
    versions: Mapping[str, str | None] = {}
    raw: str = ""


class DeploymentLimits(RecordPart, frozen=True):
    """Limits of a deployment, and how Serve scaled it."""

    replicas: Count
    each: Count  # requests that a replica takes at once
    queued: Maybe[Signed] = None  # requests that may wait; -1: any number
    most: Maybe[Count] = None  # replicas to which Serve scales it
    ran: tuple[Count, ...] = ()  # replicas within the windows, in order
    wanted: Count = 0  # replicas that Serve wanted at their end


Place: TypeAlias = tuple[str, str, str, Amount]
"""What, line, function, and the mean number of requests there."""


class PoolFacts(RecordPart, frozen=True):
    """A pool of threads in a replica. `num_cpus`: of the replica, where Serve made the pool."""

    threads: Count
    full: Amount
    num_cpus: Amount | None = None


class BatchQueueFacts(RecordPart, frozen=True):
    """A queue of `serve.batch` in a replica."""

    most: Count
    wait_s: Amount
    waiting: Amount
    running: Amount
    held: Amount
    ended: str = ""  # the error that ended its loop


class CallFacts(RecordPart, frozen=True):
    """Calls of a deployment per request: how many, and how many of them at once."""

    a_request: Amount
    at_once: Amount


class ReplicaWaits(RecordPart, frozen=True, kw_only=True):
    """What requests in a replica waited in: serving/cluster/look.py.

    Numbers are means over the looks, shares are of the looks."""

    pid: Count
    app: str
    deployment: str
    looks: Count
    max_ongoing: Count | None = None  # requests that it takes at once
    ongoing: Amount
    served: Count
    mean_ms: Amount | None = None
    places: tuple[Place, ...] = ()
    own: tuple[Place, ...] = ()  # tasks of the app that are no request
    threads: tuple[Place, ...] = ()
    loop: tuple[tuple[str, Amount], ...] = ()  # line of the app in which its loop is, and how often
    pools: Mapping[str, PoolFacts] = {}
    batches: Mapping[str, BatchQueueFacts] = {}
    calls: Maybe[CallFacts] = None  # of its deployment by a request

    @property
    def name(self) -> str:
        """Its deployment with the app, "app:Name", as in the title of its process."""
        return f"{self.app}:{self.deployment}"


class WaitsFacts(RecordPart, frozen=True):
    """A further load, looked at from inside the replicas: runner/extra_loads.py."""

    why_not: str = ""
    seconds: Maybe[Amount] = None
    rate: Maybe[Amount] = None
    p50_ms: Amount | None = None
    alone_p50_ms: Amount | None = None
    for_nobody: tuple[str, Count, Count] | None = None  # deployment, given up, finished in all
    replicas: tuple[ReplicaWaits, ...] = ()


Group: TypeAlias = Mapping[str, Signed] | Literal["stale"]


class TrialFlags(RecordPart, frozen=True):
    """How a trial was measured, where that limits its use."""

    profiled: bool = False  # with a profiler attached: in no mean and no comparison
    cut: bool = False  # time ended its requests
    interrupted: bool = False
    unsettled: bool = False
    invalid: bool = False
    short_slices: bool = False
    way_changed: bool = False
    fitted: bool = False  # it stands for several trials, and is none


class TrialSeconds(RecordPart, frozen=True):
    """How long the parts of a trial took."""

    total: Amount = 0.0
    measured: Amount = 0.0
    connect: Maybe[Amount] = None  # with the start of the workers
    connecting: Amount = 0.0  # without it
    warmup: Amount = 0.0
    world: Amount = 0.0  # of rpc, until its processes were there


class ServeMetricsFacts(RecordPart, frozen=True):
    """What Serve's own metrics grew by: observing/inside.py."""

    status: str = ""
    why: str = ""
    interval_s: Maybe[Amount] = None
    waited_s: Maybe[Amount] = None
    deployments: Mapping[str, Group] = {}
    routers: Mapping[str, Group] = {}
    http: Maybe[Group] = None
    event_loop_lag_ms: Mapping[str, Signed] = {}
    levels: Mapping[str, Signed | Literal["stale"]] = {}


class TracedCall(RecordPart, frozen=True):
    """A call that a traced request made, with those below: analysis/waterfall.py."""

    deployment: str
    total_ns: Count
    spans: tuple[tuple[str, Count, Count], ...]  # hop, begin since the request was due, length; ns
    calls: tuple[TracedCall, ...]


class TracedRequestFacts(TracedCall, frozen=True):
    trace: str
    due_unix_ns: Count


class HopTimes(RecordPart, frozen=True, omit_defaults=False):
    """Times of traced requests in one hop, ns. `tail`: the mean of the slowest requests."""

    mean: Count = 0
    p50: Count = 0
    p99: Count = 0
    tail: Count = 0


class WaterfallFacts(RecordPart, frozen=True):
    """Where the time of traced requests went. `failed`: how many, by hop."""

    traced: Count = 0
    unseen: Count = 0
    failed: Mapping[str, Count] = {}
    cut: Count = 0
    lost_marks: Count = 0
    total: HopTimes = HopTimes()
    hops: Mapping[str, HopTimes] = {}
    haproxy_ms: Mapping[str, Amount] = {}
    timers: Mapping[str, Positive] = {}
    requests: tuple[TracedRequestFacts, ...] = ()


class ProfileFacts(RecordPart, frozen=True):
    """The stacks of a process, or why there are none. `path` is relative to the run's folder."""

    pid: Count
    role: str
    title: str
    path: str = ""
    samples: Maybe[Count] = None
    errors: Maybe[Count] = None
    seconds: Maybe[Amount] = None
    rate: Maybe[Count] = None
    notes: tuple[str, ...] = ()
    failed: str | UnsetType = UNSET


class SliceCounts(RecordPart, frozen=True):
    """Requests of each slice of a probe, by when they were due, and what they did to a bound."""

    of: tuple[Amount, ...]  # those of the bound
    bad: tuple[Amount, ...]  # those that violate it; of a mean: their ns

    @property
    def value(self) -> float | None:
        """What the bound limits, over the whole probe; None without requests."""
        of = math.fsum(self.of)
        return math.fsum(self.bad) / of if of else None


class ProbeSlices(RecordPart, frozen=True):
    """What the bounds of a probe count, in slices of time by when requests were due."""

    slice_s: Maybe[Positive] = None
    began_s: Amount = 0.0
    bounds: Mapping[str, SliceCounts] = {}


class ReplicaChange(RecordPart, frozen=True):
    """What Serve says of the replicas of a deployment from a moment on."""

    at_s: Signed
    deployment: str
    wanted: Count | None
    starting: Count
    running: Count
    draining: Count
    pids: tuple[Count, ...] = ()


class LifeFacts(RecordPart, frozen=True):
    """When a process came and went; None: before the first, after the last reading."""

    pid: Count
    role: str
    title: str
    from_s: Signed | None
    to_s: Signed | None


class FaultFacts(RecordPart, frozen=True):
    """A fault of a timeline."""

    fault: str
    text: str = ""
    at_s: Amount | None = None
    done_s: Amount | None = None  # when it was over: a deploy in force, a stopped process resumed
    pid: Count | None = None
    why_not: str = ""


class CourseFacts(RecordPart, frozen=True):
    """A load second by second: analysis/course.py."""

    due: tuple[Count, ...] = ()
    sent: tuple[Count, ...] = ()
    answered: tuple[Count, ...] = ()
    ended: tuple[Count, ...] = ()
    waiting: tuple[Count, ...] = ()
    failed: Mapping[str, tuple[Count, ...]] = {}
    latency: tuple[HistogramFacts | None, ...] = ()
    lost: tuple[tuple[Signed, Signed | None, str], ...] = ()
    losses: Maybe[Count] = None
    cpu: Mapping[str, tuple[Amount | None, ...]] = {}
    lives: tuple[LifeFacts, ...] = ()
    changes: tuple[ReplicaChange, ...] = ()
    faults: tuple[FaultFacts, ...] = ()
    after_s: Amount = 0.0
    why_not: str = ""
