"""What is observed during the load of a trial: processes, counts of the app, metrics, stacks.

`Inside.around(...)` wraps a load; `Observation.add_to` adds what was seen to the Trial. Rule: this
module drives no load and judges no figure. What cannot be observed is noted in the record and never
fails the trial. Serve's own metrics are read here; sampling is in sampler.py, sums are in
core/usage.py, py-spy is in profiler.py.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from serve_bench.core.facts import ProfileFacts, ServeMetricsFacts
from serve_bench.core.failed_requests import count_given_up
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load
from serve_bench.core.marks import ProcessMarks
from serve_bench.core.plan import Cell, Suite
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.core.schema import built
from serve_bench.core.traffic import Row
from serve_bench.core.usage import BATCH_SIZE, ReplicaCounts, ReplicaRequests, grown
from serve_bench.observing.profiler import Profiling, to_profile
from serve_bench.observing.sampler import Gpus, Sampler
from serve_bench.serving.server import Process, Serving
from serve_bench.store import StoreError
from serve_bench.store.files import why

# Serve's own metrics around a trial, from the Prometheus endpoint of the node: what grew.
#
# Each process of Ray exports at an interval, so a scrape shows an earlier state. Rule: a delta
# needs fresh readings at both ends. They are fresh if the requests that a deployment counted are
# those that the client sent; otherwise the group is "stale", never 0. An endpoint without an answer
# or without metrics raises MetricsAbsent with one line.

Labels: TypeAlias = tuple[tuple[str, str], ...]
MetricSeries: TypeAlias = Mapping[tuple[str, Labels], float]
"""Values by name (without `ray_serve_`) and labels, without the buckets of histograms."""

PREFIX: Final = "ray_serve_"
SCRAPE_TIMEOUT_S: Final = 5.0
#: Without the HTTP proxy of the environment: the node is near.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_UNUSED: Final = frozenset({"NodeAddress", "SessionName", "Version", "Component"})


class MetricsAbsent(Exception):
    """The endpoint does not answer, or without metrics. One line."""


def parse(text: str) -> MetricSeries:
    """Parse Serve's series of a Prometheus text. Raises MetricsAbsent on a bad line of Serve."""
    series: dict[tuple[str, Labels], float] = {}
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise MetricsAbsent(f"a line that is no metric: {line[:60]!r}")
        name = match[1].removeprefix(PREFIX)
        if not name.endswith("_bucket"):
            series[(name, _parse_labels(match[2] or ""))] = float(match[3])
    return series


def _parse_labels(text: str) -> Labels:
    return tuple(
        (name, re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), value))
        for name, value in _LABEL.findall(text)
        if name not in _UNUSED and not name.startswith("otel_")
    )


def scrape(url: str) -> MetricSeries:
    """Read Serve's series now. Raises MetricsAbsent."""
    try:
        with _DIRECT.open(url, timeout=SCRAPE_TIMEOUT_S) as response:
            return parse(response.read().decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MetricsAbsent(f"{url}: {getattr(error, 'reason', error)}") from None


POLL_S: Final = 0.25

#: Field of a deployment, its kind, its name in Ray 2.60. A mean is of a histogram, in its unit. Ray
#: exports histograms by their buckets, with the middle of the bucket for each value, so a mean is
#: rough (0.5 ms for anything below 1 ms).
DEPLOYMENT: Final = (
    ("requests", "counter", "deployment_request_counter_total"),
    ("errors", "counter", "deployment_error_counter_total"),
    ("processing_ms", "mean", "deployment_processing_latency_ms"),
    ("batches", "counter", "batches_processed_total"),
    ("batch_size", "mean", "actual_batch_size"),
    ("batch_wait_ms", "mean", "batch_wait_time_ms"),
    ("batch_execution_ms", "mean", "batch_execution_time_ms"),
    ("model_loads", "counter", "multiplexed_models_load_counter_total"),
    ("model_unloads", "counter", "multiplexed_models_unload_counter_total"),
    ("model_places", "places", "registered_multiplexed_model_id"),
)
#: The router is in the proxy or in the calling deployment, and exports by itself.
ROUTER: Final = (
    ("requests", "counter", "num_router_requests_total"),
    ("wait_ms", "mean", "request_router_fulfillment_time_ms"),
)
HTTP: Final = (
    ("requests", "counter", "num_http_requests_total"),
    ("errors", "counter", "num_http_error_requests_total"),
    ("latency_ms", "mean", "http_request_latency_ms"),
)
#: Levels, as exported last while the load ran.
LEVELS: Final = (
    ("ongoing", "replica_processing_queries"),
    ("queued", "deployment_queued_queries"),
    ("router_queue", "request_router_queue_len"),
    ("ongoing_http", "num_ongoing_http_requests"),
)
REQUESTS: Final = "deployment_request_counter_total"
ROUTED: Final = "num_router_requests_total"
WORKER: Final = "WorkerId"
GROUP: Final = ("application", "deployment")
STALE: Final = "stale"
EVENT_LOOP: Final = "event_loop_scheduling_latency_ms"
_LOOP_COUNT: Final = f"{EVENT_LOOP}_count"


@dataclass
class Meter:
    """The metrics of one cell: `begin` before each load, `end` after it.

    `http`: False behind HAProxy, where Serve counts only a part of the HTTP requests (19,845 of
    27,549, Ray 2.60). `get`, `clock`, `sleep`: for tests.
    """

    url: str
    interval_s: float  # how often Ray exports
    http: bool = True
    get: Callable[[str], MetricSeries] = scrape
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _before: MetricSeries = field(default_factory=dict)
    _settled: bool = False

    @property
    def patience_s(self) -> float:
        """The longest wait for an export: two intervals, and the time to read it."""
        return 2 * self.interval_s + 0.5

    def begin(self) -> str | None:
        """Read the state before a load. Returns the reason if there are no metrics, else None.

        The first load of a cell waits until the effects of the deploy are exported; a later one
        begins with the end of the load before, if that was fresh.
        """
        try:
            self._before = self._before if self._settled else self._wait_unchanged()
            self._settled = True
        except MetricsAbsent as error:
            return str(error)
        return None

    def loaded_between(self) -> None:
        """Note requests since the last `end`: the next `begin` waits for their export."""
        self._settled = False

    def end(self, least: int, most: int) -> dict[str, Any]:
        """Return the changes by a load that sent `least` to `most` requests to each deployment.

        `status` is "fresh" if every group is.
        """
        began = self.clock()
        try:
            after = under_load = self.get(self.url)
            while not self._is_fresh(after, least, most) and self.clock() - began < self.patience_s:
                self.sleep(POLL_S)
                after = self.get(self.url)
        except MetricsAbsent as error:
            self._settled = False
            return {"status": "absent", "why": str(error)}
        self._settled = self._is_fresh(after, least, most)
        answer = {
            "status": "fresh" if self._settled else "stale",
            "interval_s": self.interval_s,
            "waited_s": round(self.clock() - began, 2),
            **MetricsGrowth(self._before, after, least, most).groups(self.http),
            "levels": levels(self._before, under_load, after),
        }
        self._before = after
        return answer

    def _is_fresh(self, after: MetricSeries, least: int, most: int) -> bool:
        groups = MetricsGrowth(self._before, after, least, most).groups(self.http)
        parts = [groups.get("http"), *groups["deployments"].values(), *groups["routers"].values()]
        return bool(groups["deployments"]) and STALE not in parts

    def _wait_unchanged(self) -> MetricSeries:
        """Return the state once no deployment has counted a request for longer than an interval."""
        began = since = self.clock()
        state = self.get(self.url)
        while (now := self.clock()) - since < 1.2 * self.interval_s:
            if now - began > self.patience_s:
                break
            self.sleep(POLL_S)
            later = self.get(self.url)
            if _sum_by(later, (REQUESTS,), *GROUP) != _sum_by(state, (REQUESTS,), *GROUP):
                since = self.clock()
            state = later
        return state


@dataclass(frozen=True)
class MetricsGrowth:
    """The growth by a load that sent `least` to `most` requests to each deployment.

    A group is fresh if its own count of requests grew by `least` to `most`, else "stale". Groups
    without requests are left out, except HTTP.
    """

    before: MetricSeries
    after: MetricSeries
    least: int
    most: int

    def groups(self, http: bool) -> dict[str, Any]:
        """Return the growth of deployments, their routers, HTTP and event loops."""
        out: dict[str, Any] = {
            "deployments": self._get_groups(REQUESTS, DEPLOYMENT),
            "routers": self._get_groups(ROUTED, ROUTER),
        }
        if http:
            grown = self._measure_growth(HTTP, {})
            fresh = self.least <= grown.get("requests", -1.0) <= self.most
            out["http"] = grown if fresh else STALE
        loops = sorted(_sum_by(self.after, (_LOOP_COUNT,), "component"))
        lags = {loop: self._average(EVENT_LOOP, {"component": loop}) for (loop,) in loops}
        out["event_loop_lag_ms"] = {loop: lag for loop, lag in lags.items() if lag is not None}
        return out

    def _get_groups(self, counter: str, fields: tuple[tuple[str, str, str], ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        former = _sum_by(self.before, (counter,), *GROUP)
        for group, count in sorted(_sum_by(self.after, (counter,), *GROUP).items()):
            if grown := count - former.get(group, 0.0):
                where = dict(zip(GROUP, group, strict=True))
                fresh = self.least <= grown <= self.most
                out["#".join(group)] = self._measure_growth(fields, where) if fresh else STALE
        return out

    def _measure_growth(
        self, fields: tuple[tuple[str, str, str], ...], where: Mapping[str, str]
    ) -> dict[str, float]:
        kinds = {"counter": self._sum_growth, "mean": self._average, "places": self._count_places}
        values = {name: kinds[kind](metric, where) for name, kind, metric in fields}
        return {name: value for name, value in values.items() if value is not None}

    def _sum_growth(self, metric: str, where: Mapping[str, str]) -> float | None:
        """Return the growth of a counter over all its series; a restarted one counts from 0."""
        grown = []
        for labels, value in _find_series(self.after, metric, where):
            former = self.before.get((metric, labels), 0.0)
            grown.append(value - former if value >= former else value)
        return sum(grown) if grown else None

    def _average(self, metric: str, where: Mapping[str, str]) -> float | None:
        """Return the mean of the new values of a histogram; None without any."""
        count = self._sum_growth(f"{metric}_count", where)
        total = self._sum_growth(f"{metric}_sum", where)
        return round(total / count, 4) if count and total is not None else None

    def _count_places(self, metric: str, where: Mapping[str, str]) -> float | None:
        """Return the replicas that had a model by now, mean over models; None without any."""
        held = (dict(labels) for labels, _ in _find_series(self.after, metric, where))
        models = Counter(labels["model_id"] for labels in held)
        return models.total() / len(models) if models else None


def levels(before: MetricSeries, under_load: MetricSeries, after: MetricSeries) -> dict[str, Any]:
    """Sum gauges, as exported last during the load, over processes; else "stale".

    The export of a process is from the load if its own count of requests (as a replica, or as a
    proxy) lies between those before and after; a process without requests does not matter.
    """
    counters = (REQUESTS, "num_http_requests_total")
    counts = [_sum_by(series, counters, WORKER) for series in (before, under_load, after)]

    def during(worker: tuple[str, ...]) -> bool:
        low, now, high = (count.get(worker, 0.0) for count in counts)
        return low < now < high or low == high

    out: dict[str, Any] = {}
    for name, metric in LEVELS:
        if gauges := _sum_by(under_load, (metric,), WORKER):
            out[name] = sum(gauges.values()) if all(map(during, gauges)) else STALE
    return out


def _find_series(
    series: MetricSeries, metric: str, where: Mapping[str, str]
) -> Iterator[tuple[Labels, float]]:
    for (name, labels), value in series.items():
        if name == metric and where.items() <= dict(labels).items():
            yield labels, value


def _sum_by(
    series: MetricSeries, metrics: Sequence[str], *names: str
) -> dict[tuple[str, ...], float]:
    """Sum metrics by the values of these labels."""
    out: dict[tuple[str, ...], float] = defaultdict(float)
    for metric in metrics:
        for labels, value in _find_series(series, metric, {}):
            out[tuple(dict(labels).get(name, "") for name in names)] += value
    return out


def count_for_nobody(
    looks: Sequence[Mapping[str, Any]], result: LoadResult
) -> tuple[str, int, int] | None:
    """Return the deployment that finished most requests after they were given up; None if none.

    Also how many at least, and how many it finished in all, as looks inside its replicas show
    during a whole load. Nothing is known while all of them are still at work. Of what Serve counts
    as finished by the ingress those are for nobody that the client does not have. What Serve
    cancels it counts as an error, though a thread, or a handler that ignores it, works on: such
    work was followed until its end.
    """
    given_up = count_given_up(result.total.failed, result.status_codes)
    found: dict[str, tuple[int, int]] = {}
    for name in sorted({look["deployment"] for look in looks}) if given_up else ():
        replicas = [look for look in looks if look["deployment"] == name]
        keys = ("finished", "worked_on", "at_work")
        finished, over, running = (sum(look[key] for look in replicas) for key in keys)
        awaited = result.total.sent - given_up if replicas[0]["ingress"] else finished
        lost = min(given_up, over + max(0, finished - awaited))
        if lost or not running:
            found[name] = lost, finished + over
    name = max(found, key=lambda name: found[name], default="")
    return (name, *found[name]) if name else None


# Around a load.

SAMPLES_FILE: Final = "samples.jsonl"


def keep_samples(folder: Path, samples: Sequence[dict[str, Any]]) -> None:
    """Append to the run's samples.jsonl, one object per line. Raises StoreError."""
    try:
        with (folder / SAMPLES_FILE).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in samples)
    except OSError as error:
        raise StoreError(f"{folder / SAMPLES_FILE}: cannot write: {why(error)}") from None


class LoadTarget(Protocol):
    """Where a load goes: our own cluster, or a running service, of which the unseen is empty."""

    @property
    def remote(self) -> bool: ...  # on another machine
    def load_of(self, suite: Suite, row: Row, cell: Cell) -> Load: ...
    def alive(self) -> bool: ...
    def broken(self) -> str | None: ...
    def casualties(self) -> list[str]: ...
    def processes(self) -> Sequence[Process]: ...
    def counts(self) -> Mapping[int, ReplicaCounts]: ...
    def forward_ns(self) -> Mapping[int, ReplicaCounts]: ...
    def replicas(self) -> Sequence[int]: ...
    def marks(self) -> Sequence[ProcessMarks]: ...


@dataclass
class Inside:
    """What a run observes. `profile`: targets; empty means no profiled repetition."""

    folder: Path
    mark: Mapping[str, str] = field(default_factory=dict)
    sample: bool = True
    profile: tuple[str, ...] = ()
    metrics: bool = False  # wait for Serve's own metrics after each load
    children_every_s: float = 1.0  # how often later processes are looked for
    _gpus: Gpus | None = None
    _meter: Meter | None = None

    def deployed(self, serving: Serving) -> None:
        """Note that a cell is deployed, with new counters."""
        self._meter = None
        if self.metrics and serving.metrics_url is not None:
            http = all(process.role != "haproxy" for process in serving.processes())
            self._meter = Meter(serving.metrics_url, serving.spec.metrics_interval_s, http)

    def loaded_between(self) -> None:
        """Note requests that belong to no trial."""
        if self._meter is not None:
            self._meter.loaded_between()

    @contextmanager
    def around(
        self, target: LoadTarget, planned: PlannedTrial, *, profiled: bool = False
    ) -> Iterator[Observation]:
        """Observe a load, from before until after it. py-spy samples before the load begins."""
        look = Observation(self.folder, planned.key, self._meter)
        processes = target.processes() if self.sample or profiled else []
        with ExitStack() as stack:
            if profiled:
                look.profiling = Profiling(self.folder, planned.key, self.mark)
                chosen = to_profile(processes, self.profile)
                stack.enter_context(look.profiling.around(chosen))
            if self.metrics:
                absent = "this Ray names no metrics endpoint"
                reason = absent if self._meter is None else self._meter.begin()
                look.serve_metrics = {"status": "absent", "why": reason} if reason else {}
            if self.sample:
                self._gpus = self._gpus or Gpus()
                spies = look.profiling.py_spies if look.profiling is not None else ()
                # A server here that is no Serve cannot be distinguished from other programs.
                apart = bool(processes) or target.remote
                sampler = Sampler(processes, self._gpus, spies, self.children_every_s, apart)
                look.sampler = stack.enter_context(sampler)
            before, model_before = target.counts(), target.forward_ns()
            yield look
            served = grown(before, target.counts(), target.replicas())
            in_model = grown(model_before, target.forward_ns(), ())
            look.served = replace(served, forward_ns=in_model.batches)


@dataclass
class Observation:
    """The observations during one load."""

    folder: Path
    key: str
    meter: Meter | None
    sampler: Sampler | None = None
    serve_metrics: dict[str, Any] | None = None  # None: not requested
    profiling: Profiling | None = None
    served: ReplicaRequests = field(default_factory=ReplicaRequests)

    def add_to(self, trial: Trial, result: LoadResult) -> Trial:
        """Return the trial with all observations."""
        trial = replace(trial, served=self.served.by_replica, forward=self.served.forward)
        if (sizes := self.served.batch_sizes) is not None:
            trial = replace(trial, metrics={**trial.metrics, BATCH_SIZE: sizes})
        if self.sampler is not None:
            usage = self.sampler.summary(result.started_at_ns, result.duration_s)
            trial = replace(trial, usage=usage)
        if self.serve_metrics is not None:
            metrics = built(ServeMetricsFacts, self._metrics(result), "serve_metrics")
            trial = replace(trial, serve_metrics=metrics)
        if self.profiling is not None:
            profiles = built(tuple[ProfileFacts, ...], self.profiling.outcomes, "profiles")
            trial = replace(trial.flagged("profiled"), profiles=profiles)
        return trial

    def keep_samples(self) -> None:
        """Write what was read of each process. Raises StoreError."""
        if self.sampler is not None:
            keep_samples(self.folder, self.sampler.samples(self.key))

    def _metrics(self, result: LoadResult) -> dict[str, Any]:
        if self.meter is None or self.serve_metrics:
            return self.serve_metrics or {}
        total = result.total
        # A request that failed without a whole response may have arrived or not.
        unsure = total.failed_total + total.in_flight
        return self.meter.end(total.completed, total.completed + unsure)
