"""Serve's own metrics around a trial, from the Prometheus endpoint of the node: what grew.

Ray exports at an interval, each process by itself, so a scrape shows how things stood some time
ago. Rule: a delta is given only where both of its ends are known to be fresh, and it is known by
counting: the requests that a deployment says it took must be those that the client sent. Where
they are not, the group reads "stale", never 0. Absent metrics are no reason for a run to fail.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

# --------------------------------------------------------------------------------------------------
# Serve's series as the node's Prometheus endpoint shows them: one scrape, parsed.
#
# Rule: an endpoint that does not answer, or not with metrics, is MetricsAbsent with one line. What
# a series means, and whether it is fresh, is told above.

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = Mapping[tuple[str, Labels], float]
"""Values by name (without `ray_serve_`) and labels, the buckets of histograms left out."""

PREFIX: Final = "ray_serve_"
SCRAPE_TIMEOUT_S: Final = 5.0
#: The node is near: no proxy of the environment may stand between.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_UNUSED: Final = frozenset({"NodeAddress", "SessionName", "Version", "Component"})


class MetricsAbsent(Exception):
    """The endpoint does not answer, or not with metrics: one line."""


def parse(text: str) -> Series:
    """Serve's series of a Prometheus text. Raises MetricsAbsent on a line that is none."""
    series: dict[tuple[str, Labels], float] = {}
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise MetricsAbsent(f"a line that is no metric: {line[:60]!r}")
        name = found[1].removeprefix(PREFIX)
        if not name.endswith("_bucket"):
            series[(name, _labels(found[2] or ""))] = float(found[3])
    return series


def _labels(text: str) -> Labels:
    pairs = ((name, _unescaped(value)) for name, value in _LABEL.findall(text))
    return tuple(
        (name, value)
        for name, value in pairs
        if name not in _UNUSED and not name.startswith("otel_")
    )


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)


def scrape(url: str) -> Series:
    """Serve's series now. Raises MetricsAbsent."""
    try:
        with _DIRECT.open(url, timeout=SCRAPE_TIMEOUT_S) as response:
            return parse(response.read().decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise MetricsAbsent(f"{url}: {reason}") from None


# --------------------------------------------------------------------------------------------------

POLL_S: Final = 0.25

#: Field of a deployment, what it is, its name in Ray 2.60. A mean is of a histogram, in its unit.
#: Ray hands histograms on by their buckets, each value as the middle of its own, so a mean is rough
#: (0.5 ms stands for anything below 1 ms).
DEPLOYMENT: Final = (
    ("requests", "counter", "deployment_request_counter_total"),
    ("errors", "counter", "deployment_error_counter_total"),
    ("processing_ms", "mean", "deployment_processing_latency_ms"),
    ("batches", "counter", "batches_processed_total"),
    ("batch_size", "mean", "actual_batch_size"),
    ("batch_wait_ms", "mean", "batch_wait_time_ms"),
    ("batch_execution_ms", "mean", "batch_execution_time_ms"),
)
#: The router stands in the proxy, or in the deployment that calls; it exports by itself.
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
STALE: Final = "stale"
EVENT_LOOP: Final = "event_loop_scheduling_latency_ms"


@dataclass
class Meter:
    """The metrics of one cell: `begin` before each load, `end` after it.

    `interval_s` is how often Ray exports. `http` is False behind HAProxy: Serve then counts only a
    part of the HTTP requests (19,845 of 27,549, Ray 2.60). `get`, `clock`, `sleep` are for tests.
    """

    url: str
    interval_s: float
    http: bool = True
    get: Callable[[str], Series] = scrape
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _before: Series = field(default_factory=dict)
    _settled: bool = False

    @property
    def patience_s(self) -> float:
        """How long an export is waited for: two intervals, and what it takes to be seen."""
        return 2 * self.interval_s + 0.5

    def begin(self) -> str | None:
        """The state before a load. Returns why there is none, else None.

        The first of a cell waits until what the deploy itself caused has been exported; later ones
        begin where the load before ended, if that end was fresh.
        """
        try:
            if not self._settled:
                self._before = self._unchanged()
                self._settled = True
        except MetricsAbsent as error:
            return str(error)
        return None

    def loaded_between(self) -> None:
        """Requests have come since the last `end`: the next `begin` waits for their export."""
        self._settled = False

    def end(self, least: int, most: int) -> dict[str, Any]:
        """What the load changed; it made `least` to `most` requests arrive at each deployment.

        `status` is "fresh" when every group is.
        """
        began = self.clock()
        try:
            after = under_load = self.get(self.url)
            while not self._fresh(after, least, most) and self.clock() - began < self.patience_s:
                self.sleep(POLL_S)
                after = self.get(self.url)
        except MetricsAbsent as error:
            self._settled = False
            return {"status": "absent", "why": str(error)}
        self._settled = self._fresh(after, least, most)
        answer = {
            "status": "fresh" if self._settled else "stale",
            "interval_s": self.interval_s,
            "waited_s": round(self.clock() - began, 2),
            **deltas(self._before, after, least, most, http=self.http),
            "levels": levels(self._before, under_load, after),
        }
        self._before = after
        return answer

    def _fresh(self, after: Series, least: int, most: int) -> bool:
        groups = deltas(self._before, after, least, most, http=self.http)
        found = [groups.get("http"), *groups["deployments"].values(), *groups["routers"].values()]
        return bool(groups["deployments"]) and STALE not in found

    def _unchanged(self) -> Series:
        """The state once no deployment has counted a request for longer than an export takes."""
        began = since = self.clock()
        state = self.get(self.url)
        while (now := self.clock()) - since < 1.2 * self.interval_s:
            if now - began > self.patience_s:
                break
            self.sleep(POLL_S)
            later = self.get(self.url)
            if _by_group(later, REQUESTS) != _by_group(state, REQUESTS):
                since = self.clock()
            state = later
        return state


def deltas(
    before: Series, after: Series, least: int, most: int, *, http: bool = True
) -> dict[str, Any]:
    """Deployments, their routers, HTTP and event loops: what grew, or "stale" for a group.

    A group is fresh when its own count of requests grew by `least` to `most`. Those that took no
    request at all are left out, but for HTTP.
    """
    found: dict[str, Any] = {
        "deployments": _groups(before, after, REQUESTS, DEPLOYMENT, least, most),
        "routers": _groups(before, after, ROUTED, ROUTER, least, most),
    }
    if http:
        grown = _grown(before, after, HTTP, {})
        found["http"] = grown if least <= grown.get("requests", -1.0) <= most else STALE
    found["event_loop_lag_ms"] = {
        component: mean
        for component in sorted(_values_of(after, f"{EVENT_LOOP}_count", "component"))
        if (mean := _mean(before, after, EVENT_LOOP, {"component": component})) is not None
    }
    return found


def _groups(
    before: Series,
    after: Series,
    counter: str,
    fields: tuple[tuple[str, str, str], ...],
    least: int,
    most: int,
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    former = _by_group(before, counter)
    for group, count in sorted(_by_group(after, counter).items()):
        grown = count - former.get(group, 0.0)
        if grown:
            where = dict(zip(("application", "deployment"), group, strict=True))
            is_fresh = least <= grown <= most
            out["#".join(group)] = _grown(before, after, fields, where) if is_fresh else STALE
    return out


def levels(before: Series, under_load: Series, after: Series) -> dict[str, Any]:
    """Gauges as exported last while the load ran, all processes together; else "stale".

    The export of a process is one of the load when its own count of requests stands between those
    before and after; a process that took none has no say in it.
    """
    counts = [_by_worker(series) for series in (before, under_load, after)]

    def during(worker: str) -> bool:
        low, now, high = (count.get(worker, 0.0) for count in counts)
        return low < now < high or low == high

    out: dict[str, Any] = {}
    for name, metric in LEVELS:
        found = list(_series(under_load, metric, {}))
        if found:
            valid = all(during(dict(labels).get(WORKER, "")) for labels, _ in found)
            out[name] = sum(value for _, value in found) if valid else STALE
    return out


def _grown(
    before: Series, after: Series, fields: tuple[tuple[str, str, str], ...], where: dict[str, str]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, kind, metric in fields:
        value = (
            _delta(before, after, metric, where)
            if kind == "counter"
            else _mean(before, after, metric, where)
        )
        if value is not None:
            found[name] = value
    return found


def _delta(before: Series, after: Series, metric: str, where: Mapping[str, str]) -> float | None:
    """By how much a counter grew, all its series together; one that restarted counts from 0."""
    found = [
        value - before.get((metric, labels), 0.0)
        if value >= before.get((metric, labels), 0.0)
        else value
        for labels, value in _series(after, metric, where)
    ]
    return sum(found) if found else None


def _mean(before: Series, after: Series, metric: str, where: Mapping[str, str]) -> float | None:
    """The mean of what a histogram took in; None if it took in nothing."""
    count = _delta(before, after, f"{metric}_count", where)
    total = _delta(before, after, f"{metric}_sum", where)
    return round(total / count, 4) if count and total is not None else None


def _series(
    series: Series, metric: str, where: Mapping[str, str]
) -> Iterator[tuple[Labels, float]]:
    for (name, labels), value in series.items():
        if name == metric and where.items() <= dict(labels).items():
            yield labels, value


def _values_of(series: Series, metric: str, label: str) -> set[str]:
    return {dict(labels).get(label, "") for labels, _ in _series(series, metric, {})}


def _by_group(series: Series, counter: str) -> dict[tuple[str, str], float]:
    """A counter by (application, deployment)."""
    out: dict[tuple[str, str], float] = {}
    for labels, value in _series(series, counter, {}):
        at = dict(labels)
        group = (at.get("application", ""), at.get("deployment", ""))
        out[group] = out.get(group, 0.0) + value
    return out


def _by_worker(series: Series) -> dict[str, float]:
    """Requests that a process counted: as a replica, or as a proxy."""
    out: dict[str, float] = {}
    for counter in (REQUESTS, "num_http_requests_total"):
        for labels, value in _series(series, counter, {}):
            worker = dict(labels).get(WORKER, "")
            out[worker] = out.get(worker, 0.0) + value
    return out
