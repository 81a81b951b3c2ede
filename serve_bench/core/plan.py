"""Suite to plan, planned row to load, result of a load to the record of a trial. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar, cast

from serve_bench.core.app_spec import AppSpec, app_from_json
from serve_bench.core.axes import AXES, Value
from serve_bench.core.capacity import CapacitySearch
from serve_bench.core.errors import BadInput
from serve_bench.core.facts import SettledFacts, TrialFlags, TrialSeconds
from serve_bench.core.histogram import Histogram
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import FAILED_LATENCY, HISTOGRAMS, LoadResult
from serve_bench.core.load_spec import (
    CLIENTS,
    HANDLE,
    ROWS,
    Client,
    Load,
    LoadOn,
    Streaming,
    Timing,
    make_row,
    read_client,
)
from serve_bench.core.redaction import hide_settings
from serve_bench.core.request_spec import Request
from serve_bench.core.result import JsonObject, Metric, PlannedTrial, Trial, VariantUsed, trial_key
from serve_bench.core.row_places import PlacedRow
from serve_bench.core.schema import plain, stored_suite
from serve_bench.core.soak import SoakSpec, block_rows
from serve_bench.core.timeline import Timeline
from serve_bench.core.traffic import Protocol, Row, Traffic, body_bytes, size_text

# Suite and plan: what is to be measured, and in which order.
#
# A suite comes from suite.py; `plan` spreads it into launches, cells and rows, grouped so that no
# cluster starts twice for nothing. Pure: nothing here reads a file or starts anything.

T = TypeVar("T")

Cell = Mapping[str, Value]


@dataclass(frozen=True)
class Suite:
    """What a command measures. Seconds are wall-clock."""

    name: str
    app: AppSpec
    variants: tuple[VariantUsed, ...]
    cells: tuple[Cell, ...]  # complete: every axis set
    rows: tuple[Row, ...]
    windows: int = 10
    window_s: float = 1.0
    warmup_min_s: float = 0.5
    warmup_max_s: float = 3.0
    launches: int = 1  # clusters per variant; each measures the whole matrix
    seed: int = 1
    requests: int | None = None  # end of each trial, in place of its windows
    ladder: Ladder | None = None  # rows that grow, in place of `rows`
    requests_per_client: int | None = None  # ends a step of the ladder, instead of its windows
    max_row_s: float = 60.0  # where requests end a step: its longest time
    timeout_s: float = 30.0  # of a request
    slo: str | None = None  # as it is written on a command line
    capacity: CapacitySearch | None = None  # open-loop probes, in place of further rows
    soak: SoakSpec | None = None  # its one row is loaded in blocks
    streaming: Streaming | None = None  # how the responses of rows of streams are read
    places: tuple[PlacedRow, ...] | None = None  # which rows are of which cells; None: all of all
    timeline: Timeline | None = None  # an open loop in stages, in place of rows
    quick: bool = False  # drains and looks at waits have bounds, stretched windows a lower one
    load_on: LoadOn | None = None  # nodes of a Ray cluster that the load comes from
    #: The request to each service that is up already, by variant; empty: the app is launched.
    services: Mapping[str, Request] = field(default_factory=dict)
    #: The keys of a suite file that makes it; none where no file can.
    keys: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def rows_in(self, cell: Cell) -> tuple[Row, ...]:
        """List the rows of a cell that are known beforehand."""
        if self.soak is not None:
            return block_rows(self.soak, self.rows[0])
        if self.places is None:
            return rows_of(self)
        return tuple(
            row for row in self.rows if any(place.holds(row.label, cell) for place in self.places)
        )

    def windows_of(self, row: Row) -> tuple[int, float]:
        """Return how many windows a row has, and their length in seconds."""
        count, length = self.windows, self.window_s
        for place in self.places or ():
            if place.row == row.label:
                count, length = place.windows or count, place.window_s or length
        return count, length

    def to_json(self) -> dict[str, Any]:
        """Return plain content for the Run record: of services their addresses alone."""
        content = {**vars(self), "app": self.app.to_json()}
        del content["keys"]
        if services := content.pop("services"):
            for name in ("app", "variants", "cells"):
                del content[name]
            content["urls"] = {name: request.url for name, request in services.items()}
        return plain(content)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Suite:
        """Reverse `to_json`, to resume a stored run. Raises BadInput."""
        suite = stored_suite(cls, data, app=app_from_json)
        for number, cell in enumerate(suite.cells):
            if suite.app.own_app is None and "num_replicas" not in cell:
                where = f"suite.cells[{number}].num_replicas is missing"
                raise BadInput(f"the stored suite cannot be resumed: {where}")
        return suite


PlannedCell: TypeAlias = tuple[Cell, tuple[PlannedTrial, ...]]
"""A cell, and the trials to measure on it in their order."""


@dataclass(frozen=True)
class LaunchPlan:
    """One cluster to start, and the trials to measure on it, by cell in the order to be run."""

    variant: VariantUsed
    round: int
    cells: tuple[PlannedCell, ...]


def parse_row(text: object, traffic: Traffic, where: str, sized: bool = False) -> Row:
    """Parse `8` (aiohttp clients) or `raw:100` (connections of the raw client). Raises BadInput.

    `sized`: rows differ in the size of the request's body, so it is in the name."""
    try:
        client, count = read_client(str(text))
    except ValueError:
        raise BadInput(f"{where}: {text!r} is not allowed; it takes {ROWS}") from None
    if client == "aiohttp":
        label = "single client" if count == 1 else f"{count} clients"
        if traffic.protocol != "http":
            alone = f"the aiohttp client speaks plain HTTP alone; give raw:{count}"
            raise BadInput(f"{where}: {text!r}: {alone}, or --protocol http")
    else:
        client, noun = traffic.client, "caller" if traffic.client == HANDLE else "connection"
        label = f"{count} {noun}{'' if count == 1 else 's'}"
    if sized and not traffic.echoes:  # which says the size itself
        label += f", request of {size_text(body_bytes(traffic.data_size))}"
    return Row(label + traffic.suffix, client, count, **vars(traffic))


def orders(count: int, items: Sequence[T], seed: int) -> Iterator[tuple[int, list[T]]]:
    """Yield each round with its order of the items, so that each comes as often early as late.

    The first order is as given, every second reverses the one before, the others are drawn."""
    order = list(items)
    for number in range(1, count + 1):
        if number % 2 == 0:
            order = order[::-1]
        elif number > 1:
            order = list(items)
            random.Random(seed * 1000 + number).shuffle(order)
        yield number, order


def plan_trial(
    name: str, number: int, label: JsonObject, row: Row, key: str | None = None
) -> PlannedTrial:
    """Plan the trial of a row of a cell in a round, on a variant, side or layer.

    `key`: what stands for the row in the trial's key, where that is not its label."""
    return PlannedTrial(trial_key(name, number, label, key or row.label), number, name, label, row)


def plan(suite: Suite) -> tuple[LaunchPlan, ...]:
    """List the launches in order; a drift of the machine meets all variants, which alternate."""
    cells = [(cell, label_of(cell), suite.rows_in(cell)) for cell in suite.cells]
    return plan_launches(suite.launches, suite.variants, cells, suite.seed)


def plan_launches(
    count: int,
    variants: Sequence[VariantUsed],
    cells: Sequence[tuple[Cell, JsonObject, Sequence[Row]]],
    seed: int,
    key: Callable[[Row], str] = attrgetter("label"),
) -> tuple[LaunchPlan, ...]:
    """List `count` launches of each variant in order, alternating within a round.

    `cells`: each with its label and its rows; `key`: what stands for a row in keys of trials."""
    launches = []
    for round_, ordered in orders(count, cells, seed):
        for variant in variants:
            planned = (
                (
                    cell,
                    tuple(plan_trial(variant.name, round_, label, row, key(row)) for row in rows),
                )
                for cell, label, rows in ordered
            )
            launches.append(LaunchPlan(variant, round_, tuple(planned)))
    return tuple(launches)


def rows_of(suite: Suite) -> tuple[Row, ...]:
    """List the rows that are known beforehand: of a ladder that grows by itself, its first step."""
    if suite.ladder is None:
        return suite.rows
    ladder, requests = suite.ladder, suite.requests_per_client
    return tuple(step_row(users, requests, traffic=ladder.traffic) for users in ladder.known)


def step_row(
    users: int, requests: int | None = None, run: int = 1, traffic: Traffic | None = None
) -> Row:
    """Make the row of a step of a ladder: `users` in a closed loop, each a raw connection.

    They are called clients where each makes a number of `requests`. `run` counts how often the step
    is measured; `traffic` None: plain HTTP."""
    noun = "user" if requests is None else "client"
    row = make_row(users, noun, traffic, requests_each=requests, run=run)
    return row if run == 1 else replace(row, label=f"{row.label}, run {run}")


#: The three axes of the published matrix, in its order: every cell is named by them.
PUBLISHED_AXES: Final = ("max_batch_size", "max_ongoing_requests", "num_replicas")


def label_of(cell: Cell) -> dict[str, Value]:
    """Return a cell as it is recorded.

    It has the published axes, those that always name it, what differs from its default, then the
    options of a user's app."""
    label = {name: cell[name] for name in PUBLISHED_AXES if name in cell}
    for name, axis in AXES.items():
        if name in cell and name not in label and (axis.named or cell[name] != axis.default):
            label[name] = cell[name]
    return label | {name: hide_settings(value) for name, value in cell.items() if name not in AXES}


def list_trials(launches: Iterable[LaunchPlan]) -> list[PlannedTrial]:
    """List the trials of these launches in their order."""
    return [trial for launch in launches for _, trials in launch.cells for trial in trials]


def without(launches: Iterable[LaunchPlan], done: Iterable[str]) -> tuple[LaunchPlan, ...]:
    """Remove the trials with these keys, which are measured, from a plan."""
    finished = set(done)
    left = []
    for launch in launches:
        cells = [
            (cell, tuple(trial for trial in trials if trial.key not in finished))
            for cell, trials in launch.cells
        ]
        cells = [(cell, trials) for cell, trials in cells if trials]
        if cells:
            left.append(replace(launch, cells=tuple(cells)))
    return tuple(left)


#: Seconds of what is not measuring, as measured on a host with 2 cores: a start of Ray and Serve,
#: the first deploy, a change in place, one more replica, what a trial costs besides its windows and
#: its warm-up (a look included), and what a model adds to a replica. They serve estimates alone.
LAUNCH_S: Final = 7.5
FIRST_DEPLOY_S: Final = 2.5
CHANGE_S: Final = 0.8
REPLICA_S: Final = 0.9
TRIAL_S: Final = 1.1
CUT_S: Final = 4.0  # after a row that was cut off, until the service is as it was
A_RATE: Final = 500.0  # requests/s of a service that nothing is known of yet: a proxy of Serve
MODEL_S: Final = 4.0  # a ranker with 665 MB of tables: import of torch, weights, first batch


def expected_trial_s(suite: Suite, row: Row | None = None, rate: float = A_RATE) -> float:
    """Estimate the seconds of a trial; of a suite of requests the mean, where no row is named.

    `rate`: what the service is assumed to serve (requests/s), where requests end a row."""
    if suite.requests_per_client is None:
        measured_s = suite.windows * suite.window_s
        if suite.requests is not None:
            measured_s = suite.requests / ((row and row.rate_per_s) or rate)
        elif row is not None:
            measured_s = timing_of(suite, row).fitted(row.connections / A_RATE).measured_s
        return suite.warmup_min_s + measured_s + TRIAL_S
    rows = [row] if row is not None else rows_of(suite)
    seconds = [(row.requests or 0) / rate for row in rows]
    seconds = [row_s if row_s < suite.max_row_s else suite.max_row_s + CUT_S for row_s in seconds]
    return sum(seconds) / max(1, len(seconds)) + TRIAL_S


def setup_s(suite: Suite, launches: Iterable[LaunchPlan]) -> float:
    """Estimate the seconds to start these launches and to deploy their cells."""
    total = 0.0
    for launch in launches if not suite.services else ():
        total += LAUNCH_S + FIRST_DEPLOY_S
        replicas, rankers, kind = 1, 0, None
        for cell, _ in launch.cells:
            if cell.get("ranker") != kind:  # another model: all replicas start anew
                replicas, rankers, kind = 0, 0, cell.get("ranker")
            now = suite.app.replicas(cell)
            total += CHANGE_S + REPLICA_S * max(0, now - replicas)
            if kind is not None:
                total += MODEL_S * max(0, int(cell["num_replicas"]) - rankers)
                rankers = int(cell["num_replicas"])
            replicas = now
    return total


def duration_text(seconds: float) -> str:
    """Format seconds in two units: `2 min 5 s`, `7 d 3 h`."""
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts or unit == "s":
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


# From a row to the load that it asks for, and from what a load measured to the record of a trial.
#
# Pure: nothing here drives anything.

#: Longest time to connect; and to join a Ray cluster as a driver, which imports Ray first.
CONNECT_S: Final = 5.0
JOIN_S: Final = 60.0

#: A load by count ends with its last response; this bounds one against a server that hangs.
LONGEST_QUERY_S = 30.0

#: What bodies of an app are; FastAPI takes no others for JSON.
JSON: Final = (("content-type", "application/json"),)

#: How long a row that was cut off waits for the responses to what it had sent.
CUT_DRAIN_S: Final = 2.0


def load_of(suite: Suite, row: Row, url: str, cell: Cell) -> Load:
    """Build the load of a row on a cell, for a server at `url` (without a path).

    The address is that of the server's gRPC for a row of gRPC, of the GCS for one of a handle."""
    return load_with(request_of(suite.app, row, url, cell), suite, row)


def load_with(request: Request, suite: Suite, row: Row) -> Load:
    """Build the load of a row from its request."""
    return Load(
        request,
        client=client_of(row),
        connections=row.connections,
        processes=row.processes,
        count=suite.requests,
        each=row.requests_each,
        timeout_s=suite.timeout_s,
        connect_timeout_s=JOIN_S if row.client == HANDLE else CONNECT_S,
        streaming=(suite.streaming or Streaming()) if row.traffic.streams else None,
    )


def client_of(row: Row) -> Client:
    """Return which client makes the requests of a row."""
    return cast(Client, row.client) if row.client in CLIENTS else "raw"


def query_of(row: Row) -> str:
    """Write what a row wants of the no-op app as a query string; empty where it wants nothing."""
    size, echo = body_bytes(row.response_size), int(row.traffic.echoes)
    asked = {"events": row.stream_events, "bytes": size, "echo": echo}
    return "&".join(f"{name}={value}" for name, value in asked.items() if value)


def request_of(app: AppSpec, row: Row, url: str, cell: Cell) -> Request:
    """Build the request of a row to an app at `url`, with the response to expect."""
    if app.own_app is not None:
        return app.own_app.request(url)
    size = body_bytes(row.data_size)
    if row.traffic.client in ("grpc", HANDLE):
        return call_request(url, row, size)
    bodies = app.bodies(cell) if app.bodies is not None else ()
    query, body = query_of(row), b"a" * size
    answer = app.answer if row.protocol == "http" and not query else None
    return Request(
        url=f"{url}{app.route}{'?' if query else ''}{query}",
        method="POST" if size or bodies else "GET",
        headers=JSON if bodies else (),
        body=body,
        bodies=bodies,
        expect_status=(200,),
        expect_body=_expect_echo(row, body) or answer,
        paths=app.paths,
    )


#: The service of the no-op app, and the application that Serve leads a call to.
GRPC_SERVICE: Final = "/serve_bench.NoOp"
APPLICATION: Final = "noop"
GRPC_APPLICATION: Final = (("application", APPLICATION),)


def call_request(url: str, row: Row, size: int) -> Request:
    """Build a call of the no-op app, by gRPC or a handle.

    The message is the parameters as in a query string, then zeros up to `size` bytes; gRPC wraps it
    in a BytesValue."""
    message = query_of(row).encode().ljust(size, b"\0")
    compared = not row.traffic.streams and not body_bytes(row.response_size)
    expected = _expect_echo(row, message) or (
        b"ok" if compared and not row.traffic.echoes else None
    )
    streams, handle = row.traffic.streams, row.traffic.client == HANDLE
    if handle:
        path = f"/{APPLICATION}/{'events' if streams else 'answer'}"
    else:
        path = f"{GRPC_SERVICE}/{'Stream' if streams else 'Call'}"
        message = bytes_value(message)
        expected = None if expected is None else bytes_value(expected)
    return Request(
        url=f"{url}{path}",
        method="POST",
        headers=() if handle else GRPC_APPLICATION,
        body=message,
        expect_body=expected,
    )


#: A longer body has its length checked, as each has; comparing it would cost more than reading it.
_COMPARED_BYTES: Final = 1 << 16


def _expect_echo(row: Row, body: bytes) -> bytes | None:
    """Return the response of an app that echoes; None where it is not compared."""
    alone = row.traffic.echoes and not row.traffic.streams
    return body if alone and len(body) <= _COMPARED_BYTES else None


def bytes_value(content: bytes) -> bytes:
    """Encode a `google.protobuf.BytesValue` [Protocol Buffers]: field 1, its length, the bytes."""
    length, sizes = len(content), b""
    while length > 127:
        sizes += bytes([length & 127 | 128])
        length >>= 7
    return b"\x0a" + sizes + bytes([length]) + content if content else b""


def timing_of(suite: Suite, row: Row) -> Timing:
    """Return the warm-up and windows of a row: the suite's, which may be stretched.

    A number of requests is one window, as long as it takes, or as `max_row_s` cuts it off."""
    if row.requests_each is not None:
        return Timing(0.0, 0.0, windows=1, window_s=suite.max_row_s, drain_s=CUT_DRAIN_S)
    if suite.requests is not None:
        return Timing(0.0, 0.0, windows=1, window_s=LONGEST_QUERY_S * suite.requests)
    timing = Timing(suite.warmup_min_s, suite.warmup_max_s, *suite.windows_of(row))
    return timing.stretchable(suite.quick)


def settled_of(result: LoadResult) -> SettledFacts:
    """Return what settling found, for the record of a deploy."""
    return SettledFacts(
        seconds=round(result.warmup.seconds + result.duration_s, 4),
        steady=result.warmup.steady,
        judged=result.warmup.judged,
        completed=result.total.completed,
        failed=result.total.failed_total,
        p50_ns=result.latency.percentile(0.5),
    )


def trial_of(
    planned: PlannedTrial, launch: str, started_at: str, result: LoadResult, total_s: float
) -> Trial:
    """Make the record of a load that was driven in `total_s` seconds, start to end.

    Of a row with requests per client the rate is that of the press test: connecting counts."""
    window_s = result.window_s if result.windows else result.duration_s
    throughput = result.rates
    flags = TrialFlags()
    if planned.row.requests is not None:
        whole_s = result.connecting_s + result.duration_s
        throughput = (result.completed_in_windows / whole_s if whole_s > 0 else 0.0,)
        flags = TrialFlags(cut=result.ended_in_windows < planned.row.requests)
    metrics = {"throughput": Metric("requests/s", "higher", windows=throughput)}
    if planned.row.traffic.streams:
        events = tuple(count / window_s for count in result.event_windows)
        events = events or (result.events / result.duration_s if result.duration_s > 0 else 0.0,)
        metrics["events"] = Metric("events/s", "higher", windows=events)
    histograms = {name: getattr(result, name) for name in HISTOGRAMS}
    timed = planned.row.loop == "closed" and planned.row.requests is None
    many = FEWEST_EACH * result.late.count > result.latency.count  # they bear on the percentiles
    drained = result.late if timed and many else Histogram()
    if drained.count:
        histograms["latency"] = result.latency.without(drained)
        histograms["censored"] = result.censored.joined(drained)
    failed = result.failed_times.items()
    histograms |= {f"{FAILED_LATENCY}.{kind}": histogram for kind, histogram in failed}
    for name, histogram in histograms.items():
        if histogram.count or name == "latency":
            metrics[name] = Metric("ns", "lower", histogram=histogram.encode())
    notes = result.notes
    if result.early:
        early = (
            f"{result.early:,} of {result.completed_in_windows:,} requests were answered before "
            "they were sent whole: MB/s counts their bodies in full"
        )
        notes = (*notes, early)
    return Trial(
        **vars(planned),
        launch=launch,
        started_at=started_at,
        window_s=window_s,
        warmup=result.warmup,
        metrics=metrics,
        counts=result.measured,
        client=result.facts(notes=notes, drained=drained.count),
        seconds=TrialSeconds(
            total=round(total_s, 4),
            connect=round(result.time_to_connect_s, 4),
            connecting=round(result.connecting_s, 6),
            warmup=round(result.warmup.seconds, 4),
            measured=round(result.duration_s, 6),
        ),
        flags=flags,
    )


FEWEST_EACH: Final = 10
"""With fewer responses of each connection in the windows of a closed loop, the latencies of those
that ended behind them are lower bounds: a good part of their time no new load was sent."""


def row_of(load: Load) -> Row:
    """Describe a single load as a row."""
    noun = "client" if load.client == "aiohttp" else "connection"
    size = str(max(len(body) for body in load.request.all_bodies))
    streams = load.streaming is not None
    protocol: Protocol = "stream" if streams else "http"
    if load.client == "grpc":
        protocol = "grpc-stream" if streams else "grpc"
    about = {"client": load.client, "processes": load.processes, "rate_per_s": load.rate}
    loop = "open" if load.open_loop else "closed"
    return make_row(load.connections, noun, Traffic(size, protocol), **about, loop=loop)
